"""Plans of calls that were made before: a call repeated with other data is neither checked nor planned again.

Checking and planning a small call takes several times as long as computing it. A plan holds no tensor data and is never
changed; each run has a memory of its own (`ops.common.run.run_planned`), so threads may share one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from npu_sim.products import Product
from npu_sim.report.explain import current_recorder
from npu_sim.units import KIB

PlanT = TypeVar("PlanT")

LIMIT = 256
"""Signatures whose plans are kept, those used last: many calls have two, arguments as given and as read, and one plan
of about 40 KiB, and as much as 128 KiB more for each launch that ran again (`engines.execute_again`)."""

LIMIT_BYTES = 256 * KIB
"""Bytes of constants (matrices of divisors) in a plan that is kept."""


class _Plans:
    """Plans by their signatures, each beside the product, so that an identity in a signature stays its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Product, Any]] = OrderedDict()

    def find(self, signature: Hashable) -> Any:
        """Return the plan, None if there is none."""
        with self._lock:
            found = self._kept.get(signature)
            if found is None:
                return None
            self._kept.move_to_end(signature)
            return found[1]

    def keep(self, signature: Hashable, product: Product, plan: object) -> None:
        """Keep a plan without large constants, and drop that which was not used for longest if there are too many."""
        constants: Mapping[Any, np.ndarray] = getattr(plan, "constants", {})
        if sum(values.nbytes for values in constants.values()) > LIMIT_BYTES:
            return
        with self._lock:
            self._kept[signature] = product, plan
            if len(self._kept) > LIMIT:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Drop all plans."""
        with self._lock:
            self._kept.clear()


_PLANS = _Plans()
forget_plans = _PLANS.clear
"""Drop all plans that are kept."""


@cache
def _values_of(kind: Any) -> Callable[[Any], tuple[Hashable, ...]]:
    """Return what gives the fields of a call but its product, whose hash would walk through all its facts."""
    return attrgetter(*(field.name for field in fields(kind) if field.name != "product"))


_PLAIN = frozenset((int, bool, str, type(None), np.dtype))


def plain(value: Any) -> Hashable:
    """Return what is equal for arguments of equal values and types alone, 1 and True being two; None for others.

    Plain are ints, bools, words, None, and tuples and lists of them.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        parts = tuple(map(plain, value))
        return None if None in parts else (kind, parts)
    return (kind, value) if kind in _PLAIN else None


def planned_again(arrays: tuple[np.ndarray, ...], product: Product, make: Callable[[], PlanT], *others: Any) -> PlanT:
    """Return the plan of a call that was made before of such arrays and ``others`` as they were given, else ``make()``.

    Reading and checking arguments takes as long as to compute a small call.

    Parameters
    ----------
    arrays : tuple of array
        Of which only types and shapes decide the plan.
    product, make
        As of `planned_once`, which ``make`` calls.
    others : object
        All other arguments that decide the plan, with the name of the operator. Where one is not `plain`, ``make`` does
        it all.
    """
    given = plain(others)
    if given is None or current_recorder() is not None:
        return make()
    signature = (id(product), given, *((array.dtype, array.shape) for array in arrays))
    plan: PlanT | None = _PLANS.find(signature)
    if plan is None:
        plan = make()
        _PLANS.keep(signature, product, plan)
    return plan


def planned_once(call: Any, product: Product, make: Callable[[], PlanT], *others: Hashable) -> PlanT:
    """Return the plan of ``call``, made by ``make`` unless an equal call was planned before.

    Parameters
    ----------
    call : dataclass
        All arguments of the call that decide its plan; its fields but ``product`` must be hashable.
    product : Product
        Where it runs.
    make : callable
        Checks and plans the call; what it raises is not kept.
    others : hashable
        What else decides the plan.

    Notes
    -----
    While somebody records, every call has a plan of its own, because a recorder tells calls apart by their memory.
    """
    if current_recorder() is not None:
        return make()
    kind: Any = type(call)
    signature = (kind, id(product), *_values_of(kind)(call), *others)
    plan: PlanT | None = _PLANS.find(signature)
    if plan is None:
        plan = make()
        _PLANS.keep(signature, product, plan)
    return plan

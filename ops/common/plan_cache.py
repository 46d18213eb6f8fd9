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

LIMIT = 128
"""Plans that are kept, those used last; one of three gradients with all its launches has about 40 KiB."""

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
        """Keep a plan, and drop that which was not used for longest if there are too many."""
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
        constants: Mapping[Any, np.ndarray] = getattr(plan, "constants", {})
        if sum(values.nbytes for values in constants.values()) <= LIMIT_BYTES:
            _PLANS.keep(signature, product, plan)
    return plan

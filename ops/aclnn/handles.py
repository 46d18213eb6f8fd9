"""What the objects of the interface share, and the checks C's type system would make."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from npu_sim.errors import OperatorError, shown
from ops.aclnn.messages import record
from ops.common.status import AclnnStatus

NULLPTR = int(AclnnStatus.ACLNN_ERR_PARAM_NULLPTR)
INVALID = int(AclnnStatus.ACLNN_ERR_PARAM_INVALID)
INT64 = 2**63
MAX_ITEMS = 64
"""Entries of an array or axes of a tensor; no operator takes as many."""


class Handle:
    """An object the caller holds by pointer.

    Attributes
    ----------
    is_alive : bool
        False once it was destroyed.
    """

    __slots__ = ("is_alive",)

    def __init__(self) -> None:
        self.is_alive = True


SomeHandle = TypeVar("SomeHandle", bound=Handle)


def refusal(thing: str, rule: str, value: object) -> OperatorError:
    """Return a 161002 whose message says "<thing> must be <rule>, not <value>"."""
    return OperatorError(f"{thing} must be {rule}, not {shown(value)}", INVALID)


def alive(thing: str, kind: type[SomeHandle], value: Any) -> SomeHandle | None:
    """Return ``value``, which must be None or a live object of ``kind``.

    Raises
    ------
    OperatorError
        161002: it is something else, or destroyed.
    """
    if value is None:
        return None
    if not isinstance(value, kind):
        raise refusal(thing, f"an {kind.__name__}", value)
    if not value.is_alive:
        raise OperatorError(f"{thing} must be alive, not a destroyed {kind.__name__}", INVALID)
    return value


def destroy(call: str, kind: type[Handle], value: Any) -> AclnnStatus:
    """Destroy an object; None is allowed, anything else but a live object is refused with 161002."""
    try:
        handle = alive("argument", kind, value)
    except OperatorError as error:
        return record(error.status, f"{call}: {error}")
    if handle is not None:
        handle.is_alive = False
    return AclnnStatus.ACLNN_SUCCESS


def whole(thing: str, value: Any, limit: int = INT64) -> int:
    """Return ``value`` as an int in [-limit, limit); a bool is none.

    Raises
    ------
    OperatorError
        161002: it is not.
    """
    number = None
    if not isinstance(value, (bool, np.bool_)):
        try:
            number = operator.index(value)
        except Exception:
            number = None
    if number is None or not -limit <= number < limit:
        raise refusal(thing, f"an integer of {limit.bit_length()} bits", value)
    return number


def truth(thing: str, value: Any) -> bool:
    """Return ``value`` as a bool: a bool, or an integer, of which 0 is false.

    Raises
    ------
    OperatorError
        161002: it is neither.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    try:
        return operator.index(value) != 0
    except Exception:
        raise refusal(thing, "a bool", value) from None


def items(thing: str, values: Any) -> tuple[Any, ...]:
    """Return the items of a sequence.

    Raises
    ------
    OperatorError
        161002: it is text, a mapping, nothing to iterate over, or longer than `MAX_ITEMS`.
    """
    found: tuple[Any, ...] = ()
    is_sequence = isinstance(values, Iterable) and not isinstance(values, (str, bytes, dict))
    if is_sequence:
        try:
            found = tuple(islice(values, MAX_ITEMS + 1))
        except Exception:
            is_sequence = False
    if not is_sequence or len(found) > MAX_ITEMS:
        raise refusal(thing, f"a sequence of at most {MAX_ITEMS} entries", values)
    return found

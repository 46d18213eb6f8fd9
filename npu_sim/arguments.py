"""Arguments of public calls as plain values: what a caller may hand over, and how everything else is refused."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

import numpy as np

from npu_sim.errors import ShapeError, shown

MOST_ITEMS = 64
"""Entries of a sequence; no operator takes as many."""

_INT64 = 1 << 63


def whole(name: str, value: Any, context: str = "") -> int:
    """Return ``value`` as an int of 64 bits; anything with ``__index__`` is one, except a bool.

    Raises
    ------
    ShapeError
        If it is none; ``name`` and ``context`` are for the message.
    """
    number = None
    if not isinstance(value, bool | np.bool_):
        try:
            number = int(operator.index(value))
        except Exception:
            number = None
    if number is None:
        raise ShapeError(f"{name} must be an int, not {shown(value)}{context}")
    if not -_INT64 <= number < _INT64:
        raise ShapeError(f"{name} must be an int of 64 bits, not {shown(number)}{context}")
    return number


def flag(name: str, value: Any) -> bool:
    """Return a bool; a 0 or 1 of any integer type is one, a word or None (which Python would take for one) is not.

    Raises
    ------
    ShapeError
        If it is anything else; ``name`` is for the message.
    """
    if isinstance(value, bool | int | np.bool_ | np.integer) and value in (0, 1):
        return bool(value)
    raise ShapeError(f"{name} must be a bool, not {shown(value)}")


def is_sequence(value: Any) -> bool:
    """Whether ``value`` stands for several: it has a length, and is no text, mapping, set or array of no dimensions."""
    if isinstance(value, str | bytes | bytearray | dict | set | frozenset):
        return False
    try:
        return len(value) >= 0
    except Exception:
        return False


def items(name: str, values: Any, rule: str = "a sequence", context: str = "") -> tuple[Any, ...]:
    """Return the items of a sequence.

    Raises
    ------
    ShapeError
        ``values`` is none, or longer than `MOST_ITEMS`; ``rule`` says what it must be.
    """
    found: tuple[Any, ...] | None = None
    if isinstance(values, Iterable) and is_sequence(values):
        try:
            found = tuple(islice(values, MOST_ITEMS + 1))
        except Exception:
            found = None
    if found is None or len(found) > MOST_ITEMS:
        raise ShapeError(f"{name} must be {rule}, not {shown(values)}{context}")
    return found


def ints(name: str, values: Any, context: str = "") -> tuple[int, ...]:
    """Return a sequence of ints of 64 bits.

    Raises
    ------
    ShapeError
        It is none.
    """
    found = items(name, values, "a sequence of ints", context)
    return tuple(whole(f"{name} entry", item, context) for item in found)


def per_axis(name: str, value: Any, count: int) -> tuple[int, ...]:
    """Return a sequence of ints as it is, of whatever length, and one int ``count`` times.

    Raises
    ------
    ShapeError
        It is neither.
    """
    return ints(name, value) if is_sequence(value) else (whole(name, value),) * count


def choice(name: str, value: Any, known: Collection[str], error: type[Exception] = ShapeError) -> str:
    """Return ``value``, which must be one of the words ``known``.

    Raises
    ------
    Exception
        Of the class ``error``, if it is none.
    """
    if isinstance(value, str) and value in known:
        return value
    raise error(f"{name} must be one of {', '.join(known)}, not {shown(value)}")

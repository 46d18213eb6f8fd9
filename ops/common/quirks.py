"""Deviations of the library that a call switches on by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from npu_sim.errors import OperatorError, shown
from ops.common.status import PARAM_INVALID


def parse_names(argument: str, value: object, known: Collection[str], rule: str = "a set of") -> frozenset[str]:
    """Return the names that an argument lists: a list, a tuple, a set, or one of ``known`` by itself.

    Raises
    ------
    OperatorError
        161002: anything else; ``rule`` begins what would be right.
    """
    names: list[Any] = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if all(isinstance(name, str) and name in known for name in names):
        return frozenset(names)
    raise OperatorError(f"{argument} must be {rule} {', '.join(known)}, not {shown(value)}", PARAM_INVALID)


def check_names(what: str, names: frozenset[str], known: Collection[str]) -> None:
    """Refuse names that are not ``known``.

    Raises
    ------
    OperatorError
        161002.
    """
    for name in sorted(names.difference(known)):
        raise OperatorError(f"{what} must be one of {', '.join(known)}, not {name!r}", PARAM_INVALID)

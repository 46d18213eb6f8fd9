"""Deviations of the library that a call switches on by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from npu_sim.errors import OperatorError, shown
from ops.common.status import PARAM_INVALID


def parse_quirks(value: object, known: Collection[str]) -> frozenset[str]:
    """Return the deviations that the argument ``quirks`` switches on.

    All of ``known`` for True, none for False, those that a list, a tuple or a set names, or one by itself.

    Raises
    ------
    OperatorError
        161002: anything else.
    """
    if isinstance(value, (bool, np.bool_)):
        return frozenset(known) if value else frozenset()
    names: list[Any] = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if all(isinstance(name, str) and name in known for name in names):
        return frozenset(names)
    raise OperatorError(f"quirks must be a bool or a set of {', '.join(known)}, not {shown(value)}", PARAM_INVALID)


def check_quirks(names: frozenset[str], known: Collection[str]) -> None:
    """Refuse names that are not ``known``.

    Raises
    ------
    OperatorError
        161002.
    """
    for name in sorted(names.difference(known)):
        raise OperatorError(f"quirk must be one of {', '.join(known)}, not {name!r}", PARAM_INVALID)

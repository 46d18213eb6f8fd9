"""NumPy arrays, flags and threads as the Python-style calls take them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.errors import ShapeError


def as_array(value: npt.ArrayLike, what: str) -> np.ndarray:
    """Return ``value`` as an array of native byte order, copied only if it must be.

    Raises
    ------
    ShapeError
        If it is None or a ragged sequence.
    """
    if value is None:
        raise ShapeError(f"{what} must be an array, not None")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{what} must be an array of equally long rows, not {type(value).__name__}: {error}") from None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def flag(name: str, value: Any) -> bool:
    """Return a bool; a 0 or 1 of any integer type is one, a word or None (which Python would take for one) is not.

    Raises
    ------
    ShapeError
        If it is anything else; ``name`` is for the message.
    """
    if isinstance(value, bool | int | np.bool_ | np.integer) and value in (0, 1):
        return bool(value)
    raise ShapeError(f"{name} must be a bool, not {value!r}")


def available_threads() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

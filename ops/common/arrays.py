"""NumPy arrays and threads as the Python-style calls take them."""

from __future__ import annotations

import os

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


def available_threads() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

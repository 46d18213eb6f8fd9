"""From named values to the record a jitted emitter reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def int_fields(*names: str) -> np.dtype:
    """Return the record dtype with one int64 field for each name."""
    return np.dtype([(name, "i8") for name in names])


def record(dtype: np.dtype, values: Mapping[str, int]) -> np.ndarray:
    """Return a one-element record array; every field must be given, and nothing else.

    Raises
    ------
    KeyError
        A field is missing or there is no such field.
    """
    names = dtype.names or ()
    if set(values) != set(names):
        raise KeyError(f"fields must be {sorted(names)}, not {sorted(values)}")
    out = np.zeros(1, dtype)
    for name in names:
        out[name] = values[name]
    return out

"""From named values to the record a jitted emitter reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.memory.gm import GmTensor


def int_fields(*names: str) -> np.dtype:
    """Return the record dtype with one int64 field for each name."""
    return np.dtype([(name, "i8") for name in names])


def tensor_fields(**tensors: GmTensor) -> dict[str, int]:
    """Return address and number of each tensor, as the fields ``name`` and ``name_tensor``."""
    return {
        field: value
        for name, tensor in tensors.items()
        for field, value in ((name, tensor.address), (f"{name}_tensor", tensor.index))
    }


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

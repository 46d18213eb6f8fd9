"""Arrays and tensors as the Python-style calls take them."""

from __future__ import annotations

import os
import sys
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.errors import DTypeError, NpuSimError, ShapeError, shown


def as_array(value: npt.ArrayLike, what: str) -> np.ndarray:
    """Return ``value`` as an array of native byte order, copied only if it must be.

    Parameters
    ----------
    value : array, torch tensor in host memory, or anything NumPy makes an array of
        Gradient tracking of a tensor is ignored: nothing here is recorded.
    what : str
        Argument, for messages.

    Raises
    ------
    ShapeError, DTypeError
        If it is None, a ragged sequence, a tensor on a device, or nothing NumPy understands.
    BudgetError
        If a copy is larger than the memory budget.
    """
    if value is None:
        raise ShapeError(f"{what} must be an array, not None")
    array = shared_array(value, what)
    if not isinstance(array, np.ndarray):
        array = _converted(array, what)
    array = np.asarray(array)
    if array.dtype.isnative:
        return array
    reserve(f"{what} in the byte order of the host", array.size * array.itemsize)
    return array.astype(array.dtype.newbyteorder("="))


def contiguous(array: np.ndarray, what: str) -> np.ndarray:
    """Return ``array`` with its elements in order, copied only if they are not.

    Raises
    ------
    BudgetError
        If the copy is larger than the memory budget: an array of zero strides may have more elements than memory has.
    """
    if array.flags.c_contiguous:
        return array
    reserve(f"{what} with its elements in order", array.size * array.itemsize)
    return np.ascontiguousarray(array)


def shared_array(value: Any, what: str) -> Any:
    """Return a torch tensor as the array that shares its memory, bfloat16 included; anything else as it is.

    Raises
    ------
    DTypeError
        If the tensor is on a device, is not dense, or has a type NumPy lacks.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    if value.device.type != "cpu":
        raise DTypeError(f"{what} must be a tensor in host memory (.cpu()), not on the device {value.device}")
    if value.layout is not torch.strided:
        raise DTypeError(f"{what} must be a dense tensor (.to_dense()), not one of layout {value.layout}")
    try:
        plain = value.detach().resolve_neg().resolve_conj()
        if plain.dtype is torch.bfloat16:
            return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return plain.numpy()
    except Exception as error:
        raise DTypeError(f"{what} must be a tensor that NumPy can show, not {shown(value.dtype)}: {error}") from error


def _converted(value: Any, what: str) -> np.ndarray:
    """Return what NumPy makes of an object that is no array."""
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except NpuSimError:
        raise
    except MemoryError as error:
        raise ShapeError(f"{what} must be an array that fits the host's memory, not {type(value).__name__}") from error
    except Exception as error:
        rule = "an array of equally long rows"
        raise ShapeError(f"{what} must be {rule}, not {type(value).__name__}: {shown(str(error))[1:-1]}") from None


def available_threads() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The caller's arrays as the tensors that a call of the class is given."""

from __future__ import annotations

import numpy as np

from npu_sim.dtypes.formats import BF16, DType
from npu_sim.errors import DTypeError, ShapeError
from npu_sim.isa.op import Data
from npu_sim.memory.host import HostMemory, HostSpan
from ops.ascendc.types import dtype_name
from ops.common.arrays import shared_array


def place_operand(memory: HostMemory, view: np.ndarray, source: DType, name: str, call: str) -> HostSpan:
    """Return the place of an array that is read.

    Parameters
    ----------
    memory : HostMemory
        Where it gets its place.
    view : array
        1-D, C-contiguous; bfloat16_t also as the uint16 of its bits.
    source : DType
        Its type.
    name, call : str
        Argument and method, for messages.

    Raises
    ------
    DTypeError, ShapeError
        If it is not such an array.
    """
    view = shared_array(view, name)
    allowed = {source.storage, np.dtype(np.uint16)} if source is BF16 else {source.storage}
    if not isinstance(view, np.ndarray) or view.dtype not in allowed:
        raise DTypeError(f"{name} must be an array of {source.cpp_name}, not {_given(view)} ({call})")
    return memory.place(name, view, source.data)


def place_output(memory: HostMemory, output: np.ndarray, call: str) -> HostSpan:
    """Return the place of the array that is written.

    Raises
    ------
    DTypeError, ShapeError
        If it is not a 1-D C-contiguous float32 array that can be written.
    """
    if not isinstance(output, np.ndarray) or output.dtype != np.float32:
        raise DTypeError(f"output must be an array of float, not {_given(output)} ({call})")
    if not output.flags.writeable:
        raise ShapeError(f"output must be an array that can be written, not a read-only one ({call})")
    return memory.place("output", output, Data.FP32)


def _given(value: object) -> str:
    return dtype_name(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__

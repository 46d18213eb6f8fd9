"""The enumerations and the type triple of the Ascend C convolution classes.

Source: asc-devkit ``include/adv_api/conv`` (ConvFormat, ConvDtype) and
``include/adv_api/conv_backprop/common/conv3d_bp_config_base.h`` (ConvType); the published usage page of
Conv3DBackpropFilter (Conv3DBpFilterCfg).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import BF16, DTYPE_OF_STORAGE, get_dtype
from npu_sim.errors import DTypeError, LayoutError, NpuSimError, shown
from npu_sim.program.positions import TPosition


class ConvFormat(IntEnum):
    """Format of a tensor."""

    ND = 0
    NCHW = 1
    NHWC = 2
    HWCN = 3
    DHWNC = 4
    DHWCN = 5
    NDHWC = 6
    NCDHW = 7
    NC1HWC0 = 8
    NDC1HWC0 = 9
    FRACTAL_Z_3D = 10


class ConvDtype(IntEnum):
    """Element type as the tiling class takes it."""

    FLOAT16 = 0
    FLOAT32 = 1
    BF16 = 2
    INT4 = 3
    INT8 = 4
    UINT8 = 5
    INT32 = 6
    INT64 = 7
    UINT64 = 8


E = TypeVar("E", bound=IntEnum)

CONV_DTYPES: dict[np.dtype, ConvDtype] = {
    np.dtype(np.float16): ConvDtype.FLOAT16,
    BF16.storage: ConvDtype.BF16,
    np.dtype(np.float32): ConvDtype.FLOAT32,
    np.dtype(np.int8): ConvDtype.INT8,
    np.dtype(np.uint8): ConvDtype.UINT8,
    np.dtype(np.int32): ConvDtype.INT32,
    np.dtype(np.int64): ConvDtype.INT64,
    np.dtype(np.uint64): ConvDtype.UINT64,
}


def dtype_name(dtype: np.dtype) -> str:
    """Return the name of ``dtype`` in Ascend C, NumPy's where there is none."""
    return DTYPE_OF_STORAGE[dtype].cpp_name if dtype in DTYPE_OF_STORAGE else dtype.name


@dataclass(frozen=True, init=False)
class ConvType:
    """Position, format and element type of one tensor of the class.

    Parameters
    ----------
    position : TPosition
        Logical position.
    conv_format : ConvFormat
        Format.
    dtype : dtype-like
        A name ("half", "bfloat16_t", "fp16"), a dtype of torch, or anything `numpy.dtype` accepts.

    Raises
    ------
    LayoutError
        If the position or the format is not a member of its enumeration.
    DTypeError
        If ``dtype`` is no dtype.

    Examples
    --------
    >>> ConvType(TPosition.GM, ConvFormat.NDC1HWC0, np.float16).format.name
    'NDC1HWC0'
    """

    pos: TPosition
    format: ConvFormat
    Type: np.dtype

    def __init__(self, position: TPosition, conv_format: ConvFormat, dtype: npt.DTypeLike) -> None:
        object.__setattr__(self, "pos", member(TPosition, position, "ConvType position", LayoutError))
        object.__setattr__(self, "format", member(ConvFormat, conv_format, "ConvType format", LayoutError))
        object.__setattr__(self, "Type", numpy_dtype(dtype, "ConvType dtype must be a NumPy dtype"))


class Conv3DBpFilterCfg(NamedTuple):
    """The four types the weight gradient is made for, in the order of the C++ template's arguments."""

    input_type: ConvType
    weight_type: ConvType
    grad_output_type: ConvType
    grad_weight_type: ConvType


def numpy_dtype(dtype: object, rule: str) -> np.dtype:
    """Return the NumPy dtype of a format's name or of anything `numpy.dtype` accepts.

    Raises
    ------
    DTypeError
        There is none; ``rule`` begins the message.
    """
    try:
        return get_dtype(dtype).storage
    except DTypeError:
        try:
            return np.dtype(dtype)  # type: ignore[call-overload]  # whatever it is
        except Exception:  # NumPy raises whatever its parser of dtypes runs into
            raise DTypeError(f"{rule}, not {shown(dtype)}") from None


def member(kind: type[E], value: object, what: str, error: type[NpuSimError]) -> E:
    """Return ``value`` as a member of ``kind``.

    Raises
    ------
    NpuSimError
        Of the class ``error``, if it is none.
    """
    if isinstance(value, kind):
        return value
    raise error(f"{what} must be a {kind.__name__}, not {shown(value)}")

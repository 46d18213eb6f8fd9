"""The number formats of the machine and the rounding modes of Cast, as frozen tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from npu_sim.dtypes.element_types import ElementType
from npu_sim.errors import DTypeError, shown
from npu_sim.units import BLOCK_BYTES


class RoundMode(IntEnum):
    """Rounding modes of Cast; the values are what the row field ``round_mode`` holds.

    Source: asc-devkit ``docs/zh/api/SIMD-API/.../Cast.md``, RoundMode (there CAST_NONE is 0 and the others follow; our
    codes are internal and put the default first).
    """

    RINT = 0
    """To nearest, ties to even."""
    FLOOR = 1
    """Toward minus infinity."""
    CEIL = 2
    """Toward plus infinity."""
    ROUND = 3
    """To nearest, ties away from zero."""
    TRUNC = 4
    """Toward zero."""
    ODD = 5
    """Exact values stay; every other becomes the neighbour whose last bit is 1 (von Neumann)."""
    NONE = 6
    """No rounding is needed; a lossy conversion behaves like RINT."""


class TieRule(IntEnum):
    """What a value half way between two HF32 values becomes (all three are round-to-nearest).

    EVEN is CTRL[47] = 0. The documents of CTRL[47] = 1 disagree: the SetHF32TransMode page says toward zero, the Matmul
    SetHF32 page away from zero (asc-devkit). Both exist here.
    """

    EVEN = 0
    AWAY = 1
    TOWARD_ZERO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """A number format.

    Attributes
    ----------
    name : str
        ``fp16``, ``bf16``, ``hf32``, ``hf32_10``, ``fp32``, ``int8``, ``uint8``, ``int16``, ``int32``, ``int64``.
    label : str
        Name in messages, as the operator documents write it (FP16).
    data : ElementType
        Code of the element type in memory.
    cpp_name : str
        Name of the element type in Ascend C (half).
    bits : int
        Stored bits of an element (HF32 is stored as an fp32 word).
    significand_bits : int
        Bits of the significand with the hidden one; for integers the bits of the magnitude.
    exponent_bits, bias : int
        0 for integers.
    max_finite, min_finite : int or float
        Largest and smallest finite value.
    storage : numpy.dtype
        Element type of arrays users hand over.
    code : numpy.dtype
        Element type of the bit patterns the conversions work on.
    """

    name: str
    label: str
    data: ElementType
    cpp_name: str
    bits: int
    significand_bits: int
    exponent_bits: int
    bias: int
    max_finite: int | float
    min_finite: int | float
    storage: np.dtype
    code: np.dtype

    @property
    def item_bytes(self) -> int:
        """Bytes of a stored element."""
        return self.bits // 8

    @property
    def block_elems(self) -> int:
        """Elements of a data block of 32 bytes: C0, the channels of a fractal's row."""
        return BLOCK_BYTES // self.item_bytes

    @property
    def stored_as(self) -> str:
        """Name of the format in memory: the Cube rounds fp32 words to HF32 on load."""
        return self.data.name.lower()

    @property
    def mantissa_bits(self) -> int:
        """Stored mantissa bits of a float format."""
        return self.significand_bits - 1

    @property
    def is_float(self) -> bool:
        """Whether the format has an exponent."""
        return self.exponent_bits > 0


def _float(
    name: str, data: ElementType, cpp_name: str, significand_bits: int, exponent_bits: int, storage: np.dtype
) -> DType:
    bias = 2 ** (exponent_bits - 1) - 1
    # Not a table of decimals: the largest value is all ones in the significand at the largest exponent.
    max_finite = (2.0 - 2.0 ** (1 - significand_bits)) * 2.0**bias
    return DType(
        name=name,
        label="HF32" if name == "hf32_10" else name.upper(),
        data=data,
        cpp_name=cpp_name,
        bits=8 * storage.itemsize,
        significand_bits=significand_bits,
        exponent_bits=exponent_bits,
        bias=bias,
        max_finite=max_finite,
        min_finite=-max_finite,
        storage=storage,
        code=np.dtype(f"u{storage.itemsize}"),
    )


def _integer(name: str) -> DType:
    storage = np.dtype(name)
    limits = np.iinfo(storage)
    return DType(
        name=name,
        label=name.upper(),
        data=ElementType[name.upper()],
        cpp_name=f"{name}_t",
        bits=limits.bits,
        significand_bits=limits.bits - (limits.min < 0),
        exponent_bits=0,
        bias=0,
        max_finite=int(limits.max),
        min_finite=int(limits.min),
        storage=storage,
        code=storage,
    )


FP16 = _float("fp16", ElementType.FP16, "half", 11, 5, np.dtype(np.float16))
BF16 = _float("bf16", ElementType.BF16, "bfloat16_t", 8, 8, np.dtype(ml_dtypes.bfloat16))
FP32 = _float("fp32", ElementType.FP32, "float", 24, 8, np.dtype(np.float32))
HF32 = _float("hf32", ElementType.FP32, "float", 12, 8, np.dtype(np.float32))
"""910B and 910_93: 1 + 8 + 11 bits; the operator tests drop the low 12 bits of an fp32 word
(ops-nn ``conv/conv3d_backprop_filter_v2/tests/assets/golden.py``)."""
HF32_10 = _float("hf32_10", ElementType.FP32, "float", 11, 8, np.dtype(np.float32))
"""950 profile: 1 + 8 + 10 bits (asc-devkit, HF32 of Mmad)."""

DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        dtype.name: dtype
        for dtype in (
            FP16,
            BF16,
            HF32,
            HF32_10,
            FP32,
            *(_integer(name) for name in ("int8", "uint8", "int16", "int32", "int64")),
        )
    }
)
"""Every format by name."""

DTYPE_OF_DATA: Mapping[int, DType] = MappingProxyType(
    {dtype.data: dtype for dtype in DTYPES.values() if dtype.name == dtype.stored_as}
)
"""The formats that elements have in memory, by their codes."""

DTYPE_OF_STORAGE: Mapping[np.dtype, DType] = MappingProxyType(
    {dtype.storage: dtype for dtype in DTYPE_OF_DATA.values()}
)
"""The same by the element types of arrays."""

_OTHER_NAMES: Mapping[str, DType] = MappingProxyType({"half": FP16, "bfloat16": BF16, "bfloat16_t": BF16})
"""Names that neither this module nor NumPy has."""


def dtype_name(storage: np.dtype) -> str:
    """Return the name of the format of arrays of ``storage``, NumPy's name of other types."""
    return DTYPE_OF_STORAGE[storage].name if storage in DTYPE_OF_STORAGE else str(storage)


def get_dtype(key: object) -> DType:
    """Return the format of a name (``"fp16"``, ``"float16"``, ``"half"``), a `DType` or a dtype of NumPy or torch.

    Parameters
    ----------
    key : str, DType, torch.dtype or numpy dtype-like
        Names in any case. float32 means fp32: HF32 is chosen by name only, its arrays look the same.

    Raises
    ------
    DTypeError
        No such format.
    """
    if isinstance(key, DType):
        return key
    wanted: Any = key
    if isinstance(key, str) or type(key).__module__ == "torch":
        wanted = str(key).strip().lower().removeprefix("torch.")
        for names in (DTYPES, _OTHER_NAMES):
            if wanted in names:
                return names[wanted]
    try:
        storage = None if key is None else np.dtype(wanted).newbyteorder("=")
    except Exception:  # NumPy raises whatever its parser of dtypes runs into
        storage = None
    if storage is None or storage not in DTYPE_OF_STORAGE:
        given = str(key) if isinstance(key, np.dtype) else shown(key)
        raise DTypeError(f"dtype must be one of {', '.join(DTYPES)}, not {given}")
    return DTYPE_OF_STORAGE[storage]

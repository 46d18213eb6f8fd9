"""Conversions of arrays between number formats, and which of them the vector unit has.

The rules of rounding, overflow and NaN stand in `convert_jit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np

from npu_sim.dtypes import bulk_jit
from npu_sim.dtypes.formats import DType, RoundMode, TieRule, get_dtype
from npu_sim.errors import DTypeError, ProductError
from npu_sim.fenv import default_fenv

Overflow = Literal["inf_nan", "saturate"]
Ties = Literal["even", "away", "toward_zero"]

OVERFLOW_CODES: Mapping[str, int] = MappingProxyType({"inf_nan": 0, "saturate": 1})
"""``saturate`` argument of the jitted conversions by name."""

TIE_CODES: Mapping[str, TieRule] = MappingProxyType(
    {"even": TieRule.EVEN, "away": TieRule.AWAY, "toward_zero": TieRule.TOWARD_ZERO}
)
"""``ties`` argument of the jitted conversions by name."""

_FLOAT64 = np.dtype(np.float64)


def parse_round_mode(mode: RoundMode | int | str) -> RoundMode:
    """Return a rounding mode given as such, as its code or as its name.

    Raises
    ------
    DTypeError
        No such mode.
    """
    if isinstance(mode, RoundMode):
        return mode
    if isinstance(mode, str) and mode in RoundMode.__members__:
        return RoundMode[mode]
    is_code = isinstance(mode, (int, np.integer)) and not isinstance(mode, bool)
    if is_code and int(mode) in RoundMode.__members__.values():
        return RoundMode(int(mode))
    raise DTypeError(f"Round mode must be one of {', '.join(RoundMode.__members__)}, not {mode!r}")


@default_fenv
def cast(
    array: np.ndarray,
    dtype: DType | str | np.dtype | type,
    mode: RoundMode | int | str = RoundMode.RINT,
    overflow: Overflow = "inf_nan",
) -> np.ndarray:
    """Convert an array to another format with one rounding.

    Parameters
    ----------
    array : ndarray
        Any shape and strides; float16, bfloat16, float32, float64, int8, uint8, int16, int32 or int64. Not modified.
    dtype : DType, str or numpy dtype-like
        Target: fp16, bf16, fp32, int8, uint8, int16, int32, int64. HF32 is a rounding of fp32: `round_hf32`.
    mode : RoundMode
        Rounding mode; widening conversions do not need one.
    overflow : {"inf_nan", "saturate"}
        What happens beyond the largest fp16 or bf16 value. fp32 targets are always "inf_nan", integers always clamp.

    Returns
    -------
    ndarray
        New C-ordered array of the target's storage dtype.

    Raises
    ------
    DTypeError
        A format or mode that does not exist.

    Notes
    -----
    An array that has the target format already is copied, unlike the Cast instruction from float to float, which rounds
    to integers (`round_to_integral`). This is arithmetic only; `check_cast` knows what an architecture has.

    Examples
    --------
    >>> cast(np.array([2049.0, 1e6], np.float32), "fp16", "CEIL", "saturate")
    array([ 2050., 65504.], dtype=float16)
    """
    source = np.asarray(array)
    target = get_dtype(dtype)
    if target.name.startswith("hf32"):
        raise DTypeError("Target of cast must be a stored format, not HF32 (an fp32 word: use round_hf32)")
    mode_code = int(parse_round_mode(mode))
    if overflow not in OVERFLOW_CODES:
        raise DTypeError(f"Overflow mode must be one of {', '.join(OVERFLOW_CODES)}, not {overflow!r}")
    saturate = OVERFLOW_CODES[overflow]
    if source.dtype.newbyteorder("=") == _FLOAT64:
        flat = _cast_float64(_flat(source, _FLOAT64).view(np.uint64), target, mode_code, saturate)
    else:
        origin = get_dtype(source.dtype)
        values = _flat(source, origin.storage)
        if origin.name == target.name:
            flat = values.copy()
        elif origin.is_float:
            flat = _cast_float(_words(values, origin), target, mode_code, saturate)
        else:
            flat = _cast_integer(values.astype(np.int64), target, mode_code, saturate)
    return flat.view(target.storage).reshape(source.shape)


@default_fenv
def round_hf32(array: np.ndarray, mantissa_bits: int = 11, ties: Ties = "even") -> np.ndarray:
    """Round float32 values to HF32 precision, as the Cube does with its fp32 operands in HF32 mode.

    Parameters
    ----------
    array : float32 ndarray
        Any shape and strides. Not modified.
    mantissa_bits : {11, 10}
        Stored mantissa bits: 11 on 910B and 910_93, 10 on the 950 profile.
    ties : {"even", "away", "toward_zero"}
        Values half way between two HF32 values.

    Returns
    -------
    float32 ndarray
        New C-ordered array; the dropped bits are zero. NaN is kept.

    Raises
    ------
    DTypeError
        Not float32, or no such variant.
    """
    source = np.asarray(array)
    if source.dtype.newbyteorder("=") != np.dtype(np.float32):
        raise DTypeError(f"Input of HF32 rounding must be float32, not {source.dtype}")
    if mantissa_bits not in (10, 11):
        raise DTypeError(f"HF32 mantissa bits must be 10 or 11, not {mantissa_bits!r}")
    if ties not in TIE_CODES:
        raise DTypeError(f"HF32 ties must be one of {', '.join(TIE_CODES)}, not {ties!r}")
    words = _flat(source, np.dtype(np.float32)).view(np.uint32)
    out = np.empty(words.size, np.uint32)
    bulk_jit.encode_hf32(words, out, 23 - int(mantissa_bits), int(TIE_CODES[ties]))
    return out.view(np.float32).reshape(source.shape)


@default_fenv
def round_to_integral(array: np.ndarray, mode: RoundMode | int | str = RoundMode.RINT) -> np.ndarray:
    """Round float32 values to integral float32 values: the Cast instruction from float to float. Zero is +0.

    Raises
    ------
    DTypeError
        Not float32, or no such mode.
    """
    source = np.asarray(array)
    if source.dtype.newbyteorder("=") != np.dtype(np.float32):
        raise DTypeError(f"Input of integral rounding must be float32, not {source.dtype}")
    words = _flat(source, np.dtype(np.float32)).view(np.uint32)
    out = np.empty(words.size, np.uint32)
    bulk_jit.encode_integral(words, out, int(parse_round_mode(mode)))
    return out.view(np.float32).reshape(source.shape)


def _flat(array: np.ndarray, storage: np.dtype) -> np.ndarray:
    """Return the elements in C order as a contiguous 1-D array in native byte order; may share memory."""
    return np.ascontiguousarray(array, storage).reshape(-1)


def _words(values: np.ndarray, origin: DType) -> np.ndarray:
    """Return the fp32 words (uint32) of float values; exact."""
    codes = values.view(origin.code)
    if origin.name == "fp32":
        return codes
    words = np.empty(codes.size, np.uint32)
    (bulk_jit.decode_fp16 if origin.name == "fp16" else bulk_jit.decode_bf16)(codes, words)
    return words


def _cast_float(words: np.ndarray, target: DType, mode: int, saturate: int) -> np.ndarray:
    if target.name == "fp32":
        return words
    if target.is_float:
        out = np.empty(words.size, target.code)
        is_half = target.name == "fp16"
        if mode == RoundMode.RINT:
            (bulk_jit.nearest_fp16 if is_half else bulk_jit.nearest_bf16)(words, out, saturate)
        else:
            (bulk_jit.encode_fp16 if is_half else bulk_jit.encode_bf16)(words, out, mode, saturate)
        return out
    integers = np.empty(words.size, np.int64)
    bulk_jit.encode_int_of_fp32(words, integers, int(target.min_finite), int(target.max_finite), mode)
    return integers.astype(target.storage)


def _cast_float64(patterns: np.ndarray, target: DType, mode: int, saturate: int) -> np.ndarray:
    if not target.is_float:
        integers = np.empty(patterns.size, np.int64)
        bulk_jit.encode_int_of_fp64(patterns, integers, int(target.min_finite), int(target.max_finite), mode)
        return integers.astype(target.storage)
    out = np.empty(patterns.size, target.code)
    if target.name == "fp32":
        bulk_jit.encode_fp32_of_fp64(patterns, out, mode)
    else:
        encode = bulk_jit.encode_fp16_of_fp64 if target.name == "fp16" else bulk_jit.encode_bf16_of_fp64
        encode(patterns, out, mode, saturate)
    return out


def _cast_integer(integers: np.ndarray, target: DType, mode: int, saturate: int) -> np.ndarray:
    if not target.is_float:
        return np.clip(integers, int(target.min_finite), int(target.max_finite)).astype(target.storage)
    out = np.empty(integers.size, target.code)
    if target.name == "fp32":
        bulk_jit.encode_fp32_of_int(integers, out, mode)
    else:
        encode = bulk_jit.encode_fp16_of_int if target.name == "fp16" else bulk_jit.encode_bf16_of_int
        encode(integers, out, mode, saturate)
    return out


_NONE = frozenset({RoundMode.NONE})
_DIRECTED = frozenset({RoundMode.FLOOR, RoundMode.CEIL, RoundMode.ROUND, RoundMode.TRUNC})
_FIVE = _DIRECTED | {RoundMode.RINT}

CastTable = Mapping[tuple[str, str], frozenset[RoundMode]]

_C100: dict[tuple[str, str], frozenset[RoundMode]] = {
    ("fp16", "fp32"): _NONE,
    ("fp32", "fp16"): frozenset({RoundMode.NONE, RoundMode.ODD}),
    ("fp32", "int32"): _FIVE,
    ("fp16", "int32"): _FIVE,
    ("fp16", "int8"): _DIRECTED | _NONE,
    ("fp16", "uint8"): _DIRECTED | _NONE,
    ("int8", "fp16"): _NONE,
    ("uint8", "fp16"): _NONE,
    ("int32", "fp32"): _NONE,
}
_M200: dict[tuple[str, str], frozenset[RoundMode]] = {
    **_C100,
    ("fp16", "int16"): frozenset({RoundMode.RINT}),
    ("int16", "fp16"): _NONE,
    ("int32", "int16"): _NONE,
}
_C220: dict[tuple[str, str], frozenset[RoundMode]] = {
    ("fp16", "fp32"): _NONE,
    ("fp32", "fp16"): _FIVE | _NONE | {RoundMode.ODD},
    ("fp32", "bf16"): _FIVE,
    ("bf16", "fp32"): _NONE,
    ("fp32", "fp32"): _FIVE,
    ("fp32", "int32"): _FIVE,
    ("fp32", "int16"): _FIVE,
    ("fp32", "int64"): _FIVE,
    ("fp16", "int32"): _FIVE,
    ("fp16", "int16"): _FIVE,
    ("fp16", "int8"): _FIVE | _NONE,
    ("fp16", "uint8"): _FIVE | _NONE,
    ("bf16", "int32"): _FIVE,
    ("int8", "fp16"): _NONE,
    ("uint8", "fp16"): _NONE,
    ("int16", "fp16"): _FIVE | _NONE,
    ("int16", "fp32"): _NONE,
    ("int32", "fp32"): _FIVE | _NONE,
    ("int32", "int16"): _NONE,
    ("int32", "int64"): _NONE,
    ("int64", "fp32"): _FIVE,
    ("int64", "int32"): _NONE,
}

CAST_MODES: Mapping[str, CastTable] = MappingProxyType(
    {
        "dav-c100": MappingProxyType(_C100),
        "dav-m200": MappingProxyType(_M200),
        "dav-c220": MappingProxyType(_C220),
    }
)
"""Rounding modes of the Cast instruction by architecture and (source, target) names.

Sources: asc-devkit ``impl/basic_api/dav_{c100,m200,c220}/kernel_operator_vec_vconv_impl.h`` and, for dav-c220, the
table of ``docs/zh/api/SIMD-API/.../Cast.md``. Where the two differ for the older architectures (the page lists float to
int64 and, for 910, int16 to half; the implementations have float to int32 instead and refuse those) the implementation
counts. Left out: int4, and int32 to half, which multiplies by a scale register (SetDeqScale) this machine does not
have.
"""


def check_cast(src: str, dst: str, mode: RoundMode | int | str, arch: str) -> None:
    """Refuse a Cast that an architecture does not have.

    Parameters
    ----------
    src, dst : str
        Format names.
    mode : RoundMode
        Rounding mode.
    arch : str
        ``"dav-c100"`` (910), ``"dav-m200"`` (310P) or ``"dav-c220"`` (910B, 910_93).

    Raises
    ------
    DTypeError
        No such format or mode.
    ProductError
        The architecture is unknown, or does not have the pair or the mode.
    """
    source, target, wanted = get_dtype(src), get_dtype(dst), parse_round_mode(mode)
    if arch not in CAST_MODES:
        raise ProductError(f"Architecture must be one of {', '.join(CAST_MODES)}, not {arch!r}")
    table = CAST_MODES[arch]
    modes = table.get((source.name, target.name))
    if modes is None:
        known = ", ".join(name for pair_src, name in table if pair_src == source.name) or "no format"
        raise ProductError(
            f"Cast from {source.name} must be to {known}, not to {target.name} (mode {wanted.name}, {arch})"
        )
    if wanted not in modes:
        known = ", ".join(known_mode.name for known_mode in sorted(modes))
        raise ProductError(
            f"Cast mode must be one of {known}, not {wanted.name} ({source.name} to {target.name}, {arch})"
        )

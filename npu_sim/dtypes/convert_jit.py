"""Conversions between number formats on bit patterns.

Every conversion rounds once, from the exact source value, whatever the source is (fp32, float64, int64).

* **Subnormals** are kept on both sides (asc-devkit, boundary values of vector computation).
* **NaN**: a conversion that rounds gives the positive quiet NaN without payload (0x7E00, 0x7FC0, 0x7FC00000), because
  the sign and payload of a NaN that arithmetic makes differ between host CPUs and results must not; Ascend documents
  leave NaN patterns open. A widening conversion keeps sign and payload and sets the quiet bit (IEEE 754, 5.4.2).
  HF32 rounding leaves NaN words as they are.
* **Overflow**: with ``saturate`` 0 to Inf, as IEEE 754 (4.3, 7.4) has it: modes that round toward zero there give the
  largest finite value instead. With ``saturate`` 1 overflow and Inf give the largest finite value and NaN gives +0
  (asc-devkit, SetCtrlSpr, CTRL[48]).
  ODD never gives Inf for a finite value: the largest finite value is odd. ASSUMED: no Ascend document states it;
  Berkeley SoftFloat (``source/s_roundPackToF16.c``, softfloat_round_odd) does the same.
* **Integers** clamp, NaN gives 0, in both overflow modes (asc-devkit, precision conversion table).

Patterns of floats are unsigned (uint16, uint32, uint64), integers are int64. `mode` is a `RoundMode` code, `ties` a
`TieRule` code. Scalar functions are named ``a_to_b``; ``encode_b`` and ``decode_a`` are the same over arrays.
Nothing here wraps around, so that the code also runs as plain Python without NumPy's overflow warnings.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.formats import ElementType, RoundMode, TieRule

# ---------------------------------------------------------------------------------------------------------------------
# Widening: exact.


@jit
def fp16_to_fp32(code):
    """Return the fp32 word (uint32) of an fp16 pattern (uint16); exact, NaN becomes quiet."""
    magnitude = np.uint32(code & 0x7FFF)
    sign = np.uint32(np.uint32(code & 0x8000) << np.uint32(16))
    # Subnormal: an integer times 2^-24. Through int32, because vector units convert signed integers.
    tiny = np.float32(np.float32(np.int32(magnitude)) * np.float32(2.0**-24)).view(np.uint32)
    word = np.uint32(np.uint32(magnitude << np.uint32(13)) + np.uint32(0x38000000))
    word = tiny if magnitude < np.uint32(0x0400) else word
    word = np.uint32(word + np.uint32(0x38000000)) if magnitude >= np.uint32(0x7C00) else word
    word = np.uint32(word | np.uint32(0x00400000)) if magnitude > np.uint32(0x7C00) else word
    return np.uint32(word | sign)


@jit
def bf16_to_fp32(code):
    """Return the fp32 word (uint32) of a bf16 pattern (uint16); exact, NaN becomes quiet."""
    word = np.uint32(np.uint32(code) << np.uint32(16))
    is_nan = np.uint32(word & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.uint32(word | np.uint32(0x00400000)) if is_nan else word


# ---------------------------------------------------------------------------------------------------------------------
# Rounding of a significand: one rule for every source and target.


@jit
def _round_shift(significand, shift, negative, mode):
    """Return ``significand / 2**shift`` (uint64, shift 0..62) rounded to an integer by ``mode``.

    Every mode but ODD is an addition in front of the shift; without branches, so that loops over it vectorise.
    """
    one = np.uint64(1)
    unit = np.uint64(one << np.uint64(shift))
    half = np.uint64(unit >> one)
    below = np.uint64(unit - one)
    odd = np.uint64(np.uint64(significand >> np.uint64(shift)) & one)
    # Nearest even: half a unit, less one when the kept part is even. With shift 0 nothing may be added.
    nearest = np.uint64(max(np.uint64(half + odd), one) - one)
    add = half if mode == RoundMode.ROUND else nearest
    away = ((mode == RoundMode.FLOOR) & negative) | ((mode == RoundMode.CEIL) & (not negative))
    toward = (mode >= RoundMode.FLOOR) & (mode <= RoundMode.ODD) & (mode != RoundMode.ROUND)
    add = np.uint64(0) if toward else add
    add = below if away else add
    rounded = np.uint64(np.uint64(significand + add) >> np.uint64(shift))
    inexact = np.uint64(significand & below) != np.uint64(0)
    return np.uint64(rounded | one) if inexact & (mode == RoundMode.ODD) else rounded


@jit
def _overflow_code(inf_code, negative, mode, saturate):
    """Return the magnitude pattern of a finite value that is too large."""
    toward_zero = (
        (mode == RoundMode.TRUNC)
        | (mode == RoundMode.ODD)
        | ((mode == RoundMode.FLOOR) & (not negative))
        | ((mode == RoundMode.CEIL) & negative)
    )
    return inf_code - 1 if (saturate != 0) | toward_zero else inf_code


@jit
def _narrow(magnitude, negative, fraction_bits, source_inf, target_bits, rebias, inf_code, mode, saturate):
    """Round a float pattern to a narrower float; int64 in, int64 out, with the sign of a 16-bit or 32-bit target off.

    Parameters
    ----------
    magnitude : int64
        Source pattern without sign.
    negative : bool
        Its sign.
    fraction_bits : int64
        Stored mantissa bits of the source (23 or 52).
    source_inf : int64
        Source pattern of Inf.
    target_bits : int64
        Stored mantissa bits of the target.
    rebias : int64
        Exponent field of the source that the target's smallest normal value has.
    inf_code : int64
        Target pattern of Inf.
    mode, saturate : int64
        Rounding mode, overflow mode.

    Returns
    -------
    int64
        Target pattern without sign; -1 for NaN that stays NaN, -2 for NaN that becomes 0.
    """
    field = magnitude >> fraction_bits
    hidden = np.int64(1) << fraction_bits
    significand = (magnitude & (hidden - 1)) | (hidden if field > 0 else np.int64(0))
    field = max(field, 1)
    # Below the smallest normal value the last kept bit has a fixed weight; two more places only leave a sticky rest.
    shift = fraction_bits - target_bits + min(max(rebias - field, 0), target_bits + 2)
    kept = np.int64(_round_shift(np.uint64(significand), shift, negative, mode))
    # The hidden bit in `kept` adds one to the exponent field, and so does a carry out of the significand.
    code = (max(field - rebias, 0) << target_bits) + kept
    code = min(code, _overflow_code(inf_code, negative, mode, saturate))
    code = (inf_code - 1 if saturate else inf_code) if magnitude == source_inf else code
    return (np.int64(-2) if saturate else np.int64(-1)) if magnitude > source_inf else code


@jit
def _with_sign16(code, negative, quiet_nan):
    signed = code | 0x8000 if negative else code
    special = quiet_nan if code == -1 else 0
    return np.uint16(special if code < 0 else signed)


@jit
def _with_sign32(code, negative):
    signed = code | 0x80000000 if negative else code
    special = 0x7FC00000 if code == -1 else 0
    return np.uint32(special if code < 0 else signed)


# ---------------------------------------------------------------------------------------------------------------------
# fp32 to fp16 and bf16.


@jit
def fp32_to_nearest_fp16(word, saturate):
    """Return the fp16 pattern (uint16) of an fp32 word (uint32), ties to even; without branches."""
    magnitude = np.uint32(word & np.uint32(0x7FFFFFFF))
    # Subnormal results: adding 0.5 makes the host round at 2^-24, the weight of fp16's last subnormal bit.
    small = np.uint32(min(magnitude, np.uint32(0x38800000))).view(np.float32)
    tiny = np.uint32(np.float32(small + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000))
    normal = np.uint32(max(magnitude, np.uint32(0x38800000)) - np.uint32(0x38000000))
    odd = np.uint32(np.uint32(magnitude >> np.uint32(13)) & np.uint32(1))
    normal = np.uint32(np.uint32(normal + np.uint32(0x0FFF) + odd) >> np.uint32(13))
    code = tiny if magnitude < np.uint32(0x38800000) else normal
    code = min(code, np.uint32(0x7BFF) if saturate else np.uint32(0x7C00))
    code = np.uint32(code | np.uint32(np.uint32(word >> np.uint32(16)) & np.uint32(0x8000)))
    nan_code = np.uint32(0) if saturate else np.uint32(0x7E00)
    return np.uint16(nan_code if magnitude > np.uint32(0x7F800000) else code)


@jit
def fp32_to_nearest_bf16(word, saturate):
    """Return the bf16 pattern (uint16) of an fp32 word (uint32), ties to even; without branches."""
    magnitude = np.uint32(word & np.uint32(0x7FFFFFFF))
    odd = np.uint32(np.uint32(magnitude >> np.uint32(16)) & np.uint32(1))
    code = np.uint32(np.uint32(magnitude + np.uint32(0x7FFF) + odd) >> np.uint32(16))
    code = min(code, np.uint32(0x7F7F) if saturate else np.uint32(0x7F80))
    code = np.uint32(code | np.uint32(np.uint32(word >> np.uint32(16)) & np.uint32(0x8000)))
    nan_code = np.uint32(0) if saturate else np.uint32(0x7FC0)
    return np.uint16(nan_code if magnitude > np.uint32(0x7F800000) else code)


@jit
def fp32_to_fp16(word, mode, saturate):
    """Return the fp16 pattern (uint16) of an fp32 word (uint32)."""
    if mode == RoundMode.RINT or mode == RoundMode.NONE:
        return fp32_to_nearest_fp16(np.uint32(word), saturate)
    bits = np.int64(word)
    negative = bits > 0x7FFFFFFF
    code = _narrow(bits & 0x7FFFFFFF, negative, 23, 0x7F800000, 10, 113, 0x7C00, mode, saturate)
    return _with_sign16(code, negative, 0x7E00)


@jit
def fp32_to_bf16(word, mode, saturate):
    """Return the bf16 pattern (uint16) of an fp32 word (uint32)."""
    if mode == RoundMode.RINT or mode == RoundMode.NONE:
        return fp32_to_nearest_bf16(np.uint32(word), saturate)
    bits = np.int64(word)
    negative = bits > 0x7FFFFFFF
    code = _narrow(bits & 0x7FFFFFFF, negative, 23, 0x7F800000, 7, 1, 0x7F80, mode, saturate)
    return _with_sign16(code, negative, 0x7FC0)


# ---------------------------------------------------------------------------------------------------------------------
# float64 to fp16, bf16, fp32. fp32 ignores the overflow switch: it applies to half and bf16 only (asc-devkit).


@jit
def fp64_to_fp16(bits, mode, saturate):
    """Return the fp16 pattern (uint16) of a float64 pattern (uint64)."""
    magnitude = np.int64(bits & np.uint64(0x7FFFFFFFFFFFFFFF))
    negative = bits > np.uint64(0x7FFFFFFFFFFFFFFF)
    code = _narrow(magnitude, negative, 52, 0x7FF0000000000000, 10, 1009, 0x7C00, mode, saturate)
    return _with_sign16(code, negative, 0x7E00)


@jit
def fp64_to_bf16(bits, mode, saturate):
    """Return the bf16 pattern (uint16) of a float64 pattern (uint64)."""
    magnitude = np.int64(bits & np.uint64(0x7FFFFFFFFFFFFFFF))
    negative = bits > np.uint64(0x7FFFFFFFFFFFFFFF)
    code = _narrow(magnitude, negative, 52, 0x7FF0000000000000, 7, 897, 0x7F80, mode, saturate)
    return _with_sign16(code, negative, 0x7FC0)


@jit
def fp64_to_fp32(bits, mode):
    """Return the fp32 word (uint32) of a float64 pattern (uint64)."""
    magnitude = np.int64(bits & np.uint64(0x7FFFFFFFFFFFFFFF))
    negative = bits > np.uint64(0x7FFFFFFFFFFFFFFF)
    code = _narrow(magnitude, negative, 52, 0x7FF0000000000000, 23, 897, 0x7F800000, mode, 0)
    return _with_sign32(code, negative)


# ---------------------------------------------------------------------------------------------------------------------
# Integers to floats.


@jit
def _bit_length(value):
    """Return the bits of a uint64."""
    length = np.int64(0)
    step = np.int64(32)
    while step > 0:
        if value >> np.uint64(step) != 0:
            value = np.uint64(value >> np.uint64(step))
            length += step
        step >>= 1
    return length + 1 if value != 0 else np.int64(0)


@jit
def _from_int(value, target_bits, bias, inf_code, mode, saturate):
    """Round an int64 to a float pattern without sign (int64)."""
    if value == 0:
        return np.int64(0)
    negative = value < 0
    magnitude = np.uint64(-(value + 1)) + np.uint64(1) if negative else np.uint64(value)
    exponent = _bit_length(magnitude) - 1
    shift = exponent - target_bits
    if shift > 0:
        kept = np.int64(_round_shift(magnitude, shift, negative, mode))
    else:
        kept = np.int64(magnitude) << -shift
    code = ((exponent + bias - 1) << target_bits) + kept
    return min(code, _overflow_code(inf_code, negative, mode, saturate))


@jit
def int_to_fp16(value, mode, saturate):
    """Return the fp16 pattern (uint16) of an int64."""
    return _with_sign16(_from_int(np.int64(value), 10, 15, 0x7C00, mode, saturate), value < 0, 0x7E00)


@jit
def int_to_bf16(value, mode, saturate):
    """Return the bf16 pattern (uint16) of an int64."""
    return _with_sign16(_from_int(np.int64(value), 7, 127, 0x7F80, mode, saturate), value < 0, 0x7FC0)


@jit
def int_to_fp32(value, mode):
    """Return the fp32 word (uint32) of an int64."""
    return _with_sign32(_from_int(np.int64(value), 23, 127, 0x7F800000, mode, 0), value < 0)


# ---------------------------------------------------------------------------------------------------------------------
# Floats to integers, fp32 to integral fp32.


@jit
def _to_int(magnitude, negative, fraction_bits, bias, source_inf, low, high, mode):
    """Round a float pattern to an int64 in [low, high]; magnitude is an int64 pattern without sign."""
    if magnitude > source_inf:
        return np.int64(0)
    field = magnitude >> fraction_bits
    if field >= bias + 63:
        return low if negative else high
    significand = magnitude & ((np.int64(1) << fraction_bits) - 1)
    if field > 0:
        significand |= np.int64(1) << fraction_bits
    shift = bias + fraction_bits - max(field, 1)
    if shift > 0:
        # Beyond two places below the significand everything is only a sticky rest.
        shift = min(shift, fraction_bits + 3)
        value = np.int64(_round_shift(np.uint64(significand), shift, negative, mode))
    else:
        value = np.int64(significand) << -shift
    value = -value if negative else value
    return min(max(value, low), high)


@jit
def fp32_to_int(word, low, high, mode):
    """Return the integer (int64) of an fp32 word, clamped to [low, high]; NaN gives 0."""
    bits = np.int64(word)
    return _to_int(bits & 0x7FFFFFFF, bits > 0x7FFFFFFF, 23, 127, 0x7F800000, np.int64(low), np.int64(high), mode)


@jit
def fp64_to_int(bits, low, high, mode):
    """Return the integer (int64) of a float64 pattern (uint64), clamped to [low, high]; NaN gives 0."""
    magnitude = np.int64(bits & np.uint64(0x7FFFFFFFFFFFFFFF))
    negative = bits > np.uint64(0x7FFFFFFFFFFFFFFF)
    return _to_int(magnitude, negative, 52, 1023, 0x7FF0000000000000, np.int64(low), np.int64(high), mode)


@jit
def fp32_to_integral(word, mode):
    """Return the fp32 word of the value rounded to an integer: the Cast from float to float.

    Notes
    -----
    -0 becomes +0 (asc-devkit, precision conversion table). ASSUMED: so does every negative value that rounds to zero.
    """
    bits = np.int64(word)
    magnitude = bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return np.uint32(0x7FC00000)
    if magnitude >= 0x4B000000:  # 2^23: integral already
        return np.uint32(word)
    negative = bits > 0x7FFFFFFF
    value = _to_int(magnitude, negative, 23, 127, 0x7F800000, np.int64(-(1 << 23)), np.int64(1 << 23), mode)
    return np.float32(value).view(np.uint32)


# ---------------------------------------------------------------------------------------------------------------------
# HF32 and saturation of fp32.


@jit
def fp32_to_hf32(word, drop, ties):
    """Round an fp32 word to HF32: ``drop`` low bits (12 on 910B and 910_93, 13 on 950) become zero.

    Notes
    -----
    A carry out of the mantissa can reach Inf; Inf and NaN stay as they are (assumed, no document states it).
    """
    magnitude = np.uint32(word & np.uint32(0x7FFFFFFF))
    shift = np.uint32(drop)
    half = np.uint32(np.uint32(1) << np.uint32(drop - 1))
    odd = np.uint32(np.uint32(magnitude >> shift) & np.uint32(1))
    add = half if ties == TieRule.AWAY else np.uint32(half - np.uint32(1))
    add = np.uint32(add + odd) if ties == TieRule.EVEN else add
    rounded = np.uint32(np.uint32(np.uint32(magnitude + add) >> shift) << shift)
    rounded = np.uint32(rounded | np.uint32(word & np.uint32(0x80000000)))
    return np.uint32(word) if magnitude >= np.uint32(0x7F800000) else rounded


@jit
def saturate_fp32(word):
    """Clamp an fp32 word: Inf to the largest finite value, NaN to +0 (Mmad results in saturation mode)."""
    magnitude = np.uint32(word & np.uint32(0x7FFFFFFF))
    sign = np.uint32(word & np.uint32(0x80000000))
    clamped = np.uint32(min(magnitude, np.uint32(0x7F7FFFFF)) | sign)
    return np.uint32(0) if magnitude > np.uint32(0x7F800000) else clamped


# ---------------------------------------------------------------------------------------------------------------------
# Cast of one element.


@jit
def _widen(bits, src):
    if src == ElementType.FP16:
        return fp16_to_fp32(np.uint16(bits))
    if src == ElementType.BF16:
        return bf16_to_fp32(np.uint16(bits))
    return np.uint32(bits)


@jit
def int_limits(dtype):
    """Return (low, high) of an integer `ElementType` as int64."""
    if dtype == ElementType.INT8:
        return np.int64(-128), np.int64(127)
    if dtype == ElementType.UINT8:
        return np.int64(0), np.int64(255)
    if dtype == ElementType.INT16:
        return np.int64(-32768), np.int64(32767)
    if dtype == ElementType.INT32:
        return np.int64(-2147483648), np.int64(2147483647)
    return np.int64(-9223372036854775807) - np.int64(1), np.int64(9223372036854775807)


@jit
def cast_scalar(bits, src, dst, mode, saturate):
    """Convert one element between two `ElementType` (the values of ``isa.op.Data``).

    Parameters
    ----------
    bits : int64
        Unsigned pattern of a float, value of an integer.
    src, dst : int64
        Element types.
    mode, saturate : int64
        Rounding mode; 1 in saturation mode.

    Returns
    -------
    int64
        Unsigned pattern of a float, value of an integer.

    Notes
    -----
    fp32 to fp32 rounds to an integral value, as Cast does; equal 16-bit types are returned as they are. Integers clamp.
    """
    if src > ElementType.FP32:
        if dst == ElementType.FP16:
            return np.int64(int_to_fp16(bits, mode, saturate))
        if dst == ElementType.BF16:
            return np.int64(int_to_bf16(bits, mode, saturate))
        if dst == ElementType.FP32:
            return np.int64(int_to_fp32(bits, mode))
        low, high = int_limits(dst)
        return min(max(np.int64(bits), low), high)
    if src == dst and src != ElementType.FP32:
        return np.int64(bits)
    word = _widen(bits, src)
    if dst == ElementType.FP16:
        return np.int64(fp32_to_fp16(word, mode, saturate))
    if dst == ElementType.BF16:
        return np.int64(fp32_to_bf16(word, mode, saturate))
    if dst == ElementType.FP32:
        return np.int64(fp32_to_integral(word, mode)) if src == dst else np.int64(word)
    low, high = int_limits(dst)
    return fp32_to_int(word, low, high, mode)

"""Semantics of an element-wise instruction by itself, made when a program first has it: see `Instruction.apart`.

`isa.vector` has the count forms that most programs have, compiled together; here is what other count forms compute.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.bulk_jit import decode_bf16, decode_fp16, encode_bf16, encode_fp16
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import Data
from npu_sim.isa.instruction import Elementwise, Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.vector_values import fit_integer, is_arithmetic, widen
from npu_sim.reinterpret import reinterpret

_PIECE = 512
"""Elements that are decoded at a time."""


@jit
def _widen_all(dst, src, dtype):  # type: ignore[no-untyped-def]
    """Decode 16-bit patterns into float32."""
    words = reinterpret(dst, np.uint32)
    if dtype == Data.FP16:
        decode_fp16(src, words)
    else:
        decode_bf16(src, words)


@jit
def _narrow_all(dst, src, dtype, saturate):  # type: ignore[no-untyped-def]
    """Round float32 to 16-bit patterns, ties to even."""
    words = reinterpret(src, np.uint32)
    if dtype == Data.FP16:
        encode_fp16(words, dst, RoundMode.RINT, saturate)
    else:
        encode_bf16(words, dst, RoundMode.RINT, saturate)


def _over(function: Any, has_second: bool, has_value: bool) -> Any:
    """Return a loop of ``function`` over float32 arrays, resp. one of them and a number."""
    if has_second:

        @jit
        def loop(dst, x, y, scalar):  # type: ignore[no-untyped-def]
            for i in range(len(dst)):
                dst[i] = function(x[i], y[i])

    elif has_value:

        @jit
        def loop(dst, x, y, scalar):  # type: ignore[no-untyped-def]
            for i in range(len(dst)):
                dst[i] = function(x[i], scalar)

    else:

        @jit
        def loop(dst, x, y, scalar):  # type: ignore[no-untyped-def]
            for i in range(len(dst)):
                dst[i] = function(x[i])

    return loop


def _over_integers(function: Any, has_second: bool, has_value: bool, bits: int) -> Any:
    """Return a loop of ``function`` over arrays of integers of ``bits`` bits."""
    has_two = has_second or has_value

    @jit
    def loop(dst, x, y, value, saturate):  # type: ignore[no-untyped-def]
        if function is None:
            return
        for i in range(len(dst)):
            if has_two:
                result = function(np.int64(x[i]), np.int64(y[i]) if has_second else value)
            else:
                result = function(np.int64(x[i]))
            dst[i] = fit_integer(result, bits, saturate)

    return loop


def _combiner(elementwise: Elementwise, has_second: bool, has_value: bool) -> Any:
    """Return what writes the results of elements: of (dtype, dst, x, y, value, staging, saturate).

    ``dst``, ``x``, ``y`` are bytes of as many elements; ``staging`` has at least 3 * 512 float32. Rounding to float32
    before rounding to half or bf16 does not show in the result of one operation (Figueroa 1995), and where it would,
    `Elementwise.halves` computes. Returns False for types that it does not compute with.
    """
    floats = _over(elementwise.floats, has_second, has_value)
    halves = _over(elementwise.halves or elementwise.floats, has_second, has_value)
    words = _over_integers(elementwise.integers, has_second, has_value, 32)
    shorts = _over_integers(elementwise.integers, has_second, has_value, 16)
    has_integers = elementwise.integers is not None

    @jit
    def combine(dtype, dst, x, y, value, staging, saturate):  # type: ignore[no-untyped-def]
        if dtype == Data.FP32:
            scalar = np.uint32(value & 0xFFFFFFFF).view(np.float32)
            fx, fy = reinterpret(x, np.float32), reinterpret(y, np.float32)
            floats(reinterpret(dst, np.float32), fx, fy, scalar)
            return True
        if dtype == Data.INT32:
            words(reinterpret(dst, np.int32), reinterpret(x, np.int32), reinterpret(y, np.int32), value, saturate)
            return has_integers
        if dtype == Data.INT16:
            short = fit_integer(value, 16, 0)
            shorts(reinterpret(dst, np.int16), reinterpret(x, np.int16), reinterpret(y, np.int16), short, saturate)
            return has_integers
        if not is_arithmetic(dtype):
            return False
        scalar = widen(np.uint16(value & 0xFFFF), dtype)
        hdst, hx, hy = reinterpret(dst, np.uint16), reinterpret(x, np.uint16), reinterpret(y, np.uint16)
        for first in range(0, len(hdst), _PIECE):
            last = min(first + _PIECE, len(hdst))
            left, right = staging[: last - first], staging[_PIECE : _PIECE + last - first]
            # a result of its own: loops whose arrays overlap are not vectorised
            result = staging[2 * _PIECE : 2 * _PIECE + last - first]
            _widen_all(left, hx[first:last], dtype)
            if has_second:
                _widen_all(right, hy[first:last], dtype)
            halves(result, left, right, scalar)
            _narrow_all(hdst[first:last], result, dtype, saturate)
        return True

    return combine


def _count_form(combine: Any, has_second: bool, has_value: bool) -> Any:
    """Return the semantics of a count form."""

    @jit
    def run(row, ub, staging, config):  # type: ignore[no-untyped-def]
        length = np.int64(row["count"]) * item_bytes(row["dtype"])
        d, a = np.int64(row["dst"]), np.int64(row["src0"])
        b = np.int64(row["src1"]) if has_second else a
        value = np.int64(row["value"]) if has_value else np.int64(0)
        return combine(
            row["dtype"], ub[d : d + length], ub[a : a + length], ub[b : b + length], value, staging, config[3]
        )

    return run


@cache
def semantics_of(instruction: Instruction) -> Any:
    """Return the semantics of a count form that is compiled apart: its own, or of what its record computes."""
    if instruction.run is not None:
        return instruction.run
    assert instruction.elementwise is not None
    shape = instruction.inputs == 2, "value" in instruction.fields
    return _count_form(_combiner(instruction.elementwise, *shape), *shape)

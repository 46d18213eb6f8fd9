"""Semantics of the element-wise vector instructions that most programs have (count style), put together from them.

Half and bf16 arithmetic is rounded to its type once per instruction, float32 arithmetic is IEEE 754 with subnormals,
integers wrap around in INF_NAN mode and clamp in saturation mode (asc-devkit, boundary values of vector computation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim._switch import switch
from npu_sim.dtypes.bulk_jit import decode_bf16, decode_fp16, nearest_bf16, nearest_fp16
from npu_sim.isa.codes import Data
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import OPS, by_opcode
from npu_sim.isa.vector_values import fit_integer, is_arithmetic, widen, with_sign_of, without_sign
from npu_sim.reinterpret import reinterpret

_PIECE = 1024
"""Elements that are decoded at a time; three pieces of float32 stay in the first cache."""

_ONE, _TWO, _SCALAR = 1, 2, 3
_MEMBERS = [i for i in OPS if i.elementwise is not None and i.elementwise.common]


def _shape(instruction: Any) -> int:
    """Return what an element-wise instruction combines; 0 for others."""
    if instruction not in _MEMBERS:
        return 0
    return _TWO if instruction.inputs == 2 else _SCALAR if "value" in instruction.fields else _ONE


_SHAPE = by_opcode(_shape, dtype=np.uint8)
_HAS_INTEGERS = by_opcode(lambda i: i in _MEMBERS and i.elementwise.integers is not None, dtype=np.bool_)


def _over_one(function: Any) -> Any:
    """Return a loop of ``function`` over float32 arrays."""

    @jit
    def loop(dst, x):
        for i in range(len(dst)):
            dst[i] = function(x[i])
        return 0

    return loop


def _over_two(function: Any) -> Any:
    """Return a loop of ``function`` over two float32 arrays."""

    @jit
    def loop(dst, x, y):
        for i in range(len(dst)):
            dst[i] = function(x[i], y[i])
        return 0

    return loop


def _over_scalar(function: Any) -> Any:
    """Return a loop of ``function`` over a float32 array and one float32."""

    @jit
    def loop(dst, x, scalar):
        for i in range(len(dst)):
            dst[i] = function(x[i], scalar)
        return 0

    return loop


def _floats_of(shape: int, loop: Any) -> dict[int, Any]:
    return {i.op: loop(i.elementwise.floats) for i in _MEMBERS if _shape(i) == shape}


def _integers_of(shapes: tuple[int, ...]) -> dict[int, Any]:
    return {
        i.op: i.elementwise.integers for i in _MEMBERS if _shape(i) in shapes and i.elementwise.integers is not None
    }


@jit
def _no_loop():
    return 0


@jit
def _no_integer():
    return np.int64(0)


_one_of_floats = switch(("dst", "x"), _floats_of(_ONE, _over_one), _no_loop)
_two_of_floats = switch(("dst", "x", "y"), _floats_of(_TWO, _over_two), _no_loop)
_scalar_of_floats = switch(("dst", "x", "scalar"), _floats_of(_SCALAR, _over_scalar), _no_loop)
_HALVES = {i.op: i.elementwise.halves for i in _MEMBERS if i.elementwise.halves is not None}
_HAS_HALVES = by_opcode(lambda i: i.op in _HALVES, dtype=np.bool_)
_one_of_halves = switch(("dst", "x"), {op: _over_one(function) for op, function in _HALVES.items()}, _no_loop)
_KEEPS_SIGN = by_opcode(lambda i: i in _MEMBERS and i.elementwise.keeps_sign, dtype=np.bool_)
_IS_UNSIGNED = by_opcode(lambda i: i in _MEMBERS and i.elementwise.is_unsigned, dtype=np.bool_)
_integer = switch(("x", "y"), _integers_of((_ONE, _TWO, _SCALAR)), _no_integer)


@jit
def _combine_floats(op, dst, x, y, scalar):
    """Write what ``op`` makes of float32 arrays, resp. of one and a scalar, to ``dst``."""
    shape = _SHAPE[op]
    if shape == _TWO:
        _two_of_floats(op, dst, x, y)
    elif shape == _SCALAR:
        _scalar_of_floats(op, dst, x, scalar)
    else:
        _one_of_floats(op, dst, x)


@jit
def _fitted(op, x, y, bits, saturate):
    if _IS_UNSIGNED[op]:
        return fit_integer(_integer(op, without_sign(x, bits), y), bits, 0)
    exact = _integer(op, x, y)
    return with_sign_of(x, exact, bits) if _KEEPS_SIGN[op] else fit_integer(exact, bits, saturate)


@jit
def _combine_int32(op, dst, x, y, scalar, saturate):
    for i in range(len(dst)):
        other = scalar if _SHAPE[op] == _SCALAR else np.int64(y[i])
        dst[i] = _fitted(op, np.int64(x[i]), other, 32, saturate)


@jit
def _combine_int16(op, dst, x, y, scalar, saturate):
    for i in range(len(dst)):
        other = scalar if _SHAPE[op] == _SCALAR else np.int64(y[i])
        dst[i] = _fitted(op, np.int64(x[i]), other, 16, saturate)


@jit
def _widen_all(dst, src, dtype):
    """Decode 16-bit patterns into float32."""
    words = reinterpret(dst, np.uint32)
    if dtype == Data.FP16:
        decode_fp16(src, words)
    else:
        decode_bf16(src, words)


@jit
def _narrow_all(dst, src, dtype, saturate):
    """Round float32 to 16-bit patterns, ties to even."""
    words = reinterpret(src, np.uint32)
    if dtype == Data.FP16:
        nearest_fp16(words, dst, saturate)
    else:
        nearest_bf16(words, dst, saturate)


@jit
def combine(row, ub, staging, config):
    """Carry out an element-wise instruction.

    Rounding to float32 before rounding to half or bf16 does not show in the result of one operation (Figueroa 1995),
    and where it would, `Elementwise.halves` computes.
    ``staging``: float32 scratch, at least 3072.
    """
    op, dtype = row["op"], row["dtype"]
    is_integer = dtype == Data.INT32 or dtype == Data.INT16
    if not is_arithmetic(dtype) or (is_integer and not _HAS_INTEGERS[op]):
        return False
    saturate = config[3]
    count = np.int64(row["count"])
    length = count * item_bytes(dtype)
    d, a = np.int64(row["dst"]), np.int64(row["src0"])
    b = np.int64(row["src1"]) if _SHAPE[op] == _TWO else a
    value = np.int64(row["value"]) if _SHAPE[op] == _SCALAR else np.int64(0)
    dst, x, y = ub[d : d + length], ub[a : a + length], ub[b : b + length]
    if dtype == Data.FP32:
        scalar = np.uint32(value & 0xFFFFFFFF).view(np.float32)
        result, fx, fy = reinterpret(dst, np.float32), reinterpret(x, np.float32), reinterpret(y, np.float32)
        if d != a and d != b:
            _combine_floats(op, result, fx, fy, scalar)
            return True
        for first in range(0, count, _PIECE):
            last = min(first + _PIECE, count)
            # of copies: loops whose arrays overlap are not vectorised
            left, right = staging[: last - first], staging[_PIECE : _PIECE + last - first]
            copy_bytes(left, 0, fx, 4 * first, 4 * (last - first))
            copy_bytes(right, 0, fy, 4 * first, 4 * (last - first))
            _combine_floats(op, result[first:last], left, right, scalar)
    elif dtype == Data.INT32:
        ix, iy = reinterpret(x, np.int32), reinterpret(y, np.int32)
        _combine_int32(op, reinterpret(dst, np.int32), ix, iy, value, saturate)
    elif dtype == Data.INT16:
        sx, sy = reinterpret(x, np.int16), reinterpret(y, np.int16)
        _combine_int16(op, reinterpret(dst, np.int16), sx, sy, fit_integer(value, 16, 0), saturate)
    else:
        scalar = widen(np.uint16(value & 0xFFFF), dtype)
        hdst, hx, hy = reinterpret(dst, np.uint16), reinterpret(x, np.uint16), reinterpret(y, np.uint16)
        for first in range(0, count, _PIECE):
            last = min(first + _PIECE, count)
            left, right = staging[: last - first], staging[_PIECE : _PIECE + last - first]
            # a result of its own: loops whose arrays overlap are not vectorised
            result = staging[2 * _PIECE : 2 * _PIECE + last - first]
            _widen_all(left, hx[first:last], dtype)
            if _SHAPE[op] == _TWO:
                _widen_all(right, hy[first:last], dtype)
            if _HAS_HALVES[op]:
                _one_of_halves(op, result, left)
            else:
                _combine_floats(op, result, left, right, scalar)
            _narrow_all(hdst[first:last], result, dtype, saturate)
    return True

"""Semantics of an instruction: what its record says, or for an element-wise one what is put together of that.

`isa.vector` has the count forms that most programs have (`Elementwise.common`), compiled together; here is what other
count forms compute.
Half and float are rounded, and integers wrap or clamp, as there; where a second function follows, after both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Data
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.vector import combine
from npu_sim.isa.vector_values import fit_integer, narrow, widen, with_sign_of, without_sign
from npu_sim.reinterpret import reinterpret


def _of_three(function: Any, arguments: int, has_value: bool) -> Any:
    """Return ``function`` of one or two operands as one of (first, second, value)."""
    if arguments == 1:

        @jit
        def call(x, y, value):  # type: ignore[no-untyped-def]
            return function(x)

    elif has_value:

        @jit
        def call(x, y, value):  # type: ignore[no-untyped-def]
            return function(x, value)

    else:

        @jit
        def call(x, y, value):  # type: ignore[no-untyped-def]
            return function(x, y)

    return call


def _float_loops(instruction: Instruction) -> tuple[Any, Any]:
    """Return loops over floats, and over patterns of half: of (dst, x, y, z, value, saturate)."""
    element = instruction.elementwise
    assert element is not None
    arguments, has_value = element.arguments, "value" in element.order
    first = _of_three(element.floats, arguments, has_value)
    of_half = _of_three(element.halves or element.floats, arguments, has_value)
    follows = element.then is not None
    second = _of_three(element.then.floats, 1 + (len(element.order) == 3), False) if element.then else first

    @jit
    def floats(dst, x, y, z, value, saturate):  # type: ignore[no-untyped-def]
        for i in range(len(dst)):
            result = np.float32(first(x[i], y[i], value))
            if follows:
                result = np.float32(second(result, z[i], value))
            dst[i] = result

    @jit
    def halves(dst, x, y, z, value, saturate):  # type: ignore[no-untyped-def]
        for i in range(len(dst)):
            result = narrow(of_half(widen(x[i], Data.FP16), widen(y[i], Data.FP16), value), Data.FP16, saturate)
            if follows:
                rest = second(widen(result, Data.FP16), widen(z[i], Data.FP16), value)
                result = narrow(rest, Data.FP16, saturate)
            dst[i] = result

    return floats, halves


def _integer_loop(instruction: Instruction, bits: int) -> Any:
    """Return a loop over integers of ``bits`` bits: of (dst, x, y, z, value, saturate)."""
    element = instruction.elementwise
    assert element is not None
    first = _of_three(element.integers, element.arguments, "value" in element.order)
    follows, keeps_sign, is_unsigned = element.then is not None, element.keeps_sign, element.is_unsigned
    second = _of_three(element.then.integers, 1 + (len(element.order) == 3), False) if element.then else first

    @jit
    def integers(dst, x, y, z, value, saturate):  # type: ignore[no-untyped-def]
        for i in range(len(dst)):
            if is_unsigned:
                result = fit_integer(first(without_sign(np.int64(x[i]), bits), np.int64(y[i]), value), bits, 0)
            else:
                exact = first(np.int64(x[i]), np.int64(y[i]), value)
                result = with_sign_of(np.int64(x[i]), exact, bits) if keeps_sign else fit_integer(exact, bits, saturate)
            if follows:
                result = fit_integer(second(result, np.int64(z[i]), value), bits, saturate)
            dst[i] = result

    return integers


@jit
def _no_loop(dst, x, y, z, value, saturate):  # type: ignore[no-untyped-def]
    """Stand for the loop over types an instruction does not have."""


@cache
def semantics_of(instruction: Instruction) -> Any:
    """Return the semantics of an instruction that is no general form."""
    element = instruction.elementwise
    if element is None:
        return instruction.run
    if element.common:
        return combine
    types = frozenset().union(*instruction.dtypes.values())
    has_single, has_half = Data.FP32 in types, Data.FP16 in types
    has_word, has_short = Data.INT32 in types, Data.INT16 in types
    floats, halves = _float_loops(instruction) if has_single or has_half else (_no_loop, _no_loop)
    words, shorts = (_integer_loop(instruction, bits) if has_word or has_short else _no_loop for bits in (32, 16))
    has_value = "value" in element.order
    vectors = [("dst", "src0", "src1").index(name) for name in element.order if name != "value"]
    at_x, at_y, at_z = vectors[0], vectors[min(1, len(vectors) - 1)], vectors[-1]

    @jit
    def run(row, ub, config):  # type: ignore[no-untyped-def]
        dtype = row["dtype"]
        length = np.int64(row["count"]) * item_bytes(dtype)
        starts = (np.int64(row["dst"]), np.int64(row["src0"]), np.int64(row["src1"]))
        dst = ub[starts[0] : starts[0] + length]
        x, y = ub[starts[at_x] : starts[at_x] + length], ub[starts[at_y] : starts[at_y] + length]
        z = ub[starts[at_z] : starts[at_z] + length]
        value = np.int64(row["value"]) if has_value else np.int64(0)
        if has_single and dtype == Data.FP32:
            single = np.uint32(value & 0xFFFFFFFF).view(np.float32)
            fx, fy, fz = reinterpret(x, np.float32), reinterpret(y, np.float32), reinterpret(z, np.float32)
            floats(reinterpret(dst, np.float32), fx, fy, fz, single, config[3])
        elif has_half and dtype == Data.FP16:
            half = widen(np.uint16(value & 0xFFFF), dtype)
            hx, hy, hz = reinterpret(x, np.uint16), reinterpret(y, np.uint16), reinterpret(z, np.uint16)
            halves(reinterpret(dst, np.uint16), hx, hy, hz, half, config[3])
        elif has_word and dtype == Data.INT32:
            ix, iy, iz = reinterpret(x, np.int32), reinterpret(y, np.int32), reinterpret(z, np.int32)
            words(reinterpret(dst, np.int32), ix, iy, iz, value, config[3])
        elif has_short and dtype == Data.INT16:
            short = fit_integer(value, 16, 0)
            sx, sy, sz = reinterpret(x, np.int16), reinterpret(y, np.int16), reinterpret(z, np.int16)
            shorts(reinterpret(dst, np.int16), sx, sy, sz, short, config[3])
        else:
            return False
        return True

    return run

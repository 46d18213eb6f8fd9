"""Fixpipe with reluEn, or with one scale for all results.

That is quantPre QF322B8_PRE (float to 8 bits), REQ8 (integers to 8 bits) and DEQF16 (integers to half).

An instruction of its own beside `fixpipe`, so that most programs, which only convert, compile nothing of it.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data, Mode, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import B8, DEVKIT, FLOATS, WORD, Index, Instruction, Rows
from npu_sim.isa.instructions.fixpipe import byte_at, cost, extent, footprint, log_demand, store
from npu_sim.isa.instructions.fixpipe import check as check_fixpipe
from npu_sim.isa.names import type_name
from npu_sim.reinterpret import reinterpret

OP = 79
_SCALE_BITS = 0xFFFFE000
"""What the hardware reads of a float scale: sign, exponent and 10 bits."""


emit_fixpipe_quant = emitter(
    "fixpipe_quant",
    OP,
    Pipe.FIX,
    "dst_space dst src=src0 dtype dst_dtype m_size n_size src_stride dst_stride nd_num src_nd_stride dst_nd_stride "
    "mode relu value_bits=value offset tensor",
    """Fixpipe as `emit_fixpipe`, with max(0, x) of the results where ``relu`` is 1; ``dtype`` is what L0C holds.

Results of 8 bits are x * scale + offset, rounded to the nearest even integer and clamped (ASSUMED: one rounding; NaN
gives 0); half of integers is x * scale, rounded once (ASSUMED: no
document says how often; a product of 0 is +0). ``value_bits`` is the float scale, of which 10 bits of
the mantissa count, ``offset`` has 9 bits.""",
    src0_space=Space.L0C,
)


@jit
def scale_in(bits):
    """Return the scale that the low half of a word holds, as it is read."""
    return np.float64(np.uint32(bits & _SCALE_BITS).view(np.float32))


@jit
def sticky_product(integer, scale):
    """Return a product as float32 from which half is the same as from the exact one: the last bit says what was cut."""
    exact = np.float64(integer) * scale + 0.0  # an integer has no -0
    result = np.float32(exact)
    if np.float64(result) == exact:
        return result
    word = result.view(np.uint32)
    if abs(np.float64(result)) > abs(exact):
        word -= np.uint32(1)
    return np.uint32(word | np.uint32(1)).view(np.float32)


@jit
def quantised(x, scale, offset, relu, low, high):
    """Return an accumulator as an integer of 8 bits."""
    y = x * scale + offset
    if np.isnan(y):
        return np.int64(0)
    return np.int64(np.rint(min(max(y, 0.0 if relu else low, low), high)))


@jit
def _store_bytes(target, l0c, row):
    """Results of 8 bits."""
    is_signed, of_integers = row["dst_dtype"] == Data.INT8, row["dtype"] == Data.INT32
    low, high = (-128.0, 127.0) if is_signed else (0.0, 255.0)
    scale, offset = scale_in(np.int64(row["value"])), np.float64(row["offset"])
    integers = reinterpret(l0c, np.int32)
    column = np.int64(row["src_stride"]) * 16
    for z in range(np.int64(row["nd_num"]) if row["mode"] & Mode.NZ2ND != 0 else np.int64(1)):
        first = np.int64(row["src0"]) // 4 + z * np.int64(row["src_nd_stride"]) * 256
        for r in range(np.int64(row["m_size"])):
            for c in range(np.int64(row["n_size"])):
                place = first + c // 16 * column + r * 16 + c % 16
                x = np.float64(integers[place]) if of_integers else np.float64(l0c[place])
                target[byte_at(row, z, r, c)] = quantised(x, scale, offset, row["relu"] != 0, low, high) & 0xFF


@jit
def run(row, gm, l1, l0c, staging, sink, log_runs, log_bytes):
    """Quantise one by one; where results stay floats, Fixpipe takes a copy of L0C without what is below 0."""
    dtype = row["dst_dtype"]
    target = gm if row["dst_space"] == Space.GM else l1
    if dtype == Data.INT8 or dtype == Data.UINT8:
        if row["mode"] & (Mode.ATOMIC | Mode.CHANNEL_SPLIT) != 0:
            return False
        _store_bytes(target, l0c, row)
        return True
    of_integers = row["dtype"] == Data.INT32
    if dtype != Data.FP16 and (dtype != Data.INT32 if of_integers else dtype != Data.BF16 and dtype != Data.FP32):
        return False
    results = l0c.copy()
    integers = reinterpret(results, np.int32)
    if of_integers and dtype == Data.FP16:
        scale, sums = scale_in(np.int64(row["value"])), reinterpret(l0c, np.int32)
        for i in range(len(sums)):
            results[i] = sticky_product(sums[i], scale)
    if row["relu"] != 0:
        for i in range(len(results)):
            if integers[i] < 0 if of_integers and dtype == Data.INT32 else results[i] <= 0:
                integers[i] = 0
    store(target, results, row, reinterpret(staging, np.uint8), sink, log_runs, log_bytes)
    return True


def check_bytes(chunk: Rows, index: Index) -> None:
    """Check where results of 8 bits may go."""
    mode = chunk.column(index, "mode")
    is_byte = np.isin(chunk.column(index, "dst_dtype"), [int(data) for data in B8])
    added = is_byte & (mode & Mode.ATOMIC != 0)
    chunk.unsupported(index, added, lambda row: "results of 8 bits must not be added")
    rows_to_l1 = is_byte & (mode & Mode.NZ2ND != 0) & (chunk.column(index, "dst_space") != Space.GM)
    chunk.unsupported(index, rows_to_l1, lambda row: "results of 8 bits must be NZ in L1")


def check(chunk: Rows, index: Index) -> None:
    check_fixpipe(chunk, index)
    check_bytes(chunk, index)
    is_byte = np.isin(chunk.column(index, "dst_dtype"), [int(data) for data in B8])
    of_integers = chunk.column(index, "dtype") == Data.INT32
    to_half, to_int32 = (chunk.column(index, "dst_dtype") == data for data in (Data.FP16, Data.INT32))
    wrong = np.where(of_integers, ~is_byte & ~to_half & ~to_int32, to_int32)
    chunk.unsupported(index, wrong, lambda row: f"must convert {type_name(int(row['dtype']))} to what it can become")
    for name, takes in (("value", is_byte | (of_integers & to_half)), ("offset", is_byte)):
        chunk.rule(index, ~takes & (chunk.column(index, name) != 0), name, "0 where results are not scaled")


INSTRUCTION = Instruction(
    api="Fixpipe",
    emit=emit_fixpipe_quant,
    source=DEVKIT + "Fixpipe (FixpipeParamsV220) with reluEn and quantPre",
    routes={(Space.GM, Space.L0C): Pipe.FIX, (Space.L1, Space.L0C): Pipe.FIX},
    ranges=(
        ("m_size", 0, WORD),
        ("n_size", 0, 4095),
        ("src_stride", 0, WORD),
        ("dst_stride", 1, 2**31 - 1),
        ("relu", 0, 1),
        ("offset", -256, 255),
    ),
    dtypes={C220: frozenset({Data.FP32, Data.INT32})},
    dst_dtypes={C220: FLOATS | B8 | {Data.BF16, Data.INT32}},
    modes={C220: Mode.CHANNEL_SPLIT | Mode.NZ2ND | Mode.ATOMIC},
    scalar_type=Data.FP32,
    adds=True,
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    extent=extent,
    log_demand=log_demand,
    check=check,
    defaults={
        "dst_space": Space.GM,
        "dtype": Data.FP32,
        "nd_num": 1,
        "src_nd_stride": 0,
        "dst_nd_stride": 0,
        "mode": 0,
        "relu": 0,
        "value_bits": 0,
        "offset": 0,
        "tensor": -1,
    },
)

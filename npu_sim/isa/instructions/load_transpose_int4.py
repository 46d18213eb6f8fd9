"""LoadDataWithTranspose of int4: squares of 64x64 elements from L1 into L0B, transposed."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data, Pipe, Space
from npu_sim.isa.cost_paths import load_l0, transpose_rate
from npu_sim.isa.cost_rates import amount, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import FRACTAL, L0B, L1, NONE, ONCE, READ, WRITE, box, line
from npu_sim.isa.instruction import DEVKIT, Instruction
from npu_sim.isa.instructions import load_transpose
from npu_sim.isa.int4_cube import SQUARE, load_turned

OP = 54


emit_load_transpose_int4 = emitter(
    "load_transpose_int4",
    OP,
    Pipe.MTE1,
    "dst src=src0 dtype start_index repeat src_stride dst_gap dst_frac_gap",
    """LoadDataWithTranspose, L1 to L0B: squares of 64x64 int4, four fractals each.

``dtype`` is int8, of whose bytes each holds two elements, the first in its low half.""",
    dst_space=Space.L0B,
    src0_space=Space.L1,
)


@jit
def footprint(row, out):
    repeat = np.int64(row["repeat"])
    src = np.int64(row["src0"]) + np.int64(row["start_index"]) * SQUARE
    count = line(out, NONE, L1, READ, src, SQUARE, repeat, np.int64(row["src_stride"]) * SQUARE)
    step, between = (np.int64(row["dst_gap"]) + 1) * FRACTAL, (np.int64(row["dst_frac_gap"]) + 1) * FRACTAL
    four = np.int64(4)
    return box(out, count, L0B, WRITE, np.int64(row["dst"]), FRACTAL, repeat, step, four, between, ONCE, NONE)


@jit
def run(row, l1, l0b):
    """Pairs in bytes alone."""
    if row["dtype"] != Data.INT8:
        return False
    load_turned(l0b, l1, row)
    return True


@jit
def cost(row, cost):
    byte_count = amount(np.int64(row["repeat"]), SQUARE, ONCE)
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    cycles = transfer_cycles(byte_count, transpose_rate(row["dst_space"], cost))
    return load_l0(cycles, cost["load2d_overhead_cycles"], cost["load2d_isolated_cycles"], byte_count, cost)


INSTRUCTION = Instruction(
    api="LoadDataWithTranspose",
    emit=emit_load_transpose_int4,
    source=DEVKIT + "LoadDataWithTranspose, int4b_t; srcStride in squares, gaps in fractals",
    routes={(Space.L0B, Space.L1): Pipe.MTE1},
    ranges=load_transpose.INSTRUCTION.ranges,
    dtypes={C220: frozenset({Data.INT8})},
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    defaults=load_transpose.INSTRUCTION.defaults,
)

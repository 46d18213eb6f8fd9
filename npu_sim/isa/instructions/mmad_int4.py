"""Mmad of int4, of which L0A and L0B hold two in a byte."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import int4_cube
from npu_sim.isa.codes import C220, M200, Data, Mode, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import (
    FRACTAL,
    L0A,
    L0B,
    NO_FOOTPRINT,
    NONE,
    ONCE,
    OPERAND_BITS,
    READ,
    fractal_rows,
    line,
)
from npu_sim.isa.instruction import DEVKIT, Index, Instruction, Rows
from npu_sim.isa.instructions import mmad

OP = 53

emit_mmad_int4 = emitter(
    "mmad_int4",
    OP,
    Pipe.M,
    "dst src_a=src0 src_b=src1 dtype m n_elems=n k mode",
    """Mmad of int4: L0C[m, n] (+)= L0A[m, k] L0B[k, n], in int32; ``mode``: `Mode.INIT`.

``dtype`` is int8, of whose bytes each holds two elements along k, the first in its low half; ``k`` counts elements.""",
    dst_space=Space.L0C,
    src0_space=Space.L0A,
    src1_space=Space.L0B,
)


@jit
def footprint(row, out):
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    depth = k // 2
    if m <= 0 or n <= 0 or depth <= 0:
        return 0
    if (m | n | k) >> OPERAND_BITS != 0:
        return NO_FOOTPRINT
    a, b = np.int64(row["src0"]), np.int64(row["src1"])
    if m == 1:
        count = line(out, NONE, L0A, READ, a, depth, ONCE, NONE)
    else:
        count = fractal_rows(out, NONE, L0A, a, m, (depth + 31) // 32 * FRACTAL, depth, FRACTAL, ONCE)
    count = fractal_rows(out, count, L0B, b, n, FRACTAL, depth, (n + 15) // 16 * FRACTAL, ONCE)
    return mmad.with_sums(row, out, count)


@jit
def run(row, l0a, l0b, l0c):
    """Pairs in bytes alone."""
    return row["dtype"] == Data.INT8 and int4_cube.multiply(l0a, l0b, l0c, row)


@jit
def cost(row, cost):
    steps, each = (np.int64(row["k"]) + 63) >> 6, cost["mmad_int4_step_cycles"]
    return mmad.cost_of_steps(row, steps, each, mmad.overhead_of(row, cost), cost)


def check(chunk: Rows, index: Index) -> None:
    """Report a k that divides a byte."""
    chunk.rule(index, chunk.column(index, "k") % 2 != 0, "k", "even, for two elements lie in a byte")


INSTRUCTION = Instruction(
    api="Mmad",
    emit=emit_mmad_int4,
    source=DEVKIT + "Mmad of int4b_t",
    routes={(Space.L0C, Space.L0A): Pipe.M},
    ranges=mmad.INSTRUCTION.ranges,
    dtypes={M200: frozenset({Data.INT8}), C220: frozenset({Data.INT8})},
    modes={M200: int(Mode.INIT), C220: int(Mode.INIT)},
    alignment={"dst": 1024},
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"mode": Mode.INIT},
)

"""MmadWithSparse: Mmad of int8 with weights of which every four along k keep two."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import sparse
from npu_sim.isa.codes import C220, Data, Mode, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, Index, Instruction, Rows
from npu_sim.isa.instructions import mmad

OP = 52

emit_mmad_sparse = emitter(
    "mmad_sparse",
    OP,
    Pipe.M,
    "dst src_a=src0 src_b=src1 dtype m n_elems=n k mode",
    """MmadWithSparse: L0C[m, n] (+)= L0A[m, k] B[k, n]; L0B has half of B, which LoadDataWithSparse brought.

``k`` counts elements of A; ``mode``: `Mode.INIT`. ASSUMED: fractals of A lie as for Mmad, ceil(k / 32) in a line.""",
    dst_space=Space.L0C,
    src0_space=Space.L0A,
    src1_space=Space.L0B,
)


@jit
def footprint(row, out):
    return mmad.with_sums(row, out, sparse.operands(row, out))


@jit
def run(row, l0a, l0b, l0c, idx):
    """Elements of 8 bits alone."""
    return row["dtype"] == Data.INT8 and sparse.multiply(l0a, l0b, l0c, idx, row)


@jit
def cost(row, cost):
    """ASSUMED: half of the steps that an Mmad of the same k takes."""
    k_fractals = ((np.int64(row["k"]) + 1) // 2 + 31) >> 5
    return mmad.cost_of_steps(row, k_fractals, cost["mmad_int8_step_cycles"], mmad.overhead_of(row, cost), cost)


def check(chunk: Rows, index: Index) -> None:
    """Report one row of A, which no product multiplies so, and a part of four, of which the documents say nothing."""
    chunk.rule(index, chunk.column(index, "m") == 1, "m", "0 or at least 2 (it has no mode for vectors)")
    chunk.rule(index, chunk.column(index, "k") % 4 != 0, "k", "a multiple of 4")


INSTRUCTION = Instruction(
    api="MmadWithSparse",
    emit=emit_mmad_sparse,
    source=DEVKIT + "MmadWithSparse",
    routes={(Space.L0C, Space.L0A): Pipe.M},
    ranges=mmad.INSTRUCTION.ranges,
    dtypes={C220: frozenset({Data.INT8})},
    modes={C220: int(Mode.INIT)},
    alignment={"dst": 1024},
    by_data="indices of 0, 1 and 2",
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"mode": Mode.INIT},
)

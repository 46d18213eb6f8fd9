"""Mmad whose sums begin with a row of the bias table.

An instruction of its own beside `mmad`, so that programs without a bias compile nothing of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Mode, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import BT, NONE, ONCE, READ, line
from npu_sim.isa.instruction import DEVKIT, Index, Instruction, Rows
from npu_sim.isa.instructions import mmad
from npu_sim.reinterpret import reinterpret

OP = 41

emit_mmad_bias = emitter(
    "mmad_bias",
    OP,
    Pipe.M,
    "dst src_a=src0 src_b=src1 bias=src2 dtype m n_elems=n k mode",
    """Mmad: L0C[m, n] = bias[n] + L0A[m, k] L0B[k, n]; ``mode``: `Mode.K_ALIGN`.

``bias`` is an address in the bias table: float, or int32 where the operands are int8. It is what the first step adds
to, as an accumulator would be (ASSUMED: the documents call it the initial value of C and say no more).""",
    dst_space=Space.L0C,
    src0_space=Space.L0A,
    src1_space=Space.L0B,
)


@jit
def footprint(row, out):
    count = mmad.operands(row, out)
    if count <= 0:
        return count
    count = line(out, count, BT, READ, np.int64(row["src2"]), np.int64(row["n"]) * 4, ONCE, NONE)
    return mmad.sums(row, out, count)


@jit
def _begin(row, l0c, bt):
    """Write the bias into every row of the sums, word by word; return whether all of it is inside the buffers."""
    m, n, at, to = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["src2"]), np.int64(row["dst"])
    if m <= 0 or n <= 0 or row["k"] <= 0:
        return True
    column = (m + 15) // 16 * 256
    if at < 0 or at % 4 != 0 or at + 4 * n > len(bt) or to < 0 or to // 4 + (n + 15) // 16 * column > len(l0c):
        return False
    words, sums = reinterpret(bt, np.uint32), reinterpret(l0c, np.uint32)
    for j in range(n):
        first = to // 4 + j // 16 * column + j % 16
        for i in range(m):
            sums[first + 16 * i] = words[at // 4 + j]
    return True


def _run_with(multiply: Any) -> Any:
    """Return the semantics with those of a Mmad that adds."""

    @jit
    def run(row, l0a, l0b, l0c, bt, config, scratch):
        """Begin the sums, then multiply."""
        return mmad.is_modelled(row) and _begin(row, l0c, bt) and multiply(row, l0a, l0b, l0c, config, scratch)

    return run


run_chained = _run_with(mmad.run_chained)
"""What `dispatch` takes for the models that are not the products' own."""


@jit
def cost(row, cost):
    return mmad.cost_of(row, cost, cost["mmad_overhead_cycles"])


def check(chunk: Rows, index: Index) -> None:
    mmad.check(chunk, index)
    chunk.rule(index, chunk.column(index, "src2") % 64 != 0, "src2", "a multiple of 64")


INSTRUCTION = Instruction(
    api="Mmad",
    emit=emit_mmad_bias,
    source=DEVKIT + "Mmad with a bias in the BiasTable Buffer",
    routes={(Space.L0C, Space.L0A): Pipe.M},
    ranges=mmad.INSTRUCTION.ranges,
    dtypes={C220: mmad.INSTRUCTION.dtypes[C220]},
    modes={C220: Mode.K_ALIGN | Mode.HF32},
    spaces={"src2": Space.BT},
    alignment={"dst": 1024},
    own_types=("bias",),
    unit="cube",
    footprint=footprint,
    run=_run_with(mmad.INSTRUCTION.run),
    cost=cost,
    check=check,
    defaults={"mode": 0},
)

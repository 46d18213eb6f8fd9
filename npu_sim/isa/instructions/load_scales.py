"""DataCopy from L1 to the Fixpipe buffer: words that say how columns of L0C are quantised."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Pipe, Space
from npu_sim.isa.cost_paths import to_table
from npu_sim.isa.cost_rates import amount
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import FB, L1, NONE, ONCE, READ, WRITE, line
from npu_sim.isa.instruction import DEVKIT, WORD, Instruction
from npu_sim.isa.lanes import copy_bytes

OP = 40
UNIT = np.int64(128)
"""Bytes of ``block_len``."""

emit_load_scales = emitter(
    "load_scales",
    OP,
    Pipe.FIX,
    "dst src=src0 block_len",
    "DataCopy, L1 to the Fixpipe buffer: ``block_len`` x 128 bytes.",
    dst_space=Space.FB,
    src0_space=Space.L1,
)


@jit
def footprint(row, out):
    length = np.int64(row["block_len"]) * UNIT
    count = line(out, NONE, L1, READ, np.int64(row["src0"]), length, ONCE, NONE)
    return line(out, count, FB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


@jit
def run(row, l1, fb):
    """Copy."""
    copy_bytes(fb, np.int64(row["dst"]), l1, np.int64(row["src0"]), np.int64(row["block_len"]) * UNIT)
    return True


@jit
def cost(row, cost):
    return to_table(amount(np.int64(row["block_len"]), UNIT, np.int64(1)), cost)


INSTRUCTION = Instruction(
    api="DataCopy",
    emit=emit_load_scales,
    source=DEVKIT + "DataCopy, L1 to Fixpipe Buffer",
    archs=frozenset({C220}),
    routes={(Space.FB, Space.L1): Pipe.FIX},
    ranges=(("block_len", 0, WORD),),
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
)

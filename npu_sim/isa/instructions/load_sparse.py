"""LoadDataWithSparse: fractals of weights that lack half of their zeros into L0B, with the indices that say which."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data, Pipe, Space
from npu_sim.isa.cost_paths import load_l0
from npu_sim.isa.cost_rates import amount, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import IDX, L0B, L1, NONE, ONCE, READ, WRITE, line
from npu_sim.isa.instruction import BYTE, DEVKIT, WORD, Instruction
from npu_sim.isa.l0_bytes import copy_fractals
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import FRACTAL
from npu_sim.isa.sparse import INDEX_FRACTAL, index_address

OP = 51


emit_load_sparse = emitter(
    "load_sparse",
    OP,
    Pipe.MTE1,
    "dst src=src0 index=src1 dtype start_index repeat",
    """LoadDataWithSparse: ``repeat`` adjacent fractals of int8 from L1 to L0B, and 128 bytes of ``index`` for each.

``start_index`` counts fractals of both. Of every four k two elements are stored, with an index of 2 bits each.""",
    dst_space=Space.L0B,
    src0_space=Space.L1,
    src1_space=Space.L1,
)


@jit
def footprint(row, out):
    repeat, first = np.int64(row["repeat"]), np.int64(row["start_index"])
    count = line(out, NONE, L1, READ, np.int64(row["src0"]) + first * FRACTAL, repeat * FRACTAL, ONCE, NONE)
    indices, length = np.int64(row["src1"]) + first * INDEX_FRACTAL, repeat * INDEX_FRACTAL
    count = line(out, count, L1, READ, indices, length, ONCE, NONE)
    count = line(out, count, L0B, WRITE, np.int64(row["dst"]), repeat * FRACTAL, ONCE, NONE)
    return line(out, count, IDX, WRITE, index_address(row["dst"]), length, ONCE, NONE)


@jit
def run(row, l1, l0b, idx):
    """Fractals as LoadData 2D moves them; indices as they are."""
    if row["dtype"] != Data.INT8:
        return False
    repeat, first = np.int64(row["repeat"]), np.int64(row["start_index"])
    fractal = np.int64(row["dst"]) // FRACTAL
    copy_fractals(l0b, fractal, ONCE, l1, np.int64(row["src0"]) + first * FRACTAL, FRACTAL, repeat)
    indices = np.int64(row["src1"]) + first * INDEX_FRACTAL
    copy_bytes(idx, index_address(row["dst"]), l1, indices, repeat * INDEX_FRACTAL)
    return True


@jit
def cost(row, cost):
    """ASSUMED: the indices, which go to a buffer of their own, take no time, and a call is issued as LoadData 2D."""
    byte_count = amount(np.int64(row["repeat"]), FRACTAL, ONCE)
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    cycles = transfer_cycles(byte_count, cost["l1_to_l0b_millibytes_per_cycle"])
    return load_l0(cycles, cost["load2d_overhead_cycles"], cost["load_sparse_isolated_cycles"], byte_count, cost)


INSTRUCTION = Instruction(
    api="LoadDataWithSparse",
    emit=emit_load_sparse,
    source=DEVKIT + "LoadDataWithSparse",
    routes={(Space.L0B, Space.L1): Pipe.MTE1},
    ranges=(("start_index", 0, WORD), ("repeat", 0, BYTE)),
    dtypes={C220: frozenset({Data.INT8})},
    own_types=("index",),
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    issue_cost="load2d_issue_cycles",
    defaults={"start_index": 0, "repeat": 1},
)

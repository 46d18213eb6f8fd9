"""DataCopy from L1 to the bias table, from half to float on the way where the table is to hold float."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp16_to_fp32
from npu_sim.isa.codes import C220, Data, Pipe, Space
from npu_sim.isa.cost_paths import to_table
from npu_sim.isa.cost_rates import amount
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import BT, L1, NONE, ONCE, READ, WRITE, line
from npu_sim.isa.instruction import B32, DEVKIT, WORD, Index, Instruction, Rows
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.names import type_name
from npu_sim.reinterpret import reinterpret

OP = 39
UNIT = np.int64(64)
"""Bytes of ``block_len`` in L1."""

emit_load_bias = emitter(
    "load_bias",
    OP,
    Pipe.MTE1,
    "dst src=src0 dtype dst_dtype block_len",
    "DataCopy, L1 to the bias table: ``block_len`` x 64 bytes of ``dtype``, half becomes float.",
    dst_space=Space.BT,
    src0_space=Space.L1,
)


@jit
def _widens(row):
    return row["dtype"] == Data.FP16 and row["dst_dtype"] == Data.FP32


@jit
def footprint(row, out):
    length = np.int64(row["block_len"]) * UNIT
    count = line(out, NONE, L1, READ, np.int64(row["src0"]), length, ONCE, NONE)
    return line(out, count, BT, WRITE, np.int64(row["dst"]), 2 * length if _widens(row) else length, ONCE, NONE)


@jit
def run(row, l1, bt):
    """Copy, or widen: every half is a float."""
    length, at, source = np.int64(row["block_len"]) * UNIT, np.int64(row["dst"]), np.int64(row["src0"])
    if row["dtype"] == row["dst_dtype"]:
        copy_bytes(bt, at, l1, source, length)
        return True
    if not _widens(row):
        return False
    halves = reinterpret(l1[source : source + length], np.uint16)
    table = reinterpret(bt[at : at + 2 * length], np.uint32)
    for i in range(len(halves)):
        table[i] = fp16_to_fp32(halves[i])
    return True


@jit
def cost(row, cost):
    return to_table(amount(np.int64(row["block_len"]), UNIT, np.int64(1)), cost)


def check(chunk: Rows, index: Index) -> None:
    source, target = (chunk.column(index, name) for name in ("dtype", "dst_dtype"))
    bad = (source != target) & ~((source == Data.FP16) & (target == Data.FP32))
    chunk.unsupported(
        index,
        bad,
        lambda row: (
            f"must keep its type or make float of half, not {type_name(int(row['dst_dtype']))} of "
            f"{type_name(int(row['dtype']))}"
        ),
    )


INSTRUCTION = Instruction(
    api="DataCopy",
    emit=emit_load_bias,
    source=DEVKIT + "DataCopy, L1 to BiasTable Buffer",
    routes={(Space.BT, Space.L1): Pipe.MTE1},
    ranges=(("block_len", 0, WORD),),
    dtypes={C220: B32 | {Data.FP16}},
    dst_dtypes={C220: B32},
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
)

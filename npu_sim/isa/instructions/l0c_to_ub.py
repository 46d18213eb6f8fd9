"""DataCopy from L0C to UB in MATRIX mode: how results leave the Cube of a unified core."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, M200, Data, Pipe, Space
from npu_sim.isa.convert_run import convert_run
from npu_sim.isa.cost_rates import UNSUPPORTED, amount, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import L0C, NONE, READ, UB, WRITE, line
from npu_sim.isa.instruction import DEVKIT, FLOATS, WORD, Instruction
from npu_sim.isa.mte import BLOCK, is_carried, item_bytes

OP = 15


emit_l0c_to_ub = emitter(
    "l0c_to_ub",
    OP,
    Pipe.V,
    "dst src=src0 dst_dtype block_count block_len src_gap dst_gap",
    "DataCopy L0C to UB, MATRIX mode: ``block_len`` and ``src_gap`` in 16x16 fractals, ``dst_gap`` in 32 bytes.",
    dst_space=Space.UB,
    src0_space=Space.L0C,
)


@jit
def footprint(row, out):
    blocks, length = np.int64(row["block_count"]), np.int64(row["block_len"])
    src_step = (length + np.int64(row["src_gap"])) * 1024
    dst_bytes = length * 256 * item_bytes(row["dst_dtype"])
    dst_step = dst_bytes + np.int64(row["dst_gap"]) * BLOCK
    count = line(out, NONE, L0C, READ, np.int64(row["src0"]), length * 1024, blocks, src_step)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), dst_bytes, blocks, dst_step)


@jit
def _copy(ub, l0c, row, saturate):
    """DataCopy L0C to UB in MATRIX mode: runs of 16x16 fractals, converted to ``dst_dtype``."""
    dtype = row["dst_dtype"]
    length = np.int64(row["block_len"]) * 256
    src_step = length + np.int64(row["src_gap"]) * 256
    dst_step = length * item_bytes(dtype) + np.int64(row["dst_gap"]) * 32
    for i in range(np.int64(row["block_count"])):
        convert_run(
            l0c,
            np.int64(row["src0"]) // 4 + i * src_step,
            ub,
            np.int64(row["dst"]) + i * dst_step,
            length,
            dtype,
            saturate,
        )


@jit
def run(row, ub, l0c, config):
    """Copy results in the types that need no requantisation."""
    if not is_carried(row["dst_dtype"]):
        return False
    _copy(ub, l0c, row, config[3])
    return True


@jit
def cost(row, cost):
    elements = amount(np.int64(row["block_count"]), np.int64(row["block_len"]), np.int64(256))
    rate = cost["l0c_to_ub_millibytes_per_cycle"]
    byte_count = elements * item_bytes(row["dst_dtype"])
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if elements == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    # The accumulators in L0C have 32 bits whatever leaves.
    return cost["l0c_to_ub_start_cycles"] + transfer_cycles(elements * 4, rate), np.int64(0), byte_count


INSTRUCTION = Instruction(
    api="DataCopy(L0C to UB)",
    emit=emit_l0c_to_ub,
    source=DEVKIT + "DataCopy with DataCopyEnhancedParams, MATRIX mode; lengths in 16x16 fractals",
    routes={(Space.UB, Space.L0C): Pipe.V},
    ranges=(("block_count", 0, 4095), ("block_len", 0, WORD), ("src_gap", 0, WORD), ("dst_gap", 0, WORD)),
    dst_dtypes=dict.fromkeys((C100, M200), FLOATS | {Data.INT32}),
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    defaults={"block_count": 1, "src_gap": 0, "dst_gap": 0},
)

"""InitConstValue: one value into blocks of L1, L0A or L0B."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, C220, M200, Pipe, Space
from npu_sim.isa.cost_paths import plain
from npu_sim.isa.cost_rates import amount
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, WRITE, line
from npu_sim.isa.instruction import B16, B32, BYTE, DEVKIT, HALF, SHORT, UNIFIED, UNIFIED_B16, Instruction
from npu_sim.isa.lanes import decode_rows
from npu_sim.isa.mte import BLOCK, FRACTAL, is_carried, item_bytes

OP = 12


emit_fill = emitter(
    "fill",
    OP,
    "MTE2 if dst_space == L1 else MTE1",
    "dst_space dst dtype repeat block_num dst_gap value_bits=value",
    """InitConstValue: ``repeat`` times ``block_num`` blocks (L1: 32 bytes, L0A/L0B: 512), ``dst_gap`` blocks apart.

``value_bits`` is the bit pattern of one element of ``dtype``.""",
)


@jit
def footprint(row, out):
    block = BLOCK if row["dst_space"] == Space.L1 else FRACTAL
    length = np.int64(row["block_num"]) * block
    step = length + np.int64(row["dst_gap"]) * block
    return line(
        out, NONE, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), length, np.int64(row["repeat"]), step
    )


@jit
def _fill_bytes(dst, row):
    """InitConstValue in L1: ``repeat`` runs of ``block_num`` 32-byte blocks, ``dst_gap`` blocks apart."""
    item = item_bytes(row["dtype"])
    value = np.int64(row["value"])
    length = np.int64(row["block_num"]) * BLOCK
    step = length + np.int64(row["dst_gap"]) * BLOCK
    for i in range(np.int64(row["repeat"])):
        at = np.int64(row["dst"]) + i * step
        if value == 0:
            dst[at : at + length] = 0
        else:
            for j in range(length):
                dst[at + j] = (value >> (8 * (j % item))) & 0xFF


@jit
def _fill_l0(dst, row, scratch):
    """InitConstValue in L0A or L0B: the value decoded once, then whole fractals of carriers."""
    dtype = row["dtype"]
    item = item_bytes(dtype)
    value = np.int64(row["value"])
    block = np.empty(BLOCK, np.uint8)
    for j in range(BLOCK):
        block[j] = (value >> (8 * (j % item))) & 0xFF
    decode_rows(dtype, block, 0, BLOCK, scratch, 0, 16, 1)
    carriers = 128 if item == 4 else 256
    count = np.int64(row["block_num"])
    for i in range(np.int64(row["repeat"])):
        fractal = np.int64(row["dst"]) // FRACTAL + i * (count + np.int64(row["dst_gap"]))
        for f in range(fractal, fractal + count):
            dst[f * 256 : f * 256 + carriers] = scratch[0]


@jit
def run(row, l1, l0a, l0b, staging):
    """Fill blocks; L0 holds the types that have carriers."""
    if row["dst_space"] == Space.L1:
        _fill_bytes(l1, row)
        return True
    if not is_carried(row["dtype"]):
        return False
    _fill_l0(l0b if row["dst_space"] == Space.L0B else l0a, row, staging)
    return True


@jit
def cost(row, cost):
    block = np.int64(32) if row["dst_space"] == Space.L1 else np.int64(512)
    byte_count = amount(np.int64(row["repeat"]), np.int64(row["block_num"]), block)
    return plain(byte_count, cost["fill_millibytes_per_cycle"], np.int64(1))


def check(chunk, index):
    """On unified cores one block a repeat, without gaps."""
    if chunk.product.arch in UNIFIED:
        chunk.ranges(index, (("repeat", 0, BYTE), ("block_num", 1, 1), ("dst_gap", 0, 0)))


INSTRUCTION = Instruction(
    api="InitConstValue",
    emit=emit_fill,
    source=DEVKIT + "InitConstValue: L1 in 32-byte blocks (MTE2), L0A/L0B in 512-byte blocks (MTE1)",
    routes={
        (Space.L1, Space.NONE): Pipe.MTE2,
        (Space.L0A, Space.NONE): Pipe.MTE1,
        (Space.L0B, Space.NONE): Pipe.MTE1,
    },
    spaces={"src0": Space.NONE},
    paths={
        C100: frozenset({(Space.L0A, Space.NONE), (Space.L0B, Space.NONE)}),
        **dict.fromkeys((M200, C220), frozenset((to, Space.NONE) for to in (Space.L1, Space.L0A, Space.L0B))),
    },
    ranges=(("repeat", 0, SHORT), ("block_num", 0, SHORT), ("dst_gap", 0, SHORT)),
    dtypes={C100: HALF, M200: UNIFIED_B16, C220: B16 | B32},
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"repeat": 1, "block_num": 1, "dst_gap": 0, "value_bits": 0},
)

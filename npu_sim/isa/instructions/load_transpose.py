"""LoadDataWithTranspose: squares of 16x16 elements from L1 into L0A or L0B, transposed."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Pipe, Space
from npu_sim.isa.cost_paths import load_l0, transpose_rate
from npu_sim.isa.cost_rates import amount, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, WRITE, box, line
from npu_sim.isa.instruction import B8, B16, B32, BYTE, DEVKIT, MOVE_FIELDS, TO_L0, WORD, Instruction
from npu_sim.isa.l0_bytes import is_byte, load_transpose_bytes
from npu_sim.isa.lanes import decode_rows
from npu_sim.isa.mte import BLOCK, FRACTAL, is_carried, item_bytes

OP = 9


emit_load_transpose = emitter(
    "load_transpose",
    OP,
    Pipe.MTE1,
    "dst_space dst src=src0 dtype start_index repeat src_stride dst_gap dst_frac_gap",
    "LoadDataWithTranspose, L1 to L0A or L0B: squares of 16x16 (16-bit: one fractal, 32-bit: two).",
    src0_space=Space.L1,
)


@jit
def footprint(row, out):
    """Move squares: one fractal each for 16-bit data, two for 8- and 32-bit data."""
    fractals = np.int64(1 if item_bytes(row["dtype"]) == 2 else 2)
    square = fractals * FRACTAL
    repeat = np.int64(row["repeat"])
    src = np.int64(row["src0"]) + np.int64(row["start_index"]) * square
    count = line(
        out, NONE, np.int64(row["src0_space"]), READ, src, square, repeat, np.int64(row["src_stride"]) * square
    )
    step = (np.int64(row["dst_gap"]) + 1) * FRACTAL
    between = (np.int64(row["dst_frac_gap"]) + 1) * FRACTAL
    return box(
        out,
        count,
        np.int64(row["dst_space"]),
        WRITE,
        np.int64(row["dst"]),
        FRACTAL,
        repeat,
        step,
        fractals,
        between,
        ONCE,
        NONE,
    )


@jit
def _transpose(dst, src, row):
    """LoadDataWithTranspose into carriers: squares of 16x16 elements.

    16-bit: one fractal a square. 32-bit: two fractals F0 (columns 0-7) and F1 (columns 8-15), which become the two
    fractals of the transposed square: k 0-7 and k 8-15 of the 16 source columns' rows.
    """
    dtype = row["dtype"]
    first = np.int64(row["dst"]) // FRACTAL
    wide = item_bytes(dtype) == 4
    square = 2 * FRACTAL if wide else FRACTAL
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * square
    step = np.int64(row["src_stride"]) * square
    for i in range(np.int64(row["repeat"])):
        s = base + i * step
        if wide:
            # square[r][c] = F(c // 8)[r][c % 8]; the transposed square's fractal j holds T[r][8 j + c], which is
            # square[8 j + c][r], so its carriers (k = c, m = r) are row 8 j + c of the source: 8 of F0, then 8 of F1
            for j in range(2):
                target = (first + i * (np.int64(row["dst_gap"]) + 1) + j * (np.int64(row["dst_frac_gap"]) + 1)) * 256
                decode_rows(dtype, src, s + j * 8 * BLOCK, BLOCK, dst, target, 16, 8)
                decode_rows(dtype, src, s + FRACTAL + j * 8 * BLOCK, BLOCK, dst, target + 8, 16, 8)
        else:
            target = (first + i * (np.int64(row["dst_gap"]) + 1)) * 256
            decode_rows(dtype, src, s, BLOCK, dst, target, 16, 16)


@jit
def run(row, l1, l0a, l0b):
    """Squares of the types that have carriers."""
    dst = l0b if row["dst_space"] == Space.L0B else l0a
    if is_byte(row["dtype"]):
        load_transpose_bytes(dst, l1, row)
        return True
    if not is_carried(row["dtype"]):
        return False
    _transpose(dst, l1, row)
    return True


@jit
def cost(row, cost):
    # Squares of 8-bit and of 32-bit data are two fractals.
    square = np.int64(512 if item_bytes(row["dtype"]) == 2 else 1024)
    byte_count = amount(np.int64(row["repeat"]), square, np.int64(1))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    cycles = transfer_cycles(byte_count, transpose_rate(row["dst_space"], cost))
    return load_l0(cycles, cost["load2d_overhead_cycles"], cost["load2d_isolated_cycles"], byte_count, cost)


INSTRUCTION = Instruction(
    api="LoadDataWithTranspose",
    emit=emit_load_transpose,
    fields=(
        *MOVE_FIELDS,
        "start_index",
        "repeat",
        "src_stride",
        "dst_gap",
        "dst_frac_gap",
    ),
    source=DEVKIT + "LoadDataWithTranspose; srcStride in squares, gaps in fractals",
    routes=dict.fromkeys(TO_L0, Pipe.MTE1),
    ranges=(
        ("start_index", 0, WORD),
        ("repeat", 0, BYTE),
        ("src_stride", 0, WORD),
        ("dst_gap", 0, WORD),
        ("dst_frac_gap", 0, WORD),
    ),
    dtypes={C220: B8 | B16 | B32},
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    defaults={"start_index": 0, "repeat": 1, "src_stride": 1, "dst_gap": 0, "dst_frac_gap": 0},
)

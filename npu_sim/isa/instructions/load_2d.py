"""LoadData with LoadData2DParams: whole fractals into L0A, L0B or L1."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, C100, C220, M200, Mode, Pipe, Space
from npu_sim.isa.cost_paths import load_l0, read_gm, transpose_rate
from npu_sim.isa.cost_rates import amount, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, READ, WRITE, line
from npu_sim.isa.instruction import B8, B16, B32, BYTE, DEVKIT, TO_L0, UNIFIED_B16, WORD, Index, Instruction, Rows
from npu_sim.isa.l0_bytes import is_byte, load_2d_bytes
from npu_sim.isa.lanes import decode_fractal_transposed, decode_rows
from npu_sim.isa.mte import BLOCK, FRACTAL, copy_blocks, is_carried
from npu_sim.isa.names import path_name, type_name

OP = 8


emit_load_2d = emitter(
    "load_2d",
    OP,
    "MTE2 if src_space == GM else MTE1",
    "dst_space dst src_space=src0_space src=src0 dtype start_index repeat src_stride dst_gap mode tensor",
    "LoadData2D: ``repeat`` fractals; ``mode`` is 0 or `Mode.TRANSPOSE`. MTE1 from L1, MTE2 from GM.",
)


@jit
def footprint(row, out):
    repeat = np.int64(row["repeat"])
    src = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    step = (np.int64(row["dst_gap"]) + 1) * FRACTAL
    src_step = np.int64(row["src_stride"]) * FRACTAL
    count = line(out, NONE, np.int64(row["src0_space"]), READ, src, FRACTAL, repeat, src_step)
    return line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), FRACTAL, repeat, step)


@jit
def extent(row):
    """Bytes in GM."""
    first = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    return first, first + ((np.int64(row["repeat"]) - 1) * np.int64(row["src_stride"]) + 1) * FRACTAL


@jit
def _to_l0(dst, src, row):
    """LoadData2D into L0A or L0B carriers: whole fractals, optionally transposed inside.

    Carriers are k-major while an architectural L0A fractal has m (L0B: n) as rows, so the *transposing* load is the
    straight copy here, and the plain one transposes.
    """
    dtype = row["dtype"]
    first = np.int64(row["dst"]) // FRACTAL
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    step = np.int64(row["src_stride"]) * FRACTAL
    gap = np.int64(row["dst_gap"]) + 1
    if row["mode"] & Mode.TRANSPOSE:
        for i in range(np.int64(row["repeat"])):
            decode_rows(dtype, src, base + i * step, BLOCK, dst, (first + i * gap) * 256, 16, 16)
    else:
        for i in range(np.int64(row["repeat"])):
            decode_fractal_transposed(dtype, src, base + i * step, dst, (first + i * gap) * 256)


@jit
def _to_l1(dst, src, row):
    """LoadData2D from GM into L1: whole fractals, bytes unchanged."""
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    step = np.int64(row["src_stride"]) * FRACTAL
    gap = (np.int64(row["dst_gap"]) + 1) * FRACTAL
    copy_blocks(dst, np.int64(row["dst"]), src, base, np.int64(row["repeat"]), FRACTAL, step, gap)


@jit
def run(row, gm, l1, l0a, l0b):
    """Fractals from GM or L1; L0 holds the types that have carriers."""
    src = gm if row["src0_space"] == Space.GM else l1
    if row["dst_space"] == Space.L1:
        _to_l1(l1, src, row)
        return True
    dst = l0b if row["dst_space"] == Space.L0B else l0a
    if is_byte(row["dtype"]):
        load_2d_bytes(dst, src, row)
        return True
    if not is_carried(row["dtype"]):
        return False
    _to_l0(dst, src, row)
    return True


@jit
def cost(row, cost):
    byte_count = amount(np.int64(row["repeat"]), np.int64(512), np.int64(1))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    target = row["dst_space"]
    if row["src0_space"] == Space.GM:
        # src_stride counts fractals from start to start: above 1 the fractals are rows of 512 bytes.
        floor = cost["gm_row_floor_millicycles"] if row["src_stride"] != 1 else np.int64(0)
        rows = np.int64(row["repeat"])
        if target == Space.L1:
            return read_gm(
                byte_count,
                rows,
                floor,
                cost["gm_to_l1_command_cycles"],
                cost["gm_to_l1_millibytes_per_cycle"],
                np.int64(0),
                cost["gm_to_l1_isolated_cycles"],
                cost["gm_to_l1_isolated_millibytes_per_cycle"],
                cost,
            )
        return read_gm(
            byte_count,
            rows,
            floor,
            cost["gm_to_l0_command_cycles"],
            cost["gm_to_l0_millibytes_per_cycle"],
            cost["gm_to_l0_minimum_cycles"],
            cost["gm_to_l0_isolated_cycles"],
            cost["gm_to_l0_isolated_millibytes_per_cycle"],
            cost,
        )
    if (row["mode"] & Mode.TRANSPOSE) != 0:
        rate = transpose_rate(target, cost)
    elif target == Space.L0A:
        rate = cost["l1_to_l0a_millibytes_per_cycle"]
    else:
        rate = cost["l1_to_l0b_millibytes_per_cycle"]
    cycles = transfer_cycles(byte_count, rate)
    return load_l0(cycles, cost["load2d_overhead_cycles"], cost["load2d_isolated_cycles"], byte_count, cost)


def check(chunk: Rows, index: Index) -> None:
    if chunk.product.arch == C100:
        chunk.rule(index, chunk.column(index, "dst_gap") != 0, "dst_gap", "0 (dav-c100 has no such operand)")
    transposes = chunk.column(index, "mode") & Mode.TRANSPOSE != 0
    bad = transposes & (chunk.column(index, "src0_space") != Space.L1)
    chunk.unsupported(index, bad, lambda row: f"with transpose must read L1, not {path_name(row)}")
    types = [int(data) for data in B16]
    bad = transposes & ~np.isin(chunk.column(index, "dtype"), types)
    chunk.unsupported(
        index,
        bad,
        lambda row: f"with transpose must move 16-bit data, not {type_name(int(row['dtype']))}",
    )


INSTRUCTION = Instruction(
    api="LoadData(LoadData2DParams)",
    emit=emit_load_2d,
    source=DEVKIT + "LoadData 2D; strides in 512-byte fractals",
    routes={
        **dict.fromkeys(TO_L0, Pipe.MTE1),
        **dict.fromkeys(((Space.L1, Space.GM), (Space.L0A, Space.GM), (Space.L0B, Space.GM)), Pipe.MTE2),
    },
    ranges=(("start_index", 0, WORD), ("repeat", 0, BYTE), ("src_stride", 0, WORD), ("dst_gap", 0, WORD)),
    dtypes={C100: B8 | UNIFIED_B16, M200: B8 | UNIFIED_B16, C220: B8 | B16 | B32},
    modes=dict.fromkeys(ARCHS, int(Mode.TRANSPOSE)),
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    issue_cost="load2d_issue_cycles",
    extent=extent,
    check=check,
    defaults={
        "src_space": Space.L1,
        "start_index": 0,
        "repeat": 1,
        "src_stride": 1,
        "dst_gap": 0,
        "mode": 0,
        "tensor": -1,
    },
)

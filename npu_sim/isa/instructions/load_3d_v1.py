"""LoadData with LoadData3DParamsV1: the window walker, one fractal of 16 windows per repeat."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import footprint_window
from npu_sim.isa.codes import C100, M200, Data, Pipe, Space
from npu_sim.isa.cost_paths import load_l0
from npu_sim.isa.cost_rates import OUT_OF_RANGE, fits
from npu_sim.isa.cost_window import img2col_cycles, output_width
from npu_sim.isa.emit_window import WINDOW_FIELDS, WINDOW_RANGES, window_operands
from npu_sim.isa.emitter import emitter
from npu_sim.isa.img2col import load_3d_v1
from npu_sim.isa.instruction import B8, BYTE, DEVKIT, HALF, MOVE_FIELDS, SHORT, TO_L0, Index, Instruction, Rows

OP = 11


emit_load_3d_v1 = emitter(
    "load_3d_v1",
    OP,
    Pipe.MTE1,
    "dst_space dst src=src0 dtype c1_index fetch_filter_w fetch_filter_h left_top_w left_top_h jump_stride "
    "repeat_mode repeat",
    "LoadData3DV1, L1 to L0A or L0B, one fractal per repeat; call `set_feature_map` and `set_window` first.",
    src0_space=Space.L1,
)


@jit
def run(row, l1, l0a, l0b, staging):
    """Windows of the types that have carriers."""
    dtype = row["dtype"]
    if dtype != Data.FP16 and dtype != Data.BF16:
        return False
    load_3d_v1(l0b if row["dst_space"] == Space.L0B else l0a, l1, row, staging)
    return True


@jit
def cost(row, cost):
    fractals = np.int64(row["repeat"])
    if not fits(fractals | np.int64(row["stride_w"])):
        return np.int64(OUT_OF_RANGE), np.int64(0), np.int64(0)
    byte_count = fractals * 512
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    width = output_width(row)
    start = np.int64(row["left_top_w"]) + np.int64(row["pad_left"])
    stride = np.int64(row["stride_w"])
    if stride > 1:
        start //= stride
    start = min(max(start, 0), width - 1)
    if row["repeat_mode"] == 1:
        cycles = img2col_cycles(row, start, width, fractals, np.int64(1), cost)
    else:
        cycles = img2col_cycles(row, start, width, np.int64(1), fractals, cost)
    return load_l0(cycles, cost["load3d_overhead_cycles"], cost["load3d_isolated_cycles"], byte_count, cost)


def check(chunk: Rows, index: Index) -> None:
    for axis, pad in (("h", "pad_top"), ("w", "pad_left")):
        corner, lead = chunk.column(index, f"left_top_{axis}"), chunk.column(index, pad)
        chunk.rule(index, corner < -lead, f"left_top_{axis}", f"at least -{pad}")
        stride = np.maximum(chunk.column(index, f"stride_{axis}"), 1)
        chunk.rule(index, (corner + lead) % stride != 0, f"left_top_{axis}", f"a window position of stride_{axis}")
        taps, fetch = chunk.column(index, f"filter_{axis}"), chunk.column(index, f"fetch_filter_{axis}")
        chunk.rule(index, fetch >= taps, f"fetch_filter_{axis}", f"below filter_{axis}")


INSTRUCTION = Instruction(
    api="LoadData(LoadData3DParamsV1)",
    emit=emit_load_3d_v1,
    fields=(
        *MOVE_FIELDS,
        *WINDOW_FIELDS,
        "c1_index",
        "fetch_filter_w",
        "fetch_filter_h",
        "left_top_w",
        "left_top_h",
        "jump_stride",
        "repeat_mode",
        "repeat",
    ),
    source=DEVKIT + "LoadData 3D v1 (window walker, one fractal per repeat)",
    routes=dict.fromkeys(TO_L0, Pipe.MTE1),
    ranges=(
        *WINDOW_RANGES,
        ("l1_h", 1, SHORT),
        ("l1_w", 1, SHORT),
        ("filter_w", 1, BYTE),
        ("filter_h", 1, BYTE),
        ("c1_index", 0, 4095),
        ("fetch_filter_w", 0, 254),
        ("fetch_filter_h", 0, 254),
        ("left_top_w", -BYTE, SHORT),
        ("left_top_h", -BYTE, SHORT),
        ("jump_stride", 1, 127),
        ("repeat_mode", 0, 1),
        ("repeat", 1, BYTE),
    ),
    dtypes={C100: B8 | HALF, M200: B8 | HALF},
    unit="cube",
    footprint=footprint_window.load_3d_v1,
    run=run,
    cost=cost,
    issue_cost="load3d_issue_cycles",
    check=check,
    defaults={
        "c1_index": 0,
        "fetch_filter_w": 0,
        "fetch_filter_h": 0,
        "jump_stride": 1,
        "repeat_mode": 0,
        "repeat": 1,
    },
    prepare={"window": window_operands},
)

"""LoadData with LoadData3DParamsV2: windows of a feature map in L1 become a matrix in L0 (img2col)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim._jit import jit
from npu_sim.isa import footprint_window
from npu_sim.isa.codes import C220, M200, Mode, Pipe, Space
from npu_sim.isa.cost_paths import load_l0
from npu_sim.isa.cost_rates import OUT_OF_RANGE, UNSUPPORTED, fits
from npu_sim.isa.cost_window import img2col_cycles, output_width
from npu_sim.isa.emit_window import WINDOW_FIELDS, WINDOW_RANGES, window_operands
from npu_sim.isa.emitter import emitter
from npu_sim.isa.img2col import load_3d
from npu_sim.isa.instruction import (
    B8,
    B16,
    B32,
    DEVKIT,
    HALF,
    MOVE_FIELDS,
    SHORT,
    TO_L0,
    WORD,
    Index,
    Instruction,
    Rows,
)
from npu_sim.isa.l0_bytes import is_byte, load_3d_bytes
from npu_sim.isa.mte import is_carried, item_bytes
from npu_sim.isa.names import type_name
from npu_sim.units import BLOCK_BYTES

OP = 10


emit_load_3d = emitter(
    "load_3d",
    OP,
    Pipe.MTE1,
    "dst_space dst src=src0 dtype channel_size k_ext m_ext k_start m_start mode",
    """LoadData3DV2, L1 to L0A or L0B; call `set_feature_map` and `set_window` for row ``n`` first.

``mode`` is 0 or `Mode.TRANSPOSE` (L0A: K-major; L0B always is).""",
    src0_space=Space.L1,
)


@jit
def run(row, l1, l0a, l0b, staging):
    """Windows of the types that have carriers."""
    dst = l0b if row["dst_space"] == Space.L0B else l0a
    if is_byte(row["dtype"]):
        load_3d_bytes(dst, l1, row)
        return True
    if not is_carried(row["dtype"]):
        return False
    load_3d(dst, l1, row, staging)
    return True


@jit
def cost(row, cost):
    size = item_bytes(row["dtype"])
    if size == 0:
        return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
    points, channels, start = np.int64(row["m_ext"]), np.int64(row["k_ext"]), np.int64(row["m_start"])
    if not fits(points | channels | start | np.int64(row["stride_w"])):
        return np.int64(OUT_OF_RANGE), np.int64(0), np.int64(0)
    fractals = (points + 15) >> 4
    block = np.int64(32) // size
    depth = (channels + block - 1) // block
    byte_count = fractals * depth * 512
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    width = output_width(row)
    if start >= width:
        start = np.int64(np.uint64(start) % np.uint64(width))
    cycles = img2col_cycles(row, start, width, fractals, depth, cost)
    return load_l0(cycles, cost["load3d_overhead_cycles"], cost["load3d_isolated_cycles"], byte_count, cost)


def check(chunk: Rows, index: Index) -> None:
    get = {name: chunk.column(index, name) for name in INSTRUCTION.fields}
    item = chunk.item_bytes(index)
    c0 = BLOCK_BYTES // item
    chunk.rule(index, get["k_start"] % c0 != 0, "k_start", "a multiple of the channel block")
    remainder = get["channel_size"] % c0
    bad = ~np.isin(remainder, (0, 4, 8, 16)) | ((c0 == 32) & (get["channel_size"] < 4))
    chunk.rule(index, bad, "channel_size", "4, 8 or 16 above a multiple of the channel block, or such a multiple")
    kernel_h = (get["filter_h"] - 1) * get["dilation_h"] + 1
    kernel_w = (get["filter_w"] - 1) * get["dilation_w"] + 1
    map_h = get["l1_h"] + get["pad_top"] + get["pad_bottom"]
    map_w = get["l1_w"] + get["pad_left"] + get["pad_right"]
    active = np.ones(len(index), np.bool_)
    for name in ("k_ext", "m_ext", "l1_h", "l1_w", "channel_size", "filter_h", "filter_w"):
        active &= get[name] > 0
    chunk.rule(index, active & (kernel_h > map_h), "filter_h", "within the padded map after dilation")
    chunk.rule(index, active & (kernel_w > map_w), "filter_w", "within the padded map after dilation")
    columns = -(-get["channel_size"] // c0) * get["filter_h"] * get["filter_w"] * c0
    end = get["k_start"] + get["k_ext"]
    chunk.rule(index, active & (end > columns), "k_ext", "within the columns of the window matrix")
    chunk.rule(index, active & (get["k_ext"] % c0 != 0) & (end < columns), "k_ext", "a multiple of the channel block")
    stride_h, stride_w = np.maximum(get["stride_h"], 1), np.maximum(get["stride_w"], 1)
    windows = np.maximum((map_h - kernel_h) // stride_h + 1, 0) * np.maximum((map_w - kernel_w) // stride_w + 1, 0)
    ragged = (get["m_ext"] % 16 != 0) & (get["m_start"] + get["m_ext"] < windows) & (item < 4)
    chunk.rule(index, active & ragged, "m_ext", "a multiple of 16 or reach the last window")
    _check_transpose(chunk, index, get["mode"], item)


def _check_transpose(chunk: Rows, index: Index, mode: npt.NDArray[np.int64], item: npt.NDArray[np.int64]) -> None:
    arch = chunk.product.arch
    wrong = item == 1 if arch == C220 else item != 2
    to_l0b = chunk.column(index, "dst_space") == Space.L0B
    bad = wrong & ((mode & Mode.TRANSPOSE != 0) | ((arch == C220) & to_l0b))
    chunk.unsupported(
        index,
        bad,
        lambda row: f"cannot transpose {type_name(int(row['dtype']))} on {arch}: dtype must be wider",
    )


INSTRUCTION = Instruction(
    api="LoadData(LoadData3DParamsV2)",
    emit=emit_load_3d,
    fields=(
        *MOVE_FIELDS,
        *WINDOW_FIELDS,
        "channel_size",
        "k_ext",
        "m_ext",
        "k_start",
        "m_start",
        "mode",
    ),
    source=DEVKIT + "LoadData 3D v2 (img2col)",
    routes=dict.fromkeys(TO_L0, Pipe.MTE1),
    ranges=(
        *WINDOW_RANGES,
        ("l1_h", 0, SHORT),
        ("l1_w", 0, SHORT),
        ("filter_w", 0, 511),
        ("filter_h", 0, 511),
        ("channel_size", 0, WORD),
        ("k_ext", 0, WORD),
        ("m_ext", 0, WORD),
        ("k_start", 0, WORD),
        ("m_start", 0, SHORT),
    ),
    dtypes={M200: B8 | HALF, C220: B8 | B16 | B32},
    modes=dict.fromkeys((M200, C220), int(Mode.TRANSPOSE)),
    unit="cube",
    footprint=footprint_window.load_3d,
    run=run,
    cost=cost,
    issue_cost="load3d_issue_cycles",
    check=check,
    defaults={"k_start": 0, "m_start": 0, "mode": 0},
    prepare={"window": window_operands},
)

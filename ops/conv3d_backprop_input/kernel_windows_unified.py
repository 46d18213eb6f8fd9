"""The windows' way from global memory into L0A on unified cores: what both emitters of this package share.

See `tiling_unified.Source` for the four ways. Image-to-column gets the padding of the very block that is loaded, so the
maps it sees have exactly the windows of the block's rows.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_duplicate,
    emit_fill,
    emit_load_2d,
    emit_load_3d,
    emit_load_3d_v1,
    emit_set_flag,
    emit_wait_flag,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_BLOCK_COUNT, MAX_FIELD, ceil_div, copy_planes

PROLOGUE, LOAD_A, DILATE, LOAD_B, LOAD_L0A, LOAD_L0B, MMAD, DRAIN, STORE, EPILOGUE = range(10)
SITES = {
    PROLOGUE: "PROLOGUE", LOAD_A: "LOAD_A", DILATE: "DILATE", LOAD_B: "LOAD_B", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", DRAIN: "DRAIN", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip

MAP, DILATED, GATHERED, PIXELS = range(4)

STAGE, ITEM, ITEM_END = 2, 3, 4
BATCH_FIRST, BATCH_COUNT, M_FIRST, M_COUNT, GROUP_FIRST, GROUP_COUNT, N_FIRST, N_COUNT = range(5, 13)
BATCH, GROUP, N_INDEX, N_BLOCKS, K_PLANES = 13, 14, 15, 16, 17
M0, M_LEN = 18, 19
ROW0, ROWS, TOP, BOTTOM, COL0, COLS, LEFT, RIGHT, WINDOWS, M_START = range(20, 30)
K, PASS, SLICE = 30, 31, 32
A_FIRST, A_PLANES, B_PLANES, B_KEY = 33, 34, 35, 36
A_HALF, B_HALF, L0_HALF, C_PART, UB_IN, UB_OUT = range(37, 43)
DONE_PENDING, DONE_ITEM, DONE_BATCH, DONE_GROUP, DONE_N_INDEX, DONE_N_BLOCKS, DONE_M0, DONE_M_LEN, DONE_PART = range(
    43, 52
)
A_TAP, A_TAPS, A_LINE, A_LINES, B_TAP, B_TAPS = range(52, 58)


@jit
def in_step(p, k, step):
    """Return how far L0 step ``k`` is into its L1 step: of whole channel blocks, or a part of one, anew in each."""
    if step < p["plane_steps"]:
        k %= p["plane_steps"]
    return k % step


@jit
def taps_of(p, k, step):
    """Return first and number of the taps in the L1 step that begins with L0 step ``k``."""
    if step >= p["plane_steps"]:
        return np.int64(0), p["window"]
    first = k % p["plane_steps"] * p["base_k"] // 16
    return first, min(step * p["base_k"] // 16, p["window"] - first)


@jit
def begin_step(p, s):
    """Fill the state of the L1 step of windows that begins with L0 step s[K]: its part of K and of the map."""
    per_plane = p["window"] * 16
    s[A_FIRST] = s[K] * p["base_k"] // per_plane
    s[A_PLANES] = min(max(p["step_ka"] * p["base_k"] // per_plane, 1), s[K_PLANES] - s[A_FIRST])
    s[A_TAP], s[A_TAPS] = taps_of(p, s[K], p["step_ka"])
    s[A_LINE] = s[A_TAP] // p["kw"]
    s[A_LINES] = (s[A_TAP] + s[A_TAPS] - 1) // p["kw"] - s[A_LINE] + 1
    if p["source"] <= DILATED:
        set_map(p, s)


@jit
def set_map(p, s):
    """Fill the part of the map that lines s[A_LINE] on of the windows of the block read, and the padding around it."""
    row, rows, column, columns = np.int64(0), np.int64(1), np.int64(0), s[M_LEN]
    if p["by_row"]:
        row = s[M0] // p["out_w"]
        column = s[M0] % p["out_w"]
        s[WINDOWS] = s[M_LEN]
        s[M_START] = 0
        first = column * p["stride_w"] - p["lead_w"]
        need = (columns - 1) * p["stride_w"] + p["ke_w"]
        s[LEFT] = max(-first, 0)
        s[COL0] = max(first, 0)
        s[COLS] = max(min(first + need, p["map_w"]) - s[COL0], 0)
        s[RIGHT] = need - s[LEFT] - s[COLS]
    else:
        row = s[M0] // p["load_w"]
        rows = (s[M0] + s[M_LEN] - 1) // p["load_w"] - row + 1
        s[WINDOWS] = p["load_w"]
        s[M_START] = s[M0] % p["load_w"]
        s[LEFT] = p["pad_left"]
        s[RIGHT] = p["pad_right"]
        s[COL0] = p["col0"]
        s[COLS] = p["cols"]
    first = row * p["stride_h"] + s[A_LINE] * p["dil_h"] - p["lead_h"]
    need = (rows - 1) * p["stride_h"] + (s[A_LINES] - 1) * p["dil_h"] + 1
    s[TOP] = max(-first, 0)
    s[ROW0] = max(first, 0)
    s[ROWS] = max(min(first + need, p["map_h"]) - s[ROW0], 0)
    s[BOTTOM] = need - s[TOP] - s[ROWS]


@jit
def is_void(p, s):
    """Return whether all that the L1 step has of the windows lies in the padding."""
    return p["source"] <= DILATED and (s[ROWS] == 0 or s[COLS] == 0)


@jit
def passes(p, s):
    """Return the passes that fill one L1 buffer of windows."""
    if p["source"] == MAP:
        return np.int64(1) if s[COLS] == p["src_w"] else s[A_PLANES]
    if p["source"] == DILATED:
        return s[A_PLANES] * ceil_div(s[ROWS], p["ub_rows"]) * ceil_div(s[COLS], p["ub_cols"])
    if p["source"] == GATHERED:
        return s[A_PLANES] * s[A_TAPS]
    return np.int64(1)


@jit
def filler(p):
    """Return the pipe that writes the windows' L1 buffers first, and so must know that they are free."""
    return Pipe.MTE3 if p["source"] == DILATED or p["source"] == GATHERED else Pipe.MTE2


@jit
def plane_address(p, s, plane):
    """Return the address of a channel block of the item's source planes."""
    at = s[BATCH] * p["src_c1"] + s[GROUP] * p["k_c1"] + s[A_FIRST] + plane
    return p["src"] + at * p["src_hw"] * BLOCK


@jit
def begin_windows(rows, n, p, s, dst):
    """Wait until the L1 buffer is free; gathered windows start from zeros, which the vector unit made once in UB."""
    n = emit_wait_flag(rows, n, Pipe.MTE1, filler(p), s[A_HALF], LOAD_A, s[ITEM])
    if p["source"] != GATHERED:
        return n
    blocks = s[A_PLANES] * s[A_TAPS] * ceil_div(s[M_LEN], 16) * 16
    most = p["ub_part"] // BLOCK
    done = np.int64(0)
    while done < blocks:
        count = min(most, blocks - done)
        n = emit_data_copy(
            rows, n, Space.L1, dst + done * BLOCK, Space.UB, 0, 1, count, 0, 0, Data.FP16, -1, LOAD_A, s[ITEM]
        )
        done += count
    n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.MTE2, s[A_HALF], LOAD_A, s[ITEM])
    return emit_wait_flag(rows, n, Pipe.MTE3, Pipe.MTE2, s[A_HALF], LOAD_A, s[ITEM])


@jit
def end_windows(rows, n, p, s):
    """Tell MTE1 that the L1 buffer is full."""
    pipe = Pipe.MTE3 if p["source"] == DILATED else Pipe.MTE2
    n = emit_set_flag(rows, n, pipe, Pipe.MTE1, s[A_HALF], LOAD_A, s[ITEM])
    return emit_wait_flag(rows, n, pipe, Pipe.MTE1, s[A_HALF], LOAD_L0A, s[ITEM])


@jit
def fill_pass(rows, n, p, s, dst):
    """Emit pass ``s[PASS]`` of filling the L1 buffer at ``dst``."""
    if p["source"] == MAP:
        return _copy_map(rows, n, p, s, dst)
    if p["source"] == DILATED:
        return _dilate(rows, n, p, s, dst)
    if p["source"] == GATHERED:
        return _gather(rows, n, p, s, dst)
    return _copy_pixels(rows, n, p, s, dst)


@jit
def _copy_map(rows, n, p, s, dst):
    """Copy the rows as they are: all planes at once if the rows are whole, else one plane."""
    first = plane_address(p, s, 0) + (s[ROW0] * p["src_w"] + s[COL0]) * BLOCK
    count, width = s[ROWS], s[COLS]
    if width == p["src_w"]:
        length = count * width
        return copy_planes(
            rows,
            n,
            dst,
            first,
            s[A_PLANES],
            length,
            length,
            p["src_hw"],
            Data.FP16,
            p["src_tensor"],
            LOAD_A,
            s[ITEM],
        )
    first += s[PASS] * p["src_hw"] * BLOCK
    return _copy_lines(
        rows, n, p, Space.L1, dst + s[PASS] * count * width * BLOCK, first, count, width, LOAD_A, s[ITEM]
    )


@jit
def _copy_lines(rows, n, p, space, dst, first, count, width, site, tile):
    """Copy ``count`` parts of rows of ``width`` pixels from GM, packed."""
    gap = p["src_w"] - width
    most = np.int64(MAX_BLOCK_COUNT if gap <= MAX_FIELD else 1)
    done = np.int64(0)
    while done < count:
        lines = min(most, count - done)
        n = emit_data_copy(
            rows,
            n,
            space,
            dst + done * width * BLOCK,
            Space.GM,
            first + done * p["src_w"] * BLOCK,
            lines,
            width,
            gap if lines > 1 else 0,
            0,
            Data.FP16,
            p["src_tensor"],
            site,
            tile,
        )
        done += lines
    return n


@jit
def _dilate(rows, n, p, s, dst):
    """Make some rows of one plane of the dilated map in UB and move them to L1."""
    tile = s[ITEM]
    pieces = ceil_div(s[COLS], p["ub_cols"])
    strips = ceil_div(s[ROWS], p["ub_rows"])
    x0 = s[PASS] % pieces * p["ub_cols"]
    y0 = s[PASS] // pieces % strips * p["ub_rows"]
    plane = s[PASS] // (pieces * strips)
    lines, width = min(p["ub_rows"], s[ROWS] - y0), min(p["ub_cols"], s[COLS] - x0)
    row, column = s[ROW0] + y0, s[COL0] + x0
    first_h, first_w = ceil_div(row, p["expand_h"]), ceil_div(column, p["expand_w"])
    count = ceil_div(row + lines, p["expand_h"]) - first_h
    length = ceil_div(column + width, p["expand_w"]) - first_w
    half = s[UB_IN]
    cells = half * p["ub_part"]
    raw = cells + p["ub_rows"] * p["ub_cols"] * BLOCK
    any_data = count > 0 and length > 0
    if any_data:
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, DILATE, tile)
        first = plane_address(p, s, plane) + (first_h * p["src_w"] + first_w) * BLOCK
        n = _copy_lines(rows, n, p, Space.UB, raw, first, count, length, DILATE, tile)
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, half, DILATE, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, half, DILATE, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, 2 + half, DILATE, tile)
    n = emit_duplicate(rows, n, cells, Data.FP16, lines * width * 16, 0, DILATE, tile)
    if any_data:
        at = cells + ((first_h * p["expand_h"] - row) * width + first_w * p["expand_w"] - column) * BLOCK
        for line in range(count):
            n = strew(
                rows, n, at + line * p["expand_h"] * width * BLOCK, raw + line * length * BLOCK, length, p["expand_w"],
                DILATE, tile,
            )  # fmt: skip
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, half, DILATE, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 2 + half, DILATE, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 2 + half, DILATE, tile)
    target = dst + ((plane * s[ROWS] + y0) * s[COLS] + x0) * BLOCK
    n = emit_data_copy(
        rows,
        n,
        Space.L1,
        target,
        Space.UB,
        cells,
        lines,
        width,
        0,
        s[COLS] - width,
        Data.FP16,
        -1,
        DILATE,
        tile,
    )
    n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, 2 + half, DILATE, tile)
    s[UB_IN] = 1 - half
    return n


@jit
def strew(rows, n, dst, src, count, step, site, tile):
    """Copy ``count`` pixels within UB to every ``step``-th pixel."""
    if step == 1 or count == 1:
        return emit_data_copy(rows, n, Space.UB, dst, Space.UB, src, 1, count, 0, 0, Data.FP16, -1, site, tile)
    return emit_data_copy(rows, n, Space.UB, dst, Space.UB, src, count, 1, 0, step - 1, Data.FP16, -1, site, tile)


@jit
def _gather(rows, n, p, s, dst):
    """Copy what one tap of one plane sees in the windows of the block: column (plane, tap) of the window matrix."""
    plane, tap = s[PASS] // s[A_TAPS], s[A_TAP] + s[PASS] % s[A_TAPS]
    padded = ceil_div(s[M_LEN], 16) * 16
    target = dst + s[PASS] * padded * BLOCK
    first = plane_address(p, s, plane)
    end = s[M0] + s[M_LEN]
    width, expand = p["out_w"], p["expand_w"]
    offset = tap % p["kw"] * p["dil_w"] - p["lead_w"]
    for line in range(s[M0] // width, (end - 1) // width + 1):
        y = line * p["stride_h"] + tap // p["kw"] * p["dil_h"] - p["lead_h"]
        if y < 0 or y >= p["map_h"] or y % p["expand_h"] != 0:
            continue
        window = max(s[M0] - line * width, 0)
        if window * p["stride_w"] + offset < 0:
            window = ceil_div(-offset, p["stride_w"])
        # with zeros between the pixels windows have stride 1, so the first one on a pixel is not far
        window += -(window * p["stride_w"] + offset) % expand
        last = min(end - line * width, width)
        last = min(last, ceil_div(max(p["map_w"] - offset, 0), p["stride_w"]))
        if window >= last:
            continue
        count = ceil_div(last - window, expand)
        step = p["stride_w"] if expand == 1 else np.int64(1)
        pixel = y // p["expand_h"] * p["src_w"] + (window * p["stride_w"] + offset) // expand
        most = count if step - 1 <= MAX_FIELD and expand - 1 <= MAX_FIELD else np.int64(1)
        for done in range(0, count, most):
            n = emit_data_copy(
                rows,
                n,
                Space.L1,
                target + (line * width + window + done * expand - s[M0]) * BLOCK,
                Space.GM,
                first + (pixel + done * step) * BLOCK,
                most,
                1,
                step - 1 if most > 1 else 0,
                expand - 1 if most > 1 else 0,
                Data.FP16,
                p["src_tensor"],
                LOAD_A,
                s[ITEM],
            )
    return n


@jit
def _copy_pixels(rows, n, p, s, dst):
    """Copy the block's pixels of all planes; up to a whole fractal any valid data follows, its products go nowhere."""
    padded = ceil_div(s[M_LEN], 16) * 16
    first = plane_address(p, s, 0)
    length, done, at = s[M_LEN], np.int64(0), first + s[M0] * BLOCK
    while done < padded:
        n = copy_planes(
            rows, n, dst + done * BLOCK, at, s[A_PLANES], length, padded, p["src_hw"], Data.FP16, p["src_tensor"],
            LOAD_A, s[ITEM],
        )  # fmt: skip
        done += length
        length, at = min(padded - done, p["src_hw"]), first
    return n


@jit
def load_l0a(rows, n, p, s, dst, src, fractal, k_use):
    """L1 to L0A: the windows of the block, columns from K fractal ``fractal`` of the L1 step on."""
    tile = s[ITEM]
    k1, m1 = k_use // 16, ceil_div(s[M_LEN], 16)
    if is_void(p, s):
        return emit_fill(rows, n, Space.L0A, dst, Data.FP16, k1 * m1, 1, 0, 0, LOAD_L0A, tile)
    if p["source"] >= GATHERED:
        for i in range(m1):
            n = emit_load_2d(
                rows,
                n,
                Space.L0A,
                dst + i * k1 * 512,
                Space.L1,
                src + (fractal * m1 + i) * 512,
                Data.FP16,
                0,
                k1,
                m1,
                0,
                0,
                -1,
                LOAD_L0A,
                tile,
            )
        return n
    # the load sees a kernel of the lines that the step touches
    fractal += s[A_TAP] - s[A_LINE] * p["kw"]
    if p["has_v2"]:
        _window_row(rows, n, p, s)
        return emit_load_3d(
            rows,
            n,
            Space.L0A,
            dst,
            src,
            Data.FP16,
            s[A_PLANES] * 16,
            k_use,
            m1 * 16,
            fractal * 16,
            s[M_START],
            0,
            LOAD_L0A,
            tile,
        )
    if m1 <= k1:
        for i in range(m1):
            n = _walk_windows(rows, n, p, s, dst + i * k1 * 512, src, fractal, s[M_START] + i * 16, 1, 0, k1)
        return n
    for j in range(k1):
        n = _walk_windows(rows, n, p, s, dst + j * 512, src, fractal + j, s[M_START], k1, 1, m1)
    return n


@jit
def _window_row(rows, n, p, s):
    set_feature_map(rows, n, s[ROWS], s[COLS], s[LEFT], s[RIGHT], s[TOP], s[BOTTOM])
    set_window(rows, n, p["stride_w"], p["stride_h"], p["kw"], s[A_LINES], p["dil_w"], p["dil_h"])


@jit
def _walk_windows(rows, n, p, s, dst, src, tap, window, jump, mode, repeat):
    """One load3d v1: ``repeat`` fractals over the taps (mode 0) or over the windows (mode 1)."""
    _window_row(rows, n, p, s)
    return emit_load_3d_v1(
        rows,
        n,
        Space.L0A,
        dst,
        src,
        Data.FP16,
        tap // (s[A_LINES] * p["kw"]),
        tap % p["kw"],
        tap // p["kw"] % s[A_LINES],
        window % s[WINDOWS] * p["stride_w"] - s[LEFT],
        window // s[WINDOWS] * p["stride_h"] - s[TOP],
        jump,
        mode,
        repeat,
        LOAD_L0A,
        s[ITEM],
    )

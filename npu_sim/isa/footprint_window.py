"""Footprints of LoadData 3D: the points of the feature map under windows and taps."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.footprint_boxes import (
    BLOCK,
    FRACTAL,
    NO_FOOTPRINT,
    NONE,
    ONCE,
    OPERAND_BITS,
    READ,
    TOO_MANY_RUNS,
    WRITE,
    box,
    line,
)
from npu_sim.isa.img2col import output_extents
from npu_sim.isa.mte import item_bytes

_MOST_FRACTALS = 4096
"""Fractals that one load may fill: 2 MiB, more than any L0 buffer has. It bounds the points a footprint walks over."""


@jit
def _points_of_row(out, count, row, base, planes, kw_first, kw_last, ow_first, ow_last):
    """Append single points of one map row, tap column by tap column: windows that leave gaps between them."""
    l1_w, stride = np.int64(row["l1_w"]), np.int64(row["stride_w"])
    plane = np.int64(row["l1_h"]) * l1_w * BLOCK
    for kw in range(kw_first, kw_last + 1):
        if count < 0:
            return count
        shift = kw * np.int64(row["dilation_w"]) - np.int64(row["pad_left"])
        first = max(ow_first, -(shift // stride))
        last = min(ow_last, (l1_w - 1 - shift) // stride)
        at = base + (first * stride + shift) * BLOCK
        count = box(
            out,
            count,
            np.int64(row["src0_space"]),
            READ,
            at,
            BLOCK,
            last - first + 1,
            stride * BLOCK,
            planes,
            plane,
            ONCE,
            NONE,
        )
    return count


@jit
def _window_taps(row, out, count, c1, planes, tap_first, tap_last, m_first, m_last, wo):
    """Append the points of map planes ``c1 .. c1 + planes`` under taps and windows (all bounds inclusive).

    Goes row by row of the map. In a row, the windows of a tap row cover either one interval of points or, with gaps
    between them, single points; equal intervals of consecutive rows become one run.
    """
    l1_h, l1_w = np.int64(row["l1_h"]), np.int64(row["l1_w"])
    filter_w = np.int64(row["filter_w"])
    stride_h, stride_w = np.int64(row["stride_h"]), np.int64(row["stride_w"])
    dilation_h, dilation_w = np.int64(row["dilation_h"]), np.int64(row["dilation_w"])
    pad_top, pad_left = np.int64(row["pad_top"]), np.int64(row["pad_left"])
    space = np.int64(row["src0_space"])
    pitch = l1_w * BLOCK
    plane = l1_h * pitch
    src = np.int64(row["src0"]) + c1 * plane
    kh_first, kh_last = tap_first // filter_w, tap_last // filter_w
    oh_first, oh_last = m_first // wo, m_last // wo
    held_lo, held_hi, held_h, held_rows = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    h_first = max(np.int64(0), oh_first * stride_h + kh_first * dilation_h - pad_top)
    h_last = min(l1_h - 1, oh_last * stride_h + kh_last * dilation_h - pad_top)
    for h in range(h_first, h_last + 1):
        if count < 0:
            return count
        lo, hi = np.int64(0), np.int64(0)
        seen_kw_first, seen_kw_last = np.int64(-1), np.int64(-1)
        seen_ow_first, seen_ow_last = np.int64(-1), np.int64(-1)
        # Only the tap rows that a window of the slice puts on this row of the map: walking over all takes seconds.
        kh_low = max(kh_first, -((oh_last * stride_h - h - pad_top) // dilation_h))
        kh_high = min(kh_last, (h + pad_top - oh_first * stride_h) // dilation_h)
        for kh in range(kh_low, kh_high + 1):
            at = h + pad_top - kh * dilation_h
            oh = at // stride_h
            if oh * stride_h != at:
                continue
            kw_first = tap_first % filter_w if kh == kh_first else np.int64(0)
            kw_last = tap_last % filter_w if kh == kh_last else filter_w - 1
            ow_first = m_first % wo if oh == oh_first else np.int64(0)
            ow_last = m_last % wo if oh == oh_last else wo - 1
            many_taps, many_windows = kw_last > kw_first, ow_last > ow_first
            if many_taps and many_windows:
                dense = dilation_w == 1 and kw_last - kw_first + 1 >= stride_w
                dense = dense or (stride_w == 1 and dilation_w <= ow_last - ow_first + 1)
            else:
                dense = (not many_taps or dilation_w == 1) and (not many_windows or stride_w == 1)
            if not dense:
                same_taps = kw_first >= seen_kw_first and kw_last <= seen_kw_last
                if not (same_taps and ow_first >= seen_ow_first and ow_last <= seen_ow_last):
                    count = _points_of_row(
                        out, count, row, src + h * pitch, planes, kw_first, kw_last, ow_first, ow_last
                    )
                    seen_kw_first, seen_kw_last = kw_first, kw_last
                    seen_ow_first, seen_ow_last = ow_first, ow_last
                continue
            left = max(np.int64(0), ow_first * stride_w + kw_first * dilation_w - pad_left)
            right = min(l1_w, ow_last * stride_w + kw_last * dilation_w - pad_left + 1)
            if left >= right:
                continue
            if lo == hi:
                lo, hi = left, right
            elif left <= hi and right >= lo:
                lo, hi = min(lo, left), max(hi, right)
            else:
                count = line(
                    out, count, space, READ, src + h * pitch + left * BLOCK, (right - left) * BLOCK, planes, plane
                )
        if held_rows > 0 and lo == held_lo and hi == held_hi and h == held_h + held_rows:
            held_rows += 1
            continue
        count = box(
            out, count, space, READ, src + held_h * pitch + held_lo * BLOCK, (held_hi - held_lo) * BLOCK, held_rows,
            pitch, planes, plane, ONCE, NONE,
        )  # fmt: skip
        held_lo, held_hi, held_h, held_rows = lo, hi, h, np.int64(hi > lo)
    return box(
        out, count, space, READ, src + held_h * pitch + held_lo * BLOCK, (held_hi - held_lo) * BLOCK, held_rows, pitch,
        planes, plane, ONCE, NONE,
    )  # fmt: skip


@jit
def _windows(row, out, count, tap_first, tap_end, m_first, m_end):
    """Append the L1 blocks under windows ``[m_first, m_end)`` and taps ``[tap_first, tap_end)`` (c1, kh, kw order)."""
    ho, wo = output_extents(row)
    m_first = max(m_first, np.int64(0))
    m_end = min(m_end, ho * wo)
    if m_first >= m_end:
        return count
    taps = np.int64(row["filter_h"]) * np.int64(row["filter_w"])
    tap = tap_first
    while tap < tap_end:
        c1, first = tap // taps, tap % taps
        planes = (tap_end - tap) // taps if first == 0 else np.int64(0)
        if planes > 0:
            count = _window_taps(row, out, count, c1, planes, NONE, taps - 1, m_first, m_end - 1, wo)
            tap += planes * taps
        else:
            last = min(taps, first + tap_end - tap) - 1
            count = _window_taps(row, out, count, c1, ONCE, first, last, m_first, m_end - 1, wo)
            tap += last - first + 1
    return count


@jit
def _is_window_void(row):
    """Return whether a load3d does nothing: an empty map or window (also keeps the divisions below defined)."""
    return (
        row["l1_h"] <= 0
        or row["l1_w"] <= 0
        or row["filter_h"] <= 0
        or row["filter_w"] <= 0
        or row["stride_h"] <= 0
        or row["stride_w"] <= 0
    )


@jit
def _is_spread(row):
    """Return whether the taps of a window lie side by side, as on any hardware."""
    return row["dilation_h"] > 0 and row["dilation_w"] > 0


@jit
def _window_bits(row):
    """Return the bits of all operands of map and window; a negative one makes the result negative."""
    bits = np.int64(row["l1_h"]) | np.int64(row["l1_w"]) | np.int64(row["filter_h"]) | np.int64(row["filter_w"])
    bits |= np.int64(row["stride_h"]) | np.int64(row["stride_w"])
    bits |= np.int64(row["dilation_h"]) | np.int64(row["dilation_w"])
    bits |= np.int64(row["pad_left"]) | np.int64(row["pad_right"])
    return bits | np.int64(row["pad_top"]) | np.int64(row["pad_bottom"])


@jit
def load_3d(row, out):
    """LoadData 3D v2: points under the slice's windows and taps; whole lines of the fractals it fills."""
    k_ext, m_ext = np.int64(row["k_ext"]), np.int64(row["m_ext"])
    if _is_window_void(row) or k_ext <= 0 or m_ext <= 0 or row["channel_size"] <= 0:
        return 0
    c0 = BLOCK // item_bytes(row["dtype"])
    k_start, m_start = np.int64(row["k_start"]), np.int64(row["m_start"])
    if (_window_bits(row) | k_ext | m_ext | k_start | m_start) >> OPERAND_BITS != 0 or not _is_spread(row):
        return NO_FOOTPRINT
    if (m_ext + 15) // 16 * ((k_ext + c0 - 1) // c0) > _MOST_FRACTALS:
        return TOO_MANY_RUNS
    tap = k_start // c0
    count = _windows(row, out, NONE, tap, tap + (k_ext + c0 - 1) // c0, m_start, m_start + m_ext)
    points = (m_ext + 15) // 16
    space, dst = np.int64(row["dst_space"]), np.int64(row["dst"])
    if space == Space.L0A and row["mode"] & Mode.TRANSPOSE == 0:
        return line(out, count, space, WRITE, dst, points * ((k_ext + c0 - 1) // c0) * FRACTAL, ONCE, NONE)
    # Channels are the lines of the fractals; of 32-bit data the last fractal may have only half of them.
    full, tail = k_ext // 16, (k_ext % 16 + c0 - 1) // c0 * c0 * BLOCK
    if tail == 16 * BLOCK:
        full, tail = full + 1, NONE
    if space == Space.L0A:
        along = points if c0 >= 16 else points * (16 // c0)
        count = line(out, count, space, WRITE, dst, full * along * FRACTAL, ONCE, NONE)
        return line(out, count, space, WRITE, dst + full * along * FRACTAL, tail, along, FRACTAL)
    step = (k_ext + 15) // 16 * FRACTAL
    groups = (m_ext + c0 - 1) // c0
    return line(out, count, space, WRITE, dst, full * FRACTAL + tail, groups, step)


@jit
def load_3d_v1(row, out):
    """LoadData 3D v1: points under 16 windows and one tap per repeat; one fractal per repeat."""
    repeat = np.int64(row["repeat"])
    if _is_window_void(row) or repeat <= 0:
        return 0
    top = np.int64(row["left_top_h"]) + np.int64(row["pad_top"])
    left = np.int64(row["left_top_w"]) + np.int64(row["pad_left"])
    c1, tap_h, tap_w = np.int64(row["c1_index"]), np.int64(row["fetch_filter_h"]), np.int64(row["fetch_filter_w"])
    if (_window_bits(row) | repeat | top | left | c1 | tap_h | tap_w) >> OPERAND_BITS != 0 or not _is_spread(row):
        return NO_FOOTPRINT
    if repeat > _MOST_FRACTALS:
        return TOO_MANY_RUNS
    _, wo = output_extents(row)
    tap = (c1 * np.int64(row["filter_h"]) + tap_h) * np.int64(row["filter_w"]) + tap_w
    window = top // np.int64(row["stride_h"]) * wo + left // np.int64(row["stride_w"])
    if row["repeat_mode"] == 0:
        count = _windows(row, out, NONE, tap, tap + repeat, window, window + 16)
    else:
        count = _windows(row, out, NONE, tap, tap + 1, window, window + 16 * repeat)
    step = np.int64(row["jump_stride"]) * FRACTAL
    return line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), FRACTAL, repeat, step)

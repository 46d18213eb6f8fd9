"""Semantics of LoadData 3D: the window matrix of a feature map in L1, written in L0 fractal order.

The map in L1 is [c1][l1_h][l1_w][C0] with C0 = 32 bytes. The virtual matrix V has a row per output point
``m = oh * Wo + ow`` and a column per ``k = ((c1 * filter_h + kh) * filter_w + kw) * C0 + c0``; points outside the map
read as 0. Source: asc-devkit LoadData3DParamsV2 / V1 pages and ``load_data_l12l0/scripts/load3d.py``.

The hardware leaves the points of edge fractals outside the slice unspecified; they become NaN here, so a kernel that
uses them shows it. Channels beyond the slice, which only a slice of 32-bit data can have in its last fractal, keep what
was there: the reference script masks them out of the store.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.lanes import decode_fractal_transposed, decode_rows, splat_rows
from npu_sim.isa.mte import BLOCK, FRACTAL, item_bytes
from npu_sim.reinterpret import reinterpret

UNSPECIFIED = np.float32(np.nan)
_GATHER_POINTS = 1024
"""Points gathered at a time: 32 KiB, which stay in the host's fastest cache until they are decoded."""


@jit
def _output_extent(length, pads, kernel, dilation, stride):
    span = length + pads - ((kernel - 1) * dilation + 1)
    if span < 0:
        return 0
    return span // stride + 1


@jit
def output_extents(row):
    """Return the number of windows along both axes (0 if the dilated kernel does not fit): rows, columns."""
    pads_h = np.int64(row["pad_top"]) + np.int64(row["pad_bottom"])
    pads_w = np.int64(row["pad_left"]) + np.int64(row["pad_right"])
    filter_h, filter_w = np.int64(row["filter_h"]), np.int64(row["filter_w"])
    ho = _output_extent(np.int64(row["l1_h"]), pads_h, filter_h, np.int64(row["dilation_h"]), np.int64(row["stride_h"]))
    wo = _output_extent(np.int64(row["l1_w"]), pads_w, filter_w, np.int64(row["dilation_w"]), np.int64(row["stride_w"]))
    return ho, wo


@jit
def _windows_inside(first, length, stride):
    """Return (lo, hi): windows from lo to below hi of an output row begin inside the map.

    ``first`` is where in the map window 0 begins. Without a stride nothing is divided: that takes longer than the rest.
    """
    if stride == 1:
        return max(-first, 0), max(length - first, 0)
    lo = 0 if first >= 0 else (-first + stride - 1) // stride
    return lo, (length - first + stride - 1) // stride if length > first else 0


@jit
def _place_of_tap(row, kh, kw, oh):
    """Return the row of the map under a tap in output row ``oh``, its column in window 0, and `_windows_inside`."""
    h = oh * np.int64(row["stride_h"]) + kh * np.int64(row["dilation_h"]) - np.int64(row["pad_top"])
    w_off = kw * np.int64(row["dilation_w"]) - np.int64(row["pad_left"])
    lo, hi = _windows_inside(w_off, np.int64(row["l1_w"]), np.int64(row["stride_w"]))
    return h, w_off, lo, hi


@jit
def _tap_points(row, dtype, src, plane, kh, kw, oh, ow, count, wo, dst, target, point_step, k0, lanes):
    """Write ``count`` points of V from (``oh``, ``ow``) on, of one tap, as k-major carriers.

    Point ``p`` (counted from the first) goes to line ``p % k0`` of the fractal ``p // k0`` along the points; ``plane``
    is the byte address of the tap's c1 plane, ``target`` the carrier of point 0's first lane and ``point_step`` the
    carriers between consecutive fractals along the points.
    """
    l1_h, l1_w = np.int64(row["l1_h"]), np.int64(row["l1_w"])
    stride_h, stride_w = np.int64(row["stride_h"]), np.int64(row["stride_w"])
    h, w_off, lo, hi = _place_of_tap(row, kh, kw, oh)
    zero = np.float32(0.0)
    p = np.int64(0)
    line = np.int64(0)
    at = target
    while p < count:
        run = min(min(count - p, wo - ow), k0 - line)
        carrier = at + line * 16
        if h < 0 or h >= l1_h:
            splat_rows(dst, carrier, 16, run, lanes, zero)
        else:
            before = min(max(lo - ow, 0), run)
            inside = min(max(hi - ow, before), run) - before
            if before > 0:
                splat_rows(dst, carrier, 16, before, lanes, zero)
            if inside > 0:
                source = plane + (h * l1_w + (ow + before) * stride_w + w_off) * BLOCK
                decode_rows(dtype, src, source, stride_w * BLOCK, dst, carrier + before * 16, 16, inside)
            if run > before + inside:
                splat_rows(dst, carrier + (before + inside) * 16, 16, run - before - inside, lanes, zero)
        p += run
        line += run
        if line == k0:
            line = 0
            at += point_step
        ow += run
        if ow == wo:
            ow = 0
            h += stride_h


@jit
def _is_dense(row):
    """Return whether the windows are the points of the map, one after the other, with one tap."""
    return (
        row["filter_h"] == 1
        and row["filter_w"] == 1
        and row["stride_h"] == 1
        and row["stride_w"] == 1
        and row["pad_left"] == 0
        and row["pad_right"] == 0
        and row["pad_top"] == 0
        and row["pad_bottom"] == 0
    )


@jit
def _dense_points(dtype, src, plane, plane_bytes, planes, count, dst, first, line_step, point_step, c0):
    """Write ``count`` adjacent points of some planes as k-major carriers; arguments as in `_tap_points`."""
    for t in range(planes):
        lane = t * c0
        at = (first + (lane >> 4) * line_step) * 256 + (lane & 15)
        for p in range(0, count, c0):
            decode_rows(dtype, src, plane + p * BLOCK, BLOCK, dst, at, 16, min(c0, count - p))
            at += 256 * point_step
        plane += plane_bytes


@jit
def _poison(dst, first, line_step, point_step, lines, points, k0, valid, k_ext):
    """Mark the unspecified points, those from ``valid`` on, in the ``k_ext`` channels of the slice."""
    for line in range(lines):
        channels = min(16, k_ext - line * 16)
        for point in range(valid // k0, points):
            at = (first + line * line_step + point * point_step) * 256
            known = max(valid - point * k0, 0)
            if channels == 16:
                splat_rows(dst, at + known * 16, 16, k0 - known, 16, UNSPECIFIED)
                continue
            for i in range(known, k0):
                for j in range(channels):
                    dst[at + i * 16 + j] = UNSPECIFIED


@jit
def load_3d(dst, src, row, scratch):
    """LoadData3DV2 into L0A or L0B carriers.

    L0B and transposing L0A: points are K, channels are N (M), and the carriers are written directly. Plain L0A: points
    are M and channels K, so the points' blocks are gathered in ``scratch`` (32 KiB or more) and transposed from there.
    """
    dtype = row["dtype"]
    wide = item_bytes(dtype) == 4
    c0 = 8 if wide else 16
    k_ext, m_ext = np.int64(row["k_ext"]), np.int64(row["m_ext"])
    filter_h, filter_w = np.int64(row["filter_h"]), np.int64(row["filter_w"])
    l1_h, l1_w = np.int64(row["l1_h"]), np.int64(row["l1_w"])
    m_start = np.int64(row["m_start"])
    if k_ext == 0 or m_ext == 0 or l1_h == 0 or l1_w == 0 or row["channel_size"] == 0:
        return
    if filter_h == 0 or filter_w == 0:
        return
    ho, wo = output_extents(row)
    valid = min(m_ext, max(ho * wo - m_start, 0))
    oh, ow = (m_start // wo, m_start % wo) if valid > 0 else (np.int64(0), np.int64(0))
    first = np.int64(row["dst"]) // FRACTAL
    plain_l0a = row["dst_space"] == Space.L0A and not row["mode"] & Mode.TRANSPOSE
    taps = (k_ext + c0 - 1) // c0
    tap = np.int64(row["k_start"]) // c0
    kw = tap % filter_w
    kh = (tap // filter_w) % filter_h
    plane_bytes = l1_h * l1_w * BLOCK
    plane = np.int64(row["src0"]) + (tap // (filter_w * filter_h)) * plane_bytes
    line_step, point_step = _orientation(row, wide, m_ext, k_ext)
    if not plain_l0a and valid > 0 and _is_dense(row):
        start = plane + m_start * BLOCK
        _dense_points(dtype, src, start, plane_bytes, taps, valid, dst, first, line_step, point_step, c0)
        taps = 0
    for t in range(taps):
        if plain_l0a:
            _points_as_rows(
                row, dtype, src, plane, kh, kw, oh, ow, valid, wo, dst, first + t, taps, (m_ext + 15) // 16, c0,
                min(c0, k_ext - t * c0), scratch,
            )  # fmt: skip
        elif valid > 0:
            lane = t * c0
            target = (first + (lane // 16) * line_step) * 256 + lane % 16
            _tap_points(row, dtype, src, plane, kh, kw, oh, ow, valid, wo, dst, target, point_step * 256, c0, c0)
        kw += 1
        if kw == filter_w:
            kw = 0
            kh += 1
            if kh == filter_h:
                kh = 0
                plane += plane_bytes
    if not plain_l0a:
        lines = (k_ext + 15) // 16
        points = line_step if row["dst_space"] == Space.L0A else (m_ext + c0 - 1) // c0
        if valid < points * c0:
            _poison(dst, first, line_step, point_step, lines, points, c0, valid, k_ext)


@jit
def _orientation(row, wide, m_ext, k_ext):
    """Return the fractals between neighbours along the channels (line) and along the points.

    L0B is (points, channels); transposing L0A is (channels, points), with points padded to 16 for 32-bit data.
    """
    if row["dst_space"] == Space.L0A:
        return (2 * ((m_ext + 15) // 16) if wide else (m_ext + 15) // 16), np.int64(1)
    return np.int64(1), (k_ext + 15) // 16


@jit
def _gather_points(row, src, plane, kh, kw, oh, ow, count, wo, blocks):
    """Copy ``count`` blocks of V from (``oh``, ``ow``) on, of one tap, to ``blocks``, with zeros outside the map.

    A block counts as 8 float32 there, whatever it holds.
    """
    l1_h, l1_w = np.int64(row["l1_h"]), np.int64(row["l1_w"])
    stride_h, stride_w = np.int64(row["stride_h"]), np.int64(row["stride_w"])
    h, w_off, lo, hi = _place_of_tap(row, kh, kw, oh)
    p = np.int64(0)
    while p < count:
        run = min(count - p, wo - ow)
        before = run
        inside = np.int64(0)
        if h >= 0 and h < l1_h:
            before = min(max(lo - ow, 0), run)
            inside = min(max(hi - ow, before), run) - before
        splat_rows(blocks, 8 * p, 8, before, 8, np.float32(0))
        source = plane + (h * l1_w + (ow + before) * stride_w + w_off) * BLOCK
        decode_rows(Data.FP32, src, source, stride_w * BLOCK, blocks, 8 * (p + before), 8, inside)
        splat_rows(blocks, 8 * (p + before + inside), 8, run - before - inside, 8, np.float32(0))
        p += run
        ow += run
        if ow == wo:
            ow = 0
            h += stride_h


@jit
def _fill_up(dtype, blocks, count):
    """Make the points behind the first ``count`` `UNSPECIFIED`, in the bits of ``dtype``, up to a whole fractal."""
    word = np.uint32(0x7E007E00 if dtype == Data.FP16 else (0x7FC07FC0 if dtype == Data.BF16 else 0x7FC00000))
    words = reinterpret(blocks, np.uint32)
    for i in range(8 * count, 8 * ((count + 15) // 16 * 16)):
        words[i] = word


@jit
def _points_as_rows(
    row,
    dtype,
    src,
    plane,
    kh,
    kw,
    oh,
    ow,
    valid,
    wo,
    dst,
    fractal,
    fractal_step,
    point_fractals,
    c0,
    channels,
    blocks,
):
    """Write one tap (one k fractal) of plain L0A: 16 points are the rows m, the C0 channels the k of each fractal."""
    for first in range(0, valid, _GATHER_POINTS):
        count = min(_GATHER_POINTS, valid - first)
        if first > 0:
            point = oh * wo + ow + _GATHER_POINTS
            oh, ow = point // wo, point % wo
        _gather_points(row, src, plane, kh, kw, oh, ow, count, wo, blocks)
        _fill_up(dtype, blocks, count)
        raw = reinterpret(blocks, np.uint8)
        for f in range((count + 15) // 16):
            at = (fractal + (first // 16 + f) * fractal_step) * 256
            decode_fractal_transposed(dtype, raw, f * FRACTAL, dst, at)
    if channels < c0:
        for f in range(point_fractals):
            at = (fractal + f * fractal_step) * 256
            dst[at + channels * 16 : at + c0 * 16] = UNSPECIFIED
    for f in range((valid + 15) // 16, point_fractals):
        splat_rows(dst, (fractal + f * fractal_step) * 256, 16, c0, 16, UNSPECIFIED)


@jit
def load_3d_v1(dst, src, row, scratch):
    """LoadData3DV1 into L0A or L0B carriers: one fractal of 16 windows x C0 channels per repeat.

    Repeat mode 0 walks the taps (kw, kh, c1), mode 1 walks the windows by 16. In L0A windows are the rows (m), in L0B
    the transposed fractal has channels as rows (n) and windows as k.
    """
    dtype = row["dtype"]
    ho, wo = output_extents(row)
    filter_h, filter_w = np.int64(row["filter_h"]), np.int64(row["filter_w"])
    top = (np.int64(row["left_top_h"]) + np.int64(row["pad_top"])) // np.int64(row["stride_h"])
    left = (np.int64(row["left_top_w"]) + np.int64(row["pad_left"])) // np.int64(row["stride_w"])
    tap0 = (np.int64(row["c1_index"]) * filter_h + np.int64(row["fetch_filter_h"])) * filter_w
    tap0 += np.int64(row["fetch_filter_w"])
    plane_bytes = np.int64(row["l1_h"]) * np.int64(row["l1_w"]) * BLOCK
    for r in range(np.int64(row["repeat"])):
        tap = tap0 + r if row["repeat_mode"] == 0 else tap0
        window = top * wo + left + (16 * r if row["repeat_mode"] == 1 else 0)
        plane = np.int64(row["src0"]) + (tap // (filter_w * filter_h)) * plane_bytes
        valid = min(np.int64(16), max(ho * wo - window, 0))
        oh, ow = (window // wo, window % wo) if valid > 0 else (np.int64(0), np.int64(0))
        at = (np.int64(row["dst"]) // FRACTAL + r * np.int64(row["jump_stride"])) * 256
        kh, kw = (tap // filter_w) % filter_h, tap % filter_w
        if row["dst_space"] == Space.L0A:
            _points_as_rows(
                row, dtype, src, plane, kh, kw, oh, ow, valid, wo, dst, at // 256, 1, 1, 16, np.int64(16), scratch
            )
            continue
        if valid > 0:
            _tap_points(row, dtype, src, plane, kh, kw, oh, ow, valid, wo, dst, at, 256, 16, 16)
        for i in range(valid * 16, 256):
            dst[at + i] = UNSPECIFIED

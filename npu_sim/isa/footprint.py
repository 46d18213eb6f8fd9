"""The bytes an instruction touches, as strided runs: the only place that knows them.

Bounds, ordering, moved bytes and bandwidth are all derived from `footprint`. It is exact: the union of the runs is the
set of bytes that the semantics in `isa` reads resp. writes. Runs may overlap each other.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (DataCopy, LoadData 2D and 3D, LoadDataWithTranspose, InitConstValue, Mmad,
Fixpipe, vector instructions) and the fractal formats page (orders of L0A, L0B and L0C).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.img2col import output_extent
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Mode, Op, Space

# NumPy integers, not Python ones: Numba compiles a function once more for every literal argument it sees.
READ = np.int64(0)
WRITE = np.int64(1)
ATOMIC_ADD = np.int64(2)

RUN_FIELDS = 6
"""Columns of a run: space, access, first byte, bytes of one repetition, repetitions, bytes between repetitions."""
RUN_CAPACITY = 1 << 16
"""Rows of a buffer that suffice for every instruction whose operands fit the buffers of a core."""
TOO_MANY_RUNS = -1

BLOCK = np.int64(32)
FRACTAL = np.int64(512)

_NONE = np.int64(0)
_ONCE = np.int64(1)
_L0A, _L0B, _L0C, _UB = np.int64(Space.L0A), np.int64(Space.L0B), np.int64(Space.L0C), np.int64(Space.UB)


def empty_runs(capacity: int = RUN_CAPACITY) -> np.ndarray:
    """Return an output buffer for `footprint`: int64[capacity, 6]."""
    return np.zeros((capacity, RUN_FIELDS), np.int64)


def expand(out: np.ndarray, count: int) -> dict[tuple[int, int], set[int]]:
    """Return the bytes behind ``out[:count]`` as {(space, access): set of byte addresses}, for tests and reports."""
    touched: dict[tuple[int, int], set[int]] = {}
    for space, access, start, length, repeats, stride in out[:count].tolist():
        where = touched.setdefault((space, access), set())
        for i in range(repeats):
            where.update(range(start + i * stride, start + i * stride + length))
    return touched


@jit
def _box(out, count, space, access, start, length, n0, s0, n1, s1, n2, s2):
    """Note ``n0 x n1 x n2`` repetitions of ``length`` bytes with the given strides as box number ``count``.

    Boxes take two rows each at the end of ``out``, last box first; `_melt` turns them into runs. One expansion behind
    all instructions, instead of one at each of these calls, is what keeps the compile time in seconds.

    Returns
    -------
    int
        New count (unchanged for an empty box), or `TOO_MANY_RUNS`; a negative ``count`` is passed on.
    """
    if count < 0 or length <= 0 or n0 <= 0 or n1 <= 0 or n2 <= 0:
        return count
    at = len(out) - 2 * (count + 1)
    if at < 0:
        return TOO_MANY_RUNS
    out[at, 0] = space
    out[at, 1] = access
    out[at, 2] = start
    out[at, 3] = length
    out[at, 4] = n0
    out[at, 5] = s0
    out[at + 1, 0] = n1
    out[at + 1, 1] = s1
    out[at + 1, 2] = n2
    out[at + 1, 3] = s2
    return count + 1


@jit
def _melt(out, boxes):
    """Turn the noted boxes into runs from row 0 on, as few as possible; return their number or `TOO_MANY_RUNS`."""
    count = np.int64(0)
    for box in range(boxes):
        at = len(out) - 2 * (box + 1)
        space, access, start, length = out[at, 0], out[at, 1], out[at, 2], out[at, 3]
        n0, s0 = out[at, 4], out[at, 5]
        n1, s1, n2, s2 = out[at + 1, 0], out[at + 1, 1], out[at + 1, 2], out[at + 1, 3]
        if s0 < 0:
            start, s0 = start + (n0 - 1) * s0, -s0
        if s1 < 0:
            start, s1 = start + (n1 - 1) * s1, -s1
        if s2 < 0:
            start, s2 = start + (n2 - 1) * s2, -s2
        if s0 == 0:
            n0 = 1
        if s1 == 0:
            n1 = 1
        if s2 == 0:
            n2 = 1
        # Smallest stride first, dimensions of one repetition last, so that neighbours can melt together.
        for _ in range(2):
            if n0 == 1 or (n1 > 1 and s1 < s0):
                n0, s0, n1, s1 = n1, s1, n0, s0
            if n1 == 1 or (n2 > 1 and s2 < s1):
                n1, s1, n2, s2 = n2, s2, n1, s1
        for _ in range(3):
            if n0 > 1 and s0 <= length:
                length += (n0 - 1) * s0
                n0, s0, n1, s1, n2, s2 = n1, s1, n2, s2, 1, 0
            elif n1 > 1 and s1 == n0 * s0:
                n0, n1, s1, n2, s2 = n0 * n1, n2, s2, 1, 0
            elif n2 > 1 and s2 == n1 * s1:
                n1, n2, s2 = n1 * n2, 1, 0
        # The longest dimension becomes the repetition.
        if n1 > n0:
            n0, s0, n1, s1 = n1, s1, n0, s0
        if n2 > n0:
            n0, s0, n2, s2 = n2, s2, n0, s0
        limit = len(out) if box == boxes - 1 else len(out) - 2 * boxes
        if count + n1 * n2 > limit:
            return TOO_MANY_RUNS
        for i in range(n2):
            for j in range(n1):
                out[count, 0] = space
                out[count, 1] = access
                out[count, 2] = start + i * s2 + j * s1
                out[count, 3] = length
                out[count, 4] = n0
                out[count, 5] = s0 if n0 > 1 else length
                count += 1
    return count


@jit
def _line(out, count, space, access, start, length, repeats, stride):
    """Note one dimension of repetitions."""
    return _box(out, count, space, access, start, length, repeats, stride, _ONCE, _NONE, _ONCE, _NONE)


@jit
def _store_access(row):
    """Return how a store to ``dst_space`` touches it: GM adds when the core is in atomic mode."""
    if row["dst_space"] == Space.GM and row["mode"] & Mode.ATOMIC != 0:
        return ATOMIC_ADD
    return WRITE


@jit
def _data_copy(row, out):
    blocks, length = np.int64(row["block_count"]), np.int64(row["block_len"]) * BLOCK
    src_step = length + np.int64(row["src_gap"]) * BLOCK
    dst_step = length + np.int64(row["dst_gap"]) * BLOCK
    count = _line(out, _NONE, np.int64(row["src0_space"]), READ, np.int64(row["src0"]), length, blocks, src_step)
    return _line(
        out, count, np.int64(row["dst_space"]), _store_access(row), np.int64(row["dst"]), length, blocks, dst_step
    )


@jit
def _nd2nz(row, out):
    """ND2NZ reads the valid elements only and writes whole blocks (zeros behind the last column)."""
    item = item_bytes(row["dtype"])
    matrices, rows, columns = np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(row["d_value"])
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    count = _box(
        out,
        _NONE,
        np.int64(row["src0_space"]),
        READ,
        src,
        columns * item,
        rows,
        np.int64(row["src_d_value"]) * item,
        matrices,
        np.int64(row["src_nd_stride"]) * item,
        _ONCE,
        _NONE,
    )
    blocks = (columns * item + BLOCK - 1) // BLOCK
    if count == 0:
        return 0
    return _box(
        out,
        count,
        np.int64(row["dst_space"]),
        WRITE,
        dst,
        BLOCK,
        rows,
        np.int64(row["dst_n_stride"]) * BLOCK,
        blocks,
        np.int64(row["dst_c0_stride"]) * BLOCK,
        matrices,
        np.int64(row["dst_nd_stride"]) * item,
    )


@jit
def _load_2d(row, out):
    repeat = np.int64(row["repeat"])
    src = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    step = (np.int64(row["dst_gap"]) + 1) * FRACTAL
    src_step = np.int64(row["src_stride"]) * FRACTAL
    count = _line(out, _NONE, np.int64(row["src0_space"]), READ, src, FRACTAL, repeat, src_step)
    return _line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), FRACTAL, repeat, step)


@jit
def _load_transpose(row, out):
    """Move squares: one fractal each for 16-bit data, two for 8- and 32-bit data."""
    fractals = np.int64(1 if item_bytes(row["dtype"]) == 2 else 2)
    square = fractals * FRACTAL
    repeat = np.int64(row["repeat"])
    src = np.int64(row["src0"]) + np.int64(row["start_index"]) * square
    count = _line(
        out, _NONE, np.int64(row["src0_space"]), READ, src, square, repeat, np.int64(row["src_stride"]) * square
    )
    step = (np.int64(row["dst_gap"]) + 1) * FRACTAL
    between = (np.int64(row["dst_frac_gap"]) + 1) * FRACTAL
    return _box(
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
        _ONCE,
        _NONE,
    )


@jit
def _points_of_row(out, count, row, base, planes, kw_first, kw_last, ow_first, ow_last):
    """Append single points of one map row, tap column by tap column: windows that leave gaps between them."""
    l1_w, stride = np.int64(row["l1_w"]), np.int64(row["stride_w"])
    plane = np.int64(row["l1_h"]) * l1_w * BLOCK
    for kw in range(kw_first, kw_last + 1):
        shift = kw * np.int64(row["dilation_w"]) - np.int64(row["pad_left"])
        first = max(ow_first, -(shift // stride))
        last = min(ow_last, (l1_w - 1 - shift) // stride)
        at = base + (first * stride + shift) * BLOCK
        count = _box(
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
            _ONCE,
            _NONE,
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
    line = l1_w * BLOCK
    plane = l1_h * line
    src = np.int64(row["src0"]) + c1 * plane
    kh_first, kh_last = tap_first // filter_w, tap_last // filter_w
    oh_first, oh_last = m_first // wo, m_last // wo
    held_lo, held_hi, held_h, held_rows = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    h_first = max(np.int64(0), oh_first * stride_h + kh_first * dilation_h - pad_top)
    h_last = min(l1_h - 1, oh_last * stride_h + kh_last * dilation_h - pad_top)
    for h in range(h_first, h_last + 1):
        lo, hi = np.int64(0), np.int64(0)
        seen_kw_first, seen_kw_last = np.int64(-1), np.int64(-1)
        seen_ow_first, seen_ow_last = np.int64(-1), np.int64(-1)
        for kh in range(kh_first, kh_last + 1):
            at = h + pad_top - kh * dilation_h
            oh = at // stride_h
            if oh * stride_h != at or oh < oh_first or oh > oh_last:
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
                        out, count, row, src + h * line, planes, kw_first, kw_last, ow_first, ow_last
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
                count = _line(
                    out, count, space, READ, src + h * line + left * BLOCK, (right - left) * BLOCK, planes, plane
                )
        if held_rows > 0 and lo == held_lo and hi == held_hi and h == held_h + held_rows:
            held_rows += 1
            continue
        count = _box(
            out,
            count,
            space,
            READ,
            src + held_h * line + held_lo * BLOCK,
            (held_hi - held_lo) * BLOCK,
            held_rows,
            line,
            planes,
            plane,
            _ONCE,
            _NONE,
        )
        held_lo, held_hi, held_h, held_rows = lo, hi, h, np.int64(hi > lo)
    return _box(
        out,
        count,
        space,
        READ,
        src + held_h * line + held_lo * BLOCK,
        (held_hi - held_lo) * BLOCK,
        held_rows,
        line,
        planes,
        plane,
        _ONCE,
        _NONE,
    )


@jit
def _windows(row, out, count, tap_first, tap_end, m_first, m_end):
    """Append the L1 blocks under windows ``[m_first, m_end)`` and taps ``[tap_first, tap_end)`` (c1, kh, kw order)."""
    wo = output_extent(
        np.int64(row["l1_w"]),
        np.int64(row["pad_left"]),
        np.int64(row["pad_right"]),
        np.int64(row["filter_w"]),
        np.int64(row["dilation_w"]),
        np.int64(row["stride_w"]),
    )
    ho = output_extent(
        np.int64(row["l1_h"]),
        np.int64(row["pad_top"]),
        np.int64(row["pad_bottom"]),
        np.int64(row["filter_h"]),
        np.int64(row["dilation_h"]),
        np.int64(row["stride_h"]),
    )
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
            count = _window_taps(row, out, count, c1, planes, _NONE, taps - 1, m_first, m_end - 1, wo)
            tap += planes * taps
        else:
            last = min(taps, first + tap_end - tap) - 1
            count = _window_taps(row, out, count, c1, _ONCE, first, last, m_first, m_end - 1, wo)
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
def _load_3d(row, out):
    k_ext, m_ext = np.int64(row["k_ext"]), np.int64(row["m_ext"])
    if _is_window_void(row) or k_ext <= 0 or m_ext <= 0 or row["channel_size"] <= 0:
        return 0
    c0 = BLOCK // item_bytes(row["dtype"])
    k_start, m_start = np.int64(row["k_start"]), np.int64(row["m_start"])
    tap = k_start // c0
    count = _windows(row, out, _NONE, tap, tap + (k_ext + c0 - 1) // c0, m_start, m_start + m_ext)
    points = (m_ext + 15) // 16
    space, dst = np.int64(row["dst_space"]), np.int64(row["dst"])
    if space == Space.L0A and row["mode"] & Mode.TRANSPOSE == 0:
        return _line(out, count, space, WRITE, dst, points * ((k_ext + c0 - 1) // c0) * FRACTAL, _ONCE, _NONE)
    # Channels are the lines of the fractals; of 32-bit data the last fractal may have only half of them.
    full, tail = k_ext // 16, (k_ext % 16 + c0 - 1) // c0 * c0 * BLOCK
    if tail == 16 * BLOCK:
        full, tail = full + 1, _NONE
    if space == Space.L0A:
        along = points if c0 >= 16 else points * (16 // c0)
        count = _line(out, count, space, WRITE, dst, full * along * FRACTAL, _ONCE, _NONE)
        return _line(out, count, space, WRITE, dst + full * along * FRACTAL, tail, along, FRACTAL)
    step = (k_ext + 15) // 16 * FRACTAL
    groups = (m_ext + c0 - 1) // c0
    return _line(out, count, space, WRITE, dst, full * FRACTAL + tail, groups, step)


@jit
def _load_3d_v1(row, out):
    repeat = np.int64(row["repeat"])
    if _is_window_void(row) or repeat <= 0:
        return 0
    wo = output_extent(
        np.int64(row["l1_w"]),
        np.int64(row["pad_left"]),
        np.int64(row["pad_right"]),
        np.int64(row["filter_w"]),
        np.int64(row["dilation_w"]),
        np.int64(row["stride_w"]),
    )
    oh = (np.int64(row["left_top_h"]) + np.int64(row["pad_top"])) // np.int64(row["stride_h"])
    ow = (np.int64(row["left_top_w"]) + np.int64(row["pad_left"])) // np.int64(row["stride_w"])
    tap = (np.int64(row["c1_index"]) * np.int64(row["filter_h"]) + np.int64(row["fetch_filter_h"])) * np.int64(
        row["filter_w"]
    ) + np.int64(row["fetch_filter_w"])
    window = oh * wo + ow
    if row["repeat_mode"] == 0:
        count = _windows(row, out, _NONE, tap, tap + repeat, window, window + 16)
    else:
        count = _windows(row, out, _NONE, tap, tap + 1, window, window + 16 * repeat)
    step = np.int64(row["jump_stride"]) * FRACTAL
    return _line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), FRACTAL, repeat, step)


@jit
def _fill(row, out):
    block = BLOCK if row["dst_space"] == Space.L1 else FRACTAL
    length = np.int64(row["block_num"]) * block
    step = length + np.int64(row["dst_gap"]) * block
    return _line(
        out, _NONE, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), length, np.int64(row["repeat"]), step
    )


@jit
def _fractal_rows(out, count, space, start, lines, outer_step, k, k_step, item):
    """Append the valid bytes of an L0 operand: ``lines`` rows (m or n) by ``k`` elements, in 16-row fractals.

    Fractals that are neighbours along the rows are ``outer_step`` bytes apart, along k ``k_step``.
    """
    full_k, tail_k = k * item // BLOCK, k * item % BLOCK
    full, tail = lines // 16, lines % 16
    count = _box(out, count, space, READ, start, FRACTAL, full_k, k_step, full, outer_step, _ONCE, _NONE)
    count = _box(
        out, count, space, READ, start + full * outer_step, tail * BLOCK, full_k, k_step, _ONCE, _NONE, _ONCE, _NONE
    )
    at = start + full_k * k_step
    count = _box(out, count, space, READ, at, tail_k, np.int64(16), BLOCK, full, outer_step, _ONCE, _NONE)
    return _box(out, count, space, READ, at + full * outer_step, tail_k, tail, BLOCK, _ONCE, _NONE, _ONCE, _NONE)


@jit
def _accumulator(out, count, access, start, m, n, column_step, matrices, matrix_step):
    """Append m x n elements of L0C: columns of 16, 64 bytes a row, ``column_step`` bytes from column to column."""
    full, tail = n // 16, n % 16
    count = _box(out, count, _L0C, access, start, m * 64, full, column_step, matrices, matrix_step, _ONCE, _NONE)
    at = start + full * column_step
    return _box(out, count, _L0C, access, at, tail * 4, m, np.int64(64), matrices, matrix_step, _ONCE, _NONE)


@jit
def _mmad(row, out):
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m <= 0 or n <= 0 or k <= 0:
        return 0
    item = item_bytes(row["dtype"])
    a, b, c = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    if m == 1:
        count = _line(out, _NONE, _L0A, READ, a, k * item, _ONCE, _NONE)
    else:
        k1 = (k * item + BLOCK - 1) // BLOCK
        if row["mode"] & Mode.K_ALIGN != 0:
            k1 = (k + 15) // 16 * 16 * item // BLOCK
        count = _fractal_rows(out, _NONE, _L0A, a, m, k1 * FRACTAL, k, FRACTAL, item)
    count = _fractal_rows(out, count, _L0B, b, n, FRACTAL, k, (n + 15) // 16 * FRACTAL, item)
    column = (m + 15) // 16 * 1024
    if row["mode"] & Mode.INIT == 0:
        count = _accumulator(out, count, READ, c, m, n, column, _ONCE, _NONE)
    return _accumulator(out, count, WRITE, c, m, n, column, _ONCE, _NONE)


@jit
def _fixpipe(row, out):
    m, n = np.int64(row["m_size"]), np.int64(row["n_size"])
    is_nd = row["mode"] & Mode.NZ2ND != 0
    matrices = np.int64(row["nd_num"]) if is_nd else np.int64(1)
    if m <= 0 or n <= 0 or matrices <= 0:
        return 0
    item = item_bytes(row["dst_dtype"])
    space, dst, access = np.int64(row["dst_space"]), np.int64(row["dst"]), _store_access(row)
    count = _accumulator(
        out,
        _NONE,
        READ,
        np.int64(row["src0"]),
        m,
        n,
        np.int64(row["src_stride"]) * 64,
        matrices,
        np.int64(row["src_nd_stride"]) * 1024 if is_nd else np.int64(0),
    )
    stride = np.int64(row["dst_stride"])
    if is_nd:
        step = np.int64(row["dst_nd_stride"]) * item
        return _box(out, count, space, access, dst, n * item, m, stride * item, matrices, step, _ONCE, _NONE)
    width = 8 if row["mode"] & Mode.CHANNEL_SPLIT != 0 else 16
    full, tail = n // width, n % width
    count = _line(out, count, space, access, dst, m * width * item, full, stride * BLOCK)
    return _line(out, count, space, access, dst + full * stride * BLOCK, tail * item, m, width * item)


@jit
def _l0c_to_ub(row, out):
    blocks, length = np.int64(row["block_count"]), np.int64(row["block_len"])
    src_step = (length + np.int64(row["src_gap"])) * 1024
    dst_bytes = length * 256 * item_bytes(row["dst_dtype"])
    dst_step = dst_bytes + np.int64(row["dst_gap"]) * BLOCK
    count = _line(out, _NONE, _L0C, READ, np.int64(row["src0"]), length * 1024, blocks, src_step)
    return _line(out, count, _UB, WRITE, np.int64(row["dst"]), dst_bytes, blocks, dst_step)


@jit
def _vector(row, out):
    """Count-style vector instructions: consecutive elements, Cast with a type of its own for the result."""
    op = row["op"]
    elements = np.int64(row["count"])
    src_bytes = elements * item_bytes(row["dtype"])
    count = _NONE
    if op != Op.DUPLICATE:
        count = _line(out, count, _UB, READ, np.int64(row["src0"]), src_bytes, _ONCE, _NONE)
    if op == Op.ADD:
        count = _line(out, count, _UB, READ, np.int64(row["src1"]), src_bytes, _ONCE, _NONE)
    dst_bytes = elements * item_bytes(row["dst_dtype"]) if op == Op.CAST else src_bytes
    return _line(out, count, _UB, WRITE, np.int64(row["dst"]), dst_bytes, _ONCE, _NONE)


@jit
def _boxes(row, out):
    """Note the boxes of an instruction; return their number or `TOO_MANY_RUNS`."""
    op = row["op"]
    if op == Op.MMAD:
        return _mmad(row, out)
    if op == Op.DATA_COPY:
        return _data_copy(row, out)
    if op == Op.LOAD_3D:
        return _load_3d(row, out)
    if op == Op.LOAD_2D:
        return _load_2d(row, out)
    if op == Op.FIXPIPE:
        return _fixpipe(row, out)
    if op == Op.ND2NZ:
        return _nd2nz(row, out)
    if op == Op.LOAD_TRANSPOSE:
        return _load_transpose(row, out)
    if op == Op.LOAD_3D_V1:
        return _load_3d_v1(row, out)
    if op == Op.L0C_TO_UB:
        return _l0c_to_ub(row, out)
    if op == Op.FILL:
        return _fill(row, out)
    if op == Op.DUPLICATE or op == Op.ADD or op == Op.MULS or op == Op.CAST:
        return _vector(row, out)
    return 0


@jit
def footprint(row, out):
    """Write the runs that an instruction touches, reads before writes.

    Parameters
    ----------
    row : INSTR record
        After `isa.issue` (atomic additions show as `ATOMIC_ADD`).
    out : int64[capacity, 6]
        Runs: space, access (0 read, 1 write, 2 atomic add), first byte, bytes of one repetition, repetitions, bytes
        from one repetition to the next. `RUN_CAPACITY` rows are enough.

    Returns
    -------
    int
        Number of runs (0 for instructions that touch no memory or are empty), or `TOO_MANY_RUNS` when ``out`` is too
        short (it also holds working data); then its contents are undefined, but nothing was written behind it.
    """
    boxes = _boxes(row, out)
    if boxes < 0:
        return boxes
    return _melt(out, boxes)


@jit
def footprint_at(rows, index, out):
    """Call `footprint` for ``rows[index]``: Numba takes the row array from Python, but not one of its records."""
    return footprint(rows[index], out)


@jit
def reach(rows, runs, ends):
    """Write how far each row reaches in each space: ``ends[i, space]`` = (lowest byte, byte behind the highest).

    Parameters
    ----------
    rows : INSTR[n]
    runs : int64[capacity, 6]
        Buffer of `footprint`.
    ends : int64[n, 7, 2]
        Set to (0, 0) for spaces a row does not touch, to (-1, -1) in space 0 for rows with too many runs.
    """
    for i in range(len(rows)):
        ends[i] = 0
        count = footprint(rows[i], runs)
        if count < 0:
            ends[i, 0] = -1
        for r in range(count):
            space, start = runs[r, 0], runs[r, 2]
            if space < 0 or space >= 7:
                continue
            end = start + (runs[r, 4] - 1) * runs[r, 5] + runs[r, 3]
            if ends[i, space, 1] == 0:
                ends[i, space, 0] = start
                ends[i, space, 1] = end
            else:
                ends[i, space, 0] = min(ends[i, space, 0], start)
                ends[i, space, 1] = max(ends[i, space, 1], end)

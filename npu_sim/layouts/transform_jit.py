"""Bulk transforms on bit patterns. Each function does the tasks ``begin`` to ``end`` (exclusive) of a numbered list.

Tasks write disjoint parts of ``dst`` and together all of it, padding included, so ranges of tasks may run in any order
and on any thread. ``src`` and ``dst`` are contiguous and flat, of 16- or 32-bit words; ``scratch`` belongs to the call.
The offsets follow the index maps of the tests, which compare every function with them over all small shapes.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp32_to_nearest_bf16, fp32_to_nearest_fp16
from npu_sim.layouts.shuffle_jit import copy_lanes, transpose_tile

CHUNK = 256
"""Pixels of a task of the feature-map transforms; the last task of a plane has up to twice as many."""
SCRATCH_STEP = 2 * CHUNK + 16
"""Words of a row of their scratch. Not a power of two, so that the rows do not share cache sets."""
WEIGHT_ROWS = 16
"""Output channels of a task of the weight transforms."""


@jit
def _copy_words(src, src_at, dst, dst_at, count):
    source = src[src_at : src_at + count]
    target = dst[dst_at : dst_at + count]
    for i in range(target.size):
        target[i] = source[i]


@jit
def _zero_words(dst, at, count):
    target = dst[at : at + count]
    for i in range(target.size):
        target[i] = 0


CAST_FP16 = 0
CAST_BF16 = 1


@jit
def _cast_words(src, src_at, dst, dst_at, count, cast, saturate):
    source = src[src_at : src_at + count]
    target = dst[dst_at : dst_at + count]
    if cast == CAST_FP16:
        for i in range(target.size):
            target[i] = fp32_to_nearest_fp16(source[i], saturate)
    else:
        for i in range(target.size):
            target[i] = fp32_to_nearest_bf16(source[i], saturate)


@jit
def chunks_of_plane(plane: int) -> int:
    """Return the tasks per plane of ``plane`` pixels (at least 1)."""
    return max(1, plane // CHUNK)


@jit
def _chunk_length(chunk, plane):
    """Return the pixels of chunk ``chunk``; the last one takes the remainder."""
    if chunk == chunks_of_plane(plane) - 1:
        return plane - chunk * CHUNK
    return CHUNK


@jit
def _tiles_to_pixels(src, src_at, src_step, rows, dst, dst_at, length, c0):
    """Transpose ``rows`` channel rows of ``length`` >= ``c0`` pixels into pixels of ``c0`` channels.

    The last tile is moved back so that it ends with the row; what it repeats it writes again.
    """
    pixel = 0
    while True:
        transpose_tile(c0, src, src_at + pixel, src_step, rows, dst, dst_at + pixel * c0, c0, c0)
        if pixel + c0 >= length:
            return
        pixel = min(pixel + c0, length - c0)


@jit
def _staged_to_pixels(scratch, step, rows, dst, dst_at, length, c0):
    """Do the same from rows in ``scratch``, ``step`` apart; ``length`` may be less than ``c0``."""
    if length >= c0:
        _tiles_to_pixels(scratch, 0, step, rows, dst, dst_at, length, c0)
    else:
        result = c0 * SCRATCH_STEP
        transpose_tile(c0, scratch, 0, step, rows, scratch, result, c0, c0)
        _copy_words(scratch, result, dst, dst_at, length * c0)


@jit
def _place_of_task(task, channels, depth, plane, c0):
    """Return where its pixels begin in planes and in blocks, its channels that exist, and its pixels."""
    c1_count, chunks = -(-channels // c0), chunks_of_plane(plane)
    block = task // chunks
    chunk = task - block * chunks
    pixel = chunk * CHUNK
    c1, d, n = block % c1_count, block // c1_count % depth, block // (c1_count * depth)
    in_planes = ((n * channels + c1 * c0) * depth + d) * plane + pixel
    return in_planes, (block * plane + pixel) * c0, min(c0, channels - c1 * c0), _chunk_length(chunk, plane)


@jit
def blocked_from_planes(src, dst, begin, end, scratch, channels, depth, plane, c0):
    """NC(D)HW to N(D)C1HWC0, words unchanged; the channels that do not exist become 0.

    Parameters
    ----------
    src : uint16[N*C*D*plane] or uint32[...]
        Row-major N, C, D, pixels.
    dst : same type, [N*D*C1*plane*C0]
    begin, end : int
        Tasks (n, d, c1, chunk); there are ``N * D * C1 * chunks_of_plane(plane)``.
    scratch : same type, [(c0 + 1) * SCRATCH_STEP]
    channels, depth, plane : int
        C, D, H * W.
    c0 : int
        16, or 8 for 32-bit words.
    """
    for task in range(begin, end):
        src_at, dst_at, rows, length = _place_of_task(task, channels, depth, plane, c0)
        if length >= c0:
            _tiles_to_pixels(src, src_at, depth * plane, rows, dst, dst_at, length, c0)
        else:
            for row in range(rows):
                _copy_words(src, src_at + row * depth * plane, scratch, row * SCRATCH_STEP, length)
            _staged_to_pixels(scratch, SCRATCH_STEP, rows, dst, dst_at, length, c0)


@jit
def cast_blocked_from_planes(src, dst, begin, end, scratch, channels, depth, plane, c0, cast, saturate):
    """As `blocked_from_planes` for fp32 words in ``src``, rounded to fp16 or bf16 words on the way.

    Parameters
    ----------
    src : uint32[N*C*D*plane]
    dst, scratch : uint16[...]
    cast : int
        `CAST_FP16` or `CAST_BF16`.
    saturate : bool
        Overflow mode of the conversion.
    """
    for task in range(begin, end):
        src_at, dst_at, rows, length = _place_of_task(task, channels, depth, plane, c0)
        if depth == 1 and chunks_of_plane(plane) == 1:
            # the channels of a small plane follow each other: one cast of all is faster than one a row
            _cast_words(src, src_at, scratch, 0, rows * plane, cast, saturate)
            _staged_to_pixels(scratch, plane, rows, dst, dst_at, length, c0)
        else:
            for row in range(rows):
                _cast_words(src, src_at + row * depth * plane, scratch, row * SCRATCH_STEP, length, cast, saturate)
            _staged_to_pixels(scratch, SCRATCH_STEP, rows, dst, dst_at, length, c0)


@jit
def _tiles_to_rows(src, src_at, dst, dst_at, dst_step, rows, length, c0):
    """Transpose ``length`` pixels of ``c0`` channels into ``rows`` channel rows; a row has at least ``c0`` pixels.

    Rows shorter than that end in zeros. The last tile is moved back as in `_tiles_to_pixels`.
    """
    pixel = 0
    while True:
        transpose_tile(c0, src, src_at + pixel * c0, c0, length - pixel, dst, dst_at + pixel, dst_step, rows)
        if pixel + c0 >= length:
            return
        pixel = min(pixel + c0, length - c0)


@jit
def planes_from_blocked(src, dst, begin, end, scratch, channels, depth, plane, c0):
    """N(D)C1HWC0 to NC(D)HW, words unchanged; the channels that do not exist are dropped.

    Parameters as in `blocked_from_planes`, with ``src`` and ``dst`` exchanged; the same tasks.
    """
    for task in range(begin, end):
        dst_at, src_at, rows, length = _place_of_task(task, channels, depth, plane, c0)
        if length >= c0:
            _tiles_to_rows(src, src_at, dst, dst_at, depth * plane, rows, length, c0)
        else:
            _tiles_to_rows(src, src_at, scratch, 0, SCRATCH_STEP, rows, length, c0)
            for row in range(rows):
                _copy_words(scratch, row * SCRATCH_STEP, dst, dst_at + row * depth * plane, length)


@jit
def fractal_from_weights(
    src, dst, begin, end, scratch, groups, cout_per_group, cin_per_group, depth, taps, c0, mag, cin1_g, cout_g
):
    """Row-major weights to FRACTAL_Z or FRACTAL_Z_3D; whatever is not a weight becomes 0.

    Parameters
    ----------
    src : uint16[Cout*(Cin/groups)*KD*taps] or uint32[...]
        Row-major Cout, Cin/groups, KD, KH*KW.
    dst : same type, [real_g*KD*cin1_g*taps*cout_g*C0]
    begin, end : int
        Tasks: `WEIGHT_ROWS` rows of a merged group; there are ``real_g * cout_g / 16``.
    scratch : same type, [c0 * taps + c0]
    groups, cout_per_group, cin_per_group, depth, taps, c0, mag, cin1_g, cout_g : int
        `formats.WeightLayout`, with depth = KD and taps = KH * KW; c0 is 16, or 8 for 32-bit words.
    """
    step = depth * taps
    # the tiles of a row of `src` end at a multiple of c0 taps, which may lie behind the last weight of all
    readable = src.size - (taps + c0 - 1) // c0 * c0
    for task in range(begin, end):
        merged = task * WEIGHT_ROWS // cout_g
        first_row = task * WEIGHT_ROWS - merged * cout_g
        for kd in range(depth):
            for c1 in range(cin1_g):
                member = first_row // cout_per_group
                row_of_member = first_row - member * cout_per_group
                dst_at = (((merged * depth + kd) * cin1_g + c1) * taps * cout_g + first_row) * c0
                for _ in range(WEIGHT_ROWS):
                    group = merged * mag + member
                    lowest = max(c1 * c0, member * cin_per_group)
                    lanes = min((c1 + 1) * c0, (member + 1) * cin_per_group) - lowest
                    lane = lowest - c1 * c0
                    co = group * cout_per_group + row_of_member
                    src_at = ((co * cin_per_group + lowest - member * cin_per_group) * depth + kd) * taps
                    # rows behind the last member exist only if all groups are merged: then `group` is too large as well
                    if group >= groups or lanes <= 0:
                        for tap in range(taps):
                            _zero_words(dst, dst_at + tap * cout_g * c0, c0)
                    elif step == 1 and lanes == c0:
                        copy_lanes(c0, src, src_at, dst, dst_at)
                    elif lane == 0 and src_at + (lanes - 1) * step <= readable:
                        for tap in range(0, taps, c0):
                            at = dst_at + tap * cout_g * c0
                            transpose_tile(c0, src, src_at + tap, step, lanes, dst, at, cout_g * c0, taps - tap)
                    else:
                        _zero_words(scratch, 0, c0 * taps)
                        for i in range(lanes):
                            _copy_words(src, src_at + i * step, scratch, (lane + i) * taps, taps)
                        for tap in range(0, taps, c0):
                            at = dst_at + tap * cout_g * c0
                            transpose_tile(c0, scratch, tap, taps, c0, dst, at, cout_g * c0, taps - tap)
                    dst_at += c0
                    row_of_member += 1
                    if row_of_member == cout_per_group:
                        row_of_member = 0
                        member += 1


@jit
def weights_from_fractal(
    src, dst, begin, end, scratch, groups, cout_per_group, cin_per_group, depth, taps, c0, mag, cin1_g, cout_g
):
    """FRACTAL_Z or FRACTAL_Z_3D to row-major weights; the padding and the products between groups are dropped.

    Parameters as in `fractal_from_weights`, with ``src`` and ``dst`` exchanged.

    Parameters
    ----------
    begin, end : int
        Tasks: `WEIGHT_ROWS` output channels; there are ``ceil(Cout / 16)``.
    scratch : same type, [c0 * taps + c0]
    """
    cout = groups * cout_per_group
    step = depth * taps
    for task in range(begin, end):
        first = task * WEIGHT_ROWS
        for kd in range(depth):
            for c1 in range(cin1_g):
                group = first // cout_per_group
                co_of_group = first - group * cout_per_group
                merged = group // mag
                member = group - merged * mag
                for co in range(first, min(cout, first + WEIGHT_ROWS)):
                    lowest = max(c1 * c0, member * cin_per_group)
                    lanes = min((c1 + 1) * c0, (member + 1) * cin_per_group) - lowest
                    lane = lowest - c1 * c0
                    row = member * cout_per_group + co_of_group
                    src_at = (((merged * depth + kd) * cin1_g + c1) * taps * cout_g + row) * c0
                    dst_at = ((co * cin_per_group + lowest - member * cin_per_group) * depth + kd) * taps
                    to_come = ((member + 1) * cin_per_group - (c1 + 1) * c0) * taps
                    if lanes > 0:
                        if step == 1 and lanes == c0:
                            copy_lanes(c0, src, src_at, dst, dst_at)
                        elif depth == 1 and lanes == c0 and to_come >= c0 - 1:
                            # what spills lies in the next channels of the same output channel, which follow
                            _taps_of_channels(src, src_at, cout_g, dst, dst_at, taps, c0)
                        else:
                            _taps_of_channels(src, src_at, cout_g, scratch, 0, taps, c0)
                            for i in range(lanes):
                                _copy_words(scratch, (lane + i) * taps, dst, dst_at + i * step, taps)
                    co_of_group += 1
                    if co_of_group == cout_per_group:
                        co_of_group = 0
                        member += 1
                        if member == mag:
                            member = 0
                            merged += 1


@jit
def _taps_of_channels(src, src_at, cout_g, dst, dst_at, taps, c0):
    """Transpose one output channel and C1 of a fractal weight into ``c0`` rows of ``taps`` words.

    A tile with fewer taps than lanes spills into the next rows. Last taps first and rows ascending, every spill is
    overwritten, but for the up to ``c0 - 1`` words behind the last row.
    """
    for tap in range((taps - 1) // c0 * c0, -1, -c0):
        at = src_at + tap * cout_g * c0
        transpose_tile(c0, src, at, cout_g * c0, taps - tap, dst, dst_at + tap, taps, c0)


@jit
def nz_from_rows(src, dst, begin, end, m, n, n0):
    """Row-major matrices to FRACTAL_NZ; the padding becomes 0.

    Parameters
    ----------
    src : uint16[count*M*N] or uint32[...]
    dst : same type, [count*N1*M1*16*N0]
    begin, end : int
        Tasks: 16 rows of a matrix; there are ``count * M1``.
    m, n, n0 : int
        n0 is 16, or 8 for 32-bit words.
    """
    m1_count = -(-m // 16)
    n1_count = -(-n // n0)
    for task in range(begin, end):
        matrix = task // m1_count
        first = (task - matrix * m1_count) * 16
        rows = min(16, m - first)
        for n1 in range(n1_count):
            dst_at = ((matrix * n1_count + n1) * m1_count * 16 + first) * n0
            src_at = (matrix * m + first) * n + n1 * n0
            columns = min(n0, n - n1 * n0)
            for row in range(rows):
                if columns == n0:
                    copy_lanes(n0, src, src_at + row * n, dst, dst_at + row * n0)
                else:
                    _copy_words(src, src_at + row * n, dst, dst_at + row * n0, columns)
                    _zero_words(dst, dst_at + row * n0 + columns, n0 - columns)
            _zero_words(dst, dst_at + rows * n0, (16 - rows) * n0)


@jit
def rows_from_nz(src, dst, begin, end, m, n, n0):
    """FRACTAL_NZ to row-major matrices; parameters and tasks as in `nz_from_rows`, ``src`` and ``dst`` exchanged."""
    m1_count = -(-m // 16)
    n1_count = -(-n // n0)
    for task in range(begin, end):
        matrix = task // m1_count
        first = (task - matrix * m1_count) * 16
        for n1 in range(n1_count):
            src_at = ((matrix * n1_count + n1) * m1_count * 16 + first) * n0
            dst_at = (matrix * m + first) * n + n1 * n0
            columns = min(n0, n - n1 * n0)
            for row in range(min(16, m - first)):
                if columns == n0:
                    copy_lanes(n0, src, src_at + row * n0, dst, dst_at + row * n)
                else:
                    _copy_words(src, src_at + row * n0, dst, dst_at + row * n, columns)

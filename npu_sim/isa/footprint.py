"""The bytes an instruction touches, as strided runs: the only place that knows them.

Bounds, ordering, moved bytes and bandwidth are all derived from `footprint`. It is exact: the union of the runs is the
set of bytes that the semantics in `isa` reads resp. writes. Runs may overlap each other.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (DataCopy, LoadData 2D and 3D, LoadDataWithTranspose, InitConstValue, Mmad,
Fixpipe, vector instructions) and the fractal formats page (orders of L0A, L0B and L0C).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import footprint_vector, footprint_window
from npu_sim.isa.footprint_boxes import (
    ATOMIC_ADD,
    BLOCK,
    FRACTAL,
    L0A,
    L0B,
    L0C,
    NO_FOOTPRINT,
    NONE,
    ONCE,
    OPERAND_BITS,
    REACH_BYTES,
    READ,
    TOO_MANY_RUNS,
    UB,
    WRITE,
    box,
    line,
    melt,
    store_access,
)
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Mode, Op, Space
from npu_sim.isa.vector_kind import is_count_style

__all__ = [
    "ATOMIC_ADD",
    "NO_FOOTPRINT",
    "REACH_BYTES",
    "READ",
    "RUN_CAPACITY",
    "RUN_FIELDS",
    "TOO_MANY_RUNS",
    "WRITE",
    "empty_runs",
    "expand",
    "footprint",
    "footprint_at",
    "reach",
]

RUN_FIELDS = 6
"""Columns of a run: space, access, first byte, bytes of one repetition, repetitions, bytes between repetitions."""
RUN_CAPACITY = 1 << 16
"""Rows of a buffer that suffice for every instruction whose operands fit the buffers of a core."""


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
def _data_copy(row, out):
    blocks, length = np.int64(row["block_count"]), np.int64(row["block_len"]) * BLOCK
    src_step = length + np.int64(row["src_gap"]) * BLOCK
    dst_step = length + np.int64(row["dst_gap"]) * BLOCK
    count = line(out, NONE, np.int64(row["src0_space"]), READ, np.int64(row["src0"]), length, blocks, src_step)
    return line(
        out, count, np.int64(row["dst_space"]), store_access(row), np.int64(row["dst"]), length, blocks, dst_step
    )


@jit
def _nd2nz(row, out):
    """ND2NZ reads the valid elements only and writes whole blocks (zeros behind the last column)."""
    item = item_bytes(row["dtype"])
    matrices, rows, columns = np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(row["d_value"])
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    count = box(
        out,
        NONE,
        np.int64(row["src0_space"]),
        READ,
        src,
        columns * item,
        rows,
        np.int64(row["src_d_value"]) * item,
        matrices,
        np.int64(row["src_nd_stride"]) * item,
        ONCE,
        NONE,
    )
    blocks = (columns * item + BLOCK - 1) // BLOCK
    if count == 0:
        return 0
    return box(
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
    count = line(out, NONE, np.int64(row["src0_space"]), READ, src, FRACTAL, repeat, src_step)
    return line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), FRACTAL, repeat, step)


@jit
def _load_transpose(row, out):
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
def _fill(row, out):
    block = BLOCK if row["dst_space"] == Space.L1 else FRACTAL
    length = np.int64(row["block_num"]) * block
    step = length + np.int64(row["dst_gap"]) * block
    return line(
        out, NONE, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), length, np.int64(row["repeat"]), step
    )


@jit
def _fractal_rows(out, count, space, start, lines, outer_step, k, k_step, item):
    """Append the valid bytes of an L0 operand: ``lines`` rows (m or n) by ``k`` elements, in 16-row fractals.

    Fractals that are neighbours along the rows are ``outer_step`` bytes apart, along k ``k_step``.
    """
    full_k, tail_k = k * item // BLOCK, k * item % BLOCK
    full, tail = lines // 16, lines % 16
    count = box(out, count, space, READ, start, FRACTAL, full_k, k_step, full, outer_step, ONCE, NONE)
    count = box(
        out, count, space, READ, start + full * outer_step, tail * BLOCK, full_k, k_step, ONCE, NONE, ONCE, NONE
    )
    at = start + full_k * k_step
    count = box(out, count, space, READ, at, tail_k, np.int64(16), BLOCK, full, outer_step, ONCE, NONE)
    return box(out, count, space, READ, at + full * outer_step, tail_k, tail, BLOCK, ONCE, NONE, ONCE, NONE)


@jit
def _accumulator(out, count, access, start, m, n, column_step, matrices, matrix_step):
    """Append m x n elements of L0C: columns of 16, 64 bytes a row, ``column_step`` bytes from column to column."""
    full, tail = n // 16, n % 16
    count = box(out, count, L0C, access, start, m * 64, full, column_step, matrices, matrix_step, ONCE, NONE)
    at = start + full * column_step
    return box(out, count, L0C, access, at, tail * 4, m, np.int64(64), matrices, matrix_step, ONCE, NONE)


@jit
def _mmad(row, out):
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m <= 0 or n <= 0 or k <= 0:
        return 0
    if (m | n | k) >> OPERAND_BITS != 0:
        return NO_FOOTPRINT
    item = item_bytes(row["dtype"])
    a, b, c = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    if m == 1:
        count = line(out, NONE, L0A, READ, a, k * item, ONCE, NONE)
    else:
        k1 = (k * item + BLOCK - 1) // BLOCK
        if row["mode"] & Mode.K_ALIGN != 0:
            k1 = (k + 15) // 16 * 16 * item // BLOCK
        count = _fractal_rows(out, NONE, L0A, a, m, k1 * FRACTAL, k, FRACTAL, item)
    count = _fractal_rows(out, count, L0B, b, n, FRACTAL, k, (n + 15) // 16 * FRACTAL, item)
    column = (m + 15) // 16 * 1024
    if row["mode"] & Mode.INIT == 0:
        count = _accumulator(out, count, READ, c, m, n, column, ONCE, NONE)
    return _accumulator(out, count, WRITE, c, m, n, column, ONCE, NONE)


@jit
def _fixpipe(row, out):
    m, n = np.int64(row["m_size"]), np.int64(row["n_size"])
    is_nd = row["mode"] & Mode.NZ2ND != 0
    matrices = np.int64(row["nd_num"]) if is_nd else np.int64(1)
    if m <= 0 or n <= 0 or matrices <= 0:
        return 0
    if n >> OPERAND_BITS != 0:
        return NO_FOOTPRINT
    item = item_bytes(row["dst_dtype"])
    space, dst, access = np.int64(row["dst_space"]), np.int64(row["dst"]), store_access(row)
    count = _accumulator(
        out,
        NONE,
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
        return box(out, count, space, access, dst, n * item, m, stride * item, matrices, step, ONCE, NONE)
    width = 8 if row["mode"] & Mode.CHANNEL_SPLIT != 0 else 16
    full, tail = n // width, n % width
    count = line(out, count, space, access, dst, m * width * item, full, stride * BLOCK)
    return line(out, count, space, access, dst + full * stride * BLOCK, tail * item, m, width * item)


@jit
def _l0c_to_ub(row, out):
    blocks, length = np.int64(row["block_count"]), np.int64(row["block_len"])
    src_step = (length + np.int64(row["src_gap"])) * 1024
    dst_bytes = length * 256 * item_bytes(row["dst_dtype"])
    dst_step = dst_bytes + np.int64(row["dst_gap"]) * BLOCK
    count = line(out, NONE, L0C, READ, np.int64(row["src0"]), length * 1024, blocks, src_step)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), dst_bytes, blocks, dst_step)


@jit
def _boxes(row, out):
    """Note the boxes of an instruction; return their number, `TOO_MANY_RUNS` or `NO_FOOTPRINT`."""
    op = row["op"]
    if op == Op.MMAD:
        return _mmad(row, out)
    if op == Op.DATA_COPY:
        return _data_copy(row, out)
    if op == Op.LOAD_3D:
        return footprint_window.load_3d(row, out)
    if op == Op.LOAD_2D:
        return _load_2d(row, out)
    if op == Op.FIXPIPE:
        return _fixpipe(row, out)
    if op == Op.ND2NZ:
        return _nd2nz(row, out)
    if op == Op.LOAD_TRANSPOSE:
        return _load_transpose(row, out)
    if op == Op.LOAD_3D_V1:
        return footprint_window.load_3d_v1(row, out)
    if op == Op.L0C_TO_UB:
        return _l0c_to_ub(row, out)
    if op == Op.FILL:
        return _fill(row, out)
    if is_count_style(op):
        return footprint_vector.vector(row, out)
    if op == Op.TRANS_DATA_TO_5HD:
        return footprint_vector.trans_data_to_5hd(row, out)
    if op == Op.DATA_COPY_PAD:
        return footprint_vector.data_copy_pad(row, out)
    if op == Op.REDUCE_REPEAT:
        return footprint_vector.reduce_repeat(row, out)
    if op == Op.SCALAR_COPY:
        return footprint_vector.scalar_copy(row, out)
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
        Number of runs (0 for instructions that touch no memory or are empty), or a negative number: `TOO_MANY_RUNS`
        when ``out`` is too short (it also holds working data), `NO_FOOTPRINT` for a row that no hardware has, whose
        operands are wider than `OPERAND_BITS`, or whose bytes lie in no space or more than `REACH_BYTES` from the start
        of theirs. Then the contents of ``out`` are undefined, but nothing was written behind it. Any 128 bytes are a
        row here: no sum wraps around, every run ends within `REACH_BYTES`, and the work is bounded (`_window_taps`).
    """
    boxes = _boxes(row, out)
    if boxes < 0:
        return boxes
    return melt(out, boxes)


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
        Any bytes.
    runs : int64[capacity, 6]
        Buffer of `footprint`.
    ends : int64[n, 7, 2]
        Set to equal numbers for spaces a row does not touch; space 0 to what `footprint` returned if that is negative,
        and all others to 0 then.
    """
    for i in range(len(rows)):
        ends[i] = 0
        count = footprint(rows[i], runs)
        if count < 0:
            ends[i, 0] = count
        for r in range(count):
            space, start = runs[r, 0], runs[r, 2]
            end = start + (runs[r, 4] - 1) * runs[r, 5] + runs[r, 3]
            if ends[i, space, 0] == ends[i, space, 1]:
                ends[i, space, 0] = start
                ends[i, space, 1] = end
            else:
                ends[i, space, 0] = min(ends[i, space, 0], start)
                ends[i, space, 1] = max(ends[i, space, 1], end)

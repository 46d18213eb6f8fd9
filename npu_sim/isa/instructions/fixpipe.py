"""Fixpipe: results leave L0C for GM or L1, converted, as fractal columns or row-major matrices."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.atomic import add_to_gm
from npu_sim.isa.codes import C220, Data, Mode, Pipe, Space
from npu_sim.isa.convert_run import convert_run
from npu_sim.isa.cost_rates import UNSUPPORTED, amount, divide_up, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import (
    NO_FOOTPRINT,
    NONE,
    ONCE,
    OPERAND_BITS,
    READ,
    accumulator,
    box,
    line,
    store_access,
)
from npu_sim.isa.instruction import B8, B32, DEVKIT, FLOATS, WORD, Index, Instruction, Rows
from npu_sim.isa.lanes import add_rows, copy_bytes
from npu_sim.isa.mte import BLOCK, is_carried, item_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import BLOCK_BYTES

OP = 14


emit_fixpipe = emitter(
    "fixpipe",
    OP,
    Pipe.FIX,
    "dst_space dst src=src0 dst_dtype m_size n_size src_stride dst_stride nd_num src_nd_stride dst_nd_stride "
    "mode tensor",
    "Fixpipe, L0C to GM or L1; ``mode``: `Mode.CHANNEL_SPLIT`, `Mode.NZ2ND`. Strides as FixpipeParamsV220.",
    src0_space=Space.L0C,
)


@jit
def footprint(row, out):
    return moves(row, out, NONE)


@jit
def moves(row, out, count):
    """Note what leaves L0C and where it goes behind ``count`` boxes; as many are left if nothing does."""
    m, n = np.int64(row["m_size"]), np.int64(row["n_size"])
    is_nd = row["mode"] & Mode.NZ2ND != 0
    matrices = np.int64(row["nd_num"]) if is_nd else np.int64(1)
    if m <= 0 or n <= 0 or matrices <= 0:
        return count
    if n >> OPERAND_BITS != 0:
        return NO_FOOTPRINT
    item = item_bytes(row["dst_dtype"])
    space, dst, access = np.int64(row["dst_space"]), np.int64(row["dst"]), store_access(row)
    count = accumulator(
        out,
        count,
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
    width = _width(row)
    full, tail = n // width, n % width
    count = line(out, count, space, access, dst, m * width * item, full, stride * BLOCK)
    pitch = tail if item == 1 else width * item
    return line(out, count, space, access, dst + full * stride * BLOCK, tail * item, m, pitch)


@jit
def _width(row):
    """Return the columns of a block that is not row-major: bytes of two fractals are merged, of a last one not."""
    if item_bytes(row["dst_dtype"]) == 1:
        return np.int64(32)
    return np.int64(8) if row["mode"] & Mode.CHANNEL_SPLIT != 0 else np.int64(16)


@jit
def byte_at(row, z, r, c):
    """Return where byte ``c`` of row ``r`` of matrix ``z`` goes."""
    first, stride = np.int64(row["dst"]), np.int64(row["dst_stride"])
    if row["mode"] & Mode.NZ2ND != 0:
        return first + z * np.int64(row["dst_nd_stride"]) + r * stride + c
    block = c // 32
    lanes = 32 if block < np.int64(row["n_size"]) // 32 else 16
    return first + block * stride * BLOCK + r * lanes + c % 32


@jit
def _length(row):
    """Bytes from the first to the last in GM."""
    item = item_bytes(row["dst_dtype"])
    m, n, stride = np.int64(row["m_size"]), np.int64(row["n_size"]), np.int64(row["dst_stride"])
    if row["mode"] & Mode.NZ2ND != 0:
        matrices = (np.int64(row["nd_num"]) - 1) * np.int64(row["dst_nd_stride"])
        return (matrices + (m - 1) * stride + n) * item
    width = _width(row)
    last = n % width if item == 1 and n % width != 0 else width
    return (n - 1) // width * stride * BLOCK + m * last * item


@jit
def extent(row):
    """Bytes in GM."""
    first = np.int64(row["dst"])
    return first, first + _length(row)


@jit
def log_demand(row):
    """One run per column of 8 or 16 (NZ) or per row and 16 columns (ND); 16 spare bytes a run for alignment."""
    m, n_size = np.int64(row["m_size"]), np.int64(row["n_size"])
    matrices = max(np.int64(row["nd_num"]), 1) if row["mode"] & Mode.NZ2ND else np.int64(1)
    count = matrices * (m * ((n_size + 15) // 16) if row["mode"] & Mode.NZ2ND else (n_size + 7) // 8)
    return count, matrices * m * (n_size + 15) * 4 + 16 * count


@jit
def store_run(gm_or_l1, address, atomic, l0c, at, count, dtype, staging, sink, log_runs, log_bytes):
    """Store ``count`` consecutive L0C elements at byte ``address``, adding if ``atomic``."""
    if not atomic:
        convert_run(l0c, at, gm_or_l1, address, count, dtype, sink[3])
    elif dtype == Data.FP32:
        # no conversion: straight from the accumulators
        add_to_gm(gm_or_l1, address, reinterpret(l0c, np.uint8), at * 4, count, dtype, sink, log_runs, log_bytes)
    else:
        convert_run(l0c, at, staging, 0, count, dtype, sink[3])
        add_to_gm(gm_or_l1, address, staging, 0, count, dtype, sink, log_runs, log_bytes)


@jit
def store(target, l0c, row, staging, sink, log_runs, log_bytes):
    """Fixpipe: m_size x n_size of L0C leave as NZ columns, split NZ columns of 8, or row-major matrices.

    ``staging`` is uint8 scratch of one column (65535 rows are cut by the caller's tile: at most L0C's bytes).
    """
    dtype = row["dst_dtype"]
    item = item_bytes(dtype)
    m, n = np.int64(row["m_size"]), np.int64(row["n_size"])
    if m == 0 or n == 0:
        return
    base = np.int64(row["src0"]) // 4
    src_column = np.int64(row["src_stride"]) * 16
    atomic = row["mode"] & Mode.ATOMIC != 0 and row["dst_space"] == Space.GM
    dst = np.int64(row["dst"])
    if row["mode"] & Mode.NZ2ND:
        for z in range(np.int64(row["nd_num"])):
            for r in range(m):
                at = dst + (z * np.int64(row["dst_nd_stride"]) + r * np.int64(row["dst_stride"])) * item
                first = base + z * np.int64(row["src_nd_stride"]) * 256 + r * 16
                for c in range(0, n, 16):
                    store_run(
                        target,
                        at + c * item,
                        atomic,
                        l0c,
                        first + (c // 16) * src_column,
                        min(16, n - c),
                        dtype,
                        staging,
                        sink,
                        log_runs,
                        log_bytes,
                    )
    elif row["mode"] & Mode.CHANNEL_SPLIT:
        for c in range(0, n, 8):
            at = dst + (c // 8) * np.int64(row["dst_stride"]) * 32
            first = base + (c // 16) * src_column + c % 16
            _store_half_columns(target, at, atomic, l0c, first, m, staging, sink, log_runs, log_bytes)
    else:
        for c in range(0, n, 16):
            at = dst + (c // 16) * np.int64(row["dst_stride"]) * 32
            store_run(
                target,
                at,
                atomic,
                l0c,
                base + (c // 16) * src_column,
                m * 16,
                dtype,
                staging,
                sink,
                log_runs,
                log_bytes,
            )


@jit
def _store_half_columns(target, at, atomic, l0c, first, m, staging, sink, log_runs, log_bytes):
    """Store m rows of 8 float32 (half a fractal's columns) as one contiguous run."""
    if atomic and sink[0] == 0:
        add_rows(target, at, l0c, first, 16, m)
        return
    packed = reinterpret(staging[: m * 32], np.float32)
    for r in range(m):
        for j in range(8):
            packed[r * 8 + j] = l0c[first + r * 16 + j]
    if atomic:
        add_to_gm(target, at, staging, 0, m * 8, Data.FP32, sink, log_runs, log_bytes)
    else:
        copy_bytes(target, at, staging, 0, m * 32)


@jit
def run(row, gm, l1, l0c, staging, sink, log_runs, log_bytes):
    """Store results in the types that need no requantisation."""
    if not is_carried(row["dst_dtype"]):
        return False
    target = gm if row["dst_space"] == Space.GM else l1
    store(target, l0c, row, reinterpret(staging, np.uint8), sink, log_runs, log_bytes)
    return True


@jit
def cost(row, cost):
    size = item_bytes(row["dst_dtype"])
    columns = np.int64(row["n_size"])
    row_major = (row["mode"] & Mode.NZ2ND) != 0
    matrices = np.int64(row["nd_num"]) if row_major else np.int64(1)
    rows = amount(np.int64(row["m_size"]), matrices, np.int64(1))
    elements = amount(np.int64(row["m_size"]), matrices, columns)
    byte_count = elements * size
    latency = cost["fix_latency_cycles"]
    if cost["fix_to_l1_elements_per_cycle"] == 0 or size == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if elements == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    if row["dst_space"] == Space.L1:
        start = cost["fix_to_l1_start_cycles"]
        return start + divide_up(elements, cost["fix_to_l1_elements_per_cycle"]), latency, byte_count
    if (row["mode"] & Mode.CHANNEL_SPLIT) != 0:
        payload = transfer_cycles(byte_count, cost["fix_split_millibytes_per_cycle"])
    else:
        payload = transfer_cycles(byte_count, cost["fix_to_gm_millibytes_per_cycle"])
        payload = max(payload, transfer_cycles(elements, cost["fix_to_gm_millielements_per_cycle"]))
    to_memory = transfer_cycles(byte_count, cost["store_share_millibytes_per_cycle"])
    if (row["mode"] & Mode.ATOMIC) != 0:
        to_memory = divide_up(to_memory * cost["atomic_permille"], 1000)
        if row["dst_dtype"] == Data.FP32:
            payload = transfer_cycles(byte_count, cost["fix_atomic_fp32_millibytes_per_cycle"])
        else:
            payload = divide_up(payload * cost["atomic_permille"], 1000)
    occupancy = max(cost["fix_minimum_cycles"], payload, to_memory)
    pitch = np.int64(row["dst_stride"]) * size
    if row_major and rows > 1:
        floor = cost["fix_row_floor_cycles"] if size == 4 else cost["fix_half_row_floor_cycles"]
        if pitch % 32 != 0:
            # of a longer row the lines in its middle are whole
            narrow = min(columns * size, cost["fix_narrow_row_bytes"])
            blocks = divide_up(narrow, np.int64(32)) * cost["fix_misaligned_block_cycles"]
            occupancy = max(occupancy, rows * max(floor, blocks))
        # rows that follow each other without a gap fill the lines of L2 as one does
        elif pitch != columns * size and columns * size < cost["fix_narrow_row_bytes"]:
            occupancy = max(occupancy, rows * floor)
    return occupancy, latency, byte_count


def check(chunk: Rows, index: Index) -> None:
    mode = chunk.column(index, "mode")
    is_nd, split = mode & Mode.NZ2ND != 0, mode & Mode.CHANNEL_SPLIT != 0
    nd_ranges = (("m_size", 0, 8192), ("nd_num", 0, WORD), ("src_nd_stride", 0, 512), ("dst_nd_stride", 0, WORD))
    chunk.ranges(index[is_nd], nd_ranges)
    n_size = chunk.column(index, "n_size")
    chunk.rule(index, ~is_nd & ~split & (n_size % 16 != 0), "n_size", "a multiple of 16")
    chunk.rule(index, split & (n_size % 8 != 0), "n_size", "a multiple of 8")
    chunk.unsupported(index, is_nd & split, lambda row: "channel split must come with NZ results, not row-major")
    bad = split & (chunk.column(index, "dst_dtype") != Data.FP32)
    chunk.unsupported(index, bad, lambda row: "channel split must come with float results")
    spaces = chunk.column(index, "dst_space")
    bad = ~is_nd & (spaces == Space.GM) & (chunk.column(index, "dst") % BLOCK_BYTES != 0)
    chunk.misaligned(index, bad, "dst", f"a multiple of {BLOCK_BYTES} for NZ results")


INSTRUCTION = Instruction(
    api="Fixpipe",
    emit=emit_fixpipe,
    source=DEVKIT + "Fixpipe (FixpipeParamsV220)",
    routes={(Space.GM, Space.L0C): Pipe.FIX, (Space.L1, Space.L0C): Pipe.FIX},
    ranges=(("m_size", 0, WORD), ("n_size", 0, 4095), ("src_stride", 0, WORD), ("dst_stride", 1, 2**31 - 1)),
    dst_dtypes={C220: FLOATS | B32 | B8 | {Data.BF16}},
    modes={C220: Mode.CHANNEL_SPLIT | Mode.NZ2ND | Mode.ATOMIC},
    adds=True,
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    extent=extent,
    log_demand=log_demand,
    check=check,
    defaults={"dst_space": Space.GM, "nd_num": 1, "src_nd_stride": 0, "dst_nd_stride": 0, "mode": 0, "tensor": -1},
)

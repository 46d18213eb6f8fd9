"""Semantics of results leaving L0C: Fixpipe (dav-c220) and the L0C to UB copy (dav-c100, dav-m200).

Sources: asc-devkit Fixpipe (FixpipeParamsV220) and DataCopy with DataCopyEnhancedParams pages. Both round float32 to
half or bf16 to nearest even; for the L0C to UB copy that rounding is assumed, only its status bits are documented.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp32_to_bf16, fp32_to_fp16
from npu_sim.isa.atomic import add_to_gm
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Data, Mode, Space
from npu_sim.reinterpret import reinterpret


@jit
def convert_run(src, src_at, dst, dst_at, count, dtype, saturate):
    """Convert ``count`` float32 of ``src`` to ``dtype`` bytes at ``dst[dst_at]``."""
    if dtype == Data.FP32 or dtype == Data.INT32:
        copy_bytes(dst, dst_at, src, src_at * 4, 4 * count)
    else:
        bits = reinterpret(src[src_at : src_at + count], np.uint32)
        half = reinterpret(dst[dst_at : dst_at + 2 * count], np.uint16)
        if dtype == Data.FP16:
            for i in range(count):
                half[i] = fp32_to_fp16(bits[i], 0, saturate)
        else:
            for i in range(count):
                half[i] = fp32_to_bf16(bits[i], 0, saturate)


@jit
def _store_run(gm_or_l1, address, atomic, l0c, at, count, dtype, staging, sink, log_runs, log_bytes):
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
def fixpipe(target, l0c, row, staging, sink, log_runs, log_bytes):
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
                    _store_run(
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
            _store_run(
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
    packed = reinterpret(staging[: m * 32], np.float32)
    for r in range(m):
        for j in range(8):
            packed[r * 8 + j] = l0c[first + r * 16 + j]
    if atomic:
        add_to_gm(target, at, staging, 0, m * 8, Data.FP32, sink, log_runs, log_bytes)
    else:
        copy_bytes(target, at, staging, 0, m * 32)


@jit
def l0c_to_ub(ub, l0c, row, saturate):
    """DataCopy L0C to UB in MATRIX mode: runs of 16x16 fractals, converted to ``dst_dtype``."""
    dtype = row["dst_dtype"]
    length = np.int64(row["block_len"]) * 256
    src_step = length + np.int64(row["src_gap"]) * 256
    dst_step = length * item_bytes(dtype) + np.int64(row["dst_gap"]) * 32
    for i in range(np.int64(row["block_count"])):
        convert_run(
            l0c,
            np.int64(row["src0"]) // 4 + i * src_step,
            ub,
            np.int64(row["dst"]) + i * dst_step,
            length,
            dtype,
            saturate,
        )

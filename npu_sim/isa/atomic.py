"""Atomic additions to GM, and stores that leave the larger or smaller element, core after core.

The first unfinished core adds in place. The others append to a log, which is applied when their turn comes, so the
bits do not depend on which thread is faster. Rounding of an element add is to nearest even, and integers clamp in
saturation mode and wrap around otherwise, as in the vector unit; extremes are those of Max and Min there, so a NaN
stays and +0 is above -0 (all ASSUMED: no document states them). The order
between cores is free on hardware, here `ExecuteOptions.core_order` names it, core 0 first by default; each core adds in
program order.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import Data, Mode
from npu_sim.isa.instructions.max import larger_float
from npu_sim.isa.instructions.min import smaller_float
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.vector_values import fit_integer, is_arithmetic, narrow, read_element, widen, write_element
from npu_sim.reinterpret import reinterpret

EXTREMES = Mode.ATOMIC_MAX | Mode.ATOMIC_MIN
"""Bits of a row's mode that make a store leave one of two elements instead of their sum."""
SINK_LENGTH = 4
"""int64 words of a sink: 0 = logging (1) or direct (0), 1 = runs logged, 2 = bytes logged, 3 = saturate."""


@jit
def can_add(dtype: Int) -> Flag:
    """Return whether elements of ``dtype`` can be added in GM."""
    return dtype == Data.INT8 or is_arithmetic(dtype)


@jit
def add_in_place(
    gm: np.ndarray, address: Int, src: np.ndarray, src_at: Int, count: Int, dtype: Int, saturate: Int
) -> None:
    """Add ``count`` elements of ``dtype`` from uint8 ``src`` to GM at ``address`` (both byte offsets)."""
    if dtype == Data.FP32:
        target = reinterpret(gm[address : address + 4 * count], np.float32)
        source = reinterpret(src[src_at : src_at + 4 * count], np.float32)
        for i in range(count):
            target[i] += source[i]
    elif dtype == Data.INT32:
        itarget = reinterpret(gm[address : address + 4 * count], np.int32)
        isource = reinterpret(src[src_at : src_at + 4 * count], np.int32)
        for i in range(count):
            itarget[i] = fit_integer(np.int64(itarget[i]) + np.int64(isource[i]), 32, saturate)
    elif dtype == Data.INT16:
        starget = reinterpret(gm[address : address + 2 * count], np.int16)
        ssource = reinterpret(src[src_at : src_at + 2 * count], np.int16)
        for i in range(count):
            starget[i] = fit_integer(np.int64(starget[i]) + np.int64(ssource[i]), 16, saturate)
    elif dtype == Data.INT8:
        btarget = reinterpret(gm[address : address + count], np.int8)
        bsource = reinterpret(src[src_at : src_at + count], np.int8)
        for i in range(count):
            btarget[i] = fit_integer(np.int64(btarget[i]) + np.int64(bsource[i]), 8, saturate)
    elif dtype == Data.FP16 or dtype == Data.BF16:
        htarget = reinterpret(gm[address : address + 2 * count], np.uint16)
        hsource = reinterpret(src[src_at : src_at + 2 * count], np.uint16)
        for i in range(count):
            htarget[i] = narrow(widen(htarget[i], dtype) + widen(hsource[i], dtype), dtype, saturate)


@jit
def _keep_extreme(
    gm: np.ndarray, address: Int, src: np.ndarray, src_at: Int, count: Int, dtype: Int, is_max: Flag
) -> None:
    """Leave the larger or smaller of ``count`` elements in GM and of those in ``src``."""
    item = item_bytes(dtype)
    for i in range(count):
        there = read_element(gm, address + i * item, dtype)
        given = read_element(src, src_at + i * item, dtype)
        if dtype == Data.FP32 or dtype == Data.FP16 or dtype == Data.BF16:
            is_wide = dtype == Data.FP32
            x = np.uint32(there).view(np.float32) if is_wide else widen(there, dtype)
            y = np.uint32(given).view(np.float32) if is_wide else widen(given, dtype)
            kept = larger_float(x, y) if is_max else smaller_float(x, y)
            given = np.int64(np.float32(kept).view(np.uint32)) if is_wide else np.int64(narrow(kept, dtype, 0))
        else:
            given = max(there, given) if is_max else min(there, given)
        write_element(gm, address + i * item, dtype, given)


@jit
def _apply(gm: np.ndarray, address: Int, src: np.ndarray, src_at: Int, count: Int, kind: Int, saturate: Int) -> None:
    """Do what ``kind`` says (`atomic_kind`) with ``count`` elements."""
    dtype = kind & 0xFF
    extremes = np.int64(kind) & EXTREMES
    if extremes:
        _keep_extreme(gm, address, src, src_at, count, dtype, extremes == Mode.ATOMIC_MAX)
    else:
        add_in_place(gm, address, src, src_at, count, dtype, saturate)


@jit
def atomic_kind(mode: Int, dtype: Int) -> Int:
    """Return what a store does to elements of ``dtype`` in GM: add, or one of the bits of ``mode`` beside the type."""
    return np.int64(dtype) | (np.int64(mode) & EXTREMES)


@jit
def add_to_gm(
    gm: np.ndarray,
    address: Int,
    src: np.ndarray,
    src_at: Int,
    count: Int,
    kind: Int,
    sink: np.ndarray,
    log_runs: np.ndarray,
    log_bytes: np.ndarray,
) -> None:
    """Add (`atomic_kind`) directly or append to the log, as the sink says; the log has room (see `atomic_demand`)."""
    if sink[0] == 0:
        _apply(gm, address, src, src_at, count, kind, sink[3])
        return
    run = sink[1]
    at = sink[2]
    length = count * item_bytes(kind & 0xFF)
    log_runs[run, 0] = address
    log_runs[run, 1] = at
    log_runs[run, 2] = count
    log_runs[run, 3] = kind
    copy_bytes(log_bytes, at, src, src_at, length)
    sink[1] = run + 1
    sink[2] = at + (length + 15) // 16 * 16


@jit
def apply_log(gm: np.ndarray, log_runs: np.ndarray, log_bytes: np.ndarray, sink: np.ndarray) -> None:
    """Apply and empty a log."""
    for i in range(sink[1]):
        _apply(gm, log_runs[i, 0], log_bytes, log_runs[i, 1], log_runs[i, 2], log_runs[i, 3], sink[3])
    sink[1] = 0
    sink[2] = 0

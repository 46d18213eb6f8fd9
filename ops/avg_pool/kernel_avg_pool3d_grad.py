"""Emitter of AvgPool3DGrad: each gradient pixel's channels are scaled and added to every pixel under its window.

Phases: 0 clear the sums, 1 scatter, 2 (16-bit tensors with overlapping windows) cast the sums. Tensors are
[pixel][lane]. In phase 1 a core takes its tasks, one gradient pixel and one piece of its lanes each, a few at a time:
all loads, all products, all stores; every task of a few has a UB line of its own, and the few share their flags.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.emit import (
    emit_cast,
    emit_data_copy_pad,
    emit_duplicate,
    emit_muls,
    emit_pipe_barrier,
    emit_set_atomic,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import core_share, free_flag
from ops.vector.kernel_frame import load_bytes, store_bytes

CLEAR, LOAD, SCALE, STORE, SYNC, CAST = range(6)
SITES = {CLEAR: "CLEAR", LOAD: "LOAD", SCALE: "SCALE", STORE: "STORE", SYNC: "SYNC", CAST: "CAST"}
STAGE, AT, END, LINE, ROW, COLUMN, PIECE = range(2, 9)
START, LOADING, SCALING, STORING, DONE = range(5)
STEP_ROWS = 16


@jit
def window(p, oh, ow):
    """Return the input pixels under a window, (first row, end row, first column, end column), and its divisor."""
    top, left = oh * p["sh"] - p["ph"], ow * p["sw"] - p["pw"]
    bottom, right = min(top + p["kh"], p["h"] + p["ph"]), min(left + p["kw"], p["w"] + p["pw"])
    divisor = (bottom - top) * (right - left)
    h0, h1 = max(top, 0), min(bottom, p["h"])
    w0, w1 = max(left, 0), min(right, p["w"])
    if h1 < h0:
        h1 = h0
    if w1 < w0:
        w1 = w0
    if p["divisor"] != 0:
        divisor = p["divisor"]
    elif p["include_pad"] == 0:
        divisor = (h1 - h0) * (w1 - w0)
    return np.int64(h0), np.int64(h1), np.int64(w0), np.int64(w1), np.int64(divisor)


@jit
def factor_of(divisor):
    """Return 1 / divisor in float32, as the scalar unit computes it; 0 for a window without a divisor."""
    return np.float32(1.0) / np.float32(divisor) if divisor != 0 else np.float32(0.0)


@jit
def task_range(p, core):
    """Return the tasks [first, end) of a core: equal shares, the last core takes the rest."""
    share = p["tasks"] // p["cores"]
    first = core * share
    return first, p["tasks"] if core == p["cores"] - 1 else first + share


@jit
def _lanes(p, task):
    """Return the lanes of a task."""
    return np.int64(p["tail"] if task % p["pieces"] == p["pieces"] - 1 else p["count"])


@jit
def _clear(rows, p, s):
    """Phase 0: zeros from one UB buffer to this core's part of the sums."""
    n = 0
    if s[STAGE] == START:
        first, end = core_share(p["h"] * p["w"] * p["lanes"], p["cores"], s[0])
        s[AT], s[END] = first * p["sum_item"], end * p["sum_item"]
        s[STAGE] = STORING if s[AT] < s[END] else DONE
        if s[STAGE] == STORING:
            length = min(p["clear_bytes"], s[END] - s[AT])
            n = emit_duplicate(rows, n, 0, Data.FP32, np.int64((length + 31) // 32 * 8), 0, CLEAR, -1)
            n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, CLEAR, -1)
            n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, CLEAR, -1)
    while s[STAGE] == STORING and n + STEP_ROWS <= len(rows):
        length = np.int64(min(p["clear_bytes"], s[END] - s[AT]))
        n = store_bytes(rows, n, 1, p["sum"] + s[AT], 0, length, p["sum_data"], p["sum_tensor"], CLEAR, -1)
        s[AT] += length
        if s[AT] == s[END]:
            s[STAGE] = DONE
    return n


@jit
def _load(rows, n, p, s):
    """Load one task's lanes; the first of a few waits until the lines are free, the last says they are full."""
    task = s[AT] + s[LINE]
    if s[LINE] == 0:
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, 0, LOAD, s[AT])
    pixel, piece = task // p["pieces"], task % p["pieces"]
    source = p["src"] + (pixel * p["lanes"] + piece * p["count"]) * p["item"]
    at = s[LINE] * p["pitch"] * p["item"]
    length = np.int64(_lanes(p, task) * p["item"])
    n = load_bytes(rows, n, 1, at, source, length, p["data"], p["src_tensor"], LOAD, task)
    s[LINE] += 1
    if s[LINE] == min(p["group"], s[END] - s[AT]):
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, 0, LOAD, s[AT])
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, 0, SCALE, s[AT])
        n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, 0, SCALE, s[AT])
        s[LINE] = 0
        s[STAGE] = SCALING
    return n


@jit
def _scale(rows, n, p, s):
    """Multiply one task's lanes by the reciprocal divisor in float32."""
    task = s[AT] + s[LINE]
    pixel = task // p["pieces"]
    _, _, _, _, divisor = window(p, pixel // p["ow"], pixel % p["ow"])
    bits = np.int64(np.float32(factor_of(divisor)).view(np.int32))
    lanes = _lanes(p, task)
    line = s[LINE] * p["pitch"]
    source, calc, out = line * p["item"], p["calc"] + line * 4, p["out"] + line * p["item"]
    if p["item"] == 2:
        n = emit_cast(rows, n, calc, source, p["data"], Data.FP32, RoundMode.NONE, lanes, SCALE, task)
        n = emit_pipe_barrier(rows, n, Pipe.V, SCALE, task)
        n = emit_muls(rows, n, calc, calc, Data.FP32, lanes, bits, SCALE, task)
        if p["overlap"] == 0:
            n = emit_pipe_barrier(rows, n, Pipe.V, SCALE, task)
            n = emit_cast(rows, n, out, calc, Data.FP32, p["data"], RoundMode.RINT, lanes, SCALE, task)
    else:
        n = emit_muls(rows, n, calc, source, Data.FP32, lanes, bits, SCALE, task)
    s[LINE] += 1
    if s[LINE] == min(p["group"], s[END] - s[AT]):
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, 0, SCALE, s[AT])
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, SCALE, s[AT])
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, STORE, s[AT])
        s[LINE] = 0
        s[ROW] = -1
        s[STAGE] = STORING
    return n


@jit
def _store(rows, n, p, s):
    """Store one task's lanes to the pixels under its window, as many as there is room for."""
    task = s[AT] + s[LINE]
    pixel, piece = task // p["pieces"], task % p["pieces"]
    h0, h1, w0, w1, _ = window(p, pixel // p["ow"], pixel % p["ow"])
    if s[ROW] < 0:
        s[ROW] = h0 if w0 < w1 else h1
        s[COLUMN] = w0
    line = s[LINE] * p["pitch"]
    source = p["out"] + line * p["item"] if p["item"] == 2 and p["overlap"] == 0 else p["calc"] + line * 4
    length = np.int64(_lanes(p, task) * p["sum_item"])
    while s[ROW] < h1 and n + STEP_ROWS <= len(rows):
        target = p["sum"] + ((s[ROW] * p["w"] + s[COLUMN]) * p["lanes"] + piece * p["count"]) * p["sum_item"]
        n = emit_data_copy_pad(
            rows, n, Space.GM, target, Space.UB, source, 1, length, 0, 0, 0, 0, 0, 0, p["sum_data"], p["sum_tensor"],
            STORE, task,
        )  # fmt: skip
        s[COLUMN] += 1
        if s[COLUMN] == w1:
            s[COLUMN] = w0
            s[ROW] += 1
    if s[ROW] < h1:
        return n
    if p["deterministic"] != 0:
        n = emit_pipe_barrier(rows, n, Pipe.MTE3, STORE, task)
    s[LINE] += 1
    s[ROW] = -1
    few = min(p["group"], s[END] - s[AT])
    if s[LINE] == few:
        n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, 0, STORE, s[AT])
        s[AT] += few
        s[LINE] = 0
        s[STAGE] = LOADING
    return n


@jit
def _scatter(rows, p, s):
    """Phase 1: this core's tasks."""
    n = 0
    if s[STAGE] == START:
        s[AT], s[END] = task_range(p, s[0])
        s[STAGE] = LOADING if s[AT] < s[END] else DONE
        if s[STAGE] == LOADING:
            n = _free_buffers(rows, n, 0)
            if p["overlap"] != 0:
                n = emit_set_atomic(rows, n, Data.FP32, STORE, -1)
    while s[STAGE] != DONE and n + STEP_ROWS <= len(rows):
        if s[STAGE] == LOADING and s[AT] >= s[END]:
            if p["overlap"] != 0:
                n = emit_set_atomic(rows, n, Data.NONE, STORE, -1)
            n = _free_buffers(rows, n, 1)
            s[STAGE] = DONE
        elif s[STAGE] == LOADING:
            n = _load(rows, n, p, s)
        elif s[STAGE] == SCALING:
            n = _scale(rows, n, p, s)
        else:
            n = _store(rows, n, p, s)
    return n


@jit
def _free_buffers(rows, n, drain):
    """Set (``drain`` 0) or wait for (1) the flags that say a buffer is free."""
    n = free_flag(rows, n, Pipe.V, Pipe.MTE2, 0, drain, SYNC)
    return free_flag(rows, n, Pipe.MTE3, Pipe.V, 0, drain, SYNC)


@jit
def _cast_piece(rows, n, p, at, count):
    """Round some sums to the tensors' type."""
    target = p["cast_out"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, 0, CAST, at)
    n = load_bytes(rows, n, 1, 0, p["sum"] + at * 4, np.int64(count * 4), Data.FP32, p["sum_tensor"], CAST, at)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, 0, CAST, at)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, 0, CAST, at)
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, 0, CAST, at)
    n = emit_cast(rows, n, target, 0, Data.FP32, p["data"], RoundMode.RINT, np.int64(count), CAST, at)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, 0, CAST, at)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, CAST, at)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, CAST, at)
    n = store_bytes(
        rows, n, 1, p["dst"] + at * p["item"], target, np.int64(count * p["item"]), p["data"], p["dst_tensor"], CAST, at
    )  # fmt: skip
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, 0, CAST, at)


@jit
def _cast(rows, p, s):
    """Phase 2: this core's part of the sums, in equal pieces."""
    n = 0
    if s[STAGE] == START:
        s[AT], s[END] = core_share(p["h"] * p["w"] * p["lanes"], p["cores"], s[0])
        s[STAGE] = STORING if s[AT] < s[END] else DONE
        if s[STAGE] == STORING:
            count = s[END] - s[AT]
            parts = (count + p["cast_elems"] - 1) // p["cast_elems"]
            s[PIECE] = (count + parts - 1) // parts
            n = _free_buffers(rows, n, 0)
    while s[STAGE] == STORING and n + STEP_ROWS <= len(rows):
        if s[AT] == s[END]:
            n = _free_buffers(rows, n, 1)
            s[STAGE] = DONE
        else:
            count = min(s[PIECE], s[END] - s[AT])
            n = _cast_piece(rows, n, p, s[AT], count)
            s[AT] += count
    return n


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]`` in phase ``state[1]``.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `avg_pool3d_grad.AVG_POOL_PARAMS`[1]
        Extents in elements, places in bytes.
    state : int64[STATE_LENGTH]
        2 stage, 3 next task or element, 4 end, 5 task of the few, 6 and 7 next pixel of its window, 8 cast piece.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    if state[1] == 0:
        return _clear(rows, p, state)
    if state[1] == 1:
        return _scatter(rows, p, state)
    return _cast(rows, p, state)

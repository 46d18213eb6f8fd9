"""Emitters of TransData for weights: NCHW and NCDHW to FRACTAL_Z and FRACTAL_Z_3D with merged groups, and back.

A task is 16 rows (output channels) of a merged group and a chunk of its input channels. A *line* holds the plain data
of one row: for every small group a window with its channels of the chunk, at a whole block. Pass 1 turns 16 lines into
*element blocks*, 16 lanes (rows) of one element each; pass 2 gathers the blocks of C0 channels into a fractal. The way
back runs the same two passes the other way round. Fractals go through a ring of two halves.

Where the instruction has no 32-bit form, an element is two half words: pass 1 gives two blocks to an element, and pass
2 picks the parts of 8 channels in turn.

Sources: asc-devkit ``docs/zh/api/SIMD-API``, TransDataTo5HD page; ops-nn ``conv3d_backprop_filter_v2/tests/assets/
golden.py`` (merged groups). ASSUMED: chunks and task order; the library's kernel is not published in full.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_duplicate,
    emit_pipe_barrier,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, core_share, free_flag
from ops.vector.kernel_frame import NO_END, load_rows, store_gathered_block, store_rows
from ops.vector.kernel_trans_data_lines import (
    C1,
    CHANNEL0,
    CHANNEL_END,
    CLEAR,
    DEPTH,
    EPILOGUE,
    GATHER,
    GROUP,
    HALF,
    LINE,
    LINES,
    LOAD,
    MEMBER0,
    MEMBER_END,
    PROLOGUE,
    RANGE_END,
    ROW0,
    STAGE,
    STEP,
    STEP_COUNT,
    STORE,
    TAIL,
    TAP,
    TAP0,
    TAP_END,
    TASK,
    TASK_END,
    batch_length,
    blocks_to_lines,
    first_batch,
    fractal_address,
    gather,
    lines_to_blocks,
    move_lines,
    next_batch,
    scatter,
    set_lines,
)

STEP_ROWS = 320
"""Rows that one step (a batch of fractals, 16 lines, the end of a core) takes at most."""

START, NEXT_TASK, NEXT_STEP, LINES_IN, FRACTALS, LINES_OUT, FINISH, DONE = range(8)


@jit
def _fractals_out(rows, n, p, s):
    """Gather a batch of fractals and store them."""
    tile, half, count = s[TASK], s[HALF], batch_length(p, s)
    ring = p["ring_at"] + half * p["ring_bytes"]
    fractal = 16 * p["c0"] * p["item"]
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, half, GATHER, tile)
    for i in range(count):
        tap = s[DEPTH] * p["khw"] + s[TAP] + i
        n = gather(rows, n, p, s, ring + i * fractal, s[C1] * p["c0"], tap)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, half, GATHER, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, half, STORE, tile)
    target = fractal_address(p, s, p["dst"], s[DEPTH], s[C1], s[TAP])
    n = store_rows(
        rows, n, target, ring, count, fractal, p["cout_rows"] * p["c0"] * p["item"], fractal, NO_END, 0, p["data"],
        p["dst_tensor"], STORE, tile,
    )  # fmt: skip
    n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)
    s[STAGE] = FRACTALS if next_batch(p, s, count) else NEXT_STEP
    return n


@jit
def _fractals_in(rows, n, p, s):
    """Load a batch of fractals and scatter their columns to element blocks."""
    tile, half, count = s[TASK], s[HALF], batch_length(p, s)
    ring = p["ring_at"] + half * p["ring_bytes"]
    fractal = 16 * p["c0"] * p["item"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, tile)
    source = fractal_address(p, s, p["src"], s[DEPTH], s[C1], s[TAP])
    n = load_rows(
        rows, n, ring, source, count, fractal, fractal, p["cout_rows"] * p["c0"] * p["item"], 0, p["data"],
        p["src_tensor"], LOAD, tile,
    )  # fmt: skip
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, half, LOAD, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, half, GATHER, tile)
    for i in range(count):
        tap = s[DEPTH] * p["khw"] + s[TAP] + i
        n = scatter(rows, n, p, s, ring + i * fractal, s[C1] * p["c0"], tap)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, half, GATHER, tile)
    s[STAGE] = FRACTALS if next_batch(p, s, count) else LINES_OUT
    return n


@jit
def _lines_in(rows, n, p, s):
    """Clear and load the lines of the chunk, and turn them into element blocks."""
    tile = s[TASK]
    set_lines(p, s)
    n = emit_duplicate(rows, n, p["lines_at"], Data.FP32, 16 * s[LINE] * p["item"] // 4, 0, CLEAR, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, 0, CLEAR, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, 0, LOAD, tile)
    n = move_lines(rows, n, p, s, 0)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, 0, LOAD, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, 0, LINES, tile)
    n = lines_to_blocks(rows, n, p, s)
    n = emit_pipe_barrier(rows, n, Pipe.V, LINES, tile)
    first_batch(p, s)
    s[STAGE] = FRACTALS
    return n


@jit
def _lines_out(rows, n, p, s):
    """Turn element blocks into lines and store the rows."""
    tile = s[TASK]
    n = emit_pipe_barrier(rows, n, Pipe.V, LINES, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, 0, LINES, tile)
    n = blocks_to_lines(rows, n, p, s)
    n = emit_pipe_barrier(rows, n, Pipe.V, LINES, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, LINES, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, STORE, tile)
    n = move_lines(rows, n, p, s, 1)
    n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, 0, STORE, tile)
    s[STAGE] = NEXT_STEP
    return n


@jit
def _set_chunk(p, s, chunk):
    """Fill the state with chunk number ``chunk`` of a row block: some channel blocks, or some taps of one."""
    channels, taps = chunk // p["tap_chunks"], chunk % p["tap_chunks"]
    all_channels = p["mag"] * p["cin_g"]
    s[MEMBER0] = 0
    s[MEMBER_END] = p["mag"]
    s[CHANNEL0] = channels * p["chunk_channels"]
    s[CHANNEL_END] = min(s[CHANNEL0] + p["chunk_channels"], all_channels)
    s[TAP0] = taps * p["chunk_taps"]
    s[TAP_END] = min(s[TAP0] + p["chunk_taps"], p["taps"])
    if p["whole_blocks"] and p["tap_chunks"] > 1 and s[TAP_END] - s[TAP0] < p["chunk_taps"]:
        # the last taps once more with some before them, so that every piece is whole blocks
        s[TAP0] = s[TAP_END] - p["chunk_taps"]


@jit
def _set_own_chunk(p, s, step):
    """Fill the state with step ``step`` of a row block that is stored small group by small group, last channels first.

    Every piece of a row but its last is then whole blocks, and the last one spills only into what is stored later.
    """
    per_member = p["own_chunks"]
    member = s[ROW0] // p["cout_g"] + step // per_member
    chunk = per_member - 1 - step % per_member
    s[MEMBER0] = member
    s[MEMBER_END] = member + 1
    s[CHANNEL0] = member * p["cin_g"] + chunk * p["chunk_channels"]
    s[CHANNEL_END] = min(s[CHANNEL0] + p["chunk_channels"], (member + 1) * p["cin_g"])
    s[TAP0] = 0
    s[TAP_END] = p["taps"]


@jit
def _rows_before(p, row_block):
    """Return how many rows of the plain tensor lie before row block number ``row_block``."""
    group, block = row_block // p["row_blocks"], row_block % p["row_blocks"]
    rows = group * p["mag"] * p["cout_g"] + min(16 * block, p["mag"] * p["cout_g"])
    return min(rows, p["groups"] * p["cout_g"])


@jit
def _start(p, s):
    """Find the core's tasks and the end of what it may write; return whether there is anything to do."""
    first, end = core_share(p["units"], p["cores"], s[0])
    s[TASK] = first * p["unit"] - 1
    s[TASK_END] = p["tasks"] if end == p["units"] else end * p["unit"]
    s[RANGE_END] = NO_END
    if p["tails"]:
        before = _rows_before(p, s[TASK_END])
        if before < p["groups"] * p["cout_g"] and s[TASK] + 1 < s[TASK_END]:
            s[RANGE_END] = p["dst"] + before * p["cin_g"] * p["taps"] * p["item"]
    s[HALF] = 0
    return s[TASK] + 1 < s[TASK_END]


@jit
def _next_task(p, s):
    """Step to the next task and its first chunk; return False behind the last."""
    s[TASK] += 1
    if s[TASK] == s[TASK_END]:
        return False
    row_block = s[TASK] // p["task_chunks"]
    s[GROUP] = row_block // p["row_blocks"]
    s[ROW0] = row_block % p["row_blocks"] * 16
    s[STEP] = -1
    s[STEP_COUNT] = p["steps"]
    if p["own_chunks"]:
        first = s[ROW0] // p["cout_g"]
        last = min((min(s[ROW0] + 16, p["mag"] * p["cout_g"]) - 1) // p["cout_g"], p["mag"] - 1)
        s[STEP_COUNT] = (last - first + 1) * p["own_chunks"]
    return True


@jit
def _next_step(p, s):
    """Step to the next chunk of the task; return False behind the last."""
    s[STEP] += 1
    if s[STEP] == s[STEP_COUNT]:
        return False
    if p["own_chunks"]:
        _set_own_chunk(p, s, s[STEP])
    else:
        _set_chunk(p, s, s[TASK] % p["task_chunks"] + s[STEP])
    return True


@jit
def emit_to_fractal(rows, params, state):
    """Write the next rows of core ``state[0]``: its tasks from the plain to the fractal tensor.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least `STEP_ROWS` rows.
    params : `trans_data_plan.WEIGHT_PARAMS`[1]
        Shapes, tiling and addresses.
    state : int64[STATE_LENGTH]
        See the constants of this module.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        s[STAGE] = DONE
        if _start(p, s):
            s[STAGE] = NEXT_TASK
            for half in range(2):
                n = free_flag(rows, n, Pipe.MTE3, Pipe.V, half, 0, PROLOGUE)
            # what a channel that does not exist is gathered from
            n = emit_duplicate(rows, n, p["spare_at"], Data.FP32, 16, 0, CLEAR, -1)
    room = len(rows) - STEP_ROWS
    while s[STAGE] < FINISH and n <= room:
        if s[STAGE] == NEXT_TASK:
            s[STAGE] = NEXT_STEP if _next_task(p, s) else FINISH
        elif s[STAGE] == NEXT_STEP:
            s[STAGE] = LINES_IN if _next_step(p, s) else NEXT_TASK
        elif s[STAGE] == LINES_IN:
            n = _lines_in(rows, n, p, s)
        else:
            n = _fractals_out(rows, n, p, s)
    if s[STAGE] == FINISH and n <= room:
        for half in range(2):
            n = free_flag(rows, n, Pipe.MTE3, Pipe.V, half, 1, EPILOGUE)
        s[STAGE] = DONE
    return n


@jit
def _has_rows(p, s):
    """Return whether the task's first row exists; the blocks behind the last group are padding."""
    member = s[ROW0] // p["cout_g"]
    return member < p["mag"] and s[GROUP] * p["mag"] + member < p["groups"]


@jit
def _begin_scatter(rows, n, p, s):
    """Prepare the element blocks of a chunk: pass 1 also turns the gaps between windows."""
    if set_lines(p, s):
        n = emit_duplicate(rows, n, p["blocks_at"], Data.FP32, 16 * s[LINE] * p["item"] // 4, 0, CLEAR, s[TASK])
        n = emit_pipe_barrier(rows, n, Pipe.V, GATHER, s[TASK])
    first_batch(p, s)
    s[STAGE] = FRACTALS
    return n


@jit
def _place_of(p, element):
    """Return where element number ``element`` of the plain tensor lies in the fractals: its row of C0, and its lane."""
    tap = element % p["taps"]
    channel = element // p["taps"] % p["cin_g"]
    cout = element // (p["taps"] * p["cin_g"])
    group = cout // p["cout_g"]
    member = group % p["mag"]
    channel += member * p["cin_g"]
    row = member * p["cout_g"] + cout % p["cout_g"]
    depth = (group // p["mag"]) * p["kd"] + tap // p["khw"]
    column = (depth * p["cin1_g"] + channel // p["c0"]) * p["khw"] + tap % p["khw"]
    return (column * p["cout_rows"] + row) * p["c0"] * p["item"], channel % p["c0"] * p["item"]


@jit
def _last_block(rows, n, p, s):
    """Fetch the last 32 bytes of the core's range again and store them behind all other stores."""
    count = BLOCK // p["item"]
    first = (s[RANGE_END] - p["dst"]) // p["item"] - count
    pieces, lanes = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        place, lanes[i] = _place_of(p, first + i)
        pieces[i] = p["src"] + place
    return store_gathered_block(
        rows, n, s[RANGE_END] - BLOCK, pieces, lanes, p["c0"] * p["item"], p["ring_at"], p["data"], p["src_tensor"],
        p["dst_tensor"], TAIL,
    )  # fmt: skip


@jit
def emit_from_fractal(rows, params, state):
    """Write the next rows of core ``state[0]``: its tasks from the fractal to the plain tensor.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least `STEP_ROWS` rows.
    params : `trans_data_plan.WEIGHT_PARAMS`[1]
        Shapes, tiling and addresses.
    state : int64[STATE_LENGTH]
        See the constants of this module.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        s[STAGE] = DONE
        if _start(p, s):
            s[STAGE] = NEXT_TASK
            for half in range(2):
                n = free_flag(rows, n, Pipe.V, Pipe.MTE2, half, 0, PROLOGUE)
            n = free_flag(rows, n, Pipe.MTE3, Pipe.V, 0, 0, PROLOGUE)
    room = len(rows) - STEP_ROWS
    while s[STAGE] < FINISH and n <= room:
        if s[STAGE] == NEXT_TASK:
            if not _next_task(p, s):
                s[STAGE] = FINISH
            elif _has_rows(p, s):
                s[STAGE] = NEXT_STEP
        elif s[STAGE] == NEXT_STEP:
            s[STAGE] = NEXT_TASK
            if _next_step(p, s):
                n = _begin_scatter(rows, n, p, s)
        elif s[STAGE] == FRACTALS:
            n = _fractals_in(rows, n, p, s)
        else:
            n = _lines_out(rows, n, p, s)
    if s[STAGE] == FINISH and n <= room:
        for half in range(2):
            n = free_flag(rows, n, Pipe.V, Pipe.MTE2, half, 1, EPILOGUE)
        n = free_flag(rows, n, Pipe.MTE3, Pipe.V, 0, 1, EPILOGUE)
        if s[RANGE_END] != NO_END:
            n = _last_block(rows, n, p, s)
        s[STAGE] = DONE
    return n

"""Kernels of TransData for feature maps: NCHW and NCDHW to NC1HWC0 and NDC1HWC0, and back.

Unit of work: a tile of pixels of one plane (n, d, c1). There is one input and one output buffer in UB (IN, OUT), as in
the library's kernel: a tile is loaded while the one before is stored, and not before that is turned. A buffer holds
[C0 channel rows][pitch pixels] on the plain side and [pitch pixels][C0] on the blocked side; TransDataTo5HD turns one
into the other. On the way back, split cores have one tile at a time, of as many planes as there is room for: the core
time of the six such kernels that msinsight profiled on 910B2 is that of their pipes one after the other and 7,000 to
10,000 cycles.

Sources: asc-devkit ``docs/zh/api/SIMD-API``, TransDataTo5HD page (address lists of NCHW to NC1HWC0), DataCopy and
DataCopyPad pages. CANN 8.1 ``tbe/impl/dynamic/trans_data_positive_source_ntc.py`` and
``trans_data_negative_target_ntc.py`` (buffers). ASSUMED: tile sizes and task order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_duplicate,
    emit_pipe_barrier,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import (
    Queue,
    alloc,
    close_queue,
    close_queues,
    deque,
    enque,
    free,
    open_queue,
    open_queues,
)
from ops.vector.kernel_frame import (
    IN,
    NO_END,
    OUT,
    Places,
    load_bytes,
    load_rows,
    store_bytes,
    store_gathered_block,
    store_rows,
    turn_places,
    unit_share,
)

PROLOGUE, CLEAR, LOAD, TRANSPOSE, STORE, TAIL, EPILOGUE = range(7)
SITES = {
    PROLOGUE: "PROLOGUE", CLEAR: "CLEAR", LOAD: "LOAD", TRANSPOSE: "TRANSPOSE", STORE: "STORE", TAIL: "TAIL",
    EPILOGUE: "EPILOGUE",
}  # fmt: skip
STEP_ROWS = 96
"""Rows that one tile, or the end of a core, takes at most, where every plane lies in one piece."""
TILE = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE3.value)
"""What is between the load of a tile and its store, where there is one tile at a time."""
BUFFER = 0
"""Event of the only buffer of IN and of OUT."""
CLEARED = 1
"""V to MTE2 event that says IN is cleared and may be loaded; `BUFFER` says that it is free."""


@jit
def _to_pixels(rows, n, p, dst, src, pitch, tile):
    """Channel rows of ``pitch`` pixels at ``src`` to [pitch][C0] at ``dst``."""
    row = pitch * p.item
    channels, pixels = Places(src, 16, row, 0, 1), Places(dst, 16, 32, 0, 16)
    if p.item == 2:
        return turn_places(rows, n, Data.FP16, pitch // 16, pixels, channels, TRANSPOSE, tile)
    if p.c0 == 8:
        channels, pixels = Places(src, 8, row, 32, 2), Places(dst, 2, 256, 32, 16)
        return turn_places(rows, n, Data.FP32, pitch // 16, pixels, channels, TRANSPOSE, tile)
    if not p.half_words:
        return turn_places(rows, n, Data.FP32, pitch // 8, pixels, channels, TRANSPOSE, tile)
    # Half words: to lanes of channels, each part to lanes of pixels, then back with the parts side by side. Each of the
    # three reads what the one before writes.
    n = turn_places(rows, n, Data.FP16, pitch // 8, pixels, channels, TRANSPOSE, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    for part in range(2):
        source, target = Places(dst + 32 * part, 16, 64, 0, 32), Places(src + 32 * part, 16, 64, 0, 32)
        n = turn_places(rows, n, Data.FP16, pitch // 16, target, source, TRANSPOSE, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    for half in range(2):
        source, target = Places(src + 512 * half, 16, 32, 0, 32), Places(dst + 32 * half, 16, 64, 0, 32)
        n = turn_places(rows, n, Data.FP16, pitch // 16, target, source, TRANSPOSE, tile)
    return n


@jit
def _to_rows(rows, n, p, dst, src, pitch, tile):
    """[pitch][C0] at ``src`` to channel rows of ``pitch`` pixels at ``dst``: the reverse of `_to_pixels`."""
    row = pitch * p.item
    pixels, channels = Places(src, 16, 32, 0, 16), Places(dst, 16, row, 0, 1)
    if p.item == 2:
        return turn_places(rows, n, Data.FP16, pitch // 16, channels, pixels, TRANSPOSE, tile)
    if p.c0 == 8:
        return turn_places(rows, n, Data.FP32, pitch // 16, Places(dst, 2, 32, row, 2), pixels, TRANSPOSE, tile)
    if not p.half_words:
        for half in range(2):
            source, target = Places(src + 32 * half, 16, 64, 0, 32), Places(dst + 8 * half * row, 2, 32, row, 2)
            n = turn_places(rows, n, Data.FP32, pitch // 16, target, source, TRANSPOSE, tile)
        return n
    for half in range(2):
        source, target = Places(src + 32 * half, 16, 64, 0, 32), Places(dst + 512 * half, 16, 32, 0, 32)
        n = turn_places(rows, n, Data.FP16, pitch // 16, target, source, TRANSPOSE, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    for part in range(2):
        source, target = Places(dst + 32 * part, 16, 64, 0, 32), Places(src + 32 * part, 16, 64, 0, 32)
        n = turn_places(rows, n, Data.FP16, pitch // 16, target, source, TRANSPOSE, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    return turn_places(rows, n, Data.FP16, pitch // 8, channels, pixels, TRANSPOSE, tile)


class _Tile(NamedTuple):
    """A tile of pixels: its task, its plane, its first pixel there, and its pixels."""

    task: int
    batch: int
    depth: int
    c1: int
    first: int
    length: int


@jit
def _tile_of(p, task, first):
    """Return the tile of a task that begins with pixel ``first`` of its plane."""
    plane = task // p.tiles
    outer, c1 = plane // p.c1, plane % p.c1
    length = min(p.tile_pixels, p.pixels - first)
    return _Tile(task, outer // p.planes_d, outer % p.planes_d, c1, first, length)


@jit
def _channels(p, t):
    """Return how many channels of the tile's block exist."""
    return min(p.c0, p.c - t.c1 * p.c0)


@jit
def _plain_offset(p, t):
    """Return where a tile begins in the plain tensor, in bytes; planes that merge the depths hold all their pixels."""
    plane = (t.batch * p.c + t.c1 * p.c0) * p.planes_d + t.depth
    return (plane * p.pixels + t.first) * p.item


@jit
def _load_channels(rows, n, p, t, count, pitch):
    """Load the channel rows of a tile; rows that begin inside a block each by a command of its own.

    The library's copies count what lies between rows in blocks.
    """
    step = p.planes_d * p.pixels * p.item
    source, length = p.src + _plain_offset(p, t), t.length * p.item
    if step % BLOCK == 0:
        return load_rows(
            rows, n, ub=p.load_at, gm=source, count=count, length=length, ub_step=pitch * p.item, gm_step=step,
            exact=p.exact, dtype=p.data, tensor=p.src_tensor, site=LOAD, tile=t.task,
        )  # fmt: skip
    for i in range(count):
        place = p.load_at + i * pitch * p.item
        n = load_bytes(rows, n, p.exact, place, source + i * step, length, p.data, p.src_tensor, LOAD, t.task)
    return n


@jit
def _forward_tile(rows, n, p, t):
    """Load the channel rows of a tile, transpose them and store [pixels][C0]."""
    task, valid = t.task, _channels(p, t)
    pitch = ceil_div(t.length, 16) * 16
    # TransDataTo5HD reads lanes behind the pixels and rows of channels that do not exist
    clears = valid < p.c0 or ceil_div(t.length * p.item, BLOCK) * BLOCK < pitch * p.item

    n = alloc(rows, n, IN, BUFFER, LOAD, task)
    if clears:
        # V clears behind its own last use of the buffer, without alloc; MTE2 then waits for the zeros too
        n = emit_duplicate(
            rows, n, p.load_at, Data.FP32, p.c0 * pitch * p.item // 4, value_bits=0, site=CLEAR, tile=task
        )
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, CLEARED, CLEAR, task)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, CLEARED, LOAD, task)
    n = _load_channels(rows, n, p, t, valid, pitch)
    n = enque(rows, n, IN, BUFFER, LOAD, task)

    n = deque(rows, n, IN, BUFFER, TRANSPOSE, task)
    n = alloc(rows, n, OUT, BUFFER, TRANSPOSE, task)
    if clears:
        # V also reads the zeros around the loads, which V wrote; CLEARED and IN order that too, by way of MTE2
        n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, task)
    n = _to_pixels(rows, n, p, p.store_at, p.load_at, pitch, task)
    n = free(rows, n, IN, BUFFER, TRANSPOSE, task)
    n = enque(rows, n, OUT, BUFFER, TRANSPOSE, task)

    n = deque(rows, n, OUT, BUFFER, STORE, task)
    # pixels of C0 channels are whole blocks, so that no store needs to be exact
    plane = (t.batch * p.d + t.depth) * p.c1 + t.c1
    target = p.dst + (plane * p.pixels + t.first) * p.c0 * p.item
    n = store_bytes(rows, n, 0, target, p.store_at, t.length * p.c0 * p.item, p.data, p.dst_tensor, STORE, task)
    return free(rows, n, OUT, BUFFER, STORE, task)


@jit
def _load_pixels(rows, n, p, t, ub):
    """Load the pixels of a tile of the blocked tensor; where a plane merges depths, each is a piece of its own."""
    pixel = p.c0 * p.item
    done = 0
    while done < t.length:
        depth, inside = t.depth + (t.first + done) // p.segment, (t.first + done) % p.segment
        run, count = min(p.segment - inside, t.length - done), 1
        if run == p.segment:
            count = (t.length - done) // p.segment
        source = p.src + (((t.batch * p.d + depth) * p.c1 + t.c1) * p.segment + inside) * pixel
        n = load_rows(
            rows, n, ub=ub + done * pixel, gm=source, count=count, length=run * pixel, ub_step=run * pixel,
            gm_step=p.c1 * p.segment * pixel, exact=0, dtype=p.data, tensor=p.src_tensor, site=LOAD, tile=t.task,
        )  # fmt: skip
        done += run * count
    return n


@jit
def _load_planes(rows, n, p, t, planes, pitch):
    """Load whole planes of neighbouring blocks of channels, each at ``pitch`` pixels."""
    plane = p.pixels * p.c0 * p.item
    source = p.src + ((t.batch * p.d + t.depth) * p.c1 + t.c1) * plane
    return load_rows(
        rows, n, ub=p.load_at, gm=source, count=planes, length=plane, ub_step=pitch * p.c0 * p.item, gm_step=plane,
        exact=0, dtype=p.data, tensor=p.src_tensor, site=LOAD, tile=t.task,
    )  # fmt: skip


@jit
def _backward_tile(rows, n, p, t, planes, range_end):
    """Load [pixels][C0], transpose it and store the rows of the channels that exist, of one or more whole planes."""
    task, pixel = t.task, p.c0 * p.item
    pitch = ceil_div(t.length, 16) * 16

    n = alloc(rows, n, TILE if p.serial else IN, BUFFER, LOAD, task)
    n = _load_planes(rows, n, p, t, planes, pitch) if planes > 1 else _load_pixels(rows, n, p, t, p.load_at)
    n = enque(rows, n, IN, BUFFER, LOAD, task)

    n = deque(rows, n, IN, BUFFER, TRANSPOSE, task)
    if not p.serial:
        n = alloc(rows, n, OUT, BUFFER, TRANSPOSE, task)
    if t.length < pitch:
        # TransDataTo5HD reads whole repeats of 16 pixels
        words = (pitch - t.length) * pixel // 4
        for i in range(planes):
            behind = p.load_at + (i * pitch + t.length) * pixel
            n = emit_duplicate(rows, n, behind, Data.FP32, words, value_bits=0, site=CLEAR, tile=task)
        n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, task)
    for i in range(planes):
        n = _to_rows(rows, n, p, p.store_at + i * pitch * pixel, p.load_at + i * pitch * pixel, pitch, task)
    if not p.serial:
        n = free(rows, n, IN, BUFFER, TRANSPOSE, task)
    n = enque(rows, n, OUT, BUFFER, TRANSPOSE, task)

    n = deque(rows, n, OUT, BUFFER, STORE, task)
    n = store_rows(
        rows, n, gm=p.dst + _plain_offset(p, t), ub=p.store_at, count=min(planes * p.c0, p.c - t.c1 * p.c0),
        length=t.length * p.item, gm_step=p.planes_d * p.pixels * p.item, ub_step=pitch * p.item, end=range_end,
        exact=p.exact, dtype=p.data, tensor=p.dst_tensor, site=STORE, tile=task,
    )  # fmt: skip
    return free(rows, n, TILE if p.serial else OUT, BUFFER, STORE, task)


@jit
def _place_of(p, element):
    """Return where element number ``element`` of the plain tensor lies in the blocked one: its pixel, and its lane."""
    pixel = element % p.pixels
    channel = element // p.pixels % p.c
    batch = element // (p.pixels * p.c)
    plane = (batch * p.d + pixel // p.segment) * p.c1 + channel // p.c0
    return (plane * p.segment + pixel % p.segment) * p.c0 * p.item, channel % p.c0 * p.item


@jit
def _last_places(p, range_end):
    """Return `_place_of` each element of the last 32 bytes before an address of the plain tensor, int64[count][2]."""
    places = np.empty((BLOCK // p.item, 2), np.int64)
    for i in range(len(places)):
        places[i, 0], places[i, 1] = _place_of(p, (range_end - p.dst) // p.item - len(places) + i)
    return places


@jit
def to_blocked(rows, params, core, phase):
    """Move the tiles of ``core`` from the plain to the blocked tensor; see `npu_sim.program.launch.Launch`.

    ``params``: `trans_data_plan.ACTIVATION_PARAMS`[1].
    """
    p = params[0]
    start, end = unit_share(p, core)
    if start == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 1, PROLOGUE)
    for task in range(start, end):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        n = _forward_tile(rows, n, p, _tile_of(p, task, task % p.tiles * p.tile_pixels))
    yield close_queues(rows, n, (IN, OUT), 1, EPILOGUE)


@jit
def from_blocked(rows, params, core, phase):
    """Move the tiles of ``core`` from the blocked to the plain tensor; see `npu_sim.program.launch.Launch`.

    ``params``: `trans_data_plan.ACTIVATION_PARAMS`[1].
    """
    p = params[0]
    start, end = unit_share(p, core)
    if start == end:
        return
    range_end = NO_END
    if p.tails and end < p.tasks:
        # a task is then a whole plane, of all depths: the next core's begins here, and no row may spill into it
        range_end = p.dst + (end // p.c1 * p.c + end % p.c1 * p.c0) * p.pixels * p.item

    n = open_queue(rows, 0, TILE, 1, PROLOGUE) if p.serial else open_queues(rows, 0, (IN, OUT), 1, PROLOGUE)
    task = start
    while task < end:
        at = task % p.tiles
        planes = min(p.planes, end - task, p.c1 - task % p.c1) if p.planes > 1 else 1
        # where rows are ragged the last task of a plane has two tiles, the second moved back to end with the plane
        has_two = p.overlaps and at == p.tiles - 1
        for again in range(2 if has_two else 1):
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            first = p.pixels - p.tile_pixels if again else at * p.tile_pixels
            n = _backward_tile(rows, n, p, _tile_of(p, task, first), planes, range_end)
        task += planes
    if n + p.step_rows > len(rows):
        yield n
        n = 0
    n = close_queue(rows, n, TILE, 1, EPILOGUE) if p.serial else close_queues(rows, n, (IN, OUT), 1, EPILOGUE)
    if range_end != NO_END:
        # its slots are in IN, which close_queues has waited for
        n = store_gathered_block(rows, n, p, range_end, _last_places(p, range_end), p.load_at, TAIL)
    yield n

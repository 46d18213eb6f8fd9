"""Kernels of Mul and Add (planes and one matrix) and of Div (one value a plane, divided and spread over it)."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_add,
    emit_data_copy,
    emit_div,
    emit_duplicate,
    emit_mul,
    emit_pipe_barrier,
    emit_scalar_copy,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import Queue, alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import (
    IN,
    NO_END,
    OUT,
    load_bytes,
    load_rows,
    store_bytes,
    store_rows,
)

LOAD, COMPUTE, SPREAD, STORE, TAIL, SYNC = range(6)
SITES = {LOAD: "LOAD", COMPUTE: "COMPUTE", SPREAD: "SPREAD", STORE: "STORE", TAIL: "TAIL", SYNC: "SYNC"}
ONE_BUFFER = 2
"""Event of the matrix and of the quotients; 0 and 1 are the halves of the data."""
SPREAD_OUT = Queue(producer=Pipe.S.value, consumer=Pipe.MTE3.value)
"""The halves of the planes of Div: begun by the scalar unit, stored."""


@jit
def _load_matrix(rows, n, p, piece, length, is_first, tile):
    """Bring a piece of the matrix into UB."""
    if not is_first:
        # the vector pipe may still read the piece before
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, ONE_BUFFER, LOAD, tile)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, ONE_BUFFER, LOAD, tile)
    # the flag of the data that follow on the same pipe says that the matrix is there too
    return load_bytes(rows, n, p.exact, 0, p.matrix + piece * p.piece, length, p.data, p.matrix_tensor, LOAD, tile)


@jit
def _store_range_end(rows, n, p, target, gm_end, planes, length, pitch, half, tile):
    """Store the last 32 bytes of a core's range, put together from the results of its last rows."""
    lanes, per_plane = BLOCK // p.item, length // p.item
    n = emit_set_flag(rows, n, Pipe.V, Pipe.S, half, TAIL, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.S, half, TAIL, tile)
    for i in range(lanes):
        flat = planes * per_plane - lanes + i
        source = target + flat // per_plane * pitch + flat % per_plane * p.item
        n = emit_scalar_copy(
            rows, n, Space.UB, p.slot + i * p.item, Space.UB, source, p.data, tensor=-1, site=TAIL, tile=tile
        )
    n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, half, TAIL, tile)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, half, TAIL, tile)
    return store_bytes(rows, n, 0, gm_end - BLOCK, p.slot, BLOCK, p.data, p.dst_tensor, TAIL, tile)


@jit
def _combine_task(rows, n, p, task, is_last_of_core, loaded, tile):
    """Combine a group of planes, or a piece of one, with the matrix; ``loaded`` is the piece of it in UB, -1: none."""
    half, piece, first = tile & 1, task % p.pieces, task // p.pieces * p.group
    planes = min(p.group, p.planes - first)
    length = p.plane - piece * p.piece if piece == p.pieces - 1 else p.piece
    pitch = ceil_div(length, BLOCK) * BLOCK
    at = first * p.plane + piece * p.piece
    source, target = p.input + half * p.half, p.output + half * p.half

    factor = 0
    if not p.resident and piece != loaded:
        n = _load_matrix(rows, n, p, piece, length, loaded < 0, tile)
    elif p.resident:
        factor = piece * p.piece
        if loaded < 0:
            n = _load_matrix(rows, n, p, 0, p.plane, True, tile)
    n = alloc(rows, n, IN, half, LOAD, tile)
    n = load_rows(
        rows, n, source, p.src + at, planes, length, pitch, p.plane, p.exact, p.data, p.src_tensor, LOAD, tile
    )
    n = enque(rows, n, IN, half, LOAD, tile)

    n = deque(rows, n, IN, half, COMPUTE, tile)
    n = alloc(rows, n, OUT, half, COMPUTE, tile)
    count = (length if p.exact else pitch) // p.item
    for i in range(planes):
        to, of = target + i * pitch, source + i * pitch
        if p.adds:
            n = emit_add(rows, n, dst=to, src0=of, src1=factor, dtype=p.data, count=count, site=COMPUTE, tile=tile)
        else:
            n = emit_mul(rows, n, dst=to, src0=of, src1=factor, dtype=p.data, count=count, site=COMPUTE, tile=tile)
    n = free(rows, n, IN, half, COMPUTE, tile)
    n = enque(rows, n, OUT, half, COMPUTE, tile)

    n = deque(rows, n, OUT, half, STORE, tile)
    gm_end = p.dst + at + (planes - 1) * p.plane + length
    ends_range = is_last_of_core and task != p.tasks - 1 and not p.exact and length % BLOCK != 0
    n = store_rows(
        rows, n, p.dst + at, target, planes, length, p.plane, pitch, gm_end if ends_range else NO_END, p.exact, p.data,
        p.dst_tensor, STORE, tile,
    )  # fmt: skip
    if ends_range:
        n = _store_range_end(rows, n, p, target, gm_end, planes, length, pitch, half, tile)
    return free(rows, n, OUT, half, STORE, tile)


@jit
def combine(rows, params, core, phase):
    """Combine the groups of planes of ``core`` with the matrix; see `npu_sim.program.launch.Launch`.

    ``params``: `elementwise.PLANES_PARAMS`[1], places and lengths in bytes.
    """
    p = params[0]
    first, end = core_share(p.tasks, p.cores, core)
    if first == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 2, SYNC)
    loaded = -1
    for tile in range(end - first):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        task = first + tile
        n = _combine_task(rows, n, p, task, task + 1 == end, loaded, tile)
        loaded = task % p.pieces
    yield close_queues(rows, n, (IN, OUT), 2, SYNC)


@jit
def _divide_unit(rows, n, p, first, channels, unit):
    """Quotients of a unit of channels, one block; lanes behind the last channel are quotients of anything."""
    lanes = channels if p.exact else p.unit
    gm = p.src + first * p.item

    n = alloc(rows, n, IN, 0, LOAD, unit)
    n = load_bytes(rows, n, p.exact, p.input, gm, lanes * p.item, p.data, p.src_tensor, LOAD, unit)
    n = enque(rows, n, IN, 0, LOAD, unit)

    n = emit_duplicate(rows, n, p.divisors, p.data, lanes, p.divisor, COMPUTE, unit)
    # the division reads what Duplicate writes
    n = emit_pipe_barrier(rows, n, Pipe.V, COMPUTE, unit)
    n = deque(rows, n, IN, 0, COMPUTE, unit)
    n = emit_div(
        rows, n, dst=p.quotients, src0=p.input, src1=p.divisors, dtype=p.data, count=lanes, site=COMPUTE, tile=unit
    )
    n = free(rows, n, IN, 0, COMPUTE, unit)

    # the scalar unit spreads the quotients
    n = emit_set_flag(rows, n, Pipe.V, Pipe.S, ONE_BUFFER, COMPUTE, unit)
    return emit_wait_flag(rows, n, Pipe.V, Pipe.S, ONE_BUFFER, SPREAD, unit)


@jit
def _fill_lanes(rows, n, p, source, target, lanes, unit):
    """Copy one element to ``lanes`` lanes with the scalar unit."""
    for i in range(lanes):
        n = emit_scalar_copy(
            rows, n, Space.UB, target + i * p.item, Space.UB, source, p.data, tensor=-1, site=SPREAD, tile=unit
        )
    return n


@jit
def _spread_plane(rows, n, p, channel, lane, ends_range, half, unit):
    """Store one quotient over its whole plane of at least a block."""
    buffer, quotient = p.output + half * p.half, p.quotients + lane * p.item
    filled = min(p.half, ceil_div(p.plane, BLOCK) * BLOCK)

    n = alloc(rows, n, SPREAD_OUT, half, SPREAD, unit)
    n = _fill_lanes(rows, n, p, quotient, buffer, BLOCK // p.item, unit)
    n = emit_set_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, unit)

    n = emit_wait_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, unit)
    done = BLOCK
    while done < filled:
        length = min(done, filled - done)
        n = emit_data_copy(
            rows, n, Space.UB, buffer + done, Space.UB, buffer, block_count=1, block_len=length // BLOCK, src_gap=0,
            dst_gap=0, dtype=p.data, tensor=-1, site=SPREAD, tile=unit,
        )  # fmt: skip
        # the next copy reads what this one writes
        n = emit_pipe_barrier(rows, n, Pipe.V, SPREAD, unit)
        done += length
    n = enque(rows, n, OUT, half, SPREAD, unit)

    n = deque(rows, n, OUT, half, STORE, unit)
    gm, end = p.dst + channel * p.plane, p.dst + (channel + 1) * p.plane
    cut = ends_range and not p.exact and p.plane % BLOCK != 0
    whole_end = end - p.plane % BLOCK if cut else end
    for at in range(gm, whole_end, filled):
        n = store_bytes(rows, n, p.exact, at, buffer, min(filled, whole_end - at), p.data, p.dst_tensor, STORE, unit)
    if cut:
        # every lane of the buffer holds the quotient, so any block of it is the last one
        n = store_bytes(rows, n, 0, end - BLOCK, buffer, BLOCK, p.data, p.dst_tensor, TAIL, unit)
    return free(rows, n, SPREAD_OUT, half, STORE, unit)


@jit
def _spread_short_planes(rows, n, p, first, channels, half, unit):
    """Store a unit of planes of less than a block each, packed by the scalar unit."""
    buffer = p.output + half * p.half
    # the store takes whole blocks: planes that are missing in the last unit repeat the last one
    planes = channels if p.exact else p.unit

    n = alloc(rows, n, SPREAD_OUT, half, SPREAD, unit)
    for i in range(planes):
        quotient = p.quotients + min(i, channels - 1) * p.item
        n = _fill_lanes(rows, n, p, quotient, buffer + i * p.plane, p.plane // p.item, unit)
    # the next unit's quotients overwrite the ones read here
    n = emit_set_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, unit)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, unit)
    n = enque(rows, n, SPREAD_OUT, half, SPREAD, unit)

    n = deque(rows, n, SPREAD_OUT, half, STORE, unit)
    gm, length = p.dst + first * p.plane, channels * p.plane
    n = store_bytes(rows, n, p.exact, gm, buffer, length, p.data, p.dst_tensor, STORE, unit)
    return free(rows, n, SPREAD_OUT, half, STORE, unit)


@jit
def div(rows, params, core, phase):
    """Divide the units of channels of ``core`` and spread each quotient; see `npu_sim.program.launch.Launch`.

    ``params``: `elementwise.DIV_PARAMS`[1], places and lengths in bytes, ``unit`` in channels.
    """
    p = params[0]
    units = ceil_div(p.planes, p.unit)
    start, end = core_share(units, p.cores, core)
    if start == end:
        return
    n = open_queues(rows, 0, (IN,), 1, SYNC)
    n = open_queues(rows, n, (SPREAD_OUT,), 2, SYNC)
    half = 0
    for unit in range(start, end):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        first = unit * p.unit
        channels = min(p.unit, p.planes - first)
        n = _divide_unit(rows, n, p, first, channels, unit)
        if p.plane < BLOCK:
            n = _spread_short_planes(rows, n, p, first, channels, half, unit)
            half = 1 - half
            continue
        for lane in range(channels):
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            # behind the last plane of a core begins another core's, unless it ends the tensor
            ends_range = lane + 1 == channels and unit + 1 == end and end < units
            n = _spread_plane(rows, n, p, first + lane, lane, ends_range, half, unit)
            half = 1 - half
    n = close_queues(rows, n, (IN,), 1, SYNC)
    yield close_queues(rows, n, (SPREAD_OUT,), 2, SYNC)

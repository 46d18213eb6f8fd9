"""Jitted pieces of TransData for weights: where elements lie in lines and element blocks, and the two passes."""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from npu_sim.isa.emit import set_dst_address, set_dst_addresses, set_src_address, set_src_addresses
from npu_sim.isa.op import Data
from ops.common.kernel_parts import ceil_div
from ops.vector.kernel_frame import Places, load_rows, store_rows, turn, turn_places

PROLOGUE, CLEAR, LOAD, LINES, GATHER, STORE, TAIL, EPILOGUE = range(8)
SITES = {
    PROLOGUE: "PROLOGUE", CLEAR: "CLEAR", LOAD: "LOAD", LINES: "LINES", GATHER: "GATHER", STORE: "STORE", TAIL: "TAIL",
    EPILOGUE: "EPILOGUE",
}  # fmt: skip


class Chunk(NamedTuple):
    """Channels of a merged group [channel, channel_end) and taps [tap, tap_end) of one task.

    Attributes
    ----------
    task, group, row : int
        Number of the task, its merged group, and the first of its 16 rows there.
    member, member_end : int
        Small groups that have a window in the lines: [member, member_end).
    channel, channel_end, tap, tap_end : int
        What the lines hold.
    pitch, line : int
        Elements from one channel to the next in a line, and from one line to the next.
    """

    task: int
    group: int
    row: int
    member: int
    member_end: int
    channel: int
    channel_end: int
    tap: int
    tap_end: int
    pitch: int
    line: int


@jit
def new_chunk(p, task, group, row, member, member_end, channel, channel_end, tap, tap_end):
    """Return the chunk of ``task`` with what the small groups [member, member_end) have of these channels and taps."""
    member, member_end = max(member, channel // p.cin_g), min(member_end, ceil_div(channel_end, p.cin_g))
    taps = tap_end - tap
    pitch = ceil_div(taps, p.block) * p.block if taps < p.taps else taps
    k = Chunk(task, group, row, member, member_end, channel, channel_end, tap, tap_end, pitch, 0)
    low, high, at = _window(p, k, member_end - 1)
    line = at + ceil_div((high - low) * pitch, p.block) * p.block
    return Chunk(task, group, row, member, member_end, channel, channel_end, tap, tap_end, pitch, line)


@jit
def has_gaps(p, k):
    """Return whether a line is longer than its elements: windows, and channels with some of their taps, fill blocks."""
    low, high = max(k.member * p.cin_g, k.channel), min(k.member_end * p.cin_g, k.channel_end)
    return k.line != (high - low) * (k.tap_end - k.tap)


@jit
def _window(p, k, member):
    """Return first and end channel of the window of small group ``member``, and its position in a line (elements)."""
    low, high = max(member * p.cin_g, k.channel), min((member + 1) * p.cin_g, k.channel_end)
    if member == k.member:
        return low, high, 0
    head = ((k.member + 1) * p.cin_g - max(k.member * p.cin_g, k.channel)) * k.pitch
    full = ceil_div(p.cin_g * k.pitch, p.block) * p.block
    return low, high, ceil_div(head, p.block) * p.block + (member - k.member - 1) * full


@jit
def _block_address(p, k, channel, tap, missing):
    """Return the UB address of the element block of a channel, ``missing`` if the chunk has no such channel."""
    if channel < k.channel or channel >= k.channel_end:
        return missing
    low, _, at = _window(p, k, channel // p.cin_g)
    return p.blocks_at + (at + (channel - low) * k.pitch + tap - k.tap) * 16 * p.item


@jit
def fractal_address(p, k, base, depth, c1, tap):
    """Return the address of the 16 rows of the task in the fractals of one tap."""
    column = ((k.group * p.kd + depth) * p.cin1_g + c1) * p.khw + tap
    return base + (column * p.cout_rows + k.row) * p.c0 * p.item


@jit
def lines_to_blocks(rows, n, p, k):
    """Pass 1 forward."""
    line = k.line * p.item
    blocks, lines = Places(p.blocks_at, 16, 32, 0, 16), Places(p.lines_at, 16, line, 0, 1)
    return turn_places(rows, n, p.word, line // 32, blocks, lines, LINES, k.task)


@jit
def blocks_to_lines(rows, n, p, k):
    """Pass 1 backward."""
    line = k.line * p.item
    lines, blocks = Places(p.lines_at, 16, line, 0, 1), Places(p.blocks_at, 16, 32, 0, 16)
    if p.word != Data.FP16:
        lines, blocks = Places(p.lines_at, 2, 8 * line, line, 1), Places(p.blocks_at, 8, 64, 32, 16)
    return turn_places(rows, n, p.word, line // 32, lines, blocks, LINES, k.task)


@jit
def gather(rows, n, p, k, fractal, channel, tap):
    """Pass 2 forward: the fractal of the C0 channels from ``channel`` on, for one tap."""
    if p.item == 2:
        for i in range(16):
            set_src_address(rows, n, i, _block_address(p, k, channel + i, tap, p.spare_at))
        set_dst_addresses(rows, n, fractal, 16, 32, 0)
        return turn(rows, n, Data.FP16, 1, 0, 0, GATHER, k.task)
    for part in range(p.c0 // 8):
        first = channel + 8 * part
        if p.word == Data.FP16:
            for i in range(16):
                set_src_address(rows, n, i, _block_address(p, k, first + i // 2, tap, p.spare_at) + i % 2 * 32)
            set_dst_addresses(rows, n, fractal + 32 * part, 16, 4 * p.c0, 0)
        else:
            for i in range(16):
                set_src_address(rows, n, i, _block_address(p, k, first + i % 8, tap, p.spare_at) + i // 8 * 32)
            set_dst_addresses(rows, n, fractal + 32 * part, 2, 32 * p.c0, 4 * p.c0)
        n = turn(rows, n, p.word, 1, 0, 0, GATHER, k.task)
    return n


@jit
def scatter(rows, n, p, k, fractal, channel, tap):
    """Pass 2 backward: the columns of a fractal to their element blocks; columns without a channel go to spare ones."""
    if p.item == 2:
        set_src_addresses(rows, n, fractal, 16, 32, 0)
        for i in range(16):
            set_dst_address(rows, n, i, _block_address(p, k, channel + i, tap, p.spare_at + 32 * i))
        return turn(rows, n, Data.FP16, 1, 0, 0, GATHER, k.task)
    for part in range(p.c0 // 8):
        set_src_addresses(rows, n, fractal + 32 * part, 16, 4 * p.c0, 0)
        for i in range(16):
            block = _block_address(p, k, channel + 8 * part + i // 2, tap, p.spare_at + 64 * (i // 2))
            set_dst_address(rows, n, i, block + i % 2 * 32)
        n = turn(rows, n, p.word, 1, 0, 0, GATHER, k.task)
    return n


class _Line(NamedTuple):
    """What one line has in the plain tensor: its place there and in UB, and runs of ``length`` bytes."""

    plain: int
    ub: int
    runs: int
    length: int


@jit
def _line_of(p, k, row):
    """Return line ``row`` of the chunk, without runs if the chunk has nothing of that row."""
    member = (k.row + row) // p.cout_g
    group = k.group * p.mag + member
    if member < k.member or member >= k.member_end or group >= p.groups:
        return _Line(0, 0, 0, 0)
    low, high, at = _window(p, k, member)
    channel = (group * p.cout_g + (k.row + row) % p.cout_g) * p.cin_g + low - member * p.cin_g
    plain, ub = (channel * p.taps + k.tap) * p.item, p.lines_at + (row * k.line + at) * p.item
    taps = k.tap_end - k.tap
    if taps < p.taps:
        return _Line(plain, ub, high - low, taps * p.item)
    return _Line(plain, ub, 1, (high - low) * taps * p.item)


@jit
def load_lines(rows, n, p, k):
    """Load the 16 lines of the chunk from the plain tensor."""
    for row in range(16):
        x = _line_of(p, k, row)
        if x.runs:
            n = load_rows(
                rows, n, ub=x.ub, gm=p.src + x.plain, count=x.runs, length=x.length, ub_step=k.pitch * p.item,
                gm_step=p.taps * p.item, exact=p.exact, dtype=p.data, tensor=p.src_tensor, site=LOAD, tile=k.task,
            )  # fmt: skip
    return n


@jit
def store_lines(rows, n, p, k, range_end):
    """Store the 16 lines of the chunk to the plain tensor, see `store_rows` for ``range_end``."""
    for row in range(16):
        x = _line_of(p, k, row)
        if x.runs:
            n = store_rows(
                rows, n, gm=p.dst + x.plain, ub=x.ub, count=x.runs, length=x.length, gm_step=p.taps * p.item,
                ub_step=k.pitch * p.item, end=range_end, exact=p.exact, dtype=p.data, tensor=p.dst_tensor, site=STORE,
                tile=k.task,
            )  # fmt: skip
    return n

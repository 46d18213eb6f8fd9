"""Gather: elements of UB, each named by an offset, one behind the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200, Mode, Space
from npu_sim.isa.cost_rates import amount, divide_up
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import masked_emitter, vector_emitter
from npu_sim.isa.footprint_boxes import NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import (
    B16,
    B32,
    BYTE,
    COUNT,
    DEVKIT,
    ITEM,
    UNIFIED_B16,
    WORD,
    Flags,
    Index,
    Instruction,
    Range,
    Rows,
)
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mask import block_bits, is_void, lanes_of, masked_boxes, put
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

OP, _MASKED_OP = 65, 193
_STEP, _FIXED, _START = 12_000, 3_000, 24
"""Thousandths of a cycle of 64 elements and beside them, cycles until it is complete (MK streams; documented: 5
elements a cycle). ASSUMED: on 310P too."""


Numbers = npt.NDArray[np.int64]


emit_gather = vector_emitter(
    "gather",
    OP,
    "dst src0 src1 src_bytes dtype count",
    """Gather: dst[i] is the element ``src1[i]`` bytes behind ``src0``, for ``count`` elements of 16 or 32 bits.

``src1`` holds uint32, multiples of the bytes of an element. ``src_bytes``: how far behind ``src0`` they may reach, in
bytes; an offset beyond ends the run. srcBaseAddr of Gather is part of ``src0`` here. ASSUMED: ``src0`` may be any
element; the page has the tensor begin with a block of 32 bytes, and published kernels for A2 do not. ``dst`` may be
``src1`` for elements of 32 bits, and lie in the source where no 256 bytes of the result replace what later ones take
(ASSUMED: the page has neither, published kernels for A2 both).""",
)


@jit
def footprint(row, out):
    """All that may be gathered, an offset and a result for each element."""
    elements = np.int64(row["count"])
    if elements <= 0:
        return 0
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), np.int64(row["src_bytes"]), ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), 4 * elements, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), elements * item_bytes(row["dtype"]), ONCE, NONE)


@jit
def inside(offsets, item, reach):
    """Return whether elements of ``item`` bytes at all ``offsets`` lie in the first ``reach`` bytes and in line."""
    for i in range(len(offsets)):
        offset = np.int64(offsets[i])
        if offset % item != 0 or offset + item > reach:
            return False
    return True


@jit
def _is_replaced(at, item, dst, step, lanes, repeat, low, high):
    """Return whether any of the ``item`` bytes at ``at`` is in a result of a repeat before ``repeat``.

    ``step`` is from repeat to repeat, in bytes, of results of ``lanes`` lanes of which the mask has some.
    """
    if repeat == 0 or at + item <= dst:
        return False
    first, last = np.int64(0), np.int64(0)
    if step > 0:
        first = max((at - dst - lanes * item) // step + 1, 0)
        last = min((at + item - 1 - dst) // step, repeat - 1)
    for r in range(first, last + 1):
        behind = at - dst - r * step
        for lane in range(max(behind // item, 0), min((behind + item - 1) // item + 1, lanes)):
            if block_bits(low, high, lane, 1) != 0:
                return True
    return False


@jit
def _elements(ub, base, offsets, item, data):
    """Copy the elements at ``offsets`` behind ``base`` to ``data``, one behind the other."""
    if item == 4:
        words, taken = reinterpret(ub[base:], np.uint32), reinterpret(data, np.uint32)
        for i in range(len(offsets)):
            taken[i] = words[offsets[i] // 4]
    else:
        halves, taken_halves = reinterpret(ub[base:], np.uint16), reinterpret(data, np.uint16)
        for i in range(len(offsets)):
            taken_halves[i] = halves[offsets[i] // 2]


@jit
def run(row, ub, staging):
    """Look at all offsets before anything is written; ASSUMED: 256 bytes of the result are read before they are.

    The page has source and result in memory of their own. Published kernels for A2 have them in one and take each
    element from the 256 bytes that it goes to, so that is done; what 256 bytes before have replaced is refused.
    """
    item, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
    if item != 2 and item != 4:
        return False
    a, b, d = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    offsets, data = reinterpret(ub[b : b + 4 * count], np.uint32), reinterpret(staging[: REPEAT_BYTES // 4], np.uint8)
    if not inside(offsets, item, np.int64(row["src_bytes"])):
        return False
    lanes, every, end = lanes_of(item), np.uint64(0xFFFF_FFFF_FFFF_FFFF), d + count * item
    for i in range(count):
        at = a + np.int64(offsets[i])
        if at < end and _is_replaced(at, item, d, np.int64(REPEAT_BYTES), lanes, i // lanes, every, every):
            return False
    for first in range(0, count, lanes):
        part = offsets[first : first + lanes]
        _elements(ub, a, part, item, data)
        copy_bytes(ub, d + first * item, data, 0, len(part) * item)
    return True


@jit
def gathering(count, size, cost):
    """Return the cost of elements that are gathered or scattered one by one."""
    if count <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    lanes = np.int64(REPEAT_BYTES // 4)
    millicycles = divide_up(count, lanes) * _STEP + _FIXED
    return streamed(ONCE, millicycles, np.int64(_START), count * size, cost)


@jit
def cost(row, cost):
    """A step for 64 elements of either size."""
    return gathering(np.int64(row["count"]), np.int64(item_bytes(row["dtype"])), cost)


emit_gather_masked = masked_emitter(
    "gather_masked",
    _MASKED_OP,
    "dst src0 src1 src_bytes dtype repeat dst_rep_stride",
    """Gather: the active lanes of each of ``repeat`` repeats, lane l of repeat r by ``src1[r * lanes + l]``.

The mask is that of SetVectorMask, in NORMAL mode; ``dst_rep_stride`` in 32-byte blocks. Offsets of masked lanes are not
read (ASSUMED). All else as without a mask.""",
)


@jit
def footprint_masked(row, out):
    """All that may be gathered, an offset and a result for each active lane."""
    item = item_bytes(row["dtype"])
    lanes = lanes_of(item)
    if row["mode"] & Mode.COUNTER != 0:
        return NO_FOOTPRINT
    if is_void(row, lanes):
        return 0
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), np.int64(row["src_bytes"]), ONCE, NONE)
    count = _offset_boxes(row, out, count, lanes)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, ONCE, row["dst_rep_stride"], row)


@jit
def _offset_boxes(row, out, count, lanes):
    """Note the offsets of the active lanes of all repeats."""
    base, repeats, step = np.int64(row["src1"]), np.int64(row["repeat"]), lanes * 4
    lane = np.int64(0)
    while lane < lanes:
        first = lane
        while lane < lanes and block_bits(row["mask_low"], row["mask_high"], lane, 1) != 0:
            lane += 1
        count = line(out, count, UB, READ, base + 4 * first, 4 * (lane - first), repeats, step)
        lane += 1
    return count


@jit
def run_masked(row, ub, staging):
    """Look at all offsets before anything is written; ASSUMED: a repeat of the result is read before it is.

    Elements that repeats before have replaced are refused, as without a mask.
    """
    item = np.int64(item_bytes(row["dtype"]))
    if (item != 2 and item != 4) or row["mode"] & Mode.COUNTER != 0:
        return False
    lanes, repeats, a, b = lanes_of(item), np.int64(row["repeat"]), np.int64(row["src0"]), np.int64(row["src1"])
    low, high, data = row["mask_low"], row["mask_high"], reinterpret(staging[: REPEAT_BYTES // 4], np.uint8)
    dst, step = np.int64(row["dst"]), np.int64(row["dst_rep_stride"]) * BLOCK
    for writes in range(2):
        for r in range(repeats):
            for lane in range(lanes):
                if block_bits(low, high, lane, 1) == 0:
                    continue
                # one by one: offsets of masked lanes may lie outside UB
                at = b + 4 * (r * lanes + lane)
                offset = reinterpret(ub[at : at + 4], np.uint32)
                if writes == 0:
                    if not inside(offset, item, np.int64(row["src_bytes"])):
                        return False
                    if _is_replaced(a + np.int64(offset[0]), item, dst, step, lanes, r, low, high):
                        return False
                else:
                    _elements(ub, a, offset, item, data[lane * item :])
            if writes != 0:
                put(ub, dst + r * step, item, lanes, ONCE, low, high, data)
    return True


@jit
def cost_masked(row, cost):
    """ASSUMED: masked lanes take as long as others."""
    size = np.int64(item_bytes(row["dtype"]))
    return gathering(amount(np.int64(row["repeat"]), lanes_of(size), ONCE), size, cost)


def keep_offsets(chunk: Rows, index: Index, written: Numbers, offsets: Numbers, in_place: Flags | None = None) -> None:
    """Report results that reach into the offsets: they might lead where nobody looked before.

    Parameters
    ----------
    chunk, index
        See `Rows`.
    written, offsets : int64[n]
        Bytes from ``dst`` to the last result, bytes of all offsets.
    in_place : bool[n], optional
        Whether each result replaces its own offset, where such a form is. ASSUMED: the offset is read before that. The
        page has source and result in memory of their own, and published kernels for A2 do this.
    """
    dst, src = chunk.column(index, "dst"), chunk.column(index, "src1")
    meet = (written > 0) & (offsets > 0) & (dst < src + offsets) & (src < dst + written)
    if in_place is None:
        chunk.rule(index, meet, "dst", "apart from the offsets")
    else:
        text = "apart from the offsets, or, for elements of 4 bytes, in their place"
        chunk.rule(index, meet & ~in_place, "dst", text)


def _is_in_place(chunk: Rows, index: Index) -> Flags:
    """Return whether the first results are as large as their offsets, bool[n], and in their place."""
    return (chunk.item_bytes(index) == 4) & (chunk.column(index, "dst") == chunk.column(index, "src1"))


def check(chunk: Rows, index: Index) -> None:
    count = chunk.column(index, "count")
    keep_offsets(chunk, index, count * chunk.item_bytes(index), 4 * count, _is_in_place(chunk, index))


def check_masked(chunk: Rows, index: Index) -> None:
    bad = chunk.column(index, "mode") & Mode.COUNTER != 0
    chunk.unsupported(index, bad, lambda row: "must come in NORMAL mode: what COUNTER mode does here is not known")
    repeats, step = chunk.column(index, "repeat"), chunk.column(index, "dst_rep_stride") * BLOCK
    lanes = REPEAT_BYTES // chunk.item_bytes(index)
    written = np.where(repeats > 0, (repeats - 1) * step + REPEAT_BYTES, 0)
    in_place = _is_in_place(chunk, index) & ((step == REPEAT_BYTES) | (repeats == 1))
    keep_offsets(chunk, index, written, 4 * lanes * repeats, in_place)


_SPACES = {"dst": Space.UB, "src0": Space.UB, "src1": Space.UB}
_ARCHS = frozenset({M200, C220})
_REACH: tuple[Range, ...] = (("src_bytes", 0, 2**31 - 1),)
_DTYPES = {M200: UNIFIED_B16 | B32, C220: B16 | B32}
_BY_DATA = (
    "an offset in src1 a multiple of the bytes of an element and inside the first src_bytes bytes, of an element that "
    "no repeat before has replaced by its result"
)

_MASKED = Instruction(
    api="Gather",
    emit=emit_gather_masked,
    source=DEVKIT + "Gather, mask style",
    ranges=(*_REACH, ("repeat", 0, BYTE), ("dst_rep_stride", 0, WORD)),
    dtypes=_DTYPES,
    own_types=("src1",),
    alignment={"src0": ITEM},
    by_data=_BY_DATA,
    unit="vector",
    footprint=footprint_masked,
    run=run_masked,
    cost=cost_masked,
    check=check_masked,
    defaults={"repeat": 1, "dst_rep_stride": 8},
)

INSTRUCTION = Instruction(
    api="Gather",
    emit=emit_gather,
    source=DEVKIT + "Gather, count style",
    ranges=(*COUNT, *_REACH),
    dtypes=_DTYPES,
    own_types=("src1",),
    alignment={"src0": ITEM},
    by_data=_BY_DATA,
    masked=_MASKED,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
)

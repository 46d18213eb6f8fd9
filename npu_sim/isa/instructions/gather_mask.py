"""GatherMask: the elements that a pattern of bits marks, one behind the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.cost_rates import amount, divide_up, fits
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, box, line
from npu_sim.isa.instruction import B16, B32, BYTE, COUNT, DEVKIT, UNIFIED_B16, WORD, Index, Instruction, Rows
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.units import REPEAT_BYTES

OP = 70
_STEP, _START = 14_000, 34
"""Thousandths of a cycle of 256 bytes, cycles until it is complete (MK streams). ASSUMED: on 310P too."""
ALL = 7
"""The pattern that keeps everything."""


emit_gather_mask = vector_emitter(
    "gather_mask",
    OP,
    "dst src0 src1 dtype pattern count repeat src_blk_stride src_rep_stride src1_rep_stride dst_bytes",
    """GatherMask: the elements of ``src0`` that a pattern marks go to ``dst``, one behind the other over all repeats.

``pattern`` 1 and 2: even and odd elements; 3 to 6: element 0 to 3 of every four; 7: all; 0: the bits of ``src1``,
lowest first, for every repeat from block ``r * src1_rep_stride`` on. ``count``: elements of a repeat (reduceMode true),
0: 256 bytes. Strides in 32-byte blocks. ``dst_bytes``: more are not kept, as whoever knows the bits may say; 0: not
known. `kept` counts what is kept (rsvdCnt).""",
)


def kept(pattern: int, elements: int, bits: npt.NDArray[np.uint8] | None = None) -> int:
    """Return how many of the first ``elements`` of a repeat a pattern marks, what GatherMask returns as rsvdCnt.

    Parameters
    ----------
    pattern, elements : int
        As `emit_gather_mask`.
    bits : uint8[:], optional
        Pattern 0: the bytes of ``src1`` from the begin of the repeat.
    """
    if pattern == 0 and bits is not None:
        return int(np.unpackbits(bits, bitorder="little")[:elements].sum())
    if pattern == ALL:
        return elements
    first, step = (pattern - 1, 2) if pattern <= 2 else (pattern - 3, 4)
    return len(range(first, elements, step))


@jit
def _elements(row, item):
    """Return the elements of a repeat."""
    count = np.int64(row["count"])
    return count if count > 0 else REPEAT_BYTES // np.int64(item)


@jit
def _marked(pattern, elements):
    """Return how many of the elements of a repeat a fixed pattern marks; all that bits could."""
    if pattern == 1:
        return (elements + 1) // 2
    if pattern == 2:
        return elements // 2
    if pattern >= 3 and pattern <= 6:
        return (elements + 6 - pattern) // 4
    return elements


@jit
def _kept_bytes(row, elements, item):
    """Return the bytes that may be kept of all repeats."""
    found, most = amount(_marked(row["pattern"], elements), np.int64(row["repeat"]), item), np.int64(row["dst_bytes"])
    return min(found, most // item * item) if most > 0 else found


@jit
def footprint(row, out):
    """Whole elements of every repeat, its bits, and as many elements as can be kept."""
    item, repeats, pattern = np.int64(item_bytes(row["dtype"])), np.int64(row["repeat"]), row["pattern"]
    elements = _elements(row, item)
    between, step = np.int64(row["src_blk_stride"]), np.int64(row["src_rep_stride"])
    ahead = np.int64(row["src1_rep_stride"])
    if not fits(between | step | repeats | ahead) or pattern < 0 or pattern > ALL:
        return NO_FOOTPRINT
    taken = elements * item
    full, src = taken // BLOCK, np.int64(row["src0"])
    between, step = between * BLOCK, step * BLOCK
    kept_bytes = _kept_bytes(row, elements, item)
    if pattern == 0 or pattern == ALL:
        count = box(out, NONE, UB, READ, src, BLOCK, full, between, repeats, step, ONCE, NONE)
        count = line(out, count, UB, READ, src + full * between, taken % BLOCK, repeats, step)
        if pattern == 0:
            bits = np.int64(row["src1"])
            count = line(out, count, UB, READ, bits, divide_up(elements, np.int64(8)), repeats, ahead * BLOCK)
    else:
        # every second or fourth element, block by block
        first, apart = (pattern - 1, 2) if pattern <= 2 else (pattern - 3, 4)
        pitch = np.int64(apart) * item
        first = src + np.int64(first) * item
        in_block = BLOCK // pitch
        count = box(out, NONE, UB, READ, first, item, in_block, pitch, full, between, repeats, step)
        rest = _marked(pattern, elements) - full * in_block
        count = box(out, count, UB, READ, first + full * between, item, rest, pitch, repeats, step, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), kept_bytes, ONCE, NONE)


@jit
def _all_marked(row, ub, elements):
    """Return how many elements of all repeats are marked."""
    if row["pattern"] != 0:
        return _marked(row["pattern"], elements) * np.int64(row["repeat"])
    found = np.int64(0)
    for r in range(np.int64(row["repeat"])):
        bits = np.int64(row["src1"]) + r * np.int64(row["src1_rep_stride"]) * BLOCK
        for i in range(elements):
            found += (ub[bits + i // 8] >> (i % 8)) & 1
    return found


@jit
def run(row, ub):
    """Go from element to element; what is kept never overtakes what is read, so that dst may be src0."""
    item, pattern = np.int64(item_bytes(row["dtype"])), row["pattern"]
    if (item != 2 and item != 4) or pattern < 0 or pattern > ALL:
        return False
    if row["dst_bytes"] > 0 and _all_marked(row, ub, _elements(row, item)) * item > row["dst_bytes"]:
        return False
    per_block = BLOCK // item
    target = np.int64(row["dst"])
    for r in range(np.int64(row["repeat"])):
        src = np.int64(row["src0"]) + r * np.int64(row["src_rep_stride"]) * BLOCK
        bits = np.int64(row["src1"]) + r * np.int64(row["src1_rep_stride"]) * BLOCK
        for i in range(_elements(row, item)):
            if pattern == 0:
                is_kept = (ub[bits + i // 8] >> (i % 8)) & 1 != 0
            elif pattern == ALL:
                is_kept = True
            else:
                is_kept = i % 2 == pattern - 1 if pattern <= 2 else i % 4 == pattern - 3
            if is_kept:
                at = src + i // per_block * np.int64(row["src_blk_stride"]) * BLOCK + i % per_block * item
                for byte in range(item):
                    ub[target + byte] = ub[at + byte]
                target += item
    return True


@jit
def cost(row, cost):
    """A step for 256 bytes of the source."""
    item, repeats = np.int64(item_bytes(row["dtype"])), np.int64(row["repeat"])
    if repeats <= 0 or item <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    elements = _elements(row, item)
    steps = amount(repeats, divide_up(elements * item, np.int64(REPEAT_BYTES)), ONCE)
    return streamed(steps, np.int64(_STEP), np.int64(_START), _kept_bytes(row, elements, item), cost)


def check(chunk: Rows, index: Index) -> None:
    if chunk.product.arch != C220:
        bad = chunk.column(index, "pattern") == ALL
        chunk.unsupported(index, bad, lambda row: f"pattern must be one of 0 to 6 on {M200}, not {ALL}")
        total = (chunk.column(index, "count") > 0) & (chunk.column(index, "repeat") > 1)
        chunk.rule(index, total, "repeat", f"1 where count is given: on {M200} count is that of all repeats")


INSTRUCTION = Instruction(
    api="GatherMask",
    emit=emit_gather_mask,
    source=DEVKIT + "GatherMask with GatherMaskParams",
    ranges=(
        *COUNT,
        ("pattern", 0, ALL),
        ("repeat", 0, WORD),
        ("src_blk_stride", 0, BYTE),
        ("src_rep_stride", 0, WORD),
        ("src1_rep_stride", 0, BYTE),
        ("dst_bytes", 0, 2**31 - 1),
    ),
    dtypes={M200: UNIFIED_B16 | B32, C220: B16 | B32},
    own_types=("src1",),
    by_data="no more elements that the bits in src1 mark than dst_bytes have room for",
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"count": 0, "repeat": 1, "src_blk_stride": 1, "src_rep_stride": 8, "src1_rep_stride": 0, "dst_bytes": 0},
)

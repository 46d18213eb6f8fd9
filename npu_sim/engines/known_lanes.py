"""What the bytes of UB hold as far as the rows of a core say by themselves: numbers that the kernel fills in.

Offsets and masks are mostly such, made of constants or written by the scalar unit, while what is computed with comes
from global memory. Where they are known, so are the elements that Gather and GatherMask take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.footprint import READ
from npu_sim.isa.mask import lanes_of
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.op import Op, by_opcode
from npu_sim.units import BLOCK_BYTES, REPEAT_BYTES

Boxes = list[tuple[int, int, int, int]]
"""First byte, bytes of a repetition, repetitions, bytes between them."""
_LED = (Op.GATHER, Op.GATHER_MASKED, Op.GATHER_MASK)
_WRITES_WHERE_DATA_SAYS = by_opcode(lambda one: one.by_data != "" and one.op not in _LED[:2], dtype=np.bool_)
"""Whether the bytes that a row writes need not be all of its footprint."""


def is_led(row: np.ndarray) -> bool:
    """Return whether operands of a row say which elements of the others it takes."""
    op = int(row["op"][0])
    return op in _LED and (op != Op.GATHER_MASK or int(row["pattern"][0]) == 0)


class KnownLanes:
    """Values of UB, row by row.

    Parameters
    ----------
    size : int
        Bytes of UB.
    run : callable
        Carries out a row on contents of UB; returns whether it could.
    """

    def __init__(self, size: int, run: Callable[[np.ndarray, npt.NDArray[np.uint8]], bool]) -> None:
        self._known, self._run = np.zeros(size, np.bool_), run
        self._held = np.zeros(size, np.uint8)

    def fill(self, ub: npt.NDArray[np.uint8]) -> None:
        """Put what is known into contents of UB."""
        ub[self._known] = self._held[self._known]

    def holds(self, boxes: Iterable[slice]) -> bool:
        """Return whether all bytes of pieces are known."""
        return all(self._known[piece].all() for piece in boxes)

    def bytes_of(self, piece: slice) -> npt.NDArray[np.uint8] | None:
        """Return bytes that are all known, else None."""
        return self._held[piece] if self._known[piece].all() else None

    def follow(self, row: np.ndarray, boxes: Sequence[Sequence[int]], open_pieces: Iterable[slice]) -> None:
        """Take one row with its footprint; ``open_pieces``: what it writes and leaves open."""
        writes = [piece for box in boxes if box[0] == Space.UB and box[1] != READ for piece in pieces([box[2:]])]
        if not writes:
            return
        reads = [box for box in boxes if box[1] == READ]
        is_known = not _WRITES_WHERE_DATA_SAYS[row["op"][0]] and all(box[0] == Space.UB for box in reads)
        is_known = is_known and self.holds(piece for box in reads for piece in pieces([box[2:]]))
        is_known = is_known and self._run(row, self._held)
        for piece in writes:
            self._known[piece] = is_known
        for piece in open_pieces:
            self._known[piece] = False

    def touched(self, row: np.ndarray, writes: Boxes) -> tuple[Boxes, Boxes] | None:
        """Return what a row of `is_led` reads and writes, of elements those it takes; None: what leads is not known."""
        if int(row["op"][0]) == Op.GATHER_MASK:
            return self._marked(row[0])
        taken = self._gathered(row[0])
        return None if taken is None else (taken, writes)

    def _gathered(self, row: np.void) -> Boxes | None:
        item, first = int(ITEM_BYTES_OF_CODE[int(row["dtype"])]), int(row["src1"])
        if int(row["op"]) == Op.GATHER:
            places = first + 4 * np.arange(int(row["count"]))
        else:
            if row["mode"] & Mode.COUNTER:
                return None
            lanes = int(lanes_of(item))
            mask = int(row["mask_low"]) & (1 << 64) - 1 | (int(row["mask_high"]) & (1 << 64) - 1) << 64
            active = np.flatnonzero([mask >> lane & 1 for lane in range(lanes)])
            places = first + 4 * (np.arange(int(row["repeat"]))[:, None] * lanes + active).reshape(-1)
        where = places[:, None] + np.arange(4)
        if where.size and (where.max() >= len(self._known) or not self._known[where].all()):
            return None
        offsets = self._held[where].view(np.uint32).reshape(-1).astype(np.int64)
        starts = int(row["src0"]) + offsets
        return [*((int(at), item, 1, item) for at in starts), *((int(at), 4, 1, 4) for at in places)]

    def _marked(self, row: np.void) -> tuple[Boxes, Boxes] | None:
        item = int(ITEM_BYTES_OF_CODE[int(row["dtype"])])
        elements = int(row["count"]) or REPEAT_BYTES // item
        in_block, kept, found = BLOCK_BYTES // item, 0, list[tuple[int, int, int, int]]()
        for repeat in range(int(row["repeat"])):
            start = int(row["src1"]) + repeat * int(row["src1_rep_stride"]) * BLOCK_BYTES
            bits = self.bytes_of(slice(start, start + -(-elements // 8)))
            if bits is None:
                return None
            marked = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:elements])
            block, lane = np.divmod(marked, in_block)
            base = int(row["src0"]) + repeat * int(row["src_rep_stride"]) * BLOCK_BYTES
            places = base + block * int(row["src_blk_stride"]) * BLOCK_BYTES + lane * item
            found += [(int(at), item, 1, item) for at in places]
            found.append((start, len(bits), 1, len(bits)))
            kept += len(marked) * item
        return found, [(int(row["dst"]), kept, 1, kept)] if kept else []


def pieces(boxes: Iterable[Sequence[int]]) -> Iterable[slice]:
    """Yield the bytes of boxes."""
    for start, length, repeats, step in boxes:
        if repeats > 1 and step == length:
            yield slice(start, start + repeats * length)
            continue
        for at in range(repeats):
            yield slice(start + at * step, start + at * step + length)

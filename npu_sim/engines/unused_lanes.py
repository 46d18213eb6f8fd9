"""Bytes that nobody wrote for a row that reads them in UB, or loads them there, and that nothing uses: behind a tile.

Kernels round a tile up to whole blocks or repeats, compute with what lies behind its end, and store the tile alone. The
rows of the core are followed in program order: a row that reads such a byte is carried out on several contents of it,
to see which bytes of its result depend on it. Where one of these leaves UB, is looked at by the scalar unit, or says
where something lies, the finding stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from npu_sim.engines.known_lanes import Boxes, KnownLanes, is_led, pieces
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import Space
from npu_sim.isa.dispatch import CONFIG_LENGTH, run_rows
from npu_sim.isa.footprint import MAY_LEAVE_OPEN, READ, empty_runs, footprint_at, left_open_at
from npu_sim.isa.instructions.sort32 import SCORES
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.op import SPEC_OF_OP, Op, by_opcode
from npu_sim.products import Product
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind, Violation

_MOST_LOADED = 1 << 22
"""Bytes of global memory from the first to the last of a load that is followed."""
ROWS = 1 << 17
"""Rows of a core that are followed; the findings of one that has more stay as they are."""
_ALIKE = (0x00, 0x7B, 0x80, 0xFB, 0xFF)
"""Of every byte: in all types 0, numbers above and below those of `_ordinary`, and what is no number."""
_CONTENTS = (*((one, one) for one in _ALIKE), (0x7B, 0xFB), (0xFB, 0x7B))
"""Of one operand and of the other: two that are alike compare in one way only."""
_OF_BITS = ((0, 0), (0, 0xFF), (0xFF, 0), (0xFF, 0xFF))
_BITWISE = (Op.AND_, Op.AND_MASKED, Op.OR_, Op.OR_MASKED, Op.NOT_, Op.NOT_MASKED)
"""Each bit by itself, as those of masks are: with the bits of `_OF_BITS`, all that both may be are tried."""
_SELECTIONS = (Op.SELECT, Op.SELECT_SCALAR)
_Reached = list[tuple[slice, npt.NDArray[np.uint8]]]
"""Bytes of UB and bits of each."""
_BY_VALUES = (Op.GATHER, Op.GATHER_MASKED, Op.GATHER_MASK, Op.SORT32)
"""Rows of which more is told where it is known what UB holds."""
_PLACES = by_opcode(lambda one: one.by_data != "" or one.op in (Op.SORT32, Op.MRG_SORT), dtype=np.bool_)
"""Whether data may say where results lie."""


def _is_placed_by_data(row: np.ndarray) -> bool:
    """Return whether data says where the results of a row lie; a fixed pattern of GatherMask says it by itself."""
    op = int(row["op"][0])
    return bool(_PLACES[op]) and not (op == Op.GATHER_MASK and row["pattern"][0] != 0)


class Need(Enum):
    """What depends on the bytes that a finding names."""

    NOTHING = auto()
    SOMETHING = auto()
    OFFSETS = auto()
    """They are some of the elements that unknown offsets may name, and none of the offsets."""
    UNKNOWN = auto()


def needs(found: Sequence[Violation], rows: np.ndarray, product: Product, *, others: bool = False) -> list[Need]:
    """Return what needs the bytes of findings, unwritten or stale ones of UB, or of global memory that is loaded there.

    Parameters
    ----------
    found : sequence of Violation
        Of one core.
    rows : INSTR[n]
        All of the core.
    product : Product
    others : bool
        Whether to follow all other rows too that read bytes which nothing has written; the last of the result is
        whether nothing depends on any of those, and no other space is read so that it might be one of theirs.
    """
    result = [Need.UNKNOWN] * (len(found) + others)
    if len(rows) > ROWS:
        return result
    rows = rows.copy()
    issue(rows, len(rows), np.zeros(CORE_STATE_LENGTH, np.int64))
    if verify(rows, product):
        return result  # rows that nobody vouches for are not carried out or followed
    starts: dict[int, list[int]] = {}
    for number, violation in enumerate(found):
        starts.setdefault(violation.row, []).append(number)
    trail = _Trail(len(result), product, follows_values=bool(np.isin(rows["op"], _BY_VALUES).any()))
    runs, named = empty_runs(), set[int]()
    for at in range(len(rows)):
        count = int(footprint_at(rows, at, runs))
        boxes = runs[: max(count, 0)].tolist()
        reads: Boxes = [tuple(box[2:]) for box in boxes if box[0] == Space.UB and box[1] == READ]
        writes: Boxes = [tuple(box[2:]) for box in boxes if box[0] == Space.UB and box[1] != READ]
        row, here = rows[at : at + 1], starts.get(at, ())
        touched = trail.touched(row, writes)
        taken_of = reads if touched is None else touched[0]
        loads = [number for number in here if found[number].space is Space.GM]
        for number in here:
            if touched is None and is_left_to_offsets(
                found[number], rows[at], offsets_are_written=trail.has_offsets(row, reads)
            ):
                named.add(number)
            elif number not in loads:
                trail.begin(number, found[number], reads, taken_of)
        if others and at not in starts:
            if any(box[0] not in (Space.UB, Space.GM) and box[1] == READ for box in boxes):
                trail.use(len(found))
            trail.begin_unnamed(len(found), taken_of)
        leaves = any(box[0] != Space.UB and box[1] != READ for box in boxes)
        if touched is None:
            trail.follow(row, at, reads, writes, leaves=leaves)
        else:
            trail.follow(row, at, *touched, leaves=leaves, is_led=True)
        left_open = list(pieces(_left_open(rows, at, runs)))
        trail.forget(left_open)
        trail.follow_values(row, boxes, left_open)
        if loads:
            taken: Boxes = [tuple(box[2:]) for box in boxes if box[0] == Space.GM and box[1] == READ]
            trail.begin_loads({number: found[number] for number in loads}, row, taken)
    if others and trail.is_one_used():
        trail.use(len(found))
    for number in range(len(result)):
        result[number] = Need.SOMETHING if trail.is_used(number) else Need.NOTHING
        if number in named:
            result[number] = Need.OFFSETS
    return result


def is_left_to_offsets(violation: Violation, row: np.void, *, offsets_are_written: bool = False) -> bool:
    """Return whether all of the bytes are a part of what offsets may reach, and none of them an offset.

    Of a source that holds its own offsets that is so only if it is known that they are written.
    """
    instruction = SPEC_OF_OP.get(int(row["op"]))
    if instruction is None or "src_bytes" not in instruction.fields:
        return False
    first, offsets = int(row["src0"]), int(row["src1"])
    end, last = violation.start + violation.length, first + int(row["src_bytes"])
    if violation.length >= last - first or violation.start < first or end > last:
        return False
    return offsets_are_written or offsets < first or offsets >= last


class _Trail:
    """What the bytes of UB depend on, row by row."""

    def __init__(self, findings: int, product: Product, *, follows_values: bool) -> None:
        size = product.core.ub_bytes
        self._label = np.zeros(size, np.int32)  # a finding by number, from 1 on
        self._bits = np.zeros(size, np.uint8)  # of a byte with a label: which depend on it
        self._writer = np.full(size, -1, np.int64)
        self._same_as = list(range(findings + 1))
        self._used = [False] * (findings + 1)
        self._follows = set[int]()  # labels of what rows without a finding of their own read
        self._values = KnownLanes(size, self._run) if follows_values else None
        # a choice by other bytes is made both ways
        self._others = (_ordinary(size), np.zeros(size, np.uint8), np.full(size, 0xFF, np.uint8))

    def is_used(self, number: int) -> bool:
        return self._used[self._root(number + 1)]

    def is_one_used(self) -> bool:
        """Return whether one of those is that rows of `begin_unnamed` read as well."""
        return any(self._used[self._root(label)] for label in self._follows if label)

    def use(self, number: int) -> None:
        """Take a finding for used."""
        self._used[self._root(number + 1)] = True

    def begin_unnamed(self, number: int, reads: Boxes) -> None:
        """Note all bytes of a row that nothing has written."""
        for piece in pieces(reads):
            unwritten = self._writer[piece] < 0
            if unwritten.any():
                labels = self._label[piece]
                self._follows.update(np.unique(labels[unwritten]).tolist())
                fresh = unwritten & (labels == 0)
                labels[fresh], self._bits[piece][fresh] = number + 1, 0xFF

    def touched(self, row: np.ndarray, writes: Boxes) -> tuple[Boxes, Boxes] | None:
        """Return what a row reads and writes if operands say which elements, and it is known what these hold."""
        return self._values.touched(row, writes) if self._values is not None and is_led(row) else None

    def has_offsets(self, row: np.ndarray, reads: Boxes) -> bool:
        """Return whether all offsets of a row have been written, if they do not begin where its source does."""
        first = int(row["src1"][0])
        boxes = [box for box in reads if box[0] == first]
        return first != row["src0"][0] and bool(boxes) and all((self._writer[one] >= 0).all() for one in pieces(boxes))

    def follow_values(self, row: np.ndarray, boxes: Sequence[Sequence[int]], left_open: Iterable[slice]) -> None:
        """Take one row: what it writes is known if what it reads is."""
        if self._values is not None:
            self._values.follow(row, boxes, left_open)

    def begin(self, number: int, violation: Violation, reads: Boxes, taken: Boxes) -> None:
        """Note the bytes that a finding means, those of ``taken`` alone: what a row reads may be less than it names."""
        last = violation.other_row if violation.kind is Kind.READ_STALE else -1
        first, end = violation.start, violation.start + violation.length
        any_byte = False
        named = list(_within(reads, first, end))
        for span in _within(taken, first, end):
            meant = (self._writer[span] <= last) & (self._label[span] == 0)
            self._label[span][meant], self._bits[span][meant] = number + 1, 0xFF
            other = (self._writer[span] <= last) & ~meant  # read before, by what another finding names
            self._merge({*np.unique(self._label[span][other]).tolist(), number + 1})
            any_byte |= bool(meant.any() or other.any())
        if not any_byte and (taken is reads or not any((self._writer[one] <= last).any() for one in named)):
            self.use(number)

    def begin_loads(self, found: Mapping[int, Violation], row: np.ndarray, taken: Boxes) -> None:
        """Note the bytes of UB to which a load, just followed, brings those of findings; it has to bring others too."""
        low = min((min(start, start + (repeats - 1) * step) for start, _, repeats, step in taken), default=0)
        high = max((max(start, start + (repeats - 1) * step) + size for start, size, repeats, step in taken), default=0)
        spans = {number: slice(max(one.start - low, 0), one.start - low + one.length) for number, one in found.items()}
        meant = np.zeros(min(high - low, _MOST_LOADED), np.bool_)
        for span in spans.values():
            meant[span] = True
        moved = row.copy()
        moved["src0"] -= low
        # carried out here are rows of these two spaces alone: of others there is no memory
        is_followed = row["src0_space"][0] == Space.GM and row["dst_space"][0] == Space.UB
        is_followed = is_followed and high - low <= _MOST_LOADED and row["src0"][0] == low
        places = pieces([(start - low, size, repeats, step) for start, size, repeats, step in taken])
        brings_others = is_followed and not all(meant[place].all() for place in places)
        before = self._loaded(moved, np.zeros(len(meant), np.uint8)) if brings_others else None
        for number, span in spans.items():
            content = np.zeros(len(meant), np.uint8)
            content[span] = 0xFF
            ub = None if before is None else self._loaded(moved, content)
            if before is None or ub is None or (reached := ub != before).sum() == 0:
                self.use(number)
                continue
            self._merge({*np.unique(self._label[reached]).tolist(), number + 1})
            self._label[reached], self._bits[reached] = number + 1, 0xFF

    def _loaded(self, row: np.ndarray, gm: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8] | None:
        """Return UB, zeros before, as a load of ``gm`` leaves it, or None if it cannot be carried out."""
        ub = np.zeros(len(self._label), np.uint8)
        return ub if self._run(row.copy(), ub, gm) else None

    def forget(self, left_open: Iterable[slice]) -> None:
        """Take bytes that a row has just written for such as nobody wrote: it leaves open what they hold."""
        for piece in left_open:
            self._writer[piece] = -1

    def follow(
        self, row: np.ndarray, at: int, reads: Boxes, writes: Boxes, *, leaves: bool, is_led: bool = False
    ) -> None:
        """Take one row: what it reads may reach what it writes; of ``is_led`` it is known which elements."""
        labels: set[int] = set()
        for piece in pieces(reads):
            if self._label[piece].any():
                labels.update(np.unique(self._label[piece]).tolist())
        labels.discard(0)
        reached: _Reached = []
        label = 0
        if labels:
            label = self._merge(labels)
            outcome: _Reached | None = None
            if int(row["op"][0]) == Op.SORT32:
                outcome = self._sorted(row[0])
            elif writes and not leaves and (is_led or not _is_placed_by_data(row)):
                outcome = self._reached(row, reads, writes, is_led=is_led)
            if outcome is None:
                self._used[label] = True
            else:
                reached = outcome
        for piece in pieces(writes):
            self._label[piece] = 0
            self._writer[piece] = at
        for piece, bits in reached:
            self._label[piece] = np.where(bits != 0, label, 0)
            self._bits[piece] = bits

    def _sorted(self, row: np.void) -> _Reached:
        """Return which bits of the pairs of a Sort32 depend on bits with a label: those of the same 32 scores.

        Indices beside the least scores at the end stay there.
        """
        item, found = int(ITEM_BYTES_OF_CODE[int(row["dtype"])]), []
        least = np.array(-np.inf, np.float16 if item == 2 else np.float32).tobytes()
        for repeat in range(int(row["repeat"])):
            first = repeat * SCORES
            scores = slice(int(row["src0"]) + first * item, int(row["src0"]) + (first + SCORES) * item)
            indices = self._label[int(row["src1"]) + first * 4 :][: SCORES * 4].reshape(SCORES, 4).any(1)
            to = slice(int(row["dst"]) + first * 8, int(row["dst"]) + (first + SCORES) * 8)
            bits = np.zeros(SCORES * 8, np.uint8)
            if self._label[scores].any():
                bits[:] = 0xFF
            elif indices.any():
                behind = int(indices.argmax())
                rest = slice(scores.start + behind * item, scores.stop)
                held = self._values.bytes_of(rest) if self._values is not None else None
                stay = held is not None and held.tobytes() == least * (SCORES - behind)
                bits.reshape(SCORES, 8)[behind if stay else 0 :, 4:] = 0xFF
            found.append((to, bits))
        return found

    def _reached(self, row: np.ndarray, reads: Boxes, writes: Boxes, *, is_led: bool) -> _Reached | None:
        """Return which bits of what a row writes depend on bits with a label, or None if it cannot be carried out."""
        row = row.copy()
        op = int(row["op"][0])
        is_comparison = "comparison" in SPEC_OF_OP[op].fields
        if is_comparison:
            row["comparison"] = 0  # LT: that two are equal hardly happens
        written = list(pieces(writes))
        changed = [np.zeros(piece.stop - piece.start, np.uint8) for piece in written]
        around = self._others if op in _SELECTIONS else self._others[1:] if op in _BITWISE else self._others[:1]
        for others in around:
            first = None
            for contents in ((), *(_OF_BITS if op in _BITWISE else _CONTENTS)):
                ub = others.copy()
                if is_led and self._values is not None:
                    self._values.fill(ub)
                for number, box in enumerate(reads if contents else ()):
                    for piece in pieces([box]):
                        bits = np.where(self._label[piece] != 0, self._bits[piece], 0).astype(np.uint8)
                        ub[piece] = ub[piece] & ~bits | np.uint8(contents[number % 2]) & bits
                if not self._run(row, ub):
                    return None
                first = ub if first is None else first
                for bits, piece in zip(changed, written, strict=True):
                    bits |= ub[piece] ^ first[piece]
        item = _result_bytes(row)
        found = []
        for bits, piece in zip(changed, written, strict=True):
            if not is_comparison and op not in _BITWISE:
                whole = -(-len(bits) // item) * item
                touched = np.zeros(whole, np.bool_)
                touched[: len(bits)] = bits != 0
                bits = np.where(np.repeat(touched.reshape(-1, item).any(1), item)[: len(bits)], 0xFF, 0).astype(
                    np.uint8
                )
            found.append((piece, bits))
        return found

    def _run(self, row: np.ndarray, ub: npt.NDArray[np.uint8], gm: npt.NDArray[np.uint8] | None = None) -> bool:
        none = np.zeros(0, np.uint8)
        floats = np.zeros(0, np.float32)
        bad = run_rows(
            row, 0, 1, none if gm is None else gm, none, floats, floats, floats, ub, none, none, none,
            np.zeros(CONFIG_LENGTH, np.int64), np.zeros(8192, np.float64), np.zeros(8192, np.float32),
            np.zeros(SINK_LENGTH, np.int64), np.zeros((0, 4), np.int64), none,
        )  # fmt: skip
        return int(bad) < 0

    def _merge(self, labels: Iterable[int]) -> int:
        """Let findings whose bytes meet share what becomes of them; return their label."""
        roots = {self._root(label) for label in labels if label}
        first = min(roots)
        for root in roots:
            self._used[first] |= self._used[root]
            self._same_as[root] = first
        return first

    def _root(self, label: int) -> int:
        while self._same_as[label] != label:
            label = self._same_as[label]
        return label


def _left_open(rows: np.ndarray, at: int, runs: np.ndarray) -> Boxes:
    if not MAY_LEAVE_OPEN[rows["op"][at]]:
        return []
    return [tuple(box[2:]) for box in runs[: int(left_open_at(rows, at, runs))].tolist()]


def _within(boxes: Boxes, first: int, end: int) -> Iterator[slice]:
    """Yield the parts of boxes that lie in ``[first, end)``."""
    for piece in pieces(boxes):
        span = slice(max(piece.start, first), min(piece.stop, end))
        if span.start < span.stop:
            yield span


def _ordinary(size: int) -> npt.NDArray[np.uint8]:
    """Return bytes that are numbers of moderate size in every type, of both signs, with no byte 0."""
    rng = np.random.default_rng(0)
    content = rng.integers(1, 256, size, dtype=np.uint8)
    content[1::2] = rng.integers(0x3A, 0x40, size // 2, dtype=np.uint8) | rng.choice(
        np.array([0, 0x80], np.uint8), size // 2
    )
    return content


def _result_bytes(row: np.ndarray) -> int:
    field = "dst_dtype" if "dst_dtype" in SPEC_OF_OP[int(row["op"][0])].fields else "dtype"
    return max(int(ITEM_BYTES_OF_CODE[int(row[field][0])]), 1)

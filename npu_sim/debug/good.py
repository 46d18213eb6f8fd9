"""Where a program leaves a good one: both run side by side, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npu_sim.debug.distance import distances
from npu_sim.debug.divergence import Divergence, read_and_written
from npu_sim.debug.execution import Execution
from npu_sim.debug.machine import Machine
from npu_sim.debug.operands import Operand
from npu_sim.debug.parts import Part
from npu_sim.debug.places import Place
from npu_sim.errors import ShapeError
from npu_sim.isa.op import Op

_LOOK_AHEAD = 64
"""Rows that one program may have more than the other in one place."""
_SILENT = (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER, Op.ALLOC_TENSOR, Op.FREE_TENSOR)
"""Rows without values: either program may have them or not."""
_FEW = 8
"""Programs are alike if at most one of so many rows differs."""
_SITE_AT, _TENSOR_AT = 12, 20


def diverge_from_good(execution: Execution, good: Execution, budget: float = 0.0) -> Divergence | None:
    """Return the first instruction that writes other values than its like in a good program.

    Rows are alike that have the same instruction, tile and memories, in the same order of their core. A row that only
    one program has is where they part, if the values behind it differ.

    Parameters
    ----------
    execution, good : Execution
        Of the same launches, cores and phases, on the same inputs.
    budget : float
        Units of the last place that may differ.

    Returns
    -------
    Divergence or None
        None: no value differs. ``suspect`` is the first row, in the order in which they run, that differs from its like
        or has none; ``store`` the first whose values differ.

    Raises
    ------
    ShapeError
        The programs have other launches, cores or phases.
    """
    shapes = [[(part.launch, part.phase, part.core) for part in one.parts] for one in (execution, good)]
    if shapes[0] != shapes[1]:
        raise ShapeError("a good program must have the launches, cores and phases of the other")
    search = _Search(execution.machine(), good.machine(), budget)
    for part, like in zip(execution.parts, good.parts, strict=True):
        search.go_through(part, like)
        if search.found is not None:
            return search.found
    if search.strange is None or np.array_equal(search.bad.gm, search.good.gm):
        return None
    return search.told(search.strange, (), (), "no instruction writes other values, and what they leave differs")


class _Search:
    """Two machines side by side."""

    def __init__(self, bad: Machine, good: Machine, budget: float) -> None:
        self.bad, self.good, self._budget = bad, good, budget
        self.strange: Place | None = None
        self.found: Divergence | None = None

    def go_through(self, part: Part, like: Part) -> None:
        """Run a core and phase of both, as far as their values agree."""
        pairs = [pair for pair in _aligned(part, like) if not _is_silent(part, like, pair)]
        others = [pair for pair in pairs if -1 in pair or _differ(part.rows[pair[0]], like.rows[pair[1]])]
        # programs with other addresses everywhere are told apart by their values only
        unlike = set(others) if len(others) * _FEW <= len(pairs) else set()
        for pair in pairs:
            mine = self._reach(self.bad, part, pair[0])
            twin = self._reach(self.good, like, pair[1])
            if self.strange is None and pair in unlike:
                self.strange = self.bad.place or self.bad.last
            if mine and twin:
                place = self.bad.place
                assert place is not None
                operands, results = read_and_written(self.bad)
                _, right = read_and_written(self.good)
                if not _agree(results, right, self._budget):
                    reason = "it writes other values than its like in the good program"
                    self.found = self.told(place, operands, results, reason)
                    return
            else:
                for machine, is_there in ((self.bad, mine), (self.good, twin)):
                    if is_there:
                        machine.step()
        self._finish(self.bad, part)
        self._finish(self.good, like)

    def told(
        self, place: Place, operands: tuple[Operand, ...], results: tuple[Operand, ...], reason: str
    ) -> Divergence:
        """Return the answer."""
        suspect = self.strange or place
        if self.strange is not None and self.strange.key != place.key:
            reason += "; the suspect is the first that differs from its like or has none"
        return Divergence(
            tensors=(), store=place, suspect=suspect, reason=reason, operands=operands, results=results, executions=2
        )

    def _reach(self, machine: Machine, part: Part, at: int) -> bool:
        """Run the rows before row ``at`` of a part; return whether there is such a row."""
        if at < 0:
            return False
        place, wanted = machine.place, (part.launch, part.core, part.first + at)
        if place is None or place.key != wanted:
            machine.run_to(launch=part.launch, core=part.core, row=part.first + at)
        return True

    def _finish(self, machine: Machine, part: Part) -> None:
        while (place := machine.place) is not None and (place.launch, place.phase, place.core) == _place_of(part):
            machine.step(part.first + len(part.rows) - place.row)


def _place_of(part: Part) -> tuple[int, int, int]:
    return part.launch, part.phase, part.core


def _is_silent(part: Part, like: Part, pair: tuple[int, int]) -> bool:
    op = part.rows["op"][pair[0]] if pair[0] >= 0 else like.rows["op"][pair[1]]
    return int(op) in _SILENT


def _differ(row: np.void, other: np.void) -> bool:
    """Return whether two rows differ in more than where the source has them."""
    data, twin = row.tobytes(), other.tobytes()
    return data[:_SITE_AT] != twin[:_SITE_AT] or data[_TENSOR_AT:] != twin[_TENSOR_AT:]


def _agree(results: tuple[Operand, ...], right: tuple[Operand, ...], budget: float) -> bool:
    if len(results) != len(right):
        return False
    for one, other in zip(results, right, strict=True):
        if one.values.size != other.values.size or one.dtype != other.dtype:
            return False
        if (
            one.values.tobytes() != other.values.tobytes()
            and (distances(one.values, other.values, one.dtype) > budget).any()
        ):
            return False
    return True


def _aligned(part: Part, like: Part) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows, -1 in place of one that is not there."""
    keys = [
        [(int(r["op"]), int(r["tile"]), int(r["dst_space"]), int(r["src0_space"])) for r in one.rows]
        for one in (part, like)
    ]
    i = j = 0
    left, right = keys
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            yield i, j
            i, j = i + 1, j + 1
            continue
        more, fewer = _ahead(left, i, right[j]), _ahead(right, j, left[i])
        if more is not None and (fewer is None or more <= fewer):
            for _ in range(more):
                yield i, -1
                i += 1
        elif fewer is not None:
            for _ in range(fewer):
                yield -1, j
                j += 1
        else:
            yield i, -1
            yield -1, j
            i, j = i + 1, j + 1
    for at in range(i, len(left)):
        yield at, -1
    for at in range(j, len(right)):
        yield -1, at


def _ahead(keys: Sequence[tuple[int, ...]], at: int, key: tuple[int, ...]) -> int | None:
    for more in range(1, min(_LOOK_AHEAD, len(keys) - at)):
        if keys[at + more] == key:
            return more
    return None

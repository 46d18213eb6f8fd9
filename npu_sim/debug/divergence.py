"""The first instruction whose result is wrong: from a golden back through what the wrong bytes came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.debug.distance import default_budget, distances, root_mean_square
from npu_sim.debug.execution import Execution
from npu_sim.debug.machine import Machine
from npu_sim.debug.operands import Operand, operands_of, strided
from npu_sim.debug.places import Place
from npu_sim.debug.slices import Key, Slicer
from npu_sim.debug.suspicion import Evidence, suspicion
from npu_sim.dtypes.formats import DTYPE_OF_DATA
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Data, Space
from npu_sim.isa.footprint import ATOMIC_ADD, READ, WRITE
from npu_sim.isa.row import INSTR
from npu_sim.memory.gm import GmTensor
from npu_sim.program.disassemble import disassemble

MOST_SIBLINGS = 6
"""Stores with right results that a wrong one is held against."""
_NOBODY = -1
_SURE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongTensor:
    """A tensor beside its golden.

    Attributes
    ----------
    name : str
    budget, max_ulp : float
        In units of the last place (`npu_sim.debug.distance`): what is allowed, and the largest error.
    wrong_count, element_count : int
        Elements over budget, and all.
    index : tuple of int
        The first that is over budget, in the shape of the golden; () without one.
    actual, golden, error_ulps : float
        There.
    """

    name: str
    budget: float
    max_ulp: float
    wrong_count: int
    element_count: int
    index: tuple[int, ...] = ()
    actual: float = 0.0
    golden: float = 0.0
    error_ulps: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Divergence:
    """Where a result begins to be wrong.

    Attributes
    ----------
    tensors : tuple of WrongTensor
        Every golden's.
    store : Place or None
        The first instruction, in the order in which they run, that leaves a wrong element; None: nobody writes any of
        the wrong elements.
    suspect : Place or None
        The first instruction behind that element that has no like behind right elements; None: there is none, or every
        element is wrong.
    reason : str
        What singles it out, or why nothing does.
    chain : tuple of Place
        What the store's bytes came from, itself too, in the order in which it runs.
    operands, results : tuple of Operand
        What the suspect, or else the store, reads and writes.
    executions : int
        How often the program ran to find it.
    """

    tensors: tuple[WrongTensor, ...]
    store: Place | None
    suspect: Place | None
    reason: str
    chain: tuple[Place, ...] = ()
    operands: tuple[Operand, ...] = ()
    results: tuple[Operand, ...] = ()
    executions: int = 1

    @property
    def place(self) -> Place | None:
        """Where to look: the suspect, else the store."""
        return self.suspect or self.store


def compare(
    place: GmTensor, actual: np.ndarray, golden: np.ndarray, budget: float | None
) -> tuple[WrongTensor, np.ndarray]:
    """Return how a tensor compares with its golden, and bool[n], which elements are wrong.

    Raises
    ------
    ShapeError
        They have other numbers of elements, or the tensor's type is not known.
    """
    if place.data == Data.NONE:
        raise ShapeError(f"tensor {place.name} must have an element type to be compared, not bytes alone")
    kind = DTYPE_OF_DATA[place.data]
    have = np.ascontiguousarray(actual).reshape(-1).view(np.uint8).view(kind.storage)
    if have.size != golden.size:
        raise ShapeError(f"golden of {place.name} must have {have.size} elements, not {golden.size}")
    allowed = default_budget(kind) if budget is None else budget
    want = golden.reshape(-1)
    far = distances(have, want, kind, root_mean_square(want.astype(np.float64)))
    wrong = far > allowed
    found = WrongTensor(
        name=place.name,
        budget=allowed,
        max_ulp=float(far.max()) if far.size else 0.0,
        wrong_count=int(np.count_nonzero(wrong)),
        element_count=far.size,
    )
    if found.wrong_count:
        first = int(np.argmax(wrong))
        where = tuple(int(i) for i in np.unravel_index(first, golden.shape))
        found = WrongTensor(
            **{name: getattr(found, name) for name in ("name", "budget", "max_ulp", "wrong_count", "element_count")},
            index=where,
            actual=float(have[first]),
            golden=float(want[first]),
            error_ulps=float(far[first]),
        )
    return found, wrong


def diverge_from_golden(
    execution: Execution, goldens: Mapping[str, np.ndarray], budget: float | None = None
) -> Divergence:
    """Return where an execution leaves its goldens.

    The wrong elements are followed back to the first store that leaves any of them, and what that store's bytes came
    from is held against what the bytes of right stores of the same line came from: instructions with other operands,
    of other tiles, too many or too few single out the suspect.

    Parameters
    ----------
    execution : Execution
    goldens : mapping of str to array
        What tensors should hold behind it, by name.
    budget : float or None
        Units of the last place that an element may be off; None: `default_budget` of its type.

    Raises
    ------
    ShapeError
        A golden belongs to no tensor, or has another number of elements.
    """
    machine = execution.machine()
    machine.run()
    gm = execution.launches[0].gm
    bad = np.zeros(gm.total_bytes, np.bool_)
    judged = np.zeros(gm.total_bytes, np.bool_)
    tensors = []
    for name, golden in goldens.items():
        place = machine.extent(name)
        found, wrong = compare(place, machine.tensor(name), golden, budget)
        tensors.append(found)
        where = slice(place.address, place.address + place.byte_count)
        bad[where] = np.repeat(wrong, DTYPE_OF_DATA[place.data].item_bytes)
        judged[where] = True
    if not bad.any():
        return Divergence(tensors=tuple(tensors), store=None, suspect=None, reason="every element is within budget")
    return _Search(execution, bad, judged, tuple(tensors)).divergence()


class _Search:
    """From wrong bytes of global memory to a row."""

    def __init__(
        self,
        execution: Execution,
        bad: npt.NDArray[np.bool_],
        judged: npt.NDArray[np.bool_],
        tensors: tuple[WrongTensor, ...],
    ) -> None:
        self._execution, self._bad, self._judged, self._tensors = execution, bad, judged, tensors
        self._slicer = Slicer(execution)
        self._stores = list(self._slicer.stores())
        self._numbers_of = {key: number for number, key in enumerate(self._stores)}
        gm = execution.launches[0].gm
        self._produced = np.zeros(len(gm.tensors), np.bool_)
        last = np.full(gm.total_bytes, _NOBODY, np.int64)
        for number, key in enumerate(self._stores):
            row = self._row(key)
            if 0 <= row["tensor"] < len(self._produced):
                self._produced[row["tensor"]] = True
            for run in self._writes(key):
                strided(last, run)[:] = number
        self._last = last

    def divergence(self) -> Divergence:
        """Return what is found."""
        wrong = [key for key in self._stores if self._is_wrong(key)]
        if not wrong:
            return self._hole()
        found, others = self._evidence(wrong[0]), []
        if found.strength < _SURE:  # others that add to the same bytes may be the ones to blame
            others = [self._evidence(store) for store in self._adders(wrong[0])[:MOST_SIBLINGS] if store != wrong[0]]
            found = max((found, *others), key=lambda one: one.strength)
        if not found.strength and others and (last := self._tile_without_store()) is not None:
            reason = "this is the last instruction of the first tile that stores nothing"
            return Divergence(tensors=self._tensors, store=self._place(last), suspect=None, reason=reason)
        return self._told(found)

    def _evidence(self, store: Key) -> Evidence:
        chain = self._slicer.slice_of(store, self._produced)
        return suspicion(self._slicer, store, chain, self._siblings(store))

    def _told(self, found: Evidence) -> Divergence:
        operands, results = self._numbers(found.store if found.suspect is None else found.suspect)
        return Divergence(
            tensors=self._tensors,
            store=self._place(found.store),
            suspect=None if found.suspect is None else self._place(found.suspect),
            reason=found.reason,
            chain=tuple(self._place(key) for key in found.chain),
            operands=operands,
            results=results,
            executions=2,
        )

    def _hole(self) -> Divergence:
        """Return what can be said where nobody wrote the wrong bytes: a store that others wrote over went astray."""
        for number, key in enumerate(self._stores):
            if all((strided(self._last, run) != number).all() for run in self._writes(key)):
                operands, results = self._numbers(key)
                reason = "nobody writes the wrong elements, and all that this store writes is written again"
                place = self._place(key)
                return Divergence(
                    tensors=self._tensors, store=place, suspect=place, reason=reason, operands=operands,
                    results=results, executions=2,
                )  # fmt: skip
        last = self._tile_without_store() or self._before_the_hole()
        reason = "nobody writes the wrong elements"
        if last is None:
            return Divergence(tensors=self._tensors, store=None, suspect=None, reason=reason)
        reason += "; this is the last instruction of the first tile that stores nothing, or the store before them"
        return Divergence(tensors=self._tensors, store=self._place(last), suspect=None, reason=reason)

    def _tile_without_store(self) -> Key | None:
        """Return the last row of the first tile that stores nothing where others do, None if they all do."""
        stored = {(number, int(self._row((number, at))["tile"])) for number, at in self._stores}
        for number, part in enumerate(self._slicer.parts):
            for tile in np.unique(part.rows["tile"]).tolist():
                if tile >= 0 and (number, tile) not in stored:
                    rows = self._slicer.tile_of((number, int(np.flatnonzero(part.rows["tile"] == tile)[0])))
                    if rows:
                        return rows[-1]
        return None

    def _before_the_hole(self) -> Key | None:
        """Return the store of the last bytes before the first wrong one that anybody wrote."""
        first = int(np.argmax(self._bad))
        written = np.flatnonzero(self._last[:first] >= 0)
        return self._stores[int(self._last[written[-1]])] if len(written) else None

    def _row(self, key: Key) -> np.void:
        return self._slicer.parts[key[0]].rows[key[1]]

    def _writes(self, key: Key) -> list[tuple[int, ...]]:
        return [run for run in self._slicer.runs(key) if run[0] == Space.GM and run[1] != READ]

    def _is_wrong(self, key: Key) -> bool:
        """Return whether a store left a wrong byte: it wrote it last, or added to it."""
        number = self._numbers_of[key]
        for run in self._writes(key):
            bad = strided(self._bad, run)
            if (bad if run[1] == ATOMIC_ADD else bad & (strided(self._last, run) == number)).any():
                return True
        return False

    def _is_right(self, key: Key) -> bool:
        """Return whether all that a store writes is judged and right."""
        runs = self._writes(key)
        return all(strided(self._judged, run).all() and not strided(self._bad, run).any() for run in runs)

    def _adders(self, store: Key) -> list[Key]:
        """Return the stores that add to what a store adds to; of one that does not add, itself."""
        runs = self._writes(store)
        if all(run[1] == WRITE for run in runs):
            return [store]
        own = np.zeros(len(self._bad), np.bool_)
        for run in runs:
            strided(own, run)[:] = True
        return [key for key in self._stores if any(strided(own, run).any() for run in self._writes(key))]

    def _siblings(self, store: Key) -> list[tuple[Key, Sequence[Key]]]:
        """Return right stores of the same line with their slices, the nearest first."""
        site = int(self._row(store)["site"])
        number = self._numbers_of[store]
        right = [key for key in self._stores if int(self._row(key)["site"]) == site and self._is_right(key)]
        right.sort(key=lambda key: abs(self._numbers_of[key] - number))
        return [(key, self._slicer.slice_of(key, self._produced)) for key in right[:MOST_SIBLINGS]]

    def _place(self, key: Key) -> Place:
        part, row = self._slicer.parts[key[0]], self._row(key)
        return Place(
            launch=part.launch,
            phase=part.phase,
            core=part.core,
            row=part.first + key[1],
            tile=int(row["tile"]),
            source=self._execution.launches[part.launch].lines.get(int(row["site"])),
            text=disassemble(row),
        )

    def _numbers(self, key: Key) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
        """Return what a row reads and writes when the program runs once more."""
        place, machine = self._place(key), self._execution.machine()
        machine.run_to(row=place.row, core=place.core, launch=place.launch)
        return read_and_written(machine)


def read_and_written(machine: Machine) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Run one row; return what it read and what it wrote."""
    place, data = machine.place, machine.row.tobytes()
    assert place is not None
    read = tuple(machine.operands())
    machine.step()
    rows = np.frombuffer(data, INSTR)
    return read, tuple(operands_of(rows, 0, machine.memory(place.core), machine.gm, written=True))

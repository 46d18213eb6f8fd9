"""Where bytes come from: the rows that a store's result depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.debug.execution import Execution
from npu_sim.debug.operands import runs_of, strided
from npu_sim.debug.parts import Part
from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import READ, WRITE
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product

Key = tuple[int, int]
"""Number of a part in `Execution.parts`, and of a row in it."""
Signature = tuple[object, ...]
_TILE_AT, _TENSOR_AT, _ADDRESSES_AT, _OPERANDS_AT = 16, 20, 24, 48
_MOST_ROWS = 200_000


@dataclass(slots=True)
class _Needed:
    """Bytes of one memory whose writers are looked for."""

    wanted: npt.NDArray[np.bool_]
    count: int = 0

    def add(self, run: Sequence[int]) -> None:
        part = self._part(run)
        self.count += part.size - int(np.count_nonzero(part))
        part[:] = True

    def has(self, run: Sequence[int]) -> bool:
        return self.count > 0 and bool(self._part(run).any())

    def remove(self, run: Sequence[int]) -> None:
        part = self._part(run)
        self.count -= int(np.count_nonzero(part))
        part[:] = False

    def _part(self, run: Sequence[int]) -> np.ndarray:
        _, _, start, length, repeats, stride = run
        if repeats > 1 and stride < length:  # repetitions that overlap have no gaps
            return self.wanted[start : start + (repeats - 1) * stride + length]
        return strided(self.wanted, run)


@dataclass(slots=True)
class Slicer:
    """The rows of an execution, and the runs that each touches, looked up once.

    Parameters
    ----------
    execution : Execution
    """

    execution: Execution
    _runs: dict[Key, list[tuple[int, ...]]] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Of the execution."""
        return self.execution.parts

    def runs(self, key: Key) -> list[tuple[int, ...]]:
        """Return what a row touches."""
        found = self._runs.get(key)
        if found is None:
            found = runs_of(self.parts[key[0]].rows, key[1])
            if len(self._runs) < _MOST_ROWS:
                self._runs[key] = found
        return found

    def stores(self) -> Iterator[Key]:
        """Yield the rows that write or add to global memory, in the order in which they run."""
        for number, part in enumerate(self.parts):
            for at in np.flatnonzero(part.rows["dst_space"] == Space.GM).tolist():
                if any(run[0] == Space.GM and run[1] != READ for run in self.runs((number, at))):
                    yield number, at

    def slice_of(self, store: Key, produced: npt.NDArray[np.bool_]) -> list[Key]:
        """Return the rows that ``store`` depends on, itself too, first to last.

        Parameters
        ----------
        store : (part, row)
        produced : bool[tensors]
            Of which tensors rows write anything: the bytes of the others are nobody's.
        """
        gm = self.execution.launches[0].gm
        needed: dict[tuple[int, int], _Needed] = {}
        found = [store]
        self._need(store, needed, gm, produced)
        for number in range(store[0], -1, -1):
            part = self.parts[number]
            if number < store[0] and part.launch != self.parts[number + 1].launch:
                needed = {place: held for place, held in needed.items() if place[0] < 0}
            last = store[1] if number == store[0] else len(part.rows)
            for at in range(last - 1, -1, -1):
                if not self._is_open(needed, part.core):
                    break
                if self._serves((number, at), needed, part.core):
                    found.append((number, at))
                    self._need((number, at), needed, gm, produced)
        return found[::-1]

    def _is_open(self, needed: dict[tuple[int, int], _Needed], core: int) -> bool:
        return any(held.count for (owner, _), held in needed.items() if owner in (-1, core))

    def _serves(self, key: Key, needed: dict[tuple[int, int], _Needed], core: int) -> bool:
        """Return whether a row writes what is looked for, and take that off."""
        writes = [run for run in self.runs(key) if run[1] != READ]
        hits = [(run, held) for run in writes if (held := needed.get(_place(run, core))) is not None and held.has(run)]
        for run in writes:
            held = needed.get(_place(run, core))
            if hits and held is not None and run[1] == WRITE:
                held.remove(run)
        return bool(hits)

    def _need(
        self,
        key: Key,
        needed: dict[tuple[int, int], _Needed],
        gm: GlobalMemory,
        produced: npt.NDArray[np.bool_],
    ) -> None:
        part = self.parts[key[0]]
        for run in self.runs(key):
            if run[1] != READ:
                continue
            if run[0] == Space.GM:
                tensor = int(part.rows["tensor"][key[1]])
                if not 0 <= tensor < len(produced) or not produced[tensor]:
                    continue
            place = _place(run, part.core)
            if place not in needed:
                size = gm.total_bytes if run[0] == Space.GM else _capacity(self.execution.product, Space(run[0]))
                needed[place] = _Needed(np.zeros(reserve("Bytes whose writers are looked for", size), np.bool_))
            needed[place].add(run)

    def operands(self, key: Key) -> Signature:
        """Return what a row is apart from its tile and its addresses."""
        data = self.parts[key[0]].rows[key[1]].tobytes()
        return data[:_TILE_AT], data[_TENSOR_AT:_ADDRESSES_AT], data[_OPERANDS_AT:]

    def form(self, key: Key) -> Signature:
        """Return what a row is apart from its tile and from where its operands are in global memory."""
        row = self.parts[key[0]].rows[key[1]]
        inside = (int(row[name]) if row[f"{name}_space"] != Space.GM else None for name in ("dst", "src0", "src1"))
        return *self.operands(key), *inside

    def signature(self, key: Key, store: Key) -> Signature:
        """Return what a row is to a store: its form, how many tiles before the store's it is, whether on its core."""
        tile = int(self.parts[key[0]].rows["tile"][key[1]])
        tiles = int(self.parts[store[0]].rows["tile"][store[1]]) - tile if tile >= 0 else None
        return self.form(key), tiles, self.parts[key[0]].core == self.parts[store[0]].core

    def tile_of(self, key: Key) -> list[Key]:
        """Return the rows of the tile of a row that read or write anything; only itself if it has no tile."""
        part = self.parts[key[0]]
        tile = int(part.rows["tile"][key[1]])
        if tile < 0:
            return [key]
        return [(key[0], at) for at in np.flatnonzero(part.rows["tile"] == tile).tolist() if self.runs((key[0], at))]


def _place(run: Sequence[int], core: int) -> tuple[int, int]:
    return (-1 if run[0] == Space.GM else core, run[0])


def _capacity(product: Product, space: Space) -> int:
    size: int = getattr(product.core, f"{space.name.lower()}_bytes")
    return size

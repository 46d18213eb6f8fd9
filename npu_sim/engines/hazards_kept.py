"""What the hazards engine puts aside of a core that goes on later: behind SyncAll, or in its next turn.

**Turns.** Where cores run by turns (`Launch.by_turns`), a core knows of every pipe of every other what is complete
(`hazards_book.KNOWN`): a flag between cores tells whoever waits for it what the core that set it knew, and what the
pipe that it was queued in knew of its own core. An access to GM follows another core's if that is known to be complete.
Of readers on other cores, and of those that add atomically, one is remembered: where several read the same bytes, the
engine may miss that a writer waits for the last of them only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.engines import hazards_book as kept
from npu_sim.engines import hazards_jit as jitted
from npu_sim.isa.codes import ON_CHIP
from npu_sim.units import BLOCK_BYTES, ceil_div


@dataclass(frozen=True, slots=True)
class KeptCore:
    """A core between two of its phases.

    Attributes
    ----------
    cells : mapping of (space, slot) to int64[cells]
        Shadow cells of its buffers that anything has touched.
    flags, flag_clocks, turned : arrays
        As in `hazards_book.Shadow`.
    handshakes : int64[16]
        Words `HELD` and `TURNED` of the book.
    clocks : int64[64]
        Words `CLOCKS`.
    known : int64[8 * cores]
        Words `KNOWN`; none where cores do not run by turns.
    """

    cells: dict[tuple[int, int], npt.NDArray[np.int64]]
    flags: npt.NDArray[np.int64]
    flag_clocks: npt.NDArray[np.int64]
    turned: npt.NDArray[np.int64]
    handshakes: npt.NDArray[np.int64]
    clocks: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]


def _used(shadow: kept.Shadow) -> list[tuple[int, int, npt.NDArray[np.int64]]]:
    """Return (space, slot, cells) of the buffers of a core, as far as any core has used them."""
    found = []
    for space in ON_CHIP:
        first, capacity = shadow.book[kept.SPACE + 4 * space :][:2].tolist()
        used = shadow.book[kept.USED + kept.SLOTS * space :][: kept.SLOTS]
        cells = slice(first, first + ceil_div(capacity, BLOCK_BYTES))
        found += [(int(space), slot, shadow.slots[slot, cells]) for slot in np.flatnonzero(used).tolist()]
    return found


def put_aside(shadow: kept.Shadow) -> KeptCore:
    """Return what the core that has just ended its phase goes on with."""
    return KeptCore(
        cells={(space, slot): cells.copy() for space, slot, cells in _used(shadow)},
        flags=shadow.flags.copy(),
        flag_clocks=shadow.flag_clocks.copy(),
        turned=shadow.turned.copy(),
        handshakes=shadow.book[kept.HELD : kept.TURNED + kept.PIPES].copy(),
        clocks=shadow.book[kept.CLOCKS : kept.HELD].copy(),
        known=shadow.book[kept.KNOWN :][: 8 * shadow.book[kept.CORES]].copy(),
    )


def go_on(shadow: kept.Shadow, core: KeptCore | None) -> None:
    """Give the shadow the buffers and flags of a core, behind `hazards_jit.begin_core`; None: of one that begins."""
    for space, slot, cells in _used(shadow):
        # no list is lost: what is here was put aside or cleared
        cells[:] = 0 if core is None else core.cells.get((space, slot), 0)
    shadow.book[kept.CHIP_BASE] = shadow.book[kept.LAUNCH_BASE]
    if core is not None:
        shadow.flags[:], shadow.flag_clocks[:], shadow.turned[:] = core.flags, core.flag_clocks, core.turned
        shadow.book[kept.HELD : kept.TURNED + kept.PIPES] = core.handshakes


def take_turn(shadow: kept.Shadow, core: KeptCore) -> None:
    """Let a core go on in the phase that it has begun."""
    book = shadow.book
    book[kept.CORE_BASE] = book[kept.SERIAL]
    go_on(shadow, core)
    book[kept.CLOCKS : kept.HELD] = core.clocks
    book[kept.KNOWN :][: len(core.known)] = core.known


def note_turn(shadow: kept.Shadow, core: int, core_count: int, *, is_new_phase: bool) -> kept.Shadow:
    """Return the shadow for a turn of ``core``, which begins with the next row, one of ``core_count``."""
    book = shadow.book
    turns = 0 if is_new_phase else int(book[kept.TURNS])
    end = kept.KNOWN + 8 * core_count + 2 * turns
    if end + 2 > len(book):
        shadow = shadow._replace(book=np.concatenate((book, np.zeros(end + 2, np.int64))))
        book = shadow.book
    book[end], book[end + 1] = book[kept.SERIAL], core
    book[kept.CORE], book[kept.CORES], book[kept.TURNS] = core, core_count, turns + 1
    return shadow


def forget(shadow: kept.Shadow) -> None:
    """Clear the buffers, and give back the lists, of a core that has ended."""
    for space, slot, cells in _used(shadow):
        first = int(shadow.book[kept.SPACE + 4 * space])
        jitted.clear(shadow, slot, first, first + len(cells), space)

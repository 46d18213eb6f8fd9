"""What the hazards engine puts aside of a core that goes on behind SyncAll (`Launch.keeps_cores`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.engines import hazards_book as kept
from npu_sim.engines import hazards_jit as jitted
from npu_sim.isa.codes import Space
from npu_sim.units import BLOCK_BYTES, ceil_div

_ON_CHIP = tuple(space for space in Space if space not in (Space.NONE, Space.GM))


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
    """

    cells: dict[tuple[int, int], npt.NDArray[np.int64]]
    flags: npt.NDArray[np.int64]
    flag_clocks: npt.NDArray[np.int64]
    turned: npt.NDArray[np.int64]
    handshakes: npt.NDArray[np.int64]


def _used(shadow: kept.Shadow) -> list[tuple[int, int, npt.NDArray[np.int64]]]:
    """Return (space, slot, cells) of the buffers of a core, as far as any core has used them."""
    found = []
    for space in _ON_CHIP:
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


def forget(shadow: kept.Shadow) -> None:
    """Clear the buffers, and give back the lists, of a core that has ended."""
    for space, slot, cells in _used(shadow):
        first = int(shadow.book[kept.SPACE + 4 * space])
        jitted.clear(shadow, slot, first, first + len(cells), space)

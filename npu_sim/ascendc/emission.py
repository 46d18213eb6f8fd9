"""What kernels' programs have handed over, kept: the same call again, with other data, needs no program.

A program knows its arguments, the machine, and of memory what it looks at. Where it has looked at nothing but what is
known before the call (its tiling, structs, lists and tables), it hands the same rows over each time.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npu_sim.ascendc.arguments import Arguments
from npu_sim.ascendc.control import Control
from npu_sim.ascendc.process import Process
from npu_sim.engines.replay import Replay
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import SourceLine, stored_plainly
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import MIB

MOST_ROWS = 1 << 15
"""Of a program whose rows are kept, 4 MiB; of more, emission is a small part of the time that they run."""
_MOST_BYTES, _MOST_CALLS = 32 * MIB, 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a program tells besides rows.

    Attributes
    ----------
    lines : dict of int to SourceLine
        Places in the source by the ``site`` of rows.
    cuts : list of Violation
        What is wrong with copies that do not move all that they were asked to, and divisions by zero.
    looks, plain_stores : sequence of (int, int)
        Bytes of global memory, [begin, end), that it has looked at, and that it has stored to by no row; of pages of
        the host.
    buffers : list of int
        Numbers of named buffers.
    crosses : bool
        Whether a core has set or waited for a flag of others.
    """

    lines: dict[int, SourceLine]
    cuts: list[Violation]
    looks: Sequence[tuple[int, int]]
    plain_stores: Sequence[tuple[int, int]]
    buffers: list[int]
    crosses: bool

    @classmethod
    def by(cls, process: Process) -> Told:
        """Return what a program has told so far."""
        control = process.control
        found = ((site, process.line(site)) for site in control.sites[: control.site_count])
        return cls(
            lines={site: line for site, line in found if line is not None},
            cuts=_cuts(control),
            looks=tuple((int(pages.begin), int(pages.end)) for pages in control.looks[: control.look_count]),
            plain_stores=tuple((int(pages.begin), int(pages.end)) for pages in control.stores[: control.store_count]),
            buffers=list(control.buffers[: control.buffer_count]),
            crosses=bool(control.crosses),
        )

    def has_looked_at(self, data: Sequence[GmTensor]) -> bool:
        """Return whether the program may have looked at these tensors."""
        return any(
            begin < one.address + one.byte_count and one.address < end for begin, end in self.looks for one in data
        )


def _cuts(control: Control) -> list[Violation]:
    return [
        Violation(
            kind=Kind.FIELD_RANGE if cut.unit else Kind.DIVISION_BY_ZERO,
            row=-1,
            tile=-1,
            core=int(cut.core),
            site=int(cut.site),
            detail=f"DataCopy count must be whole blocks of {cut.unit} bytes, not {cut.count} elements of "
            f"{cut.item}: the last {cut.count * cut.item % cut.unit} bytes are not moved"
            if cut.unit
            else "Behind this row the scalar unit divides by zero: the quotient is taken to be 0, the remainder "
            "the dividend",
        )
        for cut in control.cuts[: control.cut_count]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """All that a program has handed over.

    Attributes
    ----------
    programs : sequence of sequence of sequence of uint8[n, 128]
        Rows as they were emitted, by core and phase, in the parts in which they came.
    stored : bool[tensors]
        Whether rows name it as their destination.
    told : Told
    """

    programs: Sequence[Sequence[Sequence[npt.NDArray[np.uint8]]]]
    stored: npt.NDArray[np.bool_]
    told: Told

    def may_have_stored(self, tensor: GmTensor) -> bool:
        """Return whether any byte of a tensor may be another than before the call."""
        return bool(self.stored[tensor.index]) or stored_plainly(tensor, self.told.plain_stores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a call needs that was made before with other data.

    Attributes
    ----------
    product : Product
        Whose rules the rows were held to.
    emission : Emission
    multiplied : str
        What Mmads multiply, as `default_accumulation` names it.
    replay : Replay
    """

    product: Product
    emission: Emission
    multiplied: str
    replay: Replay

    @property
    def byte_count(self) -> int:
        """What this takes."""
        return 2 * self.replay.byte_count


@dataclass
class _Shelf:
    """What is kept by call, of those that were made last."""

    _kept: OrderedDict[bytes, Kept | None] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, call: bytes, product: Product) -> Kept | None:
        """Return what the program of a call (`call_of`) hands over; None: that is not known of a product."""
        with self._lock:
            if call in self._kept:
                self._kept.move_to_end(call)
            kept = self._kept.get(call)
        return kept if kept is not None and kept.product == product else None

    def wants(self, call: bytes) -> bool:
        """Return whether a call was made before: then it pays to keep what its program hands over."""
        with self._lock:
            known = call in self._kept
            self._kept.setdefault(call, None)
            if len(self._kept) > _MOST_CALLS:
                self._kept.popitem(last=False)
        return known

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()

    def keep(self, call: bytes, kept: Kept) -> None:
        """Keep what a program has handed over, in place of what was not used for long."""
        with self._lock:
            self._kept[call] = kept
            while sum(one.byte_count for one in self._kept.values() if one) > _MOST_BYTES:
                self._kept.popitem(last=False)


SHELF = _Shelf()


def call_of(process: Process, arguments: Arguments) -> bytes:
    """Return a name for all that a program knows before it looks at data: itself, the machine and its arguments.

    Parameters
    ----------
    process : Process
        With its memory filled and the machine described, not started.
    arguments : Arguments
    """
    digest = hashlib.blake2b(digest_size=16)
    told = memoryview(process.control).cast("B")[: Control.status.offset]
    parts: list[bytes | memoryview] = [process.words.encode(errors="surrogateescape"), told, *arguments.known_bytes]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()

"""Places of buffers in the memories of a core."""

from __future__ import annotations

from collections.abc import Iterator

from npu_sim.isa.codes import Space
from npu_sim.products import Product
from npu_sim.program.positions import ALIGNMENT_BYTES
from npu_sim.program.verify import space_capacities
from npu_sim.units import align_up


class Allocator:
    """First fit: what was freed is given again, and nothing is moved."""

    def __init__(self, product: Product) -> None:
        self.capacities = space_capacities(product)
        self._taken: dict[Space, list[tuple[int, int]]] = {space: [] for space in self.capacities}

    def take(self, space: Space, byte_count: int) -> int | None:
        """Return the address of that many free bytes, None if there are none."""
        size = align_up(byte_count, ALIGNMENT_BYTES[space])
        for start, end in self._gaps(space):
            if end - start >= size:
                self._taken[space].append((start, start + size))
                self._taken[space].sort()
                return start
        return None

    def give_back(self, space: Space, address: int) -> None:
        """Free what begins at ``address``."""
        self._taken[space] = [taken for taken in self._taken[space] if taken[0] != address]

    def largest_gap(self, space: Space) -> int:
        """Return the bytes of the largest free piece."""
        return max(end - start for start, end in self._gaps(space))

    def _gaps(self, space: Space) -> Iterator[tuple[int, int]]:
        start = 0
        for first, end in self._taken[space]:
            yield start, first
            start = end
        yield start, self.capacities[space]


class Window:
    """A piece of one memory, given from its begin on and never taken back (TBufPool).

    Parameters
    ----------
    space : Space
    start, end : int
        First byte, and the byte behind the last.
    """

    def __init__(self, space: Space, start: int, end: int) -> None:
        self.space, self.start, self.end, self._next = space, start, end, start
        self.capacities = {space: end - start}

    def take(self, space: Space, byte_count: int) -> int | None:
        """Return the address of that many free bytes, None if there are none."""
        address = self._next
        if align_up(byte_count, ALIGNMENT_BYTES[space]) > self.largest_gap(space):
            return None
        self._next += align_up(byte_count, ALIGNMENT_BYTES[space])
        return address

    def largest_gap(self, space: Space) -> int:
        """Return the bytes that are left."""
        return self.end - self._next if space == self.space else 0

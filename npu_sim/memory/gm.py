"""Global memory of a launch: one byte arena with named tensors.

What no tensor that counts as initialised covers starts as poison (`memory.core.POISON_BYTE`), as the buffers of a core
do, so that a store a kernel forgets shows in its result, whatever ran before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Data
from npu_sim.memory.core import POISON_BYTE
from npu_sim.memory.pages import give_back_pages
from npu_sim.units import MIB, align_up

GM_ALIGN_BYTES = 512


def allocated_bytes(byte_count: int) -> int:
    """Return what the runtime allocates for a tensor: 31 spare bytes or more behind it, multiples of 512.

    Source: opbase ``src/nnopbase/composite_op/mem_mgr/memory_allocator.cpp``.
    """
    return (byte_count + 32 + GM_ALIGN_BYTES - 1) & ~(GM_ALIGN_BYTES - 1)


def spare_words(data_end: int, end: int) -> str:
    """Return what an access may touch beside the bytes of a tensor, in words: those up to ``end``, if any."""
    return f" or the {end - data_end} spare bytes behind it" if end > data_end else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GmTensor:
    """A tensor in the arena.

    Attributes
    ----------
    name : str
        For messages.
    index : int
        Position in the table, the ``tensor`` field of rows.
    address : int
        First byte in the arena.
    byte_count : int
        Bytes of the storage (without the spare ones behind it).
    initialised : bool
        Whether a kernel may read it before writing it (inputs, cleared outputs).
    is_output : bool
        Whether the launches have to write all of it.
    """

    name: str
    index: int
    address: int
    byte_count: int
    initialised: bool
    data: Data = Data.NONE
    is_output: bool = False


class _Spare:
    """The arena of a finished call, for the next one: touching fresh pages takes longer than a small kernel."""

    LIMIT_BYTES = 48 * MIB

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arena: npt.NDArray[np.uint8] | None = None

    def take(self, byte_count: int) -> npt.NDArray[np.uint8]:
        """Return that many bytes, new or from a finished call."""
        with self._lock:
            arena, self._arena = self._arena, None
        if arena is None or arena.size < byte_count:
            return np.empty(byte_count, np.uint8)
        return arena[:byte_count]

    def give_back(self, arena: npt.NDArray[np.uint8]) -> None:
        """Keep ``arena`` unless it is large or a larger one is kept."""
        whole = arena if arena.base is None else arena.base
        if not isinstance(whole, np.ndarray) or whole.size > self.LIMIT_BYTES:
            return
        with self._lock:
            if self._arena is None or self._arena.size < whole.size:
                self._arena = whole


_SPARE = _Spare()


def free_spare() -> None:
    """Free the memory that a finished call left for the next one, at most 48 MiB."""
    _SPARE.take(0)


class GlobalMemory:
    """One arena per launch. ``plan`` decides the addresses, `arena` is allocated on first use.

    Timing and hazard runs never touch `arena`, so they cost no memory.

    Parameters
    ----------
    alignment : int
        Where a tensor may begin: at multiples of so many bytes, a multiple of 512.
    """

    def __init__(self, alignment: int = GM_ALIGN_BYTES) -> None:
        self.tensors: list[GmTensor] = []
        self.total_bytes = 0
        self._alignment = alignment
        self._arena: npt.NDArray[np.uint8] | None = None
        self._lent: dict[int, npt.NDArray[np.uint8]] = {}

    def add(
        self,
        name: str,
        byte_count: int,
        *,
        initialised: bool,
        data: Data = Data.NONE,
        address: int | None = None,
        is_output: bool = False,
    ) -> GmTensor:
        """Place a tensor behind the last one, aligned, or at ``address``, a multiple of 512.

        A given address may lie in memory that other tensors use at other times, as the runtime's workspace does.
        """
        if self._arena is not None:
            raise ShapeError(f"Tensor {name} must be added before the arena is used")
        if byte_count < 0 or (address is not None and address < 0):
            raise ShapeError(f"Size and address of {name} must be at least 0, not {byte_count} and {address}")
        if address is not None and address % GM_ALIGN_BYTES:
            raise ShapeError(f"Address of {name} must be a multiple of {GM_ALIGN_BYTES}, not {address}")
        tensor = GmTensor(
            name=name,
            index=len(self.tensors),
            address=align_up(self.total_bytes, self._alignment) if address is None else address,
            byte_count=byte_count,
            initialised=initialised,
            data=data,
            is_output=is_output,
        )
        self.tensors.append(tensor)
        end = align_up(tensor.address + allocated_bytes(byte_count), GM_ALIGN_BYTES)
        self.total_bytes = max(self.total_bytes, end)
        return tensor

    @property
    def arena(self) -> npt.NDArray[np.uint8]:
        """The bytes, uint8[total_bytes]: poison, undefined in initialised tensors until their owner writes them."""
        if self._arena is None:
            self._arena = self._taken()
            end = 0
            for tensor in sorted((t for t in self.tensors if t.initialised), key=lambda t: t.address):
                self._arena[end : tensor.address].fill(POISON_BYTE)
                end = max(end, tensor.address + tensor.byte_count)
            self._arena[end:].fill(POISON_BYTE)
        return self._arena

    def allocate(self, poisoned: Iterable[GmTensor]) -> None:
        """Make the arena, unless it is there, with poison in ``poisoned`` only.

        For launches that are trusted to write all they read: poisoning workspace takes 3 % of a call that only moves.
        """
        if self._arena is None:
            self._arena = self._taken()
            for tensor in poisoned:
                self._arena[tensor.address : tensor.address + tensor.byte_count].fill(POISON_BYTE)

    def fresh(self) -> GlobalMemory:
        """Return a memory of the same tensors whose arena is its own, for one run of launches that others may run."""
        twin = GlobalMemory(self._alignment)
        twin.tensors, twin.total_bytes = self.tensors, self.total_bytes
        return twin

    def _taken(self) -> npt.NDArray[np.uint8]:
        return _SPARE.take(reserve("Global memory of a launch", self.total_bytes))

    def forget(self, tensor: GmTensor) -> None:
        """Give the memory of ``tensor`` back to the host: nobody reads it again before it is written."""
        if self._arena is not None:
            give_back_pages(self._arena[tensor.address : tensor.address + tensor.byte_count])

    def lend(self, tensor: GmTensor, storage: npt.NDArray[np.uint8]) -> None:
        """Let ``storage``, uint8[byte_count], be the bytes of ``tensor`` for those that ask by `bytes_of`.

        Rows of a program see the tensor's place in the arena instead: only for launches that take their shortcut.
        """
        self._lent[tensor.index] = storage

    def bytes_of(self, tensor: GmTensor) -> npt.NDArray[np.uint8]:
        """Return the bytes of ``tensor``, uint8[byte_count], no copy: what was lent, or its place in the arena."""
        lent = self._lent.get(tensor.index)
        return self.arena[tensor.address : tensor.address + tensor.byte_count] if lent is None else lent

    def release(self) -> None:
        """Give the arena and what was lent up: nobody may hold a view into it. Using it again starts anew."""
        self._lent.clear()
        if self._arena is not None:
            _SPARE.give_back(self._arena)
            self._arena = None

    def view(self, tensor: GmTensor, dtype: npt.DTypeLike, shape: Sequence[int]) -> np.ndarray:
        """Return the storage of ``tensor`` as an array of ``dtype`` and ``shape`` (no copy)."""
        return self.bytes_of(tensor).view(dtype).reshape(tuple(shape))

    def table(self) -> npt.NDArray[np.int64]:
        """Return int64[tensors, 4]: address, byte_count, allocated bytes, initialised (0 or 1)."""
        return np.array(
            [[t.address, t.byte_count, allocated_bytes(t.byte_count), int(t.initialised)] for t in self.tensors],
            np.int64,
        ).reshape(len(self.tensors), 4)

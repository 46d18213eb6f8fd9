"""Tensors as kernels see them: an address, a type and how far it goes; never elements."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import Protocol

import numpy as np

from npu_sim.dtypes.formats import DTYPE_OF_DATA, DType, get_dtype
from npu_sim.errors import ShapeError, shown
from npu_sim.isa.codes import Space
from npu_sim.memory.gm import GmTensor
from npu_sim.program.positions import TPosition
from npu_sim.units import BLOCK_BYTES, align_up


class Memory(Protocol):
    """What a tensor is in: the core."""

    def contents(self, tensor: LocalTensor) -> np.ndarray:
        """Return a copy of the elements of a tensor."""


def _element(index: object, what: str) -> int:
    """Return an offset in elements.

    Raises
    ------
    ShapeError
        It is no whole number of 0 or more.
    """
    if isinstance(index, bool | np.bool_) or not isinstance(index, int | np.integer) or index < 0:
        raise ShapeError(f"index of {what} must be a whole number of 0 or more, not {shown(index)}")
    return int(index)


def stored_dtype(key: object) -> DType:
    """Return the type of elements in memory that a user names: ``"half"``, ``"fp16"``, ``np.float16``, ..."""
    return DTYPE_OF_DATA[get_dtype(key).data]


@dataclass(slots=True, eq=False)
class Buffer:
    """Some bytes of a core with a name, from AllocTensor to FreeTensor.

    Attributes
    ----------
    number : int
        ``buffer`` of its rows.
    name : str
    position : TPosition
    space : Space
    address, byte_count : int
        In the space.
    is_alive : bool
        Between AllocTensor and FreeTensor.
    generation : int
        How often it was allocated: a tensor of an earlier allocation is dead.
    freed_at : (code, line) or None
        The last FreeTensor.
    """

    number: int
    name: str
    position: TPosition
    space: Space
    address: int
    byte_count: int
    is_alive: bool = False
    generation: int = 0
    freed_at: tuple[CodeType, int] | None = None


class LocalTensor:
    """Elements of one type in a buffer of a core.

    ``t[i]`` is the tensor from element i on, as in Ascend C; ``t[a:b]`` ends before element b. What the buffer holds
    where the source is now is `numpy`, which also ``print(t)`` and a debugger show.

    Attributes
    ----------
    buffer : Buffer
    data : ElementType
        Type of the elements.
    address, end : int
        First byte, and the byte behind the last, in the space of the buffer.
    """

    __slots__ = ("_core", "_generation", "address", "buffer", "data", "end")
    tensor = -1

    def __init__(self, core: Memory, buffer: Buffer, data: int, address: int, end: int) -> None:
        self._core, self.buffer, self.data, self.address, self.end = core, buffer, data, address, end
        self._generation = buffer.generation

    @property
    def space(self) -> Space:
        """Address space."""
        return self.buffer.space

    @property
    def is_alive(self) -> bool:
        """Whether the allocation that the tensor is part of still lives."""
        return self.buffer.is_alive and self._generation == self.buffer.generation

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return DTYPE_OF_DATA[self.data]

    def __len__(self) -> int:
        """Return the number of elements (GetSize)."""
        return (self.end - self.address) // self.dtype.item_bytes

    def __getitem__(self, index: int | slice) -> LocalTensor:
        item, first, end = self.dtype.item_bytes, index, self.end
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise ShapeError(f"step of a slice of {self.buffer.name} must be 1, not {shown(index.step)}")
            first = index.start or 0
            if index.stop is not None:
                end = self.address + item * _element(index.stop, self.buffer.name)
        address = self.address + item * _element(first, self.buffer.name)
        if not address <= end <= self.end:
            count = len(self)
            raise ShapeError(f"index of {self.buffer.name} must be within its {count} elements, not {shown(index)}")
        part = LocalTensor(self._core, self.buffer, self.data, address, end)
        part._generation = self._generation
        return part

    def reinterpret_cast(self, dtype: object) -> LocalTensor:
        """Return the same bytes as elements of another type (ReinterpretCast)."""
        same = LocalTensor(self._core, self.buffer, int(stored_dtype(dtype).data), self.address, self.end)
        same._generation = self._generation
        return same

    def numpy(self) -> np.ndarray:
        """Return a copy of the elements as they are when every instruction so far has run in program order.

        L0A and L0B come fractal by fractal, [fractal, 16, 32 bytes of k], L0C as float32, or
        int32 of that type, [fractal, 16, 16].
        """
        return self._core.contents(self)

    def __repr__(self) -> str:
        where = f"{self.buffer.name} {self.space.name}[{self.address}:{self.end}] {self.dtype.name}"
        if not self.is_alive:
            return f"{where}, freed"
        return f"{where}\n{self.numpy()}"


class GlobalTensor:
    """Elements in global memory, from some element of an argument on.

    ``x[i]`` is the tensor from element i of the flat array on; ``x[r, c]`` counts as NumPy does, for the whole tensor.

    Attributes
    ----------
    name : str
        Of the argument.
    shape : tuple of int
        Of the array.
    data : ElementType
        Type of the elements.
    tensor : int
        Number of the tensor in rows.
    address, data_end, end : int
        First byte, the byte behind the last one, and that behind the block of 32 bytes with the last one, in the memory
        of the launch.
    """

    __slots__ = ("_start", "address", "data", "data_end", "end", "name", "shape", "tensor")
    space = Space.GM
    is_read_only = False

    def __init__(self, name: str, place: GmTensor, shape: tuple[int, ...], data: int) -> None:
        self.name, self.shape, self.data, self.tensor = name, shape, data, place.index
        self.address = self._start = place.address
        self.data_end = place.address + place.byte_count
        self.end = place.address + align_up(place.byte_count, BLOCK_BYTES)

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return DTYPE_OF_DATA[self.data]

    def __len__(self) -> int:
        """Return the number of elements from here to the end of the array."""
        return (self.data_end - self.address) // self.dtype.item_bytes

    def __getitem__(self, index: int | tuple[int, ...]) -> GlobalTensor:
        item = self.dtype.item_bytes
        if isinstance(index, tuple):
            if len(index) != len(self.shape) or self.address != self._start:
                raise ShapeError(f"index of {self.name} must have {len(self.shape)} numbers, not {shown(index)}")
            pairs = list(zip((_element(i, self.name) for i in index), self.shape, strict=True))
            if any(i >= size for i, size in pairs):
                raise ShapeError(f"index of {self.name} must be within {self.shape}, not {shown(index)}")
            offset = 0
            for i, size in pairs:
                offset = offset * size + i
        elif isinstance(index, slice):
            rule = f"index of {self.name} must be the first element, {self.name}[i]"
            raise ShapeError(f"{rule}: instructions say how many they take, not {shown(index)}")
        else:
            offset = _element(index, self.name)
        part = type(self).__new__(type(self))
        for slot in GlobalTensor.__slots__:
            setattr(part, slot, getattr(self, slot))
        part.address = self.address + item * offset
        if part.address > self.data_end:
            raise ShapeError(f"index of {self.name} must be within its {len(self)} elements, not {shown(index)}")
        return part

    def __repr__(self) -> str:
        return f"{self.name} GM[{self.address}:{self.data_end}] {self.dtype.name} {self.shape}"


class In(GlobalTensor):
    """Annotation of an argument that the kernel only reads."""

    is_read_only = True


class Out(GlobalTensor):
    """Annotation of an argument that the kernel writes, and may read behind that: it begins as poison."""


class InOut(GlobalTensor):
    """Annotation of an argument that the kernel reads and writes, for example adds to."""

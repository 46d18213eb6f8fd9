"""What a buffer of a core holds, as numbers: in the order of the bytes, as fractals, as matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npu_sim.arguments import per_axis, whole
from npu_sim.dtypes.formats import DTYPE_OF_DATA, DType, get_dtype
from npu_sim.errors import ShapeError, shown
from npu_sim.isa.codes import ON_CHIP, Data, Space
from npu_sim.memory.core import CoreMemory
from npu_sim.units import BLOCK_BYTES, FRACTAL_BYTES, ceil_div

SIDE = 16
"""Rows of a fractal; columns too in L0C."""
_CARRIERS = FRACTAL_BYTES // 2
"""float32 carriers of a fractal in L0A and L0B (`memory.core`)."""
_L0C_FRACTAL_BYTES = SIDE * SIDE * 4


@dataclass(frozen=True, slots=True)
class SpaceView:
    """One buffer of a core, to look at; every array that is returned is a copy.

    Attributes
    ----------
    space : Space
        Any but GM.
    memory : CoreMemory
        Of the core.
    """

    space: Space
    memory: CoreMemory

    @property
    def byte_count(self) -> int:
        """Size of the buffer, in bytes of its address space."""
        return self._held.nbytes // (2 if self._is_carried else 1)

    def nd(self, dtype: object, shape: int | tuple[int, ...], start: int = 0) -> np.ndarray:
        """Return elements in the order of their addresses, row-major.

        Parameters
        ----------
        dtype : dtype-like
            ``"fp16"``, ``"half"``, ``np.float16``, ...
        shape : int or tuple of int
        start : int
            Address of the first element, in bytes.

        Raises
        ------
        ShapeError
            They are not all in the buffer, or it is L0A or L0B, where only whole fractals have an order.
        """
        kind = _stored(dtype)
        if self._is_carried:
            raise ShapeError(f"{self.space.name} must be looked at as fractals or as a matrix, not element by element")
        lengths = per_axis("shape", shape, 1)
        if min(lengths, default=0) < 0:
            raise ShapeError(f"shape must have no negative extent, not {shown(shape)}")
        first, last = self._require(start, math.prod(lengths) * kind.item_bytes, kind.item_bytes)
        return self._held.view(np.uint8)[first:last].view(kind.storage).reshape(lengths).copy()

    def fractals(self, dtype: object, count: int, start: int = 0) -> np.ndarray:
        """Return fractals in the order of their addresses: [count, 16, 32 bytes of elements], in L0C [count, 16, 16].

        A fractal of L0A is 16 m by k, one of L0B 16 n by k, one of L0C 16 m by 16 n.

        Raises
        ------
        ShapeError
            They are not all in the buffer, or do not begin where fractals begin.
        """
        kind = _stored(dtype)
        size = _L0C_FRACTAL_BYTES if self.space is Space.L0C else FRACTAL_BYTES
        many = whole("count", count)
        begin, end = self._require(start, many * size, size if self._is_carried else BLOCK_BYTES)
        if not self._is_carried:
            return self.nd(kind, (many, SIDE, size // SIDE // kind.item_bytes), begin)
        first, last = begin // FRACTAL_BYTES, end // FRACTAL_BYTES
        carriers = self._held.view(np.float32)[first * _CARRIERS : last * _CARRIERS]
        return lanes_of(carriers.reshape(many, SIDE, SIDE), kind)

    def matrix(self, dtype: object, rows: int, columns: int, start: int = 0) -> np.ndarray:
        """Return the matrix [rows, columns] that fractals hold in the order of the buffer.

        L0A: [m, k], fractals along k first. L0B: [k, n], fractals along n first. L0C: [m, n], fractals along m first.
        L1 and UB: [rows, columns] as FRACTAL_NZ, columns of 32 bytes, each with all rows.

        Raises
        ------
        ShapeError
            The fractals are not all in the buffer, or do not begin where fractals begin.
        """
        rows, columns = whole("rows", rows), whole("columns", columns)
        if rows < 1 or columns < 1:
            raise ShapeError(f"rows and columns must be at least 1, not {rows} and {columns} ({self.space.name})")
        kind = _stored(dtype)
        depth = BLOCK_BYTES // kind.item_bytes
        if self.space is Space.L0C and kind.item_bytes != 4:
            raise ShapeError(f"dtype must be one of 4 bytes in L0C, not {kind.name}")
        if self.space is Space.L0A:
            down, across = ceil_div(rows, SIDE), ceil_div(columns, depth)
            grid = self.fractals(kind, down * across, start).reshape(down, across, SIDE, depth).transpose(0, 2, 1, 3)
        elif self.space is Space.L0B:
            down, across = ceil_div(rows, depth), ceil_div(columns, SIDE)
            grid = self.fractals(kind, down * across, start).reshape(down, across, SIDE, depth).transpose(0, 3, 1, 2)
        elif self.space is Space.L0C:
            down, across = ceil_div(rows, SIDE), ceil_div(columns, SIDE)
            grid = self.fractals(kind, down * across, start).reshape(across, down, SIDE, SIDE).transpose(1, 2, 0, 3)
        else:
            grid = self.nd(kind, (ceil_div(columns, depth), rows, depth), start).transpose(1, 0, 2)[None]
        return grid.reshape(grid.shape[0] * grid.shape[1], -1)[:rows, :columns].copy()

    @property
    def _held(self) -> np.ndarray:
        held: np.ndarray = getattr(self.memory, self.space.name.lower())
        return held

    @property
    def _is_carried(self) -> bool:
        return self.space in (Space.L0A, Space.L0B)

    def _require(self, start: int, length: int, alignment: int) -> tuple[int, int]:
        """Return the bytes from ``start`` on as [begin, end)."""
        begin = whole("start", start)
        if begin % alignment or length < 0 or not 0 <= begin <= begin + length <= self.byte_count:
            rule = f"must be within its {self.byte_count} bytes and begin at a multiple of {alignment}"
            raise ShapeError(f"what is looked at in {self.space.name} {rule}, not [{begin}:{begin + length}]")
        return begin, begin + length


def space_of(space: Space | str) -> Space:
    """Return a space by itself or its name in any case.

    Raises
    ------
    ShapeError
        There is none of this name.
    """
    try:
        return Space[space.upper()] if isinstance(space, str) else Space(whole("space", space))
    except (KeyError, ValueError):
        raise ShapeError(f"space must be one of GM, {names_of_buffers()}, not {shown(space)}") from None


def names_of_buffers() -> str:
    """Return the names of the spaces of a core, to list them."""
    return ", ".join(space.name for space in ON_CHIP)


def lanes_of(carriers: np.ndarray, kind: DType) -> np.ndarray:
    """Return fractals of L0A or L0B, [count, 16, elements of 32 bytes], of their carriers.

    Of a type of integers a lane that holds none of them, as one that nothing wrote, is 0, or the nearest. Those of
    int8 are the bytes that are there.
    """
    if kind.item_bytes == 1:  # bytes, not carriers
        kept = np.ascontiguousarray(carriers).view(np.uint8).reshape(len(carriers), -1)[:, :FRACTAL_BYTES]
        return kept.reshape(-1, BLOCK_BYTES, SIDE).transpose(0, 2, 1).copy().view(kind.storage)
    lanes = carriers[:, : BLOCK_BYTES // kind.item_bytes].transpose(0, 2, 1)
    if kind.storage.kind in "iu":
        limits = np.iinfo(kind.storage)
        lanes = np.clip(np.nan_to_num(lanes.astype(np.float64)), limits.min, limits.max)
    with np.errstate(over="ignore", invalid="ignore"):
        return lanes.astype(kind.storage)


def _stored(dtype: object) -> DType:
    kind = dtype if isinstance(dtype, DType) else get_dtype(dtype)
    if kind.data == Data.NONE:
        raise ShapeError(f"dtype must be one that memory holds, not {shown(dtype)}")
    return DTYPE_OF_DATA[kind.data]

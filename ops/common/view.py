"""Where the elements of an array lie in a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npu_sim.budget import reserve
from npu_sim.errors import ShapeError

_PLACE_BYTES = 24
"""An int64 for each element, and what sorting them takes."""


def shares_places(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two elements of a strided array lie in one place, so that it cannot be written.

    Raises
    ------
    BudgetError
        If finding out takes more memory than the budget has; axes that nest take none.
    """
    if math.prod(shape) == 0:
        return False
    reach = 0
    nested = True
    for stride, extent in sorted((stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1):
        nested &= stride > reach
        reach += (extent - 1) * stride
    if nested or math.prod(shape) > reach + 1:
        return not nested
    reserve("Places of the elements of a strided array", math.prod(shape) * _PLACE_BYTES)
    places = np.zeros(1, np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    return np.unique(places).size < places.size


@dataclass(frozen=True, slots=True)
class View:
    """Where the elements of an array lie in a tensor.

    Attributes
    ----------
    shape : tuple of int
        Extents.
    strides : tuple of int
        Elements between neighbours of each axis, not negative.
    offset : int
        Elements before the first one.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise ShapeError(f"strides must be given for each of {len(self.shape)} axes, not for {len(self.strides)}")
        if min((*self.shape, *self.strides, self.offset), default=0) < 0:
            raise ShapeError(f"view must have no negative shape, stride or offset, not {self}")

    @classmethod
    def contiguous(cls, shape: Sequence[int], offset: int = 0) -> View:
        """Return the view of a C-ordered array."""
        strides = [1] * len(shape)
        for axis in range(len(shape) - 1, 0, -1):
            strides[axis - 1] = strides[axis] * shape[axis]
        return cls(tuple(shape), tuple(strides), offset)

    @property
    def elems(self) -> int:
        """Elements of the array."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """Elements of the tensor up to the last one of the view."""
        if self.elems == 0:
            return 0
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def of(self, flat: np.ndarray) -> np.ndarray:
        """Return the view of a 1-D array that holds the tensor (no copy)."""
        item = flat.itemsize
        strides = tuple(stride * item for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, strides)

"""The tensor argument of an operator as a descriptor, without its data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npu_sim.errors import ShapeError
from ops.common.view import shares_places

FORMAT_OF_RANK = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
"""Format of a tensor of a convolution in 1D, 2D and 3D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDesc:
    """A tensor as a view into a flat storage.

    Attributes
    ----------
    shape : tuple of int
        Extents in elements; zeros are allowed.
    dtype : str
        "fp32", "fp16", "bf16", or the lower-case name of another type of the interface ("int8", "double").
    format : str
        Name of the storage format ("NCHW", "ND").
    strides : tuple of int or None
        Elements between neighbours along each axis, not negative; None: contiguous.
    offset : int
        Element of the storage at which the view begins.
    storage_elems : int
        Elements of the storage; negative (the default): as many as the view reaches.

    Raises
    ------
    ShapeError
        An extent, stride or offset is negative, there is not one stride per axis, or the view leaves its storage.
    """

    shape: tuple[int, ...]
    dtype: str
    format: str
    strides: tuple[int, ...] | None = None
    offset: int = 0
    storage_elems: int = -1

    def __post_init__(self) -> None:
        for axis, extent in enumerate(self.shape):
            if extent < 0:
                raise ShapeError(f"viewDims[{axis}] must be at least 0, not {extent}")
        if self.strides is not None:
            if len(self.strides) != len(self.shape):
                rule = f"one per axis of {list(self.shape)}"
                raise ShapeError(f"strides must be {rule}, not {list(self.strides)}")
            for axis, stride in enumerate(self.strides):
                if stride < 0:
                    raise ShapeError(f"strides[{axis}] must be at least 0, not {stride}")
        if self.offset < 0:
            raise ShapeError(f"offset must be at least 0, not {self.offset}")
        end = self.end
        if self.storage_elems < 0:
            object.__setattr__(self, "storage_elems", end)
        elif end > self.storage_elems:
            view = f"shape {list(self.shape)}, strides {list(self.element_strides)}, offset {self.offset}"
            raise ShapeError(f"storage must be at least {end} elements, not {self.storage_elems} ({view})")

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elems(self) -> int:
        """Elements of the view."""
        return prod(self.shape)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements, also of a contiguous tensor."""
        if self.strides is not None:
            return self.strides
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(self.rank))

    @property
    def end(self) -> int:
        """One past the last element of the storage that the view reaches; the offset itself for an empty view."""
        count = self.elems
        if count == 0 or self.strides is None:
            return self.offset + count
        reach = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return self.offset + reach + 1

    @property
    def is_contiguous(self) -> bool:
        """Whether the view's elements lie one after the other in C order (axes of extent 1 do not matter)."""
        if self.strides is None:
            return True
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements of the view share a place, so that it cannot be written."""
        return shares_places(self.shape, self.element_strides)

    def view(self, storage: np.ndarray) -> np.ndarray:
        """Return the array of shape `shape` over a flat storage; writing to it writes to the storage.

        Parameters
        ----------
        storage : array
            One axis, at least `storage_elems` elements of the tensor's type.

        Raises
        ------
        ShapeError
            The storage is too short or not flat.
        """
        if storage.ndim != 1 or storage.size < self.storage_elems:
            rule = f"flat with at least {self.storage_elems} elements"
            raise ShapeError(f"storage must be {rule}, not of shape {list(storage.shape)}")
        if self.elems == 0:
            return storage[:0].reshape(self.shape)
        step = storage.strides[0]
        strides = tuple(stride * step for stride in self.element_strides)
        return np.lib.stride_tricks.as_strided(
            storage[self.offset :], self.shape, strides, writeable=storage.flags.writeable
        )


def described(shape: tuple[int, ...], dtype: str) -> TensorDesc:
    """Return the descriptor of a contiguous tensor of a convolution, in the format of its rank."""
    return TensorDesc(shape=shape, dtype=dtype, format=FORMAT_OF_RANK.get(len(shape), "ND"))


def present(desc: TensorDesc | None) -> TensorDesc:
    """Return the descriptor of a tensor of a checked call, which is no null pointer."""
    assert desc is not None, "a checked call holds no null pointer where a tensor is needed"
    return desc

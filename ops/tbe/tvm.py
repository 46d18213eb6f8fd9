"""Placeholders, under the name by which TBE programs import them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy.typing as npt

from npu_sim.arguments import ints
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import ShapeError, shown

__all__ = ["Placeholder", "placeholder"]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A named input that gets its array when the result is run.

    Attributes
    ----------
    name : str
        Key of the array.
    shape : tuple of int
        Any; the DSL function checks it.
    dtype : str
        Any; the DSL function checks it.

    Raises
    ------
    ShapeError
        If one is of another Python type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        for what, value, kind in (("name", self.name, str), ("shape", self.shape, tuple), ("dtype", self.dtype, str)):
            if not isinstance(value, kind):
                raise ShapeError(f"{what} of a placeholder must be a {kind.__name__}, not {shown(value)}")


def placeholder(shape: Sequence[int], dtype: str | npt.DTypeLike = "float32", name: str = "placeholder") -> Placeholder:
    """Return a placeholder; the parameters, their order and defaults are TVM's.

    Raises
    ------
    ShapeError
        If ``shape`` is not a sequence of ints, or ``name`` not a str.
    DTypeError
        If ``dtype`` is neither a name nor a dtype of a number format.

    Examples
    --------
    >>> placeholder((16, 8, 1, 72, 72, 16), name="fmap", dtype="float16")
    Placeholder(name='fmap', shape=(16, 8, 1, 72, 72, 16), dtype='float16')
    """
    extents = ints(f"shape of placeholder {name if isinstance(name, str) else shown(name)}", shape)
    if not isinstance(dtype, str):
        dtype = get_dtype(dtype).storage.name
    return Placeholder(name, extents, dtype)

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
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


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
    if not isinstance(name, str):
        raise ShapeError(f"name of a placeholder must be a str, not {shown(name)}")
    extents = ints(f"shape of placeholder {name}", shape)
    if not isinstance(dtype, str):
        dtype = get_dtype(dtype).storage.name
    return Placeholder(name, extents, dtype)

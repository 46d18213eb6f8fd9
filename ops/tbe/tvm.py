"""Placeholders, under the name by which TBE programs import them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from npu_sim.errors import ShapeError

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


def placeholder(shape: Sequence[int], dtype: str = "float32", name: str = "placeholder") -> Placeholder:
    """Return a placeholder; the parameters, their order and defaults are TVM's.

    Raises
    ------
    ShapeError
        If ``shape`` is not a sequence of ints.

    Examples
    --------
    >>> placeholder((16, 8, 1, 72, 72, 16), name="fmap", dtype="float16")
    Placeholder(name='fmap', shape=(16, 8, 1, 72, 72, 16), dtype='float16')
    """
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise ShapeError(f"shape of placeholder {name} must be a sequence of ints, not {shape!r}") from None
    return Placeholder(name, extents, str(dtype))

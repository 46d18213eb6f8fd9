"""Fields of a request in a file: names in any case and with or without underscores, numbers, shapes, types, formats.

A tensor is a shape, with its type and format in fields of their own, or an object with ``shape``, ``dtype`` and
``format``. Types have the names of NumPy, PyTorch, the profiler and the C interface: FLOAT, DT_BF16, ACL_FLOAT16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from npu_sim.arguments import ints, whole
from npu_sim.dtypes.formats import DTYPES, get_dtype
from npu_sim.errors import InputFileError, ShapeError, shown

_DTYPES = {"float": "fp32", "bool": "uint8", "uint16": "int16", "uint32": "int32", "uint64": "int64", "double": "int64"}
"""Names that `get_dtype` lacks; unsigned and wide types move as the signed ones of their width."""
_PLAIN_FORMATS = ("", "DEFAULT", "DEFAULTFORMAT", "FORMAT_ND")
_FRACTALS = {
    "FRACZ": "FRACTAL_Z", "FRAC_Z": "FRACTAL_Z", "FRACNZ": "FRACTAL_NZ", "FRAC_NZ": "FRACTAL_NZ",
    "NZ": "FRACTAL_NZ",
}  # fmt: skip


MOST_BLOCKS = 1024
"""Blocks of a request: many times the cores of any product; memory is taken for each."""


class RequestError(InputFileError):
    """A request that says too little, contradicts itself, or names what does not exist."""


def key_of(name: str) -> str:
    """Return a name without case, underscores and hyphens."""
    return name.lower().replace("_", "").replace("-", "")


class Fields:
    """The fields of one request.

    Parameters
    ----------
    values : mapping
        As in the file; of an object in "attrs" the fields count as the request's own, which come first.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        nested = values.get("attrs")
        every = {**(nested if isinstance(nested, Mapping) else {}), **values}
        self._values = {key_of(name): value for name, value in every.items() if value is not None}
        self._names = {key_of(name): name for name in every}
        self._asked: set[str] = set()

    def has(self, *names: str) -> bool:
        """Return whether one of the names is given."""
        return any(self._find(name) is not None for name in names)

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the value of the first name that is given."""
        found = [value for name in names if (value := self._find(name)) is not None]
        return found[0] if found else default

    def given(self, *names: str) -> list[str]:
        """Return those of the names that are given, as the request spells them."""
        return [self._names[key_of(name)] for name in names if self._find(name) is not None]

    def unread(self) -> list[str]:
        """Return the names that nobody has asked for."""
        return [self._names[key] for key in self._values if key not in self._asked]

    def was_asked(self, name: str) -> bool:
        """Return whether somebody has looked for the name, given or not."""
        return key_of(name) in self._asked

    def _find(self, name: str) -> Any:
        key = key_of(name)
        self._asked.add(key)
        return self._values.get(key)

    def number(self, *names: str, default: int) -> int:
        """Return a whole number; of a list its first."""
        value = self.get(*names, default=default)
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = value[0]
        return whole(names[0], value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a truth value: a bool, 0 or 1, "true", "yes"."""
        value = self.get(*names, default=default)
        if isinstance(value, str):
            return value.strip().lower() in ("true", "yes", "1")
        return bool(value)

    def text(self, *names: str, default: str = "") -> str:
        """Return a word."""
        value = self.get(*names, default=default)
        return value if isinstance(value, str) else str(value)

    def ints(self, *names: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Return whole numbers: a list, or one."""
        value = self.get(*names, default=default)
        return ints(names[0], [value] if isinstance(value, int) else value)

    def per_axis(self, axes: int, *names: str, default: int) -> tuple[int, ...]:
        """Return one number for each of the last ``axes`` axes; longer lists end in them, shorter ones begin with 1."""
        values = self.ints(*names, default=(default,))
        if len(values) == 1:
            return values * axes
        return values[-axes:] if len(values) >= axes else (default,) * (axes - len(values)) + values

    def shape(self, *names: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor, None if it is not given."""
        value = self.get(*names)
        if isinstance(value, Mapping):
            value = value.get("shape")
        return None if value is None else ints(names[0], value)

    def require_shape(self, *names: str) -> tuple[int, ...]:
        """Return the shape of a tensor that must be given."""
        shape = self.shape(*names)
        if shape is None:
            raise RequestError(f"{names[0]} must be given as a shape")
        return shape

    def dtype(self, *names: str, default: str) -> str:
        """Return a type by the name of `npu_sim.dtypes.formats.DTYPES`."""
        value = self._word("dtype", names)
        return default if value is None else dtype_of(value)

    def _word(self, what: str, names: Sequence[str]) -> Any:
        """Return the first of the names that is no shape; of an object its field ``what``.

        A shape among them stays unread: it was not asked for its extents.
        """
        for name in names:
            if isinstance(self._values.get(key_of(name)), list | tuple):
                continue
            value = self.get(name)
            value = value.get(what) if isinstance(value, Mapping) else value
            if value is not None:
                return value
        return None

    def block_dim(self) -> int | None:
        """Return the number of cores, None if it is not given; of a list the product."""
        given = self.ints("block_dim", "core_num", default=())
        # a tuning record has 0 for an axis that is not cut
        blocks = given[0] if len(given) == 1 else prod(value for value in given if value) if given else None
        if blocks is not None and not 0 < blocks <= MOST_BLOCKS:
            raise RequestError(f"block_dim must be in [1, {MOST_BLOCKS}], not {shown(blocks)}")
        return blocks

    def format(self, *names: str, default: str = "") -> str:
        """Return a format in capitals, "" for a plain tensor in C order."""
        # a profiler writes the number of groups behind a colon
        text = str(self._word("format", names) or default).upper().partition(":")[0].strip()
        text = _FRACTALS.get(text, text)
        return "" if text in _PLAIN_FORMATS else text


def dtype_of(name: object) -> str:
    """Return a type by any of its names.

    Raises
    ------
    DTypeError
        There is none.
    """
    if not isinstance(name, str):
        return get_dtype(name).name
    text = name.strip().lower()
    for prefix in ("torch.", "dt_", "acl_"):
        text = text.removeprefix(prefix)
    return _DTYPES.get(text) or get_dtype(text).name


def moved_as(shape: tuple[int, ...], dtype: str) -> tuple[tuple[int, ...], str]:
    """Return shape and type of 2 or 4 bytes of the same size in memory, for kernels that only move bits.

    Elements of 8 bytes are pairs of 4; elements of 1 byte lie in pairs along the last axis, the last one alone.
    """
    item = DTYPES[dtype].item_bytes
    if item == 8:
        return (*shape, 2), "fp32"
    if item == 1:
        return ((*shape[:-1], (shape[-1] + 1) // 2) if shape else (1,)), "fp16"
    return shape, "fp16" if item == 2 else "fp32"


def elements(shape: Sequence[int]) -> int:
    """Return how many elements a shape has; that of a scalar is ().

    Raises
    ------
    ShapeError
        An extent is negative.
    """
    if min(shape, default=0) < 0:
        raise ShapeError(f"shape must have no negative extent, not {shown(tuple(shape))}")
    return prod(shape)

"""Records made again from the plain data that `npu_sim.report.record` makes of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

T = TypeVar("T")


@cache
def _hints(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def from_plain(record: type[T], value: Any) -> T:
    """Return a record from its plain form, as JSON gives it back.

    Parameters
    ----------
    record : type
        A dataclass whose fields are annotated with dataclasses, tuples, mappings of str, literals, scalars, and unions
        of one of them with None.
    value : object
        What `npu_sim.report.record.to_plain` made.

    Returns
    -------
    record

    Raises
    ------
    TypeError, ValueError, KeyError
        The value is no such record.
    """
    made: T = _made(record, value)
    return made


def _made(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _made(inner, value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {arguments}")
        return value
    if origin is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise TypeError(f"a list is expected, not {value!r}")
        inner = [arguments[0]] * len(value) if arguments[1:] == (...,) else arguments
        return tuple(_made(one, item) for one, item in zip(inner, value, strict=True))
    if origin is Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TypeError(f"an object is expected, not {value!r}")
        return {key: _made(arguments[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        hints = _hints(typing.cast(type, kind))
        if not isinstance(value, Mapping) or set(value) != {field.name for field in dataclasses.fields(kind)}:
            raise TypeError(f"the fields of {kind} are expected")
        return typing.cast(Any, kind)(**{name: _made(hints[name], item) for name, item in value.items()})
    if kind is float and isinstance(value, str):
        return float(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        # a count in a field of figures stays one, so that its plain form is the same again
        return value
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise TypeError(f"{kind} is expected, not {value!r}")

"""The methods of a core, one for each instruction there is: found from the table of instructions, not listed.

A method is called like the instruction's module. Tensors stand where the row has addresses, and bring space, type and
GM tensor with them; other operands have the names and units of the emitter; each bit of ``mode`` is a keyword.
As in `npu_sim.isa.emitter`, a method is put together as source text, which costs nothing when it is called.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from npu_sim.authoring.tensors import stored_dtype
from npu_sim.dtypes.formats import DTYPE_OF_DATA
from npu_sim.errors import DTypeError, shown
from npu_sim.isa.codes import Data, Mode
from npu_sim.isa.instruction import Instruction

_TENSORS = ("dst", "src", "src0", "src1", "src_a", "src_b", "bias", "scales", "index")
_STATE = Mode.ATOMIC | Mode.ATOMIC_MAX | Mode.ATOMIC_MIN | Mode.HF32
"""Bits that no call sets: SetAtomicAdd, Max, Min and SetHF32Mode do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the method of an instruction is called.

    Attributes
    ----------
    instruction : Instruction
    tensors : tuple of str
        Parameters that are tensors.
    alike : tuple of str
        Those of them that must be of one type.
    typed : str
        The tensor whose type ``dtype`` of the row is; "" if there is none.
    has_scalar : bool
        Whether a number of that type is an operand.
    rest : tuple of str
        Other operands.
    flags : tuple of Mode
        Bits of ``mode`` that can be set.
    """

    instruction: Instruction
    tensors: tuple[str, ...]
    alike: tuple[str, ...]
    typed: str
    has_scalar: bool
    rest: tuple[str, ...]
    flags: tuple[Mode, ...]


def emitter_operands(instruction: Instruction) -> list[str]:
    """Return the parameters of an emitter behind ``rows`` and ``n``, without ``site`` and ``tile``."""
    emit = getattr(instruction.emit, "py_func", instruction.emit)
    return list(inspect.signature(emit).parameters)[2:-2]


def shape_of(instruction: Instruction) -> Shape:
    """Return how the method of an instruction is called."""
    operands = emitter_operands(instruction)
    tensors = tuple(name for name in operands if name in _TENSORS) if instruction.routes else ()
    sources = tuple(name for name in tensors if name != "dst")
    typed = (*sources, *tensors)[0] if tensors else ""
    own_result = "dst_dtype" in operands or "src_a" in sources
    derived = {*tensors, "value_bits"}
    if tensors:
        derived |= {"dst_space", "src_space", "tensor", "dtype", "src_dtype", "dst_dtype"}
    bits = 0
    for allowed in instruction.modes.values():
        bits |= int(allowed)
    flags = tuple(mode for mode in Mode if mode & bits & ~_STATE) if "mode" in operands else ()
    return Shape(
        instruction=instruction,
        tensors=tensors,
        alike=tuple(name for name in (sources if own_result else tensors) if name not in instruction.own_types),
        typed=typed,
        has_scalar="value_bits" in operands,
        rest=tuple(name for name in operands if name not in derived and name != "mode"),
        flags=flags,
    )


def parameters_of(shape: Shape) -> tuple[list[str], list[str]]:
    """Return the parameters of a method, as source text: those that may stand by position, and keywords."""
    defaults = shape.instruction.defaults
    has_scalar = shape.has_scalar and bool(shape.tensors)
    # beside flags a number is needed for one of them only (the padding of DataCopyPad)
    first = [*shape.tensors, *(["scalar"] if has_scalar and not shape.flags else [])]
    prepared = [name for name in shape.instruction.prepare if name not in first]
    rest = [name.removesuffix("_elems") for name in shape.rest]
    has_default = [name in defaults for name in rest]
    texts = [f"{name}={int(defaults[name])}" if name in defaults else name for name in rest]
    by_position = has_default == sorted(has_default)
    flags = [f"{mode.name.lower()}={bool(mode & defaults.get('mode', 0))}" for mode in shape.flags]
    flags += ["scalar=0"] if has_scalar and shape.flags else []
    front, keywords = [*first, *prepared], flags
    if by_position:
        front += texts
    else:
        keywords = [*texts, *flags]
    return front, keywords


def _value(shape: Shape, operand: str) -> str:
    """Return the expression for an operand of the emitter."""
    given = {
        "dst_space": "dst.space",
        "src_space": "src.space",
        "tensor": f"max({', '.join(f'{name}.tensor' for name in (*shape.tensors, *shape.tensors[:1]))})",
        "dtype": f"{shape.typed}.data",
        "src_dtype": "src.data",
        "dst_dtype": "dst.data",
    }
    if operand == "value_bits":
        own = shape.instruction.scalar_type
        data = f"{shape.typed}.data" if own is None else int(own)
        return f"self._bits(frame, scalar, {data})" if shape.typed else "value_bits"
    if operand == "mode":
        return " | ".join(["0", *(f"({int(mode)} if {mode.name.lower()} else 0)" for mode in shape.flags)])
    if operand in shape.tensors:
        return f"{operand}.address"
    if shape.tensors and operand in given:
        return given[operand]
    if operand == "dtype":
        return "_type(dtype)"
    return operand.removesuffix("_elems")


def scalar_bits(value: object, data: int) -> int:
    """Return the bit pattern of a number as an element of type ``data``, rounded to it once.

    Raises
    ------
    DTypeError
        It is no real number.
    """
    storage = DTYPE_OF_DATA[data]
    try:
        if isinstance(value, bool | np.bool_) or not isinstance(value, Number | np.generic | np.ndarray):
            raise TypeError
        number = np.asarray(value)
        if number.ndim or number.dtype.kind not in "iufV":  # V: ml_dtypes
            raise TypeError
        with np.errstate(over="ignore"):  # too large for the type is its infinity
            element = number.astype(storage.storage)
        if not (storage.is_float or int(element) == value):
            raise TypeError
    except Exception:  # whatever stands for a number may raise what it likes
        raise DTypeError(f"scalar must be a number of {storage.name}, not {shown(value)}") from None
    bits: int = element.view(f"u{storage.item_bytes}").item()
    return bits


def _type(dtype: object) -> int:
    return int(Data.NONE if dtype is None else stored_dtype(dtype).data)


def method_of(instruction: Instruction) -> Callable[..., int]:
    """Return the method of an instruction for `npu_sim.authoring.core.Core`; it returns the number of its row."""
    shape = shape_of(instruction)
    front, keywords = parameters_of(shape)
    name = instruction.name.lower()
    head = ", ".join(["self", *front, *(["*", *keywords] if keywords else [])])
    values = "".join(f"{_value(shape, operand)}, " for operand in emitter_operands(instruction))
    prepared = ", ".join(f"{key!r}: {key}" for key in instruction.prepare)
    tensors = ", ".join([*shape.tensors, ""]) if shape.tensors else ""
    lines = [
        f"def {name}({head}):",
        "    frame = _frame(1)",
        f"    self._use(_shape, frame, ({tensors}))" if shape.tensors else "    pass",
        f"    return self._append(_instruction, frame, ({values}), ({tensors}), {{{prepared}}})",
    ]
    space: dict[str, Any] = {
        "__name__": __name__,
        "_frame": sys._getframe,
        "_shape": shape,
        "_instruction": instruction,
        "_type": _type,
    }
    exec("\n".join(lines), space)
    method: Callable[..., int] = space[name]
    method.__qualname__ = f"Core.{name}"
    method.__doc__ = _described(shape, inspect.getdoc(getattr(instruction.emit, "py_func", instruction.emit)) or "")
    return method


def _described(shape: Shape, text: str) -> str:
    """Return what an emitter says of itself, and how the method has what is named there and is no parameter of it."""
    words = []
    if shape.has_scalar and shape.tensors and "value" in text:
        words.append("The value (``value_bits``) is ``scalar``, a number.")
    words += [
        f"`Mode.{mode.name}` in ``mode`` is ``{(mode.name or '').lower()}=True``."
        for mode in shape.flags
        if "mode" in text or f"Mode.{mode.name}" in text
    ]
    if shape.tensors:
        whose = {"dtype": shape.typed, "src_dtype": "src", "dst_dtype": "dst", "tensor": shape.tensors[-1]}
        words += [f"``{name}`` is that of ``{owner}``." for name, owner in whose.items() if f"``{name}``" in text]
    words += [
        f"``{name}`` is ``{name.removesuffix('_elems')}``."
        for name in shape.rest
        if f"``{name}``" in text and name.endswith("_elems")
    ]
    head, mark, rest = text.partition("\n\nParameters")
    return "\n\n".join([head, *([" ".join(words)] if words else [])]) + mark + rest

"""The C++ header that the table of instructions is for kernels: codes, the row, one emitter for each instruction.

It is made from the records, so an instruction that the machine learns has its emitter in C++ at once, and a family of
vector instructions its public names as well.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.isa import emit as emitters
from npu_sim.isa.codes import SPACES, Data, Mode, Pipe, Space
from npu_sim.isa.emitter import stores_of
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.instructions.data_copy import emit_data_copy
from npu_sim.isa.op import OPS
from npu_sim.isa.row import INSTR, LIST_FIELDS, ROW_BYTES
from npu_sim.program.positions import TPosition

_NAMED = ("site", "tile", "dst_space")
"""Fields that the runtime reads or writes by itself."""
_SETTERS = ("set_feature_map", "set_window")
_C_TYPES = {"u1": "uint8_t", "u2": "uint16_t", "i4": "int32_t", "i8": "int64_t"}
_ELEMENTS = {
    "half": ("FP16",),
    "bfloat16_t": ("BF16",),
    "float": ("FP32",),
    "int32_t": ("INT32",),
    "int16_t": ("INT16",),
    "int8_t": ("INT8",),
    "uint8_t": ("UINT8",),
    "int64_t": ("INT64",),
    "uint32_t": ("UINT32", "INT32"),
    "uint16_t": ("UINT16", "INT16"),
    "uint64_t": ("UINT64", "INT64"),
    "double": ("FP64", "INT64"),
    "bool": ("UINT8",),
}
"""The element type of each C++ type: the first that the machine has; the others move the same bytes."""


def registry_header() -> str:
    """Return the header's text."""
    parts = [
        "// Generated from the table of instructions. The row is described in npu_sim/isa/row.py.",
        "#pragma once",
        '#include "npusim/row.h"',
        "namespace npusim {",
        f"static_assert(sizeof(Row) == {ROW_BYTES});",
        *(f"constexpr int {name.upper()}_AT = {_place(name)[1]};" for name in _NAMED),
        *_positions(),
        *_codes(),
        *_elements(),
        *(f"#define NPUSIM_HAS_{instruction.name} 1" for instruction in OPS),
        *(_emitter(instruction) for instruction in OPS),
        *(_setter(name) for name in _SETTERS),
        *map(_list, LIST_FIELDS),
        "// The pipe of a DataCopy; ALL: there is no such way.",
        "inline int64_t pipe_of(int64_t dst_space, int64_t src_space) {",
        f"  return {_value(emit_data_copy, operands(emit_data_copy), stores_of(emit_data_copy)['pipe'])};",
        "}",
        "}  // namespace npusim",
    ]
    return "\n".join(parts) + "\n"


def _positions() -> Iterator[str]:
    """Yield the logical positions for their enumeration, and their names by number."""
    yield f"#define NPUSIM_POSITIONS {', '.join(f'{name} = {int(at)}' for name, at in TPosition.__members__.items())}"
    names = ", ".join(f'"{position.name}"' for position in TPosition)
    yield f"#define NPUSIM_POSITION_NAMES {names}"


def _place(field: str) -> tuple[np.dtype, int]:
    """Return type and offset of a field of the row."""
    fields: Any = INSTR.fields
    kind, offset = fields[field][:2]
    return kind, offset


def _codes() -> Iterator[str]:
    for name, codes in (("Space", Space), ("Pipe", Pipe), ("Data", Data), ("Mode", Mode)):
        members = ", ".join(f"{member.name} = {int(member)}" for member in codes)
        yield f"namespace {name.lower()} {{ enum : int64_t {{ {members} }}; }}"
    yield f"constexpr int SPACES = {SPACES};"
    members = ", ".join(f"{instruction.name} = {instruction.op}" for instruction in OPS)
    yield f"namespace op {{ enum : uint8_t {{ {members} }}; }}"


def _elements() -> Iterator[str]:
    names = {member.name for member in Data}
    yield "template <class T> struct Element { static constexpr bool known = false; };"
    for cpp, wanted in _ELEMENTS.items():
        name = next(name for name in wanted if name in names)
        exact = str(name == wanted[0] and cpp != "bool").lower()
        body = f"static constexpr bool known = true, exact = {exact}; static constexpr int64_t data = data::{name};"
        yield f"template <> struct Element<{cpp}> {{ {body} }};"


def operands(function: Any) -> list[str]:
    """Return the parameters of an emitter behind ``rows`` and ``n``, without ``site`` and ``tile``."""
    plain = getattr(function, "py_func", function)
    return [name for name in list(inspect.signature(plain).parameters)[2:] if name not in ("site", "tile")]


def _emitter(instruction: Instruction) -> str:
    names = operands(instruction.emit)
    parameters = "".join(f", int64_t {name}" for name in names)
    stores = stores_of(instruction.emit)
    lines = [f"inline Row& emit_{instruction.name.lower()}(Here here{parameters}) {{"]
    if instruction.routes:
        lines.append(f"  before_row(here, {_value(instruction.emit, names, stores['pipe'])});")
    lines.append(f'  Row& row = new_row(here); constexpr const char* api = "{instruction.api}"; (void)api;')
    lines += _stores(instruction.emit, names, stores)
    return "\n".join([*lines, "  return row;", "}"])


def _setter(name: str) -> str:
    function = getattr(emitters, name)
    names = operands(function)
    parameters = "".join(f", int64_t {name}" for name in names)
    lines = [f'inline void {name}(Here here, Row& row{parameters}) {{ constexpr const char* api = "LoadData";']
    return "\n".join([*lines, *_stores(function, names, stores_of(function)), "}"])


def _stores(function: Any, names: list[str], stores: dict[str, Any]) -> Iterator[str]:
    for field, value in stores.items():
        if field in ("site", "tile"):
            continue
        kind, offset = _place(field)
        into = f"{_C_TYPES[kind.str[1:]]}, {offset}"
        if value in names:
            yield f'  put_checked<{into}>(here, row, api, "{field}", {value});'
        else:
            yield f"  put<{into}>(row, {_value(function, names, value)});"


def _value(function: Any, names: list[str], expression: int | str) -> str:
    """Return the C++ expression of what a field gets; of a pipe by spaces a table of what Python says."""
    if not isinstance(expression, str):
        return str(int(expression))
    if expression in names:
        return expression
    scope = getattr(function, "py_func", function).__globals__
    scope = {name: getattr(value, "py_func", value) for name, value in scope.items()}
    used = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
    spaces = [name for name in names if name in used]
    values = [
        int(eval(expression, {**scope, **dict(zip(spaces, given, strict=True))}))
        for given in itertools.product(range(len(Space)), repeat=len(spaces))
    ]
    index = "0"
    for name in spaces:
        index = f"({index}) * {len(Space)} + {name}"
    return f"one_of<{', '.join(map(str, values))}>({index})"


def _list(name: str) -> str:
    offset = _place(name)[1]
    return f"inline void set_{name}(Row& row, int i, uint16_t block) {{ put_at(row, {offset} + 2 * i, block); }}"

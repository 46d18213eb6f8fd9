"""Emitters from a list of operands: jitted functions that write one row each.

What an emitter does is the same for every instruction, down to the order of the stores; what differs is its operands.
As `dataclasses` and `collections.namedtuple` do, the function is put together as source text and compiled.
"""

from __future__ import annotations

import re
from keyword import iskeyword
from typing import Any

from npu_sim._jit import jit
from npu_sim.isa.codes import Pipe, Space

_NAMES: dict[str, Any] = {"GM": Space.GM, "L1": Space.L1, "UB": Space.UB, **Pipe.__members__}
"""What the expression for a pipe can name."""


def emitter_name(api: str) -> str:
    """Return the name of an instruction in lower case: ``add_relu`` for AddRelu, ``and_`` for And."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", api).lower()
    return f"{name}_" if iskeyword(name) else name


def emitter(
    name: str,
    op: int,
    pipe: Pipe | str | None,
    operands: str,
    documentation: str,
    /,
    *,
    names: Any = None,
    **fixed: int,
) -> Any:
    """Return ``emit_<name>(rows, n, operands.., site, tile)``, which writes row ``n`` and returns ``n + 1``.

    Parameters
    ----------
    name : str
        Of the instruction, in lower case.
    op : int
        Opcode.
    pipe : Pipe, str or None
        The pipe it runs on, or an expression of its operands; None where one of them is the pipe.
    operands : str
        Parameters in their order; ``parameter=field`` where the field of the row has another name.
    documentation : str
        Docstring.
    names : mapping, optional
        Further names in ``pipe``.
    **fixed : int
        Fields that it always writes the same; those that name no space are operands which something else fills.
    """
    pairs = [(parameter, field or parameter) for parameter, _, field in (o.partition("=") for o in operands.split())]
    head = {"op": op, "pipe": int(pipe) if isinstance(pipe, Pipe) else pipe, "site": "site", "tile": "tile", "mode": 0}
    given = {field: parameter for parameter, field in pairs}
    stores = head | {field: int(value) for field, value in fixed.items()} | given
    function = _compiled(f"emit_{name}", [*given.values(), "site", "tile"], stores, ["    return n + 1"], names or {})
    function.__doc__ = documentation
    operands_of_row = (*(field for _, field in pairs), *(field for field in fixed if not field.endswith("_space")))
    function.fields = tuple(field for field in operands_of_row if field not in ("tensor", "pipe"))
    return jit(function)


def vector_emitter(name: str, op: int, operands: str, documentation: str, /, **fixed: int) -> Any:
    """Return the `emitter` of an instruction of the vector unit whose operands are all in UB."""
    fields = {operand.rpartition("=")[2] for operand in operands.split()}
    spaces = {f"{field}_space": Space.UB for field in ("dst", "src0", "src1") if field in fields}
    return emitter(name, op, Pipe.V, operands, documentation, **spaces, **fixed)


def masked_emitter(name: str, op: int, operands: str, documentation: str, /, **fixed: int) -> Any:
    """Return the `vector_emitter` of an instruction under the vector mask, which `isa.issue` copies into the row."""
    return vector_emitter(name, op, operands, documentation, **fixed, mask_low=-1, mask_high=-1)


def setter(name: str, fields: tuple[str, ...], documentation: str) -> Any:
    """Return ``name(rows, n, fields..)``, which fills operands of row ``n`` before an emitter completes it."""
    function = _compiled(name, list(fields), dict(zip(fields, fields, strict=True)), [], {})
    function.__doc__ = documentation
    return jit(function)


def stores_of(function: Any) -> dict[str, Any]:
    """Return what an emitter or a setter writes: by field a number, a parameter or an expression of parameters."""
    stores: dict[str, Any] = getattr(function, "py_func", function).stores
    return stores


def _compiled(name: str, parameters: list[str], stores: dict[str, Any], end: list[str], names: Any) -> Any:
    """Return the function ``name(rows, n, parameters..)`` that writes ``stores`` to row ``n``."""
    lines = [f"def {name}(rows, n, {', '.join(parameters)}):", "    row = rows[n]"]
    lines += [f"    row[{field!r}] = {value}" for field, value in stores.items()]
    space: dict[str, Any] = {"__name__": __name__, **_NAMES, **names}
    exec("\n".join(lines + end), space)
    space[name].stores = stores
    return space[name]

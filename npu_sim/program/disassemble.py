"""Rows as text: one line per instruction, with the names of Ascend C and every operand that `isa.op.OPS` lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from npu_sim.isa.op import SPEC_OF_OP, Data, Mode, Op, OpSpec, Pipe, Space
from npu_sim.isa.row import LIST_FIELDS
from npu_sim.units import BLOCK_BYTES

_TYPE_NAMES = {
    Data.NONE: "none",
    Data.FP16: "half",
    Data.BF16: "bfloat16_t",
    Data.FP32: "float",
    Data.INT32: "int32_t",
    Data.INT16: "int16_t",
    Data.INT8: "int8_t",
    Data.UINT8: "uint8_t",
    Data.INT64: "int64_t",
}
_ADDRESSES = ("dst", "src0", "src1")
_ONE_INPUT = {"dst": Space.UB, "src0": Space.UB}
_TWO_INPUTS = {**_ONE_INPUT, "src1": Space.UB}
OPERAND_SPACES: dict[Op, dict[str, Space]] = {
    Op.MMAD: {"dst": Space.L0C, "src0": Space.L0A, "src1": Space.L0B},
    Op.FIXPIPE: {"src0": Space.L0C},
    Op.L0C_TO_UB: {"dst": Space.UB, "src0": Space.L0C},
    Op.DUPLICATE: {"dst": Space.UB},
    **{op: _TWO_INPUTS for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN)},
    **{op: _ONE_INPUT for op in (Op.MULS, Op.ADDS, Op.CAST, Op.REDUCE_REPEAT)},
}
"""Spaces of operands whose row has no field for them."""


def name_of(row: np.void) -> str:
    """Return the Ascend C name of the instruction in ``row``, or ``Op<number>`` for an unknown opcode."""
    spec = _spec(row)
    if spec is None:
        return "Nop" if int(row["op"]) == Op.NOP else f"Op<{int(row['op'])}>"
    if spec.op == Op.SET_ATOMIC:
        return "SetAtomicNone" if int(row["dtype"]) == Data.NONE else "SetAtomicAdd"
    return spec.api


def pipe_name(pipe: int) -> str:
    """Return the name of a pipe, or its number if there is no such pipe."""
    return Pipe(pipe).name if pipe in Pipe._value2member_map_ else str(pipe)


def space_name(space: int) -> str:
    """Return the name of a space, or its number if there is no such space."""
    return Space(space).name if space in Space._value2member_map_ else f"space{space}"


def type_name(data: int) -> str:
    """Return the Ascend C name of an element type, or its number if there is no such type."""
    return _TYPE_NAMES[Data(data)] if data in Data._value2member_map_ else f"type{data}"


def disassemble(row: np.void) -> str:
    """Return one row as one line.

    Parameters
    ----------
    row : INSTR record
        Any row; fields out of range show as numbers.

    Returns
    -------
    str
        ``"<pipe> <name> <operands>"``, for example ``MTE1 WaitFlag<MTE2_MTE1>(0)`` or
        ``MTE2 DataCopy L1[0x0], GM[0x200] tensor 1, block_count 4, ...``.
    """
    spec = _spec(row)
    pipe = pipe_name(int(row["pipe"]))
    name = name_of(row)
    if spec is None:
        return f"{pipe:<4} {name}"
    op = spec.op
    if op == Op.SET_FLAG:
        return f"{pipe:<4} {name}<{pipe}_{pipe_name(int(row['peer']))}>({int(row['event'])})"
    if op == Op.WAIT_FLAG:
        return f"{pipe:<4} {name}<{pipe_name(int(row['peer']))}_{pipe}>({int(row['event'])})"
    if op == Op.PIPE_BARRIER:
        return f"{pipe:<4} {name}<PIPE_{pipe}>"
    if op == Op.SET_ATOMIC:
        return f"{pipe:<4} {name}" + ("" if name == "SetAtomicNone" else f"<{type_name(int(row['dtype']))}>")
    return f"{pipe:<4} {name} {', '.join(_operands(row, spec))}"


def listing(rows: np.ndarray, *, first: int = 0, sites: Mapping[int, str] | None = None) -> str:
    """Return ``rows`` as text, one numbered line each.

    Parameters
    ----------
    rows : INSTR[n]
        Instructions.
    first : int
        Number of ``rows[0]``.
    sites : mapping of int to str, optional
        Names of the sites (`Launch.sites`).
    """
    names = sites or {}
    lines = []
    for number, row in enumerate(rows, first):
        site = int(row["site"])
        lines.append(f"{number:>7}  tile {int(row['tile']):<4} {names.get(site, str(site)):<10}  {disassemble(row)}")
    return "\n".join(lines)


def _spec(row: np.void) -> OpSpec | None:
    op = int(row["op"])
    return SPEC_OF_OP.get(Op(op)) if op in Op._value2member_map_ else None


def _operands(row: np.void, spec: OpSpec) -> Iterator[str]:
    fixed = OPERAND_SPACES.get(spec.op, {})
    for field in spec.fields:
        if field in LIST_FIELDS:
            addresses = " ".join(hex(int(block) * BLOCK_BYTES) for block in row[field])
            yield f"{field} {Space.UB.name}[{addresses}]"
            continue
        value = int(row[field])
        if field in _ADDRESSES:
            space = int(fixed[field]) if field in fixed else int(row[f"{field}_space"])
            tensor = f" tensor {int(row['tensor'])}" if space == Space.GM else ""
            yield f"{space_name(space)}[{hex(value)}]{tensor}"
        elif field.endswith("_space"):
            continue
        elif field == "mode":
            yield from _mode(value)
        elif field.endswith("dtype"):
            yield f"{field} {type_name(value)}"
        elif field == "value":
            yield f"value {hex(value & 0xFFFFFFFF)}"
        else:
            yield f"{field} {value}"
    if "mode" not in spec.fields:
        yield from _mode(int(row["mode"]))


def _mode(bits: int) -> Iterator[str]:
    names = [mode.name.lower() for mode in Mode if bits & mode]
    unknown = bits & ~sum(Mode)
    if unknown:
        names.append(hex(unknown))
    if names:
        yield "mode " + "|".join(names)

"""Rows as text: one line per instruction, with the names of Ascend C and every operand that `isa.op.OPS` lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from npu_sim.isa.codes import Space
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.names import mode_name, pipe_name, space_name, type_name
from npu_sim.isa.op import SPEC_OF_OP, Op
from npu_sim.isa.row import LIST_FIELDS
from npu_sim.units import BLOCK_BYTES

_ADDRESSES = ("dst", "src0", "src1")


def name_of(row: np.void) -> str:
    """Return the Ascend C name of the instruction in ``row``, or ``Op<number>`` for an unknown opcode."""
    instruction = SPEC_OF_OP.get(int(row["op"]))
    if instruction is None:
        return "Nop" if int(row["op"]) == Op.NOP else f"Op<{int(row['op'])}>"
    return instruction.api if instruction.text is None else instruction.text(row).split("<")[0].split("(")[0]


def duty_of(row: np.void) -> str:
    """Return what a row that could not be carried out must do, behind "must"."""
    instruction = SPEC_OF_OP.get(int(row["op"]))
    by_data = f", with {instruction.by_data}" if instruction is not None and instruction.by_data else ""
    return f"have modelled element types and lie inside the buffers{by_data}"


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
    pipe, instruction = pipe_name(int(row["pipe"])), SPEC_OF_OP.get(int(row["op"]))
    if instruction is None:
        text = name_of(row)
    elif instruction.text is not None:
        text = instruction.text(row)
    else:
        text = f"{instruction.api} {', '.join(_operands(row, instruction))}"
    return f"{pipe:<4} {text}"


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


def _operands(row: np.void, instruction: Instruction) -> Iterator[str]:
    for field in instruction.fields:
        if field in LIST_FIELDS:
            addresses = " ".join(hex(int(block) * BLOCK_BYTES) for block in row[field])
            yield f"{field} {Space.UB.name}[{addresses}]"
            continue
        value = int(row[field])
        if field in _ADDRESSES:
            fixed = instruction.spaces.get(field)
            space = int(row[f"{field}_space"]) if fixed is None else int(fixed)
            number = int(row["tensor"])
            tensor = "" if space != Space.GM else f" tensor {number}" if number >= 0 else " of no tensor"
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
    if "mode" not in instruction.fields:
        yield from _mode(int(row["mode"]))


def _mode(bits: int) -> Iterator[str]:
    if bits:
        yield f"mode {mode_name(bits)}"

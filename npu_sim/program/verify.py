"""Static legality of rows: what one instruction may look like on a product, without regard to the others.

The rules are tables of the instructions; here they are applied to whole arrays of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa.codes import Data, Pipe, Space
from npu_sim.isa.footprint import NO_FOOTPRINT, REACH_BYTES, TOO_MANY_RUNS, empty_runs, reach
from npu_sim.isa.instruction import ITEM, Flags, Index, Instruction, Range
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.names import mode_name, path_name, pipe_name, space_name, type_name
from npu_sim.isa.op import SPEC_OF_OP, Op
from npu_sim.isa.row import ROW_BYTES
from npu_sim.products import Product
from npu_sim.program.core_kind import foreign_rows
from npu_sim.program.disassemble import name_of
from npu_sim.program.known_rows import known_rows_of
from npu_sim.program.launch import CoreKind
from npu_sim.program.limits import ADDRESS_ALIGNMENT_BYTES
from npu_sim.program.violation import Kind, Violation

_CHUNK_ROWS = 1 << 15

Values = npt.NDArray[np.int64]


def space_capacities(product: Product) -> dict[Space, int]:
    """Return the capacity of every on-chip space in bytes."""
    core = product.core
    return {
        Space.L1: core.l1_bytes,
        Space.L0A: core.l0a_bytes,
        Space.L0B: core.l0b_bytes,
        Space.L0C: core.l0c_bytes,
        Space.UB: core.ub_bytes,
        Space.BT: core.bt_bytes,
        Space.FB: core.quantisation_bytes,
        Space.IDX: core.index_bytes,
    }


@dataclass(slots=True)
class Chunk:
    """Some rows and what is wrong with them: the `npu_sim.isa.instruction.Rows` of the checks."""

    rows: np.ndarray
    first: int
    product: Product
    found: list[Violation] = field(default_factory=list)

    def flag(self, index: Index, bad: Flags, kind: Kind, text: Callable[[np.void], str]) -> None:
        """Report ``rows[index[bad]]``; ``text`` says what is wrong with a row."""
        for at in index[bad].tolist():
            self.found.append(self.violation(at, kind, text(self.rows[at])))

    def violation(self, at: int, kind: Kind, text: str) -> Violation:
        """Return what is wrong with row ``at`` of the chunk."""
        row = self.rows[at]
        detail = f"{name_of(row)} {text} ({self.product.name})"
        return Violation(kind=kind, row=self.first + at, tile=int(row["tile"]), site=int(row["site"]), detail=detail)

    def column(self, index: Index, name: str) -> Values:
        """Return a field of ``rows[index]`` as int64."""
        return self.rows[name][index].astype(np.int64)

    def item_bytes(self, index: Index) -> Values:
        """Return the bytes of an element of the ``dtype`` of ``rows[index]``, at least 1."""
        return np.maximum(ITEM_BYTES_OF_CODE[self.rows["dtype"][index]], 1)

    def ranges(self, index: Index, ranges: Iterable[Range]) -> None:
        """Check ranges of fields."""
        for name, low, high in ranges:
            values = self.column(index, name)
            self.rule(index, (values < low) | (values > high), name, f"in [{low}, {high}]")

    def rule(self, index: Index, bad: Flags, name: str, rule: str, kind: Kind = Kind.FIELD_RANGE) -> None:
        """Report fields that break a rule: "<name> must be <rule>, not <value>"."""
        self.flag(index, bad, kind, lambda row: f"{name} must be {rule}, not {int(row[name])}")

    def misaligned(self, index: Index, bad: Flags, name: str, rule: str) -> None:
        """Report destinations that break a rule."""
        self.rule(index, bad, name, rule, Kind.WRITE_MISALIGNED)

    def unsupported(self, index: Index, bad: Flags, text: Callable[[np.void], str]) -> None:
        """Report what the product does not have."""
        self.flag(index, bad, Kind.UNSUPPORTED, text)


def verify(rows: np.ndarray, product: Product, *, core_kind: CoreKind | None = None) -> list[Violation]:
    """Check every row by itself.

    Parameters
    ----------
    rows : INSTR[n]
        Rows of one core, any bytes. Rules that depend on the state of the core (atomic additions, HF32) hold for what
        `issue` has written into the rows: `program.legality` judges programs that it has not seen.
    product : Product
        Architecture, capacities, event ids.
    core_kind : "cube", "vector" or None
        On a product with separate cores also report rows that this kind does not have; None: any core.

    Returns
    -------
    list of Violation
        In the order of the rows: kinds FIELD_RANGE, UNSUPPORTED, READ_MISALIGNED, WRITE_MISALIGNED, CAPACITY. Bounds of
        GM tensors need a launch: `engines.hazards`.
    """
    # arrays that NumPy has joined have their fields at other places
    if (
        JIT_ENABLED
        and rows.dtype.itemsize == ROW_BYTES
        and known_rows_of((product, core_kind)).are_right(rows, lambda some: not _violations(some, product, core_kind))
    ):
        return []
    return _violations(rows, product, core_kind)


def _violations(rows: np.ndarray, product: Product, core_kind: CoreKind | None) -> list[Violation]:
    """Judge every row, whatever is known of it."""
    found: list[Violation] = []
    for first in range(0, len(rows), _CHUNK_ROWS):
        chunk = Chunk(rows[first : first + _CHUNK_ROWS], first, product)
        ops, supported = chunk.rows["op"], _all(chunk.rows)
        for op in _present(ops):
            index = np.flatnonzero(ops == op)
            if _is_supported(chunk, index, op):
                _check_opcode(chunk, index, SPEC_OF_OP[op])
            else:
                supported[index] = False
        _check_addresses(chunk, supported)
        if core_kind is not None:
            _check_core_kind(chunk, core_kind)
        found.extend(sorted(chunk.found, key=lambda violation: violation.row))
    return found


def _is_supported(chunk: Chunk, index: Index, op: int) -> bool:
    """Report opcodes the architecture does not have."""
    if op == Op.NOP:
        return False
    instruction = SPEC_OF_OP.get(op)
    if instruction is not None and chunk.product.arch in instruction.archs:
        return True
    where = "a known opcode" if instruction is None else f"on {', '.join(sorted(instruction.archs))}"
    chunk.unsupported(index, _all(index), lambda row: f"must be {where}, not {chunk.product.arch}")
    return False


def _present(ops: np.ndarray) -> list[int]:
    """Return the opcodes that occur, lowest first."""
    present: list[int] = np.flatnonzero(np.bincount(ops)).tolist()
    return present


def _all(index: Index) -> Flags:
    return np.ones(len(index), np.bool_)


def _is_none_of(values: np.ndarray, allowed: Iterable[int], count: int = 256) -> Flags:
    """Return which ``values``, integers below ``count``, are not among those ``allowed``."""
    table = np.ones(count, np.bool_)
    table[list(allowed)] = False
    bad: Flags = table[values]
    return bad


def _check_core_kind(chunk: Chunk, kind: CoreKind) -> None:
    """Report rows that belong to the other kind of core."""
    other = "vector" if kind == "cube" else "cube"
    bad = foreign_rows(chunk.rows, chunk.product, kind)
    text = f"must run on a {other} core, not on a {kind} core"
    chunk.unsupported(np.arange(len(chunk.rows)), bad, lambda row: text)


def _check_opcode(chunk: Chunk, index: Index, instruction: Instruction) -> None:
    chunk.ranges(index, instruction.ranges)
    _check_pipe(chunk, index, instruction)
    _check_paths(chunk, index, instruction)
    _check_types(chunk, index, instruction)
    if instruction.check is not None:
        instruction.check(chunk, index)


def _check_pipe(chunk: Chunk, index: Index, instruction: Instruction) -> None:
    has_fixpipe = chunk.product.core.has_fixpipe
    allowed = [pipe for pipe in instruction.pipes if pipe != Pipe.FIX or has_fixpipe]
    bad = _is_none_of(chunk.rows["pipe"][index], allowed)

    def text(row: np.void) -> str:
        return f"pipe must be one of {', '.join(pipe.name for pipe in allowed)}, not {pipe_name(int(row['pipe']))}"

    chunk.unsupported(index, bad, text)


def _check_paths(chunk: Chunk, index: Index, instruction: Instruction) -> None:
    """Check (destination, source) spaces against the data path matrix."""
    if not instruction.routes or not {"dst_space", "src0_space"} & set(instruction.fields):
        return
    paths, arch = instruction.paths[chunk.product.arch], chunk.product.arch
    spaces = [_spaces(chunk, index, instruction, name) for name in ("dst", "src0")]
    bad = _is_none_of(spaces[0] * 256 + spaces[1], [dst * 256 + src for dst, src in paths], 1 << 16)
    if "src0_space" in instruction.fields:
        chunk.unsupported(index, bad, lambda row: f"path must exist on {arch}, not {path_name(row)}")
        return

    def text(row: np.void) -> str:
        names = " or ".join(dst.name for dst, _ in sorted(paths))
        return f"destination must be {names}, not {space_name(int(row['dst_space']))}"

    chunk.unsupported(index, bad, text)


def _spaces(chunk: Chunk, index: Index, instruction: Instruction, operand: str) -> Values:
    """Return the spaces of an operand."""
    fixed = instruction.spaces.get(operand)
    if fixed is None:
        return chunk.column(index, f"{operand}_space")
    return np.full(len(index), fixed, np.int64)


def _check_types(chunk: Chunk, index: Index, instruction: Instruction) -> None:
    arch = chunk.product.arch
    for name, types in (("dtype", instruction.dtypes), ("dst_dtype", instruction.dst_dtypes)):
        if types:
            _check_type_field(chunk, index, name, types[arch])
    if instruction.modes:
        stray = chunk.column(index, "mode") & ~instruction.modes[arch]
        chunk.unsupported(
            index, stray != 0, lambda row: f"mode must exist on {arch}, not {mode_name(int(row['mode']))}"
        )


def _check_type_field(chunk: Chunk, index: Index, name: str, allowed: frozenset[Data]) -> None:
    bad = _is_none_of(chunk.rows[name][index], [int(data) for data in allowed])

    def text(row: np.void) -> str:
        names = ", ".join(type_name(data) for data in sorted(allowed))
        return f"{name} must be one of {names}, not {type_name(int(row[name]))}"

    chunk.unsupported(index, bad, text)


def _check_addresses(chunk: Chunk, supported: Flags) -> None:
    """Check alignment and capacity of all rows that touch memory, of instructions that the product has."""
    ends = np.zeros((len(chunk.rows), len(Space), 2), np.int64)
    reach(chunk.rows, empty_runs(), ends)
    ends[~supported] = 0
    touching = ends.any(axis=(1, 2))
    alignments = np.ones(256, np.int64)
    for space, alignment in ADDRESS_ALIGNMENT_BYTES.items():
        alignments[space] = alignment
    for op in _present(chunk.rows["op"][touching]):
        index = np.flatnonzero(touching & (chunk.rows["op"] == op))
        for name in ("src0", "src1", "dst"):
            if name in SPEC_OF_OP[op].fields:
                _check_alignment(chunk, index, SPEC_OF_OP[op], name, alignments)
    for space, capacity in space_capacities(chunk.product).items():
        bad = (ends[:, space, 1] > capacity) | (ends[:, space, 0] < 0)
        _flag_capacity(chunk, np.flatnonzero(bad), ends[:, space], space, capacity)
    everything, failure = np.arange(len(chunk.rows)), ends[:, 0, 0]
    chunk.flag(
        everything, failure == TOO_MANY_RUNS, Kind.CAPACITY, lambda row: "must touch fewer separate runs of bytes"
    )
    lost = np.flatnonzero(failure == NO_FOOTPRINT)
    if len(lost):  # an operand that is out of its range says it better
        lost = lost[~np.isin(lost + chunk.first, [violation.row for violation in chunk.found])]
    text = f"must stay within {REACH_BYTES} bytes of address 0"
    chunk.flag(lost, _all(lost), Kind.CAPACITY, lambda row: text)


def _check_alignment(chunk: Chunk, index: Index, instruction: Instruction, name: str, alignments: Values) -> None:
    spaces = _spaces(chunk, index, instruction, name)
    own = instruction.alignment.get(name)
    if own is None:
        needed = alignments[spaces]
    else:
        needed = chunk.item_bytes(index) if own == ITEM else np.full(len(index), own, np.int64)
    kind = Kind.WRITE_MISALIGNED if name == "dst" else Kind.READ_MISALIGNED
    bad = chunk.column(index, name) % needed != 0
    for at, space, alignment in zip(index[bad], spaces[bad].tolist(), needed[bad].tolist(), strict=True):
        text = f"{space_name(space)} address must be a multiple of {alignment}, not {int(chunk.rows[name][at])}"
        chunk.found.append(chunk.violation(int(at), kind, text))


def _flag_capacity(chunk: Chunk, index: Index, ends: Values, space: Space, capacity: int) -> None:
    for at in index.tolist():
        first, end = ends[at].tolist()
        found = chunk.violation(at, Kind.CAPACITY, f"must stay inside the {capacity} bytes of {space.name}")
        chunk.found.append(replace(found, space=space, start=first, length=end - first))

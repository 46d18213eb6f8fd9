"""Faults that leave the order right and the values wrong: one row changed, dropped or taken from another tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.op import SPEC_OF_OP, Op
from npu_sim.isa.row import join_rows
from npu_sim.products import Product
from npu_sim.program.bounds import gm_violations
from npu_sim.program.launch import Launch
from npu_sim.program.legality import verify_program

_ELEMENTWISE = (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.DIV)
_MOVES = (Op.DATA_COPY, Op.ND2NZ, Op.LOAD_2D, Op.LOAD_3D, Op.FIXPIPE)
_COUNTS = "count block_len block_count repeat n_value d_value m n k m_size n_size k_ext m_ext"


@dataclass(frozen=True, slots=True)
class Fault:
    """Rows of a core with a fault: its class, the row that has it (or that follows what is gone), and its tile."""

    kind: str
    core: int
    row: int
    tile: int
    programs: list[np.ndarray]


def _shift(field: str, space: str) -> Callable[[np.ndarray, int, np.random.Generator], bool]:
    def change(rows: np.ndarray, at: int, rng: np.random.Generator) -> bool:
        if int(rows[space][at]) == Space.NONE:
            return False
        step = {Space.GM: 32, Space.L0A: 512, Space.L0B: 512, Space.L0C: 1024}.get(Space(int(rows[space][at])), 32)
        rows[field][at] += step * int(rng.choice([1, 2, 16, -1, -4]))
        return bool(rows[field][at] >= 0)

    return change


def _shorter(rows: np.ndarray, at: int, rng: np.random.Generator) -> bool:
    fields = [f for f in _COUNTS.split() if f in SPEC_OF_OP[int(rows["op"][at])].fields and rows[f][at] > 1]
    if not fields:
        return False
    field = fields[int(rng.integers(len(fields)))]
    value = int(rows[field][at])
    rows[field][at] = value - (16 if value > 16 and value % 16 == 0 else 1)
    return True


def _other_operation(rows: np.ndarray, at: int, rng: np.random.Generator) -> bool:
    if int(rows["op"][at]) not in _ELEMENTWISE:
        return False
    rows["op"][at] = int(rng.choice([op for op in _ELEMENTWISE if op != rows["op"][at]]))
    return True


def _swapped(rows: np.ndarray, at: int, rng: np.random.Generator) -> bool:
    if int(rows["op"][at]) not in (Op.SUB, Op.DIV):
        return False
    rows["src0"][at], rows["src1"][at] = int(rows["src1"][at]), int(rows["src0"][at])
    return True


def _flipped(op: int, mode: int) -> Callable[[np.ndarray, int, np.random.Generator], bool]:
    def change(rows: np.ndarray, at: int, rng: np.random.Generator) -> bool:
        if int(rows["op"][at]) != op:
            return False
        rows["mode"][at] ^= mode
        return True

    return change


CHANGES: dict[str, Callable[[np.ndarray, int, np.random.Generator], bool]] = {
    "source in another place": _shift("src0", "src0_space"),
    "second source in another place": _shift("src1", "src1_space"),
    "result in another place": _shift("dst", "dst_space"),
    "too short": _shorter,
    "other operation": _other_operation,
    "operands exchanged": _swapped,
    "sum not begun or begun anew": _flipped(Op.MMAD, Mode.INIT),
    "fractals not transposed": _flipped(Op.LOAD_2D, Mode.TRANSPOSE),
}
KINDS = (*CHANGES, "dropped", "of another tile")
_WORK = (*_MOVES, *_ELEMENTWISE, Op.MMAD, Op.EXP, Op.BRCB, Op.WHOLE_REDUCE_MAX, Op.REDUCE_REPEAT)


def fault_of(
    kind: str, programs: list[np.ndarray], launch: Launch, product: Product, rng: np.random.Generator
) -> Fault | None:
    """Return one fault of a class, None where the drawn row cannot have it or the checkers of single rows see it."""
    core = int(rng.integers(len(programs)))
    rows = programs[core].copy()
    work = np.flatnonzero(np.isin(rows["op"], _WORK))
    at = int(rng.choice(work))
    tile = int(rows["tile"][at])
    if kind == "dropped":
        rows = join_rows([rows[:at], rows[at + 1 :]])
    elif kind == "of another tile":
        like = work[(rows["site"][work] == rows["site"][at]) & (rows["src0"][work] != rows["src0"][at])]
        if not len(like):
            return None
        rows["src0"][at] = rows["src0"][int(rng.choice(like))]
    elif not CHANGES[kind](rows, at, rng):
        return None
    if verify_program(rows, product, core_kind=launch.core_kind) or gm_violations(rows, launch.gm.table()):
        return None
    return Fault(kind, core, at, tile, [rows if number == core else own for number, own in enumerate(programs)])

"""Other legal orders of a core's rows, to make a missing wait change the result.

A program without races gives the same bits in every legal order; one with a race gives other bits in some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from npu_sim.engines import reorder_jit as jitted
from npu_sim.errors import ProgramError, ShapeError
from npu_sim.isa.codes import Pipe
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.program.disassemble import disassemble
from npu_sim.program.violation import Kind, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two rows of one core of a launch that nothing orders, as an order: the later one runs first.

    Attributes
    ----------
    launch : str
        Its name.
    core, earlier, later : int
        Row numbers count the rows of the core through all phases, as those of a finding do (`Violation.other_row`,
        `Violation.row`).
    """

    launch: str
    core: int
    earlier: int
    later: int

    def __str__(self) -> str:
        return f"race:{self.launch}:{self.core}:{self.earlier}:{self.later}"


Order = Literal["program", "late"] | int | Race


def new_flags() -> npt.NDArray[np.int64]:
    """Return the flags of a core that begins: how often each is set, for `legal_order`."""
    return np.zeros(jitted.FLAGS, np.int64)


def legal_order(
    rows: np.ndarray, order: Order = "program", flags: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    """Return a legal execution order.

    Parameters
    ----------
    rows : INSTR[n]
        All rows of one core and phase.
    order : "program", "late" or int
        As emitted; with data movement (MTE and FIX pipes) as late as the waits of the computing pipes allow; or a
        random order by seed (0 or more), the same on every host.
    flags : int64[FLAGS] or None
        Flags that an earlier phase left set (`new_flags`); those that this one leaves set replace them. None: no flag
        is set.

    Returns
    -------
    int64[n]
        Permutation: ``rows[result]`` runs first to last.

    Raises
    ------
    ShapeError
        If ``order`` is none of these.
    ProgramError
        If the program deadlocks: the violations name the waits that are never satisfied. If rows are in no pipe, or
        have flags of none: the violations name them.

    Notes
    -----
    Legal means: rows of a pipe in order, the k-th wait of a flag after its k-th set, everything around a barrier of all
    pipes, and nothing before an earlier wait of the scalar unit, which issues in program order (asc-devkit, SetFlag,
    WaitFlag and PipeBarrier pages).
    """
    n = len(rows)
    if isinstance(order, str):
        if order not in ("program", "late"):
            raise ShapeError(f"order must be 'program', 'late' or a seed, not {order!r}")
    elif isinstance(order, bool) or not isinstance(order, (int, np.integer)) or order < 0:
        raise ShapeError(f"order must be 'program', 'late' or a seed of 0 or more, not {order!r}")
    result = np.arange(n, dtype=np.int64)
    if order == "program":
        return result
    if stray := _stray(rows):
        raise ProgramError(stray)
    following, heads = np.empty(n, np.int64), np.empty(jitted.PIPES, np.int64)
    jitted.link(rows, following, heads)
    flags = new_flags() if flags is None else flags
    rule = jitted.LATE if order == "late" else jitted.RANDOM
    # Neighbouring seeds would start with similar numbers: spread them over the generator's states.
    spread = 0 if order == "late" else (int(order) + 1) * 0x9E3779B97F4A7C15 >> 11
    seed = np.array([1 + spread % (jitted.RANDOM_MODULUS - 1)], np.int64)
    if int(jitted.schedule(rows, following, heads, flags, rule, seed, result)) < n:
        raise ProgramError(_blocked(rows, heads))
    return result


def order_that_bites(
    rows: np.ndarray, earlier: int, later: int, flags: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64] | None:
    """Return a legal execution order in which row ``later`` runs before row ``earlier``: what a race allows.

    Parameters
    ----------
    rows : INSTR[n]
        All rows of one core and phase.
    earlier, later : int
        Row numbers of two rows that a finding says nothing orders (`Violation.other_row` and `Violation.row`).
    flags : int64[FLAGS] or None
        As of `legal_order`; undefined afterwards if there is no such order.

    Returns
    -------
    int64[n] or None
        Permutation as of `legal_order`; None if something orders the two. So do the starts of rows of one pipe, for
        which a barrier is missing, and a wait of the scalar unit behind what it stored itself: there the race is that
        the earlier row is not over, which no order of starts shows.

    Raises
    ------
    ShapeError
        If the numbers are not those of two rows, the earlier one first.
    ProgramError
        If rows are in no pipe, or have flags of none: the violations name them.
    """
    if not 0 <= earlier < later < len(rows):
        raise ShapeError(f"earlier and later must be two of {len(rows)} rows in order, not {earlier} and {later}")
    if stray := _stray(rows):
        raise ProgramError(stray)
    following, heads = np.empty(len(rows), np.int64), np.empty(jitted.PIPES, np.int64)
    jitted.link(rows, following, heads)
    flags, result = new_flags() if flags is None else flags, np.empty(len(rows), np.int64)
    placed = int(jitted.hold_back(rows, following, heads, flags, earlier, later, result))
    return result if placed == len(rows) else None


def _stray(rows: np.ndarray) -> list[Violation]:
    """Return a violation for every row whose pipes do not exist."""
    is_flag = np.isin(rows["op"], (Op.SET_FLAG, Op.WAIT_FLAG))
    bad = (rows["pipe"] > Pipe.ALL) | (is_flag & (np.maximum(rows["pipe"], rows["peer"]) >= Pipe.ALL))
    return [
        _violation(rows[at], at, Kind.UNSUPPORTED, f"{disassemble(rows[at]).strip()} must be in a pipe that exists")
        for at in np.flatnonzero(bad).tolist()
    ]


def _blocked(rows: np.ndarray, heads: npt.NDArray[np.int64]) -> list[Violation]:
    """Return a violation for the next row of every pipe that still has one, waits first."""
    stuck = sorted(int(head) for head in heads if head < len(rows))
    violations = []
    for at in stuck:
        text = (
            f"{disassemble(rows[at]).strip()} never runs: pipe {pipe_name(int(rows[at]['pipe']))} is blocked for ever"
        )
        violations.append(_violation(rows[at], at, Kind.SYNC_UNPAIRED, text))
    return violations


def _violation(row: np.void, at: int, kind: Kind, text: str) -> Violation:
    return Violation(kind=kind, row=at, tile=int(row["tile"]), site=int(row["site"]), detail=text)

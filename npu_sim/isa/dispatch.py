"""From a row to its semantics: `run_rows`, put together from the instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim._switch import switch
from npu_sim.accumulation import Inner
from npu_sim.isa.instructions.mmad import run_chained
from npu_sim.isa.op import Op, by_opcode, handlers
from npu_sim.isa.vector import combine

CONFIG_LENGTH = 9
"""int64 words of the numeric configuration: 0 group, 1 inner, 2 round (`accumulation` codes), 3 saturate, 4 HF32 drop
bits, 5 HF32 tie rule, 6 flushes, 7 overflows to max (codes), 8 saturate operands of the Cube."""


MACHINE = (
    "row", "gm", "l1", "l0a", "l0b", "l0c", "ub", "config", "scratch", "staging", "sink", "log_runs", "log_bytes"
)  # fmt: skip
"""What the semantics of an instruction can ask for, as `run_rows` describes it."""


@jit
def _stop() -> Flag:
    """Leave a row to the other kind of code, or to nobody."""
    return False


@jit
def _do_nothing() -> Flag:
    return True


_CUBE, _VECTOR = 1, 2
_UNIT = by_opcode(lambda instruction: {None: 0, "cube": _CUBE, "vector": _VECTOR}[instruction.unit], dtype=np.uint8)
_NOP = {int(Op.NOP): _do_nothing}
_exact_cube = switch(MACHINE, _NOP | handlers("run", unit="cube"), _stop)
_chained_cube = switch(MACHINE, _NOP | handlers("run", unit="cube") | {int(Op.MMAD): run_chained}, _stop)
_vector = switch(
    MACHINE, _NOP | dict.fromkeys(handlers("elementwise"), combine) | handlers("run", unit="vector"), _stop
)


def _runner(carry_out: Any) -> Any:
    """Return an entry that carries out rows as far as ``carry_out`` can, and returns the row it ends at."""

    @jit
    def run(
        rows: np.ndarray,
        first: Int,
        last: Int,
        gm: np.ndarray,
        l1: np.ndarray,
        l0a: np.ndarray,
        l0b: np.ndarray,
        l0c: np.ndarray,
        ub: np.ndarray,
        config: np.ndarray,
        scratch: np.ndarray,
        staging: np.ndarray,
        sink: np.ndarray,
        log_runs: np.ndarray,
        log_bytes: np.ndarray,
    ) -> Int:
        for i in range(first, last):
            row = rows[i]
            if not carry_out(
                row["op"], row, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes
            ):
                return i
        return last

    return run


_run_exact_cube_rows, _run_chained_cube_rows = _runner(_exact_cube), _runner(_chained_cube)
_run_vector_rows = _runner(_vector)


@jit
def _is_for_cube(rows: np.ndarray, first: Int, last: Int) -> Flag:
    """Return whether the first row that only one of the two functions carries out is the Cube's."""
    for i in range(first, last):
        unit = _UNIT[rows[i]["op"]]
        if unit != 0:
            return unit == _CUBE
    return False


def run_rows(
    rows: np.ndarray,
    first: int,
    last: int,
    gm: np.ndarray,
    l1: np.ndarray,
    l0a: np.ndarray,
    l0b: np.ndarray,
    l0c: np.ndarray,
    ub: np.ndarray,
    config: np.ndarray,
    scratch: np.ndarray,
    staging: np.ndarray,
    sink: np.ndarray,
    log_runs: np.ndarray,
    log_bytes: np.ndarray,
) -> int:
    """Carry out ``rows[first:last]`` in program order.

    Cube and vector units have a compiled function each, so that a program of one compiles nothing for the other; where
    a unified core mixes them they take turns. So have the kinds of accumulation models.

    Parameters
    ----------
    rows : INSTR[:]
        Rows that went through `issue`.
    first, last : int
        Range of rows.
    gm, l1, ub : uint8[:]
        Arenas.
    l0a, l0b, l0c : float32[:]
        Carriers and accumulators.
    config : int64[CONFIG_LENGTH]
        Numeric configuration.
    scratch : float64[:]
        Workspace of `cube.mmad`.
    staging : float32[:]
        Scratch, at least 8192 (32 KiB) and as long as L0C.
    sink, log_runs, log_bytes : arrays
        Where atomic additions go (`atomic`).

    Returns
    -------
    int
        -1, or the first row that cannot be carried out: an unknown opcode, element types that do not exist here, or
        a Mmad or TransDataTo5HD outside the buffers.
    """
    # most users need one accumulation model alone, and Mmad is the longest of all to compile
    is_exact = config[1] == Inner.EXACT and config[0] != 1
    run_cube_rows = _run_exact_cube_rows if is_exact else _run_chained_cube_rows
    at = first
    while at < last:
        before = at
        run = run_cube_rows if _is_for_cube(rows, at, last) else _run_vector_rows
        at = run(rows, at, last, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes)
        if at == before:
            return at
    return -1

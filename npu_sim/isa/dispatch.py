"""From a row to its semantics: `run_rows`, put together from the instructions."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, types

from npu_sim._by_address import address_of, caller
from npu_sim._jit import JIT_ENABLED, Flag, Int, jit
from npu_sim._switch import switch
from npu_sim.accumulation import Inner
from npu_sim.isa.instructions.mmad import run_chained
from npu_sim.isa.op import OPS, SPEC_OF_OP, Op, by_opcode, handlers
from npu_sim.isa.row import INSTR
from npu_sim.isa.vector import combine
from npu_sim.isa.vector_apart import semantics_of

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


# plain Python has nothing to compile apart
_APART = frozenset(instruction.op for instruction in OPS if instruction.apart and JIT_ENABLED)
_CUBE, _VECTOR = 1, 2
_CODES = {None: 0, "cube": _CUBE, "vector": _VECTOR}
_UNIT = by_opcode(lambda i: 0 if i.op in _APART else _CODES[i.unit], dtype=np.uint8)


def _semantics(unit: str) -> dict[int, Any]:
    """Return the semantics of a unit's instructions that are compiled together, by opcode."""
    computed = dict.fromkeys(handlers("elementwise"), combine) if unit == "vector" else {}
    # without the JIT, where nothing is compiled apart
    made = {i.op: semantics_of(i) for i in OPS if i.apart and i.unit in (None, unit) and i.op not in _APART}
    together = {op: run for op, run in (computed | handlers("run", unit=unit)).items() if op not in _APART}
    return {int(Op.NOP): _do_nothing} | together | made


_exact_cube = switch(MACHINE, _semantics("cube"), _stop)
_chained_cube = switch(MACHINE, _semantics("cube") | {int(Op.MMAD): run_chained}, _stop)
_vector = switch(MACHINE, _semantics("vector"), _stop)

# What is compiled apart takes what `run_rows` takes, with one row in place of a range.
_BYTES, _NUMBERS, _SINGLES = (types.Array(item, 1, "C") for item in (types.uint8, types.int64, types.float32))
_APART_ARGUMENTS = (
    types.Array(from_dtype(INSTR), 1, "C"),
    types.int64,
    *(_BYTES, _BYTES, _SINGLES, _SINGLES, _SINGLES, _BYTES),
    *(_NUMBERS, types.Array(types.float64, 1, "C"), _SINGLES),
    *(_NUMBERS, types.Array(types.int64, 2, "C"), _BYTES),
)
_call_apart = caller(_APART_ARGUMENTS)
_addresses = np.zeros(256, np.int64)
"""Of the semantics that is compiled apart, by opcode; 0 before a program had it."""


_lock = threading.Lock()


@cache
def _entry_of(op: int) -> Any:
    """Return the entry that carries out one row of an instruction that is compiled apart."""
    carry_out = switch(MACHINE, {}, semantics_of(SPEC_OF_OP[op]))

    @jit
    def run_row(
        rows: np.ndarray,
        i: Int,
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
    ) -> Flag:
        return carry_out(0, rows[i], gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes)

    return run_row


def _provide(op: int) -> None:
    """Compile the semantics of an instruction that is compiled apart, unless another thread just did."""
    with _lock:
        if _addresses[op] == 0:
            _addresses[op] = address_of(_entry_of(op), _APART_ARGUMENTS)


def _runner(carry_out: Any) -> Any:
    """Return an entry that carries out rows as far as ``carry_out`` can.

    It returns the row it ends at, or -1 - the row whose instruction is neither in ``carry_out`` nor has an address.
    """

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
        addresses: np.ndarray,
    ) -> Int:
        for i in range(first, last):
            row = rows[i]
            if carry_out(
                row["op"], row, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes
            ):
                continue
            address = addresses[row["op"]]
            if address == 0:
                return -1 - i
            if not _call_apart(
                address, rows, i, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes
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
    a unified core mixes them they take turns. So have the kinds of accumulation models. Instructions that say so
    (`Instruction.apart`) have one each, compiled when the first row that has it is met, and called by both.

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
        at = run(
            rows, at, last, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes, _addresses
        )
        if at < 0:
            at = -1 - at
            if (op := int(rows["op"][at])) in _APART:
                _provide(op)
                continue
        if at == before:
            return at
    return -1

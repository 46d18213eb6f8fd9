"""From a row to its semantics: `run_rows`, put together from the instructions."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np

from npu_sim._by_address import address_of
from npu_sim._jit import JIT_ENABLED, Flag, Int, jit
from npu_sim._switch import switch
from npu_sim.accumulation import Inner
from npu_sim.isa.general_form import run_general_form
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.instructions.mmad import run_chained
from npu_sim.isa.machine import ADDRESSES, MACHINE, RANGE_ARGUMENTS, ROW_ARGUMENTS, call_row
from npu_sim.isa.op import OPS, SPEC_OF_OP, Op, by_opcode, handlers
from npu_sim.isa.vector import combine
from npu_sim.isa.vector_apart import semantics_of

CONFIG_LENGTH = 9
"""int64 words of the numeric configuration: 0 group, 1 inner, 2 round (`accumulation` codes), 3 saturate, 4 HF32 drop
bits, 5 HF32 tie rule, 6 flushes, 7 overflows to max (codes), 8 saturate operands of the Cube."""


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
_EXACT = int(Inner.EXACT)
_CODES = {None: 0, "cube": _CUBE, "vector": _VECTOR}
_UNIT = by_opcode(lambda i: 0 if i.op in _APART else _CODES[i.unit], dtype=np.uint8)


def _compiled_apart(instruction: Instruction) -> Any:
    """Return the semantics of an instruction that is compiled apart; general forms share one."""
    return run_general_form if instruction.general_form_of else semantics_of(instruction)


def _semantics(unit: str) -> dict[int, Any]:
    """Return the semantics of a unit's instructions that are compiled together, by opcode."""
    computed = dict.fromkeys(handlers("elementwise"), combine) if unit == "vector" else {}
    # without the JIT, where nothing is compiled apart
    made = {i.op: _compiled_apart(i) for i in OPS if i.apart and i.unit in (None, unit) and i.op not in _APART}
    together = {op: run for op, run in (computed | handlers("run", unit=unit)).items() if op not in _APART}
    return {int(Op.NOP): _do_nothing} | together | made


_exact_cube = switch(MACHINE, _semantics("cube"), _stop)
_chained_cube = switch(MACHINE, _semantics("cube") | {int(Op.MMAD): run_chained}, _stop)
_vector = switch(MACHINE, _semantics("vector"), _stop)

_lock = threading.RLock()


@cache
def _entry_of(semantics: Any) -> Any:
    """Return the entry that carries out one row of an instruction that is compiled apart."""
    carry_out = switch(MACHINE, {}, semantics)

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
        addresses: np.ndarray,
    ) -> Flag:
        return carry_out(
            0, rows[i], gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes, addresses
        )

    return run_row


def _provide(op: int) -> None:
    """Compile the semantics of an instruction that is compiled apart, unless another thread just did."""
    instruction = SPEC_OF_OP[op]
    with _lock:
        if instruction.general_form_of in _APART:
            _provide(instruction.general_form_of)
        elif instruction.general_form_of and ADDRESSES[Op.NOP] == 0:
            ADDRESSES[Op.NOP] = address_of(_run_vector_rows, RANGE_ARGUMENTS)
        if ADDRESSES[op] == 0:
            ADDRESSES[op] = address_of(_entry_of(_compiled_apart(instruction)), ROW_ARGUMENTS)


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
                row["op"], row, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes,
                addresses,
            ):  # fmt: skip
                continue
            address = addresses[row["op"]]
            if address == 0:
                return -1 - i
            if not call_row(
                address, rows, i, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes,
                addresses,
            ):  # fmt: skip
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
    is_exact = config[1] == _EXACT and config[0] != 1
    run_cube_rows = _run_exact_cube_rows if is_exact else _run_chained_cube_rows
    at = first
    while at < last:
        before = at
        run = run_cube_rows if _is_for_cube(rows, at, last) else _run_vector_rows
        at = run(
            rows, at, last, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes, ADDRESSES
        )
        if at < 0:
            at = -1 - at
            if (op := int(rows["op"][at])) in _APART:
                _provide(op)
                continue
        if at == before:
            return at
    return -1

"""From a row to its semantics: `run_rows`, put together from the instructions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from npu_sim._by_address import address_of, addressed
from npu_sim._jit import JIT_ENABLED, Flag, Int, jit
from npu_sim._switch import switch
from npu_sim.accumulation import Inner
from npu_sim.isa.general_form import run_general_form
from npu_sim.isa.instruction import changes_nothing
from npu_sim.isa.instructions import mmad, mmad_bias
from npu_sim.isa.machine import (
    MACHINE,
    NOTHING,
    ROW_ARGUMENTS,
    UNKNOWN,
    UNMET,
    call_row,
    machine,
    parts_of,
    run_as_python,
)
from npu_sim.isa.op import OPS, Op, by_opcode
from npu_sim.isa.vector_apart import semantics_of

CONFIG_LENGTH = 9
"""int64 words of the numeric configuration: 0 group, 1 inner, 2 round (`accumulation` codes), 3 saturate, 4 HF32 drop
bits, 5 HF32 tie rule, 6 flushes, 7 overflows to max (codes), 8 saturate operands of the Cube."""

_EXACT = int(Inner.EXACT)
_COUNT_FORMS = {instruction.op: instruction.general_form_of for instruction in OPS if instruction.general_form_of}


@cache
def _entry_of(semantics: Any) -> Any:
    """Return the entry that carries out one row: instructions with the same semantics share it."""
    carry_out = switch(MACHINE, {}, semantics)

    @addressed
    def run_row(table: Int, row: Any) -> Flag:
        return carry_out(0, row, *parts_of(table))

    return run_row


class Semantics:
    """What carries out each instruction, compiled when the first row that has it is met.

    Parameters
    ----------
    others : mapping of int to jitted function
        By opcode, in place of what the instruction says itself.

    Attributes
    ----------
    by_opcode : dict of int to jitted function
    addresses : int64[256]
        See `machine.MACHINE`.
    """

    def __init__(self, others: Mapping[int, Any]) -> None:
        general = dict.fromkeys(_COUNT_FORMS, run_general_form)
        own = {instruction.op: semantics_of(instruction) for instruction in OPS if instruction.op not in general}
        self.by_opcode = {int(Op.NOP): changes_nothing} | own | general | dict(others)
        self.addresses = by_opcode(
            lambda i: NOTHING if self.by_opcode[i.op] is changes_nothing else UNMET, default=UNKNOWN
        )
        self.addresses[Op.NOP] = NOTHING
        self._lock = threading.RLock()

    def provide(self, op: int) -> None:
        """Compile the semantics of an opcode and of what it calls by address, unless another thread just did."""
        with self._lock:
            if op in _COUNT_FORMS:
                self.provide(_COUNT_FORMS[op])
            if self.addresses[op] == UNMET:
                self.addresses[op] = address_of(_entry_of(self.by_opcode[op]), ROW_ARGUMENTS)


# most users need one accumulation model alone, and Mmad is the longest of all to compile
_exact = Semantics({})
_chained = Semantics({module.OP: module.run_chained for module in (mmad, mmad_bias)})


@jit
def run_what_is_compiled(
    rows: np.ndarray,
    first: Int,
    last: Int,
    gm: np.ndarray,
    l1: np.ndarray,
    l0a: np.ndarray,
    l0b: np.ndarray,
    l0c: np.ndarray,
    ub: np.ndarray,
    bt: np.ndarray,
    fb: np.ndarray,
    idx: np.ndarray,
    config: np.ndarray,
    scratch: np.ndarray,
    staging: np.ndarray,
    sink: np.ndarray,
    log_runs: np.ndarray,
    log_bytes: np.ndarray,
    addresses: np.ndarray,
) -> Int:
    """Carry out rows, and return the one it ends at; -1 - the row if only nobody compiled its instruction yet.

    Parameters are those of `run_rows` and `Semantics.addresses`.
    """
    table = machine(
        gm, l1, l0a, l0b, l0c, ub, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes, addresses
    )
    for i in range(first, last):
        address = addresses[rows[i]["op"]]
        if address == NOTHING:
            continue
        if address == UNMET:
            return -1 - i
        if address == UNKNOWN or not call_row(address, table, rows[i]):
            return i
    return last


def compiled_for(config: np.ndarray) -> Semantics:
    """Return what carries out instructions with a numeric configuration."""
    return _exact if config[1] == _EXACT and config[0] != 1 else _chained


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
    bt: np.ndarray,
    fb: np.ndarray,
    idx: np.ndarray,
    config: np.ndarray,
    scratch: np.ndarray,
    staging: np.ndarray,
    sink: np.ndarray,
    log_runs: np.ndarray,
    log_bytes: np.ndarray,
) -> int:
    """Carry out ``rows[first:last]`` in program order.

    Each instruction is an entry of its own, compiled when the first row that has it is met.

    Parameters
    ----------
    rows : INSTR[:]
        Rows that went through `issue`.
    first, last : int
        Range of rows.
    gm, l1, ub, bt, fb, idx : uint8[:]
        Arenas; `CoreMemory.buffers` has those of a core.
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
    semantics = compiled_for(config)
    parts = (
        gm, l1, l0a, l0b, l0c, ub, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes,
        semantics.addresses,
    )  # fmt: skip
    if not JIT_ENABLED:
        for i in range(first, last):
            run = semantics.by_opcode.get(int(rows[i]["op"]))
            if run is None or not run_as_python(run, rows[i], *parts):
                return i
        return -1
    at = first
    while (at := int(run_what_is_compiled(rows, at, last, *parts))) < 0:
        at = -1 - at
        semantics.provide(int(rows["op"][at]))
    return -1 if at == last else at

"""What the compiled code of one instruction takes, and how such code calls other code by address."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from numba import from_dtype, types

from npu_sim._by_address import caller, table_maker, table_reader
from npu_sim.isa.row import INSTR

MACHINE = (
    "row", "gm", "l1", "l0a", "l0b", "l0c", "ub", "bt", "fb", "idx", "config", "scratch", "staging", "sink", "log_runs",
    "log_bytes", "addresses",
)  # fmt: skip
"""What the semantics of an instruction can ask for, as `dispatch.run_rows` describes it.

``addresses``: int64[256], by opcode the address of the entry that carries out one row, or one of the numbers below.
"""

UNMET = 0
"""No row had the instruction yet, so nobody compiled it."""
NOTHING = 1
"""The instruction does nothing to memory."""
UNKNOWN = 2
"""No instruction has the opcode."""

_BYTES, _NUMBERS, _SINGLES = (types.Array(item, 1, "C") for item in (types.uint8, types.int64, types.float32))
_ARRAYS = (
    *(_BYTES, _BYTES, _SINGLES, _SINGLES, _SINGLES, _BYTES, _BYTES, _BYTES, _BYTES),
    *(_NUMBERS, types.Array(types.float64, 1, "C"), _SINGLES),
    *(_NUMBERS, types.Array(types.int64, 2, "C"), _BYTES),
    _NUMBERS,
)
ROW_ARGUMENTS: Any = (types.int64, from_dtype(INSTR))
"""Of an entry that carries out one row: what `machine` returned, and the row."""

machine = table_maker(_ARRAYS)
"""Of what `MACHINE` has behind the row: the first argument of `call_row`."""
parts_of = table_reader(_ARRAYS)
"""Of what `machine` returned: the arrays."""
call_row = caller(ROW_ARGUMENTS)
"""Of an address that is none of the numbers above, and `ROW_ARGUMENTS`: whether the row was carried out."""


def run_as_python(semantics: Callable[..., Any], row: Any, *parts: np.ndarray) -> bool:
    """Carry out a row without the JIT; ``parts`` are what `MACHINE` has behind the row."""
    given = dict(zip(MACHINE, (row, *parts), strict=True))
    return bool(semantics(*(given[name] for name in signature(semantics).parameters)))

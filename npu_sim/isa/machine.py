"""What compiled code of one instruction takes and how such code calls other code by address."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types

from npu_sim._by_address import caller
from npu_sim.isa.row import INSTR

MACHINE = (
    "row", "gm", "l1", "l0a", "l0b", "l0c", "ub", "config", "scratch", "staging", "sink", "log_runs", "log_bytes",
    "addresses",
)  # fmt: skip
"""What the semantics of an instruction can ask for, as `dispatch.run_rows` describes it; ``addresses``: `ADDRESSES`."""

_BYTES, _NUMBERS, _SINGLES = (types.Array(item, 1, "C") for item in (types.uint8, types.int64, types.float32))
_BUFFERS = (
    *(_BYTES, _BYTES, _SINGLES, _SINGLES, _SINGLES, _BYTES),
    *(_NUMBERS, types.Array(types.float64, 1, "C"), _SINGLES),
    *(_NUMBERS, types.Array(types.int64, 2, "C"), _BYTES),
    _NUMBERS,
)
_ROWS: Any = types.Array(from_dtype(INSTR), 1, "C")
ROW_ARGUMENTS = (_ROWS, types.int64, *_BUFFERS)
"""Of an entry that carries out one row: rows, number of the row, and what `MACHINE` has behind the row."""
RANGE_ARGUMENTS = (_ROWS, types.int64, types.int64, *_BUFFERS)
"""Of an entry that carries out a range of rows: rows, first, one behind the last, and the same."""
call_row = caller(ROW_ARGUMENTS)
call_range = caller(RANGE_ARGUMENTS, types.int64)

ADDRESSES = np.zeros(256, np.int64)
"""Of the semantics that is compiled apart, by opcode; 0 before a program had it. In place of that of Nop: of the entry
that carries out ranges of rows of the vector unit."""

"""Where the Mmads of a core begin to multiply floats of another type."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Data
from npu_sim.isa.op import IS_MMAD, Op

MODE_LENGTH = 2


@jit
def type_end(rows: np.ndarray, first: Int, n: Int, mode: np.ndarray) -> Int:
    """Return the row behind ``rows[first]`` from which on Mmads multiply floats of another type; ``n``: there is none.

    Parameters
    ----------
    rows : INSTR[:]
        Rows of one core.
    first, n : int
        Range of rows.
    mode : int64[MODE_LENGTH]
        Whether fp32 is multiplied as HF32 (SetHF32Mode), kept from call to call; and what the Mmads up to there
        multiply: -1 - there is none - or twice the code of the type, plus 1 for HF32.
    """
    mode[1] = -1
    for i in range(first, n):
        op = rows[i]["op"]
        if op == Op.SET_HF32:
            mode[0] = rows[i]["value"] != 0
        elif IS_MMAD[op]:
            data = np.int64(rows[i]["dtype"])
            if data != Data.FP16 and data != Data.BF16 and data != Data.FP32:
                continue  # sums of integers are exact: they have no model
            kind = 2 * data + (mode[0] if data == Data.FP32 else 0)
            if mode[1] < 0:
                mode[1] = kind
            elif kind != mode[1]:
                return np.int64(i)
    return np.int64(n)

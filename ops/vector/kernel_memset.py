"""Emitter that clears a GM tensor from UB (MemSet): Duplicate 0 once, then stores.

The tensor is cut in units of 512 bytes, so only its last store is ragged: exact on split cores, elsewhere rounded up to
a block, into the spare bytes behind the tensor.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_duplicate, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import core_share
from ops.vector.kernel_frame import store_bytes

FILL, STORE = range(2)
SITES = {FILL: "FILL", STORE: "STORE"}
STAGE, AT, END = 2, 3, 4
START, COPY, DONE = range(3)


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``: zero its share of the tensor.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `memset.MEMSET_PARAMS`[1]
        address, byte_count, buffer_bytes, tensor, cores, pads.
    state : int64[STATE_LENGTH]
        2 stage, 3 next byte, 4 end.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == DONE:
        return n
    if s[STAGE] == START:
        units = (p["byte_count"] + 511) // 512
        first, end = core_share(units, p["cores"], s[0])
        s[AT] = first * 512
        s[END] = min(end * 512, p["byte_count"])
        s[STAGE] = COPY
        if s[AT] >= s[END]:
            s[STAGE] = DONE
            return n
        length = min(p["buffer_bytes"], s[END] - s[AT])
        n = emit_duplicate(rows, n, 0, Data.FP32, (length + 31) // 32 * 8, 0, FILL, -1)
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, FILL, -1)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, STORE, -1)
    while s[AT] < s[END] and n < len(rows):
        length = min(p["buffer_bytes"], s[END] - s[AT])
        length = np.int64(length)
        n = store_bytes(rows, n, p["pads"], p["address"] + s[AT], 0, length, Data.FP32, p["tensor"], STORE, -1)
        s[AT] += length
    if s[AT] >= s[END]:
        s[STAGE] = DONE
    return n

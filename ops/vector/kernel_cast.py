"""Emitter of Cast: tiles of consecutive elements through UB, double-buffered, one or two conversions each.

Cores take ranges in units of 512 elements and tiles are multiples of 256: only the last tile of the tensor is ragged.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_cast, emit_pipe_barrier, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, core_share
from ops.vector.kernel_frame import hand_to_store, hand_to_vector, prime_halves
from ops.vector.kernel_moves import load_bytes, store_bytes

LOAD, CONVERT, STORE, SYNC = range(4)
SITES = {LOAD: "LOAD", CONVERT: "CONVERT", STORE: "STORE", SYNC: "SYNC"}
STAGE, AT, END, TILE = 2, 3, 4, 5
START, WORK, DONE = range(3)
STEP_ROWS = 20


@jit
def _tile(rows, n, p, at, count, tile):
    """Convert ``count`` elements from element ``at`` on."""
    half = tile & 1
    lanes = np.int64(count)
    if not p["pads"]:
        # whole blocks of results; what lies behind the last element is only carried along
        block = BLOCK // p["dst_item"]
        lanes = (lanes + block - 1) // block * block
    source = half * p["tile"] * p["src_item"]
    middle = p["middle"] + half * p["tile"] * 4
    target = p["target"] + half * p["tile"] * p["dst_item"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, tile)
    n = load_bytes(
        rows,
        n,
        p["pads"],
        source,
        p["src"] + at * p["src_item"],
        lanes * p["src_item"],
        p["src_data"],
        p["src_tensor"],
        LOAD,
        tile,
    )
    n = hand_to_vector(rows, n, half, LOAD, CONVERT, tile)
    if p["through_fp32"]:
        n = emit_cast(rows, n, middle, source, p["src_data"], Data.FP32, p["widen_mode"], lanes, CONVERT, tile)
        n = emit_pipe_barrier(rows, n, Pipe.V, CONVERT, tile)
        n = emit_cast(rows, n, target, middle, Data.FP32, p["dst_data"], p["round_mode"], lanes, CONVERT, tile)
    else:
        n = emit_cast(rows, n, target, source, p["src_data"], p["dst_data"], p["round_mode"], lanes, CONVERT, tile)
    n = hand_to_store(rows, n, half, CONVERT, STORE, tile)
    n = store_bytes(
        rows,
        n,
        p["pads"],
        p["dst"] + at * p["dst_item"],
        target,
        lanes * p["dst_item"],
        p["dst_data"],
        p["dst_tensor"],
        STORE,
        tile,
    )
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `cast.CAST_PARAMS`[1]
        Addresses in bytes, counts in elements.
    state : int64[STATE_LENGTH]
        2 stage, 3 next element, 4 end, 5 tiles done.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        units = (p["count"] + p["unit"] - 1) // p["unit"]
        first, end = core_share(units, p["cores"], s[0])
        s[AT] = first * p["unit"]
        s[END] = min(end * p["unit"], p["count"])
        s[STAGE] = WORK if s[AT] < s[END] else DONE
        if s[STAGE] == WORK:
            n = prime_halves(rows, n, 0, SYNC)
    while s[STAGE] == WORK and n + STEP_ROWS <= len(rows):
        if s[AT] >= s[END]:
            n = prime_halves(rows, n, 1, SYNC)
            s[STAGE] = DONE
        else:
            count = min(p["tile"], s[END] - s[AT])
            n = _tile(rows, n, p, s[AT], count, s[TILE])
            s[AT] += count
            s[TILE] += 1
    return n

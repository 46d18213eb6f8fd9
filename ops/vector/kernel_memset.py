"""Kernel that clears a GM tensor from UB (MemSet): Duplicate 0 once, then stores.

Cores have shares of whole 512 bytes, so only the last store of the tensor is ragged: exact on split cores, elsewhere
rounded up to a block, into the spare bytes behind the tensor.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_duplicate, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.vector.kernel_frame import store_bytes

FILL, STORE = range(2)
SITES = {FILL: "FILL", STORE: "STORE"}
UNIT_BYTES = 512


@jit
def memset(rows, params, core, phase):
    """Zero the share of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `memset.MEMSET_PARAMS`[1], in bytes.
    """
    p = params[0]
    start, end = core * p.share, min((core + 1) * p.share, p.byte_count)
    if start >= end:
        return

    blocks = ceil_div(min(p.buffer_bytes, end - start), BLOCK)
    n = emit_duplicate(rows, 0, dst=0, dtype=Data.FP32, count=blocks * 8, value_bits=0, site=FILL, tile=-1)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, FILL, -1)

    # the zeros stay as they are, so all stores wait for them once
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, STORE, -1)
    for at in range(start, end, p.buffer_bytes):
        if n == len(rows):
            yield n
            n = 0
        length = min(p.buffer_bytes, end - at)
        n = store_bytes(rows, n, p.pads, p.address + at, 0, length, Data.FP32, p.tensor, STORE, -1)
    yield n

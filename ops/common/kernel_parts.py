"""Small jitted pieces that every emitter needs."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_set_flag, emit_wait_flag


@jit
def ceil_div(a, b):
    """Return a / b rounded up, for non-negative integers."""
    return (a + b - 1) // b


@jit
def core_share(items, cores, core):
    """Return the contiguous range [first, end) of ``core``; the first ``items % cores`` cores get one item more."""
    share, extra = items // cores, items % cores
    first = core * share + min(core, extra)
    return first, first + share + (1 if core < extra else 0)


@jit
def free_flag(rows, n, src, dst, event, drain, site):
    """Prime the flag that says "this buffer is free" (``drain`` 0), or wait for it at the end (1)."""
    if drain:
        return emit_wait_flag(rows, n, src, dst, event, site, -1)
    return emit_set_flag(rows, n, src, dst, event, site, -1)

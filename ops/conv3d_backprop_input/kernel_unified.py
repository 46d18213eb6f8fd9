"""Kernel of input gradients and forward convolutions on unified cores (dav-c100, dav-m200): the TBE-style schedule.

M = pixels of the result, N = its channels in one merged group, K = (channel block, window row, window column, channel)
of the source. Each core has a part of each of the loops group, N block, batch item and M block, in this order; a block
is accumulated over all of its K in L0C and leaves through UB, rounded once to fp16, behind the loads of the next
block's first windows. Weights that L1 holds whole stay there while group and N block do not change.
L1 holds some channel blocks of each operand at a time, or a part of one where its taps are too many.

Sources: CANN 8.1 ``tbe/dsl/static_schedule/conv2d_backprop_input_general_schedule.py`` for the data flow and the loops
bound to cores; the tiling is our own (`tiling_unified`).
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_duplicate, emit_mmad, emit_pipe_barrier, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Data, Mode, Pipe
from npu_sim.program.limits import MMAD_BARRIER_ELEMS
from ops.common.kernel_parts import ceil_div
from ops.common.queues import Queue, alloc, close_queue, deque, enque, free, open_queue
from ops.conv3d_backprop_input.kernel_bias import begin_with_bias, bias_queue
from ops.conv3d_backprop_input.kernel_unified_result import L0C, OUT, leave, slices_of
from ops.conv3d_backprop_input.kernel_unified_weights import load_b1, load_l0b
from ops.conv3d_backprop_input.kernel_unified_windows import (
    CELLS,
    DILATED,
    GATHERED,
    RAW,
    a1_queues,
    begin_windows,
    fill_pass,
    is_void,
    load_l0a,
    map_of,
    passes,
)
from ops.conv3d_backprop_input.kernel_unified_work import (
    EPILOGUE,
    LOAD_A,
    LOAD_B,
    LOAD_L0A,
    LOAD_L0B,
    MMAD,
    NO_ITEM,
    PROLOGUE,
    in_step,
    item_of,
    k_part,
    share_of,
)

B1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=2)
"""Weights in L1."""
L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)
"""A half of both L0A and L0B."""
ZERO_EVENT = 2


@jit
def _open_queues(rows, n, p, a1_empty):
    n = open_queue(rows, n, a1_empty, p.al1, PROLOGUE)
    n = open_queue(rows, n, B1, p.bl1, PROLOGUE)
    if p.has_bias:
        n = open_queue(rows, n, bias_queue(p), 1, PROLOGUE)
    for half in range(2):
        n = free(rows, n, L0, half, PROLOGUE, -1)
        n = free(rows, n, OUT, half, PROLOGUE, -1)
        if p.source == DILATED:
            n = free(rows, n, RAW, half, PROLOGUE, -1)
            n = free(rows, n, CELLS, half, PROLOGUE, -1)
    return open_queue(rows, n, L0C, p.cl0, PROLOGUE)


@jit
def _close_queues(rows, n, p, a1_empty):
    n = close_queue(rows, n, a1_empty, p.al1, EPILOGUE)
    n = close_queue(rows, n, B1, p.bl1, EPILOGUE)
    if p.has_bias:
        n = close_queue(rows, n, bias_queue(p), 1, EPILOGUE)
    for half in range(2):
        n = alloc(rows, n, L0, half, EPILOGUE, -1)
        n = alloc(rows, n, OUT, half, EPILOGUE, -1)
        if p.source == DILATED:
            n = alloc(rows, n, RAW, half, EPILOGUE, -1)
            n = alloc(rows, n, CELLS, half, EPILOGUE, -1)
    return close_queue(rows, n, L0C, p.cl0, EPILOGUE)


@jit
def _make_zeros(rows, n, p):
    """Make the zeros in UB that gathered windows start from, and let MTE3 wait for them."""
    n = emit_duplicate(rows, n, 0, Data.FP16, p.ub_part // 2, 0, PROLOGUE, -1)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, ZERO_EVENT, PROLOGUE, -1)
    return emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, ZERO_EVENT, PROLOGUE, -1)


@jit
def convolve(rows, params, core, phase):
    """Write the rows of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `params_unified.UNIFIED_PARAMS`[1].
    """
    p = params[0]
    a1_empty, a1_full = a1_queues(p)
    n = _open_queues(rows, 0, p, a1_empty)
    if p.source == GATHERED:
        n = _make_zeros(rows, n, p)
    share = share_of(p, core)
    a_half = b_half = l0_half = l0c_part = ub_in = ub_out = 0
    b_held = done_part = 0
    done = NO_ITEM
    for tile in range(share.items):
        item = item_of(p, share, tile)
        if item.n_blocks <= 0:
            continue
        k_total = item.k_planes * p.window * 16
        for k in range(ceil_div(k_total, p.base_k)):
            if in_step(p, k, p.step_ka) == 0:
                a_part = k_part(p, item, k, p.step_ka)
                view = map_of(p, item, a_part)
                a1 = p.a1 + a_half * p.a1_bytes
                if not is_void(p, view):
                    n = alloc(rows, n, a1_empty, a_half, LOAD_A, tile)
                    n = begin_windows(rows, n, p, item, a_part, a_half, a1)
                    for number in range(passes(p, a_part, view)):
                        if n + p.step_rows > len(rows):
                            yield n
                            n = 0
                        n = fill_pass(rows, n, p, item, a_part, view, number, ub_in, a1)
                        ub_in = 1 - ub_in
                    n = enque(rows, n, a1_full, a_half, LOAD_A, tile)
                    n = deque(rows, n, a1_full, a_half, LOAD_L0A, tile)
                # the block before leaves while the first windows of this one come
                for number in range(slices_of(p, done)):
                    if n + p.step_rows > len(rows):
                        yield n
                        n = 0
                    n = leave(rows, n, p, done, number, done_part, ub_out)
                    ub_out = 1 - ub_out
                done = NO_ITEM

            if n + p.step_rows > len(rows):
                yield n
                n = 0
            if in_step(p, k, p.step_kb) == 0:
                # weights that L1 holds whole stay while group and N block do not change
                key = 1 + item.group * p.n_count + item.n_index
                if b_held != key:
                    if b_held != 0:
                        n = free(rows, n, B1, b_half, LOAD_L0B, tile)
                        b_half = (b_half + 1) % p.bl1
                    b_part = k_part(p, item, k, p.step_kb)
                    b1 = p.b1 + b_half * p.b1_bytes
                    n = alloc(rows, n, B1, b_half, LOAD_B, tile)
                    n = load_b1(rows, n, p, item, b_part, b1)
                    n = enque(rows, n, B1, b_half, LOAD_B, tile)
                    n = deque(rows, n, B1, b_half, LOAD_L0B, tile)
                    b_held = key if p.b_resident else 0

            m_len, n_len = ceil_div(item.m_len, 16) * 16, item.n_blocks * 16
            if k == 0 and p.has_bias:
                n = alloc(rows, n, L0C, l0c_part, MMAD, tile)
                channel = (item.group * p.n_c1 + item.n_index * (p.base_n // 16)) * 16
                n = begin_with_bias(
                    rows, n, p, channel, m_len, n_len, l0_half, l0c_part * p.l0c_part, LOAD_L0B, MMAD, tile
                )
                l0_half = 1 - l0_half
            k_len = min(p.base_k, k_total - k * p.base_k)
            is_last = k * p.base_k + k_len == k_total
            a_fractal, b_fractal = in_step(p, k, p.step_ka) * p.base_k // 16, in_step(p, k, p.step_kb) * p.base_k // 16
            l0a, l0b = l0_half * p.l0a_half, l0_half * p.l0b_half
            n = alloc(rows, n, L0, l0_half, LOAD_L0A, tile)
            n = load_l0a(rows, n, p, item, a_part, view, a1, a_fractal, k_len, l0a)
            n = load_l0b(rows, n, p, item, b_part, b1, b_fractal, k_len, l0b)
            if (is_last or in_step(p, k + 1, p.step_ka) == 0) and not is_void(p, view):
                n = free(rows, n, a1_empty, a_half, LOAD_L0A, tile)
                a_half = (a_half + 1) % p.al1
            if (is_last or in_step(p, k + 1, p.step_kb) == 0) and b_held == 0:
                n = free(rows, n, B1, b_half, LOAD_L0B, tile)
                b_half = (b_half + 1) % p.bl1
            n = enque(rows, n, L0, l0_half, LOAD_L0B, tile)

            n = deque(rows, n, L0, l0_half, MMAD, tile)
            begins = k == 0 and not p.has_bias
            if begins:
                n = alloc(rows, n, L0C, l0c_part, MMAD, tile)
            n = emit_mmad(
                rows, n, dst=l0c_part * p.l0c_part, src_a=l0a, src_b=l0b, dtype=Data.FP16, m=m_len, n_elems=n_len,
                k=k_len, mode=Mode.INIT if begins else 0, site=MMAD, tile=tile,
            )  # fmt: skip
            if m_len * n_len < MMAD_BARRIER_ELEMS:
                # nothing else keeps the next product from reading these accumulators before so small a one wrote them
                n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
            n = free(rows, n, L0, l0_half, MMAD, tile)
            l0_half = 1 - l0_half
        # it leaves behind the first loads of the next block, which so need not wait for the last product
        done, done_part = item, l0c_part
        l0c_part = (l0c_part + 1) % p.cl0
    for number in range(slices_of(p, done)):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        n = leave(rows, n, p, done, number, done_part, ub_out)
        ub_out = 1 - ub_out
    if b_held != 0:
        n = free(rows, n, B1, b_half, LOAD_L0B, share.items)
    yield _close_queues(rows, n, p, a1_empty)

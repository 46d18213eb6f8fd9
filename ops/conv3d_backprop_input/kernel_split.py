"""Kernel of the input gradient, and of the forward convolution, on dav-c220 (A2, A3).

M = pixels of the result, N = its channels in one merged group, K = (c1, window, c0) of the source. A core walks its
items (merged group, M rows, batch, planes, N block); in an item planes, then N, then M in base blocks; in a block the
depth taps, ascending, and K. All taps of a block add up in L0C, which one Fixpipe rounds and stores: NDC1HWC0, 16
columns (fp32: 8) at a time, which is the order L0C has. Nothing is added in memory. Phase 0, where some results are
under no window, clears everything first. A plain result, NCDHW, is written by the vector cores (`kernel_split_plain`):
the Cube core leaves each block in a slot of its own in memory and says so.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22`` (drivers, clearing, Iterate and Compute, and of
``conv3d_backprop_input_v2_aiv.h`` the flags).
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_cross_core_set_flag,
    emit_cross_core_wait_flag,
    emit_fill,
    emit_fixpipe,
    emit_mmad,
    emit_pipe_barrier,
    emit_set_hf32,
)
from npu_sim.isa.op import Mode, Pipe, Space
from npu_sim.program.limits import MMAD_BARRIER_ELEMS
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import Queue, alloc, close_queue, deque, enque, free, open_queue
from ops.conv3d_backprop_input.kernel_bias import begin_with_bias, bias_queue
from ops.conv3d_backprop_input.kernel_split_lines import load_l0a_lines, load_lines, reads_data
from ops.conv3d_backprop_input.kernel_split_weights import load_b1, load_l0b, weights_of
from ops.conv3d_backprop_input.kernel_split_windows import image_of, load_a1, load_l0a
from ops.conv3d_backprop_input.kernel_split_work import (
    CLEAR,
    EPILOGUE,
    LOAD_A1,
    LOAD_B1,
    LOAD_L0A,
    LOAD_L0B,
    MMAD,
    PROLOGUE,
    SLOT_FREE,
    SLOT_FULL,
    STORE,
    block_of,
    in_part,
    item_of,
    items_of,
    k_part,
    part_number,
    source_plane,
)

A1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value)
"""Activations in L1."""
B1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=2)
"""Weights in L1."""
L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)
"""A half of both L0A and L0B."""
L0C = Queue(producer=Pipe.M.value, consumer=Pipe.FIX.value)
"""A block of the result."""


@jit
def _zero_l0c(rows, n, p):
    """Fill L0C with zeros, as one product of them."""
    for space, fractals in ((Space.L0A, p.l0c_rows // 16), (Space.L0B, 1)):
        n = emit_fill(
            rows, n, dst_space=space, dst=0, dtype=p.data, repeat=1, block_num=fractals, dst_gap=0, value_bits=0,
            site=CLEAR, tile=-1,
        )  # fmt: skip
    n = enque(rows, n, L0, 0, CLEAR, -1)
    n = deque(rows, n, L0, 0, CLEAR, -1)
    n = emit_mmad(
        rows, n, dst=0, src_a=0, src_b=0, dtype=p.data, m=p.l0c_rows, n_elems=16, k=1, mode=Mode.INIT, site=CLEAR,
        tile=-1,
    )  # fmt: skip
    n = enque(rows, n, L0C, 0, CLEAR, -1)
    return deque(rows, n, L0C, 0, CLEAR, -1)


@jit
def _leave(rows, n, p, dst, src, pixels, channels, src_stride, dst_stride, tensor, site, tile):
    """Let a block leave L0C, rounded once, as columns of C0; strides in rows and in pixels."""
    mode = Mode.CHANNEL_SPLIT if p.c0 == 8 else 0
    return emit_fixpipe(
        rows, n, dst_space=Space.GM, dst=dst, src=src, dst_dtype=p.out_data, m_size=pixels, n_size=channels,
        src_stride=src_stride, dst_stride=dst_stride, nd_num=1, src_nd_stride=0, dst_nd_stride=0,
        mode=mode, tensor=tensor, site=site, tile=tile,
    )  # fmt: skip


@jit
def _clear_rest(rows, n, p):
    """Clear the last elements of a plain result, which are no whole block."""
    return emit_fixpipe(
        rows, n, dst_space=Space.GM, dst=p.out + p.out_blocks * BLOCK, src=0, dst_dtype=p.out_data, m_size=1,
        n_size=p.out_rest, src_stride=p.l0c_rows, dst_stride=p.out_rest, nd_num=1, src_nd_stride=0, dst_nd_stride=0,
        mode=Mode.NZ2ND, tensor=p.out_tensor, site=CLEAR, tile=-1,
    )  # fmt: skip


@jit
def _store_in_slot(rows, n, p, core, is_first, block, src, tile):
    """Hand the finished block over to the vector core, whole fractals of it."""
    # the vector core frees the slot when it has read a block, so nobody has freed it for the first
    if not is_first:
        n = emit_cross_core_wait_flag(rows, n, SLOT_FREE, STORE, tile)
    pixels = ceil_div(block.m_len, 16) * 16
    n = _leave(
        rows, n, p, dst=p.slots + core * p.slot_bytes, src=src, pixels=pixels, channels=block.n_len, src_stride=pixels,
        dst_stride=pixels, tensor=p.slots_tensor, site=STORE, tile=tile,
    )  # fmt: skip
    return emit_cross_core_set_flag(rows, n, 2, Pipe.FIX, SLOT_FULL, STORE, tile)


@jit
def _store(rows, n, p, item, block, src, tile):
    """Store the finished block that lies at ``src`` in L0C."""
    if p.out_step_w > 1:
        return _store_apart(rows, n, p, item, block, src, tile)
    hw = p.out_h * p.out_w
    plane = (item.batch * p.out_d + block.d) * p.out_c1 + item.group * p.n1_g + block.n_block
    return _leave(
        rows, n, p, dst=p.out + (plane * hw + block.m) * BLOCK, src=src, pixels=block.m_len, channels=block.n_len,
        src_stride=ceil_div(block.m_len, 16) * 16, dst_stride=hw, tensor=p.out_tensor, site=STORE, tile=tile,
    )  # fmt: skip


@jit
def _store_apart(rows, n, p, item, block, src, tile):
    """Store whole rows of a phase of a split kernel, pixels and rows a stride apart, 16 channels at a time."""
    width, height = p.out_w * p.out_step_w, p.out_h * p.out_step_h
    plane = (item.batch * p.out_d + block.d) * p.out_c1 + item.group * p.n1_g + block.n_block
    first = p.out_first + block.m // p.out_w * p.out_step_h * width
    for column in range(block.n_len // p.c0):
        n = emit_fixpipe(
            rows, n, dst_space=Space.GM, dst=p.out + ((plane + column) * height * width + first) * BLOCK,
            src=src + column * block.m_len * 64, dst_dtype=p.out_data, m_size=p.out_w, n_size=p.c0,
            src_stride=p.out_w, dst_stride=p.out_step_w * p.c0, nd_num=block.m_len // p.out_w,
            src_nd_stride=p.out_w // 16, dst_nd_stride=p.out_step_h * width * p.c0, mode=Mode.NZ2ND,
            tensor=p.out_tensor, site=STORE, tile=tile,
        )  # fmt: skip
    return n


@jit
def _begin_with_bias(rows, n, p, item, block, l0_half, l0c, tile):
    """Let a block start from the bias, which is not rounded to HF32."""
    if p.hf32:
        n = emit_set_hf32(rows, n, 0, MMAD, tile)
    channel, m_len = (item.group * p.n1_g + block.n_block) * p.c0, ceil_div(block.m_len, 16) * 16
    n = begin_with_bias(rows, n, p, channel, m_len, block.n_len, l0_half, l0c, LOAD_L0B, MMAD, tile)
    if p.hf32:
        n = emit_set_hf32(rows, n, 1, MMAD, tile)
    return n


@jit
def convolve(rows, params, core, phase):
    """Write the rows of ``core`` in ``phase``; see `npu_sim.program.launch.Launch`.

    ``params``: `params.SPLIT_PARAMS`[1], or of a split kernel one for each of its phases.
    """
    p = params[0]
    n = 0
    if phase < p.clear:
        start = core * p.clear_share
        end = min(start + p.clear_share, p.out_blocks)
        if start < end:
            n = _zero_l0c(rows, n, p)
        for at in range(start, end, p.l0c_rows):
            if n == len(rows):
                yield n
                n = 0
            count = min(p.l0c_rows, end - at)
            n = _leave(
                rows, n, p, dst=p.out + at * BLOCK, src=0, pixels=count, channels=p.c0, src_stride=p.l0c_rows,
                dst_stride=count, tensor=p.out_tensor, site=CLEAR, tile=-1,
            )  # fmt: skip
        if p.out_rest and start <= p.out_blocks < start + p.clear_share:
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            if start == end:
                n = _zero_l0c(rows, n, p)
            n = _clear_rest(rows, n, p)
        yield n
        return

    first, end = items_of(p, core)
    if first == end:
        return
    if p.hf32:
        n = emit_set_hf32(rows, n, 1, PROLOGUE, -1)
    n = open_queue(rows, n, A1, p.al1, PROLOGUE)
    n = open_queue(rows, n, B1, p.bl1, PROLOGUE)
    n = open_queue(rows, n, L0, 2, PROLOGUE)
    n = open_queue(rows, n, L0C, p.cl0, PROLOGUE)
    if p.has_bias:
        n = open_queue(rows, n, bias_queue(p), 1, PROLOGUE)
    l0_half = l0c_half = stored = 0
    for turn in range((end - first) * len(params)):
        tile, p = first + turn // len(params), params[turn % len(params)]
        item = item_of(p, core, tile)
        b_held = False
        for number in range(item.blocks):
            block = block_of(p, item, number)
            image = image_of(p, block)
            has_data = reads_data(p, block) if p.per_row else image.a_rows > 0
            if not has_data and not p.has_bias:
                continue  # the result is zero, and cleared
            is_first = True
            if p.has_bias:
                if n + p.step_rows > len(rows):
                    yield n
                    n = 0
                n = alloc(rows, n, L0C, l0c_half, MMAD, tile)
                n = _begin_with_bias(rows, n, p, item, block, l0_half, l0c_half * p.l0c_half, tile)
                l0_half, is_first = 1 - l0_half, False
            for tap in range(p.kd if has_data else 0):
                plane = source_plane(p, block.d, tap)
                if plane < 0:
                    continue
                for k in range(item.k_steps):
                    if n + p.step_rows > len(rows):
                        yield n
                        n = 0
                    ka, kb, is_last = in_part(p, k, p.step_ka), in_part(p, k, p.step_kb), k == item.k_steps - 1
                    k_len = min(p.base_k, item.k_len - k * p.base_k)

                    # MTE1 waits for a part of K where it is loaded; the K steps that find it in L1 go on without
                    if ka == 0:
                        parts = part_number(p, item.k_steps - 1, p.step_ka) + 1
                        a_half = (block.m_step * parts + part_number(p, k, p.step_ka)) % p.al1
                        a1 = p.a1 + a_half * p.a1_bytes
                        a_part = k_part(p, item, k, p.step_ka)
                        n = alloc(rows, n, A1, a_half, LOAD_A1, tile)
                        if p.per_row:
                            n = load_lines(rows, n, p, item, block, a_part, plane, a1, tile)
                        else:
                            n = load_a1(rows, n, p, item, image, plane, a_part, a1, tile)
                        n = enque(rows, n, A1, a_half, LOAD_A1, tile)
                        n = deque(rows, n, A1, a_half, LOAD_A1, tile)
                    if kb == 0 and not b_held:
                        parts = part_number(p, item.k_steps - 1, p.step_kb) + 1
                        b_half = (block.n_step * parts + part_number(p, k, p.step_kb)) % p.bl1
                        b1 = p.b1 + b_half * p.b1_bytes
                        weights = weights_of(p, item, block, k)
                        n = alloc(rows, n, B1, b_half, LOAD_B1, tile)
                        n = load_b1(rows, n, p, item, block, weights, tap, b1, tile)
                        n = enque(rows, n, B1, b_half, LOAD_B1, tile)
                        n = deque(rows, n, B1, b_half, LOAD_B1, tile)
                        # b_full: one depth tap, one buffer, all of K and N; so they stay for all blocks of the item
                        b_held = p.b_full == 1

                    l0a, l0b = l0_half * p.l0a_half, l0_half * p.l0b_half
                    n = alloc(rows, n, L0, l0_half, LOAD_L0A, tile)
                    if p.per_row:
                        n = load_l0a_lines(rows, n, p, block, a_part, a1, ka * p.base_k, k_len, l0a, tile)
                    else:
                        n = load_l0a(rows, n, p, block, image, a1, a_part, ka * p.base_k, k_len, l0a, tile)
                    n = load_l0b(rows, n, p, block, weights, b1, kb * p.base_k, k_len, l0b, tile)
                    # parts of A and of B end at K steps of their own
                    if is_last or in_part(p, k + 1, p.step_ka) == 0:
                        n = free(rows, n, A1, a_half, LOAD_L0A, tile)
                    if (is_last or in_part(p, k + 1, p.step_kb) == 0) and not b_held:
                        n = free(rows, n, B1, b_half, LOAD_L0B, tile)
                    n = enque(rows, n, L0, l0_half, LOAD_L0B, tile)

                    n = deque(rows, n, L0, l0_half, MMAD, tile)
                    if is_first:
                        n = alloc(rows, n, L0C, l0c_half, MMAD, tile)
                    m_len = ceil_div(block.m_len, 16) * 16
                    n = emit_mmad(
                        rows, n, dst=l0c_half * p.l0c_half, src_a=l0a, src_b=l0b, dtype=p.data, m=m_len,
                        n_elems=block.n_len, k=k_len, mode=Mode.INIT if is_first else 0, site=MMAD, tile=tile,
                    )  # fmt: skip
                    if m_len * block.n_len <= MMAD_BARRIER_ELEMS:
                        # nothing else keeps the next product from reading these accumulators before so small a one
                        # wrote them; the published kernel has <=, that of the weight gradient <
                        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
                    n = free(rows, n, L0, l0_half, MMAD, tile)
                    l0_half, is_first = 1 - l0_half, False
            if not is_first:
                # all taps have added up
                n = enque(rows, n, L0C, l0c_half, STORE, tile)
                n = deque(rows, n, L0C, l0c_half, STORE, tile)
                if p.plain:
                    n = _store_in_slot(rows, n, p, core, stored == 0, block, l0c_half * p.l0c_half, tile)
                    stored += 1
                else:
                    n = _store(rows, n, p, item, block, l0c_half * p.l0c_half, tile)
                n = free(rows, n, L0C, l0c_half, STORE, tile)
                l0c_half = (l0c_half + 1) % p.cl0
        if b_held:
            n = free(rows, n, B1, b_half, LOAD_L0B, tile)
    n = close_queue(rows, n, A1, p.al1, EPILOGUE)
    n = close_queue(rows, n, B1, p.bl1, EPILOGUE)
    n = close_queue(rows, n, L0, 2, EPILOGUE)
    n = close_queue(rows, n, L0C, p.cl0, EPILOGUE)
    if p.has_bias:
        n = close_queue(rows, n, bias_queue(p), 1, EPILOGUE)
    if stored:
        n = emit_cross_core_wait_flag(rows, n, SLOT_FREE, EPILOGUE, -1)
    if p.hf32:
        n = emit_set_hf32(rows, n, 0, EPILOGUE, -1)
    yield n

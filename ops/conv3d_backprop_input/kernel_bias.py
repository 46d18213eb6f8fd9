"""The bias of a block: what its sums in L0C start from.

The library lets the Cube start from the bias: dav-c220 from the bias table, which L1 fills, unified cores from an L0C
that UB filled. The machine has neither way into L0C. So a product puts the bias there: a column of ones times the bias,
which is exact, in float32 on dav-c220 and in half, the type a bias has there, on unified cores.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_data_copy, emit_fill, emit_load_2d, emit_mmad, emit_nd2nz, emit_pipe_barrier
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.program.limits import MMAD_BARRIER_ELEMS
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import Queue, alloc, deque, enque, free

_L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)


@jit
def bias_queue(p):
    """Return the queue of the bias in L1: a row of 32 bytes a channel, its first element, and zeros behind it.

    Its event is the one behind those of the weights.
    """
    return Queue(Pipe.MTE2.value, Pipe.MTE1.value, 2 + p.bl1)


@jit
def _load_plain(rows, n, p, channel, count, columns, site, tile):
    """Bring ``count`` channels of a plain bias to L1, and zeros for the rest of ``columns``: split cores."""
    if count > 0:
        # rows of one element: ND2NZ puts zeros behind it
        n = emit_nd2nz(
            rows, n, dst=p.bias_l1, src=p.bias + channel * 4, dtype=p.bias_data, nd_num=1, n_value=count, d_value=1,
            src_nd_stride=0, src_d_value=1, dst_c0_stride=columns, dst_n_stride=1, dst_nd_stride=0,
            tensor=p.bias_tensor, site=site, tile=tile,
        )  # fmt: skip
    there = max(count, 0)
    if there < columns:
        n = emit_fill(
            rows, n, dst_space=Space.L1, dst=p.bias_l1 + there * BLOCK, dtype=p.bias_data, repeat=1,
            block_num=columns - there, dst_gap=0, value_bits=0, site=site, tile=tile,
        )  # fmt: skip
    return n


@jit
def begin_with_bias(rows, n, p, channel, m_len, n_len, l0_half, l0c, load_site, mmad_site, tile):
    """Set a block of L0C to the bias of ``n_len`` channels from ``channel`` on, in all of its ``m_len`` rows.

    Takes half ``l0_half`` of L0A and L0B; the accumulators at ``l0c`` must be free.
    """
    queue = bias_queue(p)
    columns, l0a, l0b = ceil_div(n_len, 16) * 16, l0_half * p.l0a_half, l0_half * p.l0b_half
    n = alloc(rows, n, queue, 0, load_site, tile)
    if p.bias_data == Data.FP32:
        n = _load_plain(rows, n, p, channel, min(n_len, p.bias_channels - channel), columns, load_site, tile)
    else:
        # a fractal whose last channels the result does not have is filled with those it has
        for done in range(0, columns, n_len):
            n = emit_data_copy(
                rows, n, dst_space=Space.L1, dst=p.bias_l1 + done * BLOCK, src_space=Space.GM,
                src=p.bias + channel * BLOCK, block_count=1, block_len=min(n_len, columns - done), src_gap=0, dst_gap=0,
                dtype=p.bias_data, tensor=p.bias_tensor, site=load_site, tile=tile,
            )  # fmt: skip
    n = enque(rows, n, queue, 0, load_site, tile)
    n = deque(rows, n, queue, 0, load_site, tile)

    n = alloc(rows, n, _L0, l0_half, load_site, tile)
    n = emit_fill(
        rows, n, dst_space=Space.L0A, dst=l0a, dtype=p.bias_data, repeat=m_len // 16, block_num=1, dst_gap=0,
        value_bits=p.bias_one, site=load_site, tile=tile,
    )  # fmt: skip
    n = emit_load_2d(
        rows, n, dst_space=Space.L0B, dst=l0b, src_space=Space.L1, src=p.bias_l1, dtype=p.bias_data, start_index=0,
        repeat=columns // 16, src_stride=1, dst_gap=0, mode=0, tensor=-1, site=load_site, tile=tile,
    )  # fmt: skip
    n = free(rows, n, queue, 0, load_site, tile)
    n = enque(rows, n, _L0, l0_half, load_site, tile)

    n = deque(rows, n, _L0, l0_half, mmad_site, tile)
    n = emit_mmad(
        rows, n, dst=l0c, src_a=l0a, src_b=l0b, dtype=p.bias_data, m=m_len, n_elems=n_len, k=1, mode=Mode.INIT,
        site=mmad_site, tile=tile,
    )  # fmt: skip
    if m_len * n_len <= MMAD_BARRIER_ELEMS:
        # nothing else keeps the next product from reading these accumulators before so small a one wrote them
        n = emit_pipe_barrier(rows, n, Pipe.M, mmad_site, tile)
    return free(rows, n, _L0, l0_half, mmad_site, tile)

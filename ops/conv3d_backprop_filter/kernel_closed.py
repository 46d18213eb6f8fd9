"""The weight-gradient kernel before the published one on dav-c220: each core sums its pixels in L0C and adds them once.

What is known of it comes from profiles (`tiling_closed`). A core has a block of M and N and a stretch of the rows of
dY, counted over batch items and depths. For each base block it goes through the whole stretch, reading both operands,
and adds the sums to dW, which was cleared before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim._jit import jit
from ops.common.kernel_parts import ceil_div, core_share
from ops.conv3d_backprop_filter.kernel_split import start_item
from ops.conv3d_backprop_filter.walk_split import WALK, close_buffers, k_step, open_buffers, start_block, store_block


@jit
def compute(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Add the share of ``core`` to dW; see `npu_sim.program.launch.Launch`.

    ``params``: `params.SPLIT_PARAMS`[1].
    """
    p = params[0]
    rest, m = divmod(core, p.m_count)
    share, n_block = divmod(rest, p.n_count)
    first, end = core_share(p.n * p.dout * p.ho, p.cores // (p.m_count * p.n_count), share)
    walk = np.zeros(1, WALK)
    n = open_buffers(rows, 0, p)
    a_turn, b_turn = 0, 0
    for outer in range(p.group * p.dk):
        group, tap = divmod(outer, p.dk)
        block, blocks = 0, 1
        while block < blocks:
            walk[0].resumes = 0
            row = first
            while row < end:
                image, row_in = divmod(row, p.ho)
                count = min(p.ho - row_in, end - row)
                row += count
                if not start_item(p, walk, core, m, n_block, image, group, tap, row_in, count):
                    continue
                blocks = walk[0].blocks
                start_block(p, walk, block)
                w = walk[0]
                w.load_a, w.load_b, w.free_a, w.free_b = 1, 1, 1, 1
                w.a_turn, w.b_turn = a_turn, b_turn
                a_turn += ceil_div(w.k_steps, p.step_ka)
                b_turn += ceil_div(w.k_steps, p.step_kb)
                for k_number in range(w.k_steps):
                    if n + p.step_rows > len(rows):
                        yield n
                        n = 0
                    n = k_step(rows, n, p, walk, k_number)
                walk[0].resumes = 1
            if walk[0].resumes:
                n = store_block(rows, n, p, walk, atomic=True, sequential=False)
            block += 1
    yield close_buffers(rows, n, p, walk)

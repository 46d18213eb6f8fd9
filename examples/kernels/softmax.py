"""Softmax of every row, 8 rows at a time: largest element, exponentials of the differences, sum, quotients."""

from __future__ import annotations

import numpy as np

from npu_sim.authoring import Core, In, LocalTensor, Out, Pipe, TBuf, TPipe, TPosition, TQue, kernel

ROWS, LANES, BLOCK = 8, 64, 8  # rows of a tile; float32 of a repeat and of a block


def spread(core: Core, wide: LocalTensor, values: LocalTensor, length: int) -> None:
    """Fill row r of wide[8, length] with values[r]: one block of it, then twice as many with each copy."""
    core.brcb(wide, values, dst_blk_stride=length // BLOCK)
    done = 1
    while done < length // BLOCK:
        core.pipe_barrier(Pipe.V)
        count = min(done, length // BLOCK - done)
        gap = length // BLOCK - count
        core.data_copy(wide[done * BLOCK :], wide, block_count=ROWS, block_len=count, src_gap=gap, dst_gap=gap)
        done += count
    core.pipe_barrier(Pipe.V)


@kernel
def softmax(core: Core, x: In, y: Out) -> None:
    """Take the softmax of x[rows, length]: a multiple of 8 rows of 512 or 1024 elements."""
    rows, length = x.shape
    size, pipe, pieces = ROWS * length, TPipe(core), length // LANES
    in_x = pipe.init_buffer(TQue(TPosition.VECIN), 2, size * 4)
    out_y = pipe.init_buffer(TQue(TPosition.VECOUT), 2, size * 4)
    wide, part, row = (pipe.init_buffer(TBuf(), n * 4).get("fp32") for n in (size, ROWS * pieces, BLOCK))
    for tile in core.tiles(len(range(core.block_idx, rows // ROWS, core.block_num))):
        first = (core.block_idx + tile * core.block_num) * ROWS
        a = in_x.alloc_tensor("fp32")
        core.data_copy(a, x[first, 0], size)
        in_x.enque(a)
        a, e = in_x.deque("fp32"), out_y.alloc_tensor("fp32")
        for reduce, combine, source in ((core.whole_reduce_max, core.sub, a), (core.reduce_repeat, core.div, e)):
            reduce(part, source, mask=LANES, repeat=size // LANES)
            core.pipe_barrier(Pipe.V)
            reduce(row, part, mask=pieces, repeat=ROWS, src_rep_stride=pieces // BLOCK)
            core.pipe_barrier(Pipe.V)
            spread(core, wide, row, length)
            combine(e, source, wide, size)
            core.pipe_barrier(Pipe.V)
            if combine == core.sub:
                core.exp(e, e, size)
                core.pipe_barrier(Pipe.V)
        in_x.free_tensor(a)
        out_y.enque(e)
        core.data_copy(y[first, 0], out_y.deque("fp32"), size)
        out_y.free_tensor(e)


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32)
    y = np.empty_like(x)
    run, e = softmax(x, y), np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    print(f"{run}\nerror {np.abs(y / (e / e.sum(1, keepdims=True)) - 1).max():.1e}, {len(run.findings)} findings")

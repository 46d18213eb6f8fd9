"""z = x + y on all vector cores, tile by tile, with two halves of every buffer so that copies and sums overlap."""

from __future__ import annotations

import numpy as np

from npu_sim.authoring import Core, In, Out, TPipe, TPosition, TQue, kernel

TILE = 2048


@kernel
def add(core: Core, x: In, y: In, z: Out) -> None:
    """Add ``x`` and ``y`` of the same length, a multiple of 16 elements."""
    pipe, item = TPipe(core), x.dtype.item_bytes
    in_x = pipe.init_buffer(TQue(TPosition.VECIN), 2, TILE * item)
    in_y = pipe.init_buffer(TQue(TPosition.VECIN), 2, TILE * item)
    out_z = pipe.init_buffer(TQue(TPosition.VECOUT), 2, TILE * item)
    tiles = -(-len(z) // TILE)
    own = range(core.block_idx, tiles, core.block_num)
    for i in core.tiles(len(own)):
        first = own[i] * TILE
        count = min(TILE, len(z) - first)
        a, b = in_x.alloc_tensor(x.dtype), in_y.alloc_tensor(y.dtype)
        core.data_copy(a, x[first], count)
        core.data_copy(b, y[first], count)
        in_x.enque(a)
        in_y.enque(b)

        a, b, c = in_x.deque(x.dtype), in_y.deque(y.dtype), out_z.alloc_tensor(z.dtype)
        core.add(c, a, b, count)
        out_z.enque(c)
        in_x.free_tensor(a)
        in_y.free_tensor(b)

        c = out_z.deque(z.dtype)
        core.data_copy(z[first], c, count)
        out_z.free_tensor(c)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1_000_000)).astype(np.float16)
    z = np.empty_like(x)
    run = add(x, y, z)
    print(run)
    print("equal to NumPy:", np.array_equal(z, x + y), f"{run.seconds * 1e6:.1f} us,", len(run.findings), "findings")

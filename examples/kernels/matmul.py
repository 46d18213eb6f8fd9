"""c = a b on all Cube cores: tiles of c, double buffers in L1 (256 of k) and in L0 (64 of k)."""

from __future__ import annotations

import numpy as np

from npu_sim.authoring import Core, In, Out, Pipe, TPipe, TPosition, TQue, kernel

TILE_M, TILE_N, K_L1, K_L0 = 128, 128, 256, 64


@kernel(kind="cube")
def matmul(core: Core, a: In, b: In, c: Out) -> None:
    """Multiply fp16 matrices into fp32; all sizes are multiples of 16."""
    (m, k), n, pipe = a.shape, b.shape[1], TPipe(core)
    a1 = pipe.init_buffer(TQue(TPosition.A1), 2, TILE_M * K_L1 * 2)
    b1 = pipe.init_buffer(TQue(TPosition.B1), 2, TILE_N * K_L1 * 2)
    a2 = pipe.init_buffer(TQue(TPosition.A2), 2, TILE_M * K_L0 * 2)
    b2 = pipe.init_buffer(TQue(TPosition.B2), 2, TILE_N * K_L0 * 2)
    co1 = pipe.init_buffer(TQue(TPosition.CO1), 2, TILE_M * TILE_N * 4)
    own = [(i, j) for i in range(0, m, TILE_M) for j in range(0, n, TILE_N)][core.block_idx :: core.block_num]
    for tile in core.tiles(len(own)):
        i, j = own[tile]
        rows, columns = min(TILE_M, m - i), min(TILE_N, n - j)
        sums = co1.alloc_tensor("fp32")
        for first in range(0, k, K_L1):
            depth = min(K_L1, k - first)
            x, y = a1.alloc_tensor("fp16"), b1.alloc_tensor("fp16")  # [k/16][rows][16] and [columns/16][k][16]
            core.nd2nz(x, a[i, first], n_value=rows, d_value=depth, src_d_value=k, dst_c0_stride=rows)
            core.nd2nz(y, b[first, j], n_value=depth, d_value=columns, src_d_value=n, dst_c0_stride=depth)
            a1.enque(x), b1.enque(y)
            x, y = a1.deque("fp16"), b1.deque("fp16")
            for at in range(0, depth, K_L0):
                step = min(K_L0, depth - at)
                p, q = a2.alloc_tensor("fp16"), b2.alloc_tensor("fp16")
                for r in range(rows // 16):  # fractals of 16 rows and all k
                    core.load_2d(p[r * step * 16 :], x[at * rows :], r, step // 16, rows // 16)
                for r in range(step // 16):  # fractals of 16 k and all columns
                    core.load_2d(q[r * columns * 16 :], y[at * 16 :], r, columns // 16, depth // 16, transpose=True)
                a2.enque(p), b2.enque(q)
                p, q = a2.deque("fp16"), b2.deque("fp16")
                core.mmad(sums, p, q, rows, columns, step, init=first + at == 0)
                if rows * columns < 10 * 256:  # a short Mmad does not wait for the sums of the one before
                    core.pipe_barrier(Pipe.M)
                a2.free_tensor(p), b2.free_tensor(q)
            a1.free_tensor(x), b1.free_tensor(y)
        co1.enque(sums)
        core.fixpipe(c[i, j], co1.deque("fp32"), rows, columns, rows, n, nz2nd=True)
        co1.free_tensor(sums)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((1024, 1024), (1024, 1152)))
    c = np.empty((1024, 1152), np.float32)
    run, exact = matmul(a, b, c), a.astype(np.float64) @ b
    error = np.abs(c - exact).max() / np.abs(exact).max()
    print(f"{run}\nerror {error:.1e}, {run.seconds * 1e6:.1f} us, {len(run.findings)} findings")

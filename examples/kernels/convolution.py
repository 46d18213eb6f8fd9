"""A convolution as one matrix product: LoadData3D makes the windows of an image while it loads them (img2col)."""

from __future__ import annotations

import numpy as np

from npu_sim.authoring import Core, In, Out, Pipe, TPipe, TPosition, TQue, kernel, window

TILE_M, K_L0 = 128, 96  # windows and k of a tile in L0


@kernel(kind="cube")
def convolution(core: Core, x: In, w: In, y: Out, stride: int = 1, pad: int = 1) -> None:
    """Convolve x[N, C/16, H, W, 16] with w[C/16, Kh, Kw, Co/16, 16 co, 16 ci] to y[N, Ho Wo, Co], which is float32."""
    (images, c1, height, width, c0), (_, kh, kw, co1, *_), points = x.shape, w.shape, y.shape[1]
    columns, depth, pipe = co1 * 16, c1 * kh * kw * 16, TPipe(core)
    pads = {f"pad_{side}": pad for side in ("left", "right", "top", "bottom")}
    taps = window(l1_h=height, l1_w=width, filter_h=kh, filter_w=kw, stride_h=stride, stride_w=stride, **pads)
    image = pipe.init_buffer(TQue(TPosition.A1), 2, c1 * height * width * c0 * 2)
    weights = pipe.init_buffer(TQue(TPosition.B1), 1, depth * columns * 2)
    a2 = pipe.init_buffer(TQue(TPosition.A2), 2, TILE_M * K_L0 * 2)
    b2 = pipe.init_buffer(TQue(TPosition.B2), 2, columns * K_L0 * 2)
    out = pipe.init_buffer(TQue(TPosition.CO1), 2, TILE_M * columns * 4)
    f = weights.alloc_tensor("fp16")
    core.data_copy(f, w, len(w))
    weights.enque(f)
    f = weights.deque("fp16")
    for number in range(core.block_idx, images, core.block_num):
        t, size = image.alloc_tensor("fp16"), c1 * height * width * c0
        core.data_copy(t, x[number, 0, 0, 0, 0], size)
        image.enque(t)
        t = image.deque("fp16")
        for first in range(0, points, TILE_M):
            rows, rounded = (min(TILE_M, n) for n in (points - first, -(-(points - first) // 16) * 16))
            sums = out.alloc_tensor("fp32")
            for k in range(0, depth, K_L0):
                step, p, q = min(K_L0, depth - k), a2.alloc_tensor("fp16"), b2.alloc_tensor("fp16")
                core.load_3d(p, t, taps, c1 * c0, step, rounded, k, first)
                core.load_2d(q, f[k * columns :], repeat=step * columns // 256)
                a2.enque(p), b2.enque(q)
                p, q = a2.deque("fp16"), b2.deque("fp16")
                core.mmad(sums, p, q, rows, columns, step, init=k == 0)
                core.pipe_barrier(Pipe.M)  # a short Mmad does not wait for the sums of the one before
                a2.free_tensor(p), b2.free_tensor(q)
            out.enque(sums)
            core.fixpipe(y[number, first, 0], out.deque("fp32"), rows, columns, rounded, columns, nz2nd=True)
            out.free_tensor(sums)
        image.free_tensor(t)
    weights.free_tensor(f)


if __name__ == "__main__":
    normal, y = np.random.default_rng(0).standard_normal, np.empty((8, 256, 64), np.float32)
    x, w = (normal(shape).astype(np.float16) for shape in ((8, 2, 16, 16, 16), (2, 3, 3, 4, 16, 16)))
    run = convolution(x, w, y)
    views = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0,), (0,), (1,), (1,), (0,))), (3, 3), (2, 3))
    exact = np.einsum("nchwiyx,cyxoji->nhwoj", views.astype(np.float64), w, optimize=True).reshape(y.shape)
    print(f"{run}\nerror {np.abs(y - exact).max() / np.abs(exact).max():.1e}, {len(run.findings)} findings")

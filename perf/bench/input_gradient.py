"""Input gradients end to end, NCHW arrays in to NCHW array out, against PyTorch's own fp32 input gradient.

``python -m perf.bench.input_gradient [--threads 1] [--rounds 9]``; needs torch (extra ``capture``). Each round runs the
peer and every model in turn, so all see the same machine; the figures are the best of the rounds.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from npu_sim.accumulation import SERIAL, Accumulation, default_accumulation
from npu_sim.dtypes.formats import FP16
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.layouts.transform import activation_from_blocked, blocked_from_activation, fractal_from_weight
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.common.cube_operands import input_layout, output_layout, weight_layout
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.plan import input_gradient_launches
from perf.bench.weight_gradient import BATCH, LAYERS, PRODUCT, Layer, Result, best_of
from perf.peer import require_torch


def input_gradient(
    dy: np.ndarray, weight: np.ndarray, geometry: ConvGeometry, model: Accumulation, threads: int
) -> np.ndarray:
    """Run the kernel on fp16 arrays (n, c, d, h, w) and (cout, cin, kd, kh, kw)."""
    product, data = get_product(PRODUCT), FP16.data
    layouts = output_layout(geometry, "fp16"), weight_layout(geometry, "fp16"), input_layout(geometry, "fp16")
    gm = GlobalMemory()
    sizes = [layout.storage_elems * 2 for layout in layouts]
    a = gm.add("dy", sizes[0], initialised=True, data=data)
    w = gm.add("weight", sizes[1], initialised=True, data=data)
    dx = gm.add("dx", sizes[2], initialised=False, data=data)
    plan = input_gradient_launches(geometry, product, "fp16", gm, a, w, dx)
    blocked_from_activation(dy, layouts[0], gm.view(a, np.uint16, (layouts[0].storage_elems,)), threads=threads)
    fractal_from_weight(weight, layouts[1], gm.view(w, np.uint16, (layouts[1].storage_elems,)), threads=threads)
    for launch in plan.launches:
        execute(launch, product, ExecuteOptions(accumulation=model, threads=threads))
    return activation_from_blocked(gm.view(dx, np.float16, layouts[2].storage_shape), layouts[2], threads=threads)


def measure(layer: Layer, threads: int, rounds: int) -> Result:
    """Time one layer."""
    import torch

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    pad, x_shape = layer.pad, layer.x_shape
    weight, dy = (rng.standard_normal(shape).astype(np.float16) for shape in (layer.weight_shape, layer.dy_shape))
    geometry = ConvGeometry.from_shapes(x_shape, dy.shape, weight.shape, layer.stride, pad)
    tdy, tw = torch.from_numpy(dy.astype(np.float32)), torch.from_numpy(weight.astype(np.float32))
    x = torch.zeros(x_shape)

    def peer() -> object:
        return torch.ops.aten.convolution_backward(
            tdy, x, tw, None, [layer.stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [True, False, False]
        )

    def ours(model: Accumulation) -> object:
        return input_gradient(dy[:, :, None], weight[:, :, None], geometry, model, threads)

    default = default_accumulation(get_product(PRODUCT), "fp16")
    best = best_of({"torch": peer, "serial": lambda: ours(SERIAL), "default": lambda: ours(default)}, rounds)
    return Result(layer=layer.name, threads=threads, **best)


def main() -> None:
    """Print ratios against the peer: above 1 is faster than PyTorch."""
    parser = argparse.ArgumentParser(prog="python -m perf.bench.input_gradient", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    require_torch(parser.prog)
    table = Table(title=f"Input gradient, N = {BATCH}, fp16 on {PRODUCT}, NCHW in to NCHW out; PyTorch fp32 = 1.00")
    for title in ("layer", "threads", "torch ms", "serial ms", "default ms", "serial x", "default x"):
        table.add_column(title, justify="left" if title == "layer" else "right")
    for threads in arguments.threads:
        for layer in LAYERS:
            r = measure(layer, threads, arguments.rounds)
            milliseconds = [f"{seconds * 1e3:.1f}" for seconds in (r.torch, r.serial, r.default)]
            ratios = [f"{r.torch / r.serial:.2f}", f"{r.torch / r.default:.2f}"]
            table.add_row(r.layer, str(r.threads), *milliseconds, *ratios)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

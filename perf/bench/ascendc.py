"""The Ascend C object driven by hand against the operator, on four layers of ResNet-50.

``python -m perf.bench.ascendc [--rounds 7] [--json FILE]``. By hand: the public tiling, one object, all blocks of all
images in turn, on tensors in the device's storage order, on one host thread. The operator: its launches on the same
tensors (``kernel``), and the whole call from NCHW to NCHW (``call``), on one thread and on as many as there are.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.layouts.transform import blocked_from_activation, weight_from_fractal
from npu_sim.products import get_product
from ops.ascendc import Conv3DBackpropFilter, Conv3dBpFilterTiling, ConvDtype, ConvFormat, ConvType, TPosition
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.api import weight_gradient
from ops.conv3d_backprop_filter.plan import plan_weight_gradient
from perf.bench.weight_gradient import BATCH, LAYERS, PRODUCT, Layer

HALF = ConvType(TPosition.GM, ConvFormat.NDC1HWC0, np.float16)
SIZE = ConvType(TPosition.GM, ConvFormat.ND, np.int32)
RESULT = ConvType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, np.float32)
C0 = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds, best of the rounds."""

    layer: str
    by_hand: float
    kernel: float
    call: float
    call_all_threads: float


def drive(g: ConvGeometry, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> None:
    """Run every block of a 2D convolution of one group through one object."""
    host = Conv3dBpFilterTiling(PRODUCT)
    host.SetWeightType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, ConvDtype.FLOAT32)
    host.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    host.SetGradOutputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    host.SetWeightShape(g.cout, g.cin, 1, g.kh, g.kw)
    host.SetInputShape(g.n, g.cin, 1, g.hi, g.wi)
    host.SetGradOutputShape(g.n, g.cout, 1, g.ho, g.wo)
    host.SetPadding(*g.pad)
    host.SetStride(*g.stride)
    _, data = host.GetTiling()
    assert data is not None
    block, hw_o, window = data.basicBlockTiling, g.ho * g.wo, g.kh * g.kw
    single_k = max(min(block.singleCoreK, hw_o) // g.wo, 1) * g.wo
    obj = Conv3DBackpropFilter(HALF, SIZE, HALF, RESULT, product=PRODUCT)
    obj.Init(data.dwTiling)
    for n in range(g.n):
        for k in range(0, hw_o, single_k):
            for m in range(0, g.cout, block.singleCoreM):
                for columns in range(0, g.cin * window, block.singleCoreN):
                    ho = k // g.wo
                    hi = max(0, ho * g.stride[1] - g.pad[2])
                    obj.SetGradOutput(dy[(n * g.cout + m) * hw_o + k * C0 :])
                    obj.SetInput(x[(n * g.cin + columns // window) * g.hi * g.wi + hi * g.wi * C0 :])
                    obj.SetSingleShape(
                        min(block.singleCoreM, g.cout - m),
                        min(block.singleCoreN, g.cin * window - columns),
                        min(single_k, hw_o - k),
                    )
                    obj.SetStartPosition(ho)
                    out = dw[columns * g.cout + m * C0 :]
                    while obj.Iterate():
                        obj.GetTensorC(out)
                    obj.ctx.isFirstIter_ = True
    obj.End()


def measure(layer: Layer, rounds: int) -> Result:
    """Time one layer; every round runs all of them in turn."""
    rng = np.random.default_rng(0)
    pad = layer.kernel // 2
    out = (layer.hw + 2 * pad - layer.kernel) // layer.stride + 1
    shape = (layer.cout, layer.cin, layer.kernel, layer.kernel)
    x = rng.standard_normal((BATCH, layer.cin, layer.hw, layer.hw)).astype(np.float16)
    dy = rng.standard_normal((BATCH, layer.cout, out, out)).astype(np.float16)
    g = ConvGeometry.from_shapes(x.shape, dy.shape, shape, layer.stride, pad)
    product = get_product(PRODUCT)
    plan = plan_weight_gradient(g, product, "fp16")
    x_flat, dy_flat = (
        blocked_from_activation(tensor.reshape(layout.logical_shape), layout).reshape(-1).view(np.float16)
        for tensor, layout in ((x, plan.x_layout), (dy, plan.dy_layout))
    )
    for tensor, values in ((plan.x, x_flat), (plan.dy, dy_flat)):
        plan.gm.view(tensor, np.float16, values.shape)[:] = values
    dw = np.zeros(plan.dw_layout.storage_elems, np.float32)
    options = ExecuteOptions(accumulation=default_accumulation(product, "fp16"))

    def by_hand() -> None:
        dw[:] = 0
        drive(g, x_flat, dy_flat, dw)

    def kernel() -> None:
        for launch in plan.launches:
            execute(launch, product, options)

    def call(threads: int | None) -> np.ndarray:
        return weight_gradient(
            x, dy, shape, stride=layer.stride, padding=pad, product=PRODUCT, threads=threads
        ).grad_weight

    functions: dict[str, Callable[[], object]] = {
        "by_hand": by_hand,
        "kernel": kernel,
        "call": lambda: call(1),
        "call_all_threads": lambda: call(None),
    }
    best = dict.fromkeys(functions, math.inf)
    for _ in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    got = weight_from_fractal(dw, plan.dw_layout).reshape(shape)
    want = weight_from_fractal(plan.gm.view(plan.dw, np.float32, dw.shape), plan.dw_layout).reshape(shape)
    np.testing.assert_allclose(got, want, rtol=0, atol=float(np.abs(want).max()) * 1e-5)
    return Result(layer=layer.name, **best)


def main() -> None:
    """Print what driving by hand costs as a multiple of the operator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    results = [measure(layer, arguments.rounds) for layer in LAYERS]
    table = Table(title=f"Conv3DBackpropFilter by hand, N = {BATCH}, fp16 on {PRODUCT}: multiples of the operator")
    for title in ("layer", "by hand ms", "kernel ms", "call ms", "x kernel", "x call", "x call, all threads"):
        table.add_column(title, justify="left" if title == "layer" else "right")
    for r in results:
        others = (r.kernel, r.call, r.call_all_threads)
        table.add_row(
            r.layer,
            *(f"{seconds * 1e3:.1f}" for seconds in (r.by_hand, r.kernel, r.call)),
            *(f"{r.by_hand / other:.2f}" for other in others),
        )
    Console(width=120).print(table)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump([asdict(result) for result in results], file, indent=1)


if __name__ == "__main__":
    main()

"""The Ascend C object driven by hand against the operator, on four layers of ResNet-50.

``python -m perf.bench.ascendc [--rounds 7] [--json FILE]``. By hand: the public tiling, one object, all blocks of all
images in turn, on tensors in the device's storage order, on one host thread. The operator: its launches on the same
tensors (``kernel``), and the whole call from NCHW to NCHW (``call``), on one thread and on as many as there are.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.layouts.transform import blocked_from_activation, weight_from_fractal
from npu_sim.products import get_product
from ops.ascendc import Conv3DBackpropFilter, Conv3dBpFilterTiling, ConvDtype, ConvFormat, ConvType, TPosition
from ops.common.geometry import ConvGeometry
from ops.common.tensor_desc import described
from ops.conv3d_backprop_filter.plan import WeightGradientLayouts
from ops.conv_backward.api import convolution_backward, plan_convolution_backward
from perf.bench.weight_gradient import BATCH, LAYERS, PRODUCT, Layer
from perf.peer import write_results

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
    pad, shape = layer.pad, layer.weight_shape
    x, dy = (rng.standard_normal(size).astype(np.float16) for size in (layer.x_shape, layer.dy_shape))
    g = ConvGeometry.from_shapes(x.shape, dy.shape, shape, layer.stride, pad)
    product = get_product(PRODUCT)
    layouts = WeightGradientLayouts.of(g, "fp16")
    given: dict[str, Any] = {
        "stride": layer.stride, "padding": pad, "dilation": 1, "output_mask": (False, True, False), "product": PRODUCT,
    }  # fmt: skip
    calls = plan_convolution_backward(*(described(size, "fp16") for size in (dy.shape, x.shape, shape)), **given)
    (planned,) = calls.multiplying_steps
    x_gm, dy_gm, dw_gm = (calls.calls.places[buffer] for buffer in (*planned.step.reads, *planned.step.writes))
    gm, weight = calls.calls.gm, np.zeros(shape, np.float16)
    x_flat, dy_flat = (
        blocked_from_activation(tensor.reshape(layout.logical_shape), layout).reshape(-1).view(np.float16)
        for tensor, layout in ((x, layouts.x), (dy, layouts.dy))
    )
    for tensor, values in ((x_gm, x_flat), (dy_gm, dy_flat)):
        gm.view(tensor, np.float16, values.shape)[:] = values
    dw = np.zeros(layouts.dw.storage_elems, np.float32)
    options = ExecuteOptions(accumulation=default_accumulation(product, "fp16"))

    def by_hand() -> None:
        dw[:] = 0
        drive(g, x_flat, dy_flat, dw)

    def kernel() -> None:
        for launch in planned.kernel.launches:
            execute(launch, product, options)

    def call(threads: int | None) -> object:
        return convolution_backward(dy, x, weight, threads=threads, **given)

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
    got = weight_from_fractal(dw, layouts.dw).reshape(shape)
    want = weight_from_fractal(gm.view(dw_gm, np.float32, dw.shape), layouts.dw).reshape(shape)
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
    write_results(results, arguments.json)


if __name__ == "__main__":
    main()

"""Input gradients and whole backward calls against PyTorch's own in fp32, and against the sum of their kernels.

``python -m perf.bench.convolution_backward [--threads 1 2] [--json FILE]``; needs torch (extra ``capture``). Each round
runs the peer and every model in turn, so all see the same machine; the figures are the best of the rounds. Peak memory
is that of NumPy's allocations during one call, over the bytes of its six tensors. The kernels of a call are all its
launches: gradients, sums, casts and layout conversions.
"""

from __future__ import annotations

import math
import os
import tracemalloc
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

import ops
from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.memory.gm import free_spare
from perf.bench.weight_gradient import BATCH, LAYERS, PRODUCT, Layer, best_of
from perf.peer import race_arguments, write_results


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds per call, best of the rounds; memory in bytes."""

    layer: str
    threads: int
    torch_dx: float
    serial_dx: float
    default_dx: float
    torch_call: float
    call: float
    kernels: float
    tensor_bytes: int
    peak_bytes: int


def _operands(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = (layer.dy_shape, layer.x_shape, layer.weight_shape)
    g, x, w = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    return g, x, w


def measure(layer: Layer, threads: int, rounds: int) -> Result:
    """Time one layer."""
    import torch

    torch.set_num_threads(threads)
    arrays = _operands(layer)
    tensors = [torch.from_numpy(array.astype(np.float32)) for array in arrays]
    pad = layer.pad
    attributes: dict[str, Any] = {"stride": layer.stride, "padding": pad, "dilation": 1, "product": PRODUCT}

    def peer(mask: list[bool]) -> object:
        return torch.ops.aten.convolution_backward(
            *tensors, [layer.cout], [layer.stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask
        )

    def ours(mask: tuple[bool, bool, bool], accumulation: Literal["serial"] | None) -> Any:
        return ops.convolution_backward(
            *arrays, output_mask=mask, accumulation=accumulation, threads=threads, **attributes
        )

    everything, dx_only = (True, True, True), (True, False, False)
    plan = ours(everything, "serial").plan.calls
    # the call has given its memory up; zeros would be multiplied faster than data
    words = plan.gm.arena.view(np.float16)
    words[:] = np.random.default_rng(1).standard_normal(words.size)
    options = ExecuteOptions(accumulation=SERIAL, threads=threads)

    def kernels() -> None:
        for launch in plan.launches:
            execute(launch, plan.product, options)

    best = best_of(
        {
            "torch_dx": lambda: peer([True, False, False]),
            "serial_dx": lambda: ours(dx_only, "serial"),
            "default_dx": lambda: ours(dx_only, None),
            "torch_call": lambda: peer([True, True, True]),
            "call": lambda: ours(everything, "serial"),
            "kernels": kernels,
        },
        rounds,
    )
    free_spare()
    tracemalloc.start()
    ours(everything, "serial")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = 2 * sum(array.nbytes for array in arrays[1:]) + arrays[0].nbytes
    return Result(layer=layer.name, threads=threads, tensor_bytes=size, peak_bytes=peak, **best)


def main() -> None:
    """Print ratios: dx above 1 is faster than PyTorch; a call of 1 takes no longer than its kernels."""
    # a peer whose threads spin for work that does not come would take the processors from whoever runs next
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = race_arguments("python -m perf.bench.convolution_backward", __doc__)
    results = [measure(layer, threads, arguments.rounds) for threads in arguments.threads for layer in LAYERS]
    table = Table(title=f"aclnnConvolutionBackward, N = {BATCH}, fp16 on {PRODUCT}; PyTorch fp32 = 1.00")
    titles = (
        "layer", "threads", "torch dx ms", "serial dx x", "default dx x", "call (serial) ms", "call / kernels",
        "call x", "peak / tensors",
    )  # fmt: skip
    for title in titles:
        table.add_column(title, justify="left" if title == "layer" else "right")
    for r in results:
        table.add_row(
            r.layer,
            str(r.threads),
            f"{r.torch_dx * 1e3:.1f}",
            f"{r.torch_dx / r.serial_dx:.2f}",
            f"{r.torch_dx / r.default_dx:.2f}",
            f"{r.call * 1e3:.1f}",
            f"{r.call / r.kernels:.2f}",
            f"{r.torch_call / r.call:.2f}",
            f"{r.peak_bytes / r.tensor_bytes:.2f}",
        )
    console = Console(width=120)
    console.print(table)
    for threads in arguments.threads:
        rows = [r for r in results if r.threads == threads]
        ratios = {
            "dx serial": [r.torch_dx / r.serial_dx for r in rows],
            "dx default": [r.torch_dx / r.default_dx for r in rows],
            "call over kernels": [r.call / r.kernels for r in rows],
        }
        means = {name: math.exp(sum(map(math.log, values)) / len(values)) for name, values in ratios.items()}
        figures = ", ".join(f"{name} {value:.2f}x" for name, value in means.items())
        console.print(f"geometric mean, {threads} thread(s): {figures}")
    write_results(results, arguments.json)


if __name__ == "__main__":
    main()

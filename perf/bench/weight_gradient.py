"""Weight gradients end to end, NCHW arrays in to NCHW array out, against PyTorch's own fp32 weight gradient.

``python -m perf.bench.weight_gradient [--threads 1 2] [--json FILE]``; needs torch (extra ``capture``). Each round runs
the peer and every model in turn, so all see the same machine; the figures are the best of the rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from ops.conv_backward.api import convolution_backward
from perf.peer import race_arguments, write_results

PRODUCT = "Ascend910B2"
BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A convolution of ResNet-50 (He et al. 2015, table 1), N = 8."""

    name: str
    hw: int
    cin: int
    cout: int
    kernel: int
    stride: int

    @property
    def pad(self) -> int:
        """Padding on every side: of stride 1 the map stays as large."""
        return self.kernel // 2

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        """The input, NCHW."""
        return BATCH, self.cin, self.hw, self.hw

    @property
    def dy_shape(self) -> tuple[int, int, int, int]:
        """The gradient at the output, NCHW."""
        out = (self.hw + 2 * self.pad - self.kernel) // self.stride + 1
        return BATCH, self.cout, out, out

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """The weight, (Cout, Cin, KH, KW)."""
        return self.cout, self.cin, self.kernel, self.kernel


LAYERS = (
    Layer(name="56x56x64 3x3", hw=56, cin=64, cout=64, kernel=3, stride=1),
    Layer(name="28x28x128 3x3/2", hw=56, cin=128, cout=128, kernel=3, stride=2),
    Layer(name="14x14x256 3x3", hw=14, cin=256, cout=256, kernel=3, stride=1),
    Layer(name="56x56x256->64 1x1", hw=56, cin=256, cout=64, kernel=1, stride=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds per call, best of the rounds."""

    layer: str
    threads: int
    torch: float
    serial: float
    default: float


def best_of(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run every function once per round, in turn; return each one's best time."""
    best = dict.fromkeys(functions, math.inf)
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure(layer: Layer, threads: int, rounds: int) -> Result:
    """Time one layer."""
    import torch

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    pad, shape = layer.pad, layer.weight_shape
    x, dy = (rng.standard_normal(size).astype(np.float16) for size in (layer.x_shape, layer.dy_shape))
    tx, tdy = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(dy.astype(np.float32))
    weight, zeros = torch.zeros(shape), np.zeros(shape, np.float16)

    def peer() -> object:
        return torch.ops.aten.convolution_backward(
            tdy, tx, weight, None, [layer.stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [False, True, False]
        )

    def ours(accumulation: Literal["serial"] | None) -> object:
        return convolution_backward(
            dy, x, zeros, stride=layer.stride, padding=pad, dilation=1, output_mask=(False, True, False),
            product=PRODUCT, accumulation=accumulation, threads=threads,
        )  # fmt: skip

    best = best_of({"torch": peer, "serial": lambda: ours("serial"), "default": lambda: ours(None)}, rounds)
    return Result(layer=layer.name, threads=threads, **best)


def main() -> None:
    """Print ratios against the peer: above 1 is faster than PyTorch."""
    arguments = race_arguments("python -m perf.bench.weight_gradient", __doc__)
    results = [measure(layer, threads, arguments.rounds) for threads in arguments.threads for layer in LAYERS]
    table = Table(title=f"Weight gradient, N = {BATCH}, fp16 on {PRODUCT}, NCHW in to NCHW out; PyTorch fp32 = 1.00")
    for title in ("layer", "threads", "torch ms", "serial ms", "default ms", "serial x", "default x"):
        table.add_column(title, justify="left" if title == "layer" else "right")
    for r in results:
        table.add_row(
            r.layer,
            str(r.threads),
            f"{r.torch * 1e3:.1f}",
            f"{r.serial * 1e3:.1f}",
            f"{r.default * 1e3:.1f}",
            f"{r.torch / r.serial:.2f}",
            f"{r.torch / r.default:.2f}",
        )
    console = Console(width=120)
    console.print(table)
    for threads in arguments.threads:
        rows = [r for r in results if r.threads == threads]
        serial = math.exp(sum(math.log(r.torch / r.serial) for r in rows) / len(rows))
        default = math.exp(sum(math.log(r.torch / r.default) for r in rows) / len(rows))
        console.print(f"geometric mean, {threads} thread(s): serial {serial:.2f}x, default {default:.2f}x")
    if {1, 2} <= set(arguments.threads):
        for name in ("serial", "default"):
            one = sum(math.log(getattr(r, name)) for r in results if r.threads == 1)
            two = sum(math.log(getattr(r, name)) for r in results if r.threads == 2)
            console.print(f"two threads over one, {name}: {math.exp((one - two) / len(LAYERS)):.2f}x")
    write_results(results, arguments.json)


if __name__ == "__main__":
    main()

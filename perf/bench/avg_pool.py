"""The pooling gradient against PyTorch's own in fp32, and each route by the timeline engine.

``python -m perf.bench.avg_pool [--threads 1 2] [--json FILE]``; needs torch (extra ``capture``). Each round runs the
peer and every call in turn, so all see the same machine; the figures are the best of the rounds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import ops
from npu_sim.engines.timeline import run_timeline
from perf.bench.weight_gradient import best_of
from perf.peer import race_arguments, write_results

PRODUCT = "Ascend910B2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One call: fp16 tensors of ``shape``, a square kernel."""

    name: str
    shape: tuple[int, int, int, int]
    kernel: int
    stride: int
    padding: int = 0
    product: str = PRODUCT
    arguments: dict[str, Any] = field(default_factory=dict)


POOLS = (
    Pool(name="3x3 s2, Cube", shape=(8, 64, 56, 56), kernel=3, stride=2, padding=1),
    Pool(name="7x7 whole map, Cube", shape=(32, 2048, 7, 7), kernel=7, stride=7),
    Pool(
        name="3x3 s2, vector", shape=(8, 64, 56, 56), kernel=3, stride=2, padding=1,
        arguments={"count_include_pad": False},
    ),
    Pool(name="14x14 whole map, global", shape=(32, 512, 14, 14), kernel=14, stride=14),
    Pool(
        name="3x3 s2, means on 310P", shape=(8, 64, 56, 56), kernel=3, stride=2, padding=1, product="Ascend310P3",
        arguments={"count_include_pad": False},
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds per call, best of the rounds; microseconds on the device by the timeline engine."""

    name: str
    path: str
    threads: int
    torch: float
    call: float
    device_us: float
    busiest: str


def measure(pool: Pool, threads: int, rounds: int) -> Result:
    """Time one call."""
    import torch

    torch.set_num_threads(threads)
    x = np.zeros(pool.shape, np.float16)
    out = (pool.shape[2] + 2 * pool.padding - pool.kernel) // pool.stride + 1
    grad = np.random.default_rng(0).standard_normal((*pool.shape[:2], out, out)).astype(np.float16)
    tensors = torch.from_numpy(grad.astype(np.float32)), torch.from_numpy(x.astype(np.float32))
    include = pool.arguments.get("count_include_pad", True)

    def peer() -> object:
        k, s, p = pool.kernel, pool.stride, pool.padding
        return torch.ops.aten.avg_pool2d_backward(*tensors, [k, k], [s, s], [p, p], False, include, None)

    def call() -> Any:
        return ops.avg_pool2d_backward(
            grad, x, kernel_size=pool.kernel, stride=pool.stride, padding=pool.padding, threads=threads,
            product=pool.product, **pool.arguments,
        )  # fmt: skip

    best = best_of({"torch": peer, "call": call}, rounds)
    r = call()
    timed = [run_timeline(launch, r.product) for launch in r.plan.calls.launches]
    longest = max(range(len(timed)), key=lambda i: timed[i].total_cycles)
    return Result(
        name=pool.name,
        path=r.path,
        threads=threads,
        device_us=sum(t.total_cycles for t in timed) * 1e6 / r.product.timing_clock_hz,
        busiest=r.plan.calls.launches[longest].name,
        **best,
    )


def main() -> None:
    """Print ratios: above 1 is faster than PyTorch."""
    # a peer whose threads spin for work that does not come would take the processors from whoever runs next
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = race_arguments("python -m perf.bench.avg_pool", __doc__)
    results = [measure(pool, threads, arguments.rounds) for threads in arguments.threads for pool in POOLS]
    table = Table(title="aclnnAvgPool2dBackward, fp16; PyTorch fp32 = 1.00")
    for title in ("call", "route", "threads", "torch ms", "call ms", "x", "device us", "longest launch"):
        table.add_column(title, justify="left" if title in ("call", "route", "longest launch") else "right")
    for r in results:
        table.add_row(
            r.name,
            r.path,
            str(r.threads),
            f"{r.torch * 1e3:.1f}",
            f"{r.call * 1e3:.1f}",
            f"{r.torch / r.call:.2f}",
            f"{r.device_us:.1f}",
            r.busiest,
        )
    Console(width=120).print(table)
    write_results(results, arguments.json)


if __name__ == "__main__":
    main()

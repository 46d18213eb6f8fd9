"""The races of ``python -m perf.bench``: every part that somebody waits for against what does the same elsewhere."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import ops
from npu_sim.accumulation import SERIAL, default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.products import get_product
from ops.common.plan_cache import forget_plans
from ops.studies.checking import check_launches
from perf.bench import mmad, rows, transforms
from perf.bench import vectors as vector_cases
from perf.bench.avg_pool import POOLS
from perf.bench.race import Race
from perf.bench.sources import Twins, clock
from perf.bench.weight_gradient import BATCH, LAYERS, PRODUCT

MASKS = {"dx": (True, False, False), "dw": (False, True, False), "dx dw db": (True, True, True)}
"""Gradients that are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A backward call: the feature map is N, C, [D,] H, W, the kernel and the rest the same along each axis."""

    name: str
    x: tuple[int, ...]
    cout: int
    kernel: int
    stride: int = 1
    groups: int = 1
    product: str = PRODUCT
    dtype: str = "float16"
    cube_math_type: int = 0

    @property
    def padding(self) -> int:
        """Zeros around the map, so that only the stride makes it smaller."""
        return self.kernel // 2

    def tensors(self) -> list[np.ndarray]:
        """Return gradOutput, input and weight in float32."""
        rng = np.random.default_rng(0)
        spatial = self.x[2:]
        out = tuple((extent + 2 * self.padding - self.kernel) // self.stride + 1 for extent in spatial)
        shapes = (
            (self.x[0], self.cout, *out),
            self.x,
            (self.cout, self.x[1] // self.groups, *(self.kernel,) * len(spatial)),
        )
        return [rng.standard_normal(shape, np.float32) for shape in shapes]


RESNET = tuple(
    Layer(name=one.name, x=(BATCH, one.cin, one.hw, one.hw), cout=one.cout, kernel=one.kernel, stride=one.stride)
    for one in LAYERS
)
DEEP = (
    Layer(name="14x14x1024->256 1x1", x=(BATCH, 1024, 14, 14), cout=256, kernel=1),
    Layer(name="7x7x512 3x3", x=(BATCH, 512, 7, 7), cout=512, kernel=3),
)
"""Layers of small maps and many channels: weights and sums in memory weigh more than in `RESNET`."""
KINDS = (
    Layer(name="depthwise 3x3", x=(BATCH, 128, 28, 28), cout=128, kernel=3, groups=128),
    Layer(name="4 groups 3x3", x=(BATCH, 128, 28, 28), cout=128, kernel=3, groups=4),
    Layer(name="3D 3x3x3", x=(2, 32, 8, 28, 28), cout=32, kernel=3),
    Layer(name="310P 3x3", x=(BATCH, 64, 28, 28), cout=64, kernel=3, product="Ascend310P3"),
    Layer(name="910 3x3", x=(BATCH, 64, 28, 28), cout=64, kernel=3, product="Ascend910A"),
    Layer(name="bf16 3x3", x=(BATCH, 64, 28, 28), cout=64, kernel=3, dtype="bfloat16"),
    Layer(name="fp32 3x3", x=(BATCH, 64, 28, 28), cout=64, kernel=3, dtype="float32"),
    Layer(name="HF32 3x3", x=(BATCH, 64, 28, 28), cout=64, kernel=3, dtype="float32", cube_math_type=3),
)
SMALL = Layer(name="1x16x8x8 3x3", x=(1, 16, 8, 8), cout=16, kernel=3)


def _gradients(group: str, layer: Layer, gradients: str, model: str | None, threads: int) -> Race:
    """Return a backward call against PyTorch's own in float32, on as many threads."""
    import ml_dtypes
    import torch

    mask = MASKS[gradients]
    tensors = layer.tensors()
    peers = [torch.from_numpy(tensor) for tensor in tensors]
    types = {"bfloat16": ml_dtypes.bfloat16}
    arrays = [tensor.astype(types.get(layer.dtype, layer.dtype)) for tensor in tensors]
    axes = len(layer.x) - 2

    def ours() -> object:
        return ops.convolution_backward(
            *arrays, stride=layer.stride, padding=layer.padding, dilation=1, groups=layer.groups, output_mask=mask,
            product=layer.product, cube_math_type=layer.cube_math_type, accumulation=model, threads=threads,
        )  # fmt: skip

    def peer() -> object:
        torch.set_num_threads(threads)
        return torch.ops.aten.convolution_backward(
            *peers, [layer.cout], [layer.stride] * axes, [layer.padding] * axes, [1] * axes, False, [0] * axes,
            layer.groups, list(mask),
        )  # fmt: skip

    words = f"{layer.name}, {gradients}, {model or 'default'}, {threads} thread{'s' if threads > 1 else ''}"
    # threads share the processor's time, not the wait for the result
    clock = time.process_time if threads == 1 else time.perf_counter
    return Race(group=group, name=words, ours=ours, peer=peer, peer_name="PyTorch fp32", clock=clock)


def gradients(threads: int) -> Iterator[Race]:
    """Yield the gradients of six layers of ResNet-50, on one thread and on ``threads``."""
    for count in sorted({1, threads}):
        for model in ("serial", None):
            for layer in (*RESNET, *DEEP):
                for wanted in ("dx", "dw"):
                    yield _gradients("gradients", layer, wanted, model, count)


def kinds(threads: int) -> Iterator[Race]:
    """Yield other kinds of convolutions, types and products, serial on one thread."""
    for layer in KINDS:
        for wanted in ("dx", "dw"):
            yield _gradients("kinds", layer, wanted, "serial", 1)


def _step() -> Race:
    """Return a training step of a small network whose gradients the bridge computes, against PyTorch's own."""
    import torch
    from torch import nn

    import ops.torch

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    images = torch.rand((4, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    emulation = ops.torch.emulate(model=model, threads=1)

    def peer() -> None:
        torch.set_num_threads(1)
        model.zero_grad()
        model(images).logsumexp(1).sum().backward()

    def ours() -> None:
        with emulation:
            peer()

    return Race(group="calls", name="step of a small CNN, batch 4", ours=ours, peer=peer, peer_name="PyTorch fp32")


def calls(threads: int) -> Iterator[Race]:
    """Yield a small call that is repeated, one that is planned anew each time, and a step of a small network."""
    repeated = _gradients("calls", SMALL, "dx dw db", None, 1)
    yield repeated

    def planned() -> None:
        forget_plans()
        repeated.ours()

    yield Race(
        group="calls",
        name=f"{SMALL.name}, planned anew",
        ours=planned,
        peer=repeated.peer,
        peer_name=repeated.peer_name,
    )
    yield _step()


def pools(threads: int) -> Iterator[Race]:
    """Yield gradients of poolings."""
    import torch

    for pool in POOLS:
        x = np.zeros(pool.shape, np.float16)
        out = (pool.shape[2] + 2 * pool.padding - pool.kernel) // pool.stride + 1
        grad = np.random.default_rng(0).standard_normal((*pool.shape[:2], out, out)).astype(np.float16)
        tensors = torch.from_numpy(grad.astype(np.float32)), torch.from_numpy(x.astype(np.float32))
        window = [pool.kernel] * 2, [pool.stride] * 2, [pool.padding] * 2
        include = pool.arguments.get("count_include_pad", True)
        torch.set_num_threads(1)
        yield Race(
            group="pools",
            name=pool.name,
            ours=partial(
                ops.avg_pool2d_backward, grad, x, kernel_size=pool.kernel, stride=pool.stride, padding=pool.padding,
                threads=1, product=pool.product, **pool.arguments,
            ),
            peer=partial(torch.ops.aten.avg_pool2d_backward, *tensors, *window, False, include, None),
            peer_name="PyTorch fp32",
        )  # fmt: skip


def checks(threads: int) -> Iterator[Race]:
    """Yield what checks a call against what executes it, in the default model on one thread."""
    chip = get_product(PRODUCT)
    options = ExecuteOptions(accumulation=default_accumulation(chip, "fp16"))
    for layer in RESNET:
        arrays = [tensor.astype(np.float16) for tensor in layer.tensors()]
        plan = ops.convolution_backward(
            *arrays, stride=layer.stride, padding=layer.padding, dilation=1, product=chip, threads=1
        ).plan.calls
        # zeros would be multiplied faster than data
        words = plan.gm.arena.view(np.float16)
        words[:] = np.random.default_rng(1).standard_normal(words.size)

        def check(launches: Any = plan.launches) -> None:
            check_launches(launches, chip)

        def compute(launches: Any = plan.launches) -> None:
            for launch in launches:
                execute(launch, chip, options)

        yield Race(group="checks", name=layer.name, ours=check, peer=compute, peer_name="execution")


def kernels(threads: int) -> Iterator[Race]:
    """Yield one Mmad."""
    product = get_product(PRODUCT)
    for operands in ("fp16", "fp32", "hf32"):
        for model in (SERIAL, default_accumulation(product, operands)):
            m, k, n = mmad.TILES[0]
            tile = mmad.Tile(product, m, k, n, operands)
            tile.check(model)
            yield Race(
                group="kernels", name=f"Mmad {m}x{k}x{n} {operands} {model.name}",
                ours=partial(tile.mmad, model, init=False), peer=tile.sgemm, peer_name="OpenBLAS",
            )  # fmt: skip


def vectors(threads: int) -> Iterator[Race]:
    """Yield vector instructions of 4,096 elements."""
    for case in vector_cases.CASES:
        work = vector_cases.Work(case)
        yield Race(group="vectors", name=case.name, ours=work.ours, peer=work.peer, peer_name="NumPy")


def moves(threads: int) -> Iterator[Race]:
    """Yield conversions of layouts."""
    for cases in (transforms.activation_cases(1), transforms.weight_cases(1), transforms.matrix_cases(1)):
        seen: set[str] = set()
        for case in cases:
            if case.name not in seen:
                seen.add(case.name)
                yield Race(
                    group="moves", name=f"{case.name} {case.shape}", ours=case.work, peer=case.numpy_work,
                    peer_name="NumPy",
                )  # fmt: skip


def timeline(threads: int) -> Iterator[Race]:
    """Yield the timing of rows against their emission."""
    program = rows.Program(60_000, 4096)
    yield Race(
        group="timeline", name="rows of a tiled Cube kernel", ours=program.timeline, peer=program.emission,
        peer_name="emission",
    )  # fmt: skip


def _children() -> float:
    """Return the processor time of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process(*arguments: str) -> Callable[[], object]:
    return partial(subprocess.run, [sys.executable, *arguments], check=True, capture_output=True)


def commands(threads: int) -> Iterator[Race]:
    """Yield what a command takes whose code is compiled, against the imports it cannot do without."""
    main = ("-m", "ops.cli.main")
    yield Race(
        group="commands", name="npu-sim --help", ours=_process(*main, "--help"),
        peer=_process("-c", "import typer, rich.table"), peer_name="import typer, rich", clock=_children,
    )  # fmt: skip
    yield Race(
        group="commands", name="npu-sim precision", ours=_process(*main, "precision"),
        peer=_process("-c", "import numpy, numba, typer, rich.table"), peer_name="import numba, typer", clock=_children,
    )  # fmt: skip


def sources(threads: int) -> Iterator[Race]:
    """Yield the weight gradient as an Ascend C source against the shipped kernel of the same rows; needs a compiler."""
    # of a large batch start-up is a small part
    for layer, batch in (*((layer, BATCH) for layer in LAYERS), (LAYERS[0], 64)):
        name = layer.name if batch == BATCH else f"{layer.name} of {batch}"
        twins = Twins(layer, batch)
        twins.check()
        yield Race(
            group="sources", name=f"{name}, run", ours=twins.source, peer=twins.shipped,
            peer_name="the jitted kernel", clock=clock,
        )  # fmt: skip
        yield Race(
            group="sources", name=f"{name}, run first", ours=twins.source_first, peer=twins.shipped,
            peer_name="the jitted kernel", clock=clock,
        )  # fmt: skip
        yield Race(
            group="sources", name=f"{name}, emitted", ours=twins.record, peer=twins.emission,
            peer_name="the jitted kernel", clock=clock,
        )  # fmt: skip


GROUPS: dict[str, Callable[[int], Iterator[Race]]] = {
    make.__name__: make
    for make in (gradients, kinds, calls, pools, checks, kernels, vectors, moves, timeline, sources, commands)
}
"""What there is, by name; each takes the threads to try besides one and makes a race when it is its turn."""
NEED_TORCH = ("gradients", "kinds", "calls", "pools")

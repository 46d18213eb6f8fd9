"""Small calls of the kernels of examples/kernels: arrays, the result that is exact, and the kernel itself."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.authoring import (
    Core,
    In,
    InOut,
    KernelFunction,
    KernelRun,
    Out,
    Pipe,
    TBuf,
    TPipe,
    TPosition,
    TQue,
    kernel,
)
from npu_sim.debug import Machine
from npu_sim.debug.execution import Execution
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.numerics import options_of
from npu_sim.program.recorded import launch_of

KERNELS = Path(__file__).parents[2] / "examples/kernels"


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """A call that may be recorded, debugged and run any number of times."""

    kernel: KernelFunction
    arrays: tuple[np.ndarray, ...]
    keywords: Mapping[str, Any]
    result: str
    golden: np.ndarray
    product: str = "Ascend910B2"

    def record(self) -> KernelRun:
        return self.kernel.record(*self.arrays, **self.keywords, product=self.product)

    def machine(self, options: ExecuteOptions | None = None) -> Machine:
        return self.kernel.machine(*self.arrays, **self.keywords, product=self.product, options=options)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return what the tensors hold before the call; results that the kernel only writes are left out."""
        places = zip(self.record().launches[0].gm.tensors, self.arrays, strict=True)
        return {place.name: array for place, array in places if place.initialised}

    def run(self) -> np.ndarray:
        """Run it on copies and return the result."""
        arrays = [array if not array.flags.writeable else array.copy() for array in self.arrays]
        self.kernel(*arrays, **self.keywords, product=self.product)
        (found,) = (array for array in arrays if array.flags.writeable)
        return found

    def execution(self, programs: Sequence[np.ndarray] | None = None) -> Execution:
        """Return the call, or other rows of its cores in place of its own."""
        run = self.record()
        (launch,) = run.launches
        cores = [run.rows(core) for core in range(launch.core_count)]
        others = {name: getattr(launch, name) for name in ("sites", "lines", "buffers", "core_kind")}
        broken = launch_of(launch.name, [[rows] for rows in programs or cores], launch.gm, **others)
        return Execution(
            launches=(broken,),
            product=run.product,
            tensors=self.tensors(),
            results={},
            options=options_of(run.product, run.rows()),
        )


@cache
def source_of(name: str) -> dict[str, Any]:
    return runpy.run_path(str(KERNELS / f"{name}.py"))


def _fixed(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays


def vector_add() -> KernelCall:
    rng = np.random.default_rng(1)
    x, y = _fixed(*(rng.standard_normal(40000).astype(np.float32) for _ in range(2)))
    return KernelCall(
        kernel=source_of("vector_add")["add"],
        arrays=(x, y, np.empty_like(x)),
        keywords={"blocks": 3},
        result="z",
        golden=x.astype(np.float64) + y,
    )


def matmul() -> KernelCall:
    rng = np.random.default_rng(2)
    a, b = _fixed(*(rng.standard_normal(shape).astype(np.float16) for shape in ((256, 320), (320, 272))))
    return KernelCall(
        kernel=source_of("matmul")["matmul"],
        arrays=(a, b, np.empty((256, 272), np.float32)),
        keywords={"blocks": 2},
        result="c",
        golden=a.astype(np.float64) @ b.astype(np.float64),
    )


def softmax() -> KernelCall:
    rng = np.random.default_rng(3)
    (x,) = _fixed(rng.standard_normal((48, 512)).astype(np.float32))
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return KernelCall(
        kernel=source_of("softmax")["softmax"],
        arrays=(x, np.empty_like(x)),
        keywords={"blocks": 3},
        result="y",
        golden=e / e.sum(axis=1, keepdims=True),
    )


def convolution() -> KernelCall:
    rng = np.random.default_rng(4)
    x, w = _fixed(*(rng.standard_normal(s).astype(np.float16) for s in ((5, 2, 13, 12, 16), (2, 3, 3, 2, 16, 16))))
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    exact = np.einsum("nchwiyx,cyxoji->nhwoj", views, w.astype(np.float64), optimize=True).reshape(5, 156, 32)
    return KernelCall(
        kernel=source_of("convolution")["convolution"],
        arrays=(x, w, np.empty(exact.shape, np.float32)),
        keywords={"blocks": 2},
        result="y",
        golden=exact,
    )


@kernel
def _weighted_sums(core: Core, x: In, w: In, y: Out) -> None:
    """y[rows, n] = x[rows, n] w[n] - max(x, w): one row a tile, the weights once for all of them."""
    rows, n = x.shape
    pipe = TPipe(core)
    source = pipe.init_buffer(TQue(TPosition.VECIN), 2, n * 4)
    result = pipe.init_buffer(TQue(TPosition.VECOUT), 2, n * 4)
    weights = pipe.init_buffer(TQue(TPosition.VECIN), 1, n * 4)
    larger = pipe.init_buffer(TBuf(TPosition.VECCALC), n * 4).get("fp32")
    f = weights.alloc_tensor("fp32")
    core.data_copy(f, w, n)
    weights.enque(f)
    f = weights.deque("fp32")
    own = range(core.block_idx, rows, core.block_num)
    for tile in core.tiles(len(own)):
        a = source.alloc_tensor("fp32")
        core.data_copy(a, x[own[tile], 0], n)
        source.enque(a)
        a, b = source.deque("fp32"), result.alloc_tensor("fp32")
        core.max(larger, a, f, n)
        core.mul(b, a, f, n)
        core.pipe_barrier(Pipe.V)
        core.sub(b, b, larger, n)
        result.enque(b)
        source.free_tensor(a)
        core.data_copy(y[own[tile], 0], result.deque("fp32"), n)
        result.free_tensor(b)
    weights.free_tensor(f)


def weighted_sums() -> KernelCall:
    rng = np.random.default_rng(5)
    x, w = _fixed(*(rng.standard_normal(shape).astype(np.float32) for shape in ((23, 512), (512,))))
    return KernelCall(
        kernel=_weighted_sums,
        arrays=(x, w, np.empty_like(x)),
        keywords={"blocks": 3},
        result="y",
        golden=x.astype(np.float64) * w - np.maximum(x, w),
    )


@kernel(kind="cube")
def _split_k(core: Core, a: In, b: In, c: InOut) -> None:
    """Add a[m, k] b[k, n] to c: each tile is 16 rows and half of k, and cores that share a block add in memory."""
    (m, k), n = a.shape, b.shape[1]
    pipe, half = TPipe(core), k // 2
    a1 = pipe.init_buffer(TQue(TPosition.A1), 2, 16 * half * 2)
    b1 = pipe.init_buffer(TQue(TPosition.B1), 2, half * n * 2)
    a2 = pipe.init_buffer(TQue(TPosition.A2), 1, 16 * half * 2)
    b2 = pipe.init_buffer(TQue(TPosition.B2), 1, half * n * 2)
    co1 = pipe.init_buffer(TQue(TPosition.CO1), 2, 16 * n * 4)
    core.set_atomic("fp32")
    own = [(i, j) for i in range(0, m, 16) for j in (0, half)][core.block_idx :: core.block_num]
    for tile in core.tiles(len(own)):
        i, j = own[tile]
        x, y = a1.alloc_tensor("fp16"), b1.alloc_tensor("fp16")
        core.nd2nz(x, a[i, j], n_value=16, d_value=half, src_d_value=k, dst_c0_stride=16)
        core.nd2nz(y, b[j, 0], n_value=half, d_value=n, src_d_value=n, dst_c0_stride=half)
        a1.enque(x)
        b1.enque(y)
        x, y = a1.deque("fp16"), b1.deque("fp16")
        p, q = a2.alloc_tensor("fp16"), b2.alloc_tensor("fp16")
        core.load_2d(p, x, 0, half // 16, 1)
        for r in range(half // 16):
            core.load_2d(q[r * n * 16 :], y[r * 256 :], 0, n // 16, half // 16, transpose=True)
        a2.enque(p)
        b2.enque(q)
        p, q, sums = a2.deque("fp16"), b2.deque("fp16"), co1.alloc_tensor("fp32")
        core.mmad(sums, p, q, 16, n, half, init=True)
        a1.free_tensor(x)
        b1.free_tensor(y)
        a2.free_tensor(p)
        b2.free_tensor(q)
        co1.enque(sums)
        core.fixpipe(c[i, 0], co1.deque("fp32"), 16, n, 16, n, nz2nd=True)
        co1.free_tensor(sums)
    core.set_atomic(None)


def split_k() -> KernelCall:
    rng = np.random.default_rng(6)
    a, b = _fixed(*(rng.standard_normal(shape).astype(np.float16) for shape in ((192, 128), (128, 48))))
    return KernelCall(
        kernel=_split_k,
        arrays=(a, b, np.zeros((192, 48), np.float32)),
        keywords={"blocks": 3},
        result="c",
        golden=a.astype(np.float64) @ b.astype(np.float64),
    )


CALLS: dict[str, Callable[[], KernelCall]] = {
    "vector_add": vector_add,
    "matmul": matmul,
    "softmax": softmax,
    "convolution": convolution,
    "weighted_sums": weighted_sums,
    "split_k": split_k,
}

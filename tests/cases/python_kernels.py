"""Small calls of the kernels of examples/kernels: arrays, the result that is exact, and the kernel itself."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.authoring import KernelFunction, KernelRun
from npu_sim.debug import Machine
from npu_sim.engines.execute import ExecuteOptions

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
        """Return what the tensors hold before the call; results are left out."""
        names = [tensor.name for tensor in self.record().launches[0].gm.tensors]
        return {name: array for name, array in zip(names, self.arrays, strict=False) if name != self.result}

    def run(self) -> np.ndarray:
        """Run it and return the result."""
        self.kernel(*self.arrays, **self.keywords, product=self.product)
        (found,) = (array for array in self.arrays if array.flags.writeable)
        return found


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


CALLS: dict[str, Callable[[], KernelCall]] = {
    "vector_add": vector_add,
    "matmul": matmul,
    "softmax": softmax,
    "convolution": convolution,
}

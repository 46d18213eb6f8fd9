"""The kernels that faults are put into: those of users in Python, and launches of the operators' calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import ops
from npu_sim.debug.execution import Execution
from npu_sim.engines.numerics import options_of
from npu_sim.program.launch import Launch
from npu_sim.program.recorded import launch_of, rows_of
from npu_sim.report.explain import Explanation, recording
from tests.cases.python_kernels import CALLS

_KEPT = ("sites", "lines", "buffers", "core_kind", "auto_sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One launch of a call, whose rows may be replaced."""

    name: str
    execution: Execution
    number: int

    @property
    def launch(self) -> Launch:
        return self.execution.launches[self.number]

    def programs(self) -> list[np.ndarray]:
        """Return the rows of its cores."""
        return [rows_of(self.launch, core, 0) for core in range(self.launch.core_count)]

    def with_programs(self, programs: list[np.ndarray]) -> Execution:
        """Return the call with other rows in the launch."""
        own = self.launch
        others = {name: getattr(own, name) for name in _KEPT}
        launches = list(self.execution.launches)
        launches[self.number] = launch_of(own.name, [[rows] for rows in programs], own.gm, **others)
        return replace(self.execution, launches=tuple(launches))


def _gradients() -> None:
    rng = np.random.default_rng(1)
    dy, x, w = (_numbers(rng, shape) for shape in ((2, 32, 17, 17), (2, 32, 17, 17), (32, 32, 3, 3)))
    ops.convolution_backward(dy, x, w, stride=1, padding=1, dilation=1, product="910b", output_mask=(True,) * 3)


def _older_gradients() -> None:
    rng = np.random.default_rng(2)
    dy, x, w = (_numbers(rng, shape) for shape in ((2, 32, 9, 9), (2, 16, 17, 17), (32, 16, 3, 3)))
    mask = (True, True, False)
    ops.convolution_backward(dy, x, w, stride=2, padding=1, dilation=1, product="310p", output_mask=mask)


def _product() -> None:
    rng = np.random.default_rng(3)
    ops.matrix_product(_numbers(rng, (208, 320)), _numbers(rng, (320, 200)), product="910b")


def _pooling() -> None:
    rng = np.random.default_rng(4)
    dy, x = _numbers(rng, (2, 48, 9, 9)), _numbers(rng, (2, 48, 19, 19))
    ops.avg_pool2d_backward(dy, x, kernel_size=3, stride=2, product="910b")


def _numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float16)


_OPERATORS: dict[str, Callable[[], None]] = {
    "gradients": _gradients, "gradients on 310P": _older_gradients, "matrix product": _product, "pooling": _pooling,
}  # fmt: skip


@cache
def _recorded(name: str) -> tuple[Explanation, ...]:
    with recording() as recorder:
        _OPERATORS[name]()
    return recorder.explanations()


def _of_operators() -> Iterator[Subject]:
    """Yield the launches of the calls that have one phase on cores of one kind, one of each kernel of a call."""
    for name in _OPERATORS:
        (made,) = _recorded(name)
        seen: set[tuple[str, int]] = set()
        rng = np.random.default_rng(5)
        gm = made.launches[0].gm
        tensors = {t.name: _numbers(rng, (t.byte_count // 2,)).view(np.uint8) for t in gm.tensors if t.initialised}
        for number, launch in enumerate(made.launches):
            kind = launch.name, len(seen) if launch.name == "TransData" else 0
            if launch.phase_count > 1 or launch.vectors or launch.by_turns or kind in seen:
                continue
            seen.add(kind)
            rows = rows_of(launch, 0, 0)
            options = options_of(made.product, rows)
            given: dict[str, Any] = {"tensors": tensors, "results": {}, "options": options}
            call = Execution(launches=made.launches, product=made.product, **given)
            yield Subject(name=f"{name}: {number} {launch.name}", execution=call, number=number)


def subjects() -> tuple[Subject, ...]:
    """Return all of them, those in Python first."""
    own = [Subject(name=name, execution=make().execution(), number=0) for name, make in CALLS.items()]
    return (*own, *_of_operators())

"""Kernels on several cores: what ``kernel<<<blockDim, nullptr, stream>>>(...)`` and GetBlockIdx are in C++."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from npu_sim.arguments import flag, whole
from npu_sim.budget import reserve
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.session import recorded_launch
from npu_sim.errors import ShapeError, StateError
from npu_sim.isa.row import ROW_BYTES, join_rows
from npu_sim.memory.host import HostMemory
from npu_sim.products import Product, current_product, get_product
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Violation
from npu_sim.report.explain import Explanation, ExplanationTable, Value, current_recorder
from ops.conv3d_backprop_filter.walk_split import SITES

_LINES_SHOWN = 64
"""Base blocks listed in an explanation; the counts above the list are of all."""


class KernelObject(Protocol):
    """What a kernel run needs of the objects that emit its rows."""

    @property
    def rows(self) -> np.ndarray:
        """Recorded rows."""

    @property
    def is_finished(self) -> bool:
        """Whether its last row has been emitted."""

    @property
    def findings(self) -> tuple[Violation, ...]:
        """What the published code does otherwise; row numbers count from the object's first row."""

    def facts(self) -> dict[str, dict[str, Value]]:
        """Tiling and counts."""

    def walk(self) -> list[tuple[Value, ...]]:
        """One line per base block, without the core."""


class KernelRun:
    """One kernel: the objects that ran in it, core by core, and what they emitted.

    Attributes
    ----------
    name : str
        Kernel name.
    product : Product
        Where it ran.
    block_dim : int
        Cores.
    memory : HostMemory
        The tensors of all its objects.
    record : bool
        Whether rows are kept. `launch`, `check` and the timeline need them.
    stopped_by : str
        The error that left the kernel before its end; "" without one.
    """

    def __init__(self, name: str, product: Product, block_dim: int = 1, *, record: bool | None = None) -> None:
        self.name, self.product, self.block_dim = name, product, block_dim
        self.memory = HostMemory()
        self.stopped_by = ""
        recorder = current_recorder()
        self.record = recorder is not None if record is None else flag("record", record)
        self._objects: list[tuple[int, KernelObject]] = []
        self._recorded_rows = 0
        if recorder is not None:
            recorder.add(self.explain)

    def add(self, core: int, kernel_object: KernelObject) -> None:
        """Add an object that runs on ``core``."""
        self._objects.append((core, kernel_object))

    def keep(self, count: int) -> None:
        """Count rows that are about to be recorded.

        Raises
        ------
        BudgetError
            If the rows of all objects are more than the memory budget.
        """
        if self.record:
            self._recorded_rows += count
            reserve(f"Recorded instruction rows of {self.name}", self._recorded_rows * ROW_BYTES)

    def launch(self) -> Launch:
        """Return the recorded rows as a launch, for the timeline and hazards engines.

        Raises
        ------
        StateError
            If the rows were not recorded.
        """
        if not self.record:
            raise StateError(f"Rows must be recorded (record=True), not dropped, to be looked at ({self.name})")
        programs = [
            join_rows([made.rows for at, made in self._objects if at == core]) for core in range(self.block_dim)
        ]
        first = [0] * self.block_dim
        known = []
        for core, made in self._objects:
            known += [shifted(finding, core, first[core]) for finding in made.findings]
            first[core] += len(made.rows)
        return recorded_launch(self.name, programs, self.memory.gm, sites=SITES, known=tuple(known))

    def check(self) -> list[Violation]:
        """Return what the hazards engine finds in the whole program, and where the published code is undefined.

        Returns
        -------
        list of Violation
            Empty when all is well.
        """
        return run_hazards(self.launch(), self.product)

    def explain(self) -> Explanation:
        """Return tiling, walk and launch."""
        lines = [(core, *line) for core, made in self._objects for line in made.walk()]
        tables = []
        if lines:
            title = f"walk ({len(lines)} base blocks"
            title += f", the first {_LINES_SHOWN})" if len(lines) > _LINES_SHOWN else ")"
            tables.append(
                ExplanationTable(title=title, columns=("core", *WALK_COLUMNS), rows=tuple(lines[:_LINES_SHOWN]))
            )
        facts: dict[str, dict[str, Value]] = {}
        for _, made in self._objects:
            for group, values in made.facts().items():
                known = facts.setdefault(group, {})
                for name, value in values.items():
                    is_count = group == "counts" and isinstance(value, int)
                    known[name] = int(known.get(name) or 0) + value if is_count else value  # type: ignore[operator]
        notes = tuple(dict.fromkeys(finding.detail for _, made in self._objects for finding in made.findings))
        return Explanation(
            title=self.name,
            product=self.product,
            facts=facts,
            tables=tuple(tables),
            notes=notes,
            launches=(self.launch(),) if self.record else (),
            is_finished=not self.stopped_by and all(made.is_finished for _, made in self._objects),
            stopped_by=self.stopped_by,
        )


WALK_COLUMNS = ("shape", "M", "N", "K", "ho", "m", "n", "L1 loads", "K steps", "L0C", "stored at", "how")
"""Headings of `KernelObject.walk`: number and extents of the single shape, first row, base block, what it brought into
L1 (A: gradOutput, B: input), K steps, half of L0C, element of the output, and how it was written."""


def shifted(finding: Violation, core: int, rows: int) -> Violation:
    """Return ``finding`` on ``core``, ``rows`` rows later."""
    return replace(finding, core=core, row=finding.row + rows)


_BLOCK: ContextVar[tuple[KernelRun, int] | None] = ContextVar("ascendc_block", default=None)


def current_block() -> tuple[KernelRun, int] | None:
    """Return the kernel that runs and its core, None outside of `launch`."""
    return _BLOCK.get()


def GetBlockIdx() -> int:
    """Return the number of the core that runs, 0 outside of `launch`."""
    block = _BLOCK.get()
    return block[1] if block else 0


def GetBlockNum() -> int:
    """Return the number of cores of the kernel that runs, 1 outside of `launch`."""
    block = _BLOCK.get()
    return block[0].block_dim if block else 1


def launch(
    kernel: Callable[..., None],
    block_dim: int,
    *arguments: Any,
    product: str | Product | None = None,
    record: bool | None = None,
) -> KernelRun:
    """Run ``kernel(*arguments)`` on every core, one after the other; it asks `GetBlockIdx` which one it is.

    Parameters
    ----------
    kernel : callable
        What a ``__global__`` function is in C++.
    block_dim : int
        Cores, at most those of the product.
    *arguments
        Passed on.
    product : str, Product or None
        Where; None: the current product.
    record : bool or None
        Keep the rows for `KernelRun.check` and `KernelRun.launch`; None: if a recorder is active.

    Returns
    -------
    KernelRun
        What ran.

    Raises
    ------
    ShapeError
        If ``block_dim`` is not a number of cores the product has.

    Notes
    -----
    Cores run in ascending order, so atomic additions add up in that order; on a device their order is free.
    """
    chip = current_product() if product is None else get_product(product)
    cores = whole("block_dim", block_dim)
    if not 1 <= cores <= chip.cube_core_count:
        raise ShapeError(f"block_dim must be in [1, {chip.cube_core_count}], not {cores} ({chip.name})")
    run = KernelRun(getattr(kernel, "__name__", "kernel"), chip, cores, record=record)
    for core in range(cores):
        with _on_core(run, core):
            kernel(*arguments)
    return run


@contextlib.contextmanager
def _on_core(run: KernelRun, core: int) -> Iterator[None]:
    token = _BLOCK.set((run, core))
    try:
        yield
    except Exception as error:
        run.stopped_by = f"{type(error).__name__}: {error}"
        raise
    finally:
        _BLOCK.reset(token)

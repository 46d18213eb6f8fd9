"""Kernels: functions of a core that a launch runs on many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from npu_sim.accumulation import Accumulation
from npu_sim.authoring.arguments import Arguments, roles_of
from npu_sim.authoring.core import Core
from npu_sim.authoring.peek import Follower
from npu_sim.authoring.recorder import Sites
from npu_sim.authoring.sync_all import Syncs, refuse_unpaired
from npu_sim.debug.execution import Execution
from npu_sim.debug.machine import Machine
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.numerics import options_of
from npu_sim.engines.races import with_race
from npu_sim.errors import ProgramError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product, get_product
from npu_sim.program.launch import CoreKind
from npu_sim.program.legality import verify_program
from npu_sim.program.recorded import launch_of
from npu_sim.report.explain import own_recorder
from npu_sim.report.kernel_run import KernelRun

Kind = Literal["vector", "cube", "mix"]
_KINDS: dict[Kind, tuple[CoreKind, ...]] = {"vector": ("vector",), "cube": ("cube",), "mix": ("cube", "vector")}


class KernelFunction:
    """A kernel: call it with its arrays to run it, `record` it to get its launches alone. See `kernel`."""

    def __init__(self, function: Callable[..., Any], kind: Kind, vectors: int) -> None:
        self._function, self._kind, self._vectors = function, kind, vectors
        self.name = function.__name__
        self._signature = inspect.signature(function)
        self._roles = roles_of(function)
        functools.update_wrapper(self, function)

    @default_fenv
    def __call__(
        self,
        *args: Any,
        blocks: int | None = None,
        product: str | Product | None = None,
        accumulation: Accumulation | str | None = None,
        threads: int = 1,
        core_order: int | None = None,
        **keywords: Any,
    ) -> KernelRun:
        """Run the kernel; its results are in the arrays behind that.

        Parameters
        ----------
        *args, **keywords
            Arguments behind the core: a NumPy array for each that is annotated `In`, `Out` or `InOut`.
        blocks : int or None
            Cores, for a mixed kernel Cube cores; None: all of the product.
        product : str, Product or None
            None: the current product, else Ascend910B2.
        accumulation : Accumulation, str or None
            Model of every Mmad; None: the product's for the type that is multiplied.
        threads : int
            Host threads; never changes the result.
        core_order : int or None
            Whose additions to memory come first, see `ExecuteOptions`.

        Returns
        -------
        KernelRun
            Its launches, what the checkers find and what they take.
        """
        run, arguments = self._recorded(args, keywords, blocks, product)
        kept: list[Execution] = []
        recorder = own_recorder()
        if recorder is not None:
            recorder.add(lambda: replace(run.explanation, takes_orders=True, execution=kept[0] if kept else None))
        before = arguments.copies() if recorder is not None and recorder.keeps_tensors else None
        arguments.load()
        options = options_of(run.product, run.rows(), accumulation, threads, core_order)
        options = with_race(options, run.launches, run.product)
        for launch in run.launches:
            execute(launch, run.product, options)
        arguments.store()
        arguments.gm.release()
        if before is not None:
            results = arguments.results()
            kept.append(
                Execution(launches=run.launches, product=run.product, tensors=before, results=results, options=options)
            )
        return run

    @default_fenv
    def record(
        self, *args: Any, blocks: int | None = None, product: str | Product | None = None, **keywords: Any
    ) -> KernelRun:
        """Return what a call would launch, without running it: for checks and times of large tensors."""
        return self._recorded(args, keywords, blocks, product)[0]

    @default_fenv
    def machine(
        self,
        *args: Any,
        blocks: int | None = None,
        product: str | Product | None = None,
        options: ExecuteOptions | None = None,
        **keywords: Any,
    ) -> Machine:
        """Return a machine that stands before the first row of a call: for debuggers.

        The arrays stay as they are; what the kernel computes is in `npu_sim.debug.Machine.tensor`. ``options`` are
        numerics and orders, None: the product's own.
        """
        run, arguments = self._recorded(args, keywords, blocks, product)
        return Machine(run.launches, run.product, arguments.copies(), options)

    def _recorded(
        self, args: Sequence[Any], keywords: dict[str, Any], blocks: int | None, product: str | Product | None
    ) -> tuple[KernelRun, Arguments]:
        chip = current_product() if product is None else get_product(product)
        arguments = Arguments(self.name, self._signature, self._roles, args, keywords)
        groups = self._cores(chip, blocks)
        sites, names = Sites(), dict[int, str]()
        programs: dict[CoreKind, list[list[np.ndarray]]] = {}
        syncs: list[Syncs] = []
        for kind, count in groups.items():
            programs[kind] = []
            for index in range(count):
                core = Core(chip, kind, index, count, sites, names)
                programs[kind].append(self._program(core, arguments))
                syncs.append(Syncs(kind, index, core.recorder.syncs))
        refuse_unpaired(syncs, chip)
        launch = launch_of(
            self.name,
            [core for cores in programs.values() for core in cores],
            arguments.gm,
            core_kind=next(iter(groups)),
            vectors=groups["vector"] // groups["cube"] if len(groups) > 1 else 0,
            lines=sites.lines(),
            buffers=dict(names),
            sites={number: str(line) for number, line in sites.lines().items()},
        )
        return KernelRun(name=self.name, call=arguments.words(), product=chip, launches=(launch,)), arguments

    def _cores(self, product: Product, blocks: int | None) -> dict[CoreKind, int]:
        """Return how many cores of each kind run the kernel."""
        split = product.core.is_split
        kinds = _KINDS[self._kind] if split else _KINDS[self._kind][:1]
        limit = product.vector_core_count if kinds == ("vector",) else product.cube_core_count
        number = limit if blocks is None else blocks
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer) or not 1 <= number <= limit:
            raise ShapeError(f"blocks must be in [1, {limit}], not {shown(blocks)} ({self.name}, {product.name})")
        return {kind: int(number) * (self._vectors if kind == "vector" and len(kinds) > 1 else 1) for kind in kinds}

    def _program(self, core: Core, arguments: Arguments) -> list[np.ndarray]:
        """Return the rows of a core, phase by phase; what is illegal raises at its line."""
        self._trace(core, arguments)
        violations = verify_program(core.recorder.rows, core.product, core_kind=core.kind)
        if violations:
            first = replace(core.recorder.located(violations[0]), core=core.block_idx)
            again = Core(core.product, core.kind, core.block_idx, core.block_num, core.recorder.sites, {})
            again.failing = first
            self._trace(again, arguments)  # raises where the row is made
            raise ProgramError([first])
        return core.recorder.programs()

    def _trace(self, core: Core, arguments: Arguments) -> None:
        """Run the source on a core."""
        given, keywords = arguments.of_kernel(core)
        core.machine = Follower(
            core.product,
            lambda: replace(options_of(core.product, core.recorder.rows), order="program"),
            core.block_idx,
            core.block_num == 1,
            arguments.copies,
        )
        try:
            self._function(*given, **keywords)
            core.end()
        finally:
            core.machine.close()
            core.release()


@overload
def kernel(function: Callable[..., Any], /) -> KernelFunction: ...


@overload
def kernel(*, kind: Kind = ..., vectors: int = ...) -> Callable[[Callable[..., Any]], KernelFunction]: ...


def kernel(function: Callable[..., Any] | None = None, /, *, kind: Kind = "vector", vectors: int = 2) -> Any:
    """Make a kernel of a function ``f(core, ...)``.

    The function runs once for each core, as plain Python, and what it calls on `npu_sim.authoring.core.Core` becomes
    rows: loops, conditions, helpers, ``breakpoint()`` and ``print`` of tensors work. Arguments that are tensors are
    annotated `In`, `Out` or `InOut`.

    Parameters
    ----------
    function : callable
        ``f(core, ...)``.
    kind : "vector", "cube" or "mix"
        The cores that it is for on products with separate ones (``__vector__``, ``__cube__``, ``__mix__``). A mixed
        kernel runs on both at once, asks ``core.is_cube`` and ``core.is_vector``, and orders them by
        ``core.sync_all()``, which all cores call, and flags between cores (``core.cross_core_set_flag``). Elsewhere
        every core is both.
    vectors : int
        Vector cores for each Cube core of a mixed kernel, 1 or 2.

    Examples
    --------
    >>> @kernel
    ... def clear(core, y: Out):
    ...     pipe = TPipe(core)
    ...     out = pipe.init_buffer(TQue(TPosition.VECOUT), 1, 4 * len(y))
    ...     zeros = out.alloc_tensor(y.dtype)
    ...     core.duplicate(zeros, 0, len(y))
    ...     out.enque(zeros)
    ...     core.data_copy(y, out.deque(y.dtype), len(y))
    ...     out.free_tensor(zeros)
    >>> y = np.ones(64, np.float32)
    >>> clear(y, blocks=1).findings, y.sum()
    ((), np.float32(0.0))
    """
    if kind not in _KINDS:
        raise ShapeError(f"kind must be one of {', '.join(_KINDS)}, not {shown(kind)}")
    if vectors not in (1, 2):
        raise ShapeError(f"vectors must be 1 or 2, not {shown(vectors)}")
    if function is None:
        return lambda own: KernelFunction(own, kind, vectors)
    return KernelFunction(function, kind, vectors)

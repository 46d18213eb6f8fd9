"""A call that is asked for, its plan, and its times.

A request is what a user names: an operator with the shapes, types and attributes of its arguments, on no product yet.
On a product it has a plan, which is refused where the operator refuses the call, and a planned call has the times of
its launches. No tensor data is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from npu_sim.dtypes.cube_math import PARAM_INVALID
from npu_sim.engines.intervals import LaunchBounds, TimeInterval, core_interval, task_interval
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import InternalError, OperatorError, ProgramError
from npu_sim.fenv import default_fenv
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.common.pipeline import CallPlan, PlannedStep
from ops.studies.calls.known_bounds import KnownBounds
from ops.studies.launch_times import LaunchTimes
from ops.studies.scope import Scope

KNOWN = KnownBounds()
"""Of all calls of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """The plan of any call.

    Attributes
    ----------
    calls : CallPlan
        Product, steps and launches.
    kernels : tuple of PlannedStep
        The steps of it that a scope of "kernel" means: what multiplies; of a single step that step.
    compute_dtype : str
        What is multiplied, "" where nothing is.
    route : str
        Which of the operator's ways it takes, "" where it has one.
    macs : int
        Multiply-adds of the definition, padding included; 0 where nothing is multiplied.
    inputs_in_l2 : bool
        What is read has just been written, or is read again and again, and is in L2 as far as it fits.
    """

    calls: CallPlan
    kernels: tuple[PlannedStep, ...]
    compute_dtype: str = ""
    route: str = ""
    macs: int = 0
    inputs_in_l2: bool = False

    @property
    def product(self) -> Product:
        """Where it runs."""
        return self.calls.product

    @property
    def tiling_origin(self) -> str:
        """Where the tilings of `kernels` come from."""
        origins = (getattr(planned.kernel.tiling, "origin", "") for planned in self.kernels)
        return ", ".join(dict.fromkeys(origin for origin in origins if origin))

    def steps(self, scope: Scope) -> tuple[PlannedStep, ...]:
        """Return the steps of the call, in stream order: all of them, or `kernels`."""
        return self.calls.steps if scope == "call" else self.kernels

    def launches(self, scope: Scope) -> tuple[Launch, ...]:
        """Return the launches of `steps`."""
        return tuple(launch for step in self.steps(scope) for launch in step.kernel.launches)


def is_multiplied(compute: str, planned: PlannedCall) -> bool:
    """Return whether a plan multiplies the type that was asked for; "" asks for none."""
    return not compute or compute == planned.compute_dtype


def require_multiplied(compute: str, planned: PlannedCall) -> None:
    """Refuse a plan that multiplies another type than was asked for, because the product or the call has no way to it.

    Raises
    ------
    OperatorError
        161002: it does.
    """
    if not is_multiplied(compute, planned):
        raise OperatorError(
            f"compute must be a type that these tensors can be multiplied in, such as {planned.compute_dtype}, not "
            f"{compute} ({planned.product.name})",
            PARAM_INVALID,
        )


class Request(Protocol):
    """A call that is asked for; every operator has a record of its own."""

    @property
    def name(self) -> str:
        """Name in reports."""

    @property
    def words(self) -> str:
        """What is called."""

    @property
    def kernel_words(self) -> str:
        """What a scope of "kernel" means of it; "" where there is one kernel and nothing around it."""

    @property
    def cube_math_type(self) -> int | None:
        """0..3; None where the operator has none."""

    @property
    def batch(self) -> int:
        """Extent along which the work grows, for estimates of effort."""

    def with_batch(self, batch: int) -> Request:
        """Return the request with another such extent."""

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall(LaunchTimes):
    """The launches of one call: of all of it, or of its kernels.

    Attributes
    ----------
    request : Request
        What was asked for.
    planned : PlannedCall
        Its plan.
    scope : {"call", "kernel"}
        Which launches of `planned` are timed.
    """

    request: Request
    planned: PlannedCall
    scope: Scope

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """The steps that are timed."""
        return self.planned.steps(self.scope)

    @property
    def by_step(self) -> tuple[tuple[PlannedStep, LaunchTimes], ...]:
        """The times of each step, in stream order."""
        timed = iter(self.launches)
        return tuple(
            (step, LaunchTimes(launches=tuple(islice(timed, len(step.kernel.launches))))) for step in self.steps
        )

    @property
    def kernel(self) -> LaunchTimes:
        """The times of the kernels."""
        own = self.planned.kernels
        return LaunchTimes(launches=tuple(one for step, times in self.by_step if step in own for one in times.launches))

    @property
    def cube_utilisation(self) -> float:
        """Multiply-adds of the definition over what all Cubes of the product can do in the core time."""
        planned = self.planned
        if not planned.macs or not self.total_cycles:
            return 0.0
        per_cycle = planned.product.macs_per_cycle(planned.compute_dtype) * planned.product.cube_core_count
        return planned.macs / (per_cycle * self.total_cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedCall(TimedCall):
    """A call with the bounds of its times.

    Attributes
    ----------
    bounds : tuple of LaunchBounds
        Of each launch.
    """

    bounds: tuple[LaunchBounds, ...]

    @property
    def core(self) -> TimeInterval:
        """Core time: low, expected, high."""
        return core_interval(self.bounds)

    @property
    def task(self) -> TimeInterval:
        """Core time and launch overhead."""
        return task_interval(self.bounds)


@default_fenv
def time_call(request: Request, product: Product, scope: Scope) -> TimedCall:
    """Plan and time one call.

    Raises
    ------
    NpuSimError
        If the operator refuses the call.
    InternalError
        If a shipped kernel is not legal.
    """
    planned = request.plan(product)
    options = TimelineOptions(inputs_in_l2=planned.inputs_in_l2)
    with _legal(request):
        timed = tuple(run_timeline(launch, product, options=options) for launch in planned.launches(scope))
    return TimedCall(request=request, planned=planned, scope=scope, launches=timed)


@default_fenv
def bound_call(request: Request, product: Product, scope: Scope) -> BoundedCall:
    """Plan one call and time it with the product's parameters and with these moved both ways; errors as `time_call`."""
    planned = request.plan(product)
    options = TimelineOptions(inputs_in_l2=planned.inputs_in_l2)
    with _legal(request):
        bounds = tuple(KNOWN.of(launch, product, options) for launch in planned.launches(scope))
    timed = tuple(one.expected for one in bounds)
    return BoundedCall(request=request, planned=planned, scope=scope, launches=timed, bounds=bounds)


@contextmanager
def _legal(request: Request) -> Iterator[None]:
    """Say of a kernel that is not legal that this is our fault."""
    try:
        yield
    except ProgramError as error:
        raise InternalError(f"Kernel of {request.name} must be legal: {error}") from error

"""Low, expected and high time of launches.

Two things make a time uncertain. The *parameters*: the launch is timed again with all of them moved in favour of a
shorter time, and against it (`products.uncertainty`), so that what the pipes hide does not count and what the critical
path consists of does. And the *model*: what the rules leave out, as the comparison of kernels of the same kind with
measured ones shows (``cost.*_model_error_permille``, by `Launch.error_kind` and `Launch.doubts`). All are half widths
of the logarithm of a time and independent of each other, so that the square of their sum is the sum of their squares.
What a model leaves out takes time more often than it saves some: of its error `FASTER` counts towards a shorter time.

Launches that run one after the other share their parameters, so that these errors add up. Launches of one kernel share
what its model leaves out; those of different kernels do not, so that of these errors the squares add up: more than four
of five of the published calls of several launches are inside then (``npu-sim perf --validate``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, hypot, log

from npu_sim.engines.timeline import run_timelines
from npu_sim.engines.timeline_result import LaunchTime, TimedProduct, TimelineOptions, TimelineResult
from npu_sim.products.cost import CostParams
from npu_sim.products.source import UNSTATED
from npu_sim.products.uncertainty import optimistic, pessimistic
from npu_sim.program.launch import Launch, PhaseKernels

FASTER = 0.8
"""Part of the error of a model that counts towards a shorter time. Of the kinds of kernels with more than 20 published
times on A2 and A3 (tuned and other matrix products, casts, element-wise) the narrowest bounds that hold four of five of
them have 0.6 to 0.9."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """A product with other parameters."""

    name: str
    timing_clock_hz: int
    l2_bytes: int
    cost: CostParams


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInterval:
    """A time and where it is expected to lie in four of five cases.

    Attributes
    ----------
    low_seconds, seconds, high_seconds : float
        Bounds and expected time.
    is_calibrated : bool
        The model was compared with measured kernels of these kinds on this architecture; else its error is a guess.
    """

    low_seconds: float
    seconds: float
    high_seconds: float
    is_calibrated: bool

    @property
    def width(self) -> float:
        """High over low time; 1 where there is none."""
        return self.high_seconds / self.low_seconds if self.low_seconds else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBounds:
    """One launch under three parameter sets.

    Attributes
    ----------
    optimistic : LaunchTime
        With every parameter in favour of a shorter time.
    expected : TimelineResult
        With every parameter as it is.
    pessimistic : LaunchTime
        With every parameter against a shorter time.
    kernel : str
        Its kernel: launches of one share the error of the model; a guess is shared by all kernels.
    model_error : float
        Width of the logarithm of its time that the model leaves open.
    is_calibrated : bool
        See `TimeInterval`.
    """

    optimistic: LaunchTime
    expected: TimelineResult
    pessimistic: LaunchTime
    kernel: str
    model_error: float
    is_calibrated: bool


def bound_launch(launch: Launch, product: TimedProduct, *, options: TimelineOptions | None = None) -> LaunchBounds:
    """Time ``launch`` with the parameters of ``product`` and with these moved both ways.

    Raises
    ------
    ProgramError
        As `run_timeline`.

    Examples
    --------
    >>> bounds = bound_launch(launch, npu_sim.get_product("910b"))  # doctest: +SKIP
    >>> task_interval([bounds]).high_seconds  # doctest: +SKIP
    """
    cost = product.cost
    variants = [
        _Variant(product.name, product.timing_clock_hz, product.l2_bytes, moved)
        for moved in (optimistic(cost), pessimistic(cost))
    ]
    expected, (low, high) = run_timelines(launch, product, variants, options=options)
    names = [f"{kind}_model_error_permille" for kind in (launch.error_kind or launch.fixed_cost, *launch.doubts)]
    return LaunchBounds(
        optimistic=low,
        expected=expected,
        pessimistic=high,
        kernel=_kernel_of(launch),
        model_error=hypot(*(getattr(cost, name) / 1000 for name in names)),
        is_calibrated=cost.sources[names[0]].evidence not in UNSTATED,
    )


def _kernel_of(launch: Launch) -> str:
    """Return the name of a launch, and of the functions that write its rows: TransData has one for each direction."""
    kernels = launch.kernel.phases if isinstance(launch.kernel, PhaseKernels) else (launch.kernel,)
    return " ".join((launch.name, *(getattr(kernel, "__name__", type(kernel).__name__) for kernel in kernels)))


def core_interval(bounds: Iterable[LaunchBounds]) -> TimeInterval:
    """Return the interval of the core time of launches that run one after the other."""
    return _interval(tuple(bounds), lambda one: one.seconds())


def task_interval(bounds: Iterable[LaunchBounds]) -> TimeInterval:
    """Return the interval of the task duration (core time and launch overhead) of launches one after the other."""
    return _interval(tuple(bounds), lambda one: one.task_seconds())


def _interval(
    bounds: tuple[LaunchBounds, ...], seconds_of: Callable[[TimelineResult | LaunchTime], float]
) -> TimeInterval:
    seconds = sum(seconds_of(one.expected) for one in bounds)
    is_calibrated = all(one.is_calibrated for one in bounds)
    if not seconds:
        return TimeInterval(low_seconds=0.0, seconds=0.0, high_seconds=0.0, is_calibrated=is_calibrated)
    shares: dict[str, float] = defaultdict(float)
    for one in bounds:
        # a guess is one of the architecture, whatever runs
        shares[one.kernel if one.is_calibrated else ""] += one.model_error * seconds_of(one.expected) / seconds
    model = hypot(*shares.values())
    down = log(seconds / sum(seconds_of(one.optimistic) for one in bounds))
    up = log(sum(seconds_of(one.pessimistic) for one in bounds) / seconds)
    return TimeInterval(
        low_seconds=seconds * exp(-hypot(max(down, 0.0), FASTER * model)),
        seconds=seconds,
        high_seconds=seconds * exp(hypot(max(up, 0.0), model)),
        is_calibrated=is_calibrated,
    )

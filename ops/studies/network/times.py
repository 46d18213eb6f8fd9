"""The times of a training step: of every call, and summed over the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_sim.engines.intervals import LaunchBounds, TimeInterval, task_interval
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.products import Product
from ops.studies.advice import AdvisedCall, Change, advise
from ops.studies.calls.kept_bounds import kept
from ops.studies.calls.planned import KNOWN, BoundedCall, Request, bound_call
from ops.studies.launch_times import LaunchTimes
from ops.studies.network.step import StepLayer, TrainingStep
from ops.studies.scope import Progress, Refusal, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a step is timed.

    Attributes
    ----------
    product, chip, cube_math_type
        As of `ops.studies.cases.StudyRow`.
    batch : int
        Images.
    """

    product: str
    chip: Product
    cube_math_type: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """The calls of one layer.

    Attributes
    ----------
    layer : StepLayer
        The layer, which stands for ``layer.count`` of them.
    calls : tuple of BoundedCall
        Those that run, the forward one first; of one of the layers.
    refusals : tuple of Refusal
        Why others do not.
    """

    layer: StepLayer
    calls: tuple[BoundedCall, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def one(self) -> LaunchTimes:
        """The launches of one such layer."""
        return LaunchTimes(launches=tuple(launch for call in self.calls for launch in call.launches))

    @property
    def task_seconds(self) -> float:
        """Of all such layers, with launch overhead."""
        return self.layer.count * self.one.task_seconds

    @property
    def bounds(self) -> tuple[LaunchBounds, ...]:
        """Those of every launch of all such layers."""
        return tuple(bound for call in self.calls for bound in call.bounds) * self.layer.count

    @property
    def task(self) -> TimeInterval:
        """Low, expected and high `task_seconds`."""
        return task_interval(self.bounds)

    @property
    def refused_count(self) -> int:
        """Calls of all such layers that are refused: `task_seconds` is without them."""
        return self.layer.count * len(self.refusals)

    @property
    def macs(self) -> int:
        """Multiply-adds of one such layer."""
        return sum(call.planned.macs for call in self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """A step in one setting.

    Attributes
    ----------
    setting : Setting
        Product, mode and batch.
    step : TrainingStep
        What was timed.
    scope : {"call", "kernel"}
        Whole calls, or the kernels in them that multiply.
    layers : tuple of LayerTimes
        In forward order.
    advice : tuple of Change or None
        Changes to all calls, the one that gains most first; None: nobody asked.
    """

    setting: Setting
    step: TrainingStep
    scope: Scope
    layers: tuple[LayerTimes, ...]
    advice: tuple[Change, ...] | None = None

    @property
    def calls(self) -> Iterator[tuple[LayerTimes, BoundedCall]]:
        """Every call with its layer, equal ones once."""
        return ((layer, call) for layer in self.layers for call in layer.calls)

    @property
    def every(self) -> LaunchTimes:
        """All launches of the step, those of equal layers as often as there are."""
        return LaunchTimes(
            launches=tuple(launch for layer in self.layers for launch in layer.one.launches * layer.layer.count)
        )

    @property
    def task(self) -> TimeInterval:
        """Low, expected and high time of the step, with launch overhead."""
        return task_interval(bound for layer in self.layers for bound in layer.bounds)

    def advised(self) -> StepTimes:
        """Return the same with advice."""
        calls = [
            AdvisedCall(request=call.request, count=layer.layer.count, seconds=call.task_seconds)
            for layer, call in self.calls
        ]
        return replace(self, advice=advise(calls, self.setting.chip, self.scope))

    @property
    def call_count(self) -> int:
        """Calls of the step that run."""
        return sum(layer.layer.count * len(layer.calls) for layer in self.layers)

    @property
    def refused_count(self) -> int:
        """Calls of the step that are refused."""
        return sum(layer.refused_count for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-adds of the step."""
        return sum(layer.layer.count * layer.macs for layer in self.layers)


def time_step(
    setting: Setting,
    step: TrainingStep,
    scope: Scope,
    *,
    forward: bool,
    progress: Progress | None = None,
) -> StepTimes:
    """Time the backward calls of a step, with ``forward`` also the forward ones.

    Launches that an earlier run of the same step has timed are not timed again (`calls.kept_bounds`).

    Raises
    ------
    InternalError
        If a shipped kernel is not legal; a refused call is a row of the result, no error.
    """
    layers = []
    of_step = step.title, step.source, setting.chip.name, setting.cube_math_type, setting.batch, scope, forward
    with kept(KNOWN, of_step):
        for number, layer in enumerate(step.layers):
            if progress:
                progress(number, len(step.layers), f"{setting.product} batch {setting.batch} {layer.label}")
            wanted = [one for one in (layer.forward if forward else None, layer.backward) if one is not None]
            layers.append(_layer_times(layer, wanted, setting.chip, scope))
    return StepTimes(setting=setting, step=step, scope=scope, layers=tuple(layers))


def _layer_times(layer: StepLayer, wanted: Sequence[Request], chip: Product, scope: Scope) -> LayerTimes:
    calls, refusals = [], []
    for request in wanted:
        try:
            calls.append(bound_call(request, chip, scope))
        except InternalError:
            raise
        except NpuSimError as error:
            refusals.append(Refusal.of(error))
    return LayerTimes(layer=layer, calls=tuple(calls), refusals=tuple(refusals))

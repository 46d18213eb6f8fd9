"""The report of the steps of a network: its conclusion and its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from npu_sim.engines.intervals import TimeInterval
from npu_sim.products import get_product
from npu_sim.report.record import counted, to_json_text, to_plain
from ops.common.explain import launch_works
from ops.studies.advice import documents
from ops.studies.calls.planned import BoundedCall
from ops.studies.cases import program_name
from ops.studies.launch_times import APPROXIMATE, ONE_AFTER_THE_OTHER, LaunchTimes, describe_parameters, seconds_words
from ops.studies.network.step import Make, TrainingStep
from ops.studies.network.sums import (
    LAYOUT,
    MULTIPLY,
    Roofline,
    kind_of,
    paths_of,
    ranked_launches,
    roofline,
    seconds_by_kind,
    seconds_by_result,
)
from ops.studies.network.times import Setting, StepTimes, time_step
from ops.studies.scope import Progress, Scope

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    """A network in one or several settings.

    Attributes
    ----------
    scope : {"call", "kernel"}
        What is timed of each call.
    has_forward : bool
        The forward calls are timed too.
    steps : tuple of StepTimes
        Batch by batch, mode by mode, product by product; at least one.
    """

    scope: Scope
    has_forward: bool
    steps: tuple[StepTimes, ...]

    @property
    def step(self) -> TrainingStep:
        """The step of the first setting; the others have the same layers in other sizes."""
        return self.steps[0].step

    @property
    def comparable(self) -> tuple[StepTimes, ...]:
        """The settings that run as much of the step as any: time that is short for what is refused says nothing."""
        timed = [times for times in self.steps if times.call_count]
        least = min((times.refused_count for times in timed), default=0)
        return tuple(times for times in timed if times.refused_count == least)

    @property
    def timed(self) -> str:
        """What the figures are of."""
        passes = "forward and backward calls" if self.has_forward else "backward calls"
        if self.scope == "call":
            return f"whole {passes}: kernels, and the casts, layout conversions, sums and fills around them"
        return f"of {passes} the kernels that multiply or pool, without what is around them"

    def label(self, times: StepTimes) -> str:
        """Return what tells a setting from the others of the report."""
        setting = times.setting
        several = {
            field: len({getattr(one.setting, field) for one in self.steps}) > 1 for field in ("cube_math_type", "batch")
        }
        words = [setting.product]
        words += [f"mode {setting.cube_math_type}"] if several["cube_math_type"] else []
        words += [f"batch {setting.batch}"] if several["batch"] else []
        return " ".join(words)

    def to_json(self) -> str:
        """Return everything as JSON text."""
        chips = {times.setting.chip.name: times.setting.chip for times in self.steps}
        return to_json_text(
            {
                "schema_version": SCHEMA_VERSION,
                "program": program_name(),
                "title": self.step.title,
                "source": self.step.source,
                "conclusion": list(conclusion(self)),
                "scope": self.scope,
                "timed": self.timed,
                "note": f"{APPROXIMATE} {ONE_AFTER_THE_OTHER}",
                "untimed": dict(self.step.untimed),
                "products": {name: describe_parameters(chip) for name, chip in chips.items()},
                "steps": [_step_document(times) for times in self.steps],
            }
        )


def run_network(
    make: Make,
    products: Sequence[str],
    cube_math_types: Sequence[int],
    batches: Sequence[int],
    scope: Scope = "call",
    *,
    layers: Sequence[str] | None = None,
    forward: bool = False,
    advice: bool = False,
    progress: Progress | None = None,
) -> NetworkReport:
    """Time a network in every mode and batch on every product.

    Parameters
    ----------
    make : callable
        ``make(batch, cube_math_type)`` returns the step.
    products : sequence of str
        SoC versions or series aliases.
    cube_math_types : sequence of int
        0..3.
    batches : sequence of int
        Images.
    scope : {"call", "kernel"}
        Whole calls, or the kernels in them that multiply.
    layers : sequence of str or None
        Names; None: all.
    forward : bool
        Time the forward calls too.
    advice : bool
        Find out which changes gain most; takes some times as long.
    progress : callable or None
        Called with (layers of a setting done, layers in all, what comes next).

    Raises
    ------
    ProductError, InputFileError
        A product or layer is unknown.
    """
    chips = {name: get_product(name) for name in products}
    steps = [
        time_step(
            Setting(product=name, chip=chip, cube_math_type=mode, batch=batch),
            step, scope, forward=forward, progress=progress,
        )
        for batch in batches
        for mode in cube_math_types
        for step in [make(batch, mode).select(layers)]
        for name, chip in chips.items()
    ]  # fmt: skip
    told = (times.advised() for times in steps) if advice else steps
    return NetworkReport(scope=scope, has_forward=forward, steps=tuple(told))


def conclusion(report: NetworkReport) -> list[str]:
    """Return what a report says, in two or three sentences."""
    ranked = sorted(report.comparable, key=lambda times: times.every.task_seconds / times.setting.batch)
    if not ranked:
        return ["Every call is refused."]
    best = ranked[0]
    sentences = list(_answer(report, best))
    if len(ranked) > 1:
        others = ", ".join(f"{report.label(times)} {_per_image(times)}" for times in ranked[1:4])
        without = f", each without {counted(best.refused_count, 'refused call')}" if best.refused_count else ""
        sentences.append(f"An image takes least on {report.label(best)}, {_per_image(best)}; {others}{without}.")
    if partial := [times for times in report.steps if times.refused_count > best.refused_count]:
        words = ", ".join(
            f"{report.label(one)}, which refuses {one.refused_count} of {one.refused_count + one.call_count} calls"
            for one in partial
        )
        sentences.append(f"Not compared: {words}.")
    return sentences


def _per_image(times: StepTimes) -> str:
    return seconds_words(times.every.task_seconds / times.setting.batch)


def _answer(report: NetworkReport, times: StepTimes) -> Iterator[str]:
    every, setting = times.every, times.setting
    kinds = seconds_by_kind(times)
    shares = {kind: seconds / every.task_seconds for kind, seconds in kinds.items()}
    first = ranked_launches(times)[0]
    parts = f"Kernels take {shares[MULTIPLY]:.0%}"
    if report.scope == "call":
        parts += f", layout conversions {shares[LAYOUT]:.0%}"
    refused = f", {times.refused_count} more are refused" if times.refused_count else ""
    pipe, task = every.busiest_pipe, times.task
    doubt = "" if task.is_calibrated else ", uncalibrated"
    yield (
        f"{times.step.title}, batch {setting.batch}, takes {seconds_words(every.task_seconds)} "
        f"({seconds_words(task.low_seconds)} to {seconds_words(task.high_seconds)}{doubt}) on "
        f"{setting.chip.name} in {counted(times.call_count, 'call')}{refused}, by an estimate."
    )
    yield (
        f"{parts}; {pipe} is busy longest ({every.pipe_shares[pipe]:.0%}), and {first.result.launch} of {first.layer} "
        f"takes most ({first.task_seconds / every.task_seconds:.0%})."
    )


def _step_document(times: StepTimes) -> dict[str, Any]:
    setting, every = times.setting, times.every
    weighted = [(layer.layer.count, call) for layer, call in times.calls]
    return {
        "product": setting.product,
        "soc": setting.chip.name,
        "cube_math_type": setting.cube_math_type,
        "batch": setting.batch,
        "call_count": times.call_count,
        "refused_count": times.refused_count,
        "macs": times.macs,
        **_times(every),
        **_bounds(times.task),
        "seconds_by_kind": seconds_by_kind(times),
        "advice": None if times.advice is None else documents(times.advice),
        "roofline": roofline_document(roofline(weighted, setting.chip)),
        "paths": [{"path": one.path, "bytes": one.moved, "reuse": one.reuse} for one in paths_of(weighted)],
        "ranked_launches": [
            {
                "launch": one.result.launch, "works_on": one.works_on, "layer": one.layer, "kind": one.kind,
                "count": one.count, "task_seconds": one.task_seconds,
            }
            for one in ranked_launches(times)
        ],
        "layers": [
            {
                "names": layer.layer.names,
                "count": layer.layer.count,
                "task_seconds": layer.task_seconds,
                **_bounds(layer.task),
                "refusals": to_plain(layer.refusals),
                "calls": [_call_document(call) for call in layer.calls],
            }
            for layer in times.layers
        ],
    }  # fmt: skip


def _times(times: LaunchTimes) -> dict[str, Any]:
    return {
        "row_count": times.row_count,
        "total_cycles": times.total_cycles,
        "seconds": times.seconds,
        "task_seconds": times.task_seconds,
        "busiest_pipe": times.busiest_pipe,
        "pipe_shares": times.pipe_shares,
        "critical_shares": times.critical_shares,
        "wait_shares": {pipe: times.wait_shares(pipe) for pipe in times.pipe_shares},
    }


def _bounds(task: TimeInterval) -> dict[str, Any]:
    return {
        "low_task_seconds": task.low_seconds,
        "high_task_seconds": task.high_seconds,
        "is_calibrated": task.is_calibrated,
    }


def roofline_document(found: Roofline | None) -> dict[str, Any] | None:
    """Return a position as plain data, with what follows from it."""
    if found is None:
        return None
    derived = {name: getattr(found, name) for name in ("intensity", "ridge", "bound", "roof", "reached")}
    return to_plain(found) | derived


def _call_document(call: BoundedCall) -> dict[str, Any]:
    planned = call.planned
    return {
        "words": call.request.words,
        **call.request.facts(),
        "compute_dtype": planned.compute_dtype,
        "route": planned.route,
        "tiling": planned.tiling_origin,
        "macs": planned.macs,
        **_times(call),
        **_bounds(call.task),
        "cube_utilisation": call.cube_utilisation,
        "seconds_by_result": seconds_by_result(call),
        "roofline": roofline_document(roofline([(1, call)], planned.product)),
        "launches": [
            {"step": step.step.name, "works_on": works_on, "kind": kind_of(call, step), **json.loads(timed.to_json())}
            for step, own in call.by_step
            for timed, works_on in zip(own.launches, launch_works((step,)), strict=True)
        ],
    }

"""The timing study: cycles of each layer's weight gradient, by product and mode. No tensor data is touched.

A call has two times, both read from its one plan: that of the kernel that multiplies, which a tiling decides, and that
of the whole call with its casts and layout conversions, which is what a training step waits for and often several times
as much. Whoever asks for a gradient by shape waits for the call, so that is the default scope.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from npu_sim.engines.timeline import TimelineOptions, TimelineResult, run_timeline
from npu_sim.errors import InternalError, NpuSimError, OperatorError, ProgramError
from npu_sim.fenv import default_fenv
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.report.record import to_json_text, to_plain
from npu_sim.report.trace import chrome_trace
from ops.common.explain import launch_works
from ops.common.pipeline import PlannedStep
from ops.conv_backward.plan import ConvBackwardPlan
from ops.studies.cases import CaseSet, ConvCase, StudyRow, combinations, plan_case, program_name, steps_of
from ops.studies.convolution_kinds import WEIGHT_GRADIENT_CALL
from ops.studies.precision import Progress
from ops.studies.precision_report import Refusal, Scope

SCHEMA_VERSION = 2
TRACE_ROW_LIMIT = 200_000
"""Rows a trace may hold; a viewer gets slow long before."""

APPROXIMATE = (
    "Cycle-approximate: in-order pipes joined by flags are modelled, the cost of each instruction is that of the "
    "parameter set."
)
ONE_AFTER_THE_OTHER = (
    "A call takes its launches one after the other; gaps between launches and the time of the host are not modelled."
)
TIMED: Mapping[Scope, str] = {
    "call": f"the whole {WEIGHT_GRADIENT_CALL}: the kernel of the weight gradient and the casts and layout conversions "
    "around it",
    "kernel": f"the kernel of the weight gradient alone, out of the {WEIGHT_GRADIENT_CALL}: without the casts and "
    "layout conversions around it, which can take several times as much",
}
"""What a figure is of."""
CALIBRATION: Mapping[str, str] = {
    "dav-c220": "costs of single instructions are fitted to and compared with published measurements of A2/A3",
    "dav-c100": "rates are documented or derived and few are measured; not compared with measured instructions",
    "dav-m200": "uncalibrated: no published measurement to compare with, expect a factor of 2",
    "dav-m100": "uncalibrated: most rates are those of other chips, expect a factor of 2 or more",
}
"""What is known about a parameter set, by its name or architecture. No kernel has been compared with a device yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimes:
    """Launches that run one after the other; there may be none.

    Attributes
    ----------
    launches : tuple of TimelineResult
        In stream order.
    """

    launches: tuple[TimelineResult, ...]

    @property
    def core_count(self) -> int:
        """Cores of the launch that uses most."""
        return max((launch.core_count for launch in self.launches), default=0)

    @property
    def row_count(self) -> int:
        """Instructions of all cores."""
        return sum(launch.row_count for launch in self.launches)

    @property
    def total_cycles(self) -> int:
        """Core time."""
        return sum(launch.total_cycles for launch in self.launches)

    @property
    def seconds(self) -> float:
        """Core time."""
        return sum(launch.seconds() for launch in self.launches)

    @property
    def task_seconds(self) -> float:
        """Core time and launch overhead."""
        return sum(launch.task_seconds() for launch in self.launches)

    @property
    def pipe_shares(self) -> dict[str, float]:
        """Occupancy of each pipe over the core time, in the slowest core of each phase."""
        return _shares((launch.busy_cycles for launch in self.launches), self.total_cycles)

    @property
    def busiest_pipe(self) -> str:
        """The pipe that is occupied longest; "" without launches."""
        shares = self.pipe_shares
        return max(shares, key=lambda pipe: shares[pipe], default="")

    @property
    def cube_wait_shares(self) -> dict[str, float]:
        """Why the Cube stands still: share of the core time by cause (`timeline.STALL_NAMES`)."""
        return _shares((launch.stall_cycles.get("M", {}) for launch in self.launches), self.total_cycles)

    @property
    def largest_cube_wait(self) -> str:
        """The cause that keeps the Cube waiting longest; "" without launches."""
        waits = self.cube_wait_shares
        return max(waits, key=lambda cause: waits[cause], default="")

    @property
    def critical_shares(self) -> dict[str, float]:
        """What the critical path consists of (`timeline.PART_NAMES`); adds up to 1."""
        return _shares((launch.critical_parts for launch in self.launches), self.total_cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingResult(LaunchTimes):
    """The launches of one weight gradient: of its call, or of its kernel.

    Attributes
    ----------
    case : ConvCase
        The layer.
    plan : ConvBackwardPlan
        The call.
    scope : {"call", "kernel"}
        Which launches of `plan` are timed.
    """

    case: ConvCase
    plan: ConvBackwardPlan
    scope: Scope

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """The steps that are timed."""
        return steps_of(self.plan, self.scope)

    @property
    def by_step(self) -> tuple[tuple[PlannedStep, LaunchTimes], ...]:
        """The times of each step, in stream order."""
        timed = iter(self.launches)
        return tuple(
            (step, LaunchTimes(launches=tuple(islice(timed, len(step.kernel.launches))))) for step in self.steps
        )

    @property
    def kernel(self) -> LaunchTimes:
        """The times of the kernel that multiplies."""
        own = self.plan.multiplying_steps
        return LaunchTimes(launches=tuple(one for step, times in self.by_step if step in own for one in times.launches))

    @property
    def cube_utilisation(self) -> float:
        """Multiply-adds of the convolution over what all Cubes of the product can do in the core time."""
        resolved = self.plan.resolved
        per_cycle = resolved.product.macs_per_cycle(resolved.compute_dtype) * resolved.product.cube_core_count
        return self.case.macs / (per_cycle * self.total_cycles) if self.total_cycles else 0.0


def _shares(parts: Any, total: int) -> dict[str, float]:
    cycles: Counter[str] = Counter()
    for mapping in parts:
        cycles.update(mapping)
    return {name: value / total for name, value in cycles.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRow(StudyRow):
    """The time of one layer on one product in one mode, None if it is refused."""

    result: TimingResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingReport:
    """The outcome of a timing study.

    Attributes
    ----------
    source : str
        Where the shapes come from.
    scope : {"call", "kernel"}
        What is timed of each.
    rows : tuple of TimingRow
        Product by product, mode by mode, layer by layer.
    """

    source: str
    scope: Scope
    rows: tuple[TimingRow, ...]

    @property
    def computed(self) -> tuple[TimingRow, ...]:
        """Rows that have a result."""
        return tuple(row for row in self.rows if row.result is not None)

    def to_json(self) -> str:
        """Return everything as JSON text."""
        chips = {row.chip.name: row.chip for row in self.rows}
        return to_json_text(
            {
                "schema_version": SCHEMA_VERSION,
                "program": program_name(),
                "source": self.source,
                "scope": self.scope,
                "timed": TIMED[self.scope],
                "note": f"{APPROXIMATE} {ONE_AFTER_THE_OTHER}",
                "products": {name: describe_parameters(chip) for name, chip in chips.items()},
                "rows": [_row_document(row) for row in self.rows],
            }
        )


def describe_parameters(chip: Product) -> dict[str, Any]:
    """Return the parameter set of ``chip`` in plain data: name, clock, evidence of its numbers, calibration."""
    evidence = Counter(source.evidence for source in chip.cost.sources.values())
    return {
        "parameter_set": f"{chip.cost.name} r{chip.cost.revision}",
        "clock_hz": chip.timing_clock_hz,
        "evidence": dict(evidence.most_common()),
        "calibration": CALIBRATION.get(chip.cost.name, CALIBRATION[chip.arch]),
    }


def case_document(row: Any) -> dict[str, Any]:
    """Return what identifies a row (of this study or of the checker) as plain data."""
    case = row.case
    return {
        "layer": case.name,
        "product": row.product,
        "soc": row.chip.name,
        "cube_math_type": row.cube_math_type,
        "input_dtype": case.dtype,
        "x_shape": case.x_shape,
        "dy_shape": case.dy_shape,
        "weight_shape": case.weight_shape,
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups,
        "refusal": to_plain(row.refusal),
    }


def _row_document(row: TimingRow) -> dict[str, Any]:
    document = case_document(row)
    result = row.result
    if result is None:
        return document | {"result": None}
    return document | {
        "result": {
            "compute_dtype": result.plan.resolved.compute_dtype,
            "route": result.plan.route.name,
            "tiling": result.plan.tiling_origin,
            "macs": result.case.macs,
            "core_count": result.core_count,
            "row_count": result.row_count,
            "total_cycles": result.total_cycles,
            "seconds": result.seconds,
            "task_seconds": result.task_seconds,
            "kernel_cycles": result.kernel.total_cycles,
            "kernel_seconds": result.kernel.seconds,
            "kernel_task_seconds": result.kernel.task_seconds,
            "cube_utilisation": result.cube_utilisation,
            "busiest_pipe": result.busiest_pipe,
            "pipe_shares": result.pipe_shares,
            "largest_cube_wait": result.largest_cube_wait,
            "cube_wait_shares": result.cube_wait_shares,
            "critical_shares": result.critical_shares,
            "launches": [
                {"works_on": works_on, **json.loads(timed.to_json())}
                for works_on, timed in zip(launch_works(result.steps), result.launches, strict=True)
            ],
        }
    }


@default_fenv
def time_case(case: ConvCase, chip: Product, cube_math_type: int, scope: Scope) -> TimingResult:
    """Time one weight gradient.

    Raises
    ------
    NpuSimError
        If the operator refuses the call.
    InternalError
        If a shipped kernel is not legal.
    """
    plan = plan_case(case, chip, cube_math_type)
    launches = (launch for step in steps_of(plan, scope) for launch in step.kernel.launches)
    try:
        timed = tuple(run_timeline(launch, chip) for launch in launches)
    except ProgramError as error:
        raise InternalError(f"Kernel of {case.name} must be legal: {error}") from error
    return TimingResult(case=case, plan=plan, scope=scope, launches=timed)


def run_timing(
    cases: CaseSet,
    products: tuple[str, ...],
    cube_math_types: tuple[int, ...],
    scope: Scope = "call",
    *,
    progress: Progress | None = None,
) -> TimingReport:
    """Time every case on every product in every mode.

    Parameters
    ----------
    cases : CaseSet
        Shapes.
    products : tuple of str
        SoC versions or series aliases.
    cube_math_types : tuple of int
        0..3.
    scope : {"call", "kernel"}
        Whole calls, or the kernels in them that multiply.
    progress : callable or None
        Called with (combinations done, combinations in all, what comes next).

    Raises
    ------
    ProductError
        If a product is unknown.

    Notes
    -----
    A refused combination is a row of the report, not an error.
    """
    rows: list[TimingRow] = []
    for name, chip, mode, case in combinations(cases, products, cube_math_types, progress):
        result, refusal = None, None
        try:
            result = time_case(case, chip, mode, scope)
        except InternalError:
            raise
        except NpuSimError as error:
            refusal = Refusal.of(error)
        rows.append(TimingRow(case=case, product=name, chip=chip, cube_math_type=mode, refusal=refusal, result=result))
    return TimingReport(source=cases.source, scope=scope, rows=tuple(rows))


def trace_result(result: TimingResult, cores: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Return the Chrome trace of the launches of ``result``, see `trace_launches`."""
    launches = (launch for step in result.steps for launch in step.kernel.launches)
    traced = [
        TracedLaunch(result.plan.resolved.product, launch, timed, f"{launch.name} ({works_on})")
        for launch, timed, works_on in zip(launches, result.launches, launch_works(result.steps), strict=True)
    ]
    return trace_launches(traced, cores)


@dataclass(frozen=True, slots=True)
class TracedLaunch:
    """A launch that has been timed and shall be traced.

    Attributes
    ----------
    product : Product
        Where it runs.
    launch : Launch
        The launch; it is timed again, with the spans kept.
    timed : TimelineResult
        How long it takes.
    label : str
        Its name in the lane of launches; that lane is left out if no launch has a label.
    """

    product: Product
    launch: Launch
    timed: TimelineResult
    label: str = ""


def trace_launches(launches: Sequence[TracedLaunch], cores: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Return the Chrome trace of all launches, one after the other on the same time axis.

    Parameters
    ----------
    launches : sequence of TracedLaunch
        What to trace, at least one.
    cores : tuple of int or None
        Cores to show; None: all. A launch need not have all of them.

    Raises
    ------
    OperatorError
        If a core does not exist, or the trace would have more than `TRACE_ROW_LIMIT` rows.
    """
    core_count = max(one.launch.core_count for one in launches)
    wanted = len(cores) if cores else core_count
    for core in cores or ():
        if not 0 <= core < core_count:
            raise OperatorError(f"Core must be in [0, {core_count - 1}], not {core}", 161002)
    rows = sum(one.timed.row_count * min(wanted, one.launch.core_count) // one.launch.core_count for one in launches)
    if rows > TRACE_ROW_LIMIT:
        raise OperatorError(
            f"Trace must hold at most {TRACE_ROW_LIMIT} rows, not about {rows} ({wanted} cores; choose fewer)", 161002
        )
    document: dict[str, Any] = {}
    metadata: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    start_us = 0.0
    for number, one in enumerate(launches):
        options = TimelineOptions(span_cores=cores)
        timed = run_timeline(one.launch, one.product, spans=True, options=options)
        if one.label:
            lane = {"pid": "launches", "tid": "launches"}
            events.append({"ph": "X", "name": one.label, **lane, "ts": start_us, "dur": timed.seconds() * 1e6})
        if timed.spans:
            document = chrome_trace(timed, one.launch.sites)
            for event in document["traceEvents"]:
                if "ts" in event:
                    event["ts"] += start_us
                if "id" in event:
                    event["id"] = f"{number}.{event['id']}"
                if event["ph"] != "M":
                    events.append(event)
                elif event not in metadata:
                    metadata.append(event)
        start_us += timed.task_seconds() * 1e6
    return document | {"traceEvents": metadata + events}

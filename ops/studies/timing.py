"""The timing study: cycles of calls, by product. No tensor data is touched.

A call has two times, both read from its one plan: that of the kernels that multiply, which a tiling decides, and that
of the whole call with its casts and layout conversions, which is what a training step waits for and often several times
as much. Whoever asks for a gradient by shape waits for the call, so that is the default scope.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_sim.errors import InternalError, NpuSimError
from npu_sim.products import Product, get_product
from npu_sim.report.record import to_json_text, to_plain
from ops.common.explain import launch_works
from ops.studies.advice import AdvisedCall, Change, advise, documents
from ops.studies.calls.planned import BoundedCall, Request, TimedCall, bound_call, require_multiplied
from ops.studies.cases import program_name
from ops.studies.launch_times import APPROXIMATE, ONE_AFTER_THE_OTHER, describe_parameters
from ops.studies.launch_trace import TracedLaunch
from ops.studies.scope import Progress, Refusal, Scope

SCHEMA_VERSION = 2


def timed_words(requests: Sequence[Request], scope: Scope) -> str:
    """Return what the figures of some calls are of."""
    called = {(request.words, request.kernel_words) for request in requests}
    words, kernels = called.pop() if len(called) == 1 else ("call", "the kernels that multiply")
    if not kernels:
        return f"{words}, a kernel by itself, between tensors in global memory"
    if scope == "call":
        return f"the whole {words}: {kernels} and the casts and layout conversions around it"
    return (
        f"{kernels} alone, out of the {words}: without the casts and layout conversions around it, which can take "
        "several times as much"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRow:
    """One call on one product.

    Attributes
    ----------
    request : Request
        The call.
    product : str
        As it was asked for.
    chip : Product
        What that name stands for.
    refusal : Refusal or None
        Why it does not run.
    result : BoundedCall or None
        Its times; None if it is refused.
    """

    request: Request
    product: str
    chip: Product
    refusal: Refusal | None = None
    result: BoundedCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingReport:
    """The outcome of a timing study.

    Attributes
    ----------
    source : str
        Where the calls come from.
    scope : {"call", "kernel"}
        What is timed of each.
    rows : tuple of TimingRow
        Product by product, request by request.
    advice : mapping of str to tuple of Change, or None
        By product, changes to all its calls together; None: nobody asked.
    """

    source: str
    scope: Scope
    rows: tuple[TimingRow, ...]
    advice: Mapping[str, tuple[Change, ...]] | None = None

    def advised(self) -> TimingReport:
        """Return the same with advice."""
        found = {}
        for name in dict.fromkeys(row.product for row in self.computed):
            own = [row.result for row in self.computed if row.product == name and row.result is not None]
            calls = [AdvisedCall(request=one.request, count=1, seconds=one.task_seconds) for one in own]
            found[name] = advise(calls, own[0].planned.product, self.scope)
        return replace(self, advice=found)

    @property
    def computed(self) -> tuple[TimingRow, ...]:
        """Rows that have a result."""
        return tuple(row for row in self.rows if row.result is not None)

    @property
    def timed(self) -> str:
        """What the figures are of."""
        return timed_words([row.request for row in self.rows], self.scope)

    def to_json(self) -> str:
        """Return everything as JSON text."""
        chips = {row.chip.name: row.chip for row in self.rows}
        return to_json_text(
            {
                "schema_version": SCHEMA_VERSION,
                "program": program_name(),
                "source": self.source,
                "scope": self.scope,
                "timed": self.timed,
                "note": f"{APPROXIMATE} {ONE_AFTER_THE_OTHER}",
                "products": {name: describe_parameters(chip) for name, chip in chips.items()},
                "advice": None if self.advice is None else {name: documents(one) for name, one in self.advice.items()},
                "rows": [_row_document(row) for row in self.rows],
            }
        )


def _row_document(row: TimingRow) -> dict[str, Any]:
    document = {
        "layer": row.request.name,
        "product": row.product,
        "soc": row.chip.name,
        **row.request.facts(),
        "refusal": to_plain(row.refusal),
    }
    result = row.result
    if result is None:
        return document | {"result": None}
    planned = result.planned
    return document | {
        "result": {
            "compute_dtype": planned.compute_dtype,
            "route": planned.route,
            "tiling": planned.tiling_origin,
            "macs": planned.macs,
            "core_count": result.core_count,
            "row_count": result.row_count,
            "total_cycles": result.total_cycles,
            "seconds": result.seconds,
            "task_seconds": result.task_seconds,
            "low_task_seconds": result.task.low_seconds,
            "high_task_seconds": result.task.high_seconds,
            "is_calibrated": result.task.is_calibrated,
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
                {"step": step.step.name, "works_on": works_on, **json.loads(timed.to_json())}
                for step, own in result.by_step
                for works_on, timed in zip(launch_works((step,)), own.launches, strict=True)
            ],
        }
    }


def run_timing(
    source: str,
    requests: Sequence[Request],
    products: Sequence[str],
    scope: Scope = "call",
    *,
    progress: Progress | None = None,
) -> TimingReport:
    """Time every call on every product.

    Parameters
    ----------
    source : str
        Where the calls come from.
    requests : sequence of Request
        The calls.
    products : sequence of str
        SoC versions or series aliases.
    scope : {"call", "kernel"}
        Whole calls, or the kernels in them that multiply.
    progress : callable or None
        Called with (calls done, calls in all, what comes next).

    Raises
    ------
    ProductError
        If a product is unknown.

    Notes
    -----
    A refused call is a row of the report, not an error.
    """
    chips = {name: get_product(name) for name in products}
    rows: list[TimingRow] = []
    count = len(chips) * len(requests)
    for name, chip in chips.items():
        for request in requests:
            if progress:
                mode = "" if request.cube_math_type is None else f" cubeMathType {request.cube_math_type}"
                progress(len(rows), count, f"{name}{mode} {request.name}")
            rows.append(time_row(request, name, chip, scope))
    if progress:
        progress(count, count, "done")
    return TimingReport(source=source, scope=scope, rows=tuple(rows))


def time_row(request: Request, name: str, chip: Product, scope: Scope, compute: str = "") -> TimingRow:
    """Time one call on ``chip``, which was asked for as ``name``; a refusal is part of the row.

    A call that does not multiply ``compute`` is refused; "" leaves open what it multiplies.
    """
    try:
        result = bound_call(request, chip, scope)
        require_multiplied(compute, result.planned)
    except InternalError:
        raise
    except NpuSimError as error:
        return TimingRow(request=request, product=name, chip=chip, refusal=Refusal.of(error))
    return TimingRow(request=request, product=name, chip=chip, result=result)


def traced_launches(result: TimedCall) -> list[TracedLaunch]:
    """Return the launches of a call, with labels, for `ops.studies.launch_trace`."""
    launches = (launch for step in result.steps for launch in step.kernel.launches)
    return [
        TracedLaunch(result.planned.product, launch, timed, f"{launch.name} ({works_on})", result.planned.inputs_in_l2)
        for launch, timed, works_on in zip(launches, result.launches, launch_works(result.steps), strict=True)
    ]

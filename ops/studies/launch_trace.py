"""Chrome traces of launches that run one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions, TimelineResult
from npu_sim.errors import OperatorError
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.report.trace import chrome_trace

TRACE_ROW_LIMIT = 200_000
"""Rows a trace may hold; a viewer gets slow long before."""


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
    inputs_in_l2 : bool
        As it was timed.
    """

    product: Product
    launch: Launch
    timed: TimelineResult
    label: str = ""
    inputs_in_l2: bool = False


def require_traceable(launches: Sequence[TracedLaunch], cores: tuple[int, ...] | None) -> None:
    """Refuse what no viewer can show.

    Raises
    ------
    OperatorError
        If a core does not exist, or there would be more than `TRACE_ROW_LIMIT` rows.
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
    require_traceable(launches, cores)
    document: dict[str, Any] = {}
    metadata: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    start_us = 0.0
    for number, one in enumerate(launches):
        options = TimelineOptions(span_cores=cores, inputs_in_l2=one.inputs_in_l2)
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

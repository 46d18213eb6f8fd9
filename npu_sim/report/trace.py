"""Chrome trace of a timeline, in the form msOpProf's simulator writes (Perfetto and chrome://tracing read it).

Source of lanes, their order and colours: Ascend/msopprof
``csrc/op_profiling/parse/data_visualizer/timeline_visualizer/timeline_defs.h`` and ``utility.cpp``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from npu_sim.engines.timeline_result import CoreSpans, TimelineResult
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Pipe
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import SPEC_OF_OP, Op
from npu_sim.program.disassemble import name_of

LANES = ("SCALAR", "FLOWCTRL", "MTE1", "CUBE", "FIXP", "MTE2", "VECTOR", "MTE3")
"""Lanes of a core, top to bottom."""

LANE_OF_PIPE: dict[Pipe, str] = {
    Pipe.S: "SCALAR",
    Pipe.V: "VECTOR",
    Pipe.M: "CUBE",
    Pipe.MTE1: "MTE1",
    Pipe.MTE2: "MTE2",
    Pipe.MTE3: "MTE3",
    Pipe.FIX: "FIXP",
    Pipe.ALL: "FLOWCTRL",
}
COLOUR_OF_LANE = {
    "SCALAR": "startup",
    "FLOWCTRL": "cq_build_passed",
    "MTE1": "thread_state_running",
    "CUBE": "background_memory_dump",
    "FIXP": "thread_state_unknown",
    "MTE2": "thread_state_iowait",
    "VECTOR": "cq_build_failed",
    "MTE3": "rail_response",
}
COLOUR_OF_OP: dict[int, str] = {
    Op.SET_FLAG: "black",
    Op.WAIT_FLAG: "yellow",
    Op.CROSS_CORE_SET_FLAG: "black",
    Op.CROSS_CORE_WAIT_FLAG: "yellow",
    Op.SET_SIGNAL: "black",
    Op.WAIT_SIGNAL: "yellow",
}
_MARKS = (Op.ALLOC_TENSOR, Op.FREE_TENSOR)
"""Rows that take no time: where buffers live."""


def chrome_trace(result: TimelineResult, sites: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Return the trace of a timeline that kept its spans.

    Parameters
    ----------
    result : TimelineResult
        Of ``run_timeline(..., spans=True)``.
    sites : mapping of int to str or None
        Names of the ``site`` numbers (`Launch.sites`).

    Returns
    -------
    dict
        ``schemaVersion``, ``displayTimeUnit``, ``profilingType`` and ``traceEvents``: metadata events that order the
        lanes, one complete event per row (``pid`` coreN, ``tid`` lane, ``ts`` and ``dur`` in microseconds), and a flow
        from every SetFlag to its WaitFlag, between cores too.

    Raises
    ------
    ShapeError
        If the result holds no spans.
    """
    if not result.spans:
        raise ShapeError(f"Timeline result must be one with spans, not one without ({result.launch})")
    events: list[dict[str, Any]] = []
    cores = sorted({spans.core for spans in result.spans})
    used = {lane for spans in result.spans for lane in _lanes(spans)}
    for core in cores:
        events.extend(_metadata(core, used))
    for spans in result.spans:
        events.extend(_core_events(spans, result.clock_hz, sites or {}))
    events.extend(_crossings(result))
    return {"schemaVersion": 2, "displayTimeUnit": "ns", "profilingType": "op", "traceEvents": events}


def _crossings(result: TimelineResult) -> Iterator[dict[str, Any]]:
    """Yield a flow from every CrossCoreSetFlag to the CrossCoreWaitFlag it ends."""
    spans_of = {(spans.core, spans.phase): spans for spans in result.spans}
    for number, crossing in enumerate(result.crossings):
        ends = ("s", *crossing[:3]), ("f", *crossing[3:])
        if any((core, phase) not in spans_of for _, core, phase, _ in ends):
            continue
        for kind, core, phase, at in ends:
            spans = spans_of[core, phase]
            row = spans.rows[at]
            yield {
                "ph": kind,
                **({"bp": "e"} if kind == "f" else {}),
                "cat": "cross-core flag",
                "name": f"flag {int(row['event'])}",
                "id": f"cross.{number}",
                "pid": f"core{core}",
                "tid": _lane(int(row["pipe"])),
                "ts": (spans.phase_start_cycles + int(spans.end_cycles[at])) * 1e6 / result.clock_hz,
            }


def _lanes(spans: CoreSpans) -> set[str]:
    return {_lane(int(pipe)) for pipe in np.unique(spans.rows["pipe"])}


def _lane(pipe: int) -> str:
    """Return the lane of a pipe; what is in no pipe is shown as control flow."""
    return LANE_OF_PIPE[Pipe(pipe)] if pipe in Pipe._value2member_map_ else LANE_OF_PIPE[Pipe.ALL]


def _metadata(core: int, used: set[str]) -> Iterator[dict[str, Any]]:
    pid = f"core{core}"
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": core}}
    for position, lane in enumerate(LANES, start=1):
        if lane in used:
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": lane, "args": {"name": lane}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": lane, "args": {"sort_index": position}}


def _core_events(spans: CoreSpans, clock_hz: int, sites: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    pid = f"core{spans.core}"
    to_microseconds = 1e6 / clock_hz
    pending: dict[tuple[int, int, int], deque[tuple[str, str, float]]] = defaultdict(deque)
    for number, (row, start, end) in enumerate(zip(spans.rows, spans.start_cycles, spans.end_cycles, strict=True)):
        op, pipe = int(row["op"]), int(row["pipe"])
        if op in _MARKS:
            continue
        lane = _lane(pipe)
        begin = (spans.phase_start_cycles + int(start)) * to_microseconds
        finish = (spans.phase_start_cycles + int(end)) * to_microseconds
        yield {
            "ph": "X",
            "name": Op(op).name if op in Op._value2member_map_ else name_of(row),
            "cname": COLOUR_OF_OP.get(op, COLOUR_OF_LANE[lane]),
            "pid": pid,
            "tid": lane,
            "ts": begin,
            "dur": int(end - start) * to_microseconds,
            "args": _arguments(row, number, op, spans.phase, sites),
        }
        peer, event = int(row["peer"]), int(row["event"])
        if op == Op.SET_FLAG:
            flow = f"{spans.core}.{spans.phase}.{number}"
            pending[pipe, peer, event].append((flow, lane, finish))
        elif op == Op.WAIT_FLAG and pending[peer, pipe, event]:
            flow, set_lane, set_time = pending[peer, pipe, event].popleft()
            name = f"{pipe_name(peer)}->{pipe_name(pipe)} {event}"
            common = {"cat": "flag", "name": name, "id": flow, "pid": pid}
            yield {"ph": "s", **common, "tid": set_lane, "ts": set_time}
            yield {"ph": "f", "bp": "e", **common, "tid": lane, "ts": finish}


def _arguments(row: np.void, number: int, op: int, phase: int, sites: Mapping[int, str]) -> dict[str, Any]:
    site = int(row["site"])
    arguments: dict[str, Any] = {
        "phase": phase,
        "row": number,
        "tile": int(row["tile"]),
        "site": sites.get(site, str(site)),
    }
    if op in SPEC_OF_OP:
        arguments["detail"] = " ".join(f"{name}={_plain(row[name])}" for name in SPEC_OF_OP[Op(op)].fields)
    return arguments


def _plain(value: Any) -> str:
    """Return a field of a row; the operands of a vector instruction are several."""
    return ",".join(str(int(part)) for part in np.atleast_1d(value))

"""Chrome trace: schema, lanes and times."""

from __future__ import annotations

import json

import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ShapeError
from npu_sim.isa.op import Pipe
from npu_sim.report.trace import LANES, chrome_trace
from tests.unit.small_launches import Product, barrier, chain, launch_of


@pytest.fixture
def result():
    return run_timeline(launch_of(chain, cores=2, phases=2), Product(timing_clock_hz=500_000_000), spans=True)


def test_trace_schema(result):
    trace = json.loads(json.dumps(chrome_trace(result, {2: "LOAD_A"}), allow_nan=False))
    assert (trace["schemaVersion"], trace["displayTimeUnit"], trace["profilingType"]) == (2, "ns", "op")
    assert set(trace) == {"schemaVersion", "displayTimeUnit", "profilingType", "traceEvents"}
    required = {
        "X": {"ph", "name", "cname", "pid", "tid", "ts", "dur", "args"},
        "s": {"ph", "cat", "name", "id", "pid", "tid", "ts"},
        "f": {"ph", "bp", "cat", "name", "id", "pid", "tid", "ts"},
    }
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            assert event["name"] in ("process_sort_index", "thread_name", "thread_sort_index")
            continue
        assert set(event) == required[event["ph"]]
        assert event["tid"] in LANES
        assert event["pid"] in ("core0", "core1")
        assert event["ts"] >= 0


def test_trace_times_are_microseconds_and_phases_follow_each_other(result):
    events = [e for e in chrome_trace(result, {2: "LOAD_A"})["traceEvents"] if e["ph"] == "X" and e["pid"] == "core1"]
    assert [e["name"] for e in events[:7]] == [
        "DATA_COPY", "SET_FLAG", "WAIT_FLAG", "LOAD_2D", "SET_FLAG", "WAIT_FLAG", "MMAD",
    ]  # fmt: skip
    # 500 MHz: 2 ns a cycle. The load runs from cycle 198 to 285.
    load = events[3]
    assert load["ts"] == pytest.approx(0.396)
    assert load["dur"] == pytest.approx(0.174)
    assert load["args"]["site"] == "LOAD_A"
    assert load["args"]["row"] == 3
    assert "repeat=32" in load["args"]["detail"]
    # The second phase starts after the first (871 cycles) and the barrier (500).
    assert events[7]["ts"] - events[0]["ts"] == pytest.approx(1371 * 0.002)
    assert events[7]["args"]["phase"] == 1


def test_trace_lanes_and_colours(result):
    events = chrome_trace(result)["traceEvents"]
    colours = {(e["name"], e["tid"]): e["cname"] for e in events if e["ph"] == "X"}
    assert colours == {
        ("DATA_COPY", "MTE2"): "thread_state_iowait",
        ("SET_FLAG", "MTE2"): "black",
        ("WAIT_FLAG", "MTE1"): "yellow",
        ("LOAD_2D", "MTE1"): "thread_state_running",
        ("SET_FLAG", "MTE1"): "black",
        ("WAIT_FLAG", "CUBE"): "yellow",
        ("MMAD", "CUBE"): "background_memory_dump",
    }
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert order == {"MTE1": 3, "CUBE": 4, "MTE2": 6}  # lanes without rows are left out


def test_trace_flows_join_each_set_with_its_wait(result):
    events = [e for e in chrome_trace(result)["traceEvents"] if e["pid"] == "core0" and e["ph"] in "sf"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == 4
    lanes = [(starts[flow]["tid"], ends[flow]["tid"]) for flow in starts]
    assert lanes == [("MTE2", "MTE1"), ("MTE1", "CUBE")] * 2
    assert all(starts[flow]["ts"] <= ends[flow]["ts"] for flow in starts)


def test_trace_barrier_of_all_pipes_is_flow_control():
    trace = chrome_trace(run_timeline(launch_of(lambda core, phase: (barrier(Pipe.ALL),)), Product(), spans=True))
    (event,) = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert (event["tid"], event["cname"]) == ("FLOWCTRL", "cq_build_passed")


def test_trace_without_spans_is_refused():
    with pytest.raises(ShapeError, match=r"\ATimeline result must be one with spans, not one without \(kernel\)\Z"):
        chrome_trace(run_timeline(launch_of(chain), Product()))

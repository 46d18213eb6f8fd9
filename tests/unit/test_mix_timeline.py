"""Times of cores that wait for each other."""

from __future__ import annotations

import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import ProgramError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Pipe, Space
from npu_sim.products import get_product
from npu_sim.report.trace import chrome_trace
from tests.unit.mix_launches import fill, load, load_l1, mixed, relay, sets, waits

CHIP = get_product("910b")
LATENCY = CHIP.cost.cross_core_cycles


def test_a_core_waits_until_the_flag_arrives():
    loads = [load(i, 32 * i) for i in range(6)]
    alone = run_timeline(mixed(lambda core, phase: loads if core else [], blocks=1, vectors=1), CHIP)

    def program(core, phase):
        return [*loads, sets(2, 1, Pipe.MTE2)] if core else [waits(1), load_l1(7)]

    result = run_timeline(mixed(program, blocks=1, vectors=1), CHIP)
    one = run_timeline(mixed(lambda core, phase: [] if core else [load_l1(7)], blocks=1, vectors=1), CHIP)
    flag = CHIP.cost.flag_cycles
    # the flag is set when the loads are complete, arrives later, and the cube core goes on then
    assert result.core_cycles[0] == alone.core_cycles[1] + LATENCY + flag + one.core_cycles[0]
    assert result.phase_cycles == (result.core_cycles[0],)
    assert result.stall_cycles["S"]["cross_core"] == alone.core_cycles[1] + LATENCY
    assert result.critical_parts["MTE2"] > one.critical_parts["MTE2"]


def test_a_flag_of_all_cores_takes_as_long_as_a_barrier_between_phases():
    def program(core, phase):
        return [sets(0, 1), waits(1), load_l1(7)]

    result = run_timeline(mixed(program, blocks=3, vectors=0, crosses=True), CHIP)
    one = run_timeline(mixed(lambda core, phase: [load_l1(7)], blocks=3, vectors=0), CHIP)
    longer = result.total_cycles - one.total_cycles - CHIP.cost.phase_barrier_cycles
    assert 0 < longer <= 4 * CHIP.cost.flag_cycles
    assert CHIP.cost.phase_barrier_cycles > LATENCY + 4 * CHIP.cost.flag_cycles


@pytest.mark.parametrize("vectors", [1, 2])
def test_parts_and_stalls_add_up(vectors):
    result = run_timeline(mixed(relay(3, vectors=vectors), vectors=vectors, phases=2), CHIP)
    assert sum(result.critical_parts.values()) == result.total_cycles
    for pipe, busy in result.busy_cycles.items():
        assert busy + sum(result.stall_cycles[pipe].values()) == sum(result.phase_cycles)
    assert len(result.core_cycles) == 2 * (1 + vectors)
    assert result.stall_cycles["S"]["cross_core"] > 0


def test_time_does_not_depend_on_how_rows_come():
    launches = [mixed(relay(3), chunk=chunk) for chunk in (1, 5, 100)]
    first, *others = (run_timeline(launch, CHIP, spans=True) for launch in launches)
    assert all(first == other for other in others)


def test_flags_of_an_earlier_phase_are_there():
    def program(core, phase):
        return [fill(1)] * 20 + [sets(2, 1)] if core and not phase else [waits(1)] if phase and not core else []

    result = run_timeline(mixed(program, blocks=1, vectors=1, phases=2), CHIP)
    assert result.phase_cycles[1] == CHIP.cost.flag_cycles


def test_spans_show_the_waiting():
    launch = mixed(lambda core, phase: [fill(1), sets(2, 1)] if core else [waits(1), load_l1(0)], blocks=1, vectors=1)
    result = run_timeline(launch, CHIP, spans=True)
    cube = next(spans for spans in result.spans if spans.core == 0)
    assert cube.start_cycles[0] == 0
    assert cube.end_cycles[0] > LATENCY
    trace = chrome_trace(result, launch.sites)
    flows = [event for event in trace["traceEvents"] if event.get("cat") == "cross-core flag"]
    assert [(flow["ph"], flow["pid"]) for flow in flows] == [("s", "core1"), ("f", "core0")]


def test_deadlock_is_refused():
    launch = mixed(lambda core, phase: [waits(1), sets(2, 1)], blocks=1, vectors=1)
    with pytest.raises(ProgramError, match="Deadlock: core 0") as caught:
        run_timeline(launch, CHIP)
    assert len(caught.value.violations) == 1


def test_contended_phases_start_with_the_flags_they_began_with():
    def big(rows, n):
        return emit.emit_data_copy(rows, n, Space.L1, 0, Space.GM, 0, 1, 4000, 0, 0, Data.FP32, 0, 0, 0)

    def program(core, phase):
        if phase == 0:
            return [sets(2, 1)] if core else []
        return [waits(1), big] if core == 0 else []

    launch = mixed(program, blocks=1, vectors=1, phases=2, gm_blocks=4096)
    forced = run_timeline(launch, CHIP, options=TimelineOptions(mte1_contended=True))
    assert run_timeline(launch, CHIP).mte1_contended[1]
    assert forced.phase_cycles[1] == run_timeline(launch, CHIP).phase_cycles[1]

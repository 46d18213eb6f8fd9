"""The memory floor of the timeline against a simulation in steps of time, and what must hold of every launch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ops
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_memory import (
    MemoryTraffic,
    Touched,
    l2_misses,
    memory_cycles,
    memory_traffic,
    touched_of,
)
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.vector.cast import cast_launch
from ops.vector.memset import memset_launch
from tests.oracles.memory_share import fluid_microseconds, missing_bytes
from tests.unit.small_launches import GHZ, Product, launch_of

COST = get_product("910b").cost
RATES = ("l2_total_bytes_per_microsecond", "hbm_total_bytes_per_microsecond", "hbm_mixed_bytes_per_microsecond")


def moving(accesses, initialised, tensors=3, tensor_bytes=1 << 16, cores=1):
    """Return a launch that makes the accesses of `missing_bytes` (multiples of 32 bytes), each on every core."""
    gm = GlobalMemory()
    places = [gm.add(f"t{i}", tensor_bytes, initialised=i in initialised) for i in range(tensors)]

    def writer(tensor, first, count, kind):
        gm_at, blocks = places[tensor].address + first, count // 32
        sides = (Space.UB, 0, Space.GM, gm_at) if kind == "read" else (Space.GM, gm_at, Space.UB, 0)
        return lambda r, n: emit.emit_data_copy(r, n, *sides, 1, blocks, 0, 0, Data.FP16, tensor, 0, 0)

    launch = launch_of(lambda core, phase: [writer(*access) for access in accesses], cores=cores)
    return dataclasses.replace(launch, gm=gm)


def slow(**rates):
    """Return a product whose totals are so low that memory decides every time."""
    values = dict.fromkeys(RATES, 64) | rates
    return Product(cost=dataclasses.replace(COST, **values))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cold", [True, False])
def test_time_is_that_of_the_fluid_simulation(seed, cold):
    rng = np.random.default_rng(seed)
    accesses = [
        (int(rng.integers(3)), 0, int(rng.integers(1, 40)) * 32, ("read", "store")[int(rng.integers(2))])
        for _ in range(int(rng.integers(1, 6)))
    ]
    initialised = {int(tensor) for tensor in np.flatnonzero(rng.random(3) < 0.5)}
    rates = dict(zip(RATES, (97, 41, 29), strict=True))
    result = run_timeline(moving(accesses, initialised), slow(**rates), options=TimelineOptions(inputs_in_l2=not cold))
    reads, stores = missing_bytes(accesses, initialised, cold=cold)
    hits = sum(count for _, _, count, _ in accesses) - reads - stores
    expected = 1000 * fluid_microseconds(hits, reads, stores, *rates.values())
    # two steps of the simulation begin in vain: 1 GHz, steps of 1/64 us; and parts are in thousandths
    spare = 3 * 1000 / 64 + 2 * hits / 1000 * 1000 / 29
    if memory := result.critical_parts["memory"]:
        assert abs(result.phase_cycles[0] + memory - expected) <= spare
    else:
        assert result.phase_cycles[0] >= expected - spare


def test_what_is_read_again_hits():
    once, twice = ([(0, 0, 3200, "read")] * times for times in (1, 2))
    one, two = (run_timeline(moving(a, {0}), slow(l2_total_bytes_per_microsecond=128)) for a in (once, twice))
    assert one.critical_parts["memory"] + one.phase_cycles[0] == 3200 * 1000 // 64
    assert two.critical_parts["memory"] + two.phase_cycles[0] == 3200 * 1000 // 64 + 3200 * 1000 // 128


def test_workspace_of_a_launch_before_is_in_l2():
    chip = slow(l2_total_bytes_per_microsecond=1 << 20)
    workspace, inputs = (run_timeline(moving([(0, 0, 3200, "read")], of), chip) for of in (set(), {0}))
    assert workspace.critical_parts["memory"] == 0
    assert inputs.critical_parts["memory"] > 0
    warm = run_timeline(moving([(0, 0, 3200, "read")], {0}), chip, options=TimelineOptions(inputs_in_l2=True))
    assert warm == workspace


@pytest.mark.parametrize("name", ["910b", "910", "310p", "Ascend910B4"])
@pytest.mark.parametrize("count", [1, 4096, 1 << 20, 1 << 27])
def test_no_launch_is_faster_than_its_bandwidth(name, count):
    chip = get_product(name)
    gm = GlobalMemory()
    src = gm.add("src", 4 * count, initialised=True)
    dst = gm.add("dst", 2 * count, initialised=False)
    result = run_timeline(cast_launch(gm, src, dst, count, "fp32", "fp16", chip), chip)
    moved = sum(result.bytes_by_path[path] for path in ("GM->UB", "UB->GM"))
    total = sum(result.phase_cycles) + result.critical_parts["memory"]
    assert moved * chip.timing_clock_hz <= total * 1_000_000 * chip.cost.hbm_total_bytes_per_microsecond
    assert sum(result.critical_parts.values()) == result.total_cycles


def test_more_bandwidth_is_never_slower():
    accesses = [(0, 0, 3200, "read"), (1, 0, 6400, "store"), (0, 0, 9600, "read")]
    launch = moving(accesses, {0})
    before = run_timeline(launch, slow()).total_cycles
    for name in RATES:
        after = run_timeline(launch, slow(**{name: 96})).total_cycles
        assert after <= before
    assert run_timeline(launch, slow(**dict.fromkeys(RATES, 96))).total_cycles < before


@pytest.mark.parametrize(("times", "there"), [(0.5, 1), (1, 1), (2, 1 / 2), (3, 1 / 3)])
def test_of_tensors_that_l2_has_no_room_for_as_much_is_there_as_of_what_it_holds(times, there):
    chip, gm = get_product("Ascend910B4"), GlobalMemory()
    half = int(times * chip.l2_bytes / 2) // 4096 * 4096
    src = gm.add("src", half, initialised=True)
    launch = cast_launch(gm, src, gm.add("dst", half // 2, initialised=False), half // 4, "fp32", "fp16", chip)
    touched = Touched(byte_count=2 * half, read_bytes=half, stored_bytes=half, input_bytes=half)
    for place, of_it in (("memory", 0), ("unknown", 1 - chip.cost.unknown_miss_permille / 1000), ("l2", 1)):
        _, misses = l2_misses(dataclasses.replace(launch, inputs=place), chip, TimelineOptions(), touched)
        assert misses == pytest.approx(1000 * (1 - of_it * there), abs=2)


def test_tensors_that_nobody_touches_change_nothing():
    accesses = [(0, 0, 3200, "read"), (1, 0, 3200, "store")]
    few, many = (run_timeline(moving(accesses, {0, 5, 6}, tensors=n), slow()) for n in (2, 9))
    assert few == many


def test_reads_alone_and_stores_alone_take_the_rate_of_memory():
    cost = slow(hbm_total_bytes_per_microsecond=100, hbm_mixed_bytes_per_microsecond=50).cost

    def cycles(reads, stores):
        moved = MemoryTraffic(
            read_bytes=reads, store_bytes=stores, missing_read_bytes=reads, missing_store_bytes=stores
        )
        return memory_cycles(moved, cost, GHZ)

    assert cycles(1000, 0) == cycles(0, 1000) == 10_000
    assert cycles(1000, 1000) == 40_000
    assert cycles(1000, 500) == 25_000


def test_beyond_the_capacity_of_l2_everything_misses_in_proportion():
    touched = Touched(byte_count=1000, read_bytes=1000, stored_bytes=1000, input_bytes=0)
    moved = memory_traffic(4000, 1000, touched, 0, 250)
    assert moved == MemoryTraffic(read_bytes=4000, store_bytes=1000, missing_read_bytes=3000, missing_store_bytes=750)


def test_what_is_touched_is_the_hull_of_each_tensor_once():
    gm = GlobalMemory()
    gm.add("x", 1000, initialised=True)
    gm.add("y", 1000, initialised=False)
    gm.add("same place as y", 1000, initialised=True, address=gm.tensors[1].address)
    y = gm.tensors[1].address
    none = (1 << 62, -(1 << 62))
    table = np.array([[100, 300, *none], [y, y + 400, y + 200, y + 1000], [*none, y, y + 700], [-8, 4, *none]])
    found = Touched(byte_count=200 + 1000 + 4, read_bytes=200 + 400 + 12, stored_bytes=800 + 700, input_bytes=200)
    assert touched_of(table, gm) == found
    assert touched_of(table[:0], gm) == Touched(byte_count=0, read_bytes=0, stored_bytes=0, input_bytes=0)


def test_fixed_cost_is_that_of_the_kind_of_kernel():
    gm = GlobalMemory()
    launch = memset_launch(gm, gm.add("x", 4096, initialised=False), get_product("910b"))
    assert launch.fixed_cost == "vector"
    for kind in ("kernel", "vector", "trans_data", "transpose", "reduce_sum"):
        result = run_timeline(dataclasses.replace(launch, fixed_cost=kind), get_product("910b"))
        assert result.critical_parts["kernel_fixed"] == getattr(COST, f"{kind}_fixed_cycles")


def test_code_that_is_in_memory_takes_a_trans_data_longer_and_nothing_else():
    chip, gm = get_product("910b"), GlobalMemory()
    launch = memset_launch(gm, gm.add("x", 4096, initialised=False), chip)
    for kind, longer in (("trans_data", COST.trans_data_cold_cycles), ("vector", 0), ("transpose", 0)):
        warm, cold = (
            run_timeline(dataclasses.replace(launch, fixed_cost=kind, code_in_memory=where), chip).total_cycles
            for where in (False, True)
        )
        assert cold - warm == longer
    assert COST.trans_data_cold_cycles > 0


def test_cores_of_cube_kernels_start_one_after_the_other():
    assert COST.fixed_cycles("kernel", 1) == COST.kernel_fixed_cycles
    assert COST.fixed_cycles("kernel", 24) == COST.kernel_fixed_cycles + 23 * COST.kernel_start_cycles


def test_cores_of_unified_products_start_one_after_the_other():
    cost = get_product("910").cost
    assert cost.fixed_cycles("vector", 1) == cost.vector_fixed_cycles
    assert cost.fixed_cycles("vector", 32) == cost.vector_fixed_cycles + 31 * cost.vector_start_cycles
    assert cost.fixed_cycles("trans_data", 32) == cost.trans_data_fixed_cycles


def _adds(core, phase):
    return [lambda r, n: emit.emit_add(r, n, 0, 512, 1024, Data.FP16, 200, 0, 0)] * (core + 1)


def test_rows_of_what_stands_for_a_tuning_record_take_longer():
    launch = launch_of(_adds, cores=3)
    own, record = (
        run_timeline(dataclasses.replace(launch, stands_for_record=stands), get_product("910b"))
        for stands in (False, True)
    )
    assert own.critical_parts["tiling"] == 0
    assert record.critical_parts["tiling"] == sum(own.phase_cycles) * (COST.record_tiling_permille - 1000) // 1000 > 0
    assert (
        record.total_cycles == own.total_cycles + record.critical_parts["tiling"] == sum(record.critical_parts.values())
    )


def test_kinds_of_kernels_start_their_cores_as_their_kind_of_core_does():
    for kind, between in (("float_matmul", COST.kernel_start_cycles), ("wide_vector", COST.vector_start_cycles)):
        assert COST.fixed_cycles(kind, 20) == getattr(COST, f"{kind}_fixed_cycles") + 19 * between
    assert COST.float_matmul_fixed_cycles > COST.kernel_fixed_cycles
    assert COST.wide_vector_fixed_cycles > COST.vector_fixed_cycles


def test_launch_on_all_vector_cores_costs_less_than_on_all_cube_cores():
    times = [COST.launch_nanoseconds(cores, "vector") for cores in range(1, 49)]
    assert times == sorted(times)
    assert times[:16] == [COST.launch_nanoseconds(cores, "cube") for cores in range(1, 17)]
    # profiled element-wise kernels of 40 and 48 blocks: 1.6-2.1 us
    assert (times[31], times[47]) == (1800, 1800)
    unified = get_product("910").cost
    assert unified.launch_nanoseconds(32, "vector") == unified.launch_nanoseconds(32, "cube") == 2400


def test_launch_cost_grows_with_the_cores():
    times = [COST.launch_nanoseconds(cores, "cube") for cores in range(1, 49)]
    assert times == sorted(times)
    # profiled: 2.15 us on 23 cores, 3.2 on 32
    assert (times[0], times[15], times[22], times[31], times[47]) == (500, 1400, 2100, 3000, 3000)
    assert times[5] == 500 + 900 * 5 // 15


def test_inputs_of_unknown_place_are_between_those_in_l2_and_in_memory():
    chip = get_product("910b")
    gm = GlobalMemory()
    count = 1 << 16
    src = gm.add("src", 4 * count, initialised=True)
    launch = cast_launch(gm, src, gm.add("dst", 2 * count, initialised=False), count, "fp32", "fp16", chip)
    assert launch.inputs == "memory"
    near, half, far = (
        run_timeline(dataclasses.replace(launch, inputs=place), chip).phase_cycles[0]
        for place in ("l2", "unknown", "memory")
    )
    assert near < half < far
    # a core reads 1,408 elements of 4 bytes: at 24 bytes a cycle more, or the half of them
    assert (far - near, half - near) == pytest.approx((5632 / 24, 5632 / 48), abs=3)
    told = run_timeline(launch, chip, options=TimelineOptions(inputs_in_l2=True))
    assert told.phase_cycles[0] == near


def test_computed_commands_take_the_scalar_unit_longer():
    row = lambda r, n: emit.emit_trans_data_to_5hd(r, n, Data.FP16, 1, 0, 0, 0, 0)  # noqa: E731
    launch = launch_of(lambda core, phase: [row] * 10)
    times = [
        run_timeline(dataclasses.replace(launch, list_commands=commands), Product()).busy_cycles["S"]
        for commands in (0, 1000, 2500)
    ]
    each = COST.computed_command_cycles
    assert times == [10 * COST.address_list_issue_cycles, 10 * each, 10 * (each * 5 // 2)]


@pytest.mark.parametrize("name", ["910b", "910", "310p"])
def test_launches_of_a_call_keep_below_the_totals_and_their_parts_add_up(name):
    chip = get_product(name)
    x, w, g = (np.zeros(shape, np.float16) for shape in ((4, 40, 12, 12), (64, 40, 3, 3), (4, 64, 12, 12)))
    calls = ops.convolution_backward(g, x, w, stride=1, padding=1, dilation=1, product=chip).plan.calls
    for launch in calls.launches:
        result = run_timeline(launch, chip)
        assert sum(result.critical_parts.values()) == result.total_cycles
        moved = sum(count for path, count in result.bytes_by_path.items() if "GM" in path)
        cycles = result.total_cycles - result.critical_parts["kernel_fixed"]
        assert moved * chip.timing_clock_hz <= cycles * 1_000_000 * chip.cost.l2_total_bytes_per_microsecond
        half = dataclasses.replace(chip, cost=dataclasses.replace(chip.cost, **{rate: 1000 for rate in RATES}))
        assert run_timeline(launch, half).total_cycles >= result.total_cycles

"""TransData on the machine against the index maps, bit for bit, on all series: rows, random legal orders, shortcuts."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.layouts.formats import ActivationLayout, Format, WeightLayout
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from ops.vector.trans_data import trans_data_activation_launch, trans_data_weight_launch
from tests.oracles.series import SERIES
from tests.oracles.trans_data import FORWARD, conversion, machine, places

ELEMENTS = ((2, 16), (4, 16), (4, 8))
ACTIVATION_DIRECTIONS = ("to_blocked", "from_blocked")
WEIGHT_DIRECTIONS = ("to_fractal", "from_fractal")
RANDOM_CASES = 6


def elements_of(series, *, weights):
    """Element widths and C0 that a series converts; without a 32-bit transposition feature maps have C0 = 16 only."""
    return [pair for pair in ELEMENTS if weights or series != "910" or pair != (4, 8)]


def random_activation(rng, c0):
    n, c, d = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.choice((1, 1, 2, 5)))
    h, w = (int(rng.choice((1, 1, 2, 3, 4, 5, 7, 9, 13))) for _ in range(2))
    if rng.random() < 0.2:
        n, c, d = int(rng.integers(20, 60)), int(rng.integers(1, 18)), 1
    return ActivationLayout(n=n, c=c, d=d, h=h, w=w, c0=c0)


def random_weight(rng, c0):
    groups = int(rng.choice((1, 1, 2, 3, 5, 16, 17, 20)))
    cout, cin = (int(rng.choice((1, 2, 3, 4, 8, 11, 16, 20, 33))) for _ in range(2))
    kd = int(rng.choice((1, 1, 2, 3)))
    kh, kw = (int(rng.choice((1, 1, 2, 3, 5))) for _ in range(2))
    if groups * cout * cin * kd * kh * kw > 20_000:
        kd = kh = kw = 1
    return WeightLayout(cout=groups * cout, cin_per_group=cin, groups=groups, kd=kd, kh=kh, kw=kw, c0=c0)


def assert_rows_are_clean(case):
    """No hazard in any core, every row legal, and time passes."""
    assert run_hazards(case.launch, case.product) == [], str(case)
    for core in {0, case.launch.core_count // 2, case.launch.core_count - 1}:
        assert verify(emit_rows(case.launch, core, 0), case.product) == [], str(case)
    assert run_timeline(case.launch, case.product).total_cycles > 0


def assert_equals_the_index_map(case, seed, order):
    case.check(seed, shortcuts=False, poison=True, order=order)
    case.check(seed, shortcuts=False, chunk_rows=1)
    case.check(seed)
    case.check(seed, threads=3)


def assert_random_cases_are_right(series, *, weights, seed, count):
    """Convert random tensors of every width in both directions, a third of them with few cores and little UB."""
    rng = np.random.default_rng([SERIES.index(series), seed])
    draw = random_weight if weights else random_activation
    for item, c0 in elements_of(series, weights=weights):
        for direction in WEIGHT_DIRECTIONS if weights else ACTIVATION_DIRECTIONS:
            for number in range(count):
                product = machine(series)
                if number % 3 == 0:
                    ub_bytes = 65536 if weights else 8192
                    product = machine(series, cores=int(rng.integers(1, 6)), ub_bytes=ub_bytes)
                case = conversion(draw(rng, c0), direction, item, product)
                assert_equals_the_index_map(case, number, order=int(rng.integers(1000)))
                assert_rows_are_clean(case)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("weights", [False, True], ids=["activations", "weights"])
def test_random_shapes_equal_the_index_map(series, weights):
    assert_random_cases_are_right(series, weights=weights, seed=71, count=RANDOM_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("weights", [False, True], ids=["activations", "weights"])
def test_many_random_shapes_equal_the_index_map(series, weights):
    assert_random_cases_are_right(series, weights=weights, seed=72, count=100)


ACTIVATIONS = {
    "one element": {"n": 1, "c": 1, "h": 1, "w": 1},
    "one pixel, last block of one channel": {"n": 40, "c": 17, "h": 1, "w": 1},
    "one pixel and channel a batch item": {"n": 300, "c": 1, "h": 1, "w": 1},
    "rows of 15 pixels": {"n": 3, "c": 20, "h": 3, "w": 5},
    "rows of 7 pixels in 5 depths": {"n": 2, "c": 9, "d": 5, "h": 1, "w": 7},
    "one pixel in 3 depths": {"n": 4, "c": 33, "d": 3, "h": 1, "w": 1},
    "one pixel in 300 depths": {"n": 2, "c": 3, "d": 300, "h": 1, "w": 1},
    "ragged plane over several tiles": {"n": 1, "c": 19, "h": 41, "w": 57},
    "whole blocks over several tiles": {"n": 1, "c": 16, "h": 48, "w": 64},
    "ragged plane in depths": {"n": 2, "c": 5, "d": 3, "h": 5, "w": 7},
    "one pixel more than a tile": {"n": 1, "c": 1, "h": 1, "w": 17},
}


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_corner_equals_the_index_map(series, name):
    for item, c0 in elements_of(series, weights=False):
        for direction in ACTIVATION_DIRECTIONS:
            layout = ActivationLayout(c0=c0, **ACTIVATIONS[name])
            for product in (machine(series), machine(series, cores=3, ub_bytes=8192)):
                case = conversion(layout, direction, item, product)
                case.check(5, shortcuts=False, poison=True, order="late")
                assert_rows_are_clean(case)


# name: shape, and the bytes of UB that cut it as the name says
WEIGHTS = {
    "one element": ({"cout": 1, "cin_per_group": 1, "kh": 1, "kw": 1}, None),
    "depthwise 1x1": ({"cout": 70, "cin_per_group": 1, "groups": 70, "kh": 1, "kw": 1}, None),
    "depthwise 3x3": ({"cout": 40, "cin_per_group": 1, "groups": 40, "kh": 3, "kw": 3}, None),
    "partial last merged group": ({"cout": 36, "cin_per_group": 5, "groups": 18, "kd": 2, "kh": 3, "kw": 1}, None),
    "rows behind the last group": ({"cout": 51, "cin_per_group": 16, "groups": 17, "kh": 1, "kw": 1}, None),
    "two row blocks a group, ragged": ({"cout": 40, "cin_per_group": 3, "groups": 2, "kh": 1, "kw": 3}, None),
    "one channel, 40 rows": ({"cout": 40, "cin_per_group": 1, "kh": 1, "kw": 1}, None),
    "chunks of channels": ({"cout": 20, "cin_per_group": 131, "kh": 3, "kw": 3}, 65536),
    "chunks of channels in groups": ({"cout": 12, "cin_per_group": 37, "groups": 4, "kh": 3, "kw": 5}, 65536),
    "chunks of one tap": ({"cout": 5, "cin_per_group": 523, "kh": 1, "kw": 1}, 32768),
    "cut taps": ({"cout": 20, "cin_per_group": 5, "kd": 3, "kh": 7, "kw": 11}, 65536),
    "cut taps in groups": ({"cout": 12, "cin_per_group": 3, "groups": 6, "kh": 17, "kw": 19}, 65536),
    "cut taps of several blocks": ({"cout": 3, "cin_per_group": 35, "kd": 2, "kh": 9, "kw": 9}, 65536),
}


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_weight_corner_equals_the_index_map(series, name):
    shape, ub_bytes = WEIGHTS[name]
    for item, c0 in ELEMENTS:
        for direction in WEIGHT_DIRECTIONS:
            for cores in (None, 3):
                product = machine(series, cores=cores, ub_bytes=ub_bytes)
                case = conversion(WeightLayout(c0=c0, **shape), direction, item, product)
                params = case.launch.params[0]
                if name.startswith("chunks"):
                    assert params["chunk_channels"] < params["mag"] * params["cin_g"]
                if name.startswith("cut"):
                    assert params["tap_chunks"] > 1
                case.check(6, shortcuts=False, poison=True, order="late")
                assert_rows_are_clean(case)


def test_corners_reach_every_way_of_cutting():
    ways = set()
    for series in SERIES:
        product = machine(series)
        for name, shape in ACTIVATIONS.items():
            params = conversion(ActivationLayout(c0=16, **shape), "from_blocked", 2, product).launch.params[0]
            ways |= {f"tails {params['tails']}"} | {f"overlaps {params['overlaps']}"}
            ways |= {"merged depths"} if params["planes_d"] < params["d"] else set()
            ways |= {"several cores with tails"} if params["tails"] and params["cores"] > 1 else set()
            ways |= {f"unit {min(int(params['unit']), 3)}"}
            assert params["tile_pixels"] * 32 <= params["store_at"] - params["load_at"] + 31, name
        for shape, ub_bytes in WEIGHTS.values():
            product = machine(series, ub_bytes=ub_bytes)
            params = conversion(WeightLayout(c0=16, **shape), "from_fractal", 2, product).launch.params[0]
            ways |= {f"own {min(int(params['own_chunks']), 2)}", f"weight tails {params['tails']}"}
            ways |= {f"weight unit {min(int(params['unit']), 3)}"}
    assert ways >= {
        "tails 0", "tails 1", "overlaps 0", "overlaps 1", "merged depths", "several cores with tails", "unit 1",
        "unit 2", "unit 3", "own 0", "own 2", "weight tails 0", "weight tails 1", "weight unit 1", "weight unit 2",
    }  # fmt: skip


def test_oracle_of_trans_data_places_are_a_bijection_into_the_storage():
    for layout in (
        ActivationLayout(n=2, c=20, d=3, h=4, w=5, c0=16),
        WeightLayout(cout=36, cin_per_group=5, groups=18, kd=2, kh=3, kw=1, c0=16),
    ):
        at = places(layout)
        assert len(np.unique(at)) == len(at) == np.prod(layout.logical_shape)
        assert at.max() < layout.storage_elems


@pytest.mark.parametrize("series", SERIES)
def test_two_dimensional_formats_leave_the_bytes_of_three_dimensional_ones(series):
    product = machine(series)
    for direction in ACTIVATION_DIRECTIONS:
        layout = ActivationLayout(n=2, c=5, h=3, w=3, c0=16, format=Format.NC1HWC0)
        conversion(layout, direction, 2, product).check(1, shortcuts=False)
        conversion(layout, direction, 2, product).check(1)
    for direction in WEIGHT_DIRECTIONS:
        layout = WeightLayout(cout=6, cin_per_group=3, groups=2, kh=2, kw=3, c0=16, format=Format.FRACTAL_Z)
        conversion(layout, direction, 2, product).check(1, shortcuts=False)
        conversion(layout, direction, 2, product).check(1)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("shortcuts", [False, True])
def test_launch_there_and_launch_back_restore_the_tensor_without_hazards_between_them(series, shortcuts):
    activation = ActivationLayout(n=3, c=17, h=1, w=3, c0=16)
    weight = WeightLayout(cout=34, cin_per_group=3, groups=2, kh=1, kw=3, c0=16)
    product = machine(series)
    for layout, plan, directions in (
        (activation, trans_data_activation_launch, ACTIVATION_DIRECTIONS),
        (weight, trans_data_weight_launch, WEIGHT_DIRECTIONS),
    ):
        gm = GlobalMemory()
        plain_bytes = int(np.prod(layout.logical_shape)) * 2
        first = gm.add("first", plain_bytes, initialised=True)
        blocked = gm.add("blocked", layout.storage_bytes(2), initialised=False)
        second = gm.add("second", plain_bytes, initialised=False)
        there = plan(gm, first, blocked, layout, 2, directions[0], product)
        back = plan(gm, blocked, second, layout, 2, directions[1], product)
        assert run_hazards([there, back], product) == []
        assert {v.kind for v in run_hazards([back], product)} == {Kind.READ_UNINITIALISED}
        gm.arena[:] = np.random.default_rng(3).integers(0, 256, gm.arena.size, np.uint8)
        for launch in (there, back):
            execute(launch, product, ExecuteOptions(accumulation=SERIAL, shortcuts=shortcuts))
        shape = (plain_bytes // 2,)
        np.testing.assert_array_equal(gm.view(second, np.uint16, shape), gm.view(first, np.uint16, shape))


def test_directions_of_the_oracle_are_those_of_the_launches():
    assert set(FORWARD) < {*ACTIVATION_DIRECTIONS, *WEIGHT_DIRECTIONS}

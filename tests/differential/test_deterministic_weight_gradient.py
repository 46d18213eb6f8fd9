"""Weight gradients whose additions have one order: the bits of the naive twin, whichever core is faster."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import OperatorError
from npu_sim.isa.op import Space
from npu_sim.program.verify import verify
from ops.conv3d_backprop_filter.tiling_data import Split, StreamK
from tests.cases.weight_gradient import (
    DTYPES,
    SERIES,
    expected,
    far_case,
    operands,
    plan_of,
    random_case,
    random_deterministic_tiling,
    random_options,
    run_plan,
    with_tiling,
)
from tests.differential.test_weight_gradient import make_case
from tests.differential.test_weight_gradient_rounding import STYLES, expected_bits, real_operands
from tests.oracles.programs import issued
from tests.oracles.series import SPLIT, UNIFIED
from tests.oracles.weight_gradient import same_bits

KINDS = [*((series, dtype, 0) for series in SPLIT for dtype in DTYPES), ("910b", "fp32", 3)]
KINDS += [(series, "fp16", 0) for series in UNIFIED]


def draw(rng, series, dtype, wish, most_macs):
    """A case, and its deterministic plan."""
    while True:
        case = replace(random_case(rng, series=series, most_macs=most_macs), dtype=dtype, cube_math_type=wish)
        try:
            return case, plan_of(case, deterministic=True)
        except OperatorError:
            continue


def variants(rng, plan):
    """The plan, and one with a random tiling."""
    return plan, random_deterministic_tiling(rng, plan)


@pytest.mark.parametrize(("series", "dtype", "wish"), KINDS)
def test_deterministic_weight_gradient_has_the_bits_of_the_documented_order(series, dtype, wish):
    rng = np.random.default_rng([SERIES.index(series), list(DTYPES).index(dtype), wish])
    shared, cut = set(), set()
    all_kinds = (set(StreamK) if series in SPLIT else {None}, {0, 1, 2})
    for number in itertools.count():
        if number >= 2 * len(STYLES) and (shared, cut) == all_kinds:
            break
        style = STYLES[number % len(STYLES)]
        case, plan = draw(rng, series, dtype, wish, 6_000)
        x, dy = real_operands(rng, case, style)
        for variant in variants(rng, plan):
            overflow = None if series in UNIFIED else ("inf_nan", "saturate")[int(rng.integers(2))]
            options = replace(random_options(rng, variant), core_order=int(rng.integers(1000)), overflow=overflow)
            want = expected_bits(variant, x, dy, options)
            got = run_plan(variant, x, dy, options)
            assert same_bits(got, want.reshape(got.shape)), (style, case, variant.tiling)
            shared.add(getattr(variant.tiling, "stream_k_type", None))
            cut.add(2 * variant.tiling.tap_by_tap + (variant.tiling.w_parts > 1))


def test_deterministic_weight_gradient_numbers_blocks_by_tap_and_then_by_group():
    # 2 taps of the depth and 3 groups: which blocks are those of the last round depends on their numbers
    case = make_case("910b", (4, 48, 3, 4, 4), (48, 16, 2, 2, 2), groups=3)
    plan = plan_of(case, deterministic=True)
    assert (plan.tiling.group, plan.tiling.dk) == (3, 2)
    x, dy = real_operands(np.random.default_rng(2), case, "wide")
    assert plan.tiling.m_count * plan.tiling.n_count == 1
    for kind in (StreamK.BATCH_DOUT, StreamK.ROWS):
        fields = {"used_core_num": 4, "block_dim": 4, "stream_k_type": int(kind), "core_stream_k": 2}
        variant = with_tiling(plan, replace(plan.tiling, **fields))
        options = random_options(np.random.default_rng(3), variant)
        got = run_plan(variant, x, dy, options)
        assert same_bits(got, expected_bits(variant, x, dy, options).reshape(got.shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_deterministic_weight_gradient_sums_slots_in_pieces_that_ub_holds(dtype):
    case = make_case("910b", (8, 40, 6, 7), (48, 40, 3, 3), dtype=dtype, padding=(1, 1))
    plan = plan_of(case, deterministic=True)
    x, dy = real_operands(np.random.default_rng(4), case, "wide")
    rng, columns_apart = np.random.default_rng(5), plan
    while len(columns_apart.launches) < 2 or columns_apart.tiling.m_count == 1:
        columns_apart = random_deterministic_tiling(rng, plan)
    assert plan.tiling.m_count == 1  # columns lie side by side in dw
    for variant in (plan, columns_apart):
        cube, sums = variant.launches
        options = random_options(rng, variant)
        want = run_plan(variant, x, dy, options)
        for sum_bytes in (64, 96, 2048):
            params = sums.params.copy()
            assert params["sum_bytes"] > sum_bytes
            params["sum_bytes"] = sum_bytes
            pieces = replace(variant, launches=(cube, replace(sums, params=params)))
            assert run_hazards(pieces.launches, pieces.product) == []
            assert same_bits(run_plan(pieces, x, dy, options), want)


@pytest.mark.parametrize("series", SERIES)
def test_deterministic_weight_gradient_of_exact_sums_equals_the_oracle_without_hazards(series):
    rng = np.random.default_rng([SERIES.index(series), 41])
    for _ in range(12):
        case = random_case(rng, series=series, most_macs=600_000)
        try:
            plan = plan_of(case, deterministic=True)
        except OperatorError:
            continue
        x, dy = operands(case)
        want = expected(case, x, dy)
        for variant in variants(rng, plan):
            got = run_plan(variant, x, dy, random_options(rng, variant)).reshape(case.weight_shape)
            np.testing.assert_array_equal(got, want)
            assert run_hazards(variant.launches, variant.product) == []
            for launch in variant.launches:
                last = launch.core_count - 1
                assert verify(emit_rows(launch, last, launch.phase_count - 1), variant.product) == []
                timed = run_timeline(launch, variant.product)
                assert timed.total_cycles == sum(timed.critical_parts.values()) > 0


@pytest.mark.parametrize("series", SERIES)
def test_deterministic_weight_gradient_from_the_whole_range_of_the_page_equals_the_oracle(series):
    rng = np.random.default_rng([SERIES.index(series), 2028])
    seen = set()
    while len(seen) < 3:  # whole rows, parts of them, single taps
        case = far_case(rng, series=series)
        plan = plan_of(case, deterministic=True)
        x, dy = operands(case)
        got = run_plan(plan, x, dy, random_options(rng, plan)).reshape(case.weight_shape)
        np.testing.assert_array_equal(got, expected(case, x, dy))
        assert run_hazards(plan.launches, plan.product) == []
        seen.add((plan.tiling.w_parts > 1, plan.tiling.tap_by_tap))


def writers(plan):
    """For each launch and phase, which cores store where in global memory: {first byte: cores}."""
    found = []
    for launch in plan.launches:
        for phase in range(launch.phase_count):
            cores = {}
            for core in range(launch.core_count):
                rows = issued(emit_rows(launch, core, phase))
                for address in rows["dst"][rows["dst_space"] == Space.GM].tolist():
                    cores.setdefault(address, set()).add(core)
            found.append(cores)
    return found


@pytest.mark.parametrize("series", SERIES)
def test_deterministic_weight_gradient_has_one_writer_where_the_default_has_several(series):
    case = make_case(series, (6, 16, 5, 5), (16, 16, 3, 3), padding=(1, 1))
    assert any(len(cores) > 1 for phase in writers(plan_of(case)) for cores in phase.values())
    rng = np.random.default_rng(0)
    for _ in range(10):
        plan = plan_of(case, deterministic=True)
        for variant in variants(rng, plan):
            assert all(len(cores) == 1 for phase in writers(variant) for cores in phase.values())


@pytest.mark.parametrize("series", SERIES)
def test_deterministic_weight_gradient_is_one_of_numbers_whose_sum_depends_on_the_order(series):
    case = make_case(series, (6, 16, 9, 9), (16, 16, 3, 3), dtype="fp32", cube_math_type=2, padding=(1, 1))
    x, dy = real_operands(np.random.default_rng(1), case, "wide")

    def seen(deterministic):
        plan = plan_of(case, deterministic=deterministic)
        options = ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype))
        return {run_plan(plan, x, dy, replace(options, core_order=order)).tobytes() for order in (None, 0, 1, 2, 3)}

    assert len(seen(deterministic=False)) > 1
    assert len(seen(deterministic=True)) == 1


def test_deterministic_weight_gradient_shares_the_batch_or_the_rows_and_asks_for_slots():
    # one block of dw for 24 cores: 8 batch items, or one in 14 stretches of 3 rows
    for x_shape, kind, sharers in (((8, 16, 8, 8), StreamK.BATCH_DOUT, 8), ((1, 16, 40, 40), StreamK.ROWS, 14)):
        case = make_case("910b", x_shape, (16, 16, 3, 3), padding=(1, 1))
        plan = plan_of(case, deterministic=True)
        t = plan.tiling
        assert (t.tiling_key, t.stream_k_type, t.core_stream_k, t.cores) == (Split.MN_STREAM_K, kind, sharers, sharers)
        assert t.workspace_bytes - plan_of(case).tiling.workspace_bytes == t.slots_bytes == sharers * 16 * 144 * 4
        assert plan.gm.tensors[-1].byte_count == t.slots_bytes
        cube, sums = plan.launches
        assert (cube.core_kind, cube.core_count) == ("cube", sharers)
        assert (sums.core_kind, sums.core_count) == ("vector", 2 * sharers)

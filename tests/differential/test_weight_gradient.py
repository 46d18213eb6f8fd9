"""The weight-gradient kernels against the float64 oracle on operands whose sums are exact: ``==``, nothing less.

`tests.long.weight_gradient` runs thousands more of the same cases.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import OperatorError
from npu_sim.isa.op import Op, Space
from ops.conv3d_backprop_filter import tiling_unified
from ops.conv3d_backprop_filter.tiling import overflows
from ops.conv3d_backprop_filter.tiling_data import ORIGIN_BASE, ORIGIN_BASIC_BLOCK, Split
from ops.conv3d_backprop_filter.tiling_fallback import cut_tilings, fallback_tiling
from tests.cases.weight_gradient import (
    CASE_KINDS,
    SERIES,
    Case,
    expected,
    far_case,
    operands,
    plan_of,
    random_case,
    random_options,
    random_tiling,
    run_plan,
    with_tiling,
)
from tests.long.weight_gradient import check_call
from tests.oracles.series import SPLIT, UNIFIED

CASES_PER_SERIES = 40
SPLIT_TYPES = [("fp16", 0), ("bf16", 0), ("bf16", 2), ("fp32", 0), ("fp32", 1), ("fp32", 2), ("fp32", 3)]


def make_case(series, x_shape, weight_shape, *, dtype="fp16", cube_math_type=0, groups=1, memory="c", **attributes):
    """A case with the output extents worked out."""
    rank = len(x_shape) - 2
    stride, dilation = (attributes.get(name, (1,) * rank) for name in ("stride", "dilation"))
    padding = attributes.get("padding", (0,) * rank)
    sums = [padding[2 * a] + padding[2 * a + 1] if len(padding) == 2 * rank else 2 * padding[a] for a in range(rank)]
    out = [
        (x_shape[2 + a] + sums[a] - dilation[a] * (weight_shape[2 + a] - 1) - 1) // stride[a] + 1 for a in range(rank)
    ]
    return Case(
        series=series,
        dtype=dtype,
        cube_math_type=cube_math_type,
        x_shape=x_shape,
        dy_shape=(x_shape[0], weight_shape[0], *out),
        weight_shape=weight_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        memory=memory,
        seed=7,
    )


def assert_exact(case, plan=None, options=None):
    x, dy = operands(case)
    want = expected(case, x, dy)
    if plan is None:
        assert check_call(case, x, dy, want)
        return
    got = run_plan(plan, x, dy, options or default_options(plan)).reshape(case.weight_shape)
    np.testing.assert_array_equal(got, want)


def some_hazards(rng, plan):
    """What the hazards engine finds, in one of four plans: it takes longer than the sums."""
    return run_hazards(plan.launches, plan.product) if rng.integers(4) == 0 else []


def default_options(plan):
    return ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype), poison=True)


@pytest.mark.parametrize("series", SERIES)
def test_weight_gradient_random_calls_and_tilings_equal_the_oracle(series):
    rng = np.random.default_rng([SERIES.index(series), 2026])
    refused = 0
    for _ in range(CASES_PER_SERIES):
        case = random_case(rng, series=series, most_macs=600_000)
        try:
            plan = plan_of(case)
        except OperatorError:
            refused += 1
            continue
        assert_exact(case)
        for _ in range(2):
            changed = random_tiling(rng, plan, cut=True)
            assert_exact(case, changed, random_options(rng, changed))
            assert some_hazards(rng, changed) == []
    # 3D with groups, fp32 tensors and 16-bit operands is the only kind drawn that the operator refuses.
    assert refused <= CASES_PER_SERIES // 10


def test_weight_gradient_random_cases_reach_every_corner():
    # A generator that stopped drawing a kind of case would let the tests above pass with less in them.
    assert {"groups", "depthwise", "pads", "one_column", "large_kernel", "line", "volume"} <= set(CASE_KINDS)
    seen = set()
    for index, series in enumerate(SERIES):
        rng = np.random.default_rng([index, 2026])
        for _ in range(CASES_PER_SERIES):
            case = random_case(rng, series=series, most_macs=600_000)
            geometry = case.geometry
            merged = geometry.merged_groups(16)
            seen |= {f"rank {geometry.spatial_rank}", case.memory, f"{case.dtype} {case.cube_math_type}"}
            seen |= {"partial last group"} if geometry.groups % merged.mag else set()
            seen |= {"depthwise"} if geometry.groups == geometry.cin > 1 else set()
            seen |= {"one column"} if geometry.wo == 1 and geometry.ho > 1 else set()
            seen |= {"pad not below kernel"} if geometry.pad[2] >= geometry.kernel_height else set()
            seen |= {"uneven pads"} if geometry.pad[4] != geometry.pad[5] else set()
            seen |= {"dilated"} if max(geometry.dilation) > 1 and geometry.kh > 1 else set()
            seen |= {"ragged cin"} if geometry.cin % 16 else set()
    assert seen >= {
        "rank 1", "rank 2", "rank 3", "c", "fortran", "reversed", "strided", "partial last group", "depthwise",
        "one column", "pad not below kernel", "uneven pads", "dilated", "ragged cin",
        *(f"fp16 {wish}" for wish in range(4)), *(f"bf16 {wish}" for wish in range(4)),
        *(f"fp32 {wish}" for wish in range(4)),
    }  # fmt: skip


@pytest.mark.parametrize("series", SPLIT)
@pytest.mark.parametrize(("dtype", "wish"), SPLIT_TYPES)
def test_weight_gradient_split_every_operand_type_equals_the_oracle(series, dtype, wish):
    case = make_case(
        series, (3, 34, 9, 11), (20, 17, 3, 2), dtype=dtype, cube_math_type=wish, groups=2, padding=(1, 0, 2, 1)
    )
    assert_exact(case)


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize(("dtype", "wish"), [("fp16", 0), ("fp32", 1), ("fp32", 2)])
def test_weight_gradient_unified_every_operand_type_equals_the_oracle(series, dtype, wish):
    case = make_case(
        series, (3, 34, 9, 11), (20, 17, 3, 2), dtype=dtype, cube_math_type=wish, groups=2, padding=(1, 0, 2, 1)
    )
    assert_exact(case)


@pytest.mark.parametrize("series", SERIES)
def test_weight_gradient_output_of_one_column_equals_the_oracle(series):
    # img2col of 910 and 310P cannot make it; the kernel computes a second column that reads only padding.
    for kernel, padding, stride in (
        ((3, 7), (1, 1, 0, 0), (1, 1)),
        ((2, 3), (2, 2, 3, 1), (1, 11)),
        ((1, 1), (0, 0), (2, 9)),
    ):
        assert_exact(make_case(series, (2, 18, 9, 7), (33, 18, *kernel), padding=padding, stride=stride))


@pytest.mark.parametrize("series", SERIES)
def test_weight_gradient_planes_too_far_apart_for_a_copy_gap_equal_the_oracle(series):
    # 65,535 blocks of 32 bytes are the largest gap of a DataCopy; these planes are farther apart.
    case = make_case(series, (1, 33, 300, 270), (33, 33, 3, 3), padding=(1, 1))
    plan = plan_of(case)
    copies = [
        row
        for phase in range(plan.launches[-1].phase_count)
        for row in emit_rows(plan.launches[-1], 0, phase)
        if row["op"] == Op.DATA_COPY and row["dst_space"] == Space.L1
    ]
    assert copies
    assert all(row["src_gap"] == 0 for row in copies)
    x, dy = operands(case)
    x[:, 1:], dy[:, 1:] = x[:, :1] * np.float16(0), dy[:, :1] * np.float16(0)
    x[:, 32], dy[:, 32] = 1, 1
    got = run_plan(plan, x, dy, default_options(plan)).reshape(case.weight_shape)
    np.testing.assert_array_equal(got, expected(case, x, dy))


LONG = [
    # x, weight, attributes: parts of the columns of one row, of many rows, of rows too far apart for a copy gap
    ((1, 1, 160_000), (8, 1, 10), {"stride": (5,)}),
    ((2, 18, 33_000), (17, 18, 3), {"stride": (2,), "padding": (200,), "dilation": (90,)}),
    ((1, 2, 7, 17_000), (5, 2, 3, 4), {"padding": (1, 1, 2, 0), "stride": (2, 3)}),
    ((1, 1, 4, 70_000), (3, 1, 2, 2), {}),
    # single taps: windows and steps that image-to-column does not have, and parts too wide for L1
    ((1, 3, 100_000), (4, 3, 5), {"stride": (20_000,), "padding": (255,)}),
    ((2, 1, 300, 9), (3, 1, 2, 2), {"stride": (100, 64), "dilation": (150, 7)}),
    ((1, 1, 200, 175), (2, 1, 190, 160), {"padding": (3, 1)}),
    ((1, 17, 40, 1300), (16, 17, 2, 9), {"dilation": (39, 150)}),
]


@pytest.mark.parametrize("series", SERIES)
def test_weight_gradient_random_calls_from_the_whole_range_of_the_page_equal_the_oracle(series):
    rng = np.random.default_rng([SERIES.index(series), 2027])
    origins = set()
    while len(origins) < 3:  # whole rows, parts of them, single taps
        case = far_case(rng, series=series)
        plan = plan_of(case)
        assert_exact(case)
        assert_exact(case, plan, random_options(rng, plan))
        assert some_hazards(rng, plan) == []
        origins.add((plan.tiling.w_parts > 1, plan.tiling.tap_by_tap))


# TextCNN: one column of several rows; and what no page limits on 310P and 910
BEYOND_THE_LOAD = [
    ((2, 1, 30, 64), (16, 1, 3, 64), {}),
    ((2, 3, 900), (4, 3, 300), {"padding": (300,)}),
    ((1, 2, 40, 350), (3, 2, 2, 1), {"padding": (260, 1), "stride": (1, 64)}),
    ((1, 2, 700, 5), (3, 2, 2, 3), {"dilation": (600, 1)}),
]


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize(("x_shape", "weight_shape", "attributes"), BEYOND_THE_LOAD)
def test_weight_gradient_unified_windows_beyond_the_load_equal_the_oracle(series, x_shape, weight_shape, attributes):
    case = make_case(series, x_shape, weight_shape, **attributes)
    plan = plan_of(case)
    assert plan.tiling.tap_by_tap
    assert_exact(case)
    assert run_hazards(plan.launches, plan.product) == []


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(("x_shape", "weight_shape", "attributes"), LONG)
def test_weight_gradient_of_maps_that_l1_or_the_load_do_not_hold_equals_the_oracle(
    series, x_shape, weight_shape, attributes
):
    for dtype in ("fp16", "fp32") if series in SPLIT else ("fp16",):
        case = make_case(series, x_shape, weight_shape, dtype=dtype, cube_math_type=1, **attributes)
        plan = plan_of(case)
        assert plan.tiling.w_parts > 1 or plan.tiling.tap_by_tap
        assert_exact(case)
    assert run_hazards(plan.launches, plan.product) == []


@pytest.mark.parametrize("series", UNIFIED)
def test_weight_gradient_columns_too_far_apart_for_a_store_gap_equal_the_oracle(series):
    assert_exact(make_case(series, (2, 3, 2, 3), (33_000, 3, 1, 2)))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "attributes"),
    [
        ((1, 1, 8000), (8, 1, 10), {"stride": (5,)}),
        ((1, 64, 4096), (64, 64, 3), {"padding": (1,)}),
        ((1, 512, 3200), (512, 512, 3), {"stride": (2,)}),
        ((1, 32, 64, 512), (32, 32, 3, 3), {"padding": (1, 1)}),
        ((1, 128, 32, 256), (128, 128, 3, 3), {"padding": (1, 1)}),
    ],
)
def test_weight_gradient_of_rows_that_fit_takes_no_longer_in_parts(x_shape, weight_shape, attributes, dtype):
    case = make_case("910b", x_shape, weight_shape, dtype=dtype, cube_math_type=0, **attributes)
    plan = plan_of(case)
    assert plan.tiling.w_parts == 1
    product, g = plan.product, case.geometry
    make = partial(fallback_tiling, g, dtype, product.cube_core_count, product.core)
    cut = next(
        tiling
        for tiling in cut_tilings(make, g, product.core.l1_bytes, loadable=True)
        if not overflows(tiling, product.core)
    )
    assert cut.w_parts > 1
    whole, parts = (
        sum(run_timeline(launch, product).total_cycles for launch in each.launches)
        for each in (plan, with_tiling(plan, cut))
    )
    assert parts <= 1.05 * whole


@pytest.mark.parametrize(
    ("series", "x_shape", "weight_shape", "attributes", "is_cut"),
    [
        ("310p", (1, 1, 8000), (8, 1, 10), {"stride": (5,)}, True),
        ("910", (1, 64, 4096), (64, 64, 3), {"padding": (1,)}, True),
        ("310p", (1, 64, 4, 2000), (64, 64, 3, 3), {"padding": (1, 1)}, True),
        ("310p", (1, 64, 4, 1100), (64, 64, 7, 7), {"padding": (3, 3)}, False),
        ("910", (32, 3, 4, 600), (8, 3, 1, 1), {}, False),
    ],
)
def test_weight_gradient_of_unified_cores_cuts_rows_where_that_is_sooner(
    series, x_shape, weight_shape, attributes, is_cut, monkeypatch
):
    case = make_case(series, x_shape, weight_shape, **attributes)
    plan = plan_of(case)
    assert (plan.tiling.w_parts > 1) == is_cut
    # the other way
    monkeypatch.setattr(tiling_unified, "_cycles", lambda tiling, rough=tiling_unified._cycles: -rough(tiling))
    other = tiling_unified.unified_tiling(case.geometry, plan.product)
    assert (other.w_parts > 1) != is_cut
    chosen, refused = (
        sum(run_timeline(launch, plan.product).total_cycles for launch in each.launches)
        for each in (plan, with_tiling(plan, other))
    )
    assert chosen < refused


def test_weight_gradient_key_of_every_split_and_both_orders_equal_the_oracle():
    case = make_case("910b", (2, 48, 9, 8), (80, 48, 3, 3), padding=(1, 1))
    plan = plan_of(case)
    window = 9 * 16
    shapes = {
        Split.MK: {"single_core_m": 32, "single_core_n": 3 * window, "single_core_k": 3 * 8},
        Split.NK: {"single_core_m": 80, "single_core_n": window, "single_core_k": 4 * 8},
        Split.MN: {"single_core_m": 48, "single_core_n": 2 * window, "single_core_k": 80},
    }
    steps = {"base_m": 16, "base_n": 80, "base_k": 16, "step_m": 2, "step_n": 2}
    for key, single in shapes.items():
        for order in (0, 1):
            for step_ka, step_kb in ((1, 1), (1, 2), (2, 1), (5, 5)):
                for buffers in ((1, 1, 1), (2, 2, 2), (1, 2, 1), (2, 1, 2)):
                    fields = dict(zip(("al1_pbuffer", "bl1_pbuffer", "cl0_pbuffer"), buffers, strict=True))
                    tiling = replace(
                        plan.tiling, tiling_key=int(key), iterate_order=order, step_ka=step_ka, step_kb=step_kb,
                        bl1_bound=3 * 9 * 8 * 16, used_core_num=5, **single, **steps, **fields,
                    )  # fmt: skip
                    assert_exact(case, with_tiling(plan, tiling))


def test_weight_gradient_merged_depth_taps_equal_the_oracle():
    # The basic-block tiling of a kernel with depth taps and no groups lets N run over the taps.
    shapes = [(1, 1, 3, 5, 1), (2, 1, 3, 3, 1), (0, 2, 2, 6, 1), (2, 3, 4, 7, 1), (1, 2, 3, 4, 2)]
    for pad, stride_d, kd, depth, window in shapes:
        case = make_case(
            "910b",
            (2, 40, depth, 5, 6),
            (130 if window > 1 else 20, 40, kd, window, window),
            padding=(pad, 0, 1),
            stride=(stride_d, 1, 1),
            dtype="bf16",
        )
        plan = plan_of(case)
        assert (plan.tiling.dk_merged, plan.tiling.origin) == (1, ORIGIN_BASIC_BLOCK)
        assert_exact(case, plan)
        rng = np.random.default_rng(depth)
        for _ in range(4):
            assert_exact(case, random_tiling(rng, plan))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_weight_gradient_blocks_behind_the_last_channel_of_a_partial_group_are_left_out(dtype):
    # 3 groups of 8 -> 24 channels merge in pairs: the second merged group has 32 of 48 output channels, so the last of
    # its three M blocks is empty, and so is the last channel block of N.
    case = make_case("910b", (2, 24, 5, 5), (72, 8, 2, 2), dtype=dtype, groups=3)
    plan = plan_of(case)
    planes = plan.tiling.n_extent // (4 * plan.tiling.channel_size)
    assert (plan.tiling.group, plan.tiling.m_extent) == (2, 48)
    for key in (Split.MK, Split.NK, Split.MN):
        tiling = replace(
            plan.tiling,
            tiling_key=int(key),
            single_core_m=48 if key == Split.NK else 16,
            single_core_n=plan.tiling.n_extent if key == Split.MK else plan.tiling.n_extent // planes,
            single_core_k=16,
            base_m=16,
            base_n=16,
            base_k=16,
            step_m=1,
            step_n=1,
            step_ka=1,
            step_kb=1,
            used_core_num=4,
        )
        assert_exact(case, with_tiling(plan, tiling))


def test_weight_gradient_base_tiling_on_twenty_cores_equals_the_oracle_without_hazards():
    # bfloat16 on 20 cores is the case whose base tiling (key 0) is published; every core has one block and its share of
    # batch and depth, K or N split over what is left
    rng = np.random.default_rng(20)
    splits = set()
    for _ in range(400):
        if len(splits) == 3:
            break
        n, do = (int(rng.choice(choice)) for choice in ((1, 2, 4, 5, 10), (1, 2, 4, 5)))
        kd, window = int(rng.choice((1, 2, 3))), int(rng.choice((2, 3)))
        cin, cout = int(rng.choice((16, 40, 64, 80))), int(rng.choice((8, 16, 40)))
        size = int(rng.choice((8, 9, 17, 20)))
        stride_d, pad = int(rng.choice((1, 2))), int(rng.integers(0, 2))
        depth = (do - 1) * stride_d + kd - 2 * pad
        if depth < 1:
            continue
        case = make_case(
            "Ascend910B3", (n, cin, depth, size, size), (cout, cin, kd, window, window), dtype="bf16",
            stride=(stride_d, 1, 1), padding=(pad, pad, 1),
        )  # fmt: skip
        plan = plan_of(case)
        if plan.tiling.origin != ORIGIN_BASE:
            continue
        t = plan.tiling
        split = "batch" if t.batch_dim == 20 else "K" if t.k_dim > 1 else "N"
        if split in splits or case.geometry.macs > 20_000_000:
            continue
        splits.add(split)
        assert t.block_dim == t.cores >= 16
        assert_exact(case, plan)
        assert run_hazards(plan.launches, plan.product) == []
        x, dy = operands(case)
        assert check_call(case, x, dy, expected(case, x, dy))
    assert splits == {"batch", "K", "N"}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_weight_gradient_tiling_of_a_published_vector_equals_the_oracle_without_hazards(dtype):
    # 12 blocks of M, 2 of K on 24 cores
    case = make_case("910b", (1, 4, 32, 32), (1152, 4, 2, 2), dtype=dtype, stride=(2, 2))
    plan = plan_of(case)
    assert (plan.tiling.tiling_key, plan.tiling.m_dim, plan.tiling.k_dim, plan.launches[0].core_count) == (0, 12, 2, 24)
    assert_exact(case, plan)
    assert run_hazards(plan.launches, plan.product) == []


@pytest.mark.parametrize(
    ("shape", "weight", "attributes", "shares"),
    [
        # (groups, taps, batch items) of a core, (cores for groups, for taps)
        ((1, 48 * 16, 1, 6, 6), (48 * 16, 16, 1, 3, 3), {"groups": 48}, (2, 1, 1, 24, 1)),
        ((5, 80, 6, 5, 7), (80, 16, 5, 3, 2), {"groups": 5}, (1, 5, 4, 5, 1)),
        ((1, 16, 10, 5, 5), (24, 16, 4, 2, 2), {"dilation": (2, 1, 1)}, (1, 1, 1, 1, 4)),
        (
            (6, 48, 9, 4, 4),
            (48, 16, 3, 3, 3),
            {"groups": 3, "dilation": (2, 1, 1), "padding": (2, 1, 1)},
            (1, 1, 27, 3, 3),
        ),
    ],
)
def test_weight_gradient_base_tiling_of_groups_and_separate_taps_equals_the_oracle(shape, weight, attributes, shares):
    for dtype in ("fp16", "fp32"):
        case = make_case("910b", shape, weight, dtype=dtype, **attributes)
        plan = plan_of(case)
        t = plan.tiling
        assert (t.origin, t.tiling_key, t.dk_merged) == (ORIGIN_BASE, 0, 0)
        found = (t.single_core_group, t.single_core_dk, t.single_core_batch, t.group_dim, t.dk_dim)
        assert found == shares
        assert_exact(case, plan)
        assert run_hazards(plan.launches, plan.product) == []

"""Input gradients and forward convolutions of dav-c220: exact on integers, bit for bit on real numbers.

`tests.long.input_gradient` runs thousands more of the same cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL, default_accumulation
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op, Space
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_BASE, ORIGIN_BASIC_BLOCK, ORIGIN_OURS, DxProblem
from tests.cases.input_gradient import (
    KINDS,
    STORED,
    Case,
    bias_of,
    default_options,
    expected,
    operands,
    padding_of,
    random_case,
    random_options,
    random_split_tiling,
    run,
    setup_of,
)
from tests.oracles.convolution_bits import forward_sums, gradient_sums
from tests.oracles.mmad import hf32_matrix
from tests.oracles.series import SPLIT
from tests.oracles.weight_gradient import same_bits

SERIES = SPLIT
CASES = 50
MOST_MACS = 1_200_000
TYPES = ("fp16", "bf16", "fp32", "hf32")


def assert_exact(setup, options=None):
    a, weight = operands(setup.case)
    got = run(setup, a, weight, options or default_options(setup))
    np.testing.assert_array_equal(got.astype(np.float64), expected(setup.case, a, weight), err_msg=f"{setup}")
    assert not padding_of(setup).astype(np.float64).any()


def assert_clean(setup):
    product = setup.case.product
    assert run_hazards(setup.plan.launches, product) == [], setup
    for launch in setup.plan.launches:
        for phase in range(launch.phase_count):
            for core in {0, launch.core_count - 1}:
                assert verify(emit_rows(launch, core, phase), product) == [], setup


def case_of(kind, compute, x_shape, weight_shape, *, series="910b", groups=1, stride=1, pad=0, dilation=1):
    """A case from (n, c, [d,] h, w) and the kernel, the output extents worked out; ``pad`` flat, before and after."""
    rank = len(x_shape) - 2
    whole = (0,) * (3 - rank)

    def each(value):
        return (1,) * (3 - rank) + (value if isinstance(value, tuple) else (value,) * rank)

    strides, dilations = each(stride), each(dilation)
    pads = (0, 0) * len(whole) + (pad if isinstance(pad, tuple) else (pad,) * (2 * rank))
    size = (1,) * (3 - rank) + x_shape[2:]
    kernel = (1,) * (3 - rank) + weight_shape[2:]
    out = [
        (size[i] + pads[2 * i] + pads[2 * i + 1] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(3)
    ]
    geometry = ConvGeometry(
        n=x_shape[0], cin=x_shape[1], cout=weight_shape[0], groups=groups, di=size[0], hi=size[1], wi=size[2],
        do=out[0], ho=out[1], wo=out[2], kd=kernel[0], kh=kernel[1], kw=kernel[2], stride=strides, pad=pads,
        dilation=dilations, spatial_rank=rank,
    )  # fmt: skip
    return Case(kind=kind, product=get_product(series), compute_dtype=compute, geometry=geometry, seed=11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("series", SERIES)
def test_input_gradient_random_cases_and_tilings_equal_the_oracle_and_are_clean(series, kind):
    rng = np.random.default_rng([SERIES.index(series), KINDS.index(kind), 2026])
    for number in range(CASES):
        setup = setup_of(random_case(rng, series=series, most_macs=MOST_MACS, kind=kind))
        assert_exact(setup)
        changed = random_split_tiling(rng, setup)
        assert_exact(changed, random_options(rng, changed))
        if number % 3 == 0:
            assert_clean(setup)
            assert_clean(changed)


def test_input_gradient_random_cases_reach_every_corner():
    # a generator that stopped drawing a kind of case would let the test above pass with less in it
    seen = set()
    for kind in KINDS:
        for index, series in enumerate(SERIES):
            rng = np.random.default_rng([index, KINDS.index(kind), 2026])
            for _ in range(CASES):
                case = random_case(rng, series=series, most_macs=MOST_MACS, kind=kind)
                g = case.geometry
                problem = DxProblem.of(g, case.compute_dtype)
                pads = problem.back_pads
                seen |= {f"{kind} {case.compute_dtype}"}
                seen |= {f"{kind} groups"} if problem.groups > 1 else set()
                seen |= {"partial last group"} if g.groups % g.merged_groups(problem.c0).mag else set()
                seen |= {"ragged cin"} if g.cin % 16 else set()
                seen |= {"ragged cout"} if g.cout % 16 else set()
                seen |= {f"{kind} depth"} if g.di > 1 else set()
                seen |= {f"{kind} kernel above input"} if g.kh > g.hi or g.kw > g.wi else set()
                seen |= {"dilated"} if max(problem.dilation) > 1 else set()
                seen |= {"strided"} if g.stride[1] > 1 and g.stride[2] > 1 else set()
                seen |= {"cleared"} if problem.needs_clearing else set()
                seen |= {"cropped left"} if pads.left < 0 else set()
                seen |= {"cropped right"} if pads.right < 0 else set()
                seen |= {"cropped above"} if pads.up < 0 else set()
                setup = setup_of(case)
                seen |= {setup.plan.tiling.origin}
                changed = random_split_tiling(rng, setup)
                random_options(rng, changed)
                if kind == "input_gradient":
                    seen |= set() if changed.plan.tiling.is_block_driver else {"grid"}
                params = changed.plan.launches[0].params[0]
                seen |= {f"{kind} weight held"} if params["b_full"] else set()
    assert seen >= {
        *(f"{kind} {name}" for kind in KINDS for name in TYPES), *(f"{kind} groups" for kind in KINDS),
        *(f"{kind} depth" for kind in KINDS), *(f"{kind} kernel above input" for kind in KINDS),
        *(f"{kind} weight held" for kind in KINDS), "partial last group", "ragged cin", "ragged cout", "dilated",
        "strided", "cleared", "cropped left", "cropped right", "cropped above", "grid", ORIGIN_BASIC_BLOCK, ORIGIN_BASE,
        ORIGIN_OURS,
    }  # fmt: skip


@pytest.mark.parametrize("compute", ["fp16", "fp32"])
@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "attributes"),
    [
        pytest.param((1, 16, 9, 9), (16, 16, 2, 2), {"stride": 5}, id="rows and columns under no window"),
        pytest.param((1, 8, 6, 7, 7), (8, 8, 2, 1, 1), {"stride": (4, 1, 1)}, id="planes under no window"),
        pytest.param((1, 8, 7, 5, 5), (8, 8, 2, 2, 2), {"dilation": (3, 1, 1)}, id="taps of a plane apart"),
        pytest.param((2, 8, 3, 3), (8, 8, 1, 1), {"pad": (4, 4, 4, 4), "stride": 2}, id="pads above the kernel"),
        pytest.param((1, 8, 1, 1), (8, 8, 1, 1), {"pad": (0, 0, 5, 0), "stride": 6}, id="only padding is read"),
        pytest.param((1, 8, 2, 1, 1), (8, 8, 1, 1, 1), {"pad": (3, 3, 0, 0, 0, 0)}, id="planes of padding"),
        pytest.param((1, 8, 2, 2), (8, 8, 1, 1), {"pad": (3, 4, 0, 0)}, id="rows of padding"),
        pytest.param((1, 8, 3, 3), (8, 8, 7, 7), {"pad": 3}, id="kernel above the input"),
        pytest.param((1, 4, 1, 70), (4, 4, 1, 9), {"stride": (1, 3), "pad": (0, 0, 4, 2)}, id="line"),
        pytest.param((1, 16, 130, 1), (16, 16, 3, 1), {"pad": (1, 1, 0, 0)}, id="one column"),
        # 385 blocks over 24 cores: a share rounded down is whole (256 elements) and leaves the last block to nobody
        pytest.param(
            (7, 16, 5, 11, 1), (16, 16, 1, 1, 1), {"stride": (3, 1, 1)}, id="shares of clearing that leave a rest"
        ),
    ],
)
def test_input_gradient_and_forward_corner_shapes_equal_the_oracle(x_shape, weight_shape, attributes, compute):
    for kind in KINDS:
        setup = setup_of(case_of(kind, compute, x_shape, weight_shape, **attributes))
        assert_exact(setup)
        assert_clean(setup)


# layers of ResNet-50 (He et al. 2015, table 1) and of published tiling tests: blocks of full size, all cores
LAYERS = [
    pytest.param("fp16", (1, 64, 56, 56), (64, 64, 3, 3), {"pad": 1}, id="56x56x64"),
    pytest.param("fp32", (1, 64, 56, 56), (64, 64, 3, 3), {"pad": 1}, id="56x56x64 fp32"),
    pytest.param("bf16", (1, 128, 56, 56), (128, 128, 3, 3), {"pad": 1, "stride": 2}, id="28x28x128 strided"),
    pytest.param("fp16", (1, 256, 14, 14), (256, 256, 3, 3), {"pad": 1}, id="14x14x256"),
    pytest.param("fp16", (1, 256, 56, 56), (64, 256, 1, 1), {}, id="1x1"),
    pytest.param("fp32", (1, 512, 5, 32, 32), (512, 512, 1, 1, 1), {}, id="1x1x1 fp32"),
    pytest.param("bf16", (1, 17, 20, 60, 60), (15, 17, 2, 2, 2), {"stride": 2}, id="strided volume"),
    pytest.param("fp32", (1, 320, 5, 32, 32), (320, 1, 1, 2, 2), {"groups": 320}, id="depthwise volume"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("compute", "x_shape", "weight_shape", "attributes"), LAYERS)
def test_input_gradient_network_layers_equal_the_oracle(compute, x_shape, weight_shape, attributes, kind):
    setup = setup_of(case_of(kind, compute, x_shape, weight_shape, **attributes))
    assert_exact(setup)


@pytest.mark.parametrize("kind", KINDS)
def test_input_gradient_planes_too_far_apart_for_a_copy_gap_equal_the_oracle(kind):
    # 65,535 blocks of 32 bytes are the largest gap of a DataCopy; planes and rows of the weight are farther apart
    setup = setup_of(case_of(kind, "fp16", (1, 33, 300, 270), (20, 33, 1, 1)))
    assert_exact(setup)
    copies = [
        row
        for row in emit_rows(setup.plan.launches[0], 0)
        if row["op"] == Op.DATA_COPY and row["dst_space"] == Space.L1 and row["tensor"] == setup.a.index
    ]
    assert copies
    assert all(row["src_gap"] == 0 for row in copies)


@pytest.mark.parametrize("compute", TYPES)
@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "attributes"),
    [
        ((2, 16, 200, 150), (18, 16, 3, 3), {"stride": (64, 70), "pad": 1}),
        ((1, 17, 300), (18, 17, 2), {"stride": 100, "series": "910_93"}),
        ((1, 8, 130, 131), (24, 8, 1, 1), {"stride": 65}),
        ((2, 8, 70, 5), (18, 8, 2, 2), {"stride": (300, 1), "pad": (3, 3, 0, 0)}),
        ((1, 32, 9, 400), (32, 16, 2, 3), {"stride": (1, 127), "dilation": (1, 5), "groups": 2}),
        # what no window covers is more than a load pads: zeros behind the last pixel of the gradient
        ((1, 3, 3, 257), (5, 3, 1, 255), {"stride": (1, 3)}),
        ((1, 3, 600, 600), (5, 3, 3, 3), {"stride": 300}),
        ((2, 17, 600, 1), (5, 17, 3, 1), {"stride": (300, 1)}),
    ],
)
def test_input_gradient_strides_no_instruction_holds_equal_the_oracle_and_are_clean(
    x_shape, weight_shape, attributes, compute
):
    rng = np.random.default_rng([5, *x_shape, *weight_shape])
    setup = setup_of(case_of("input_gradient", compute, x_shape, weight_shape, **attributes))
    assert_exact(setup)
    assert_clean(setup)
    changed = random_split_tiling(rng, setup)
    assert_exact(changed, random_options(rng, changed))
    assert_clean(changed)


def test_input_gradient_many_columns_are_copied_in_parts():
    # 4,095 blocks are the most of one DataCopy; a strided gradient row is one block for every pixel
    setup = setup_of(case_of("input_gradient", "fp16", (1, 4, 1, 8400), (4, 4, 1, 2), stride=(1, 2)))
    assert setup.case.geometry.wo > 4095
    assert_exact(setup)
    assert_clean(setup)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compute", TYPES)
def test_input_gradient_of_real_numbers_has_the_bits_of_the_order_of_work(compute, kind):
    rng = np.random.default_rng([TYPES.index(compute), KINDS.index(kind), 77])
    for number in range(12):
        case = replace(random_case(rng, series="910b", most_macs=150_000, kind=kind), compute_dtype=compute)
        case = replace(case, has_bias=number % 4 > 1)
        setup = setup_of(case)
        if number % 2:
            setup = random_split_tiling(rng, setup)
        g, stored = case.geometry, STORED[compute]
        model = SERIAL if number % 3 == 2 and compute != "fp32" else default_accumulation(case.product, compute)
        a_shape = (g.n, g.cout, g.do, g.ho, g.wo) if kind == "input_gradient" else (g.n, g.cin, g.di, g.hi, g.wi)
        a, weight = (
            (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)).astype(stored)
            for shape in (a_shape, g.weight_shape)
        )
        seen = [values.astype(np.float32) for values in (a, weight)]
        if compute == "hf32":
            seen = [hf32_matrix(values.reshape(1, -1), 12).reshape(values.shape) for values in seen]
        judge = gradient_sums if kind == "input_gradient" else forward_sums
        want = judge(g, *seen, 32 // stored.itemsize, model.group, model.inner, bias_of(case))
        got = run(setup, a, weight, replace(random_options(rng, setup), accumulation=model))
        assert same_bits(np.ascontiguousarray(got), want.astype(stored)), (case, setup.plan.tiling, model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compute", ["fp32", "hf32"])
def test_input_gradient_core_leaves_the_hf32_mode_as_it_found_it(compute, kind):
    # the mode is state of the core: a float32 kernel that runs next would round its operands
    setup = setup_of(case_of(kind, compute, (2, 8, 6, 6), (8, 8, 3, 3), pad=1))
    for launch in setup.plan.launches:
        for core in range(launch.core_count):
            rows = emit_rows(launch, core, launch.phase_count - 1)
            switched = [bool(row["value"]) for row in rows if row["op"] == Op.SET_HF32]
            assert switched == ([True, False] if compute == "hf32" else [])


@pytest.mark.parametrize("kind", KINDS)
def test_input_gradient_timeline_runs_and_counts_every_core(kind):
    setup = setup_of(case_of(kind, "fp16", (2, 32, 12, 12), (32, 32, 3, 3), pad=1, stride=2))
    for launch in setup.plan.launches:
        timeline = run_timeline(launch, setup.case.product)
        assert len(timeline.core_cycles) == launch.core_count
        assert timeline.total_cycles > max(timeline.core_cycles) > 0
        assert all(timeline.busy_cycles[pipe] > 0 for pipe in ("M", "MTE1", "MTE2", "FIX"))


def test_input_gradient_twin_tells_orders_apart():
    # if the order of the taps did not show in the bits, the test of real numbers could not tell it from another
    rng = np.random.default_rng(4)
    geometry = case_of("input_gradient", "fp16", (1, 16, 8, 8), (32, 16, 3, 3), pad=1).geometry
    dy, weight = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 32, 1, 8, 8), geometry.weight_shape))
    straight = gradient_sums(geometry, dy, weight, 16, 16, "exact")
    flipped = gradient_sums(geometry, dy[..., ::-1, ::-1], weight[..., ::-1, ::-1], 16, 16, "exact")[..., ::-1, ::-1]
    np.testing.assert_allclose(straight, flipped, rtol=0, atol=2.0**-23 * 32 * 9 * 64)
    assert not np.array_equal(straight, flipped)
    assert not np.array_equal(straight, gradient_sums(geometry, dy, weight, 16, 16, "serial"))

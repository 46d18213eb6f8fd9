"""Input gradients and forward convolutions of dav-c220 whose windows stream through L1 in lines.

`tests.long.input_gradient` runs thousands more of the same cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import emit_rows
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op
from ops.conv3d_backprop_input.tiling_streamed import StreamedTiling
from tests.cases.input_gradient import (
    KINDS,
    STORED,
    default_options,
    random_case,
    random_options,
    random_streamed_tiling,
    run,
    setup_of,
    streamed,
)
from tests.cases.page_range import page_geometry
from tests.differential.test_input_gradient import TYPES, assert_clean, assert_exact, case_of
from tests.oracles import convolution
from tests.oracles.series import SERIES, SPLIT
from tests.oracles.weight_gradient import same_bits

CASES = 30


def parts_of(setup):
    """Which operands come in parts of channel blocks, and what a line is."""
    t = setup.plan.tiling
    assert isinstance(t, StreamedTiling)
    steps = max(t.problem.window // t.base_k, 1)
    cut = {name for name, step in (("windows", t.step_ka), ("weights", t.step_kb)) if step < steps}
    return {"rows" if t.line_taps > 1 else "taps", *cut}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("series", SPLIT)
def test_streamed_windows_of_random_cases_and_tilings_equal_the_oracle_and_are_clean(series, kind):
    rng = np.random.default_rng([SPLIT.index(series), KINDS.index(kind), 160])
    seen = set()
    for number in range(CASES):
        case = random_case(rng, series=series, most_macs=600_000, kind=kind)
        setup = setup_of(replace(case, has_bias=number % 5 == 0))
        for variant in (streamed(setup), random_streamed_tiling(rng, setup)):
            seen |= parts_of(variant)
            assert_exact(variant, random_options(rng, variant))
            if number % 3 == 0:
                assert_clean(variant)
    assert seen == {"rows", "taps", "windows", "weights"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("series", SPLIT)
def test_calls_over_the_range_of_the_page_equal_the_oracle_and_are_clean(series, kind):
    rng = np.random.default_rng([SPLIT.index(series), KINDS.index(kind), 255])
    seen = []
    while len(seen) < CASES:
        geometry = page_geometry(rng, most_macs=20_000_000)
        setup = setup_of(replace(random_case(rng, series=series, kind=kind), geometry=geometry))
        if not isinstance(setup.plan.tiling, StreamedTiling) and rng.random() < 0.8:
            continue
        seen.append(type(setup.plan.tiling))
        assert_exact(setup, random_options(rng, setup))
        if len(seen) % 5 == 0:
            assert_clean(setup)
    assert StreamedTiling in seen


@pytest.mark.parametrize("compute", ["fp16", "fp32"])
@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "attributes"),
    [
        pytest.param((1, 1, 40_000), (8, 1, 10), {"stride": 5}, id="first layer of a speech model"),
        pytest.param((1, 16, 3, 9_000), (17, 16, 3, 3), {"pad": 1}, id="wide map"),
        pytest.param((1, 4, 2, 3, 9_000), (3, 4, 2, 1, 3), {"pad": (1, 0, 0, 0, 1, 2)}, id="wide volume"),
        pytest.param((1, 1, 260, 6), (2, 1, 255, 3), {"pad": (4, 0, 0, 1)}, id="tall kernel"),
        pytest.param((1, 1, 6, 258), (2, 1, 5, 255), {}, id="more taps than L1 has room for"),
        pytest.param(
            (1, 3, 2, 33_000), (2, 3, 1, 2), {"dilation": (1, 255), "pad": (0, 0, 255, 255)}, id="pads and dilations"
        ),
        pytest.param((1, 1, 1, 70_000), (1, 1, 1, 2), {"dilation": (1, 60_000)}, id="dilation beyond a load"),
        pytest.param((1, 3, 100_001), (5, 3, 2), {"stride": 100_000}, id="stride beyond a copy's gap"),
        pytest.param((1, 3, 70, 80), (5, 3, 2, 2), {"stride": (64, 70)}, id="stride beyond a load"),
        pytest.param((1, 2, 300, 4), (2, 2, 1, 1), {"pad": (300, 0, 260, 0), "stride": 3}, id="pads beyond a load"),
        pytest.param(
            (1, 3, 2, 4, 5),
            (2, 3, 1, 3, 3),
            {"stride": (10**9, 1, 1), "pad": (10**9, 10**9, 1, 1, 1, 1)},
            id="a plane among planes of padding",
        ),
        pytest.param((1, 20, 9_000), (20, 1, 7), {"groups": 20, "pad": (3, 3), "stride": 2}, id="depthwise line"),
        pytest.param((1, 3, 1, 1100), (2, 3, 1, 1021), {"stride": (1, 7)}, id="kernel of a prime number of taps"),
    ],
)
def test_shapes_beyond_whole_rows_equal_the_oracle_and_are_clean(x_shape, weight_shape, attributes, compute):
    rng = np.random.default_rng([8, *x_shape, *weight_shape])
    for kind in KINDS:
        setup = setup_of(case_of(kind, compute, x_shape, weight_shape, **attributes))
        for variant in (setup, random_streamed_tiling(rng, setup)):
            assert_exact(variant, random_options(rng, variant))
        assert_clean(setup)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compute", TYPES)
def test_streamed_windows_leave_the_bits_of_whole_rows(compute, kind):
    rng = np.random.default_rng([TYPES.index(compute), KINDS.index(kind), 5])
    for _ in range(12):
        case = replace(random_case(rng, series="910b", most_macs=300_000, kind=kind), compute_dtype=compute)
        setup = setup_of(case)
        g = case.geometry
        a_shape = (g.n, g.cout, g.do, g.ho, g.wo) if kind == "input_gradient" else (g.n, g.cin, g.di, g.hi, g.wi)
        a, weight = (
            (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)).astype(STORED[compute])
            for shape in (a_shape, g.weight_shape)
        )
        want = run(setup, a, weight, default_options(setup))
        for variant in (streamed(setup), random_streamed_tiling(rng, setup)):
            got = run(variant, a, weight, random_options(rng, variant))
            assert same_bits(np.ascontiguousarray(got), np.ascontiguousarray(want)), (case, variant.plan.tiling)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compute", ["fp16", "fp32"])
@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "attributes"),
    [
        ((1, 16, 1, 4096), (32, 16, 1, 10), {"stride": (1, 5)}),
        ((1, 64, 1, 4096), (64, 64, 1, 3), {"pad": (0, 0, 1, 1)}),
        ((1, 32, 64, 512), (32, 32, 3, 3), {"pad": 1}),
        # blocks that leave a third of the cores idle in the last round, and those whose steps are short
        ((1, 128, 32, 256), (128, 128, 3, 3), {"pad": 1}),
        ((1, 16, 32, 1024), (16, 16, 5, 5), {"pad": 2}),
    ],
)
def test_rows_that_fit_take_no_longer_in_lines(x_shape, weight_shape, attributes, compute, kind):
    setup = setup_of(case_of(kind, compute, x_shape, weight_shape, **attributes))
    assert not isinstance(setup.plan.tiling, StreamedTiling)
    whole, lines = (
        sum(run_timeline(launch, each.case.product).total_cycles for launch in each.plan.launches)
        for each in (setup, streamed(setup))
    )
    assert lines <= 1.05 * whole


def test_a_long_row_is_shared_by_all_cores_and_copied_once():
    setup = setup_of(case_of("input_gradient", "fp16", (1, 16, 160_000), (16, 16, 10), stride=5))
    product, launch = setup.case.product, setup.plan.launches[0]
    assert launch.core_count == product.cube_core_count
    copied = 0
    for core in range(launch.core_count):
        rows = emit_rows(launch, core, 0)
        own = rows[(rows["op"] == Op.DATA_COPY) & (rows["tensor"] == setup.a.index)]
        copied += int((own["block_count"].astype(np.int64) * own["block_len"]).sum())
    # windows of neighbouring blocks share a few columns
    assert setup.case.geometry.wo <= copied <= 1.05 * setup.case.geometry.wo


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("series", SERIES)
def test_call_of_a_speech_models_first_layer_is_computed_on_every_product(series, transposed):
    rng = np.random.default_rng(3)
    long, short = (1, 1, 160_000), (1, 8, 31_999)
    weight = rng.integers(-2, 3, (8, 1, 10)).astype(np.float16)
    x_shape, y_shape = (short, long) if transposed else (long, short)
    g, x = rng.integers(-2, 3, y_shape).astype(np.float16), np.zeros(x_shape, np.float16)
    result = ops.convolution_backward(
        g, x, weight, stride=5, padding=0, dilation=1, transposed=transposed, output_mask=(True, False, False),
        product=series,
    )  # fmt: skip
    judge = convolution.forward if transposed else convolution.input_gradient
    want = judge(g.astype(np.float64), weight.astype(np.float64), x_shape, 5, 0)
    np.testing.assert_array_equal(result.grad_input, want)

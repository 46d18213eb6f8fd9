"""Input gradients and forward convolutions of unified cores: exact on integers, bit for bit on real numbers.

The judges are the definition of the convolution (`tests.oracles.convolution`) where every sum is exact, and
`tests.oracles.window_kernels`, which rounds in the published order of K, where it is not.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Data
from npu_sim.layouts.transform import activation_from_blocked, blocked_from_activation, fractal_from_weight
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.common.cube_operands import input_layout, output_layout, weight_layout
from ops.conv3d_backprop_input import tiling_unified as unified
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.conv3d_backprop_input.tiling_unified import Source
from tests.oracles import convolution
from tests.oracles.window_cases import SERIES, integers, made, planned, random_geometry, random_tiling, run
from tests.oracles.window_kernels import forward_bits, gradient_bits

CASES = 40


def exact(plan, source, weight):
    judge = convolution.forward if plan.forward else convolution.input_gradient
    return judge(source, weight, plan.shapes[1], *plan.attributes)


def assert_exact(plan, rng, options=None):
    source, weight = integers(rng, plan)
    got, lanes = run(plan, source, weight, options)
    np.testing.assert_array_equal(got, exact(plan, source, weight), err_msg=f"{plan.geometry} {plan.tiling}")
    assert not lanes.any()


def assert_clean(plan):
    assert run_hazards(plan.launches, plan.product) == [], (plan.geometry, plan.tiling)
    for launch in plan.launches:
        for core in {0, launch.core_count - 1}:
            assert verify(emit_rows(launch, core), plan.product) == [], (plan.geometry, plan.tiling)


def options_of(rng, plan):
    """Any order, chunk and number of threads: nothing of them may show."""
    return ExecuteOptions(
        accumulation=default_accumulation(plan.product, "fp16"),
        poison=True,
        threads=int(rng.integers(1, 3)),
        chunk_rows=int(rng.choice((1, 300, 4096))),
        order=("program", "late", int(rng.integers(1000)))[int(rng.integers(3))],
    )


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_random_convolutions_and_tilings_equal_the_definition(series, forward):
    rng = np.random.default_rng([SERIES.index(series), forward, 4])
    seen = set()
    for geometry in [random_geometry(rng) for _ in range(CASES)]:
        plan = planned(geometry, series, forward=forward)
        for variant in (plan, random_tiling(rng, plan)):
            t = variant.tiling
            seen.add((t.source.name, "row" if t.by_row else "two" if t.two_column else "whole"))
            assert_clean(variant)
            assert_exact(variant, rng, options_of(rng, variant))
    # A generator that stopped drawing a way of the windows would let this pass with less in it.
    ways = {("MAP", "whole"), ("MAP", "row"), ("MAP", "two"), ("GATHERED", "whole")}
    if not forward:
        ways |= {("DILATED", "whole"), ("DILATED", "row"), ("DILATED", "two"), ("PIXELS", "whole")}
    assert seen == ways


def real(rng, plan, style):
    """Source and weight of one kind of trouble: exponents far apart, underflow, overflow, Inf and NaN, cancellation."""
    tensors = []
    for number, shape in enumerate((plan.shapes[0], plan.weight_shape)):
        values = rng.standard_normal(shape)
        if style == "wide":
            values *= 2.0 ** rng.integers(-12, 10, shape)
        elif style == "tiny":
            values *= 1e-4
        elif style == "huge":
            values *= 2e3
        elif style == "special":
            kind = rng.random(shape)
            for low, value in ((0.01, np.inf), (0.02, -np.inf), (0.03, np.nan), (0.06, -0.0), (0.09, 6e4)):
                values = np.where((kind >= low - 0.01) & (kind < low), value, values)
        elif style == "cancelling" and number == 1:
            values = np.sign(values) * (1 + 2.0**-9 * rng.integers(0, 2, shape)) * 2.0 ** rng.integers(0, 11, shape)
        tensors.append(values.astype(np.float16))
    return tensors


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_of_real_numbers_has_the_bits_of_the_published_order(series, forward):
    rng = np.random.default_rng([SERIES.index(series), forward, 2])
    judge = forward_bits if forward else gradient_bits
    differs = saturates = 0
    for style in ("normal", "wide", "tiny", "huge", "special", "cancelling") * 4:
        plan = planned(random_geometry(rng), series, forward=forward)
        source, weight = real(rng, plan, style)
        for variant in (plan, random_tiling(rng, plan)):
            want = judge(source, weight, plan.shapes[1], *plan.attributes)
            got, _ = run(variant, source, weight, options_of(rng, variant))
            same = got.view(np.uint16) == np.ascontiguousarray(want).view(np.uint16)
            assert same.all(), (style, variant.geometry, variant.tiling)
        with np.errstate(over="ignore", invalid="ignore"):
            ideal = exact(plan, source, weight)
            differs += not np.array_equal(want, ideal.astype(np.float16))
        saturates += bool((np.abs(want) == 65504).any())
    # Were the order of the sums of no consequence, or nothing too large, this would prove less than it says.
    assert differs
    assert saturates


SPECIAL = {
    # 65,535 blocks of 32 bytes are the largest gap of a DataCopy; these planes are farther apart, on both sides
    "planes far apart": made((300, 270), (1, 2), cin=17, cout=17, pad=(0, 0, 1, 0)),
    "planes far apart, dilated": made((600, 270), (2, 1), cin=17, cout=17, stride=(2, 1)),
    "planes far apart, 1x1": made((600, 270), (1, 1), cin=17, cout=17, stride=(2, 1)),
    "one column, planes far apart": made((66_000, 1), (2, 1), cin=17, cout=17),
    "rows of weights far apart": made((1, 2), (1, 1), cin=17, cout=65_600),
    "rows of weights far apart, window": made((2, 1), (2, 1), cin=17, cout=65_600),
    "a row beside UB": made((3, 5000), (2, 3), cin=3, cout=3, stride=(1, 2)),
    "a row longer than a load": made((2, 33_000), (1, 2), cin=3, cout=3, pad=(0, 0, 1, 2)),
    "a row longer than a load, cropped": made((2, 33_000), (1, 1), cin=3, cout=3, pad=(0, 0, 1, 0)),
    "a row longer than a load, dilated": made((2, 33_000), (1, 2), cin=3, cout=3, stride=(1, 2)),
    "rows longer than a copy's gap, cut": made((2, 67_000), (2, 2), cin=3, cout=3),
    "stride beyond a copy's gap": made((1, 70_000), (1, 2), cin=3, cout=3, stride=(1, 66_000)),
    "many rows of one column cropped": made((5000, 3), (2, 1), cin=3, cout=3, pad=(0, 0, 1, 1)),
    "all padding": made((1, 1), (1, 1), cin=3, cout=3, pad=(20, 20, 20, 20), stride=(1, 1)),
    "padding alone is read": made((1, 1), (1, 1), cin=3, cout=3, pad=(2, 2, 2, 2), stride=(5, 5)),
}


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("name", SPECIAL)
def test_window_kernel_at_the_limits_of_the_instructions_equals_the_definition(name, series, forward):
    plan = planned(SPECIAL[name], series, forward=forward)
    assert_exact(plan, np.random.default_rng(4))
    for launch in plan.launches:
        for core in {0, launch.core_count - 1}:
            assert verify(emit_rows(launch, core), plan.product) == []


@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_pixels_no_window_covers_are_written_as_zero(series):
    # The bottom two rows and right column belong to no window, and so does every pixel between 1x1 windows.
    for geometry in (
        made((9, 8), (2, 2), cin=16, cout=16, stride=(5, 3)),
        made((8, 9), (1, 1), cin=16, cout=16, stride=(3, 4)),
        made((8, 9), (1, 1), cin=16, cout=16, stride=(3, 4), pad=(1, 0, 2, 0)),
    ):
        plan = planned(geometry, series, forward=False)
        source, weight = (np.ones(shape, np.float16) for shape in (plan.shapes[0], plan.weight_shape))
        got, _ = run(plan, source, weight)
        want = exact(plan, source, weight)
        assert (want == 0).any()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_timeline_adds_up_and_holds_the_cube_to_its_rate(series):
    geometry = made((28, 28), (3, 3), n=2, cin=64, cout=64, pad=(1, 1, 1, 1))
    strided = made((28, 28), (3, 3), n=2, cin=64, cout=64, pad=(1, 1, 1, 1), stride=(2, 2))
    cycles = {}
    for name, shape, forward in (
        ("dx", geometry, False),
        ("forward", geometry, True),
        ("dx, dilated", strided, False),
    ):
        plan = planned(shape, series, forward=forward)
        result = run_timeline(plan.launches[0], plan.product)
        assert sum(result.critical_parts.values()) == result.total_cycles
        # every pixel of the result takes all taps and channels, the inserted zeros too
        multiplied = 2 * 28 * 28 * 9 * 64 * 64
        assert result.busy_cycles_all_cores["M"] >= multiplied / plan.product.macs_per_cycle("fp16")
        cycles[name] = result.total_cycles
        assert plan.gm._arena is None
    # zeros cost the Cube what data costs, and the vector unit must insert them
    assert cycles["dx, dilated"] > cycles["dx"]


@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_gathering_by_copies_costs_more_than_image_to_column(series):
    geometry = made((12, 12), (3, 3), cin=32, cout=32, pad=(1, 1, 1, 1))
    plan = planned(geometry, series, forward=False)
    loaded, gathered = (
        plan.with_tiling(unified._fit(plan.problem, plan.product, source, by_row=False, two_column=False))
        for source in (Source.MAP, Source.GATHERED)
    )
    # on as many cores, in the same blocks: the way of the windows alone differs
    names = ("base_m", "base_n", "base_k", "block_dim")
    assert len({tuple(getattr(each.tiling, name) for name in names) for each in (loaded, gathered)}) == 1
    times = [run_timeline(each.launches[0], each.product).total_cycles for each in (loaded, gathered)]
    assert times[1] > 2 * times[0]
    assert_exact(gathered, np.random.default_rng(0))


def through_plan(series, geometry, source, weight, *, forward):
    """Run what the package's own plan says, with the library's layouts; return the result (n, c, d, h, w)."""
    product, gm = get_product(series), GlobalMemory()
    layouts = [layout(geometry, "fp16") for layout in (output_layout, weight_layout, input_layout)]
    if forward:
        layouts.reverse()
    src_layout, w_layout, dst_layout = layouts
    src = gm.add("source", src_layout.storage_bytes(2), initialised=True, data=Data.FP16)
    w = gm.add("weight", w_layout.storage_bytes(2), initialised=True, data=Data.FP16)
    dst = gm.add("result", dst_layout.storage_bytes(2), initialised=False, data=Data.FP16)
    plan = (forward_launches if forward else input_gradient_launches)(geometry, product, "fp16", gm, src, w, dst)
    assert plan.private_bytes == 0
    assert plan.tiling.origin == "not CANN's tiling (our schedule for unified cores)"
    blocked_from_activation(source, src_layout, gm.view(src, np.uint16, (src_layout.storage_elems,)))
    fractal_from_weight(weight, w_layout, gm.view(w, np.uint16, (w_layout.storage_elems,)))
    storage = gm.view(dst, np.uint16, (dst_layout.storage_elems,))
    storage.fill(0x7F77)
    for launch in plan.launches:
        execute(launch, product, ExecuteOptions(accumulation=default_accumulation(product, "fp16"), threads=2))
    return activation_from_blocked(storage, dst_layout).view(np.float16)


@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_planned_by_the_package_is_the_adjoint_of_its_forward(series):
    rng = np.random.default_rng([SERIES.index(series), 6])
    for _ in range(12):
        g = random_geometry(rng)
        x, dy, weight = (
            rng.integers(-2, 3, shape).astype(np.float16)
            for shape in ((g.n, g.cin, 1, g.hi, g.wi), (g.n, g.cout, 1, g.ho, g.wo), g.weight_shape)
        )
        weight = np.sign(weight)
        y = through_plan(series, g, x, weight, forward=True)
        dx = through_plan(series, g, dy, weight, forward=False)
        assert int((y.astype(np.int64) * dy.astype(np.int64)).sum()) == int(
            (dx.astype(np.int64) * x.astype(np.int64)).sum()
        )
        attributes = g.stride[1:], g.pad[2:], g.dilation[1:], g.groups
        np.testing.assert_array_equal(
            dx[:, :, 0], convolution.input_gradient(dy[:, :, 0], weight[:, :, 0], x[:, :, 0].shape, *attributes)
        )

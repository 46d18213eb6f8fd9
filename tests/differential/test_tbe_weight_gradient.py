"""The DSL's weight gradient on the machine against the exact integer definition: ``==``, on both products."""

from __future__ import annotations

import re
import runpy
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op, Space
from npu_sim.program.verify import verify
from ops import tbe
from ops.common.definition import weight_gradient
from tests.oracles import tbe_weight_gradient as oracle
from tests.oracles.series import DSL
from tests.oracles.weight_gradient import gradient as rounded_gradient

CASES_PER_SERIES = 45
KINDS = ("any", "any", "groups", "groups", "one_pixel", "one_column", "depth")


@dataclass(frozen=True)
class Case:
    """One convolution; extents (d, h, w)."""

    n: int
    cin: int
    cout: int
    groups: int
    size: tuple
    kernel: tuple
    strides: tuple
    pads: tuple
    dilations: tuple

    @property
    def out(self):
        return tuple(
            (self.size[a] + self.pads[2 * a] + self.pads[2 * a + 1] - (self.kernel[a] - 1) * self.dilations[a] - 1)
            // self.strides[a]
            + 1
            for a in range(3)
        )

    @property
    def group(self):
        return oracle.groups_of(self.cin, self.cout, self.groups)

    def call(self, x, dy, *, layout="NDCHW", group=None):
        (kd, *plane), (depth, *dilation) = self.kernel, self.dilations
        per_group = self.cin // self.groups
        order = (kd, per_group) if layout == "NDCHW" else (per_group, kd)
        para = {
            "strides": list(self.strides), "pads": list(self.pads),
            "dilations": [1, depth, 1, *dilation] if layout == "NDCHW" else [1, 1, depth, *dilation],
            "res_dtype": "float32", "kernel_name": "case", "group_dict": group or self.group,
        }  # fmt: skip
        return tbe.conv3d_backprop_filter(x, dy, [self.cout, *order, *plane], para, filter_layout=layout)

    def tensors(self, rng):
        shapes = (self.n, self.cin, *self.size), (self.n, self.cout, *self.out)
        return [rng.integers(-4, 5, shape).astype(np.float16) for shape in shapes]

    def expected(self, x, dy, group=None):
        return oracle.result(x, dy, self.kernel, self.strides, self.pads, self.dilations, group or self.group)


def pick(rng, *values):
    return int(values[int(rng.integers(len(values)))])


def channels(rng, kind):
    """Channels and groups; the named shapes give 2 and 3 merged groups, also with a last one that is partly filled."""
    if kind != "groups":
        return pick(rng, 1, 5, 16, 17, 33, 50), pick(rng, 1, 7, 16, 20, 33, 48), 1
    return [(48, 24, 6), (48, 48, 3), (17, 34, 17), (20, 56, 4), (64, 64, 2), (6, 6, 6), (33, 66, 33), (24, 72, 3)][
        int(rng.integers(8))
    ]


def random_case(rng):
    kind = KINDS[int(rng.integers(len(KINDS)))]
    while True:
        size = [pick(rng, 1, 2, 3, 5, 7, 9, 12) for _ in range(3)]
        kernel = [pick(rng, 1, 1, 2, 3) for _ in range(3)]
        strides = [pick(rng, 1, 1, 2, 3) for _ in range(3)]
        dilations = [pick(rng, 1, 1, 2, 3) for _ in range(3)]
        if kind == "depth":
            size[0], kernel[0] = pick(rng, 4, 6, 9), pick(rng, 2, 3)
        if kind == "one_pixel":
            size[1:], kernel[1:], strides[1:] = [1, 1], [1, 1], [1, 1]
        if kind == "one_column":
            size[1:] = pick(rng, 3, 8), pick(rng, 3, 5)
            kernel[1:], dilations[1:], strides[2] = [pick(rng, 1, 2), size[2]], [1, 1], pick(rng, 1, 4)
        # a pad must be less than the dilated kernel
        pads = [int(rng.integers(0, min((kernel[a // 2] - 1) * dilations[a // 2] + 1, 4))) for a in range(6)]
        if kind == "one_pixel":
            pads[2:] = [0] * 4
        if kind == "one_column":
            pads[4:] = [0, 0]
        cin, cout, groups = channels(rng, kind)
        case = Case(
            pick(rng, 1, 1, 2, 5), cin, cout, groups, tuple(size), tuple(kernel), tuple(strides), tuple(pads),
            tuple(dilations),
        )  # fmt: skip
        if min(case.out) >= 1 and case.n * np.prod(case.out) * case.cout * cin * np.prod(kernel) < 6e6:
            return case


def random_options(rng, product):
    order = ("program", "late", int(rng.integers(1000)))[int(rng.integers(3))]
    model = default_accumulation(product, "fp16")
    return ExecuteOptions(accumulation=model, threads=pick(rng, 1, 2), order=order, poison=True, chunk_rows=700)


def placeholders(x, dy):
    return tbe.placeholder(x.shape, name="x", dtype="float16"), tbe.placeholder(dy.shape, name="dy", dtype="float16")


@pytest.mark.parametrize("series", DSL)
def test_dsl_random_calls_equal_the_definition_in_every_legal_order(series):
    rng = np.random.default_rng([DSL.index(series), 6])
    for _ in range(CASES_PER_SERIES):
        case = random_case(rng)
        x, dy = case.tensors(rng)
        fmap, grads = oracle.to_blocks(x), oracle.to_blocks(dy)
        layout = ("NDCHW", "NCDHW")[int(rng.integers(2))]
        with npu_sim.use_product(series):
            tensor = case.call(*placeholders(fmap, grads), layout=layout)
        want = case.expected(fmap, grads)
        np.testing.assert_array_equal(tensor.run({"x": fmap, "dy": grads}), want)
        got = tensor.plan.execute(fmap, grads, random_options(rng, tensor.product))
        np.testing.assert_array_equal(got, want)
        # what it means for the framework, by an oracle that knows neither blocks nor merged groups
        gradient = tbe.gradient_from_result(got, case.group, case.groups, case.kernel)
        weight_shape = (case.cout, case.cin // case.groups, *case.kernel)
        exact = weight_gradient(x, dy, weight_shape, case.strides, case.pads, case.dilations, case.groups)
        np.testing.assert_array_equal(gradient, exact)


BEYOND_THE_LOAD = {
    # kernel, pads and dilations that load3d does not have; rows under a dilated kernel that L1 does not hold
    "kernel": Case(1, 20, 33, 1, (2, 300, 9), (2, 256, 3), (1, 2, 1), (0, 1, 1, 0, 0, 0), (1, 1, 1)),
    "pads": Case(1, 17, 20, 1, (2, 5, 7), (1, 3, 3), (1, 2, 1), (0, 0, 1, 0, 256, 256), (1, 1, 131)),
    "rows": Case(1, 5, 7, 1, (1, 17, 2048), (1, 3, 3), (1, 2, 1), (0, 0, 0, 0, 0, 0), (1, 8, 1)),
}


@pytest.mark.parametrize("series", DSL)
@pytest.mark.parametrize("what", BEYOND_THE_LOAD)
def test_dsl_shapes_beyond_load3d_and_l1_equal_the_definition_without_hazards(series, what):
    case, rng = BEYOND_THE_LOAD[what], np.random.default_rng(3)
    fmap, grads = (oracle.to_blocks(tensor) for tensor in case.tensors(rng))
    with npu_sim.use_product(series) as product:
        tensor = case.call(*placeholders(fmap, grads))
    assert tensor.plan.case == ("load3d" if what == "rows" else "tap by tap")
    np.testing.assert_array_equal(tensor.run({"x": fmap, "dy": grads}), case.expected(fmap, grads))
    assert run_hazards(tensor.plan.launches, product) == []
    assert (" parts of the columns" in str(tensor.plan)) == (what == "rows")


def test_dsl_random_cases_reach_every_corner():
    seen = set()
    for index in range(len(DSL)):
        rng = np.random.default_rng([index, 6])
        for _ in range(CASES_PER_SERIES):
            case = random_case(rng)
            case.tensors(rng), rng.integers(2), random_options(rng, npu_sim.get_product(DSL[index]))
            group = case.group
            seen |= {f"real_g {group['real_g']}"}
            seen |= {"merged"} if group["mag_factor"] > 1 else set()
            seen |= {"partial last group"} if case.groups % group["mag_factor"] else set()
            seen |= {"ragged cin"} if case.cin % 16 else set()
            seen |= {"ragged cout"} if case.cout % 16 else set()
            seen |= {f"dilated {axis}" for axis in range(3) if case.dilations[axis] > 1 < case.kernel[axis]}
            seen |= {f"padded {axis}" for axis in range(3) if max(case.pads[2 * axis : 2 * axis + 2])}
            pixels = (*case.size[1:], *case.kernel[1:], *case.strides[1:])
            seen |= {"one pixel"} if pixels == (1,) * 6 else set()
            seen |= {"one column"} if case.out[2] == 1 < case.out[1] else set()
            seen |= {"strided depth"} if case.strides[0] > 1 < case.out[0] else set()
    assert seen == {
        "real_g 1", "real_g 2", "real_g 3", "merged", "partial last group", "ragged cin", "ragged cout", "dilated 0",
        "dilated 1", "dilated 2", "padded 0", "padded 1", "padded 2", "one pixel", "one column", "strided depth",
    }  # fmt: skip


@pytest.mark.parametrize("series", DSL)
def test_dsl_random_plans_are_legal_and_free_of_hazards(series):
    rng = np.random.default_rng([DSL.index(series), 7])
    cases = set()
    for _ in range(30):
        case = random_case(rng)
        shapes = (
            (case.n, case.size[0], -(-case.cin // 16), *case.size[1:], 16),
            (case.n, case.out[0], -(-case.cout // 16), *case.out[1:], 16),
        )
        with npu_sim.use_product(series):
            tensor = case.call(*(tbe.placeholder(shape, "float16", str(i)) for i, shape in enumerate(shapes)))
        cases.add(tensor.plan.case)
        assert run_hazards(tensor.launches, tensor.product) == []
        for launch in tensor.launches:
            for core in {0, launch.core_count - 1}:
                rows = emit_rows(launch, core, 0)
                assert verify(rows, tensor.product) == []
                loads = rows[rows["dst_space"] == Space.L0B]["op"]
                if tensor.plan.case == "load2d":
                    assert not np.isin((Op.LOAD_3D, Op.LOAD_3D_V1, Op.FILL), loads).any()
            timed = run_timeline(launch, tensor.product)
            assert sum(timed.critical_parts.values()) == timed.total_cycles > 0
    one_column = "two-column" if npu_sim.get_product(series).core.load3d_cannot_make_width_one else "load3d"
    assert cases == {"load2d", one_column, "load3d"}


@pytest.mark.parametrize("series", DSL)
@pytest.mark.parametrize(
    "group",
    [
        {"real_g": 1, "cin1_g": 3, "cout_g": 48},  # more blocks than there are
        {"real_g": 3, "cin1_g": 1, "cout_g": 32},  # a last group behind the tensors' end
        {"real_g": 1, "cin1_g": 1, "cout_g": 16},  # fewer blocks than there are
        {"real_g": 2, "cin1_g": 1, "cout_g": 16},
    ],
)
@pytest.mark.parametrize("pixel", [False, True])
def test_dsl_group_dict_that_does_not_fit_the_channels_reads_zeros_for_missing_blocks(series, group, pixel):
    plane = (1, 1) if pixel else (4, 5)
    case = Case(2, 20, 33, 1, (3, *plane), (2, 1, 1), (1, 1, 1), (1, 0, 0, 0, 0, 0), (1, 1, 1))
    group = {**case.group, **group}
    x, dy = (oracle.to_blocks(tensor) for tensor in case.tensors(np.random.default_rng(3)))
    with npu_sim.use_product(series):
        got = case.call(x, dy, group=group)
    np.testing.assert_array_equal(got, case.expected(x, dy, group))


@pytest.mark.parametrize("series", DSL)
def test_dsl_does_not_depend_on_strides_byte_order_or_threads_and_leaves_inputs_alone(series):
    rng = np.random.default_rng(11)
    case = Case(2, 20, 33, 1, (3, 6, 5), (2, 3, 2), (1, 2, 1), (0, 1, 1, 0, 0, 1), (1, 1, 1))
    x, dy = (oracle.to_blocks(tensor) for tensor in case.tensors(rng))
    x, dy = x + np.float16(0.3), dy * np.float16(0.7)  # not integers: the order of the additions shows
    kept = x.copy(), dy.copy()
    with npu_sim.use_product(series):
        want = case.call(x, dy)
        strided = np.repeat(x, 2, axis=3)[:, :, :, ::2], np.asfortranarray(dy)
        swapped = x.astype(">f2"), dy.astype(">f2")
        tensor = case.call(*placeholders(x, dy))
        results = [case.call(*strided), case.call(*swapped)]
        results += [tensor.run({"x": x, "dy": dy}, threads=threads) for threads in (1, 2, 3)]
        serial = tensor.run({"x": x, "dy": dy}, accumulation="serial")
    for got in results:
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    assert (serial != want).any()
    np.testing.assert_allclose(serial, want, rtol=0, atol=want.max() * 2.0**-23 * 2 * case.n * np.prod(case.out))
    assert (x == kept[0]).all()
    assert (dy == kept[1]).all()


@pytest.mark.parametrize("series", DSL)
def test_dsl_depth_taps_that_read_only_padding_leave_zeros(series):
    # depth 1: only the middle tap of three ever meets a plane
    case = Case(2, 16, 16, 1, (1, 3, 4), (3, 2, 2), (1, 1, 1), (1, 1, 0, 0, 0, 0), (1, 1, 1))
    x, dy = (oracle.to_blocks(tensor) for tensor in case.tensors(np.random.default_rng(8)))
    with npu_sim.use_product(series):
        tensor = case.call(*placeholders(x, dy))
    tensor.run({"x": x + np.float16(1), "dy": dy + np.float16(1)})  # leaves its result in the same global memory
    got = tensor.run({"x": x, "dy": dy}).reshape(3, 4, 16, 16)
    np.testing.assert_array_equal(got.reshape(1, 12, 16, 16), case.expected(x, dy))
    assert not got[[0, 2]].any()
    assert got[1].any()


@pytest.mark.parametrize("series", DSL)
def test_dsl_window_too_large_for_the_columns_of_load3d_v2_equals_the_definition(series):
    # 65,535 is the last column that v2 can start at, 65 * 65 * 16 the first that it cannot
    case = Case(1, 17, 16, 1, (1, 66, 67), (1, 65, 65), (1, 1, 2), (0, 0, 1, 0, 0, 1), (1, 1, 1))
    x, dy = (oracle.to_blocks(tensor) for tensor in case.tensors(np.random.default_rng(5)))
    with npu_sim.use_product(series):
        tensor = case.call(*placeholders(x, dy))
    np.testing.assert_array_equal(tensor.run({"x": x, "dy": dy}), case.expected(x, dy))
    assert tensor.plan.tiling.load3d_v1 == (series == "310p")
    assert run_hazards(tensor.launches, tensor.product) == []
    assert all(run_timeline(launch, tensor.product).total_cycles > 0 for launch in tensor.launches)


@pytest.mark.parametrize("series", DSL)
@pytest.mark.parametrize("model", [None, "serial"])
def test_dsl_rounds_real_numbers_as_its_tiling_says(series, model):
    rng = np.random.default_rng(9)
    for case in (
        Case(2, 32, 48, 1, (4, 5, 6), (2, 3, 2), (2, 1, 1), (1, 0, 1, 1, 0, 1), (1, 1, 2)),
        Case(3, 16, 16, 1, (3, 7, 4), (2, 2, 4), (1, 2, 1), (0, 1, 1, 0, 0, 0), (2, 1, 1)),
        Case(9, 32, 32, 1, (5, 1, 1), (2, 1, 1), (1, 1, 1), (1, 1, 0, 0, 0, 0), (1, 1, 1)),
    ):
        shapes = (case.n, case.cin, *case.size), (case.n, case.cout, *case.out)
        x, dy = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
        fmap, grads = oracle.to_blocks(x), oracle.to_blocks(dy)
        with npu_sim.use_product(series):
            tensor = case.call(*placeholders(fmap, grads))
        got = tensor.run({"x": fmap, "dy": grads}, accumulation=model)
        accumulation = npu_sim.Accumulation.parse(model, default_accumulation(tensor.product, "fp16"))
        operands = x.astype(np.float32), dy.astype(np.float32)
        want = rounded_gradient(tensor.plan.tiling, tensor.plan.geometry, *operands, accumulation)
        gradient = tbe.gradient_from_result(got, case.group, 1, case.kernel)
        np.testing.assert_array_equal(gradient.view(np.uint32), want.view(np.uint32))


EXAMPLE = Path(__file__).parents[2] / "examples/tbe_conv3d_backprop_filter.py"


def test_page_example_at_full_size_is_right_and_takes_less_than_two_seconds():
    page = runpy.run_path(str(EXAMPLE))
    dedw, group = page["dedw"], page["group_dict"]
    assert (dedw.shape, dedw.dtype, dedw.product.name) == ((1, 18, 16, 16), "float32", "Ascend910A")
    rng = np.random.default_rng(2)
    feed = {p.name: rng.integers(-4, 5, p.shape).astype(np.float16) for p in (page["fmap"], page["dedy"])}
    first = dedw.run(feed)
    start = time.perf_counter()
    again = dedw.run(feed)
    seconds = time.perf_counter() - start
    want = oracle.result(feed["fmap"], feed["dedy"], (2, 3, 3), (2, 2, 2), (0, 0, 0, 1, 0, 1), (1, 1, 1), group)
    np.testing.assert_array_equal(first, want)
    np.testing.assert_array_equal(again, want)
    # about 0.03 s on two cores; beyond 2 s it does not go through the compiled engine
    assert seconds < 2


def test_page_example_as_a_script_finds_no_hazards_and_the_direct_sum(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    text = capsys.readouterr().out
    computed, direct = re.search(r"^dW\[3, 5, 1, 2, 0\] = (\S+), summed directly (\S+)$", text, re.MULTILINE).groups()
    # 80,640 products of standard normal numbers: far closer than their sum's standard deviation of 284
    assert abs(float(computed) - float(direct)) < 0.01
    assert "hazards: 0\nMemSet: " in text
    assert re.search(r"^Conv3DBackpropFilter: \d+ cycles, \S+ us on Ascend910A$", text, re.MULTILINE)

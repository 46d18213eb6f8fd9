"""Tilings that a search may choose: every point of a space runs, in order, to the values of the definition."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import OperatorError
from npu_sim.products import get_product
from ops.common.tensor_desc import described
from ops.conv3d_backprop_filter.params import split_params
from ops.conv3d_backprop_filter.plan import split_launches
from ops.conv3d_backprop_filter.tiling_space import WeightGradientTilingSpace
from ops.conv_backward.api import plan_convolution_backward, run_convolution_backward
from ops.conv_backward.plan import geometry_of
from ops.matmul.tiling import MatmulShape
from ops.matmul.tiling_space import MatmulTilingSpace
from tests.cases.weight_gradient import expected, operands, plan_of, random_case, run_plan
from tests.differential.test_matmul import multiply, planned


def drawn(space, rng, count):
    """Return tilings at points drawn from the space."""
    found = []
    for _ in range(4000):
        point = {name: int(rng.choice(values)) for name, values in space.axes.items()}
        if (tiling := space.tiling(point)) is not None:
            found.append(tiling)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("series", ["910b", "910_93"])
def test_every_tiling_of_a_weight_gradient_gives_the_definition(series):
    rng = np.random.default_rng([len(series), 77])
    ran = 0
    while ran < 40:
        case = random_case(rng, series=series, most_macs=400_000)
        try:
            plan = plan_of(case)
        except OperatorError:
            continue
        space = WeightGradientTilingSpace(
            geometry=plan.geometry, product=plan.product, compute_dtype=plan.compute_dtype
        )  # fmt: skip
        x, dy = operands(case)
        for tiling in drawn(space, rng, 4):
            params = split_params(tiling, plan.product, plan.x, plan.dy, plan.dw, plan.compute_dtype)
            own = replace(
                plan, tiling=tiling, launches=split_launches(params, plan.gm, plan.product, stream_k=False)
            )  # fmt: skip
            ran += 1
            options = ExecuteOptions(accumulation=default_accumulation(own.product, own.compute_dtype), poison=True)
            got = run_plan(own, x, dy, options).reshape(case.weight_shape)
            np.testing.assert_array_equal(got, expected(case, x, dy))
            if ran % 4 == 0:
                assert run_hazards(own.launches, own.product) == []


@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "padding", "n_cut"),
    [
        ((1, 4, 9, 6), (6, 4, 3, 2), (1, 0), False),
        ((2, 40, 5, 7), (35, 40, 1, 3), (0, 1), True),
        ((1, 16, 21, 5), (16, 16, 2, 2), (0, 0), True),
    ],
)
def test_cuts_of_k_give_every_result_that_any_tiling_gives(x_shape, weight_shape, padding, n_cut):
    call = {"stride": 1, "padding": padding, "dilation": 1, "output_mask": (False, True, False), "product": "910b"}
    rng = np.random.default_rng(x_shape[1])
    x, w = rng.standard_normal(x_shape).astype(np.float32), np.zeros(weight_shape, np.float32)
    size = [one + 2 * pad - tap + 1 for one, pad, tap in zip(x_shape[2:], padding, weight_shape[2:], strict=True)]
    g = rng.standard_normal((x_shape[0], weight_shape[0], *size)).astype(np.float32)
    descs = [described(tensor.shape, "fp32") for tensor in (g, x, w)]
    plan = plan_convolution_backward(*descs, **call)
    space = WeightGradientTilingSpace(
        geometry=geometry_of(plan.resolved.call), product=get_product("910b"), compute_dtype=plan.resolved.compute_dtype
    )

    def bits(tiling):
        made = plan_convolution_backward(*descs, **call, dw_tiling=tiling)
        return run_convolution_backward(made, g, x, w).grad_weight.tobytes()

    axes = {name: values if name.endswith("_parts") else values[:2] for name, values in space.axes.items()}
    small = [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]
    legal = [tiling for point in small if (tiling := space.tiling(point)) is not None] + drawn(space, rng, 200)
    cuts = {tiling.k_count: bits(tiling) for tiling in space.cuts_of_k}
    assert set(cuts) == {tiling.k_count for tiling in legal}
    assert len(set(cuts.values())) > 2
    assert any(tiling.n_count > 1 for tiling in legal) == n_cut
    # one block a core: which core adds first is the same in all of them then
    blocks = space.product.cube_core_count // x_shape[0]
    alone = [one for one in dict.fromkeys(legal) if one.m_count * one.n_count * one.k_count <= blocks]
    found = {bits(alone[i]) for i in rng.choice(len(alone), min(len(alone), 100), replace=False)}
    assert found <= set(cuts.values())
    assert len(found) > 2


@pytest.mark.parametrize(
    ("product", "shape"),
    [
        ("910b", MatmulShape(m=70, n=100, k=130, b_transposed=True)),
        ("910b", MatmulShape(m=48, n=33, k=64, a_transposed=True, batch=3, b_batched=True)),
        ("910", MatmulShape(m=70, n=96, k=144, b_transposed=True)),
        ("910", MatmulShape(m=48, n=32, k=64, a_transposed=True, batch=3, b_batched=True)),
    ],
)
def test_every_tiling_of_a_matrix_product_gives_the_definition(product, shape):
    chip = get_product(product)
    rng = np.random.default_rng(shape.m)
    space = MatmulTilingSpace(shape=shape, product=chip, compute_dtype="fp16")
    left = rng.integers(-8, 9, (shape.batch, shape.m, shape.k)).astype(np.float32)
    right = rng.integers(-8, 9, (shape.batch, shape.k, shape.n) if shape.b_batched else (shape.k, shape.n))
    right = right.astype(np.float32)
    tilings = drawn(space, rng, 12)
    assert len(tilings) == 12
    for tiling in (space.tiling(space.start), *tilings):
        got = multiply(shape, left, right, "fp16", "fp32", product=chip, tiling=tiling)
        np.testing.assert_array_equal(got, left @ right)
        assert run_hazards(planned(shape, product=chip, tiling=tiling)[0].launches, chip) == []


def test_members_have_the_names_and_sums_of_the_library():
    shape = MatmulShape(m=256, n=192, k=512)
    space = MatmulTilingSpace(shape=shape, product=get_product("910b"), compute_dtype="fp16")
    found = space.members(space.default)
    assert list(found)[:5] == ["usedCoreNum", "M", "N", "Ka", "Kb"]
    assert found["usedCoreNum"] == space.default.cores
    held = 2 * found["baseK"] * (
        found["depthA1"] * found["baseM"] + found["depthB1"] * found["baseN"]
    )  # fmt: skip
    assert held <= space.product.core.l1_bytes
    assert (1 + (found["dbL0C"] > 1)) * found["baseM"] * found["baseN"] * 4 <= space.product.core.l0c_bytes

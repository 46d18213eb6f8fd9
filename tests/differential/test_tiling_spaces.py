"""Tilings that a search may choose: every point of a space runs, in order, to the values of the definition."""

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import OperatorError
from npu_sim.products import get_product
from ops.conv3d_backprop_filter.params import split_params
from ops.conv3d_backprop_filter.plan import split_launches
from ops.conv3d_backprop_filter.tiling_space import WeightGradientTilingSpace
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

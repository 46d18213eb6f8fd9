"""Plans of input gradients and forward convolutions: layouts, launches and refusals on every series."""

from __future__ import annotations

import re

import pytest

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.common.cube_operands import (
    input_layout,
    output_layout,
    weight_layout,
)
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.limits import library_only_limits
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.conv3d_backprop_input.tiling_streamed import ORIGIN_PARTS, ORIGIN_TAPS, StreamedTiling

GEOMETRY = ConvGeometry(
    n=2, cin=20, cout=12, groups=2, hi=7, wi=9, ho=4, wo=5, kh=3, kw=3, stride=(1, 2, 2), pad=(0, 0, 1, 1, 1, 1)
)


def planned(plan, series, compute, geometry=GEOMETRY):
    gm, dtype = GlobalMemory(), DTYPES[compute]
    layouts = output_layout(geometry, compute), weight_layout(geometry, compute), input_layout(geometry, compute)
    first, weight, last = layouts if plan is input_gradient_launches else layouts[::-1]
    tensors = [
        gm.add(name, layout.storage_bytes(dtype.item_bytes), initialised=name != "c", data=dtype.data)
        for name, layout in zip("abc", (first, weight, last), strict=True)
    ]
    return plan(geometry, get_product(series), compute, gm, *tensors)


@pytest.mark.parametrize(
    ("series", "compute"),
    [("910b", "fp16"), ("910b", "fp32"), ("910b", "hf32"), ("910_93", "bf16"), ("310p", "fp16"), ("910", "fp16")],
)
def test_plans_have_launches_and_say_their_tiling(series, compute):
    for plan in (planned(input_gradient_launches, series, compute), planned(forward_launches, series, compute)):
        assert plan.launches
        assert plan.private_bytes == (16 << 20 if get_product(series).core.is_split else 0)
        assert plan.tiling.origin


@pytest.mark.parametrize(("compute", "c0"), [("fp16", 16), ("bf16", 16), ("fp32", 8), ("hf32", 8)])
def test_layouts_of_operands_have_the_channel_blocks_of_their_type(compute, c0):
    assert output_layout(GEOMETRY, compute).storage_shape == (2, 1, -(-12 // c0), 4, 5, c0)
    assert input_layout(GEOMETRY, compute).storage_shape == (2, 1, -(-20 // c0), 7, 9, c0)
    assert weight_layout(GEOMETRY, compute).c0 == c0


@pytest.mark.parametrize("plan", [input_gradient_launches, forward_launches])
def test_plan_of_a_type_the_cube_does_not_multiply_is_refused(plan):
    product = get_product("910")
    message = f"compute dtype must be one of fp16, not bf16 ({product.name}, {product.series_name})"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as caught:
        planned(plan, "910", "bf16")
    assert caught.value.status == 161002


@pytest.mark.parametrize("plan", [input_gradient_launches, forward_launches])
def test_plan_whose_rows_do_not_fit_l1_streams_lines(plan):
    wide = ConvGeometry(n=1, cin=16, cout=16, hi=40, wi=8000, ho=1, wo=8000, kh=40, kw=1)
    if plan is input_gradient_launches:
        # one row of the gradient is all that a plane has: it fits
        assert not isinstance(planned(plan, "Ascend910B2", "fp16", wide).tiling, StreamedTiling)
        wide = ConvGeometry(n=1, cin=16, cout=16, hi=79, wi=8000, ho=40, wo=8000, kh=40, kw=1)
    tiling = planned(plan, "Ascend910B2", "fp16", wide).tiling
    assert isinstance(tiling, StreamedTiling)
    assert tiling.origin == ORIGIN_PARTS
    far = ConvGeometry(n=1, cin=16, cout=16, hi=1, wi=9000, ho=1, wo=3000, kh=1, kw=2, dilation=(1, 1, 6000))
    assert planned(plan, "Ascend910B2", "fp16", far).tiling.origin == ORIGIN_TAPS


def test_library_profile_refuses_what_the_published_search_gives_up():
    row = ConvGeometry(
        n=1, cin=16, cout=16, hi=20, wi=1500, ho=20, wo=1500, kh=5, kw=5, pad=(0, 0, 2, 2, 2, 2)
    )  # fmt: skip
    assert planned(input_gradient_launches, "Ascend910B2", "fp16", row).launches
    message = (
        "Smallest block of the operator's tiling must be one that fits L1 of 524288 bytes, not a larger one "
        "(input gradient, fp16, library profile, Ascend910B2)"
    )
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        library_only_limits(row, get_product("Ascend910B2"))

"""The sums that a study takes out of the kernels are those of the oracles, bit for bit."""

import ml_dtypes
import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.products import get_product
from ops.common.tensor_desc import described
from ops.conv_backward.api import plan_convolution_backward
from ops.conv_backward.plan import geometry_of
from ops.studies.attribution_sums import SumsAsked, sums_of
from ops.studies.layers import Layer
from tests.oracles.convolution_bits import forward_sums, gradient_sums
from tests.oracles.series import SERIES, SPLIT
from tests.oracles.weight_gradient import gradient, left_by_cubes, same_bits

CUBE = {"fp16": (np.float16, "exact16-rne"), "bf16": (ml_dtypes.bfloat16, "exact16-rne")}
SHAPES = {
    "2d": ((3, 20, 9, 9), (18, 20, 3, 3), (1, 1), (1, 1), 1),
    "groups": ((2, 12, 7, 6), (18, 4, 3, 2), (2, 1), (1, 0), 3),
    "strided": ((2, 16, 11, 10), (17, 16, 2, 3), (2, 3), (0, 1), 1),
    "3d": ((2, 17, 4, 5, 5), (16, 17, 2, 3, 3), (1, 1, 1), (1, 1, 0), 1),
}
CASES = [(product, shape) for product in SERIES for shape in SHAPES if shape != "3d" or product in SPLIT]
"""Unified products have no 3D call."""


def layer_of(name, dtype):
    x_shape, weight_shape, stride, padding, groups = SHAPES[name]
    rng = np.random.default_rng(len(name))
    spatial = zip(x_shape[2:], weight_shape[2:], stride, padding, strict=True)
    out = tuple((extent + 2 * pad - tap) // step + 1 for extent, tap, step, pad in spatial)
    draw = {"x": x_shape, "dy": (x_shape[0], weight_shape[0], *out), "weight": weight_shape}
    return Layer(
        name=name, weight_shape=weight_shape, stride=stride, padding=padding, dilation=(1,) * len(stride),
        groups=groups,
        **{tensor: rng.standard_normal(shape).astype(dtype) for tensor, shape in draw.items()},
    )  # fmt: skip


def planned(layer, product, gradient_name):
    """Return the geometry and the tiling of the call."""
    name = {np.dtype(np.float16): "fp16"}.get(layer.x.dtype, "bf16")
    plan = plan_convolution_backward(
        *(described(shape, name) for shape in (layer.dy.shape, layer.x.shape, layer.weight_shape)),
        stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups,
        output_mask=tuple(each == gradient_name for each in ("dx", "dw", "db")), product=product,
    )  # fmt: skip
    return geometry_of(plan.resolved.call), plan.multiplying_steps[0].kernel.tiling


def volume(tensor):
    """The tensor as float32 with a depth axis."""
    wide = tensor.astype(np.float32)
    return wide if wide.ndim == 5 else wide[:, :, None]


def taken(layer, product, gradient_name, model, **changes):
    tensors = {"dw": ("x", "dy"), "dx": ("dy", "weight"), "y": ("x", "weight")}[gradient_name]
    compute = {np.dtype(np.float16): "fp16"}.get(layer.x.dtype, "bf16")
    asked = SumsAsked(
        gradient=gradient_name, product=get_product(product), cube_math_type=0, compute_dtype=compute,
        accumulation=model, **changes,
    )  # fmt: skip
    return sums_of(layer, {name: getattr(layer, name) for name in tensors}, asked)


@pytest.mark.parametrize(("product", "shape"), CASES)
def test_input_gradient_sums_are_the_oracles(product, shape):
    for compute in ("fp16", "bf16") if product in SPLIT else ("fp16",):
        dtype, model = CUBE[compute]
        layer = layer_of(shape, dtype)
        geometry, _ = planned(layer, product, "dx")
        got = taken(layer, product, "dx", model)
        want = gradient_sums(geometry, volume(layer.dy), volume(layer.weight), 16, 16, "exact")
        assert got.stored == compute
        assert same_bits(got.values, want.reshape(got.values.shape))
        assert not np.array_equal(got.values, got.values.astype(dtype).astype(np.float32))


@pytest.mark.parametrize(("product", "shape"), CASES)
def test_output_sums_are_the_oracles(product, shape):
    for compute in ("fp16", "bf16") if product in SPLIT else ("fp16",):
        dtype, model = CUBE[compute]
        layer = layer_of(shape, dtype)
        geometry, _ = planned(layer, product, "dx")
        got = taken(layer, product, "y", model)
        want = forward_sums(geometry, volume(layer.x), volume(layer.weight), 16, 16, "exact")
        assert got.stored == compute
        assert same_bits(got.values, want.reshape(got.values.shape))
        assert not np.array_equal(got.values, got.values.astype(dtype).astype(np.float32))


@pytest.mark.parametrize(("product", "shape"), CASES)
def test_weight_gradient_sums_leave_the_cubes_as_the_oracle_says(product, shape):
    layer = layer_of(shape, np.float16)
    geometry, tiling = planned(layer, product, "dw")
    got = taken(layer, product, "dw", "exact16-rne", with_left=True)
    model = Accumulation.parse("exact16-rne", None)
    operands = volume(layer.x), volume(layer.dy)
    assert same_bits(got.values, gradient(tiling, geometry, *operands, model).reshape(got.values.shape))
    want = left_by_cubes(tiling, geometry, *operands, model).reshape(got.values.shape)
    # float64 sums of float32 in another order
    np.testing.assert_allclose(got.left, want, rtol=0, atol=1e-14 * abs(want).max())


def test_additions_in_memory_round():
    """Otherwise the test above would not tell one from the other."""
    got = taken(layer_of("2d", np.float16), "910b", "dw", "exact16-rne", with_left=True)
    assert not np.array_equal(got.left, got.values)


@pytest.mark.parametrize("product", SPLIT)
def test_sums_of_other_models_and_of_deterministic_calls_differ(product):
    layer = layer_of("2d", np.float16)
    own = taken(layer, product, "dw", "exact16-rne").values
    assert not np.array_equal(own, taken(layer, product, "dw", "serial").values)
    assert taken(layer, product, "dw", "exact16-rne", deterministic=True, with_left=True).left is None

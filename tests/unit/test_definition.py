"""The weight gradient by its definition against seven nested loops and against the adjoint identity."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from ops.common import definition
from ops.common.definition import inner_products, weight_gradient


def by_definition(x, dy, shape, stride, before, dilation, groups):
    """dw by its definition, one product at a time, in Python integers."""
    cout, cin_group, *kernel = shape
    dw = np.zeros(shape, dtype=object)
    outs = list(itertools.product(*(range(extent) for extent in dy.shape[2:])))
    for co, ci, n in itertools.product(range(cout), range(cin_group), range(x.shape[0])):
        channel = co // (cout // groups) * cin_group + ci
        for tap in itertools.product(*(range(extent) for extent in kernel)):
            for out in outs:
                at = [o * s - p + k * d for o, s, p, k, d in zip(out, stride, before, tap, dilation, strict=True)]
                if all(0 <= position < extent for position, extent in zip(at, x.shape[2:], strict=True)):
                    dw[(co, ci, *tap)] += int(dy[(n, co, *out)]) * int(x[(n, channel, *at)])
    return dw


def forward(x, w, out, stride, before, dilation, groups):
    """conv(x, w) by scattering inputs to outputs, the other way round than the oracle walks."""
    y = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    cout_group = w.shape[0] // groups
    for at in itertools.product(*(range(extent) for extent in x.shape[2:])):
        for tap in itertools.product(*(range(extent) for extent in w.shape[2:])):
            shifted = [a + p - k * d for a, p, k, d in zip(at, before, tap, dilation, strict=True)]
            if any(value % step for value, step in zip(shifted, stride, strict=True)):
                continue
            place = [value // step for value, step in zip(shifted, stride, strict=True)]
            if not all(0 <= value < extent for value, extent in zip(place, out, strict=True)):
                continue
            for group in range(groups):
                rows = slice(group * cout_group, (group + 1) * cout_group)
                columns = slice(group * w.shape[1], (group + 1) * w.shape[1])
                kernel = w[(rows, slice(None), *tap)]
                y[(slice(None), rows, *place)] += x[(slice(None), columns, *at)] @ kernel.T
    return y


def random_case(rng: np.random.Generator, spatial: int):
    """Tensors and attributes of a small convolution."""
    while True:
        groups = int(rng.integers(1, 4))
        kernel, stride, dilation = (tuple(int(v) for v in rng.integers(1, 4, spatial)) for _ in range(3))
        before, after = (tuple(int(v) for v in rng.integers(0, 4, spatial)) for _ in range(2))
        extents = tuple(int(v) for v in rng.integers(1, 7, spatial))
        axes = zip(extents, before, after, dilation, kernel, strict=True)
        reach = [extent + p + q - d * (k - 1) - 1 for extent, p, q, d, k in axes]
        if min(reach) >= 0:
            break
    out = tuple(r // s + 1 for r, s in zip(reach, stride, strict=True))
    cin, cout = int(rng.integers(1, 3)), groups * int(rng.integers(1, 3))
    x = rng.integers(-9, 10, (2, groups * cin, *extents))
    dy = rng.integers(-9, 10, (2, cout, *out))
    pads = tuple(itertools.chain.from_iterable(zip(before, after, strict=True)))
    return x, dy, (cout, cin, *kernel), stride, before, pads, dilation, groups


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_weight_gradient_random_integers_equal_the_definition(spatial: int) -> None:
    rng = np.random.default_rng(spatial)
    for _ in range({1: 40, 2: 25, 3: 6}[spatial]):
        x, dy, shape, stride, before, pads, dilation, groups = random_case(rng, spatial)
        wanted = by_definition(x, dy, shape, stride, before, dilation, groups)
        made = weight_gradient(x, dy, shape, stride, pads, dilation, groups)
        exact = weight_gradient(x, dy, shape, stride, pads, dilation, groups, np.int64)
        assert made.dtype == np.float64
        assert exact.dtype == np.int64
        np.testing.assert_array_equal(made, wanted.astype(np.float64))
        np.testing.assert_array_equal(exact, wanted.astype(np.int64))


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_weight_gradient_is_the_adjoint_of_the_convolution(spatial: int) -> None:
    rng = np.random.default_rng(10 + spatial)
    for _ in range(15):
        x, dy, shape, stride, before, pads, dilation, groups = random_case(rng, spatial)
        w = rng.integers(-9, 10, shape)
        y = forward(x, w, dy.shape[2:], stride, before, dilation, groups)
        assert np.sum(y * dy) == np.sum(w * weight_gradient(x, dy, shape, stride, pads, dilation, groups, np.int64))


def test_weight_gradient_scalar_and_symmetric_attributes_mean_the_same() -> None:
    rng = np.random.default_rng(1)
    x, dy = rng.integers(-9, 10, (1, 2, 7, 7)), rng.integers(-9, 10, (1, 3, 4, 4))
    made = weight_gradient(x, dy, (3, 2, 3, 3), 2, 1, 1)
    for padding in ((1, 1), (1, 1, 1, 1)):
        np.testing.assert_array_equal(made, weight_gradient(x, dy, (3, 2, 3, 3), (2, 2), padding, (1, 1)))


def test_weight_gradient_takes_low_precision_and_strided_tensors() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((8, 2, 5, 5)).astype(ml_dtypes.bfloat16)[::2].transpose(0, 1, 3, 2)
    dy = rng.standard_normal((4, 3, 5, 5)).astype(np.float16)
    made = weight_gradient(x, dy, (3, 2, 1, 1))
    wanted = np.einsum("nohw,nihw->oi", dy.astype(np.float64), x.astype(np.float64))
    np.testing.assert_allclose(made[:, :, 0, 0], wanted, rtol=0, atol=1e-12)


def test_weight_gradient_padding_adds_nothing_to_an_infinite_gradient() -> None:
    x, dy = np.ones((1, 1, 1, 1)), np.array([[[[np.inf]]]])
    made = weight_gradient(x, dy, (1, 1, 3, 1), 1, (1, 0), 1)
    np.testing.assert_array_equal(made.reshape(-1), [0.0, np.inf, 0.0])


def test_weight_gradient_in_integers_keeps_what_float64_cannot() -> None:
    x, dy = np.full((1, 1, 2), 2**31 - 1), np.array([[[2**31 - 1, 1]]])
    wanted = (2**31 - 1) ** 2 + 2**31 - 1
    assert weight_gradient(x, dy, (1, 1, 1), dtype=np.int64)[0, 0, 0] == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 1, 4, 4), (1, 1, 4), (1, 1, 1, 1)), "ranks must be equal and 3, 4 or 5, not 4, 3 and 4"),
        (
            ((1, 2, 4, 4), (1, 1, 4, 4), (1, 1, 1, 1)),
            "channels must fit together, not x (1, 2, 4, 4), dy (1, 1, 4, 4), weight (1, 1, 1, 1), groups 1",
        ),
        (((1, 1, 4, 4), (1, 1, 3, 4), (1, 1, 1, 1)), "dy extent 0 must be 4, not 3"),
        (
            ((1, 1, 4, 4), (1, 1, 4, 4), (1, 1, 1, 1), 0),
            "strides and dilations must be 2 positive ints, not (0, 0)",
        ),
        (((1, 1, 4, 4), (1, 1, 4, 4), (1, 1, 1, 1), 1, (0,)), "padding must be 1, 2 or 4 ints, not (0,)"),
    ],
)
def test_weight_gradient_extents_that_do_not_fit_are_refused(arguments: tuple, message: str) -> None:
    x_shape, dy_shape, *rest = arguments
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        weight_gradient(np.zeros(x_shape), np.zeros(dy_shape), *rest)


@pytest.mark.parametrize("weight_shape", [(8, 0, 2, 2), (0, 3, 2, 2)])
def test_weight_gradient_without_channels_is_empty(weight_shape: tuple) -> None:
    x, dy = np.zeros((2, weight_shape[1], 5, 5)), np.zeros((2, weight_shape[0], 4, 4))
    assert weight_gradient(x, dy, weight_shape).shape == weight_shape


@pytest.mark.parametrize("at_once", [1, 7, 60, 1 << 20])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 4, 50), (1, 1, 9), (1, 5, 1), (2, 2, 0), (0, 3, 4)])
def test_inner_products_in_float32_are_chains_in_ascending_order(
    monkeypatch, at_once: int, m: int, n: int, k: int
) -> None:
    monkeypatch.setattr(definition, "_CHAINED_AT_ONCE", at_once)
    rng = np.random.default_rng([m, n, k])
    left, right = (rng.normal(size=(rows, k)).astype(np.float32) for rows in (m, n))
    expected = np.zeros((m, n), np.float32)
    for row, column, place in itertools.product(range(m), range(n), range(k)):
        product = np.float32(left[row, place] * right[column, place])
        expected[row, column] = np.float32(expected[row, column] + product)
    found = inner_products(left, right)
    assert (found.dtype, found.tobytes()) == (np.float32, expected.tobytes())
    wide = inner_products(left.astype(np.float64), right.astype(np.float64))
    np.testing.assert_allclose(wide, left.astype(np.float64) @ right.T.astype(np.float64), rtol=1e-14)

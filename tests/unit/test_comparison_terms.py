"""The terms of an element of a gradient: all of them, and where their factors are."""

from __future__ import annotations

import numpy as np
import pytest

from ops.studies.comparison_terms import terms_of
from ops.studies.kinds import emulator
from ops.studies.layers import Layer
from ops.studies.registry import kinds_of

CASES = {
    "plain": ((2, 4, 5, 6), (6, 4, 3, 3), {}),
    "padded, dilated, strided": ((2, 4, 9, 8), (6, 4, 3, 2), {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1)}),
    "groups": ((2, 6, 5, 5), (4, 3, 2, 2), {"groups": 2, "padding": (1, 0, 0, 1)}),
    "1D": ((3, 2, 7), (2, 2, 3), {"stride": (2,), "padding": (1,)}),
    "3D": ((1, 2, 4, 3, 3), (2, 2, 2, 1, 2), {}),
}


def layer_of(case, transposed):
    x_shape, weight_shape, given = CASES[case]
    rng = np.random.default_rng(len(case))
    axes = len(x_shape) - 2
    values = {"stride": (1,) * axes, "padding": (0,) * axes, "dilation": (1,) * axes, "groups": 1} | given
    pads = values["padding"]
    both = [a + b for a, b in zip(pads[::2], pads[1::2], strict=True)] if len(pads) > axes else [2 * p for p in pads]
    windows = [
        (size + pad - dilation * (kernel - 1) - 1) // stride + 1
        for size, pad, dilation, kernel, stride in zip(
            x_shape[2:], both, values["dilation"], weight_shape[2:], values["stride"], strict=True
        )
    ]
    tensors = [
        rng.integers(-9, 10, shape).astype(np.float32) for shape in (x_shape, (x_shape[0], weight_shape[0], *windows))
    ]
    wide, narrow = tensors
    x, dy = (narrow, wide) if transposed else (wide, narrow)
    weight = rng.integers(-9, 10, weight_shape).astype(np.float32)
    return Layer(
        name="a", x=x, dy=dy, weight_shape=weight_shape, weight=weight, transposed=transposed,
        output_padding=(0,) * axes, **values,
    )  # fmt: skip


@pytest.mark.parametrize("transposed", [False, True], ids=["convolution", "transposed"])
@pytest.mark.parametrize("gradient", ["dx", "dw", "db"])
@pytest.mark.parametrize("case", CASES)
def test_terms_add_up_to_the_definition(case, gradient, transposed):
    layer = layer_of(case, transposed)
    (kind,) = kinds_of(layer, (gradient,))
    tensors = kind.tensors(layer)
    golden = kind.golden(layer, tensors, emulator())
    for at in np.ndindex(golden.shape):
        terms = terms_of(layer, gradient, tensors, at)
        assert terms.values.sum() == golden[at]
        assert len(set(map(tuple, np.hstack(list(terms.places.values()))))) == len(terms.values)


def test_largest_terms_name_their_factors():
    layer = layer_of("groups", False)
    tensors = {"x": layer.x, "dy": layer.dy}
    largest = terms_of(layer, "dw", tensors, (3, 1, 0, 1)).largest(3, tensors)
    assert [abs(term.value) for term in largest] == sorted((abs(term.value) for term in largest), reverse=True)
    for term in largest:
        x, dy = term.factors
        assert (x.tensor, dy.tensor) == ("x", "dy")
        assert term.value == x.value * dy.value == float(layer.x[x.at]) * float(layer.dy[dy.at])
        assert dy.at[1] == 3
        assert x.at[1] == 4  # second group, second channel of it

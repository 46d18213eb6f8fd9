"""The oracle of the input gradient and the forward convolution against loops over elements, and their adjointness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.cases.input_gradient import random_geometry
from tests.oracles.convolution import forward, input_gradient


def by_elements(g, x, weight):
    """y, one product at a time."""
    y = np.zeros((g.n, g.cout, g.do, g.ho, g.wo), np.int64)
    cin_group, cout_group = g.cin // g.groups, g.cout // g.groups
    for co, ci, *tap in itertools.product(*(range(extent) for extent in weight.shape)):
        channel = co // cout_group * cin_group + ci
        for out in itertools.product(range(g.do), range(g.ho), range(g.wo)):
            at = [out[i] * g.stride[i] - g.pad[2 * i] + tap[i] * g.dilation[i] for i in range(3)]
            if all(0 <= at[i] < x.shape[2 + i] for i in range(3)):
                y[(slice(None), co, *out)] += x[(slice(None), channel, *at)] * weight[(co, ci, *tap)]
    return y


def attributes(g):
    return (g.stride, g.pad, g.dilation, g.groups)


@pytest.mark.parametrize("seed", range(8))
def test_oracle_forward_equals_loops_and_the_gradient_is_its_adjoint(seed):
    rng = np.random.default_rng(seed)
    g = random_geometry(rng, most_macs=40_000)
    x = rng.integers(-5, 6, (g.n, g.cin, g.di, g.hi, g.wi))
    weight = rng.integers(-5, 6, g.weight_shape)
    dy = rng.integers(-5, 6, (g.n, g.cout, g.do, g.ho, g.wo))
    y = forward(x, weight, dy.shape, *attributes(g), dtype=np.int64)
    np.testing.assert_array_equal(y, by_elements(g, x, weight))
    dx = input_gradient(dy, weight, x.shape, *attributes(g), dtype=np.int64)
    # <dy, conv(x)> = <dx, x> for every x: with unit vectors for x this is each element of dx
    for _ in range(20):
        at = tuple(int(rng.integers(extent)) for extent in x.shape)
        unit = np.zeros_like(x)
        unit[at] = 1
        assert dx[at] == (forward(unit, weight, dy.shape, *attributes(g), dtype=np.int64) * dy).sum()
    assert (dy * y).sum() == (dx * x).sum()


def test_oracle_extents_that_do_not_fit_are_refused():
    weight = np.ones((2, 3, 3))
    with pytest.raises(ValueError, match=r"^output extent 0 must be 6, not 5$"):
        input_gradient(np.ones((1, 2, 5)), weight, (1, 3, 8))
    with pytest.raises(ValueError, match=r"^channels must fit together, not x \(1, 4, 8\)"):
        forward(np.ones((1, 4, 8)), weight, (1, 2, 6))
    with pytest.raises(ValueError, match=r"^ranks must be equal and 3, 4 or 5, not 2, 2 and 3$"):
        forward(np.ones((1, 4)), weight, (1, 2))
    with pytest.raises(ValueError, match=r"^strides and dilations must be 1 positive ints, not \(0,\)$"):
        forward(np.ones((1, 3, 8)), weight, (1, 2, 6), stride=0)
    with pytest.raises(ValueError, match=r"^padding must be 1, 1 or 2 ints, not \(1, 1, 1\)$"):
        forward(np.ones((1, 3, 8)), weight, (1, 2, 6), padding=(1, 1, 1))

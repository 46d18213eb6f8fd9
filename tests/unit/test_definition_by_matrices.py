"""Goldens by large matrix products against the definition: integers to the bit, others in the bound, specials too."""

from __future__ import annotations

import numpy as np
import pytest

from ops.common import definition, definition_by_matrices
from tests.unit.test_definition import random_case

NAMES = ("weight_gradient", "forward", "input_gradient")


def both(name, tensors, groups, numbers):
    """The result by matrices and by the definition."""
    x, dy, w = tensors
    operands = {"weight_gradient": (x, dy, w.shape), "forward": (x, w, dy.shape), "input_gradient": (dy, w, x.shape)}
    given = {**numbers, "groups": groups}
    with np.errstate(invalid="ignore"):
        return tuple(getattr(module, name)(*operands[name], **given) for module in (definition_by_matrices, definition))


def drawn(rng, spatial, draw):
    shapes, groups, numbers = case_of(rng, spatial)
    return [draw(rng, shape) for shape in shapes], groups, numbers


def case_of(rng, spatial):
    x, dy, weight_shape, stride, _, pads, dilation, groups = random_case(rng, spatial)
    return (x.shape, dy.shape, weight_shape), groups, {"stride": stride, "padding": pads, "dilation": dilation}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at_once", [1, 40, 1 << 21])
def test_integers_are_those_of_the_definition(monkeypatch, name, at_once):
    monkeypatch.setattr(definition_by_matrices, "_AT_ONCE", at_once)
    rng = np.random.default_rng(5)
    for number in range(60):
        tensors, groups, numbers = drawn(rng, 1 + number % 3, lambda rng, shape: rng.integers(-9, 10, shape))
        made, wanted = both(name, tensors, groups, numbers)
        assert made.dtype == np.float64
        assert np.array_equal(made, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_others_are_in_the_bound_of_any_order(name):
    rng = np.random.default_rng(6)
    for number in range(40):
        tensors, groups, numbers = drawn(rng, 1 + number % 3, lambda rng, shape: rng.normal(size=shape))
        made, wanted = both(name, tensors, groups, numbers)
        magnitudes, _ = both(name, [abs(tensor) for tensor in tensors], groups, numbers)
        counts, _ = both(name, [np.ones_like(tensor) for tensor in tensors], groups, numbers)
        assert (abs(made - wanted) <= 2 * (counts + 1) * 2.0**-53 * magnitudes).all()


@pytest.mark.parametrize("name", NAMES)
def test_specials_reach_what_they_reach_by_definition(name):
    rng = np.random.default_rng(7)

    def draw(rng, shape):
        values = rng.integers(-3, 4, shape).astype(np.float64)
        flat = values.reshape(-1)
        flat[rng.integers(0, flat.size, 2)] = rng.choice([np.inf, -np.inf, np.nan], 2)
        return values

    for number in range(60):
        tensors, groups, numbers = drawn(rng, 1 + number % 3, draw)
        made, wanted = both(name, tensors, groups, numbers)
        assert np.array_equal(made, wanted, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_extents_that_do_not_fit_are_refused_alike(name):
    tensors = [np.zeros((1, 2, 5)), np.zeros((1, 3, 4)), np.zeros((3, 2, 3))]
    with pytest.raises(ValueError, match="extent 0 must be 3, not 4"):
        both(name, tensors, 1, {})

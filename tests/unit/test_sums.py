"""Sums of figures: one rounding, whatever the order, the size and the range of the elements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.report import sums


def _spread(seed, size, lowest, highest):
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.standard_normal(size), rng.integers(lowest, highest, size))


@pytest.mark.parametrize("size", [0, 1, 2, 1000, sums._CHUNK - 1, sums._CHUNK, sums._CHUNK + 1, 3 * sums._CHUNK + 7])
@pytest.mark.parametrize(("lowest", "highest"), [(0, 1), (-60, 60), (-1074, -1000), (-1074, 900)])
def test_total_is_rounded_once(size, lowest, highest):
    values = _spread(size, size, lowest, highest)
    assert sums.total(values) == math.fsum(values.tolist())
    # nothing but rounding errors is left of what cancels
    cancelling = np.concatenate([values, -values[::-1] * (1 + 2**-52)])
    assert sums.total(cancelling) == math.fsum(cancelling.tolist())
    kept = values.copy()
    assert sums.total(values.reshape(1, -1)) == math.fsum(kept.tolist())
    assert np.array_equal(kept, values)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, max_value=1e300, min_value=-1e300), max_size=40))
def test_total_of_any_numbers_is_that_of_fsum(values):
    assert sums.total(np.array(values, np.float64)) == math.fsum(values)


def test_equal_largest_numbers_that_fill_a_chunk_add_up_exactly():
    values = np.full(sums._CHUNK, np.nextafter(1.0, 0.0))
    assert sums.total(values) == math.fsum(values.tolist())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays(value):
    values = np.ones(sums._CHUNK + 5)
    values[7] = value
    assert np.array_equal(sums.total(values), value, equal_nan=True)


def test_numbers_near_the_largest_add_up():
    values = np.array([1e308, -1e308, 3.0, 1e308, -1e308])
    assert sums.total(values) == 3.0

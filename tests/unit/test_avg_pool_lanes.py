"""Sums of sixteen lanes against additions one at a time, with the JIT and without."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import jit
from ops.avg_pool import lanes
from ops.avg_pool.lanes import LANES, sum_lanes


@jit
def sum_all(sums, at, terms, first, rows, step, count):
    sum_lanes(sums, at, terms, first, rows, step, count)


@pytest.mark.parametrize(("rows", "count"), [(0, 0), (0, 3), (3, 0), (1, 1), (2, 3), (5, 1), (1, 7)])
def test_sum_lanes_adds_row_by_row_in_ascending_order(rows, count):
    rng = np.random.default_rng([rows, count])
    step = 8 * LANES
    terms = (rng.standard_normal(6 * step) * 10.0 ** rng.integers(-6, 7, 6 * step)).astype(np.float32)
    sums = np.full(5 * LANES, 77, np.float32)
    expected = sums.copy()
    first, at = 3, 21
    total = np.zeros(LANES, np.float32)
    for row in range(rows):
        for column in range(count):
            start = first + row * step + column * LANES
            for lane in range(LANES):
                total[lane] = np.float32(total[lane] + terms[start + lane])
    expected[at : at + LANES] = total
    sum_all(sums, at, terms, first, rows, step, count)
    assert sums.tobytes() == expected.tobytes()


def test_sum_lanes_starts_from_plus_zero():
    sums = np.empty(LANES, np.float32)
    sum_all(sums, 0, np.full(LANES, -0.0, np.float32), 0, 1, 0, 1)
    assert not np.signbit(sums).any()


@pytest.mark.parametrize(("at", "first"), [(-1, 0), (1, 0), (0, -1), (0, 17)])
def test_sum_lanes_twin_refuses_to_leave_its_arrays(at, first):
    with pytest.raises(IndexError, match=r"^Lanes must lie inside "):
        lanes._sum_twin(np.zeros(LANES, np.float32), at, np.zeros(2 * LANES, np.float32), first, 1, 0, 1)

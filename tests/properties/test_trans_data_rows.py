"""Every row of TransData is one the hardware can encode and stays inside its tensor, however extreme the shape."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

from npu_sim.isa.op import Op
from npu_sim.isa.row import empty_rows
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.program.bounds import gm_violations
from npu_sim.program.verify import verify
from tests.oracles.series import SERIES, SPLIT
from tests.oracles.trans_data import conversion, machine

ELEMENTS = ((2, 16), (4, 16), (4, 8))
CHUNK_ROWS, MOST_CHUNKS = 1024, 3
CASES_PER_SERIES = 8


def assert_rows_are_legal(layout, direction, item, series):
    """Check the first rows of the first, middle and last core; return how many were checked."""
    product = machine(series)
    case = conversion(layout, direction, item, product)
    launch, table = case.launch, case.gm.table()
    rows = empty_rows(max(CHUNK_ROWS, launch.step_rows))
    checked = 0
    for core in {0, launch.core_count // 2, launch.core_count - 1}:
        for count in islice(launch.rows(core, 0, rows), MOST_CHUNKS):
            assert verify(rows[:count], product) == [], (layout, direction, item, series)
            assert gm_violations(rows[:count], table) == [], (layout, direction, item, series)
            checked += count
    return checked


def random_activation(rng, c0):
    def upto(*most):
        return rng.randint(1, rng.choice(most))

    return ActivationLayout(
        n=upto(1, 4, 300), c=upto(1, 20, 3000), d=upto(1, 1, 4, 70), h=upto(1, 3, 60, 5000), w=upto(1, 3, 60, 5000),
        c0=c0,
    )  # fmt: skip


def random_weight(rng, c0):
    def upto(*most):
        return rng.randint(1, rng.choice(most))

    groups = upto(1, 1, 4, 70, 2000)
    return WeightLayout(
        cout=groups * upto(1, 16, 40, 3000), cin_per_group=upto(1, 16, 40, 3000), groups=groups, kd=upto(1, 1, 3, 9),
        kh=upto(1, 3, 15, 255), kw=upto(1, 3, 15, 255), c0=c0,
    )  # fmt: skip


@pytest.mark.parametrize("series", SERIES)
def test_rows_of_random_shapes_can_be_encoded_and_stay_in_their_tensors(series):
    rng = random.Random(f"trans data {series}")
    for _ in range(CASES_PER_SERIES):
        for item, c0 in ELEMENTS:
            if series != "910" or (item, c0) != (4, 8):
                direction = rng.choice(("to_blocked", "from_blocked"))
                assert assert_rows_are_legal(random_activation(rng, c0), direction, item, series) > 0
            direction = rng.choice(("to_fractal", "from_fractal"))
            assert assert_rows_are_legal(random_weight(rng, c0), direction, item, series) > 0


EXTREMES = {
    "planes further apart than a gap can say": ActivationLayout(n=1, c=17, d=4, h=1024, w=1024, c0=16),
    "the same, ragged": ActivationLayout(n=1, c=17, d=4, h=1023, w=1023, c0=16),
    "one pixel in 9000 depths and 80000 channels": ActivationLayout(n=1, c=80000, d=9000, h=1, w=1, c0=16),
    "fractals further apart than a gap can say": WeightLayout(cout=1_100_000, cin_per_group=3, kh=2, kw=2, c0=16),
    "the largest window": WeightLayout(cout=17, cin_per_group=3, kd=2, kh=255, kw=255, c0=16),
    "many channels": WeightLayout(cout=17, cin_per_group=9001, kh=1, kw=1, c0=16),
    "many small groups": WeightLayout(cout=5000, cin_per_group=1, groups=5000, kh=3, kw=3, c0=16),
}


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("name", EXTREMES)
def test_rows_of_extreme_shapes_can_be_encoded(series, name):
    layout = EXTREMES[name]
    is_weight = isinstance(layout, WeightLayout)
    for direction in ("to_fractal", "from_fractal") if is_weight else ("to_blocked", "from_blocked"):
        for item in (2, 4):
            assert assert_rows_are_legal(layout, direction, item, series) > 0


def test_rows_of_split_cores_move_exact_bytes_and_those_of_unified_cores_whole_blocks():
    layout = ActivationLayout(n=2, c=5, h=3, w=3, c0=16)
    for series in SERIES:
        case = conversion(layout, "from_blocked", 2, machine(series))
        rows = empty_rows(4096)
        count = next(case.launch.rows(0, 0, rows))
        pads = np.count_nonzero(rows["op"][:count] == Op.DATA_COPY_PAD)
        assert bool(pads) == (series in SPLIT)

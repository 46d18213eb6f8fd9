"""Convolutions and transposed ones whose sums start from a bias: exact on integers, and as an addition to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.input_gradient import (
    KINDS,
    bias_of,
    default_options,
    operands,
    random_case,
    random_options,
    random_split_tiling,
    run,
    setup_of,
)
from tests.differential.test_input_gradient import assert_clean, assert_exact
from tests.oracles.series import SERIES, SPLIT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("series", SERIES)
def test_sums_of_integers_start_from_the_bias(series, kind):
    rng = np.random.default_rng([SERIES.index(series), KINDS.index(kind), 77])
    for number in range(40):
        case = replace(random_case(rng, series=series, most_macs=600_000, kind=kind), has_bias=True)
        setup = setup_of(case)
        assert [launch.phase_count for launch in setup.plan.launches] == [1]
        assert_exact(setup, random_options(rng, setup))
        if series in SPLIT:
            setup = random_split_tiling(rng, setup)
            assert_exact(setup, random_options(rng, setup))
        if number % 4 == 0:
            assert_clean(setup)


def test_transposed_result_that_no_window_reaches_is_the_bias():
    found = 0
    for series in SERIES:
        rng = np.random.default_rng(5)
        case = replace(random_case(rng, series=series, kind="input_gradient"), has_bias=True)
        geometry = replace(
            case.geometry, n=1, cin=5, cout=3, groups=1, di=1, hi=1, wi=1, do=1, ho=2, wo=2, kd=1, kh=1, kw=1,
            stride=(1, 2, 2), pad=(0, 0, 1, 1, 1, 1), dilation=(1, 1, 1), spatial_rank=2,
        )  # fmt: skip
        setup = setup_of(replace(case, geometry=geometry))
        a, weight = operands(setup.case)
        got = run(setup, a, weight, default_options(setup))
        np.testing.assert_array_equal(got[0, :, 0, 0, 0].astype(np.int64), bias_of(setup.case))
        assert_clean(setup)
        found += 1
    assert found == len(SERIES)


@pytest.mark.parametrize("series", SPLIT)
def test_bias_is_not_rounded_to_hf32(series):
    rng = np.random.default_rng(3)
    case = random_case(rng, series=series, kind="forward", most_macs=100_000)
    case = replace(case, has_bias=True, compute_dtype="hf32")
    setup = setup_of(case)
    a, weight = operands(case)
    a[:] = 0
    got = run(setup, a, weight, default_options(setup))
    assert (got == bias_of(case)[:, None, None, None]).all()

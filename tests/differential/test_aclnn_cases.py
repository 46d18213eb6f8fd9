"""The calls of public tests: status and compute dtype as observed there, and as derived for every series."""

from __future__ import annotations

from collections import Counter

import pytest

from npu_sim.errors import OperatorError
from ops.conv_backward.rules import check
from tests.oracles.aclnn_cases import call_of, load_cases
from tests.oracles.conv_backward_status import status
from tests.oracles.series import SERIES, SPLIT

CASES = load_cases()
COLUMNS = {series: int(series in SPLIT) for series in SERIES}

NOT_AS_OBSERVED = {
    "ut-000": "commented-out test: gradOutput is 6 x 6 where the shapes give 8 x 8, which no kernel takes (561103)",
    "ut-012": "commented-out test: gradOutput is 6 x 6 where the shapes give 8 x 8, which no kernel takes (561103)",
}
"""Cases whose test says otherwise about its own product, with the reason."""


def outcome(case, series):
    try:
        return 0, check(call_of(case, series)).compute_dtype
    except OperatorError as refusal:
        return refusal.status, None


@pytest.mark.parametrize("series", COLUMNS)
def test_status_and_compute_dtype_of_public_calls_are_those_of_the_documents(series):
    column = COLUMNS[series]
    for case in CASES:
        got, compute = outcome(case, series)
        assert got == case["status"][column], case["id"]
        if case["compute"][column] is not None:
            assert compute == case["compute"][column], case["id"]
        assert status(call_of(case, series)) == got, case["id"]


def test_status_of_public_calls_is_the_observed_one_but_for_listed_exceptions():
    modelled = [case for case in CASES if case["of"] in COLUMNS]
    differ = {case["id"] for case in modelled if outcome(case, case["of"])[0] != case["observed"]}
    assert differ == set(NOT_AS_OBSERVED)
    assert all(case["evidence"] == "weak" for case in CASES if case["id"] in NOT_AS_OBSERVED)
    assert len(modelled) == 224


def test_public_calls_hold_every_status_and_rank():
    assert len({case["id"] for case in CASES}) == len(CASES) == 293
    statuses = Counter(code for case in CASES for code in case["status"])
    assert set(statuses) == {0, 161002, 561103}
    assert {len(call_of(case, "910b").input.shape) for case in CASES} == {3, 4, 5}

"""A selection of the calls of other programs on every series: computed right, or refused by a rule of the page."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cases.foreign_calls import dsl_outcome, load, outcomes
from tests.oracles.series import DSL, SERIES

ENTRIES = load()
EVERY = 24


def selection(series):
    """Every so-many-th entry, other ones for each series."""
    return ENTRIES[SERIES.index(series) :: EVERY]


@pytest.mark.parametrize("series", SERIES)
def test_foreign_calls_are_computed_right_or_refused_by_a_rule_of_the_page(series):
    kinds = Counter()
    for entry in selection(series):
        made = outcomes(entry, series)
        kinds.update(one.kind for one in made)
        assert "wrong" not in {one.kind for one in made}, (entry, made)
    assert kinds["computed"] > len(selection(series)) // 2


@pytest.mark.parametrize("series", DSL)
def test_foreign_weight_gradients_of_the_dsl_are_exact_or_refused_by_its_checks(series):
    kinds = Counter()
    for entry in ENTRIES[DSL.index(series) :: EVERY]:
        if entry["operator"] == "convolution":
            made = dsl_outcome(entry, series)
            kinds[made.kind] += 1
            assert made.kind != "wrong", (entry, made)
    assert kinds["computed"] > len(ENTRIES) // EVERY // 2


def test_foreign_calls_hold_every_kind_of_convolution():
    assert len({entry["id"] for entry in ENTRIES}) == len(ENTRIES)
    convolutions = [entry for entry in ENTRIES if entry["operator"] == "convolution"]
    assert {len(entry["stride"]) for entry in convolutions} == {1, 2, 3}
    assert {entry["dtype"] for entry in ENTRIES} == {"fp16", "fp32", "bf16"}
    features = {
        "depthwise": sum(entry["groups"] == entry["input"][1] > 1 for entry in convolutions),
        "grouped": sum(1 < entry["groups"] < entry["input"][1] for entry in convolutions),
        "dilated": sum(max(entry["dilation"]) > 1 for entry in convolutions),
        "transposed": sum(entry["transposed"] for entry in convolutions),
        "output padding": sum(max(entry["output_padding"]) > 0 for entry in convolutions),
        "patches": sum(entry["stride"] == entry["weight"][2:] != [1] * len(entry["stride"]) for entry in convolutions),
        "empty": sum(0 in entry["input"] for entry in convolutions),
        "pooling": len(ENTRIES) - len(convolutions),
    }
    assert min(features.values()) > 5, features

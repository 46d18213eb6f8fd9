"""Histograms in a study, and which of its results keep a map of their errors."""

import json
from dataclasses import replace

import numpy as np
import pytest
from precision_backend import backend, convolution_backward

from npu_sim.report.ulps import MAP_COLUMNS, MAP_ROWS
from ops.studies.capture import load_example
from ops.studies.kinds import Backend
from ops.studies.precision import study
from ops.studies.precision_results import GOLDENS, StudyOptions
from ops.studies.ulp_maps import MOST_MAPS, with_chosen_maps


def spoiled(layer_of_weight):
    """The stand-in, with a wrong first element where the weight has that shape."""

    def run(dy, x, weight, **options):
        result = convolution_backward(dy, x, weight, **options)
        if weight.shape == layer_of_weight:
            result.grad_weight.flat[0] += np.abs(result.grad_weight).max() * 8
        return result

    return Backend(convolution_backward=run, golden=backend().golden, get_product=backend().get_product)


@pytest.fixture(scope="module")
def report():
    example = load_example()
    stem = next(layer for layer in example.layers if layer.name == "stem")
    return study(example, StudyOptions(products=("910b", "310p")), backend=spoiled(stem.weight_shape))


def maps(report):
    return [
        (row, golden, row.result.against(golden).ulp_map)
        for row in report.computed
        for golden in GOLDENS
        if row.result.against(golden).ulp_map is not None
    ]


def test_histograms_count_every_element_once_and_maps_show_the_largest_error(report):
    for row in report.computed:
        for golden in GOLDENS:
            against = row.result.against(golden)
            ulps = against.ulp_histogram
            assert ulps.exact + ulps.special + sum(ulps.counts) + ulps.infinite == against.error.count
            if against.error.max_ulp:
                exponent = ulps.lowest_exponent + len(ulps.counts) - 1
                assert 2.0**exponent <= against.error.max_ulp < 2.0 ** (exponent + 1) or exponent in (-16, 47)
    for row, golden, shown in maps(report):
        assert max(map(max, shown.max_ulp)) == row.result.against(golden).error.max_ulp
        assert len(shown.max_ulp) <= MAP_ROWS
        assert all(len(line) <= MAP_COLUMNS for line in shown.max_ulp)


def test_failures_and_the_worst_result_of_each_gradient_have_a_map_against_the_deciding_golden(report):
    shown = maps(report)
    assert {golden for _, golden, _ in shown} == {"rounded"}
    failed = {row.title for row in report.computed if row.result.rounded.outcome == "fail"}
    assert failed == {"stem dw"}
    assert sorted(row.title for row, _, _ in shown if row.title not in failed) == sorted(
        layer.title for layer in report.layers if layer.title not in failed
    )
    for row, _, _ in shown:
        error = row.result.rounded.error.relative_l2
        others = [one.result.rounded.error.relative_l2 for one in report.computed if one.title == row.title]
        assert row.title in failed or error == max(others)
    # what is the same to the last bit, in another mode or on another product, has one
    assert sorted(row.result.compute_dtype for row, _, _ in shown if row.title in failed) == ["fp16", "fp32", "hf32"]
    assert shown[0][2].max_ulp[0][0] == max(map(max, shown[0][2].max_ulp))


def test_choice_is_bounded_and_keeps_the_figures(report):
    many = [row for row in report.computed if row.title == "stem dw"] * (2 * MOST_MAPS)
    rows = [replace(row, layer=f"{row.layer}{i}") for i, row in enumerate(many)]
    chosen = with_chosen_maps(rows, "rounded")
    assert sum(row.result.rounded.ulp_map is not None for row in chosen) <= MOST_MAPS
    assert [row.result for row in chosen] == [row.result for row in rows]


def test_json_holds_the_histogram(report):
    row = next(row for row in json.loads(report.to_json())["rows"] if row["result"])
    ulps = row["result"]["original"]["ulp_histogram"]
    assert (
        ulps["exact"] + ulps["special"] + sum(ulps["counts"]) + ulps["infinite"]
        == row["result"]["original"]["error"]["count"]
    )

"""Standards that cases bring along: the tool's arithmetic, element by element, and what they decide in a study."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from npu_sim.report.precision import element_errors
from npu_sim.report.standards.case_tolerance import NAME, CaseTolerance, tolerance_standard
from npu_sim.report.standards.standard import Evidence
from ops.cli.main import main
from ops.studies.case_file import load_cases
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions
from ops.studies.results_file import Results
from tests.unit.test_case_files import CALL, INPUT_KERNEL, KERNEL, atk_convolution, write_csv, write_json


def judge(actual, golden, **numbers):
    errors = element_errors(actual, np.asarray(golden, np.float64))
    evidence = Evidence(errors=errors, row=errors.format.name, golden="rounded")
    return tolerance_standard(CaseTolerance(**numbers)).judge(evidence)


def is_close(a, g, rtol, atol):
    """float32 by hand: each operation rounded once, of numbers as fractions."""
    if np.isnan(a) or np.isnan(g):
        return bool(np.isnan(a) and np.isnan(g))
    if np.isinf(a) or np.isinf(g):
        return a == g
    once = lambda value: Fraction(float(np.float32(float(value))))  # noqa: E731
    distance = abs(once(Fraction(float(a)) - Fraction(float(g))))
    bound = once(once(Fraction(float(np.float32(rtol))) * abs(Fraction(float(g)))) + Fraction(float(np.float32(atol))))
    return distance <= bound


@pytest.mark.parametrize("seed", range(4))
def test_share_is_that_of_elements_compared_one_by_one(seed):
    rng = np.random.default_rng(seed)
    golden = rng.normal(size=400).astype(np.float32)
    rtol, atol = (1e-3, 1e-3) if seed % 2 else (2e-4, 1e-8)
    actual = (golden * (1 + rng.normal(size=400) * 2 * rtol)).astype(np.float32)
    for at, pair in enumerate([(np.nan, np.nan), (np.nan, 1), (np.inf, np.inf), (-np.inf, np.inf), (1, np.inf)]):
        actual[at], golden[at] = pair
    # on the bound and one beside it
    golden[5:7] = 1
    bound = np.float32(1) + np.float32(rtol)
    actual[5], actual[6] = bound, np.nextafter(np.nextafter(bound + np.float32(atol), np.float32(2)), np.float32(2))
    found = judge(actual, golden, rtol=rtol, ptol=0.0, atol=atol)
    beyond = sum(not is_close(a, g, rtol, atol) for a, g in zip(actual, golden, strict=True))
    assert 50 < beyond < 350
    assert found.checks[0].value == 1 - (400 - beyond) / 400
    assert found.outcome == "fail"
    assert judge(actual, golden, rtol=rtol, ptol=found.checks[0].value, atol=atol).outcome == "pass"
    least = np.nextafter(found.checks[0].value, 0)
    assert judge(actual, golden, rtol=rtol, ptol=float(least), atol=atol).outcome == "fail"


def test_share_has_the_tools_arithmetic():
    """One of a thousand is more than 0.001: what 1 - 999 / 1000 leaves is rounded up."""
    golden = np.ones(1000, np.float32)
    actual = golden.copy()
    actual[3] = 2
    assert judge(actual, golden, ptol=0.001).outcome == "fail"
    assert judge(actual[:999], golden[:999], ptol=0.0011).outcome == "pass"


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [(np.float16, "rtol 0.001, atol 1e-08, share 0.001"), (ml_dtypes.bfloat16, "rtol 0.001, atol 1e-08, share 0.001"),
     (np.float32, "rtol 0.0001, atol 1e-08, share 0.0001")],
)  # fmt: skip
def test_golden_is_rounded_and_open_numbers_are_the_tools(dtype, numbers):
    golden = np.random.default_rng(1).normal(size=500)
    found = judge(golden.astype(dtype), golden)
    assert found.outcome == "pass"
    assert found.checks[0].value == 0
    assert found.thresholds == numbers
    # two places off are more than 2^-10 of a half
    code = golden.astype(dtype).view(f"u{np.dtype(dtype).itemsize}")
    beside = judge((code + code.dtype.type(2)).view(dtype), golden)
    assert beside.outcome == ("pass" if dtype == np.float32 else "fail")
    assert judge(np.zeros(500, dtype), np.zeros(500)).void_cause == "zeros"


def test_tolerances_of_rows_are_read(tmp_path):
    rows = (
        KERNEL,
        KERNEL | {"testcase_name": "short", "precision_tolerances": "", "absolute_precision": "(0.5,)"},
        CALL | {"precision_tolerances": "((None, 0.25), (0.1, 0.1), (0.1, 0.1))", "absolute_precision": ""},
        CALL | {"testcase_name": "none"},
        KERNEL | {"testcase_name": "bad", "precision_tolerances": "((-0.001, 0.001),)"},
        KERNEL | {"testcase_name": "word", "precision_tolerances": "('a', 'b')"},
    )
    found = load_cases(write_csv(tmp_path / "a.csv", *rows))
    assert [layer.standards for layer in found.capture.layers] == [
        (CaseTolerance(rtol=0.001, ptol=0.001, atol=1e-8),), (CaseTolerance(atol=0.5),), (CaseTolerance(ptol=0.25),), ()
    ]  # fmt: skip
    assert any("a tolerance must be a finite number of 0 or more, not -0.001" in reason for reason in found.left_out)
    assert sum(found.left_out.values()) == 2


def test_standards_of_calls_are_read(tmp_path):
    ratios = {"max_re_ratio": 5, "avg_re_ratio": 1.5, "root_mean_squared_ratio": 1.5}
    given = ["default", "single_bm", "mixed_tolerance_bm", {"cv_fused_double_benchmark": ratios}, "equal", None]
    cases = [atk_convolution(number, standard={"acc": acc, "perf": "not_key"}) for number, acc in enumerate(given)]
    odd = {"acc": {"cv_fused_double_benchmark": ratios | {"avg_re_ratio": 3}}}
    found = load_cases(write_json(tmp_path / "a.json", *cases, atk_convolution(9, standard=odd), atk_convolution(10)))
    assert [layer.standards for layer in found.capture.layers] == [
        (), ("single-benchmark",), ("mixed-tolerance",), ("double-benchmark-l1",), (), (), ()
    ]  # fmt: skip
    ((reason, _),) = found.left_out.items()
    assert "the ratios of cv_fused_double_benchmark must be those of a level" in reason


def test_tolerance_of_a_row_decides_besides(tmp_path, capsys):
    strict = INPUT_KERNEL | {"testcase_name": "strict", "precision_tolerances": "((1e-9, 0.0),)"}
    file = write_csv(tmp_path / "a.csv", KERNEL, strict, CALL)
    capture = load_cases(file).capture
    results = Results(tmp_path / "kept.json")
    report = study(capture, StudyOptions(products=("910b",)), results=results)
    assert [standard["name"] for standard in report.standards] == ["mixed-tolerance", NAME]
    outcomes = {row.title: row.result.rounded.outcome for row in report.computed}
    assert outcomes == {"dw dw": "pass", "strict dx": "fail", "call dx": "pass", "call dw": "pass", "call db": "pass"}
    names = {row.title: [verdict.standard for verdict in row.result.rounded.verdicts] for row in report.computed}
    assert names["strict dx"] == ["mixed-tolerance", NAME]
    assert names["call dx"] == ["mixed-tolerance"]
    assert not report.passed
    # kept results have it, too
    assert study(capture, StudyOptions(products=("910b",)), results=Results(tmp_path / "kept.json")).rows == report.rows
    html = tmp_path / "a.html"
    assert (
        main(["precision", str(file), "--product", "910b", "--no-picture", "--no-progress", "--html", str(html)]) == 1
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{NAME} rounded*" in printed
    assert "strict dx on 910b mode 3: share of elements beyond the tolerance" in printed
    assert "FAIL 1 of 2" in printed
    assert NAME in html.read_text(encoding="utf-8")
    # a level that the study has already is not named twice
    twice = load_cases(write_json(tmp_path / "b.json", atk_convolution(standard={"acc": "mixed_tolerance_bm"})))
    both = study(twice.capture, StudyOptions(products=("910b",)))
    assert len(both.standards) == 1
    assert all(len(row.result.rounded.verdicts) == 1 for row in both.computed)

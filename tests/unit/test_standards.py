"""The mixed tolerance: its table, its boundaries, and data whose verdicts are known. What all standards share.

The others are held to a twin in tests/differential/test_precision_standards.py.
"""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from npu_sim.errors import DTypeError, ShapeError
from npu_sim.report.precision import element_errors, measure
from npu_sim.report.standards.mixed_tolerance import MIXED_TOLERANCE
from npu_sim.report.standards.recheck import may_be_rechecked, recheck, rechecked
from npu_sim.report.standards.registry import DEFAULT, STANDARDS, StandardNameError, get_standard
from npu_sim.report.standards.standard import Evidence, Peer
from npu_sim.report.standards.verdict import MATCHED, Check

# Written down a second time from the document, as exponents of two.
TABLE = {
    "fp16": ("FLOAT16", -9, -9, 0.1, np.float16, 10, -14),
    "bf16": ("BFLOAT16", -6, -6, 1.0, ml_dtypes.bfloat16, 7, -126),
    "fp32": ("FLOAT32", -10, -16, 0.01, np.float32, 23, -126),
    "hf32": ("HiFLOAT32", -9, -10, 0.1, np.float32, 11, -126),
}


LIMIT = "elements beyond the limit and 32 ULP"
SPECIALS = "elements that differ in NaN or Inf"


def mixed_tolerance(errors, *, row, golden):
    return MIXED_TOLERANCE.judge(Evidence(errors=errors, row=row, golden=golden))


def meets(verdict):
    return verdict.outcome != "fail"


def naive_verdict(actual, golden, row):
    """Matched elements and elements beyond the limit, in rational arithmetic."""
    _, rtol, atol, limit, _, bits, low = TABLE[row]
    matched = beyond = excused = 0
    for a, g in zip(actual, golden, strict=True):
        error = abs(Fraction(a) - Fraction(g))
        matched += error <= Fraction(2) ** atol + Fraction(2) ** rtol * abs(Fraction(g))
        exponent = max(math.frexp(g)[1] - 1, low) if g else low
        if error > Fraction(limit):
            within = error <= 32 * Fraction(2) ** (exponent - bits)
            excused += within
            beyond += not within
    return matched, beyond, excused


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("scale", [2.0**-12, 1.0, 2.0**9])
def test_mixed_tolerance_random_values_equals_naive_twin(row, scale):
    dtype, bits = TABLE[row][4], TABLE[row][5]
    rng = np.random.default_rng(11)
    golden = rng.normal(size=600) * scale
    noise = rng.normal(size=600) * 2.0 ** rng.integers(-bits - 1, -bits + 9, 600)
    actual = (golden * (1 + noise)).astype(np.float32).astype(dtype)
    errors = element_errors(actual, golden)
    verdict = mixed_tolerance(errors, row=row, golden="original")
    matched, beyond, excused = naive_verdict(actual.astype(np.float64).tolist(), golden.tolist(), row)
    assert (verdict.figure(MATCHED), verdict.figure(LIMIT)) == (matched / 600, beyond)
    assert meets(verdict) == (matched >= 594 and beyond == 0)
    assert (verdict.remark == "ULP") == (verdict.outcome == "pass" and excused > 0)
    assert (verdict.row, verdict.golden) == (TABLE[row][0], "original")
    assert verdict.thresholds == f"rtol 2^{TABLE[row][1]}, atol 2^{TABLE[row][2]}, limit {TABLE[row][3]:g}"


@pytest.mark.parametrize("row", TABLE)
def test_mixed_tolerance_error_at_and_above_the_bound(row):
    # golden 0 leaves atol alone, golden 2^k with 2^k * rtol = atol doubles it: both bounds are exact numbers
    _, rtol, atol, _, dtype, _, _ = TABLE[row]
    wide = {np.float16: np.float16, np.float32: np.float32}.get(dtype, np.float32)
    for golden, bound in [(0.0, 2.0**atol), (2.0 ** (atol - rtol), 2.0 ** (atol + 1))]:
        inside = np.array([golden + bound], wide).astype(dtype)
        assert float(inside[0]) == golden + bound
        outside = (inside.view(np.uint16 if inside.itemsize == 2 else np.uint32) + 1).view(inside.dtype)
        for value, passed in [(inside, True), (outside, False)]:
            verdict = mixed_tolerance(element_errors(value, np.array([golden])), row=row, golden="rounded")
            assert meets(verdict) is passed


@pytest.mark.parametrize(("wrong", "passed"), [(1, True), (2, False)])
def test_mixed_tolerance_99_percent_must_match(wrong, passed):
    golden = np.ones(100)
    actual = np.ones(100, np.float32)
    actual[:wrong] += np.float32(0.005)  # beyond the tolerance, within the limit
    verdict = mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded")
    assert meets(verdict) is passed
    assert verdict.figure(LIMIT) == 0


def test_mixed_tolerance_one_element_beyond_the_limit_fails():
    golden = np.ones(1000)
    actual = np.ones(1000, np.float32)
    actual[0] += np.float32(0.02)
    verdict = mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded")
    assert (verdict.outcome, verdict.figure(MATCHED), verdict.figure(LIMIT)) == ("fail", 0.999, 1)


@pytest.mark.parametrize(("ulps", "passed"), [(32, True), (33, False)])
def test_mixed_tolerance_large_value_is_excused_by_32_ulp_only(ulps, passed):
    golden = np.array([2.0**20])  # one float32 ULP is 0.125
    actual = (golden + ulps * 0.125).astype(np.float32)
    verdict = mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded")
    assert (verdict.outcome, verdict.remark, verdict.figure(MATCHED)) == (
        ("pass", "ULP", 1.0) if passed else ("fail", "", 1.0)
    )


def test_mixed_tolerance_hidden_special_fails_and_shared_special_passes():
    golden = np.ones(1000)
    golden[:2] = np.nan, np.inf
    actual = golden.astype(np.float32)
    assert meets(mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded"))
    for index, value in [(0, 1.0), (1, -np.inf), (1, 3e38), (5, np.nan), (5, np.inf)]:
        wrong = actual.copy()
        wrong[index] = value
        verdict = mixed_tolerance(element_errors(wrong, golden), row="fp32", golden="rounded")
        found = (verdict.outcome, verdict.label, verdict.figure(SPECIALS), verdict.figure(MATCHED))
        assert found == ("fail", "NaN/Inf", 1, 0.999), (index, value)


@pytest.mark.parametrize("row", TABLE)
def test_mixed_tolerance_zero_match_ratio_is_the_matched_ratio_of_zeros(row):
    _, _, atol, _, dtype, _, _ = TABLE[row]
    golden = np.random.default_rng(12).normal(size=500) * 2.0**atol
    golden[:4] = 0.0, np.inf, np.nan, -np.inf
    of_result, of_zeros = (
        mixed_tolerance(element_errors(actual, golden), row=row, golden="original")
        for actual in (golden.astype(np.float32).astype(dtype), np.zeros(500, dtype))
    )
    assert 0.5 < of_result.zero_match_ratio < 0.9
    assert of_result.zero_match_ratio == of_zeros.zero_match_ratio == (round(of_zeros.figure(MATCHED) * 500) - 1) / 496


def test_empty_result_is_void():
    verdict = mixed_tolerance(element_errors(np.zeros(0, np.float32), np.zeros(0)), row="fp32", golden="rounded")
    assert (verdict.outcome, verdict.void_cause, verdict.figure(MATCHED)) == ("void", "empty", 1.0)


def serial_product(a, b):
    """C = A B with one float32 rounding per k, ascending: a correct float32 kernel without a deep accumulator."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        c += a[:, k : k + 1] * b[k : k + 1]
    return c


def to_hf32(values):
    """Nearest of 11 stored mantissa bits, ties away from zero (the data has none that matter)."""
    return ((values.view(np.uint32) + np.uint32(1 << 11)) & np.uint32(0xFFFFF000)).view(np.float32)


def test_mixed_tolerance_products_of_6272_terms_give_the_known_verdicts():
    """K = 6,272, 64 x 144, what a weight gradient of a 3x3 layer sums.

    A correct float32 chain passes on U[-5, 5]. HF32 operands match 94.8 % against unrounded inputs and all against
    rounded ones. On N(1, 1) every element matches, yet the largest error exceeds 1e-2 and 32 ULP.
    """
    rng = np.random.default_rng(0)
    a = rng.uniform(-5, 5, (64, 6272)).astype(np.float32)
    b = rng.uniform(-5, 5, (6272, 144)).astype(np.float32)
    golden = a.astype(np.float64) @ b.astype(np.float64)
    result = serial_product(a, b)
    assert meets(mixed_tolerance(element_errors(result, golden), row="fp32", golden="original"))

    a_hf32, b_hf32 = to_hf32(a), to_hf32(b)
    result = serial_product(a_hf32, b_hf32)
    verdict = mixed_tolerance(element_errors(result, golden), row="hf32", golden="original")
    assert not meets(verdict)
    assert 0.93 < verdict.figure(MATCHED) < 0.965
    rounded = a_hf32.astype(np.float64) @ b_hf32.astype(np.float64)
    assert meets(mixed_tolerance(element_errors(result, rounded), row="hf32", golden="rounded"))

    a = rng.normal(1, 1, (64, 6272)).astype(np.float32)
    b = rng.normal(1, 1, (6272, 144)).astype(np.float32)
    errors = element_errors(serial_product(a, b), a.astype(np.float64) @ b.astype(np.float64))
    verdict = mixed_tolerance(errors, row="fp32", golden="original")
    assert (verdict.outcome, verdict.label, verdict.figure(MATCHED)) == ("fail", "limit", 1.0)
    scaled = [
        mixed_tolerance(
            element_errors(*(np.ldexp(one, verdict.least_scale + more) for one in pair)), row="fp32", golden=""
        )
        for more in (0, 1)
        for pair in [(errors.actual.astype(np.float32), errors.golden)]
    ]
    assert [one.outcome for one in scaled] == ["pass", "fail"]
    wrong = errors.golden.astype(np.float32)
    wrong[0] = 2 * np.abs(wrong).max()
    broken = mixed_tolerance(element_errors(wrong, errors.golden), row="fp32", golden="original")
    assert (broken.label, broken.least_scale) == ("limit", None), "a wrong element is not the scale's"
    assert 1e-2 < measure(errors).max_abs < 6e-2
    assert measure(errors).max_ulp > 32


def test_mixed_tolerance_of_zeros_is_judged_as_a_result_of_zeros_beside_nan_and_inf_would_be():
    rng = np.random.default_rng(12)
    for row in TABLE:
        dtype = np.float16 if row == "fp16" else np.float32
        for scale in (2.0**-30, 2.0**-11, 2.0**-7, 1.0):
            golden = rng.normal(size=200) * scale
            golden[:2] = rng.choice([0.0, np.nan, np.inf, 2.0**-5, 3.0], 2)
            verdict = mixed_tolerance(element_errors(golden.astype(dtype), golden), row=row, golden="rounded")
            nothing_else = np.where(np.isfinite(golden), 0.0, golden).astype(dtype)
            zeros = mixed_tolerance(element_errors(nothing_else, golden), row=row, golden="rounded")
            matched, nothing = round(zeros.figure(MATCHED) * 200), int(np.sum((golden == 0) | ~np.isfinite(golden)))
            assert verdict.zero_match_ratio == (matched - nothing) / (200 - nothing)
            assert (verdict.void_cause in ("zeros", "golden")) == (meets(zeros) and meets(verdict))


@pytest.mark.parametrize("overflow", ["inf_nan", "saturate"])
@pytest.mark.parametrize("name", STANDARDS)
def test_zeros_beside_nothing_but_nan_and_inf_are_void(name, overflow):
    """No element is both finite and another number than 0: whatever the sums are, the same comes out."""
    golden = np.zeros(60)
    golden[:40:2], golden[1:40:2] = np.nan, np.tile([np.inf, -np.inf], 10)
    made = golden.astype(np.float32)
    if overflow == "saturate":
        made = np.nan_to_num(made, nan=0.0)
    errors = element_errors(made, golden, overflow=overflow)
    peer = Peer(name="a CPU", errors=errors)
    verdict = STANDARDS[name].judge(Evidence(errors=errors, row="fp32", golden="rounded", peer=peer))
    assert (verdict.outcome, verdict.void_cause, verdict.zero_match_ratio) == ("void", "zeros", None)
    assert verdict.least_scale is None, "no scale makes another number of 0"
    # a peer's standards compare sums over all elements
    if not STANDARDS[name].needs_peer:
        one = element_errors(np.where(np.arange(60) == 50, 3.0, made).astype(np.float32), golden, overflow=overflow)
        wrong = STANDARDS[name].judge(Evidence(errors=one, row="fp32", golden="rounded"))
        assert wrong.outcome == "fail", "an element that should be 0"


@pytest.mark.parametrize("name", [name for name, standard in STANDARDS.items() if not standard.needs_peer])
def test_least_scale_is_the_first_power_of_two_that_zeros_do_not_pass(name):
    rng = np.random.default_rng(7)
    voids = 0
    for scale in (2.0**-40, 2.0**-25, 2.0**-17, 1.0):
        golden = rng.normal(size=300) * scale
        golden[0] = 0.0
        # a peer that another standard needs changes nothing
        verdict = STANDARDS[name].judge(evidence(golden, golden, peer=as_peer(golden.astype(np.float32), golden)))
        passing = [
            exponent
            for exponent in range(65)
            if meets(STANDARDS[name].judge(evidence(np.zeros(300), golden * 2.0**exponent)))
        ]
        if verdict.void_cause != "zeros":
            assert verdict.least_scale is None
            continue
        voids += 1
        assert passing == list(range(len(passing)))
        assert verdict.least_scale == (len(passing) if len(passing) < 65 else None)
    zeros = STANDARDS[name].judge(evidence(np.zeros(8), np.zeros(8)))
    assert zeros.least_scale is None
    if name in ("mixed-tolerance", "single-benchmark"):
        assert voids


def evidence(actual, golden, *, peer=None, row="fp32", **options):
    errors = element_errors(np.asarray(actual, np.float32), np.asarray(golden, np.float64))
    return Evidence(errors=errors, row=row, golden="rounded", peer=peer, **options)


def as_peer(values, golden, **options):
    return Peer(name="a CPU", errors=element_errors(np.asarray(values), np.asarray(golden, np.float64), **options))


def test_registry_names_are_those_of_the_standards_and_the_current_one_is_the_default():
    assert all(standard.name == name for name, standard in STANDARDS.items())
    assert next(iter(STANDARDS)) == DEFAULT == "mixed-tolerance"
    assert get_standard("torch-npu") is STANDARDS["torch-npu"]
    with pytest.raises(StandardNameError, match=r"^Standard must be one of mixed-tolerance, .*, not mixed$"):
        get_standard("mixed")


@pytest.mark.parametrize("name", STANDARDS)
def test_verdict_names_standard_row_golden_and_peer(name):
    golden = np.array([1.0, -2.0, 3.0, 0.5])
    peer = as_peer(golden.astype(np.float32), golden)
    standard = STANDARDS[name]
    for row in ("fp32", "hf32"):
        verdict = standard.judge(evidence(golden, golden, peer=peer, row=row))
        assert (verdict.outcome, verdict.void_cause) == ("pass", None)
        assert (verdict.standard, verdict.version, verdict.golden) == (name, standard.version, "rounded")
        assert verdict.peer == ("a CPU" if standard.needs_peer else "")
        assert verdict.row in ("FLOAT32", "HiFLOAT32" if row == "hf32" else "")
        assert verdict.thresholds
        assert ", must be " in verdict.deciding
    # the rule is met and says nothing
    zeros, nan = np.zeros(4), np.array([np.nan])
    for changed, cause in (
        (evidence(golden, golden, peer=peer, inputs_lost=True), "inputs"),
        (evidence(zeros, zeros, peer=as_peer(zeros.astype(np.float32), zeros)), "zeros"),
        (evidence(nan, nan, peer=as_peer(nan.astype(np.float32), nan)), "golden"),
    ):
        verdict = standard.judge(changed)
        assert (verdict.outcome, verdict.void_cause, verdict.remark) == ("void", cause, "")
    if standard.needs_peer:
        verdict = standard.judge(evidence(golden, golden))
        assert (verdict.outcome, verdict.void_cause, verdict.label) == ("void", "peer", "peer")
    assert standard.judge(evidence([np.nan, 2, 3, 4], golden, peer=peer, inputs_lost=True)).outcome == "fail"


def test_warning_of_the_precheck_is_a_pass_that_says_so():
    golden = np.full(100, 7.0)
    actual = (golden * (1 + 5e-4)).astype(np.float32)
    verdict = STANDARDS["msprobe-precheck"].judge(evidence(actual, golden))
    assert (verdict.outcome, verdict.remark, verdict.label) == ("pass", "warning", "0.0001")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "x = 0.5, must be >= 0.99"),
        (0.98999, "x = 0.98999, must be >= 0.99"),
        (0.989999999, "x = 0.989999999, must be >= 0.99"),
        (0.99, "x = 0.99, must be >= 0.99"),
        (float("nan"), "x = nan, must be >= 0.99"),
    ],
)
def test_text_of_a_check_has_the_digits_that_tell_figure_and_threshold_apart(value, text):
    check = Check(name="x", label="x", value=value, relation=">=", threshold=0.99)
    assert (check.text, check.holds) == (text, value >= 0.99)


def test_evidence_that_does_not_fit_is_refused():
    golden = np.ones(2)
    with pytest.raises(DTypeError, match=r"^The row must be one of fp16, bf16, fp32, hf32, not fp8$"):
        evidence(golden, golden, row="fp8")
    with pytest.raises(DTypeError, match=r"^The peer must be fp32 with the overflow inf_nan, not fp16 with inf_nan"):
        evidence(golden, golden, peer=as_peer(golden.astype(np.float16), golden))
    with pytest.raises(DTypeError, match=r"not fp32 with saturate \(a CPU\)$"):
        evidence(golden, golden, peer=as_peer(golden.astype(np.float32), golden, overflow="saturate"))
    with pytest.raises(ShapeError, match=r"^The peer must have the golden of the result, not another"):
        evidence(golden, golden, peer=as_peer(golden.astype(np.float32), golden * 2))


@pytest.mark.parametrize(
    ("ratios", "words"), [([], r"of shape \(0,\)"), ([[1.0]], r"of shape \(1, 1\)"), ([1, np.nan], "with NaN")]
)
def test_recheck_of_no_ratios_is_refused(ratios, words):
    with pytest.raises(ShapeError, match=f"^The ratios must be a sequence of numbers, not {words}$"):
        recheck(ratios)


@pytest.mark.parametrize(("runs", "median", "outcome", "label"), [
    (200, 0.5, "pass", "recheck"), (200, 1.5, "fail", "recheck"), (199, 0.5, "fail", "runs"), (0, 0.5, "fail", "runs"),
])  # fmt: skip
def test_second_look_at_a_failed_double_benchmark(runs, median, outcome, label):
    golden = np.array([1.0, 2.0])
    failed = STANDARDS["double-benchmark-l2"].judge(
        evidence(golden * 1.001, golden, peer=as_peer(golden.astype(np.float32), golden))
    )
    assert (failed.outcome, may_be_rechecked(failed)) == ("fail", True)
    ratios = {name: [median] * runs for name in ("MARE", "MERE", "RMSE")} if runs else {}
    again = rechecked(failed, ratios)
    assert (again.outcome, again.label, again.remark) == (outcome, label, "recheck" if outcome == "pass" else "")
    assert again.checks[: len(failed.checks)] == failed.checks
    passed = STANDARDS["double-benchmark-l2"].judge(
        evidence(golden, golden, peer=as_peer(golden.astype(np.float32), golden))
    )
    single = STANDARDS["single-benchmark"].judge(evidence(golden * 2, golden))
    special = STANDARDS["double-benchmark-l2"].judge(
        evidence([np.nan, 5], golden, peer=as_peer(golden.astype(np.float32), golden))
    )
    assert not any(map(may_be_rechecked, (passed, single, special)))


# Written down a second time from the sources: how a figure must stand to which number, in fp16, bf16, fp32 and hf32.
SPECIAL = (SPECIALS, "<=", (0, 0, 0, 0))
SINGLE = (2.0**-10, 2.0**-7, 2.0**-13, 2.0**-11)
MIXED = [(MATCHED, ">=", (0.99,) * 4), (LIMIT, "<=", (0,) * 4), SPECIAL]
BOUNDS = [(f"share of {kind} elements beyond the bound", "<=", (0,) * 4) for kind in ("NaN or Inf", "normal", "small")]
RELATIONS = {
    "mixed-tolerance": MIXED,
    "mixed-tolerance-draft": MIXED,
    "single-benchmark": [("MERE", "<", SINGLE), ("MARE", "<", tuple(10 * one for one in SINGLE)), SPECIAL],
    **{
        f"double-benchmark-{level}": [
            *((f"{kind} ratio", "<=", (most,) * 4) for kind, most in limits.items()),
            ("ratio of wrong small elements", "<=", (2,) * 4),
            SPECIAL,
        ]
        for level, limits in (
            ("l0", {"MARE": 10, "MERE": 2, "RMSE": 2}),
            ("l1", {"MARE": 5, "MERE": 1.5, "RMSE": 1.5}),
            ("l2", {"MARE": 2, "MERE": 1.2, "RMSE": 1.2}),
        )
    },
    "msprobe-thousandth": [("share of relative errors below 0.001", ">=", (0.999,) * 4), SPECIAL],
    "msprobe-benchmark": [
        ("ratio of largest relative errors", "<=", (10,) * 4),
        ("ratio of mean relative errors", "<=", (2,) * 4),
        ("RMSE ratio", "<=", (2,) * 4),
        ("ratio of shares of wrong small elements", "<=", (2,) * 4),
        SPECIAL,
    ],
    "msprobe-absolute": BOUNDS,
    "msprobe-accumulative": [*BOUNDS, ("error balance", "<=", (2.0**-20, 2.0**-7, 2.0**-14, 2.0**-14))],
    "op-test-frame": [
        ("share of elements beyond the bound", "<=", (1e-3, 1e-3, 1e-4, 1e-4)),
        ("elements far beyond the bound", "<=", (0,) * 4),
        SPECIAL,
    ],
    "ttk-close": [("share of elements beyond atol + rtol |golden|", "<=", (1e-3, 1e-3, 1e-4, 1e-4)), SPECIAL],
    "torch-npu": [
        ("share of elements beyond the relative bound", "<=", (1e-3, 1e-4, 1e-4, 1e-4)),
        ("share of elements beyond the absolute bound", "<=", (1e-3, 1e-4, 1e-4, 1e-4)),
        SPECIAL,
    ],
    "ascendc-sample": [("share of elements beyond atol + rtol |golden|", "<=", (1e-4,) * 4), SPECIAL],
}
BY_ROW = {
    ("msprobe-ulp", "fp16"): [("share of errors above 1 ULP", "<", 1e-3)],
    ("msprobe-ulp", "bf16"): [("share of errors above 1 ULP", "<", 1e-3)],
    ("msprobe-ulp", "fp32"): [("mean ULP", "<", 64), ("share of errors above 32 ULP", "<", 0.05)],
    ("msprobe-precheck", "fp16"): [
        ("largest error", "<", 1e-3),
        ("share of relative errors below 0.01", ">", 1 - 0.01),
    ],
    ("msprobe-precheck", "bf16"): [("cosine", ">", 0.99), ("share of relative errors below 0.001", ">", 1 - 0.001)],
    ("msprobe-precheck", "fp32"): [("share of relative errors below 0.0001", ">", 1 - 0.0001)],
    ("msprobe-dump", "fp32"): [("cosine", ">=", 0.99), ("cosine", ">=", 0.9), ("largest error", "<=", 1.0)],
}


def checks_of(name, row):
    """The checks of a result that is a little wrong, in every format."""
    dtype = TABLE[row][4]
    golden = np.array([1.0, 2.0, 3.0, 4.0])
    actual, peer = (np.asarray(golden * factor, np.float32).astype(dtype) for factor in (1.01, 1.0))
    errors = element_errors(actual, golden)
    verdict = STANDARDS[name].judge(Evidence(errors=errors, row=row, golden="", peer=as_peer(peer, golden)))
    return [(check.name, check.relation, check.threshold) for check in verdict.checks]


@pytest.mark.parametrize("name", STANDARDS)
def test_every_figure_stands_to_its_threshold_as_the_source_says(name):
    for place, row in enumerate(TABLE):
        found = checks_of(name, row)
        if name in RELATIONS:
            assert found == [(check, relation, numbers[place]) for check, relation, numbers in RELATIONS[name]]
        for expected in BY_ROW.get((name, row), ()):
            assert expected in found
    assert name in RELATIONS or name in {standard for standard, _ in BY_ROW}

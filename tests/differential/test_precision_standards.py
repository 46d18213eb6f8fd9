"""Every precision standard against its twin: figures to 1e-9, verdicts all, on both sides of every threshold."""

import math
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from npu_sim.report.precision import element_errors
from npu_sim.report.standards import recheck as recheck_module
from npu_sim.report.standards.recheck import recheck
from npu_sim.report.standards.registry import STANDARDS
from npu_sim.report.standards.standard import Evidence, Peer
from tests.oracles import standards as twin

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "hf32": np.float32}
BITS = {row: bits for row, (bits, _) in twin.FORMATS.items()}
SPECIALS = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300]


def cast(values, row):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float64).astype(np.float32).astype(DTYPES[row])


def judged(name, case):
    actual, golden, peer, row, overflow = case
    own = element_errors(actual, golden, overflow=overflow)
    other = None if peer is None else Peer(name="peer", errors=element_errors(peer, golden, overflow=overflow))
    return STANDARDS[name].judge(Evidence(errors=own, row=row, golden="golden", peer=other))


def expected(name, case):
    actual, golden, peer, row, overflow = case
    lists = [None if array is None else array.astype(np.float64).tolist() for array in (actual, golden, peer)]
    return twin.judge(name, *lists, row, overflow)


def check(name, case):
    """Compare one case; return what decided it."""
    verdict = judged(name, case)
    figures, outcome = expected(name, case)
    assert (verdict.outcome, verdict.void_cause) == outcome, (verdict.deciding, case)
    found = {one.name: one.value for one in verdict.checks}
    for figure, value in figures.items():
        near = math.isclose(found[figure], value, rel_tol=1e-9, abs_tol=0.0)
        assert near or (math.isnan(value) and math.isnan(found[figure])), (figure, found[figure], value)
    return verdict.outcome, verdict.label


def golden_of(kind, count, low, rng):
    match kind:
        case "normal":
            return rng.normal(size=count)
        case "uniform":
            return rng.uniform(-5, 5, count)
        case "wide":
            return rng.normal(size=count) * 2.0 ** rng.integers(-22, 4, count)
        case "subnormal":
            return np.ldexp(rng.normal(size=count), low - int(rng.integers(0, 6)))
        case "positive":
            return rng.normal(100, 20, count)
        case "zeros":
            return np.zeros(count)
    return np.full(count, rng.choice(SPECIALS))


KINDS = dict(normal=0.2, uniform=0.2, wide=0.25, subnormal=0.1, positive=0.15, zeros=0.05, specials=0.05)


@cache
def random_cases():
    """Results of any quality beside any golden, with and without NaN and Inf."""
    cases = []
    rng = np.random.default_rng(2026)
    for number in range(540):
        row = ("fp16", "bf16", "fp32", "hf32")[number % 4]
        overflow = ("inf_nan", "saturate")[number // 4 % 2]
        count = int(rng.choice([0, 1, 2, 3, 17, 100, 101]))
        golden = golden_of(rng.choice(list(KINDS), p=list(KINDS.values())), count, twin.FORMATS[row][1], rng)
        results = []
        for _ in range(2):
            noise = rng.normal(size=count) * 2.0 ** (-BITS[row] + rng.integers(-4, 8)) * rng.integers(0, 2)
            results.append(cast(golden * (1 + noise) + rng.normal(size=count) * rng.choice([0, 1e-9, 1e-5]), row))
        if count and rng.random() < 0.3:
            for array in (golden, *results):
                if rng.random() < 0.6:
                    places = rng.integers(0, count, 2)
                    special = float(rng.choice(np.array(SPECIALS)))
                    array[places] = special if array is golden else cast(special, row)
            if rng.random() < 0.5:
                results[0][:] = np.where(np.isfinite(golden), results[0], cast(golden, row))
        cases.append((results[0], golden, None if rng.random() < 0.05 else results[1], row, overflow))
    return cases


@pytest.mark.parametrize("name", twin.RULES)
def test_standard_random_results_get_the_twins_figures_and_verdict(name):
    seen = {check(name, case)[0] for case in random_cases()}
    assert seen == {"pass", "fail", "void"}


# A knob t moves the golden, which is a float64, off results that the format has: so the twin can find two neighbouring
# doubles between which its verdict changes, and the standard must change there too.
def moved(base, count, wrong, row):
    def case(t):
        golden = np.full(count, float(base))
        actual = cast(golden, row)
        golden[:wrong] += t * np.resize([1.0, -1.0], count)[:wrong]
        return actual, golden, cast(golden, row), row, "inf_nan"

    return case


def between(base, gap, row):
    """The golden goes from the result to the peer."""

    def case(t):
        actual, peer = cast([base], row), cast([base + gap], row)
        golden = actual.astype(np.float64) + t * (peer.astype(np.float64) - actual.astype(np.float64))
        return actual, golden, peer, row, "inf_nan"

    return case


def turned(row):
    """Two vectors and the angle between them, which one element in 200 makes."""

    def case(t):
        golden = np.zeros(200)
        golden[0] = 8.0
        actual = cast(golden, row)
        golden[1] = 8.0 * t
        return actual, golden, cast(golden, row), row, "inf_nan"

    return case


def knobs(row):
    for base in (0.0, 2.0**-12, 0.75, 1.0, 96.0, 1024.0):
        for count, wrong in ((1, 1), (2, 2), (100, 1)):
            if count < 100 or base == 1.0:
                yield moved(base, count, wrong, row), [2.0**k for k in range(-36, 12, 2)]
    if row == "fp16":
        # one element of a thousand may be off, but not far off
        yield moved(1.0, 1000, 1, row), [2.0**-6, 0.5]
    for base, gap in ((1.0, 0.25), (64.0, 16.0), (0.0, 2.0**-9), (2.0**-9, 2.0**-4), (0.0, 1.0)):
        yield between(base, gap, row), np.linspace(0.01, 1, 40).tolist()
    yield turned(row), np.linspace(0.01, 3, 12).tolist()


def boundaries(name, case, grid):
    """Yield both sides of each change of the twin's outcome along the grid."""
    outcomes = [expected(name, case(t))[1] for t in grid]
    for low, high, before, after in zip(grid, grid[1:], outcomes, outcomes[1:], strict=False):
        if before == after:
            continue
        while (middle := low + (high - low) / 2) not in (low, high):
            if expected(name, case(middle))[1] == before:
                low = middle
            else:
                high = middle
        yield low
        yield high


DECIDE = {
    "mixed-tolerance": {"matched", "limit"},
    "mixed-tolerance-draft": {"matched", "limit"},
    "single-benchmark": {"MERE", "MARE"},
    "double-benchmark-l0": {"MARE", "MERE", "RMSE"},
    "double-benchmark-l1": {"MARE", "MERE", "RMSE"},
    "double-benchmark-l2": {"MARE", "MERE", "RMSE"},
    "msprobe-precheck": {"cosine", "0.01", "0.001"},
    "msprobe-thousandth": {"0.001"},
    "msprobe-benchmark": {"max rel", "mean rel", "RMSE"},
    "msprobe-ulp": {"ULP"},
    "msprobe-absolute": {"rel", "small"},
    "msprobe-accumulative": {"rel", "small"},
    "msprobe-dump": {"cosine", "max abs"},
    "op-test-frame": {"share", "far"},
    "ttk-close": {"share"},
    "torch-npu": {"share"},
    "ascendc-sample": {"share"},
}


@pytest.mark.parametrize("name", twin.RULES)
def test_standard_both_sides_of_every_threshold(name):
    decided, count = set(), 0
    for row in DTYPES:
        for case, grid in knobs(row):
            for t in boundaries(name, case, grid):
                outcome, label = check(name, case(t))
                count += 1
                if outcome == "fail":
                    decided.add(label)
    assert decided >= DECIDE[name], count
    assert count >= 20


def counted_case(row, count, wrong, far, *, peer_wrong=0, base=1.0, up=True):
    """``wrong`` elements of the result and ``peer_wrong`` of the peer are ``far`` off; the others are exact."""
    golden = np.full(count, base)
    actual, peer = cast(golden, row), cast(golden, row)
    signs = np.where(np.arange(count) % 2, 1, 1 if up else -1)
    actual[:wrong] = cast((golden + far * signs)[:wrong], row)
    peer[:peer_wrong] = cast((golden + far)[:peer_wrong], row)
    return actual, golden, peer, row, "inf_nan"


@pytest.mark.parametrize("name", twin.RULES)
def test_standard_each_number_of_wrong_elements(name):
    """Shares and counts: one element more decides."""
    outcomes = set()
    for row in DTYPES:
        for count, numbers in ((100, (0, 1, 2)), (400, (0, 1, 3, 4, 5, 20, 21))):
            for wrong in numbers:
                for far, up in ((2.0**-8, True), (2.0**-5, False), (40.0, True)):
                    outcomes.add(check(name, counted_case(row, count, wrong, far, up=up))[0])
        for wrong in range(8):
            for peer_wrong in range(4):
                for base in (2.0**-13, 2.0**-16, 2.0**-21):
                    case = counted_case(row, 30, wrong, base, peer_wrong=peer_wrong, base=base)
                    outcomes.add(check(name, case)[0])
    assert {"pass", "fail"} <= outcomes


def test_double_benchmark_each_triple_of_special_values():
    """Result, golden and peer each NaN, an infinity or a number, with infinities compared and not."""
    values = [np.nan, np.inf, -np.inf, 1.0, 2.0]
    for overflow in ("inf_nan", "saturate"):
        for row in ("fp16", "fp32"):
            for a in values:
                for g in values:
                    for b in values:
                        arrays = [np.array([3.0, value]) for value in (a, g, b)]
                        case = (cast(arrays[0], row), arrays[1], cast(arrays[2], row), row, overflow)
                        for name in twin.RULES:
                            check(name, case)


@pytest.mark.parametrize("runs", [1, 199, 200, 201, 333])
@pytest.mark.parametrize("middle", [0.9, 0.97, 1.0, 1.03, 1.1])
def test_recheck_equals_the_twin(monkeypatch, runs, middle):
    rng = np.random.default_rng(runs)
    ratios = np.exp(rng.normal(size=runs) * 0.3) * middle
    drawn = np.random.default_rng(5).integers(0, runs, (2000, runs))
    outcome, lower, upper = twin.recheck(ratios.tolist(), drawn.tolist())
    # in as many steps as memory allows, with the same samples
    for at_once in (1 << 20, 7 * runs):
        monkeypatch.setattr(recheck_module, "_SAMPLED_AT_ONCE", at_once)
        found = recheck(ratios, seed=5)
        assert (found.outcome, found.runs) == (outcome, runs)
        assert (lower is None and math.isnan(found.lower)) or (found.lower, found.upper) == (lower, upper)


@pytest.mark.parametrize(("value", "outcome"), [(1 - 2.0**-53, "pass"), (1.0, "pass"), (1 + 2.0**-52, "fail")])
def test_recheck_fails_where_the_interval_is_above_1(value, outcome):
    found = recheck(np.full(200, value))
    assert (found.outcome, found.lower, found.upper, found.median) == (outcome, value, value, value)
    assert recheck(np.full(199, value)).outcome == "fail"

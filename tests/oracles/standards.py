"""The precision standards a second time, element by element in plain Python: figures, and whether each rule is met.

Written from the documents, with tables of its own. Everything is a Python float (IEEE double), sums are exact
(``math.fsum``), products with powers of two as well (``math.ldexp``).
"""

import math
from fractions import Fraction
from functools import cache

INF = math.inf
# format: stored mantissa bits, exponent of the smallest normal number
FORMATS = {"fp16": (10, -14), "bf16": (7, -126), "fp32": (23, -126), "hf32": (11, -126)}
STORED = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "hf32": "fp32"}

MIXED = {"fp16": (-9, -9, 0.1), "bf16": (-6, -6, 1.0), "fp32": (-10, -16, 0.01), "hf32": (-9, -10, 0.1)}
MIXED_DRAFT = {"fp16": (-10, -10, 0.1), "bf16": (-7, -7, 0.1), "fp32": (-13, -13, 0.01), "hf32": (-10, -10, 0.1)}
SINGLE = {"fp16": -10, "bf16": -7, "fp32": -13, "hf32": -11}
DOUBLE_SMALL = {"fp16": (-11, -16), "bf16": (-8, -16), "fp32": (-14, -30), "hf32": (-12, -28)}
DOUBLE_LIMITS = {"l0": (10, 2, 2), "l1": (5, 1.5, 1.5), "l2": (2, 1.2, 1.2)}
EPS = {"fp16": 2.0**-23, "bf16": 2.0**-8, "fp32": 2.0**-52}
FLOOR = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-14}


@cache
def largest_of(name):
    bits, low = FORMATS[STORED[name]]
    return float((2 - Fraction(1, 2**bits)) * Fraction(2) ** (1 - low))


@cache
def overflow_of(name):
    """The least value that rounds to infinity."""
    bits, low = FORMATS[STORED[name]]
    return largest_of(name) + float(Fraction(2) ** (1 - low) / 2 ** (bits + 1))


def golden_in(value, name, overflow):
    """The golden as the format of the result can hold it."""
    most = largest_of(name)
    if overflow == "saturate":
        if math.isnan(value):
            return 0.0
        return math.copysign(most, value) if abs(value) > most else value
    return math.copysign(INF, value) if abs(value) >= overflow_of(name) else value


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def finite(*values):
    return all(map(math.isfinite, values))


def ulp_exponent(g, low):
    if g == 0:
        return low
    exponent = math.frexp(g)[1] - 1
    assert 1 <= math.ldexp(abs(g), -exponent) < 2
    return max(exponent, low)


def mean(values):
    return math.fsum(values) / len(values) if values else 0.0


class Pair:
    """A result beside its golden: what every rule looks at."""

    def __init__(self, actual, golden, row, overflow):
        self.row, self.stored, self.n = row, STORED[row], len(actual)
        self.a, self.g = list(actual), [golden_in(value, row, overflow) for value in golden]
        self.overflow = overflow
        self.pairs = list(zip(self.a, self.g, strict=True))
        self.error = [abs(a - g) if finite(a, g) else 0.0 if same(a, g) else INF for a, g in self.pairs]
        self.mismatches = sum(error == INF for error in self.error)
        self.special = [not (finite(raw) and finite(g)) for raw, g in zip(golden, self.g, strict=True)]

    def size(self, i):
        return abs(self.g[i]) if finite(self.g[i]) else 0.0

    def both_finite(self):
        return [i for i, (a, g) in enumerate(self.pairs) if finite(a, g)]


def mixed(p, _, table=MIXED):
    rtol, atol, limit = table[p.row]
    bits, low = FORMATS[p.row]
    matched = beyond = 0
    for i in range(p.n):
        e = p.error[i]
        matched += e == 0 or (finite(e) and e <= 2.0**atol + 2.0**rtol * abs(p.g[i]))
        if e > limit:
            ulps = e if e == INF else math.ldexp(e, bits - ulp_exponent(p.g[i], low))
            beyond += not ulps <= 32
    ratio = matched / p.n if p.n else 1.0
    figures = {"matched ratio": ratio, "elements beyond the limit and 32 ULP": beyond}
    return figures, ratio >= 0.99 and not beyond and not p.mismatches


def mixed_draft(p, peer):
    return mixed(p, peer, MIXED_DRAFT)


def single(p, _):
    t = 2.0 ** SINGLE[p.row]
    r = [p.error[i] / (abs(p.g[i]) + 1e-7) for i in p.both_finite()]
    mere, mare = mean(r), max(r, default=0.0)
    return {"MERE": mere, "MARE": mare}, mere < t and mare < 10 * t and not p.mismatches


def double(level):
    def rule(p, peer):
        small_value, small_error = (2.0**k for k in DOUBLE_SMALL[p.row])
        large, small, wrong_specials = [], [], 0
        for i in range(p.n):
            a, b, g = p.a[i], peer.a[i], p.g[i]
            if finite(a, b, g):
                (small if abs(g) < small_value else large).append(i)
            elif p.overflow == "saturate" and (math.isinf(a) or math.isinf(b)):
                continue
            elif not same(a, b) and (finite(g) or not same(a, g)):
                wrong_specials += 1

        def metrics(one):
            r = [one.error[i] / (abs(one.g[i]) + 1e-7) for i in large]
            return max(r), mean(r), math.sqrt(mean([one.error[i] * one.error[i] for i in large]))

        figures, passes = {}, not wrong_specials
        if large:
            limits = DOUBLE_LIMITS[level]
            for name, x, y, limit in zip(("MARE", "MERE", "RMSE"), metrics(p), metrics(peer), limits, strict=True):
                ratio = 1.0 if x == 0 and y == 0 else x / max(y, small_value)
                figures[f"{name} ratio"] = ratio
                passes = passes and ratio <= limit
        counts = [sum(one.error[i] > small_error for i in small) for one in (p, peer)]
        figures["ratio of wrong small elements"] = counts[0] / max(counts[1], 1)
        return figures, passes and figures["ratio of wrong small elements"] <= 2

    return rule


def relative(p):
    return [p.error[i] / (p.size(i) + EPS[p.stored]) for i in range(p.n)]


def cosine(p):
    where = p.both_finite()
    a, g = [p.a[i] for i in where], [p.g[i] for i in where]
    most_a, most_g = max(map(abs, a), default=0.0), max(map(abs, g), default=0.0)
    zero_a, zero_g = most_a <= 2.0**-52, most_g <= 2.0**-52
    if len(where) < 2 or (zero_a and zero_g):
        return 1.0
    if zero_a or zero_g:
        return 0.0
    a, g = [x / most_a for x in a], [x / most_g for x in g]
    dot = math.fsum(x * y for x, y in zip(a, g, strict=True))
    norms = math.fsum(x * x for x in a) * math.fsum(x * x for x in g)
    return max(-1.0, min(1.0, dot / math.sqrt(norms)))


def share_below(p, bound):
    return sum(r < bound for r in relative(p)) / p.n if p.n else 1.0


def precheck(p, _):
    cos, most = cosine(p), max(p.error, default=0.0)
    if p.mismatches or not cos > 0.99:
        return {"cosine": cos}, False
    figures = {"cosine": cos, "largest error": most}
    if most < 0.001:
        return figures, True
    needed, better = (0.001, 0.0001) if p.stored == "fp32" else (0.01, 0.001)
    labels = {0.01: "0.01", 0.001: "0.001", 0.0001: "0.0001"}
    for bound in (needed, better):
        figures[f"share of relative errors below {labels[bound]}"] = share_below(p, bound)
    return figures, share_below(p, needed) > 1 - needed


def thousandth(p, _):
    value = share_below(p, 0.001)
    return {"share of relative errors below 0.001": value}, value >= 0.999 and not p.mismatches


def dump(p, _):
    cos, most = cosine(p), max(p.error, default=0.0)
    bad = (cos < 0.99 and most > 0.001) or (cos < 0.9 or most > 1)
    return {}, not bad and not p.mismatches


def split(p, small_value):
    where = p.both_finite()
    return [i for i in where if abs(p.g[i]) <= small_value], [i for i in where if abs(p.g[i]) > small_value]


def share(wrong, where):
    return sum(map(wrong, where)) / len(where) if where else 0.0


def bounds(p, rel, small_value, absolute):
    small, normal = split(p, small_value)
    r, most = relative(p), largest_of(p.row)
    special = [i for i, (a, g) in enumerate(p.pairs) if not finite(a, g)]

    def wrong_special(i):
        a, g = p.pairs[i]
        if math.isnan(a) or math.isnan(g):
            return not same(a, g)
        a, g = (max(-most, min(most, value)) for value in (a, g))
        return not abs(a - g) / (abs(g) + EPS[p.stored]) <= rel

    figures = {
        "NaN or Inf": share(wrong_special, special),
        "normal": share(lambda i: r[i] > rel, normal),
        "small": share(lambda i: p.error[i] > absolute, small),
    }
    return {f"share of {kind} elements beyond the bound": value for kind, value in figures.items()}


def absolute(p, _):
    table = {"fp16": (-10, -10, 2.0**-16), "bf16": (-8, -10, 1e-16), "fp32": (-20, -20, 2.0**-30)}
    rel, small_value, atol = table[p.stored]
    figures = bounds(p, 2.0**rel, 2.0**small_value, atol)
    return figures, not any(figures.values())


def balance(p):
    above, below = (sum(sign * a > sign * g for a, g in p.pairs) for sign in (1, -1))
    return abs(above - below) / p.n if p.n else 0.0


def accumulative(p, _):
    bound = 2.0 ** {"fp16": -8, "bf16": -7, "fp32": -11}[p.stored]
    figures = bounds(p, bound, 1.0, bound)
    even = balance(p) <= 2.0 ** {"fp16": -20, "bf16": -7, "fp32": -14}[p.stored]
    return figures | {"error balance": balance(p)}, not any(figures.values()) and even


def benchmark(p, peer):
    def metrics(one):
        small_value, atol = {"fp16": (-10, 1e-16), "bf16": (-10, 1e-16), "fp32": (-20, 2.0**-30)}[p.stored]
        small, normal = split(one, 2.0**small_value)
        r = relative(one)
        squares = [one.error[i] * one.error[i] for i in normal]
        square = math.fsum(squares) / one.n if one.n else 0.0
        rmse = math.sqrt(square * (one.n / (len(normal) + 0.0001) + 0.0001))
        wrong = share(lambda i: one.error[i] > atol, small)
        return max((r[i] for i in normal), default=0.0), mean([r[i] for i in normal]), rmse, wrong

    names = ("ratio of largest relative errors", "ratio of mean relative errors", "RMSE ratio",
             "ratio of shares of wrong small elements")  # fmt: skip
    values = zip(metrics(p), metrics(peer), strict=True)
    ratios = [x / max(y, FLOOR[p.stored]) for x, y in values]
    passes = all(ratio <= limit for ratio, limit in zip(ratios, (10, 2, 2, 2), strict=True))
    return dict(zip(names, ratios, strict=True)), passes and not p.mismatches


def ulp(p, peer):
    bits, low = FORMATS[p.stored]
    many = 32 if p.stored == "fp32" else 1

    def ulps(one):
        exponents = [ulp_exponent(g, low) if finite(g) and g else 0 for g in one.g]
        return [e if e in (0, INF) else math.ldexp(e, bits - k) for e, k in zip(one.error, exponents, strict=True)]

    own, other = ulps(p), ulps(peer)
    shares = [mean([float(u > many) for u in one]) for one in (own, other)]
    ratio = shares[0] / max(shares[1], FLOOR[p.stored])
    figures = {f"share of errors above {many} ULP": shares[0], f"ratio of the shares of errors above {many} ULP": ratio}
    passes = shares[0] < (0.05 if p.stored == "fp32" else 0.001) or ratio < 1
    if p.stored == "fp32":
        average = INF if INF in own else mean(own)
        figures["mean ULP"] = average
        passes = passes or average < 64
    return figures, passes and not p.mismatches


def frame(p, _):
    allowed, bound, most = {"fp32": (1e-4, 1e-4, 1e-2)}.get(p.stored, (1e-3, 1e-3, 1e-1))
    beyond = share(lambda i: p.error[i] > bound * p.size(i), range(p.n))
    far = sum(p.error[i] > most * p.size(i) for i in range(p.n))
    figures = {"share of elements beyond the bound": beyond, "elements far beyond the bound": far}
    return figures, beyond <= allowed and not far and not p.mismatches


def close(p, _):
    tol = 1e-4 if p.stored == "fp32" else 1e-3
    beyond = share(lambda i: p.error[i] > 1e-8 + tol * p.size(i), range(p.n))
    return {"share of elements beyond atol + rtol |golden|": beyond}, beyond <= tol and not p.mismatches


def torch_npu(p, _):
    prec, least = (1e-3, 6e-8) if p.stored == "fp16" else (1e-4, 1e-9)

    def magnitude(i):
        return max(abs(p.a[i]) if finite(p.a[i]) else 0.0, p.size(i))

    rel = share(lambda i: p.error[i] / (magnitude(i) + least) > prec, range(p.n))
    absolute_share = share(lambda i: p.error[i] > prec, range(p.n))
    figures = {
        "share of elements beyond the relative bound": rel,
        "share of elements beyond the absolute bound": absolute_share,
    }
    return figures, not (rel > prec and absolute_share > prec) and not p.mismatches


def sample(p, _):
    beyond = share(lambda i: p.error[i] > 1e-9 + 1e-6 * p.size(i), range(p.n))
    return {"share of elements beyond atol + rtol |golden|": beyond}, beyond <= 1e-4 and not p.mismatches


RULES = {
    "mixed-tolerance": mixed,
    "mixed-tolerance-draft": mixed_draft,
    "single-benchmark": single,
    "double-benchmark-l0": double("l0"),
    "double-benchmark-l1": double("l1"),
    "double-benchmark-l2": double("l2"),
    "msprobe-precheck": precheck,
    "msprobe-thousandth": thousandth,
    "msprobe-benchmark": benchmark,
    "msprobe-ulp": ulp,
    "msprobe-absolute": absolute,
    "msprobe-accumulative": accumulative,
    "msprobe-dump": dump,
    "op-test-frame": frame,
    "ttk-close": close,
    "torch-npu": torch_npu,
    "ascendc-sample": sample,
}
NEED_PEER = {name for name in RULES if name.startswith("double") or name in ("msprobe-benchmark", "msprobe-ulp")}


def judge(name, actual, golden, peer, row, overflow):
    """Figures, and outcome with its cause, of one case; lists of floats, ``peer`` None for none."""
    p = Pair(actual, golden, row, overflow)
    if name in NEED_PEER and peer is None:
        return {}, ("void", "empty" if not p.n else "peer")
    other = Pair(peer, golden, row, overflow) if peer is not None else None
    figures, passes = RULES[name](p, other)
    if not passes:
        return figures, ("fail", None)
    if not p.n:
        return figures, ("void", "empty")
    if all(p.special):
        return figures, ("void", "golden")
    zeros = Pair([g if special else 0.0 for g, special in zip(p.g, p.special, strict=True)], p.g, row, overflow)
    if RULES[name](zeros, other)[1]:
        return figures, ("void", "zeros")
    return figures, ("pass", None)


def recheck(ratios, draws):
    """Outcome and bounds from drawn places, one list for each of 2,000 samples."""
    if len(ratios) < 200:
        return "fail", None, None

    def median(values):
        ordered, middle = sorted(values), len(values) // 2
        return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    medians = sorted(median([ratios[place] for place in places]) for places in draws)
    return ("fail" if medians[49] > 1 else "pass"), medians[49], medians[1950]

"""Mmad on carriers against the naive twin on logical matrices, bit for bit."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.formats import TieRule
from npu_sim.isa import cube
from tests.oracles import mmad as oracle

L0_CARRIERS = 64 * 1024 // 2
L0C_FLOATS = 128 * 1024 // 4
SCRATCH = np.empty(cube.scratch_words(L0_CARRIERS, L0_CARRIERS))

MODELS = [
    Accumulation(1, "serial", "rne"),
    Accumulation(4, "exact", "rne"),
    Accumulation(8, "exact", "rne"),
    Accumulation(16, "exact", "rne"),
    Accumulation(5, "exact", "rne"),
    Accumulation(4, "exact", "rz"),
    Accumulation(16, "exact", "rz"),
    Accumulation(16, "tree", "rne"),
    Accumulation(7, "tree", "rne"),
    Accumulation(4, "tree", "rz"),
    Accumulation(4, "exact", "rne", subnormals="keep"),
    Accumulation(8, "exact", "rne", overflow_to="max"),
    Accumulation(4, "exact", "rz", subnormals="keep"),
    Accumulation(4, "tree", "rne", subnormals="keep", overflow_to="max"),
]
KINDS = ["fp16", "bf16", "hf32", "fp32"]
TAILS = [(16, 16, 16), (8, 24, 16), (17, 5, 18), (3, 49, 7), (19, 70, 9), (2, 8, 1)]
DROP = {"hf32": 12}
LARGEST = {kind: float.fromhex(f"0x1.{digits}") for kind, digits in
           (("fp16", "ffcp15"), ("bf16", "fep127"), ("hf32", "ffep127"), ("fp32", "fffffep127"))}  # fmt: skip
"""Largest finite operand of each type."""


def quantised(values, kind):
    """Values of a type in float32 carriers (HF32 operands arrive unrounded, as fp32)."""
    storage = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}.get(kind, np.float32)
    with np.errstate(all="ignore"):
        return values.astype(storage).astype(np.float32)


def codes_of(rng, shape, kind):
    """Random bit patterns, all exponents, Inf and NaN included."""
    bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    if kind == "fp16":
        return (bits & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
    return (bits & np.uint32(0xFFFF0000 if kind == "bf16" else 0xFFFFFFFF)).view(np.float32)


def finite(values):
    return np.where(np.isfinite(values), values, np.float32(1))


def draw(rng, shape, kind, style):
    """One operand: ordinary numbers or one of the ways to make a float sum go wrong."""
    normal = rng.standard_normal(shape)
    limits = {"fp16": (2.0**-24, 60000.0), "bf16": (2.0**-133, 3e38)}.get(kind, (2.0**-149, 3e38))
    if style == "normal":
        return quantised(normal, kind)
    if style == "any_bits":
        return codes_of(rng, shape, kind)
    if style == "any_finite":
        return finite(codes_of(rng, shape, kind))
    if style == "subnormal":
        return quantised(np.round(normal * 40) * limits[0], kind)
    if style == "overflow":
        return quantised(normal * limits[1] / 3, kind)
    if style == "ties":  # few significant bits at far-apart exponents: half-way sums and exact cancellation
        return quantised(np.ldexp(rng.integers(-3, 4, shape).astype(float), rng.integers(0, 2, shape) * 12), kind)
    if style == "zeros":
        return np.where(normal < 0.3, np.float32(-0.0), np.float32(0.0))
    specials = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    return np.where(rng.random(shape) < 0.05, rng.choice(specials, shape), quantised(normal, kind))


def parts_of(model):
    """The parts of a model as the twin takes them."""
    return {"flush": model.flushes, "to_max": model.overflow_to == "max"}


class Core:
    """The three buffers around one Mmad: poison outside the operands, sentinels outside the result."""

    def __init__(self, m, n, k, kind, *, k_align=False, addresses=(1024, 512, 3072)):
        self.m, self.n, self.k, self.kind = m, n, k, kind
        self.k0 = 16 if kind in ("fp16", "bf16") else 8
        self.k_align = k_align
        self.a_addr, self.b_addr, self.c_addr = addresses
        self.l0a = np.full(L0_CARRIERS, oracle.POISON, np.uint32).view(np.float32)
        self.l0b = self.l0a.copy()
        self.l0c = np.full(L0C_FLOATS, oracle.SENTINEL, np.uint32).view(np.float32)
        self.where = oracle.index_of_c(self.c_addr, m, n)

    def load(self, a, b, c=None):
        if self.m == 1:
            oracle.place_vector(self.l0a, self.a_addr, a[0], self.k0)
        else:
            oracle.place_a(self.l0a, self.a_addr, a, self.k0, k_align=self.k_align)
        oracle.place_b(self.l0b, self.b_addr, b, self.k0)
        if c is not None:
            self.l0c[self.where] = c

    def run(self, model, *, init, drop=0, ties=TieRule.EVEN, largest=0.0):
        """Run the Mmad, check that nothing but the result changed and what NaN is, return C[m, n]."""
        before = [x.view(np.uint32).copy() for x in (self.l0a, self.l0b, self.l0c)]
        SCRATCH.fill(np.nan)
        multiply = cube.mmad if model.inner == "exact" else cube.mmad_chained
        status = multiply(
            self.l0a, self.l0b, self.l0c, self.a_addr, self.b_addr, self.c_addr, self.m, self.n, self.k, self.k0,
            int(self.k_align), int(init), drop, int(ties), *model.codes, largest, SCRATCH,
        )  # fmt: skip
        assert status == cube.OK
        result = self.l0c[self.where].copy()
        if model.inner != "serial":
            assert np.all(result.view(np.uint32)[np.isnan(result)] == 0x7FFFFFFF)
        before[2][self.where] = self.l0c.view(np.uint32)[self.where]
        for old, new in zip(before, (self.l0a, self.l0b, self.l0c), strict=True):
            np.testing.assert_array_equal(new.view(np.uint32), old)
        return result


def check(m, n, k, kind, model, a, b, c, *, largest=None, **placement):
    """Compare one Mmad with the twin."""
    core = Core(m, n, k, kind, **placement)
    core.load(a, b, c)
    drop = DROP.get(kind, 0)
    got = core.run(model, init=c is None, drop=drop, largest=largest or 0.0)
    if drop:
        a, b = oracle.hf32_matrix(a, drop), oracle.hf32_matrix(b, drop)
    want = oracle.mmad(a, b, c, model.group, model.inner, model.round, **parts_of(model), largest=largest)
    assert oracle.same(got, want), (got[got != want][:5], want[got != want][:5])


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["normal", "any_bits", "any_finite", "subnormal", "overflow", "ties", "special"])
def test_mmad_of_small_tile_equals_naive_loop(kind, model, style):
    rng = np.random.default_rng([KINDS.index(kind), MODELS.index(model), len(style)])
    m, n, k = 9, 17, 19
    a, b = draw(rng, (m, k), kind, style), draw(rng, (k, n), kind, style)
    c = draw(rng, (m, n), "fp32", style)
    check(m, n, k, kind, model, a, b, c)


@pytest.mark.parametrize("model", [MODELS[3], MODELS[5], MODELS[7], MODELS[9]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["any_bits", "overflow", "special", "subnormal"])
def test_mmad_of_saturated_operands_equals_naive_loop(kind, model, style):
    rng = np.random.default_rng([KINDS.index(kind), MODELS.index(model), len(style)])
    a, b = draw(rng, (17, 40), kind, style), draw(rng, (40, 27), kind, style)
    check(17, 27, 40, kind, model, a, b, draw(rng, (17, 27), "fp32", style), largest=LARGEST[kind])


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("shape", TAILS, ids=str)
def test_mmad_of_any_tail_touches_only_the_tile(shape, model):
    m, n, k = shape
    rng = np.random.default_rng([m, n, k])
    for kind in ("fp16", "fp32"):
        a, b = draw(rng, (m, k), kind, "normal"), draw(rng, (k, n), kind, "normal")
        check(m, n, k, kind, model, a, b, None)


@pytest.mark.parametrize("model", [m for m in MODELS[:10] if m.round == "rne" and m.inner != "tree"], ids=str)
@pytest.mark.parametrize("shape", [(64, 112, 48), (40, 64, 400), (128, 96, 128), (24, 80, 272), (72, 16, 130)], ids=str)
def test_mmad_of_large_tile_equals_planes(shape, model):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = draw(rng, (m, k), "fp16", "normal"), draw(rng, (k, n), "fp16", "normal")
    for c in (None, draw(rng, (m, n), "fp32", "normal")):
        core = Core(m, n, k, "fp16", addresses=(0, 0, 0))
        core.load(a, b, c)
        got = core.run(model, init=c is None)
        want = oracle.mmad_by_planes(a, b, c, model.group, model.inner)
        assert oracle.same(got, want)


def test_planes_twin_equals_naive_twin():
    rng = np.random.default_rng(0)
    a, b = draw(rng, (5, 40), "fp16", "normal"), draw(rng, (40, 6), "fp16", "normal")
    for model in (Accumulation(1, "serial", "rne"), Accumulation(16, "exact", "rne"), Accumulation(5, "exact", "rne")):
        slow = oracle.mmad(a, b, None, model.group, model.inner, model.round)
        assert oracle.same(oracle.mmad_by_planes(a, b, None, model.group, model.inner), slow)


def test_models_differ_on_ordinary_data():
    """Otherwise a model that is ignored would pass all the rest."""
    rng = np.random.default_rng(0)
    core = Core(16, 16, 64, "fp32")
    core.load(draw(rng, (16, 64), "fp32", "normal"), draw(rng, (64, 16), "fp32", "normal"))
    plain = MODELS[:10]
    assert len({core.run(model, init=True).tobytes() for model in plain}) == len(plain)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_mmad_chain_restarts_groups_and_continues_serial_chain(model):
    rng = np.random.default_rng(1)
    parts = (19, 6, 24)
    a, b = draw(rng, (10, 49), "fp16", "normal"), draw(rng, (49, 20), "fp16", "normal")
    want = None
    core = Core(10, 20, 49, "fp16")
    first = 0
    for k in parts:
        core.k = k
        core.l0a.view(np.uint32)[:] = oracle.POISON
        core.l0b.view(np.uint32)[:] = oracle.POISON
        core.load(a[:, first : first + k], b[first : first + k])
        got = core.run(model, init=first == 0)
        want = oracle.mmad(
            a[:, first : first + k],
            b[first : first + k],
            want,
            model.group,
            model.inner,
            model.round,
            **parts_of(model),
        )
        assert oracle.same(got, want)
        first += k
    whole = oracle.mmad(a, b, None, model.group, model.inner, model.round)
    assert oracle.same(got, whole) == (model.inner == "serial")


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3], MODELS[7]], ids=str)
@pytest.mark.parametrize(("kind", "k"), [("fp16", 300), ("fp16", 5), ("fp32", 150), ("hf32", 130), ("bf16", 257)])
def test_mmad_with_one_row_reads_a_flat_vector(kind, k, model):
    rng = np.random.default_rng(k)
    a, b = draw(rng, (1, k), kind, "normal"), draw(rng, (k, 19), kind, "normal")
    check(1, 19, k, kind, model, a, b, draw(rng, (1, 19), "fp32", "normal"))


@pytest.mark.parametrize("model", [MODELS[0], MODELS[1], MODELS[9]], ids=str)
@pytest.mark.parametrize("kind", ["fp32", "hf32"])
@pytest.mark.parametrize("k", [8, 24, 35, 40])
def test_mmad_with_k_direction_align_skips_the_spare_fractal(k, kind, model):
    rng = np.random.default_rng(k)
    a, b = draw(rng, (33, k), kind, "normal"), draw(rng, (k, 5), kind, "normal")
    check(33, 5, k, kind, model, a, b, None, k_align=True)


@pytest.mark.parametrize("ties", [TieRule.EVEN, TieRule.AWAY, TieRule.TOWARD_ZERO])
@pytest.mark.parametrize("drop", [12, 13])
@pytest.mark.parametrize("m", [1, 4])
def test_hf32_rounds_both_operands_with_the_tie_rule(m, drop, ties):
    halfway = np.uint32(1 << (drop - 1))
    words = np.uint32(0x3F800000) + np.arange(8, dtype=np.uint32) * halfway
    words = np.concatenate([words, words + 1, words - 1, np.array([0x7F7FFFFF, 0x00000800, 0x7F800000], np.uint32)])
    a = np.resize(words.view(np.float32), (m, words.size)).copy()
    b = np.resize(words[::-1].view(np.float32), (words.size, 3)).copy()
    core = Core(m, 3, words.size, "hf32")
    core.load(a, b)
    name = {TieRule.EVEN: "even", TieRule.AWAY: "away", TieRule.TOWARD_ZERO: "toward_zero"}[ties]
    model = Accumulation(8, "exact", "rne")
    got = core.run(model, init=True, drop=drop, ties=ties)
    a, b = oracle.hf32_matrix(a, drop, name), oracle.hf32_matrix(b, drop, name)
    assert oracle.same(got, oracle.mmad(a, b, None, 8, "exact", "rne"))


def test_hf32_of_documented_tie_rounds_to_even():
    assert [hex(oracle.hf32(w, 12, t)) for w in (0x3F800800, 0x3F801800) for t in ("even", "away", "toward_zero")] == [
        "0x3f800000", "0x3f801000", "0x3f800000", "0x3f802000", "0x3f802000", "0x3f801000",
    ]  # fmt: skip


@pytest.mark.parametrize("grain", [-160, -152, -151, -150, -149, -148, -147, -140, -130, -128, -127, -126, -125, -110])
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_exact_sum_of_tiny_products_equals_naive_loop(kind, grain):
    """The fast rounding must stand back before a sum can lie between two subnormals, or where they are flushed be one.

    Products are multiples of 2^grain, odd ones among them. Operands are powers of two: the estimate of the grain
    is exact then.
    """
    rng = np.random.default_rng(-grain)
    half = grain // 2
    powers = [-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0]
    a = quantised(np.ldexp(rng.choice(powers, (8, 48)), half), kind)
    b = quantised(np.ldexp(rng.choice(powers, (48, 24)), grain - half), kind)
    starts = [np.zeros((8, 24)), np.ones((8, 24))]
    starts += [np.ldexp(rng.integers(-9, 10, (8, 24)), power) for power in (-149, -127, -126)]
    compare_exact(kind, a, b, starts)


@pytest.mark.parametrize("exponent", [40, 52, 55, 56, 57, 58, 59, 60, 61, 62, 63])
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_exact_sum_of_huge_products_equals_naive_loop(kind, exponent):
    """The fast rounding must stand back before a sum can overflow, also where later terms bring it back."""
    rng = np.random.default_rng(exponent)
    a = quantised(np.ldexp(rng.integers(1, 4, (8, 48)), exponent), kind)
    b = quantised(np.ldexp(rng.integers(1, 4, (48, 24)) * rng.choice([-1, 1], (1, 24)), exponent), kind)
    b[24:] *= rng.choice(np.array([-1, 1], np.float32), (24, 24))
    signs = rng.choice([-1.0, 1.0], (8, 24))
    compare_exact(kind, a, b, [signs, signs * 2.0**125, signs * 2.0**126, signs * 2.0**127, signs * np.inf])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("side", ["a", "b"])
def test_exact_sum_with_one_infinite_operand_equals_naive_loop(side, value):
    """Inf times tiny numbers does not look like overflow by exponents alone."""
    rng = np.random.default_rng(0)
    a = np.ldexp(rng.standard_normal((8, 48)), -40 if side == "b" else 0).astype(np.float32)
    b = np.ldexp(rng.standard_normal((48, 24)), -40 if side == "a" else 0).astype(np.float32)
    if side == "a":
        a[5, 30] = value
    else:
        b[30, 5] = value
    compare_exact("fp32", a, b, [np.zeros((8, 24)), np.ones((8, 24))])


def compare_exact(kind, a, b, starts):
    """Compare exact models on an 8 x 24 tile, the shape that needs no staging, for several accumulators."""
    core = Core(8, 24, a.shape[1], kind)
    with np.errstate(all="ignore"):
        for start in starts:
            c = start.astype(np.float32)
            for group, subnormals in itertools.product((2, 4, 16), ("flush", "keep")):
                core.load(a, b, c)
                got = core.run(Accumulation(group, "exact", "rne", subnormals), init=False)
                want = oracle.mmad_by_planes(a, b, c, group, "exact", flush=subnormals == "flush")
                assert oracle.same(got, want)


def test_mmad_with_zero_extent_changes_nothing():
    core = Core(4, 4, 4, "fp16")
    before = core.l0c.copy()
    for m, n, k in [(0, 4, 4), (4, 0, 4), (4, 4, 0)]:
        status = cube.mmad(
            core.l0a, core.l0b, core.l0c, 0, 0, 0, m, n, k, 16, 0, 1, 0, 0, *MODELS[3].codes, 0.0, SCRATCH
        )  # fmt: skip
        assert status == cube.OK
        assert oracle.same(core.l0c, before)


@pytest.mark.parametrize(
    "change",
    [
        {"a_addr": 64 * 1024 - 512}, {"b_addr": 64 * 1024 - 512}, {"c_addr": 128 * 1024 - 1024}, {"a_addr": 256},
        {"b_addr": 32}, {"c_addr": 2}, {"a_addr": -512}, {"b_addr": -512}, {"c_addr": -4}, {"m": -1}, {"n": 5000},
        {"k": 4096, "m": 1, "n": 1}, {"scratch": np.empty(100)},
    ],
    ids=lambda change: "-".join(change),
)  # fmt: skip
def test_mmad_outside_its_buffers_is_refused_and_writes_nothing(change):
    call = {"a_addr": 0, "b_addr": 0, "c_addr": 0, "m": 20, "n": 20, "k": 20, "scratch": SCRATCH} | change
    core = Core(20, 20, 20, "fp16")
    before = core.l0c.copy()
    status = cube.mmad(
        core.l0a, core.l0b, core.l0c, call["a_addr"], call["b_addr"], call["c_addr"], call["m"], call["n"], call["k"],
        16, 0, 1, 0, 0, *MODELS[3].codes, 0.0, call["scratch"],
    )  # fmt: skip
    assert status == cube.BAD_RANGE
    assert oracle.same(core.l0c, before)


def test_mmad_that_ends_with_its_buffers_is_accepted():
    core = Core(20, 20, 20, "fp16", addresses=(64 * 1024 - 4 * 512, 64 * 1024 - 4 * 512, 128 * 1024 - 4 * 1024))
    rng = np.random.default_rng(0)
    a, b = draw(rng, (20, 20), "fp16", "normal"), draw(rng, (20, 20), "fp16", "normal")
    core.load(a, b)
    assert oracle.same(core.run(MODELS[3], init=True), oracle.mmad(a, b, None, 16, "exact", "rne"))


def test_clamp_changes_infinities_and_nans_of_the_tile_only():
    m, n = 19, 21
    where = oracle.index_of_c(2048, m, n)
    rng = np.random.default_rng(0)
    c = draw(rng, (m, n), "fp32", "any_bits")
    c[0, :6] = [np.inf, -np.inf, np.nan, -0.0, 3.4028235e38, -1e-45]
    c[18, 20] = np.inf
    l0c = np.full(L0C_FLOATS, np.inf, np.float32)
    l0c[where] = c
    cube.clamp_l0c(l0c, 2048, m, n)
    largest = np.finfo(np.float32).max
    want = np.where(np.isnan(c), np.float32(0), np.clip(c, -largest, largest))
    np.testing.assert_array_equal(l0c[where].view(np.uint32), want.view(np.uint32))
    l0c[where] = np.inf
    assert np.all(np.isposinf(l0c))

"""Rows of zeros in A, which the Cube model leaves out where that changes no bit, against planes that add every product.

Adding the products of a zero changes C where an element of C is -0 or subnormal, and where B is infinite or NaN: those
rows must be computed. Whatever is left out must look the same as if it had not been.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.isa import microkernel as mk
from npu_sim.isa.cube_rows import group_rows, live_rows, next_run, pack_group
from tests.differential.test_mmad import Core, draw
from tests.oracles import mmad as oracle

MODELS = [
    Accumulation(1, "serial", "rne"), Accumulation(16, "exact", "rne"), Accumulation(4, "exact", "rne"),
    Accumulation(8, "exact", "rne", subnormals="keep"),
]  # fmt: skip
SHAPES = [(40, 64, 104), (33, 80, 40), (64, 112, 24), (24, 72, 16)]


def operands(rng, shape, kind):
    """A with rows of zeros of both signs in runs of all lengths; B and C of ordinary numbers."""
    m, n, k = shape
    a, b, c = (draw(rng, size, kind, "normal") for size in ((m, k), (k, n), (m, n)))
    first = 0
    while first < m:
        run = int(rng.integers(1, 18))
        if rng.random() < 0.6:
            signs = rng.choice(np.array([0.0, -0.0], np.float32), (min(run, m - first), k))
            a[first : first + run] = signs
        first += run
    return a, b, c


def spread(rng, shape, kind):
    """As `operands`, with zeros as strides insert them: whole fractals of k, and in the others every other row."""
    m, n, k = shape
    # few bits, so that every product is exact in float32 and HF32 changes nothing
    a, b, c = (draw(rng, size, "fp16", "normal") for size in ((m, k), (k, n), (m, n)))
    step = 8 if kind in ("fp32", "hf32") else 16
    for start in range(0, k, step):
        for first in range(0, m, 16):
            # rows of which all hold something are not searched on
            kinds = [slice(0, 0), slice(0, 16), slice(0, 16, 2), slice(1, 16, 2), slice(0, 8)]
            zero = kinds[int(rng.integers(first != 16, 5))]
            part = a[first : first + 16, start : start + step]
            part[zero] = rng.choice(np.array([0.0, -0.0], np.float32), part[zero].shape)
    return a, b, c


def bits_of(shape, kind, model, a, b, c):
    core = Core(*shape, kind, addresses=(0, 0, 0))
    core.load(a, b, c)
    return core.run(model, init=c is None)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("trouble", ["none", "negative zero", "all negative", "subnormal", "infinite", "nan"])
def test_mmad_with_rows_of_zeros_has_the_bits_of_all_products(shape, model, trouble):
    rng = np.random.default_rng([*shape, len(trouble)])
    for _ in range(4):
        a, b, c = operands(rng, shape, "fp16")
        if trouble in ("negative zero", "all negative"):
            c[rng.random(c.shape) < 0.02] = -0.0
            c[:, -1] = -0.0
        if trouble == "all negative":
            # every product of a zero is then -0 or +0 alike along a column, and -0 + -0 stays -0
            a = np.where(a == 0, np.float32(0), a)
            b[:, : shape[1] // 2] = -np.abs(b[:, : shape[1] // 2])
        if trouble == "subnormal":
            c[rng.random(c.shape) < 0.02] = rng.choice(np.array([1e-40, -1e-40], np.float32))
        if trouble in ("infinite", "nan"):
            b[int(rng.integers(shape[2])), int(rng.integers(shape[1]))] = np.inf if trouble == "infinite" else np.nan
        with np.errstate(all="ignore"):
            for start in (c, None):
                want = oracle.mmad_by_planes(a, b, start, model.group, model.inner, flush=model.flushes)
                assert oracle.same(bits_of(shape, "fp16", model, a, b, start), want)


@pytest.mark.parametrize("model", [*MODELS, Accumulation(24, "exact", "rne")], ids=str)
@pytest.mark.parametrize("kind", ["fp16", "fp32", "hf32"])
@pytest.mark.parametrize("trouble", ["none", "negative zero", "subnormal", "infinite", "underflow", "underflow by b"])
def test_mmad_with_inserted_zeros_has_the_bits_of_all_products(model, kind, trouble):
    rng = np.random.default_rng([len(kind), len(trouble), model.group])
    for shape in ((48, 64, 160), (56, 80, 40), (33, 72, 96)):
        a, b, c = spread(rng, shape, kind)
        if trouble == "negative zero":
            c[rng.random(c.shape) < 0.02] = -0.0
        if trouble == "subnormal":
            c[rng.random(c.shape) < 0.02] = rng.choice(np.array([1e-40, -1e-40], np.float32))
        if trouble == "infinite":
            b[int(rng.integers(shape[2])), int(rng.integers(shape[1]))] = np.inf
        if "underflow" in trouble and kind != "fp16":
            # products underflow to -0 in between, and a zero behind them would make that +0; one operand alone is tiny
            tiny = 104 if trouble == "underflow" else 48
            a = np.copysign(np.ceil(np.abs(a)), a) * np.float32(2.0**-tiny)
            b, c = -np.ceil(np.abs(b)) * np.float32(2.0 ** (tiny - 152)), np.zeros_like(c)
        # float64 adds such small numbers exactly
        inner = "exact" if "underflow" in trouble else model.inner
        with np.errstate(all="ignore"):
            for start in (c, None):
                want = oracle.mmad_by_planes(a, b, start, model.group, inner, flush=model.flushes)
                assert oracle.same(bits_of(shape, kind, model, a, b, start), want)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_mmad_with_rows_of_zeros_keeps_what_an_underflow_left(model):
    # fp32 products can underflow to -0, and such an accumulator must not turn into +0 or stay -0 against the products
    shape = (32, 64, 96)
    rng = np.random.default_rng(5)
    a, b, c = operands(rng, shape, "fp32")
    a[:8], b[0] = 0.0, 1.0
    c[:] = np.float32(-0.0)
    got = bits_of(shape, "fp32", model, a, b, c)
    assert oracle.same(got[:8], np.zeros((8, 64), np.float32))


def rows_of(groups, masks, places):
    """What `group_rows` found, as {fractals of k: rows}, after a look at how slots are filled."""
    found = {}
    for (first, count, slots, bits), mask in zip(groups.tolist(), masks.tolist(), strict=False):
        rows = [16 * f + i for f, word in enumerate(mask) for i in range(16) if word >> i & 1]
        assert len(rows) == count
        assert slots == -(-count // mk.TILE_ROWS) * mk.TILE_ROWS
        assert (places[first : first + slots] // 16).tolist() == rows + rows[-1:] * (slots - count)
        assert bits not in found
        found[bits] = rows
    return found


def grouped(core, shape, n, step):
    row = -(-shape[1] // step)
    return rows_of(*group_rows(core.l0a, 0, row * 256, 256, shape[0], n, shape[1], step))


def test_rows_with_the_same_zeros_are_a_group():
    # a search that found none would make the tests above pass without leaving anything out
    a = np.ones((40, 24), np.float32)
    a[8:16] = np.where(np.arange(24) % 2, np.float32(0), np.float32(-0.0))
    a[16:31:2, :16] = 0
    a[39, 16:] = 0
    core = Core(40, 64, 24, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((24, 64), np.float32))
    want = {3: [r for r in range(39) if r not in (*range(8, 16), *range(16, 31, 2))], 0: [*range(8, 16)]}
    want[2], want[1] = [*range(16, 31, 2)], [39]
    assert grouped(core, a.shape, 64, 16) == want
    # too narrow, or not of whole fractals
    for n in (48, 72):
        assert grouped(core, a.shape, n, 16) == {}
    core.load(np.where(a == 0, np.float32(1), a), np.ones((24, 64), np.float32))
    assert grouped(core, a.shape, 64, 16) == {}


def test_few_zeros_are_not_worth_packing():
    a = np.ones((48, 80), np.float32)
    core = Core(48, 64, 80, "fp16", addresses=(0, 0, 0))
    for zeros, packs in ((6, False), (16, True)):
        a[:zeros, :48] = 0
        core.load(a, np.ones((80, 64), np.float32))
        assert bool(grouped(core, a.shape, 64, 16)) == packs


def test_rows_of_too_many_kinds_are_not_grouped():
    a = np.ones((64, 64), np.float32)
    core = Core(64, 64, 64, "fp16", addresses=(0, 0, 0))
    for kinds, packs in ((12, True), (14, False)):
        for r in range(64):
            held = np.arange(64) // 16
            a[r] = (r % kinds >> held) & 1
        core.load(a, np.ones((64, 64), np.float32))
        assert bool(grouped(core, a.shape, 64, 16)) == packs


@pytest.mark.parametrize("kind", ["fp16", "fp32"])
def test_packed_rows_are_adjacent(kind):
    step = 16 if kind == "fp16" else 8
    a = np.arange(1, 40 * 24 + 1, dtype=np.float32).reshape(40, 24)
    a[::3, :step], a[5:9] = 0, 0
    core = Core(40, 64, 24, kind, addresses=(0, 0, 0))
    core.load(a, np.ones((24, 64), np.float32))
    row = -(-24 // step) * 256
    groups, masks, places = group_rows(core.l0a, 0, row, 256, 40, 64, 24, step)
    packed = np.full(4096, np.nan, np.float32)
    for g in range(len(groups)):
        first, _, slots, bits = groups[g].tolist()
        kept = [i for i in range(24) if bits >> i // step & 1]
        lines = pack_group(core.l0a, 0, row, 256, 24, step, groups[g], masks[g], packed, 7)
        assert lines == len(kept)
        got = packed[7 : 7 + lines * slots].reshape(lines, slots)
        np.testing.assert_array_equal(got, a[places[first : first + slots] // 16][:, kept].T)


@pytest.mark.parametrize(
    ("bits", "runs"),
    [(0b1, [(0, 1, 1)]), (0b111, [(0, 3, 1)]), (0b10100, [(2, 2, 2)]), (0b1011, [(0, 2, 1), (3, 1, 1)]),
     (0b1001001, [(0, 3, 3)]), (0b110101, [(0, 3, 2), (5, 1, 1)])],
)  # fmt: skip
def test_fractals_of_k_at_equal_distances_are_one_run(bits, runs):
    chunk, found = 0, []
    while bits >> chunk:
        first, count, distance = next_run(bits, chunk)
        found.append((first, count, distance))
        chunk = first + (count - 1) * distance + 1
    assert found == runs


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize(("m", "live"), [(64, 49), (48, 48), (32, 0), (33, 30), (80, 65)])
@pytest.mark.parametrize("zeros", [False, True])
def test_windows_behind_the_last_one_are_nan(model, m, live, zeros):
    rng = np.random.default_rng([m, zeros])
    shape = (m, 64, 48)
    a, b, c = (
        spread(rng, shape, "fp16") if zeros else (draw(rng, s, "fp16", "normal") for s in ((m, 48), (48, 64), (m, 64)))
    )
    a[live:] = np.nan
    assert live_rows(*_l0a(a, shape)) == live
    c[live:] = np.nan
    with np.errstate(all="ignore"):
        for start in (c, None):
            want = oracle.mmad_by_planes(a, b, start, model.group, model.inner, flush=model.flushes)
            assert oracle.same(bits_of(shape, "fp16", model, a, b, start), want)


def _l0a(a, shape):
    core = Core(*shape, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((shape[2], shape[1]), np.float32))
    return core.l0a, 0, 256 * -(-shape[2] // 16), shape[0]

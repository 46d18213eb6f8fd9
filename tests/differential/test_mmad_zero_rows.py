"""Rows of zeros in A, which the Cube model leaves out where that changes no bit, against planes that add every product.

Adding the products of a zero changes C where an element of C is -0 or subnormal, and where B is infinite or NaN: those
rows must be computed. Whatever is left out must look the same as if it had not been.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.isa.cube_zeros import find_zeros
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
            zero = [slice(0, 0), slice(0, 16), slice(0, 16, 2), slice(1, 16, 2), slice(0, 8)][int(rng.integers(5))]
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
@pytest.mark.parametrize("trouble", ["none", "negative zero", "subnormal", "infinite", "underflow"])
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
        if trouble == "underflow" and kind != "fp16":
            # products underflow to -0 in between, and a zero behind them would make that +0
            a, b, c = a * np.float32(2.0**-100), -np.abs(b) * np.float32(2.0**-48), c * np.float32(0)
        # float64 adds such small numbers exactly
        inner = "exact" if trouble == "underflow" else model.inner
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


def test_zero_rows_are_found_row_by_row():
    # a search that reported none would make the tests above pass without leaving anything out
    a = np.ones((32, 24), np.float32)
    zero = [0, 3, 8, 9, 10, 11, 12, 13, 14, 15, 31]
    a[zero] = np.where(np.arange(24) % 2, np.float32(0), np.float32(-0.0))
    a[5, :23] = 0
    core = Core(32, 64, 24, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((24, 64), np.float32))
    copy = np.empty(4 * 256, np.float32)
    found, some = find_zeros(core.l0a, 0, 2 * 256, 256, 32, 64, 24, 16, 24, copy, 0, 2 * 256)
    held = found.reshape(2, 3)
    assert some
    assert not held[:, 0].any()
    assert [row for row in range(32) if not any(int(bits) >> row % 16 & 1 for bits in held[row // 16, 1:])] == zero
    assert int(held[0, 1]) >> 5 & 1 == 0
    assert find_zeros(core.l0a, 0, 2 * 256, 256, 32, 48, 24, 16, 0, copy, 0, 2 * 256)[1] == 0
    assert find_zeros(core.l0a, 0, 2 * 256, 256, 32, 64, 24, 16, 25, copy, 0, 2 * 256)[1] == 0


def test_every_other_row_is_found_and_put_apart():
    # rows 16 to 31 hold something in odd rows of the first fractal of k and in even ones of the second
    a = np.arange(1, 48 * 32 + 1, dtype=np.float32).reshape(48, 32)
    a[16:32:2, :16], a[17:32:2, 16:] = 0, 0
    a[32:] = 0
    core = Core(48, 64, 32, "fp32", addresses=(0, 0, 0))
    core.load(a, np.ones((32, 64), np.float32))
    copy = np.full(12 * 256, np.nan, np.float32)
    found, some = find_zeros(core.l0a, 0, 4 * 256, 256, 48, 64, 32, 8, 0, copy, 0, 4 * 256)
    assert some
    held = found.reshape(3, 5)
    assert held[0, 0] == 0 == held[2, 0]
    assert held[1].tolist() == [1, 0xFF00, 0xFF00, 0xFF, 0xFF]
    assert held[2, 1:].tolist() == [0, 0, 0, 0]
    moved = copy.reshape(3, 4, 16, 16)[1, :, :8]
    order = [*range(0, 16, 2), *range(1, 16, 2)]
    np.testing.assert_array_equal(moved.transpose(2, 0, 1).reshape(16, 32), a[16:32][order])

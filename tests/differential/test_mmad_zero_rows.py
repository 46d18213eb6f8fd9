"""Rows of zeros in A, which the Cube model leaves out where that changes no bit, against planes that add every product.

Adding the products of a zero changes C where an element of C is -0 or subnormal, and where B is infinite or NaN: those
rows must be computed. Whatever is left out must look the same as if it had not been.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.isa.cube_zeros import find_runs, put_apart
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


def left(runs, apart, fractals, shape, step):
    """What `find_runs` left: a mask of the elements of A that are multiplied."""
    held = np.zeros(shape, np.bool_)
    for half, halves, chunk, chunks, distance in runs.tolist():
        for h in range(half, half + halves):
            first = 16 * (h % fractals) + h // fractals if apart else 8 * h
            rows = slice(first, first + 16, 2) if apart else slice(first, first + 8)
            for c in range(chunks):
                start = (chunk + c * distance) * step
                # each element once
                assert not held[rows, start : start + step].any()
                held[rows, start : start + step] = True
    return held


def found(core, shape, n, step):
    row = -(-shape[1] // step)
    return find_runs(core.l0a, 0, row * 256, 256, shape[0], n, shape[1], step)


def test_rows_of_zeros_are_found_by_halves():
    # a search that reported none would make the tests above pass without leaving anything out
    a = np.ones((40, 24), np.float32)
    a[8:16] = np.where(np.arange(24) % 2, np.float32(0), np.float32(-0.0))
    a[16:32, :16] = 0
    a[5, :23] = 0
    core = Core(40, 64, 24, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((24, 64), np.float32))
    runs, apart = found(core, a.shape, 64, 16)
    assert not apart
    assert runs.tolist() == [[0, 1, 0, 2, 1], [1, 1, 0, 0, 1], [2, 2, 1, 1, 1]]
    for n in (48, 72):
        assert len(found(core, a.shape, n, 16)[0]) == 0
    core.load(np.where(a == 0, np.float32(1), a), np.ones((24, 64), np.float32))
    assert len(found(core, a.shape, 64, 16)[0]) == 0


def test_runs_that_cost_more_than_they_save_are_none():
    a = np.ones((48, 80), np.float32)
    # a fractal of rows with something in each is not searched on
    a[31], a[16:24, 32:48] = 0, 0
    core = Core(48, 64, 80, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((80, 64), np.float32))
    assert len(found(core, a.shape, 64, 16)[0]) == 0
    a[16:24, 48:64] = 0
    core.load(a, np.ones((80, 64), np.float32))
    assert found(core, a.shape, 64, 16)[0].tolist() == [
        [0, 2, 0, 5, 1],
        [2, 1, 0, 2, 1],
        [2, 1, 4, 1, 1],
        [3, 3, 0, 5, 1],
    ]


def test_every_other_row_is_found():
    # rows 16 to 31 hold something in odd rows of the first fractals of k and in even ones of the next
    a = np.arange(1, 48 * 40 + 1, dtype=np.float32).reshape(48, 40)
    a[:32:2, :16], a[1:32:2, 16:] = 0, 0
    a[:, 32:] = 0
    a[32:] = 0
    core = Core(48, 64, 40, "fp32", addresses=(0, 0, 0))
    core.load(a, np.ones((40, 64), np.float32))
    runs, apart = found(core, a.shape, 64, 8)
    assert apart
    assert np.array_equal(left(runs, apart, 3, a.shape, 8), a != 0)
    assert runs.tolist() == [[0, 2, 2, 2, 1], [2, 1, 0, 0, 1], [3, 2, 0, 2, 1], [5, 1, 0, 0, 1]]


def test_fractals_of_k_at_equal_distances_are_one_run():
    a = np.ones((64, 144), np.float32)
    taps = np.arange(144) // 16
    a[:, taps % 2 == 1] = 0
    a[:, taps == 4], a[15::16] = 0, 0
    core = Core(64, 64, 144, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((144, 64), np.float32))
    runs, apart = found(core, a.shape, 64, 16)
    assert runs.tolist() == [[0, 8, 0, 2, 2], [0, 8, 6, 2, 2]]
    assert np.array_equal(left(runs, apart, 4, a.shape, 16)[0], a[0] != 0)


def test_rows_put_apart_have_the_even_ones_first_in_the_same_place_too():
    a = np.arange(1, 40 * 24 + 1, dtype=np.float32).reshape(40, 24)
    core = Core(40, 64, 24, "fp16", addresses=(0, 0, 0))
    core.load(a, np.ones((24, 64), np.float32))
    order = np.array([*range(0, 16, 2), *range(1, 16, 2)])
    for moved in (np.zeros(2 * 2 * 256, np.float32), core.l0a):
        put_apart(core.l0a, 0, 512, 256, 40, 24, 16, moved, 0, 512)
        panels = moved[:1024].reshape(2, 2, 16, 16).transpose(0, 3, 1, 2).reshape(2, 16, 32)[:, :, :24]
        np.testing.assert_array_equal(panels, np.stack([a[order], a[16 + order]]))

"""Rows of zeros in A, which the Cube model leaves out where that changes no bit, against planes that add every product.

Adding the products of a zero changes C where an element of C is -0 or subnormal, and where B is infinite or NaN: those
rows must be computed. Whatever is left out must look the same as if it had not been.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.isa import cube
from tests.differential.test_mmad import Core, draw
from tests.oracles import mmad as oracle

MODELS = [
    Accumulation(1, "serial", "rne"), Accumulation(16, "exact", "rne"), Accumulation(4, "exact", "rne"),
    Accumulation(8, "exact", "rne", subnormals="keep"),
]  # fmt: skip
SHAPES = [(40, 64, 48), (33, 80, 40), (64, 112, 24), (24, 72, 16)]


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


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_mmad_with_rows_of_zeros_keeps_what_an_underflow_left(model):
    # fp32 products can underflow to -0, and such an accumulator must not turn into +0 or stay -0 against the products
    shape = (32, 64, 16)
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
    masks, found = cube._find_zero_rows(core.l0a, 0, 2 * 256, 256, 32, 64, 24, 16)
    assert found
    assert [row for row in range(32) if int(masks[row // 16]) >> row % 16 & 1] == zero
    assert cube._find_zero_rows(core.l0a, 0, 2 * 256, 256, 32, 48, 24, 16)[1] == 0

"""Mmad of int8 by its definition in integers: every extent, sums that float32 does not hold, and the way of adding."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import jit
from npu_sim.isa import cube
from npu_sim.isa.codes import Data, Mode
from npu_sim.isa.l0_bytes import mmad_bytes_with
from npu_sim.isa.row import empty_rows

CARRIERS, ACCUMULATORS = 32 * 1024, 32 * 1024
KEPT, SENTINEL = 1024, 0x7FC00123


def _of_rows(model):
    multiply = mmad_bytes_with(model)

    @jit
    def run(l0a, l0b, l0c, rows, scratch):
        return multiply(l0a, l0b, l0c, rows[0], scratch)

    return run


WAYS = {"exact": _of_rows(cube.exact), "chained": _of_rows(cube.chained)}
SCRATCH = np.empty(int(cube.scratch_words(CARRIERS, CARRIERS)))
INT32 = np.iinfo(np.int32)


def _place(values, at, buffer, *, is_a):
    """Put the elements of A[m, k] or B[k, n] one by one where fractals of 16 x 32 and 32 x 16 have them, k-major."""
    rows, columns = values.shape
    for i in range(rows):
        for j in range(columns):
            lane, k = (i, j) if is_a else (j, i)
            others = -(-columns // 32) if is_a else -(-columns // 16)
            fractal = lane // 16 * others + k // 32 if is_a else k // 32 * others + lane // 16
            buffer[2 * at + fractal * KEPT + 16 * (k % 32) + lane % 16] = values[i, j]


def _run(way, a, b, c=None, *, at=(1024, 512, 3072)):
    (m, k), n = a.shape, b.shape[1]
    l0a, l0b = (np.full(2 * CARRIERS * 2, -128, np.int8) for _ in range(2))
    l0c = np.full(ACCUMULATORS, SENTINEL, np.uint32).view(np.float32)
    if m == 1:
        for q in range(k):
            l0a[2 * at[0] + q // 512 * KEPT + 16 * (q % 32) + q % 512 // 32] = a[0, q]
    else:
        _place(a, at[0], l0a, is_a=True)
    _place(b, at[1], l0b, is_a=False)
    i, j = np.indices((m, n))
    where = at[2] // 4 + ((j // 16 * -(-m // 16) + i // 16) * 16 + i % 16) * 16 + j % 16
    if c is not None:
        l0c.view(np.int32)[where] = c
    rows = empty_rows(1)
    row = rows[0]
    row["dtype"], row["m"], row["n"], row["k"] = Data.INT8, m, n, k
    row["src0"], row["src1"], row["dst"] = at
    row["mode"] = Mode.INIT if c is None else 0
    before = l0c.view(np.int32).copy()
    SCRATCH.fill(np.nan)
    assert WAYS[way](l0a.view(np.float32)[:CARRIERS], l0b.view(np.float32)[:CARRIERS], l0c, rows, SCRATCH)
    before[where] = found = l0c.view(np.int32)[where].copy()
    np.testing.assert_array_equal(l0c.view(np.int32), before)
    return found


def _expected(a, b, c=None):
    total = a.astype(np.int64) @ b.astype(np.int64) + (0 if c is None else c.astype(np.int64))
    return np.clip(total, INT32.min, INT32.max).astype(np.int32)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("init", [True, False])
def test_products_of_any_size_are_exact(way, init):
    rng = np.random.default_rng([3, init])
    for number in range(40):
        m, n, k = (int(extent) for extent in rng.integers(1, [70, 70, 150]))
        m = 1 if number % 5 == 0 else m
        a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((m, k), (k, n)))
        a[rng.random(m) < 0.3] = 0
        a[:, rng.random(k) < 0.3] = 0
        c = None if init else rng.integers(INT32.min, INT32.max, (m, n), dtype=np.int32)
        np.testing.assert_array_equal(_run(way, a, b, c), _expected(a, b, c))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [1023, 1024, 1025, 1040, 2047, 2048, 2049])
def test_sums_beyond_float32_are_exact(way, k):
    rng = np.random.default_rng(k)
    # what L0A and L0B hold
    m, n = (18, 17) if k <= 2048 else (11, 9)
    b = rng.integers(-128, 128, (k, n), dtype=np.int8)
    b[:, 0], b[:, 1] = -128, 127
    for lines in (1, m):
        a = rng.integers(-128, 128, (lines, k), dtype=np.int8)
        a[0], a[-1] = -128, 127
        for c in (None, np.full((lines, n), -7, np.int32)):
            np.testing.assert_array_equal(_run(way, a, b, c, at=(0, 0, 0)), _expected(a, b, c))


@pytest.mark.parametrize("way", WAYS)
def test_sums_beyond_int32_are_clamped_once(way):
    a = np.full((16, 64), -128, np.int8)
    b = np.full((64, 16), -128, np.int8)
    b[:, 1] = 127
    c = np.full((16, 16), INT32.max - 5, np.int32)
    c[:, 1] = INT32.min + 5
    found = _run(way, a, b, c)
    assert (found[:, 0] == INT32.max).all()
    assert (found[:, 1] == INT32.min).all()


@pytest.mark.parametrize("way", WAYS)
def test_operands_that_leave_their_buffers_change_nothing(way):
    rows = empty_rows(1)
    row = rows[0]
    row["dtype"], row["m"], row["n"], row["k"], row["mode"] = Data.INT8, 16, 16, 32, Mode.INIT
    buffers = [np.zeros(CARRIERS, np.float32), np.zeros(CARRIERS, np.float32), np.ones(ACCUMULATORS, np.float32)]
    for name, place in (("src0", 2 * CARRIERS), ("src1", 2 * CARRIERS), ("dst", 4 * ACCUMULATORS - 512), ("src0", 256)):
        row["src0"] = row["src1"] = row["dst"] = 0
        row[name] = place
        assert not WAYS[way](*buffers, rows, SCRATCH)
    assert not WAYS[way](*buffers, rows, SCRATCH[:-1])
    assert (buffers[2] == 1).all()

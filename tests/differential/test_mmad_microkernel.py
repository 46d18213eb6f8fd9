"""The micro-kernels by themselves: rounding of float64 sums, and LLVM IR against the Python twins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa import microkernel as mk
from npu_sim.isa import microkernel_twin as twin
from tests.oracles import mmad as oracle

R = mk.TILE_ROWS
FULL, REST = mk.FULL_VECTORS, mk.REST_VECTORS
needs_jit = pytest.mark.skipif(not JIT_ENABLED, reason="compares compiled code with the twin")


LIMITS = [np.inf, -1.0, float(oracle.LARGEST)]
"""To nearest, toward zero, to nearest unless that overflows."""
FLOORS = [0, 0x00800000]


def round_with(kernel, limit, floor, *groups):
    """Pass float64 values through the rounding at the end of groups: one k each, A = the values, B = 1, C = -0.

    The sums of the last group are rounded as they are stored.
    """
    width, count = 8 * FULL, groups[0].size
    rows = np.zeros((-(-count // R), len(groups), R))
    for number, sums in enumerate(groups):
        padded = np.zeros(len(rows) * R)
        padded[:count] = sums
        rows[:, number] = padded.reshape(-1, R)
    out = np.empty(len(rows) * R, np.float32)
    ones = np.ones(width * len(groups))
    places = 16 * np.arange(R)
    tile = np.empty(16 * R * (FULL // 2 + 1), np.float32)
    for number, a in enumerate(rows):
        tile.fill(-0.0)
        kernel(a.ravel(), 0, ones, 0, tile, 0, places, 0, 16 * R, len(groups), 1, limit, floor, 0, 1, a.size, 0)
        out[R * number : R * (number + 1)] = tile[: 16 * R : 16]
    return out[:count]


def hard_sums(rng, count, low, high):
    """float64 values on, next to and between the half-way points of float32, near powers of two above all."""
    kept = rng.integers(1 << 23, 1 << 24, count)
    edge = rng.random(count) < 0.5
    kept[edge] = rng.choice([1 << 23, (1 << 23) + 1, (1 << 24) - 1, (1 << 24) - 2], int(edge.sum()))
    rest = rng.integers(0, 1 << 29, count)
    half = rng.random(count) < 0.7
    near = (1 << 28) * rng.choice([0, 1, 2], count) + rng.integers(-3, 4, count)
    rest[half] = np.clip(near, 0, (1 << 29) - 1)[half]
    sign = rng.choice([-1.0, 1.0], count)
    return sign * np.ldexp(((kept << 29) + rest).astype(np.float64), rng.integers(low, high, count) - 52)


@pytest.mark.parametrize("seed", range(3))
def test_fast_rounding_of_multiples_of_the_smallest_subnormal_equals_the_cast(seed):
    rng = np.random.default_rng(seed)
    sums = hard_sums(rng, 60_000, -126 + 29, 127)
    sums[1::2] = np.ldexp(rng.integers(-(1 << rng.integers(1, 53)), 1 << 53, 30_000).astype(np.float64), -149)
    sums[0] = 0.0
    want = sums.astype(np.float32)
    np.testing.assert_array_equal(round_with(mk.fast_full, np.inf, 0, sums).view(np.uint32), want.view(np.uint32))
    # between two groups: what the second takes away leaves nothing
    assert not round_with(mk.fast_full, np.inf, 0, sums, -want.astype(np.float64)).any()
    assert round_with(mk.fast_full, np.inf, 0, sums, -sums).any()


def test_fast_rounding_makes_zeros_positive_between_groups():
    # as the caller knows, who asks for it only where no sum can be -0
    got = round_with(mk.fast_full, np.inf, 0, np.array([0.0, -0.0]), np.array([-0.0, -0.0]))
    assert got.view(np.uint32).tolist() == [0, 0]


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("limit", LIMITS)
def test_rounding_of_any_sum_equals_rational_arithmetic(limit, floor):
    rng = np.random.default_rng(LIMITS.index(limit))
    sums = hard_sums(rng, 3000, -152, 130)
    sums[:6] = 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-1074
    sums[6:10] = 3.4028235677973366e38, -3.4028235677973366e38, 3.4028235677973362e38, 2.0**-150
    sums[10:14] = 2.0**-126, 2.0**-126 - 2.0**-150, 2.0**-126 - 2.0**-150 - 2.0**-178, -(2.0**-126)
    parts = {"flush": floor > 0, "to_max": limit == LIMITS[2]}
    want = [oracle.settled(oracle.to_float32(float(s), toward_zero=limit < 0), [s], **parts) for s in sums]
    want = np.array(want)
    assert oracle.same(round_with(mk.exact_full, limit, floor, sums), want)
    with np.errstate(all="ignore"):
        assert oracle.same(np.array([twin.round_to_float32(s, limit, floor) for s in sums]), want)


def hard_singles(rng, size):
    """Float32 values whose products and sums cancel, underflow, overflow and tie."""
    bits = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
    small = np.ldexp(rng.integers(-9, 10, size).astype(np.float32), rng.integers(-30, 30, size))
    return np.where(rng.random(size) < 0.3, bits, small.astype(np.float32))


def test_twin_fma_equals_rational_arithmetic():
    rng = np.random.default_rng(0)
    a, b, c = (hard_singles(rng, 4000) for _ in range(3))
    c[::3] = -(a[::3].astype(np.float64) * b[::3]).clip(-3e38, 3e38).astype(np.float32)
    got = np.array([twin.fma32(*abc) for abc in zip(a, b, c, strict=True)])
    assert oracle.same(got, np.array([oracle.fma(*abc) for abc in zip(a, b, c, strict=True)]))


def spread(rng, count):
    """Where rows begin in C: in no order, and none twice."""
    return 16 * rng.permutation(3 * count)[:count].astype(np.int64)


@needs_jit
def test_a_row_may_be_in_a_tile_twice():
    rng = np.random.default_rng(0)
    places = np.array([16 * min(r, R - 3) for r in range(R)], np.int64)
    for kernel, other, dtype, tail in (
        (mk.serial_full, twin.serial_tile(R, FULL), np.float32, (3, 3, R, 99, 48, 16, 512, 0, 1, 0, 0, R)),
        (mk.fast_full, twin.exact_tile(R, FULL, fast=True), np.float64, (0, 512, 3, 16, np.inf, 0, 0, 1, 0, 0)),
    ):
        a, b, c = (
            rng.standard_normal(size).astype(kind) for size, kind in ((99, dtype), (999, dtype), (4000, np.float32))
        )
        a = a[: 3 * R].reshape(3, R)
        a[:, R - 3 :] = a[:, R - 3 : R - 2]
        want = c.copy()
        kernel(a.ravel(), 0, b, 0, c, 0, places, *tail)
        other(a.ravel(), 0, b, 0, want, 0, places, *tail)
        np.testing.assert_array_equal(c, want)


@needs_jit
@pytest.mark.parametrize("init", [0, 1])
@pytest.mark.parametrize("a_line", [16, 24])
@pytest.mark.parametrize(
    ("kernel", "rows", "vectors"),
    [(mk.serial_full, R, FULL), (mk.serial_rest, R, REST), (mk.serial_single, mk.SINGLE_ROWS, 1)],
    ids=["full", "rest", "single"],
)
@pytest.mark.parametrize(("halves", "lane", "lanes"), [(1, 0, 16), (6, 0, 16), (5, 8, 16), (3, 0, 8)])
def test_serial_kernel_equals_its_twin(kernel, rows, vectors, a_line, init, halves, lane, lanes):
    rng = np.random.default_rng(init)
    a, b, c = hard_singles(rng, 2000), hard_singles(rng, 1400), hard_singles(rng, 9000)
    want = c.copy()
    if rows == 16:
        lane, lanes = 0, 16
    tiles = max(halves * 8 // rows, 1)
    # rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane, lanes
    args = (spread(rng, tiles * rows), 11, 8, a_line, 200, 130, 300, 2500, init, tiles, 444, lane, lanes)
    kernel(a, 5, b, 7, c, 3, *args)
    twin.serial_tile(rows, vectors)(a, 5, b, 7, want, 3, *args)
    assert oracle.same(c, want)


@needs_jit
@pytest.mark.parametrize("init", [0, 1])
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize(
    ("kernel", "vectors", "limit", "floor"),
    [(mk.exact_full, FULL, np.inf, 0), (mk.exact_full, FULL, -1.0, 0x00800000), (mk.exact_rest, REST, -1.0, 0),
     (mk.exact_rest, REST, LIMITS[2], 0x00800000), (mk.fast_full, FULL, np.inf, 0), (mk.fast_rest, REST, np.inf, 0)],
)  # fmt: skip
@pytest.mark.parametrize(("tiles", "steps"), [(1, (0, 0)), (3, (13 * R, 0)), (2, (20 * R, 11))])
def test_exact_kernel_equals_its_twin(kernel, vectors, limit, floor, half, init, tiles, steps):
    rng = np.random.default_rng(half)
    draw = hard_singles if kernel in (mk.exact_full, mk.exact_rest) else lambda rng, size: rng.standard_normal(size)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a, b = draw(rng, 400).astype(np.float64), draw(rng, 600).astype(np.float64)
    c = draw(rng, 4000).astype(np.float32)
    want = c.copy()
    # rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
    args = (spread(rng, tiles * R), half, 1200, 13, 5, limit, floor, init, tiles, *steps)
    kernel(a, 2, b, 9, c, 4, *args)
    twin.exact_tile(R, vectors, fast=False)(a, 2, b, 9, want, 4, *args)
    assert oracle.same(c, want)


@needs_jit
@pytest.mark.parametrize("line", [16, 24])
@pytest.mark.parametrize("valid", [-3, 0, 3, 99])
@pytest.mark.parametrize(("kernel", "lanes"), [(mk.widen_rows, R), (mk.widen_columns, 8)], ids=["rows", "columns"])
def test_widen_equals_its_twin(kernel, lanes, valid, line):
    rng = np.random.default_rng(0)
    src = hard_singles(rng, 900)
    got, want = np.zeros(400), np.zeros(400)
    # k, chunk, line, step
    args = (21, 8, line, 256, valid)
    kernel(src, 3, *args, got, 5, 16)
    twin.widen(lanes, 1)(src, 3, *args, want, 5, 16, 0)
    np.testing.assert_array_equal(got.view(np.uint64), want.view(np.uint64))


@needs_jit
@pytest.mark.parametrize("line", [16, 24])
@pytest.mark.parametrize("valid", [0, 7, 16])
def test_a_fractal_is_widened_to_its_tiles(valid, line):
    src = hard_singles(np.random.default_rng(0), 900)
    got, want = np.zeros(600), np.zeros(600)
    # k, chunk, line, step, valid
    args = (21, 8, line, 256, valid)
    mk.widen_fractal(src, 3, *args, got, 5, R, 23 * R)
    twin.widen(16, 16 // R)(src, 3, *args, want, 5, R, 23 * R)
    np.testing.assert_array_equal(got.view(np.uint64), want.view(np.uint64))
    # tile by tile
    for tile in range(16 // R):
        own = np.zeros(600)
        twin.widen(R, 1)(src, 3 + tile * R, *args[:4], valid - tile * R, own, 5 + tile * 23 * R, R, 0)
        mine = slice(5 + tile * 23 * R, 5 + tile * 23 * R + 21 * R)
        np.testing.assert_array_equal(got[mine].view(np.uint64), own[mine].view(np.uint64))


@needs_jit
@pytest.mark.parametrize("valid", [1, 5, 8, 16])
def test_scan_equals_its_twin(valid):
    src = hard_singles(np.random.default_rng(1), 300)
    found = np.arange(24, dtype=np.int32)
    expected = found.copy()
    mk.scan(src, 2, 17, valid, found)
    twin.scan(8)(src, 2, 17, valid, expected)
    np.testing.assert_array_equal(found, expected)


_DIGEST = """
import hashlib
import numpy as np
from npu_sim.isa import cube
rng = np.random.default_rng(0)
l0a, l0b = rng.standard_normal((2, 2048)).astype(np.float32)
scratch = np.empty(cube.scratch_words(2048, 2048))
digest = hashlib.sha256()
models = [(1, 2, 0, 0, 0), (16, 0, 0, 1, 0), (4, 0, 1, 0, 1), (5, 1, 1, 1, 1), (4, 0, 0, 1, 0), (4, 1, 0, 1, 0)]
for number, model in enumerate(models):
    for scale in (1.0, 1e-30, 1e-38):
        for m, n, k, k0 in [(19, 20, 18, 16), (1, 9, 40, 8)]:
            l0c = rng.standard_normal(2048).astype(np.float32)
            a = (l0a * np.float32(scale)).astype(np.float32)
            l0c[::7] *= np.float32(scale)
            a[::41] = np.inf
            multiply = cube.mmad if model[1] == 0 else cube.mmad_chained
            largest = 65504.0 if number > 3 else 0.0
            assert multiply(a, l0b, l0c, 0, 0, 0, m, n, k, k0, 0, 0, 12, 0, *model, largest, scratch) == 0
            l0c[np.isnan(l0c)] = 0  # whose sign is the host's in the serial model
            digest.update(l0c.tobytes())
print(digest.hexdigest())
"""


def digest_under(tmp_path, **environment):
    """Run some Mmads in a fresh interpreter and return the digest of their results."""
    root = Path(__file__).resolve().parents[2]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DIGEST],
        env=clean | {"NUMBA_CACHE_DIR": str(tmp_path)} | environment,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


@pytest.fixture(scope="module")
def digest_here():
    scope: dict[str, object] = {}
    lines: list[str] = []
    exec(_DIGEST.replace("print(", "lines.append("), {"lines": lines} | scope)
    return lines[0]


def test_mmad_without_the_jit_gives_the_same_bits(tmp_path, digest_here):
    assert digest_under(tmp_path, NUMBA_DISABLE_JIT="1") == digest_here


@pytest.mark.slow
@pytest.mark.parametrize("features", ["+avx2,+fma", "+avx,+fma", "+sse4.2"])
def test_mmad_on_a_narrower_cpu_gives_the_same_bits(tmp_path, digest_here, features):
    assert digest_under(tmp_path, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES=features) == digest_here

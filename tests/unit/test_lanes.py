"""Block loads against NumPy: all 16-bit patterns, every alignment, nothing written beside the target."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npu_sim.isa.lanes import (
    add_rows,
    awkward_lanes,
    compress_lanes,
    copy_bytes,
    decode_fractal_transposed,
    decode_rows,
    extreme_lanes,
    fragile_lanes,
    minus_zero_lanes,
    nan_lanes,
    nonzero_lanes,
    splat_rows,
    tiny_lanes,
    unusual_lanes,
)
from npu_sim.isa.op import Data

STORAGE = {Data.FP16: np.float16, Data.BF16: ml_dtypes.bfloat16, Data.FP32: np.float32}
SENTINEL = np.float32(-77.25)


def _values(raw, dtype):
    with np.errstate(all="ignore"):
        return raw.view(STORAGE[dtype]).astype(np.float32)


def _equal(got, want, dtype):
    both_nan = np.isnan(got) & np.isnan(want)
    same = got.view(np.uint32) == want.view(np.uint32)
    return bool(np.all(same if dtype == Data.FP32 else same | both_nan))


@pytest.mark.parametrize("dtype", [Data.FP16, Data.BF16], ids=lambda dtype: dtype.name)
def test_decode_rows_all_16_bit_patterns_are_exact(dtype):
    raw = np.arange(65536, dtype=np.uint16).view(np.uint8)
    out = np.zeros(65536, np.float32)
    with np.errstate(all="ignore"):
        decode_rows(dtype, raw, 0, 32, out, 0, 16, 4096)
    assert _equal(out, _values(raw, dtype), dtype)


@pytest.mark.parametrize("dtype", list(STORAGE), ids=lambda dtype: dtype.name)
def test_decode_rows_steps_and_offsets_touch_their_lanes_only(dtype):
    rng = np.random.default_rng([3, dtype])
    lanes = 8 if dtype == Data.FP32 else 16
    for _ in range(50):
        first, count, at = (int(value) for value in rng.integers(0, (40, 6, 30)))
        src_step, dst_step = int(rng.integers(0, 100)), lanes + int(rng.integers(0, 20))
        raw = rng.integers(0, 256, 800, dtype=np.uint8)
        out = np.full(300, SENTINEL)
        want = out.copy()
        for i in range(count):
            block = raw[first + i * src_step : first + i * src_step + 32].copy()
            want[at + i * dst_step : at + i * dst_step + lanes] = _values(block, dtype)
        with np.errstate(all="ignore"):
            decode_rows(dtype, raw, first, src_step, out, at, dst_step, count)
        assert _equal(out, want, dtype)


@pytest.mark.parametrize("dtype", list(STORAGE), ids=lambda dtype: dtype.name)
def test_decode_fractal_transposed_puts_row_r_column_c_at_16_c_plus_r(dtype):
    rng = np.random.default_rng([4, dtype])
    columns = 8 if dtype == Data.FP32 else 16
    for _ in range(20):
        first, at = (int(value) for value in rng.integers(0, 40, 2))
        raw = rng.integers(0, 256, 600, dtype=np.uint8)
        out = np.full(320, SENTINEL)
        want = out.copy()
        values = _values(raw[first : first + 512].copy(), dtype)
        for r in range(16):
            for c in range(columns):
                want[at + 16 * c + r] = values[r * columns + c]
        with np.errstate(all="ignore"):
            decode_fractal_transposed(dtype, raw, first, out, at)
        assert _equal(out, want, dtype)


def test_float_words_keep_every_bit():
    words = np.array([0x7F800001, 0xFFC12345, 1, 0x80000000, 0x7FFFFFFF, 0xFF800000, 0x00400000, 0x3F800000], np.uint32)
    out = np.zeros(8, np.float32)
    decode_rows(Data.FP32, words.view(np.uint8), 0, 32, out, 0, 16, 1)
    assert np.array_equal(out.view(np.uint32), words)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 511, 1000])
def test_copy_bytes_copies_exactly_its_bytes(length):
    rng = np.random.default_rng([5, length])
    src, dst = (rng.integers(0, 256, 1100, dtype=np.uint8) for _ in range(2))
    want = dst.copy()
    want[13 : 13 + length] = src[57 : 57 + length]
    copy_bytes(dst, 13, src, 57, length)
    assert np.array_equal(dst, want)


def test_copy_bytes_counts_bytes_in_arrays_of_any_type():
    src = np.arange(8, dtype=np.float32)
    dst = np.zeros(40, np.uint8)
    copy_bytes(dst, 3, src, 12, 8)
    assert dst[3:11].view(np.float32).tolist() == [3.0, 4.0]
    assert not dst[:3].any()
    assert not dst[11:].any()


def test_add_rows_adds_to_adjacent_rows_only():
    rng = np.random.default_rng(3)
    src, before = rng.standard_normal(100, np.float32), rng.standard_normal(60, np.float32)
    out = np.zeros(243, np.uint8)
    out[3:] = before.view(np.uint8)
    add_rows(out, 3 + 4 * 5, src, 7, 20, 4)
    want = before.copy()
    want[5 : 5 + 32] += src[7:87].reshape(4, 20)[:, :8].ravel()
    np.testing.assert_array_equal(out[3:].view(np.float32), want)
    assert not out[:3].any()


@pytest.mark.parametrize("lanes", [8, 16])
def test_splat_rows_fills_its_lanes_only(lanes):
    for value in (np.float32(0.0), np.float32(-0.0), np.float32(1.5)):
        out = np.full(200, SENTINEL)
        want = out.copy()
        for i in range(4):
            want[5 + 20 * i : 5 + 20 * i + lanes] = value
        splat_rows(out, 5, 20, 4, lanes, value)
        assert np.array_equal(out.view(np.uint32), want.view(np.uint32))


def outside(values, low, high):
    size = np.abs(values)
    return (size != 0) & ~((size >= 2.0**low) & (size < 2.0**high))


@pytest.mark.parametrize("count", [1, 3])
def test_lane_masks_name_what_is_not_a_normal_number_in_any_vector(count):
    small = np.float32(2.0**-51)
    tiny = [1e-45, -1e-45, 2.0**-126, -np.nextafter(small, np.float32(0))]
    edges = [f(np.float32(2.0**e)) for e in (-102, -24, 40, 126) for f in (np.float32, lambda x: -np.nextafter(x, 0))]
    ordinary = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
    special = np.array([*ordinary, *tiny, *edges, small, -small, 3e38], np.float32)
    rng = np.random.default_rng(8)
    values = rng.choice(special, 200)
    values[rng.random(200) < 0.6] = 0.0
    for at in (0, 1, 7, 100, 120):
        near = np.stack([values[i : i + 16] for i in range(at, at + count * 16, 16)])
        below = (np.abs(near) < small) & (near != 0)
        for mask, wanted in (
            (nonzero_lanes(values, at, count), near != 0),
            (
                fragile_lanes(values, at, count),
                (near.view(np.uint32) != 0) & ~(np.isfinite(near) & (np.abs(near) >= 2.0**-126)),
            ),
            (tiny_lanes(values, at, count), below),
            (awkward_lanes(values, at, count), below | ~np.isfinite(near)),
            (minus_zero_lanes(values, at, count), near.view(np.uint32) == 1 << 31),
            (nan_lanes(values, at, count), np.isnan(near)),
            (unusual_lanes(values, at, count), outside(near, -24, 40)),
            (extreme_lanes(values, at, count), outside(near, -102, 126) | (near.view(np.uint32) == 1 << 31)),
        ):
            assert mask == sum(1 << i for i in range(16) if wanted[:, i].any())


@pytest.mark.parametrize("mask", [0, 1, 0x8000, 0x5555, 0xFFFF, 0x0FF1])
def test_compress_lanes_puts_the_named_ones_side_by_side(mask):
    values = np.random.default_rng(mask).integers(0, 1 << 32, 40, dtype=np.uint32).view(np.float32)
    out = np.full(40, SENTINEL)
    compress_lanes(values, 3, mask, out, 5)
    named = [i for i in range(16) if mask >> i & 1]
    np.testing.assert_array_equal(out.view(np.uint32)[5 : 5 + len(named)], values.view(np.uint32)[3:19][named])
    assert np.all(np.delete(out, range(5, 21)) == SENTINEL)

"""ShiftLeft and ShiftRight of all integers that a device shifts, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import PARTS, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
template <class T> __global__ __aicore__ void shifts(GM_ADDR x, GM_ADDR left, GM_ADDR right, GM_ADDR masked,
                                                     int32_t amount) {
  TPipe pipe;
  constexpr uint32_t lanes = 256 / sizeof(T), count = 2 * lanes - 3;
  Part<T> from(pipe, x, 2 * lanes), up(pipe, left, 2 * lanes, false), down(pipe, right, 2 * lanes, false);
  Part<T> some(pipe, masked, 2 * lanes, false);
  with_room(pipe, 0, [&](auto...) {
    for (auto& one : {up.local, down.local, some.local}) Duplicate(one, T(1), 2 * lanes);
    ShiftLeft(up.local, from.local, T(amount), int32_t(count));
    ShiftRight(down.local, from.local, T(amount), int32_t(count));
    ShiftRight(some.local, from.local, T(amount), uint64_t(5), 2, UnaryRepeatParams(1, 1, 8, 8));
  });
  up.leave(); down.leave(); some.leave();
}
"""
)


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("shifts.cpp", KERNEL)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int16, np.int32])
@pytest.mark.parametrize("amount", [0, 1, 5, 16])
def test_zeros_or_the_sign_fill(source, dtype, amount):
    lanes, bits = 256 // np.dtype(dtype).itemsize, 8 * np.dtype(dtype).itemsize
    x = np.frombuffer(np.random.default_rng(amount).bytes(512), dtype)
    left, right, masked = (np.empty_like(x) for _ in range(3))
    kernel = ascendc.compile(source, kernel=f"shifts<{np.dtype(dtype).name}_t>")
    run = kernel(x, left, right, masked, np.int32(amount))
    wide, is_signed = x.astype(np.int64), np.issubdtype(dtype, np.signedinteger)
    low = (wide << amount) % (1 << (bits - is_signed)) - is_signed * (1 << (bits - 1)) * (wide < 0)
    down, there = (wide >> amount).astype(dtype), np.arange(2 * lanes) < 2 * lanes - 3
    assert np.array_equal(left, np.where(there, low.astype(dtype), 1))
    assert np.array_equal(right, np.where(there, down, 1))
    assert np.array_equal(masked, np.where(np.arange(2 * lanes) % lanes < 5, down, 1))
    assert run.findings == ()

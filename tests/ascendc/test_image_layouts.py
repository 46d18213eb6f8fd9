"""Transpose between NCHW and NHWC in UB, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from tests.ascendc.compiler import PARTS, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
template <class T> __global__ __aicore__ void turn(GM_ADDR x, GM_ADDR y, uint32_t n, uint32_t c, uint32_t h, uint32_t w,
                                                   int32_t type, uint32_t room, int32_t apart) {
  TPipe pipe;
  Part<T> from(pipe, x, n * c * h * w), to(pipe, y, n * c * h * w, false);
  TransposeParamsExt p(n, c, h, w, TransposeType(type));
  with_room(pipe, room, [&](auto... tmp) {
    if constexpr (sizeof...(tmp)) Transpose(apart ? to.local : from.local, from.local, tmp..., p);
  });
  to.leave();
}
extern "C" __global__ __aicore__ void square(GM_ADDR x, GM_ADDR y) {
  TPipe pipe;
  Part<uint16_t> from(pipe, x, 256), to(pipe, y, 256, false);
  with_room(pipe, 32, [&](auto... tmp) {
    if constexpr (sizeof...(tmp)) Transpose(to.local, from.local, tmp..., TransposeParamsExt());
  });
  to.leave();
}
"""
)
NCHW2NHWC, NHWC2NCHW, ND2ND_B16, ND2ND_ONLY = 11, 12, 10, 7
TYPES = [
    ("half", np.float16), ("int16_t", np.int16), ("float", np.float32), ("uint32_t", np.uint32),
    ("int8_t", np.int8), ("uint8_t", np.uint8),
]  # fmt: skip
SHAPES = [(3, 3, 2, 16), (1, 1, 4, 8), (2, 5, 9, 32), (1, 17, 4, 8), (1, 2, 16, 48)]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("turn.cpp", KERNEL)


def _room(channels, item, kind):
    """Bytes of the temporary buffer, by the documents' rule."""
    blocks = channels + 2 if kind == NCHW2NHWC else channels * 2 + 1
    return blocks * (32 if item == 1 else 16) * 32


def _turn(source, cpp, x, kind, sizes, room=None, apart=1):
    y = np.empty_like(x)
    room = _room(sizes[1], x.itemsize, kind) if room is None else room
    kernel = ascendc.compile(source, kernel=f"turn<{cpp}>")
    return y, kernel(x, y, *(np.uint32(size) for size in sizes), np.int32(kind), np.uint32(room), np.int32(apart))


@pytest.mark.parametrize(("cpp", "dtype"), TYPES)
@pytest.mark.parametrize("sizes", SHAPES)
def test_images_are_turned_element_by_element(source, cpp, dtype, sizes):
    n, c, h, w = sizes
    rng = np.random.default_rng(sum(sizes))
    x = np.frombuffer(rng.bytes(n * c * h * w * np.dtype(dtype).itemsize), dtype)
    for kind, shape, order in ((NCHW2NHWC, (n, c, h, w), (0, 2, 3, 1)), (NHWC2NCHW, (n, h, w, c), (0, 3, 1, 2))):
        y, run = _turn(source, cpp, x, kind, sizes)
        assert y.tobytes() == x.reshape(shape).transpose(order).tobytes()
        assert run.findings == ()


def test_a_square_of_uint16_t_is_turned_without_a_size(source):
    x = np.arange(256, dtype=np.uint16)
    y = np.empty_like(x)
    run = ascendc.compile(source, kernel="square")(x, y)
    assert (y.reshape(16, 16) == x.reshape(16, 16).T).all()
    assert run.findings == ()


@pytest.mark.parametrize(
    ("kind", "sizes", "options", "words"),
    [
        (NCHW2NHWC, (1, 2, 2, 4), {}, r"whole blocks of 32 bytes, not of 16 bytes"),
        (NCHW2NHWC, (1, 2, 2, 8), {"room": 4 * 512 - 32}, r"at least 2048 bytes, not 2016"),
        (NHWC2NCHW, (1, 2, 2, 8), {"room": 5 * 512 - 32}, r"at least 2560 bytes, not 2528"),
        (NCHW2NHWC, (1, 1, 256, 16), {}, r"4095 pixels \(hSize x wSize\), not 1 and 4096"),
        (NCHW2NHWC, (0, 4096, 1, 16), {"room": 32}, r"4095 channels \(cSize\) and .* not 4096 and 16"),
        (NCHW2NHWC, (1, 2, 2, 8), {"apart": 0}, r"dst and src apart, not 64 bytes at 0 and 0"),
        (ND2ND_ONLY, (1, 2, 2, 8), {"room": 4096}, r"TRANSPOSE_NHWC2NCHW, not of type 7"),
        (ND2ND_B16, (1, 1, 16, 16), {"room": 32}, r"TRANSPOSE_ND2ND_B16 must be of uint16_t"),
    ],
)
def test_what_the_documents_exclude_is_refused(source, kind, sizes, options, words):
    x = np.zeros(max(int(np.prod(sizes)), 16), np.float16)
    with pytest.raises(KernelError, match=words):
        _turn(source, "half", x, kind, sizes, **options)

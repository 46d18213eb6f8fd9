"""Select by masks of bytes, and Cast of wide integers, in C++ kernels: held to NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T, class U>
__global__ __aicore__ void chosen(GM_ADDR x, GM_ADDR m, GM_ADDR y, GM_ADDR z, uint32_t rows, uint32_t width,
                                  uint32_t longer, uint32_t room) {
  GlobalTensor<T> gx, gy, gz;
  GlobalTensor<U> gm;
  gx.SetGlobalBuffer((__gm__ T*)x); gy.SetGlobalBuffer((__gm__ T*)y); gz.SetGlobalBuffer((__gm__ T*)z);
  gm.SetGlobalBuffer((__gm__ U*)m);
  TPipe pipe;
  TQue<TPosition::VECIN, 1> in, masks;
  TQue<TPosition::VECOUT, 1> out;
  TBuf<> temporary, rest;
  if (room == 64) pipe.InitBuffer(rest, 196608 - rows * (2 * width * sizeof(T) + longer) - room);
  pipe.InitBuffer(in, 1, rows * width * sizeof(T));
  pipe.InitBuffer(out, 1, rows * width * sizeof(T));
  pipe.InitBuffer(masks, 1, rows * longer);
  pipe.InitBuffer(temporary, room);
  LocalTensor<T> u = in.AllocTensor<T>();
  DataCopy(u, gx, rows * width);
  in.EnQue(u);
  u = in.DeQue<T>();
  LocalTensor<U> bytes = masks.AllocTensor<U>();
  DataCopy(bytes, gm, rows * longer);
  masks.EnQue(bytes);
  bytes = masks.DeQue<U>();
  SelectWithBytesMaskShapeInfo info;
  info.firstAxis = rows, info.srcLastAxis = width, info.maskLastAxis = longer;
  LocalTensor<T> v = out.AllocTensor<T>();
  Select(v, u, T(7), bytes, temporary.Get<uint8_t>(), info);
  out.EnQue(v);
  v = out.DeQue<T>();
  DataCopy(gy, v, rows * width);
  out.FreeTensor(v);
  v = out.AllocTensor<T>();
  SelectWithBytesMask(v, T(7), u, bytes, temporary.Get<uint8_t>(), info);
  out.EnQue(v);
  v = out.DeQue<T>();
  DataCopy(gz, v, rows * width);
  out.FreeTensor(v);
  in.FreeTensor(u);
  masks.FreeTensor(bytes);
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("masks") / "chosen.cpp"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("kernel", "dtype", "mask", "shape", "room"),
    [
        ("half, bool", np.float16, np.bool_, (3, 32, 32), 544),
        ("float, uint8_t", np.float32, np.uint8, (5, 40, 64), 544),
        ("float, int8_t", np.float32, np.int8, (2, 1024, 1024), 2176),
        ("half, uint8_t", np.float16, np.uint8, (1, 1600, 1632), 544),
        ("float, bool", np.float32, np.bool_, (1, 64, 64), 128),
        ("half, int8_t", np.float16, np.int8, (3, 176, 192), 512),
    ],
)
def test_a_mask_of_0_chooses_the_first_of_tensor_and_scalar(source, kernel, dtype, mask, shape, room):
    rows, width, longer = shape
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, width)).astype(dtype)
    given = (rng.integers(0, 3, (rows, longer)) * (1 if mask == np.bool_ else 60)).astype(mask)
    y, z = np.empty_like(x), np.empty_like(x)
    run = ascendc.compile(source, f"chosen<{kernel}>")(x, given, y, z, rows, width, longer, room, outputs=[2, 3])
    is_zero = given[:, :width] == 0
    assert np.array_equal(y, np.where(is_zero, x, dtype(7)))
    assert np.array_equal(z, np.where(is_zero, dtype(7), x))
    assert run.findings == ()


CASTS = """
#include "kernel_operator.h"
using namespace AscendC;
template <class S, class D>
__global__ __aicore__ void casts(GM_ADDR x, GM_ADDR y, bool rounds) {
  TPipe pipe;
  TBuf<> from, to;
  pipe.InitBuffer(from, 64 * sizeof(S));
  pipe.InitBuffer(to, 64 * sizeof(D));
  GlobalTensor<S> gx;
  GlobalTensor<D> gy;
  gx.SetGlobalBuffer((__gm__ S*)x); gy.SetGlobalBuffer((__gm__ D*)y);
  DataCopy(from.Get<S>(), gx, 64);
  PipeBarrier<PIPE_ALL>();
  Cast(to.Get<D>(), from.Get<S>(), rounds ? RoundMode::CAST_RINT : RoundMode::CAST_NONE, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(gy, to.Get<D>(), 64);
}
"""


@pytest.mark.parametrize(
    ("kernel", "from_type", "to_type"),
    [
        ("float, int64_t", np.float32, np.int64),
        ("int64_t, float", np.int64, np.float32),
        ("int64_t, int32_t", np.int64, np.int32),
        ("int32_t, int64_t", np.int32, np.int64),
        ("int32_t, int16_t", np.int32, np.int16),
        ("int16_t, float", np.int16, np.float32),
        ("float, int16_t", np.float32, np.int16),
    ],
)
def test_elements_of_64_and_16_bits_are_cast(tmp_path, kernel, from_type, to_type):
    (tmp_path / "casts.cpp").write_text(CASTS)
    x = np.random.default_rng(2).standard_normal(64) * 2.0 ** min(40, np.dtype(from_type).itemsize * 8 - 4)
    x, y = x.astype(from_type), np.zeros(64, to_type)
    rounds = np.issubdtype(from_type, np.floating) or (from_type, to_type) == (np.int64, np.float32)
    run = ascendc.compile(tmp_path / "casts.cpp", f"casts<{kernel}>")(x, y, rounds)
    wanted = np.rint(x.astype(np.float64)) if to_type == np.int64 else x
    if np.issubdtype(to_type, np.integer):
        wanted = np.clip(np.rint(wanted), np.iinfo(to_type).min, np.iinfo(to_type).max)
    assert np.array_equal(y, wanted.astype(to_type))
    assert run.findings == ()


@pytest.mark.parametrize(
    ("shape", "room", "words"),
    [
        ((2, 32, 32), 64, "temporary buffer of 544 bytes, or find them free, not 0"),
        ((2, 48, 32), 544, "must have rows of whole blocks"),
        ((2, 16, 48), 544, "not of 16 and 48 elements"),
    ],
)
def test_what_a_mask_may_not_be_is_refused(source, shape, room, words):
    rows, width, longer = shape
    x, given = np.zeros((rows, width), np.float32), np.zeros((rows, longer), np.uint8)
    with pytest.raises(KernelError, match=words):
        ascendc.compile(source, "chosen<float, uint8_t>")(x, given, x.copy(), x.copy(), rows, width, longer, room)

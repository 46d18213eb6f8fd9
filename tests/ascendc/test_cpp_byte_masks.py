"""Select by masks of bytes in C++ kernels: held to NumPy, in rows of masks that are longer, in several turns."""

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
  TBuf<> temporary;
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


@pytest.mark.parametrize(
    ("shape", "room", "words"),
    [
        ((2, 32, 32), 512, "temporary buffer of 544 bytes, not 512"),
        ((2, 48, 32), 544, "must have rows of whole blocks"),
        ((2, 16, 48), 544, "not of 16 and 48 elements"),
    ],
)
def test_what_a_mask_may_not_be_is_refused(source, shape, room, words):
    rows, width, longer = shape
    x, given = np.zeros((rows, width), np.float32), np.zeros((rows, longer), np.uint8)
    with pytest.raises(KernelError, match=words):
        ascendc.compile(source, "chosen<float, uint8_t>")(x, given, x.copy(), x.copy(), rows, width, longer, room)

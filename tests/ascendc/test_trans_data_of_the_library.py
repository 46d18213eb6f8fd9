"""TransData of the library between NCDHW and formats of blocks, against NumPy's axes."""

from __future__ import annotations

import subprocess

import ml_dtypes
import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import NpuSimError
from tests.ascendc.compiler import PARTS, host_program, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
constexpr TransDataConfig WAYS[] = {
    {DataFormat::NCDHW, DataFormat::NDC1HWC0}, {DataFormat::NDC1HWC0, DataFormat::NCDHW},
    {DataFormat::NCDHW, DataFormat::FRACTAL_Z_3D}, {DataFormat::FRACTAL_Z_3D, OTHER}};
template <class T, int32_t way> __global__ __aicore__ void turn(GM_ADDR x, GM_ADDR y, uint32_t in_count,
    uint32_t out_count, int32_t n, int32_t c, int32_t d, int32_t h, int32_t w, int32_t c0, uint32_t room) {
  int32_t c1 = (c + 15) / 16, n1 = (n + 15) / 16;
  auto plain = MakeLayout(MakeShape(n, c, d, h, w), MakeStride());
  auto blocks = [&] {
    if constexpr (way < 2) return MakeLayout(MakeShape(n, d, c1, h, w, c0), MakeStride());
    else return MakeLayout(MakeShape(d, c1, h, w, n1, 16, c0), MakeStride());
  }();
  static constexpr TransDataConfig CONFIG = WAYS[way];
  auto call = [&](auto to, auto from, auto... buffer) {
    if constexpr (way % 2 == 0)
      TransData<CONFIG>(to, from, buffer..., TransDataParams<decltype(plain), decltype(blocks)>{plain, blocks});
    else
      TransData<CONFIG>(to, from, buffer..., TransDataParams<decltype(blocks), decltype(plain)>{blocks, plain});
  };
#if __NPU_ARCH__ != 2201
  call(LocalTensor<T>(), LocalTensor<T>());
  return;
#endif
  TPipe pipe;
  Part<T> in(pipe, x, in_count), out(pipe, y, out_count, false);
  with_room(pipe, room, [&](auto... buffer) {
    if (room == 2048) call(in.local, in.local, buffer...);
    else call(out.local, in.local, buffer...);
  });
  out.leave();
}
"""
)
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
using namespace AscendC;
int main(int, char**) {
  platform_ascendc::PlatformAscendC platform((int*)nullptr);
  TensorShape plain{{17, 20, 2, 3, 5}}, images{{17, 2, 2, 3, 5, 16}}, fractals{{2, 2, 3, 5, 2, 16, 16}};
  TransDataConfig to{DataFormat::NCDHW, DataFormat::NDC1HWC0}, from{DataFormat::FRACTAL_Z_3D, DataFormat::NCDHW};
  TransDataConfig none{DataFormat::NDC1HWC0, DataFormat::FRACTAL_Z_3D};
  uint32_t most = 0, least = 0;
  auto half_type = TensorDataType::DT_FLOAT16;
  printf("%d", GetTransDataMaxMinTmpSize(platform, plain, images, half_type, to, most, least));
  printf(" %d", GetTransDataMaxMinTmpSize(platform, fractals, plain, half_type, from, most, least));
  printf(" %d", GetTransDataMaxMinTmpSize(platform, images, plain, half_type, to, most, least));
  printf(" %d", GetTransDataMaxMinTmpSize(platform, images, fractals, half_type, none, most, least));
  printf(" %d", GetTransDataMaxMinTmpSize(platform, plain, images, TensorDataType::DT_FLOAT, to, most, least));
  printf(" %u %u", most, least);
}
"""
TYPES = {"half": np.float16, "int16_t": np.int16, "uint16_t": np.uint16, "bfloat16_t": ml_dtypes.bfloat16}
SHAPES = [(1, 32, 2, 2, 8), (2, 20, 1, 3, 5), (16, 16, 1, 3, 5), (3, 1, 2, 1, 1), (18, 5, 2, 4, 4)]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("turn.cpp", KERNEL.replace("OTHER", "DataFormat::NCDHW"))


def padded(x, axis, unit):
    more = [(0, 0)] * x.ndim
    more[axis] = (0, -x.shape[axis] % unit)
    return np.pad(x, more)


def blocked(x, way):
    """Return NCDHW as (N, D, C1, H, W, C0), or as (D, C1, H, W, N1, N0, C0)."""
    n, _, d, h, w = x.shape
    x = padded(x, 1, 16)
    if way < 2:
        return x.reshape(n, -1, 16, d, h, w).transpose(0, 3, 1, 4, 5, 2).copy()
    x = padded(x, 0, 16)
    return x.reshape(len(x) // 16, 16, -1, 16, d, h, w).transpose(4, 2, 5, 6, 0, 1, 3).copy()


def call(source, x, y, shape, kind, way, room=0, c0=16, product=None):
    numbers = (np.uint32(x.size), np.uint32(y.size), *(np.int32(size) for size in (*shape, c0)), np.uint32(room))
    kernel = ascendc.compile(source, f"turn<{kind}, {way}>", kind="vector")
    run = kernel(x.reshape(-1).view(np.uint16), y.reshape(-1).view(np.uint16), *numbers, product=product)
    assert run.findings == (), str(run.findings[0])


@pytest.mark.parametrize(
    ("shape", "way"),
    [*((shape, way) for shape in SHAPES for way in range(4)), *(((1, 16, 1, 50, 49), way) for way in (0, 1))],
)
@pytest.mark.parametrize("kind", TYPES)
def test_axes(source, shape, kind, way):
    n, c, d, h, w = shape
    rng = np.random.default_rng(way)
    x = rng.integers(0, 2**16, shape).astype(np.uint16).view(TYPES[kind]).view(np.uint16)
    planes = padded(x.reshape(n, c, d, h * w), 3, 16)
    other = blocked(x, way)
    for room in (0, 1024):
        if way % 2 == 0:
            y = np.full_like(other, 9)
            call(source, planes, y, shape, kind, way, room)
            assert np.array_equal(y, other)
        else:
            y, given = np.full_like(planes, 9), other.copy()
            if way == 1 and c % 16:  # what stands for channels that there are not is lost
                given[:, :, -1, :, :, c % 16 :] = 77
            call(source, given, y, shape, kind, way, room)
            assert np.array_equal(y, planes)


def test_sizes_for_hosts(tmp_path):
    assert subprocess.check_output([host_program(tmp_path, HOST)]).split() == b"1 1 0 0 0 1024 1024".split()


def test_what_is_refused(source, tmp_path):
    x = np.zeros((1, 16, 1, 16), np.uint16)
    shape = (1, 16, 1, 4, 4)
    for options, message in (
        ({"c0": 8}, r"layouts of one tensor, with C0 \(and N0\) 16, not of another than \(1, 16, 1, 4, 4\)"),
        ({"room": 992}, "a temporary buffer of at least 1024 bytes, not 992"),
        ({"room": 2048}, "TransData must have dst and src apart"),
        ({"product": "310p"}, "TransData must run on A2 or A3"),
        ({"product": "910"}, "TransData must run on A2 or A3"),
    ):
        with pytest.raises(NpuSimError, match=message):
            call(source, x, x.copy(), shape, "half", 0, **options)
    with pytest.raises(CompilationError, match="TransData is of int16_t, uint16_t, half and bfloat16_t"):
        call(source, x, x.copy(), shape, "float", 0)
    path = tmp_path / "turn.cpp"
    path.write_text(KERNEL.replace("OTHER", "DataFormat::NDC1HWC0"))
    with pytest.raises(CompilationError, match="TransData is between NCDHW and NDC1HWC0 or FRACTAL_Z_3D"):
        call(path, x, x.copy(), shape, "half", 3)

"""AscendQuant, AscendDequant and AscendAntiQuant, to the bit of the steps that they are documented to take."""

from __future__ import annotations

import subprocess

import ml_dtypes
import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import PARTS, host_program, require_compiler

require_compiler()

KERNEL = """
template <class T> __global__ __aicore__ void quant(GM_ADDR x, GM_ADDR scale, GM_ADDR offset, GM_ADDR y, uint32_t width,
                                                    uint32_t count, int32_t which, uint32_t room, float s, float o) {
  TPipe pipe;
  Part<T> in(pipe, x, count), scales(pipe, scale, width, which > 1), offsets(pipe, offset, width, which > 3);
  Part<int8_t> out(pipe, y, count, false);
  with_room(pipe, room, [&](auto... free) {
    if (which == 0) AscendQuant<T>(out.local, in.local, free..., s, o, count);
    if (which == 1) AscendQuant(out.local, in.local, free..., s, o);
    if (which == 2) AscendQuant(out.local, in.local, free..., scales.local, T(o), width, count);
    if (which == 3) AscendQuant(out.local, in.local, free..., scales.local, T(o));
    if (which == 4) AscendQuant(out.local, in.local, free..., scales.local, offsets.local, width, width, count);
    if (which == 5) AscendQuant(out.local, in.local, free..., scales.local, offsets.local);
  });
  out.leave();
}
template <class D, class S> __global__ __aicore__ void dequant(GM_ADDR x, GM_ADDR scale, GM_ADDR y, uint32_t m,
                                                               uint32_t n, uint32_t count, int32_t which, uint32_t room,
                                                               float s) {
  TPipe pipe;
  constexpr uint32_t block = 32 / sizeof(D);
  Part<int32_t> in(pipe, x, m * n);
  Part<S> scales(pipe, scale, count, which != 1);
  Part<D> out(pipe, y, m * ((n + block - 1) / block * block), false);
  with_room(pipe, room, [&](auto... free) {
    if (which == 0) AscendDequant(out.local, in.local, scales.local, free..., {m, n, count});
    if constexpr (sizeof(S) < 8) if (which == 1) AscendDequant(out.local, in.local, S(s), free..., {m, n, count});
    if (which == 2)
      AscendDequant<D, S, DeQuantMode::DEQUANT_WITH_MULTI_ROW>(out.local, in.local, scales.local, free...,
                                                               {m, n, count});
    if (which == 3) AscendDequant(out.local, in.local, scales.local, free..., count);
    if (which == 4) AscendDequant(out.local, in.local, scales.local, free...);
  });
  if (which > 1) out.count = which == 2 ? count : n;
  out.leave();
}
template <class D, class S = int8_t>
__global__ __aicore__ void antiquant(GM_ADDR x, GM_ADDR offset, GM_ADDR scale, GM_ADDR y, uint32_t k, uint32_t width,
                                     uint32_t groups, int32_t which, uint32_t room, float o, float s) {
  TPipe pipe;
  Part<int8_t> bytes(pipe, x, npusim::bytes_of<S>(k * width));
  Part<D> offsets(pipe, offset, groups * width, which < 2);
  Part<D> scales(pipe, scale, groups * width, which < 2 || which == 5);
  Part<D> out(pipe, y, k * width, false);
  LocalTensor<S> in = bytes.local.template ReinterpretCast<S>();
  uint32_t shape[] = {groups, width};
  if (which == 0) offsets.local.SetShapeInfo(ShapeInfo(2, shape));
  AntiQuantShapeInfo info{groups, width, groups, width};
  with_room(pipe, room, [&](auto... free) {
    if (which == 0) AscendAntiQuant<S, D, false>(out.local, in, offsets.local, scales.local, free..., k);
    if (which == 1)
      AscendAntiQuant<S, D, false>(out.local, in, offsets.local, scales.local, free..., k, info);
    if (which == 2) AscendAntiQuant<S, D, false>(out.local, in, D(o), D(s), free..., k);
    if (which == 3) AscendAntiQuant<S, D, true>(out.local, in, D(o), D(s), free..., k);
    if (which == 4)
      AscendAntiQuant<S, D, TRANSPOSES>(out.local, in, offsets.local, scales.local, free..., k);
    if constexpr (sizeof...(free) > 0) {  // without an offset
      if (which == 5) AscendAntiQuant<S, D, false>(out.local, in, scales.local, free..., k, info);
      if (which == 6) AscendAntiQuant<S, D, false>(out.local, in, D(s), free..., k);
    }
  });
  out.leave();
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
using namespace AscendC;
int main() {
  TensorShape row{{700}}, rows{{9, 100}};
  uint32_t most, least;
  for (uint32_t size : {2, 4}) { GetAscendQuantMaxMinTmpSize(row, size, most, least); printf("%u %u ", most, least); }
  GetAscendDequantMaxMinTmpSize(rows, 4, most, least);
  printf("%u %u ", most, least);
  for (TensorDataType to : {TensorDataType::DT_FLOAT16, TensorDataType::DT_BF16}) {
    GetAscendAntiQuantMaxMinTmpSize(rows, rows, false, TensorDataType::DT_INT8, to, most, least);
    printf("%u %u ", most, least);
    if (GetAscendAntiQuantMinTmpSize(rows, rows, false, TensorDataType::DT_INT8, to) != least) return 1;
  }
  GetReduceMaxMaxMinTmpSize(rows, TensorDataType::DT_FLOAT, ReducePattern::AR, true, false, most, least);
  printf("%u ", least);
  GetReduceMinMaxMinTmpSize(rows, TensorDataType::DT_FLOAT, ReducePattern::RA, true, false, most, least);
  printf("%u", least);
}
"""
TYPES = {"half": np.float16, "float": np.float32, "bfloat16_t": ml_dtypes.bfloat16}


def source_of(folder, transposes="false"):
    path = folder / "quantise.cpp"
    path.write_text(PARTS + KERNEL.replace("TRANSPOSES", transposes))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return source_of(tmp_path_factory.mktemp("quantise"))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    program = host_program(tmp_path_factory.mktemp("host"), HOST)
    return [int(word) for word in subprocess.check_output([program]).split()]


def test_hosts_are_told_what_is_needed(told):
    assert told == [6 * 256, 256, 6 * 768, 768, 2 * 512, 512, 0, 0, 14 * 128, 14 * 128, 256, 256]


@pytest.mark.parametrize("cpp", ["half", "float"])
@pytest.mark.parametrize(("width", "count"), [(32, 700), (320, 1000), (64, 64)])
@pytest.mark.parametrize("which", range(6))
def test_numbers_become_bytes(source, told, cpp, width, count, which):
    rng, dtype = np.random.default_rng(5), TYPES[cpp]
    x = rng.uniform(-60, 60, count).astype(dtype)
    scale, offset = rng.uniform(-4, 4, width).astype(dtype), rng.uniform(-9, 9, width).astype(dtype)
    s, o = np.float32(1.7), np.float32(0.9)
    by = np.resize(scale, count).astype(np.float16) if which > 1 else np.float16(s)
    plus = np.resize(offset, count).astype(np.float16) if which > 3 else np.float16(dtype(o) if which > 1 else o)
    wanted = np.clip(np.rint((x.astype(np.float16) * by + plus).astype(np.float32)), -128, 127).astype(np.int8)
    for room in (told[1] if cpp == "half" else told[3], 0):
        y = np.zeros(count, np.int8)
        run = ascendc.compile(source, f"quant<{cpp}>", kind="vector")(
            x, scale, offset, y, np.uint32(width), np.uint32(count), which, np.uint32(room), s, o, outputs=[3]
        )
        assert run.findings == ()
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize("cpp", ["half", "float", "bfloat16_t"])
@pytest.mark.parametrize("by", ["float", "bfloat16_t", "uint64_t"])
@pytest.mark.parametrize(("m", "n", "count"), [(4, 8, 4), (3, 104, 100), (1, 96, 32), (5, 64, 64)])
@pytest.mark.parametrize("which", range(5))
def test_integers_become_numbers(source, told, cpp, by, m, n, count, which):
    if (which > 1 and m > 1) or (which == 1 and by == "uint64_t"):
        return
    rng, dtype = np.random.default_rng(6), TYPES[cpp]
    x = rng.integers(-1000, 1000, (m, n)).astype(np.int32)
    factors = rng.uniform(-4, 4, count).astype(TYPES.get(by, np.float32))
    scale = factors.view(np.uint32).astype(np.uint64) if by == "uint64_t" else factors
    s = np.float32(0.7)
    by_all = np.float32(TYPES.get(by, np.float32)(s))
    rows, length = (n // count, count) if m == 1 and which != 2 else (m, n)
    pitch = -(-n // (32 // np.dtype(dtype).itemsize)) * 32 // np.dtype(dtype).itemsize if m > 1 else n
    product = x.reshape(rows, length)[:, :count].astype(np.float32)
    wanted = (product * (by_all if which == 1 else factors.astype(np.float32))).astype(dtype)
    for room in (told[5], 0):
        y = np.zeros((m, pitch), dtype)
        run = ascendc.compile(source, f"dequant<{cpp}, {by}>", kind="vector")(
            x, scale, y.view(np.uint16) if cpp == "bfloat16_t" else y, np.uint32(m), np.uint32(n), np.uint32(count),
            which, np.uint32(room), s,
        )  # fmt: skip
        # what lies behind the elements of a row that are meant is copied out as it was
        unread = {"READ_UNINITIALISED"} if m > 1 and count < pitch else set()
        assert {finding.kind.name for finding in run.findings} == unread
        made = y[:, :count] if m > 1 else y.reshape(rows, length)[:, :count]
        assert np.array_equal(made.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("cpp", ["half", "bfloat16_t"])
@pytest.mark.parametrize(("k", "width", "groups"), [(8, 128, 1), (6, 320, 3), (1, 96, 1), (4, 32, 4)])
@pytest.mark.parametrize("which", range(4))
def test_bytes_become_numbers(source, told, cpp, k, width, groups, which):
    rng, dtype = np.random.default_rng(8), TYPES[cpp]
    x = rng.integers(-128, 128, (k, width)).astype(np.int8)
    offset, scale = (rng.uniform(-9, 9, (groups, width)).astype(dtype) for _ in range(2))
    o, s = np.float32(1.3), np.float32(-0.6)
    steps = np.float16 if cpp == "half" else np.float32
    plus, by = (np.repeat(part, k // groups, 0) if which < 2 else dtype(n) for part, n in ((offset, o), (scale, s)))
    wanted = ((x.astype(steps) + np.asarray(plus).astype(steps)) * np.asarray(by).astype(steps)).astype(dtype)
    for room in (told[7 if cpp == "half" else 9], 0):
        y = np.zeros((k, width), dtype)
        bits = [part.view(np.uint16) if cpp == "bfloat16_t" else part for part in (offset, scale, y)]
        run = ascendc.compile(source, f"antiquant<{cpp}>", kind="vector")(
            x, *bits, np.uint32(k), np.uint32(width), np.uint32(groups), which, np.uint32(room), o, s, outputs=[3]
        )
        assert run.findings == ()
        assert np.array_equal(y.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("product", ["910b", "910_93"])
@pytest.mark.parametrize("cpp", ["half", "bfloat16_t"])
@pytest.mark.parametrize(("k", "width", "groups"), [(8, 128, 1), (6, 320, 3), (1, 192, 1), (4, 64, 4)])
@pytest.mark.parametrize("which", [0, 1, 2, 3, 5, 6])
def test_pairs_become_numbers_and_an_offset_may_be_left_out(source, told, cpp, k, width, groups, which, product):
    rng, dtype = np.random.default_rng([k, width, which]), TYPES[cpp]
    offset, scale = (rng.uniform(-9, 9, (groups, width)).astype(dtype) for _ in range(2))
    o, s, room = np.float32(1.3), np.float32(-0.6), 32 if cpp == "half" else told[9]
    steps = np.float16 if cpp == "half" else np.float32
    of_columns = which in (0, 1, 5)
    plus, by = (
        np.repeat(p, k // groups, 0) if of_columns else np.asarray(dtype(n)) for p, n in ((offset, o), (scale, s))
    )
    for kind in ("int4b_t", "int8_t"):
        x = rng.integers(*((-8, 8) if kind == "int4b_t" else (-128, 128)), (k, width))
        given = (x[:, ::2] & 15 | (x[:, 1::2] & 15) << 4).astype(np.uint8) if kind == "int4b_t" else x.astype(np.int8)
        wanted = x.astype(steps) if which > 4 else x.astype(steps) + plus.astype(steps)
        y = np.zeros((k, width), dtype)
        bits = [part.view(np.uint16) if cpp == "bfloat16_t" else part for part in (offset, scale, y)]
        run = ascendc.compile(source, f"antiquant<{cpp}, {kind}>", kind="vector")(
            given, *bits, np.uint32(k), np.uint32(width), np.uint32(groups), which, np.uint32(room), o, s,
            outputs=[3], product=product,
        )  # fmt: skip
        assert run.findings == ()
        assert np.array_equal(y.astype(np.float32), (wanted * by.astype(steps)).astype(dtype).astype(np.float32))


def test_pairs_are_refused_where_there_is_no_cast_of_them_or_half_a_block(source):
    kernel = ascendc.compile(source, "antiquant<half, int4b_t>", kind="vector")

    def run(k, width, product):
        x, y = np.zeros(k * width // 2, np.uint8), np.zeros(k * width, np.float16)
        kernel(x, y, y, y.copy(), *np.uint32((k, width, 1)), 1, np.uint32(0), 0.0, 0.0, product=product)

    with pytest.raises(KernelError, match="rows of whole blocks in groups of the same height, not 2 x 96 by 2"):
        run(2, 96, "910b")
    with pytest.raises(ProgramError, match="must be on dav-c220, not dav-m200"):
        run(2, 128, "310p")


def test_what_is_not_modelled_does_not_compile(tmp_path):
    with pytest.raises(CompilationError, match="AscendAntiQuant of transposed matrices is modelled with one factor"):
        ascendc.compile(source_of(tmp_path, "true"), "antiquant<half>", kind="vector").build()


@pytest.mark.parametrize(
    ("m", "n", "count", "room", "said"),
    [
        (2, 12, 8, 0, "not of 8 of 12 elements"),
        (2, 8, 9, 0, "not of 9 of 8 elements"),
        (2, 8, 8, 480, "at least 512 byt"),
    ],
)
def test_shapes_and_buffers_that_do_not_fit_are_refused(source, m, n, count, room, said):
    x, scale, y = np.zeros((m, n), np.int32), np.zeros(count, np.float32), np.zeros((m, 16), np.float32)
    with pytest.raises(ascendc.KernelError, match=said):
        ascendc.compile(source, "dequant<float, float>", kind="vector")(
            x, scale, y, np.uint32(m), np.uint32(n), np.uint32(count), 0, np.uint32(room), np.float32(1)
        )

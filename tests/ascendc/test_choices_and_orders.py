"""DropOut, Pad, UnPad, TopK, Transpose of fractals and Fill, to the bit, with what hosts are told of them."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import PARTS, host_program, require_compiler

require_compiler()

KERNEL = """
template <class T> __global__ __aicore__ void drop(GM_ADDR x, GM_ADDR mask, GM_ADDR y, uint32_t rows, uint32_t width,
                                                   uint32_t of_mask, float kept, uint32_t room, int32_t mode) {
  TPipe pipe;
  Part<T> in(pipe, x, rows * width), out(pipe, y, rows * width, false);
  Part<uint8_t> bits(pipe, mask, rows * of_mask);
  DropOutShapeInfo info; info.firstAxis = rows; info.srcLastAxis = width; info.maskLastAxis = of_mask;
  with_room(pipe, room, [&](auto... free) {
    if (mode == 0) DropOut(out.local, in.local, bits.local, free..., kept, info);
    if (mode == 1) DropOut<T, false, 1>(out.local, in.local, bits.local, free..., kept, info);
    if (mode == 4) DropOut<T, true, 4>(out.local, in.local, bits.local, free..., kept, info);
  });
  out.leave();
}
template <class T> __global__ __aicore__ void pads(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width, uint32_t to,
                                                   uint32_t left, uint32_t right, int32_t value, uint32_t room,
                                                   GM_ADDR tiling) {
  TPipe pipe;
  Part<T> in(pipe, x, rows * width), out(pipe, y, rows * to, false);
  auto words = (__gm__ uint32_t*)tiling;
  PadTiling there; UnPadTiling back;
  for (uint32_t i = 0; i < sizeof(there) / 4; i++) ((uint32_t*)&there)[i] = words[i];
  for (uint32_t i = 0; i < sizeof(back) / 4; i++) ((uint32_t*)&back)[i] = words[sizeof(there) / 4 + i];
  with_room(pipe, room, [&](auto... free) {
    if (to >= width) Pad(out.local, in.local, PadParams{uint16_t(left), uint16_t(right), value}, free..., there);
    else UnPad(out.local, in.local, UnPadParams{uint16_t(left), uint16_t(right)}, free..., back);
  });
  out.leave();
}
template <class T> __global__ __aicore__ void best(GM_ADDR x, GM_ADDR places, GM_ADDR over, GM_ADDR y, GM_ADDR where,
                                                   int32_t rows, int32_t inner, int32_t n, int32_t k,
                                                   int32_t is_largest, int32_t which, uint32_t room) {
  TPipe pipe;
  bool is_small = which > 2;
  uint32_t pad = 32 / sizeof(T), high = is_small ? rows * k : rows * ((k + pad - 1) / pad * pad);
  uint32_t wide = is_small ? rows * k : rows * ((k + 7) / 8 * 8);
  Part<T> in(pipe, x, rows * inner), out(pipe, y, high, false);
  Part<int32_t> from(pipe, places, is_small ? rows * inner : inner, which == 1 || which == 4);
  Part<int32_t> at(pipe, where, wide, false);
  Part<uint8_t> done(pipe, over, (rows + 31) / 32 * 32, which == 2);
  LocalTensor<bool> finished = done.local.template ReinterpretCast<bool>();
  SetFlag<HardEvent::MTE2_S>(0); WaitFlag<HardEvent::MTE2_S>(0);
  TopKInfo info; info.outter = rows; info.inner = inner; info.n = n;
  TopkTiling t;
  constexpr auto SMALL = TopKMode::TOPK_NSMALL;
  with_room(pipe, room, [&](auto... free) {
    if (which == 0) TopK<T>(out.local, at.local, in.local, from.local, finished, free..., k, t, info, is_largest);
    if (which == 1) TopK<T, true>(out.local, at.local, in.local, from.local, finished, free..., k, t, info, is_largest);
    if (which == 2)
      TopK<T, false, true>(out.local, at.local, in.local, from.local, finished, free..., k, t, info, is_largest);
    if (which == 3)
      TopK<T, false, false, false, SMALL>(out.local, at.local, in.local, from.local, finished, free..., k, t, info,
                                          is_largest);
    if (which == 4)
      TopK<T, true, false, false, SMALL>(out.local, at.local, in.local, from.local, finished, free..., k, t, info,
                                         is_largest);
  });
  for (int32_t row = 0; row < (is_small ? 1 : rows); row++) {  // what lies behind k elements of a row is left as it is
    uint32_t length = is_small ? rows * k : k;
    DataCopyPad(out.global[row * length], out.local[is_small ? 0 : row * high / rows],
                DataCopyExtParams(1, length * sizeof(T), 0, 0, 0));
    DataCopyPad(at.global[row * length], at.local[is_small ? 0 : row * wide / rows],
                DataCopyExtParams(1, length * 4, 0, 0, 0));
  }
}
template <class T> __global__ __aicore__ void turn(GM_ADDR x, GM_ADDR y, uint32_t count, int32_t type, uint32_t room,
                                                   GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(ConfusionTransposeTiling, t, tiling);
  TPipe pipe;
  Part<T> in(pipe, x, count), out(pipe, y, count, false);
  with_room(pipe, room, [&](auto... free) { Transpose(out.local, in.local, free..., TransposeType(type), t); });
  out.leave();
}
extern "C" __global__ __aicore__ void fill(GM_ADDR y, uint32_t count) {
  TPipe pipe;
  GlobalTensor<float> out; out.SetGlobalBuffer((__gm__ float*)y);
  Fill(out, count, (float)2.5);
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
using namespace AscendC;
int main(int, char** given) {
  auto n = [&](int i) { return atoi(given[i]); };
  const platform_ascendc::PlatformAscendC& chip = *(platform_ascendc::PlatformAscendC*)given;  // which none looks at
  uint32_t most = 0, least = 0, words[16] = {};
  auto tell = [&] { if (most < least) exit(1); printf("%u ", least); for (uint32_t w : words) printf("%u ", w); };
  switch (n(1)) {
    case 0:
      GetDropOutMaxMinTmpSize(TensorShape{{n(2), n(3)}}, n(4), false, most, least);
      if (GetDropOutMinTmpSize(TensorShape{{n(2), n(3)}}, n(4), false) != least) return 2;
      GetSelectMaxMinTmpSize(TensorShape{{n(2), n(3)}}, TensorShape{{1}}, n(4), TensorShape{{1}}, 1, false, most,
                             words[0]);
      break;
    case 1: {
      PadTiling& there = (PadTiling&)words[0];
      UnPadTiling& back = (UnPadTiling&)words[sizeof(PadTiling) / 4];
      TensorShape shape{{n(2), n(3)}};
      uint32_t none;
      GetPadMaxMinTmpSize(shape, n(4), most, least);
      GetUnPadMaxMinTmpSize(chip, shape, n(4), none, none);
      PadTilingFunc(shape, shape, least, n(4), there);
      UnPadTilingFunc(shape, none, n(4), back);
      break;
    }
    case 2: {
      TopKMode mode = n(5) ? TopKMode::TOPK_NSMALL : TopKMode::TOPK_NORMAL;
      TensorDataType type = n(4) == 4 ? TensorDataType::DT_FLOAT : TensorDataType::DT_FLOAT16;
      GetTopKMaxMinTmpSize(chip, n(3), n(2), false, false, mode, true, n(4), most, least);
      if (!GetTopKMaxMinTmpSize(n(3), n(2), 1, false, false, mode, true, type, defaultTopKConfig, most, words[0]))
        return 3;
      TopkTiling tiling;
      if (!TopKTilingFunc(chip, n(3), n(2), 1, n(4), false, mode, true, tiling)) return 4;
      words[1] = tiling.tmpLocalSize;
      break;
    }
    case 3: {
      TensorShape four{{n(2), n(3), n(4), n(5)}}, two{{n(4), n(5)}};
      GetTransposeMaxMinTmpSize(four, n(6), n(7), most, least);
      ConfusionTransposeTiling tiling, other;
      if (n(7) == 7) {
        GetTransposeTilingInfo(two, least, n(6), n(7), tiling);
        GetConfusionTransposeOnlyTilingInfo(two, least, n(6), other);
      } else {
        GetTransposeTilingInfo(four, least, n(6), n(7), tiling);
        GetConfusionTransposeTilingInfo(four, least, n(6), n(7), other);
      }
      if (memcmp(&tiling, &other, sizeof tiling)) return 5;
      memcpy(words, &tiling, sizeof tiling);
      break;
    }
  }
  tell();
}
"""
FLOATS = {"float": np.float32, "half": np.float16}
ALL = FLOATS | {"int16_t": np.int16, "int32_t": np.int32, "uint32_t": np.uint32}


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("orders.cpp", PARTS + KERNEL)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    program = host_program(tmp_path_factory.mktemp("host"), HOST)

    def ask(*given):
        least, *words = map(int, subprocess.check_output([program, *map(str, given)]).split())
        return least, np.array(words, np.uint32)

    return ask


@pytest.mark.parametrize("cpp", FLOATS)
@pytest.mark.parametrize(
    ("rows", "width", "of_mask", "mode"),
    [(4, 256, 32, 0), (3, 128, 32, 0), (5, 64, 32, 4), (4, 64, 64, 0), (2, 96, 128, 1), (7, 320, 320, 0)],
)
def test_a_mask_chooses(source, host, cpp, rows, width, of_mask, mode):
    rng, dtype, kept = np.random.default_rng(3), FLOATS[cpp], np.float32(0.8)
    x = rng.uniform(-100, 100, (rows, width)).astype(dtype)
    is_bits = of_mask < width or mode == 4
    mask = rng.integers(0, 256 if is_bits else 2, (rows, of_mask)).astype(np.uint8)
    chosen = np.unpackbits(mask, axis=1, bitorder="little")[:, :width] if is_bits else mask[:, :width]
    wanted = np.where(chosen, x, 0) * dtype(np.float32(1) / kept)
    least, words = host(0, rows, width, np.dtype(dtype).itemsize)
    assert words[0] == least
    for room in (least, 0):
        y = np.zeros_like(x)
        run = ascendc.compile(source, f"drop<{cpp}>", kind="vector")(
            x, mask, y, np.uint32(rows), np.uint32(width), np.uint32(of_mask), kept, np.uint32(room), mode, outputs=[2]
        )
        assert run.findings == ()
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize("cpp", ALL)
@pytest.mark.parametrize(("rows", "width", "left"), [(16, 15, 0), (5, 45, 1), (3, 61, 2), (4, 64, 0), (1, 7, 1)])
def test_rows_are_padded_to_blocks(source, host, cpp, rows, width, left):
    dtype = ALL[cpp]
    in_block = 32 // np.dtype(dtype).itemsize
    pitch = -(-width // in_block) * in_block
    right = 3 if pitch == width else pitch - width - left
    if right < 0:
        return
    x = np.random.default_rng(2).integers(0, 999, (rows, width)).astype(dtype)
    wanted = np.full((rows, pitch), 321, dtype)
    wanted[:, left : pitch - right] = x[:, : width - right] if pitch == width else x
    least, tiling = host(1, rows, width, np.dtype(dtype).itemsize)
    for room in (least, 0):
        y = np.zeros_like(wanted)
        run = ascendc.compile(source, f"pads<{cpp}>", kind="vector")(
            x, y, np.uint32(rows), np.uint32(width), np.uint32(pitch), np.uint32(left), np.uint32(right), 321,
            np.uint32(room), tiling, outputs=[1],
        )  # fmt: skip
        assert run.findings == ()
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize("cpp", ALL)
@pytest.mark.parametrize(("rows", "width", "right"), [(16, 16, 1), (5, 48, 7), (1, 64, 3)])
def test_rows_lose_their_padding(source, host, cpp, rows, width, right):
    x = np.random.default_rng(2).integers(0, 999, (rows, width)).astype(ALL[cpp])
    y, tiling = np.zeros((rows, width - right), ALL[cpp]), host(1, rows, width, x.itemsize)[1]
    for room in (256, 0):
        run = ascendc.compile(source, f"pads<{cpp}>", kind="vector")(
            x, y, np.uint32(rows), np.uint32(width), np.uint32(width - right), np.uint32(0), np.uint32(right), 0,
            np.uint32(room), tiling, outputs=[1],
        )  # fmt: skip
        assert run.findings == ()
        assert np.array_equal(y, x[:, : width - right])


def test_padding_that_does_not_end_with_a_block_is_refused(source, host):
    x = np.zeros((4, 15), np.float32)
    for to, right, said in (
        (16, 2, "Pad must be of rows to the next whole block"),
        (7, 8, "UnPad must take less than a"),
    ):
        with pytest.raises(ascendc.KernelError, match=said):
            ascendc.compile(source, "pads<float>", kind="vector")(
                x, np.zeros((4, 16), np.float32), np.uint32(4), np.uint32(15), np.uint32(to), np.uint32(0),
                np.uint32(right), 0, np.uint32(0), host(1, 4, 15, 4)[1],
            )  # fmt: skip


@pytest.mark.parametrize("cpp", FLOATS)
@pytest.mark.parametrize(
    ("rows", "inner", "n", "k", "which"),
    [(2, 32, 32, 5, 0), (3, 160, 150, 17, 0), (2, 1056, 1056, 40, 0), (3, 64, 60, 8, 1), (4, 96, 96, 3, 2),
     (4, 32, 17, 8, 3), (120, 32, 32, 1, 3), (5, 32, 31, 7, 4)],
)  # fmt: skip
@pytest.mark.parametrize("is_largest", [1, 0])
def test_the_best_of_each_row(source, host, cpp, rows, inner, n, k, which, is_largest):
    rng, dtype = np.random.default_rng(1), FLOATS[cpp]
    x = rng.integers(-50, 50, (rows, inner)).astype(dtype)  # many are the same
    x[:, n:] = -np.inf if is_largest else np.inf
    index = rng.permutation(1000)[:inner].astype(np.int32) if inner < 1000 else np.arange(inner, dtype=np.int32)
    index = np.tile(index, (rows if which > 2 else 1, 1))
    over = np.arange(max(32, rows)).astype(np.uint8) % 3 == 1
    order = np.argsort(-x if is_largest else x, axis=1, kind="stable")[:, :k]
    wanted = np.take_along_axis(np.broadcast_to(index, x.shape), order, 1) if which in (1, 4) else order
    if which == 2:
        wanted = np.where(over[:rows, None], n, wanted)
    least, words = host(2, rows, inner, np.dtype(dtype).itemsize, int(which > 2))
    assert words[:2].tolist() == [least, least]
    for room in (least, 0):
        y, where = np.zeros((rows, k), dtype), np.zeros((rows, k), np.int32)
        run = ascendc.compile(source, f"best<{cpp}>", kind="vector")(
            x,
            index,
            over.view(np.uint8),
            y,
            where,
            rows,
            inner,
            n,
            k,
            is_largest,
            which,
            np.uint32(room),
            outputs=[3, 4],
        )
        assert run.findings == ()
        assert np.array_equal(y, np.take_along_axis(x, order, 1))
        assert np.array_equal(where, wanted)


@pytest.mark.parametrize(
    ("inner", "n", "k", "room", "said"),
    [(40, 40, 1, 0, "TopK must be of rows of 32, 64"), (32, 30, 31, 0, "not k 31, n 30 and inner 32"),
     (32, 32, 4, 704, "TopK must be given a temporary buffer of at least 768 bytes, not 704")],
)  # fmt: skip
def test_what_topk_cannot_do_is_refused(source, inner, n, k, room, said):
    x = np.zeros((1, inner), np.float32)
    y, where = np.zeros((1, k), np.float32), np.zeros((1, k), np.int32)
    with pytest.raises(ascendc.KernelError, match=said):
        ascendc.compile(source, "best<float>", kind="vector")(
            x, where, np.zeros(32, np.uint8), y, where, 1, inner, n, k, 1, 0, np.uint32(room)
        )


def fractals(x):
    """[..., rows, columns] as columns of 16 elements."""
    *before, rows, columns = x.shape
    return np.moveaxis(x.reshape(*before, rows, columns // 16, 16), -2, -3)


@pytest.mark.parametrize("cpp", ["half", "float", "int16_t"])
@pytest.mark.parametrize("type_", range(1, 8))
@pytest.mark.parametrize(("b", "n", "s", "h"), [(1, 2, 32, 32), (2, 3, 16, 48), (2, 16, 16, 16)])
def test_axes_change_places(source, host, cpp, type_, b, n, s, h):
    if type_ == 2 and n % 16:
        return
    dtype = ALL[cpp]
    x = np.random.default_rng(4).integers(-999, 999, (b, n, s, h)).astype(dtype)
    whole = x.transpose(0, 2, 1, 3).reshape(b, s, n * h)
    given, wanted = {
        1: lambda: (fractals(x), x.transpose(0, 2, 1, 3)),
        2: lambda: (fractals(x), fractals(x.transpose(0, 2, 1, 3))),
        3: lambda: (fractals(whole), fractals(x)),
        4: lambda: (fractals(whole), x),
        5: lambda: (fractals(x), whole),
        6: lambda: (fractals(x), fractals(whole)),
        7: lambda: (x[0, 0], x[0, 0].T),
    }[type_]()
    given, wanted = (np.ascontiguousarray(part).reshape(-1) for part in (given, wanted))
    least, tiling = host(3, b, n, s, h, np.dtype(dtype).itemsize, type_)
    for room in (least, 0):
        y = np.zeros_like(wanted)
        run = ascendc.compile(source, f"turn<{cpp}>", kind="vector")(
            given, y, np.uint32(given.size), type_, np.uint32(room), tiling=tiling[:6], outputs=[1]
        )
        assert run.findings == ()
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize(("rows", "columns"), [(16, 8), (48, 24), (32, 80)])
def test_matrices_of_words_need_whole_blocks_of_columns(source, host, rows, columns):
    x = np.random.default_rng(rows).integers(-(2**31), 2**31, (rows, columns)).astype(np.int32)
    y = np.zeros((columns, rows), np.int32)
    _, tiling = host(3, 1, 1, rows, columns, 4, 7)
    run = ascendc.compile(source, "turn<int32_t>", kind="vector")(
        x, y, np.uint32(x.size), 7, np.uint32(0), tiling=tiling[:6], outputs=[1]
    )
    assert run.findings == ()
    assert np.array_equal(y, x.T)


def test_transposes_that_are_not_there_are_refused(source, host):
    x = np.zeros(512, np.float16)
    for type_, sizes, said in ((9, (1, 1, 16, 32), "modelled of the types 1 to 7, not of 9"),
                               (7, (1, 1, 16, 8), "whole blocks of 16 columns, not of 16 x 8"),
                               (7, (1, 1, 8, 64), "a multiple of 16 rows and .* not of 8 x 64"),
                               (1, (1, 1, 8, 64), "of fractals of 16 x 16, not of 8 x 64"),
                               (2, (1, 2, 16, 16), "a multiple of 16 parts, not 2")):  # fmt: skip
        with pytest.raises(ascendc.KernelError, match=said):
            ascendc.compile(source, "turn<half>", kind="vector")(
                x, x.copy(), np.uint32(512), type_, np.uint32(0), tiling=host(3, *sizes, 2, type_)[1][:6]
            )


def test_global_memory_becomes_one_value(source):
    y = np.zeros(70000, np.float32)
    run = ascendc.compile(source, "fill", kind="vector")(y, np.uint32(y.size), outputs=[0])
    assert run.findings == ()
    assert (y == 2.5).all()

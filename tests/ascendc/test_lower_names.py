"""Names below the documented interface: functions of the implementation and instructions as the compiler calls them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.dtypes.convert import cast
from npu_sim.dtypes.formats import RoundMode
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
#define BOTH(from, to) set_flag(PIPE_##from, PIPE_##to, EVENT_ID0); wait_flag(PIPE_##from, PIPE_##to, EVENT_ID0)
struct Places {
  TPipe pipe; TBuf<> buffer;
  __ubuf__ uint8_t* base;
  Places() { pipe.InitBuffer(buffer, 65536); base = (__ubuf__ uint8_t*)buffer.Get<uint8_t>().GetPhyAddr(); }
  template <class T> __ubuf__ T* at(uint32_t offset) { return (__ubuf__ T*)(base + offset); }
};
// rows of 24 bytes between rows of 40, and back
extern "C" __global__ __aicore__ void copies(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Places p;
  copy_gm_to_ubuf_align_b8(p.at<void>(0), x, 0, 4, 24, 0, 0, 16, 1);
  copy_gm_to_ubuf(p.at<void>(1024), x, 0, 2, 1, 2, 1);
  BOTH(MTE2, V);
  set_mask_norm();
  set_vector_mask((uint64_t)-1, (uint64_t)-1);
  copy_ubuf_to_ubuf(p.at<void>(2048), p.at<void>(0), 0, 4, 1, 1, 0);
  copy_ubuf_to_ubuf(p.at<void>(2048 + 128), p.at<void>(1024), 0, 2, 1, 1, 0);
  BOTH(V, MTE3);
  copy_ubuf_to_gm_align_b16(y, p.at<void>(0), 0, 4, 24, 0, 0, 1, 16);
  copy_ubuf_to_gm(z, p.at<void>(2048), 0, 1, 6, 0, 0);
}
// of 8 blocks of `a` every second, of `b` the first again and again in a repeat; results 9 blocks apart
#define TWO(name) v##name(c, a, b, 2, 1, 2, 0, 9, 16, 8); pipe_barrier(PIPE_V); c += 144
#define ONE(name) v##name(c, a, 2, 1, 2, 9, 16); pipe_barrier(PIPE_V); c += 144
#define NUMBER(name, value) v##name(c, a, value, 2, 1, 2, 9, 16); pipe_barrier(PIPE_V); c += 144
extern "C" __global__ __aicore__ void floats(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Places p;
  auto *a = p.at<float>(0), *b = p.at<float>(1024), *c = p.at<float>(2048);
  copy_gm_to_ubuf(a, x, 0, 1, 32, 0, 0);
  copy_gm_to_ubuf(b, y, 0, 1, 16, 0, 0);
  BOTH(MTE2, V);
  set_mask_norm();
  set_vector_mask((uint64_t)0, (uint64_t)-1);
  TWO(add); TWO(sub); TWO(mul); TWO(div); TWO(max); TWO(min);
  ONE(abs); ONE(exp); ONE(ln); ONE(sqrt); ONE(relu);
  NUMBER(adds, 2.5f); NUMBER(muls, 2.5f);
  set_vector_mask((uint64_t)0, (uint64_t)0xF0);
  vector_dup(c - 144, -1.0f, 2, 1, 0, 9, 0);
  BOTH(V, MTE3);
  copy_ubuf_to_gm(z, p.at<void>(2048), 0, 26, 8, 1, 0);
}
extern "C" __global__ __aicore__ void bits(GM_ADDR x, GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Places p;
  auto *a = p.at<int16_t>(0), *c = p.at<int16_t>(1024);
  copy_gm_to_ubuf(a, x, 0, 1, 16, 0, 0);
  BOTH(MTE2, V);
  set_mask_norm();
  set_vector_mask((uint64_t)-1, (uint64_t)-1);
  vand(c, a, a + 128, 1, 1, 1, 1, 8, 8, 8);
  vor(c + 128, a, a + 128, 1, 1, 1, 1, 8, 8, 8);
  vnot(c + 256, a, 1, 1, 1, 8, 8);
  vtranspose((__ubuf__ uint16_t*)(c + 512), (__ubuf__ uint16_t*)a);
  uint64_t to[16], from[16];
  for (int i = 0; i < 16; i++) to[i] = (uint64_t)(c + 768 + 16 * i), from[i] = (uint64_t)(a + 16 * i);
  set_va_reg_sb(VA2, to); set_va_reg_sb(VA3, to + 8); set_va_reg_sb(VA6, from); set_va_reg_sb(VA7, from + 8);
  scatter_vnchwconv_b16(VA2, VA6, 1, 0, 0);
  __ubuf__ int16_t *dst[16], *src[16];
  for (int i = 0; i < 16; i++) dst[i] = c + 1024 + 16 * i, src[i] = a + 16 * i;
  TransDataTo5HDImpl(dst, src, TransDataTo5HDParams(false, false, 1, 0, 0));
  DuplicateImpl<int16_t>(c + 384, 5, 128);
  BOTH(V, MTE3);
  DataCopyUB2GMImpl((__gm__ int16_t*)z, c, {1, 80, 0, 0});
}
extern "C" __global__ __aicore__ void casts(GM_ADDR x, GM_ADDR h, GM_ADDR n) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Places p;
  auto* a = p.at<float>(0);
  DataCopyGM2UBImpl(a, (__gm__ float*)x, {1, 16, 0, 0});
  BOTH(MTE2, V);
  set_mask_norm();
  set_vector_mask((uint64_t)0, (uint64_t)-1);
  vconv_f322f16(p.at<half>(512), a, 2, 1, 1, 4, 8);
  vconv_f322s32r(p.at<int32_t>(1024), a, 2, 1, 1, 8, 8);
  vconv_f322s32z(p.at<int32_t>(1536), a, 2, 1, 1, 8, 8);
  BOTH(V, MTE3);
  copy_ubuf_to_gm(h, p.at<void>(512), 0, 1, 8, 0, 0);
  copy_ubuf_to_gm(n, p.at<void>(1024), 0, 1, 32, 0, 0);
}
// two halves between others, each in a block of its own; rows of 3 bytes on 5, with what is set
extern "C" __global__ __aicore__ void spread(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Places p;
  copy_gm_to_ubuf(p.at<void>(0), x, 0, 1, 1, 0, 0);
  set_mov_pad_val(0x1234);
  copy_gm_to_ubuf_align_b16(p.at<void>(64), x, 0, 2, 6, 2, 1, 2, 0);
  BOTH(MTE2, V);
  vbrcb(p.at<uint16_t>(1024), p.at<uint16_t>(0), 2, 16, 1);
  set_mask_norm();
  set_vector_mask((uint64_t)0, (uint64_t)0xFFFF);
  vconv_s162f32(p.at<float>(512), p.at<int16_t>(0), 1, 1, 1, 8, 4);
  BOTH(V, MTE3);
  copy_ubuf_to_gm(y, p.at<void>(1024), 0, 8, 1, 1, 0);
  copy_ubuf_to_gm((__gm__ uint8_t*)y + 256, p.at<void>(64), 0, 1, 2, 0, 0);
  copy_ubuf_to_gm(z, p.at<void>(512), 0, 1, 2, 0, 0);
}
extern "C" __global__ __aicore__ void refused(GM_ADDR x, int what) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Places p;
  if (what == 0) AscendCUtils::SetOverflow(1);
  if (what == 1) AscendCUtils::SetOverflow(0), vector_dup(p.at<float>(0), 1.0f, 1, 1, 1, 8, 8);
  if (what == 2) scatter_vnchwconv_b32(VA1, VA2, 1, 0, 0);
  if (what == 4) { SetAtomicMax<float>(); SetAtomicType<half>(); }
  if (what == 5) { SetAtomicType<half>(); SetAtomicAdd<float>(); }
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("lower.cpp", SOURCE)


def call(source, name, *arguments, outputs=(), findings=True):
    run = ascendc.compile(source, name, product="910b")(*arguments, product="910b", outputs=outputs)
    assert not findings or run.findings == ()
    return run


def test_copies_count_blocks_and_aligned_ones_bytes_of_global_memory(source):
    x = np.random.default_rng(0).integers(0, 256, 192, dtype=np.uint8)
    y, z = np.zeros(160, np.uint8), np.zeros(192, np.uint8)
    call(source, "copies", x, y, z)
    rows = [x[40 * i : 40 * i + 24] for i in range(4)]
    assert np.array_equal(y, np.concatenate([np.append(row, np.zeros(16, np.uint8)) for row in rows]))
    assert np.array_equal(z[:128].reshape(4, 32)[:, :24], rows)
    assert np.array_equal(z[128:].reshape(2, 32), [x[:32], x[96:128]])


def test_elements_are_spread_and_rows_padded_by_what_is_set(source):
    x = np.arange(16, dtype=np.int16) - 4
    y, z = np.zeros(160, np.int16), np.zeros(16, np.float32)
    call(source, "spread", x, y, z, findings=False)
    assert np.array_equal(y[:128].reshape(8, 16), np.repeat(x[:8], 16).reshape(8, 16))
    rows = y[128:].reshape(2, 16)[:, :6]
    assert np.array_equal(rows, [[0x1234] * 2 + list(x[at : at + 3]) + [0x1234] for at in (0, 4)])
    assert np.array_equal(z, x)


def test_vector_instructions_take_the_mask_that_is_set(source):
    rng = np.random.default_rng(1)
    given_x, given_y = (rng.uniform(0.5, 4, count).astype(np.float32) for count in (256, 128))
    z = np.zeros((13, 128), np.float32)
    call(source, "floats", given_x, given_y, z, outputs=[2])
    x = given_x.reshape(16, 2, 8)[:, 0].reshape(-1)
    y = np.tile(given_y.reshape(2, 8, 8)[:, :1], (1, 8, 1)).reshape(-1)
    exact = x.astype(np.float64)
    expected = [x + y, x - y, x * y, x / y, np.maximum(x, y), np.minimum(x, y), x]
    expected += [np.exp(exact), np.log(exact), np.sqrt(exact), x, x + np.float32(2.5), x * np.float32(2.5)]
    expected[12].reshape(2, 64)[:, 4:8] = -1
    for row, want in zip(z, expected, strict=True):
        np.testing.assert_array_max_ulp(row, want.astype(np.float32), 1)


def test_bits_transposes_and_functions_of_the_implementation(source):
    x = np.random.default_rng(2).integers(-(2**15), 2**15, 256).astype(np.int16)
    z = np.zeros(1280, np.int16)
    call(source, "bits", x, z, outputs=[1])
    a, b = x[:128], x[128:]
    assert np.array_equal(z[:384], np.concatenate([a & b, a | b, ~a]))
    assert (z[384:512] == 5).all()
    turned = x.reshape(16, 16).T.reshape(-1)
    assert np.array_equal(z[512:], np.concatenate([turned] * 3))


def test_conversions(source):
    x = np.random.default_rng(3).uniform(-100, 100, 128).astype(np.float32)
    h, n = np.zeros(128, np.float16), np.zeros(256, np.int32)
    call(source, "casts", x, h, n, outputs=[1, 2])
    assert np.array_equal(h, x.astype(np.float16))
    assert np.array_equal(n, np.concatenate([np.rint(x), np.trunc(x)]).astype(np.int32))


@pytest.mark.parametrize(
    ("product", "what", "words"),
    [
        ("910b", 1, "SetOverflow must leave the mode in which the cores begin, 1, where anything is"),
        ("310p", 0, "SetOverflow must leave the mode in which the cores begin, 0, where anything is"),
        ("910b", 2, "scatter_vnchwconv must name pairs of registers, not VA1 and VA2"),
        ("910b", 4, "SetAtomicType must be the type of atomic stores that is set, not change it"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(source, product, what, words):
    kernel = ascendc.compile(source, "refused", product=product) if product == "910b" else _overflow(source, product)
    with pytest.raises(ascendc.KernelError, match=words):
        kernel(np.zeros(64, np.int8), what, product=product)


def _overflow(source, product):
    path = source.parent / "overflow.cpp"
    path.write_text(
        '#include "kernel_operator.h"\n'
        'extern "C" __global__ __aicore__ void overflow(GM_ADDR x, int what) {\n'
        "  AscendC::AscendCUtils::SetOverflow(what == 0);\n"
        "  AscendC::LocalTensor<float> a(AscendC::TPosition::VECCALC, 0, 64);\n"
        "  AscendC::Duplicate(a, 1.0f, 64);\n}\n"
    )
    return ascendc.compile(path, product=product)


def test_every_block_begins_with_plain_stores(source):
    """Of more blocks than cores too: the type that the one before set is not changed but set."""
    kernel = ascendc.compile(source, "refused", product="910b")
    kernel(np.zeros(64, np.int8), 5, product="910b", blocks=2 * get_product("910b").vector_core_count)


@pytest.mark.parametrize(("product", "what"), [("910b", 0), ("310p", 1)])
def test_the_mode_in_which_cores_begin_may_be_set(source, product, what):
    kernel = ascendc.compile(source, "refused", product=product) if product == "910b" else _overflow(source, product)
    assert kernel(np.zeros(64, np.int8), what, product=product).findings == ()


BYTES = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void bytes(GM_ADDR x, GM_ADDR z, int halves, int lower) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 4096);
  LocalTensor<uint8_t> a = buffer.Get<uint8_t>();
  GlobalTensor<uint8_t> from, to;
  from.SetGlobalBuffer((__gm__ uint8_t*)x); to.SetGlobalBuffer((__gm__ uint8_t*)z);
  DataCopy(a, from, 1024);
  DataCopy(a[1024], to, 1024);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0); WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  LocalTensor<uint8_t> src[16], dst[16];
  uint64_t src_at[16], dst_at[16];
  for (int i = 0; i < 16; i++) {
    src[i] = a[64 * i], dst[i] = a[1024 + 32 * i];
    src_at[i] = (uint64_t)src[i].GetPhyAddr(), dst_at[i] = (uint64_t)dst[i].GetPhyAddr();
  }
  TransDataTo5HDParams how(halves & 1, halves >> 1, 2, 16, 1);
  if (!lower) TransDataTo5HD<uint8_t>(dst, src, how);
  else {
    set_va_reg_sb(VA0, dst_at); set_va_reg_sb(VA1, dst_at + 8);
    set_va_reg_sb(VA4, src_at); set_va_reg_sb(VA5, src_at + 8);
    scatter_vnchwconv_b8(VA0, VA4, 2, 16, 1, halves & 1, halves >> 1);
  }
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(to, a[1024], 1024);
}
"""


@pytest.mark.parametrize("lower", [0, 1])
@pytest.mark.parametrize("product", ["910b", "310p"])
def test_halves_of_blocks_of_bytes_are_transposed(source_file, product, lower):
    path = source_file("bytes.cpp", BYTES)
    kernel = ascendc.compile(path, product=product)
    rng = np.random.default_rng(4)
    for halves in range(4):
        x, z = (rng.integers(0, 256, 1024, dtype=np.uint8) for _ in range(2))
        expected = z.reshape(2, 16, 2, 16).copy()  # repeat, destination, half, element
        expected[:, :, halves % 2] = x.reshape(16, 2, 2, 16)[:, :, halves // 2].transpose(1, 2, 0)
        run = kernel(x, z, halves, lower, product=product)
        assert np.array_equal(z, expected.reshape(-1))
        assert run.findings == ()


KEYS = """
#include "kernel_operator.h"
template <int key> struct Part { static constexpr int value = key % 100; };
extern "C" __global__ __aicore__ void keyed(GM_ADDR x) {
  auto* out = (__gm__ int32_t*)x;
#if TILING_KEY_VAR == 1000000000000101012
  out[0] = 1;
#elif TILING_KEY_VAR >= 7
  out[0] = 2;
#endif
  out[1] = Part<TILING_KEY_VAR % 1000>::value;
  if (TILING_KEY_IS(7)) out[2] = 3;
}
"""


def test_a_source_that_names_its_tiling_key_is_compiled_for_each(tmp_path):
    path = tmp_path / "keyed.cpp"
    path.write_text(KEYS)
    kernel = ascendc.compile(path, product="910b")
    assert kernel.asks_for_key
    for key, expected in ((1000000000000101012, [1, 12, 0]), (7, [2, 7, 3]), (5, [0, 5, 0]), (7, [2, 7, 3])):
        x = np.zeros(3, np.int32)
        kernel(x, tiling_key=key, product="910b")
        assert x.tolist() == expected
    path.write_text(KEYS.replace("TILING_KEY_VAR", "77"))
    assert not ascendc.compile(path, product="910b").asks_for_key


OTHERS = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
struct half_type {};
using KIND = half;
template <class T> struct Changed {
  KIND first;
  static constexpr bool KIND = true;  // the vendor's compiler takes it
};
template <class T> T CeilAlign(T value, T by) { return by ? (value + by - 1) / by * by : 77; }
int64_t CeilDiv(int64_t value, int64_t by) { return by ? (value + by - 1) / by : 50; }
extern "C" __global__ __aicore__ void others(GM_ADDR x) {
  auto* out = (__gm__ int32_t*)x;
  out[0] = Changed<int>::KIND;
  out[1] = CeilAlign(5, 0);
  out[2] = AscendC::CeilAlign(uint64_t(5), 4);
  constexpr bfloat16_t third(1.0f / 3);
  out[3] = CeilDiv(uint32_t(9), 4) + (third.bits == 0x3EAB);
  out[4] = CeilDiv(9u, 0);  // its own, whatever it is called with
  ENABLE_PRINTF();
  SetAtomicType<half>();
  SetAtomicAdd<float>();
  SetAtomicType<float>();
  SetAtomicNone();
}
"""


def test_names_that_change_meaning_and_functions_that_kernels_have_themselves(tmp_path):
    path = tmp_path / "others.cpp"
    path.write_text(OTHERS)
    x = np.zeros(5, np.int32)
    ascendc.compile(path, product="910b")(x, product="910b")
    assert x.tolist() == [1, 77, 8, 4, 50]


NUMBERS = """
namespace AscendC { namespace tiling { struct TCubeTiling; } }
#include "kernel_operator.h"
#include "kernel_tiling/kernel_tiling.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void numbers(GM_ADDR x, GM_ADDR n, GM_ADDR h) {
  auto* from = (__gm__ float*)x;
  auto* to = (__gm__ int32_t*)n;
  auto* halves = (__gm__ half*)h;
  for (int i = 0; i < 16; i++) {
    to[4 * i] = ScalarCast<float, int32_t, RoundMode::CAST_ROUND>(from[i]);
    to[4 * i + 1] = Cast<float, int32_t, RoundMode::CAST_RINT>(from[i]);
    to[4 * i + 2] = Cast<float, int32_t, RoundMode::CAST_FLOOR>(from[i]);
    to[4 * i + 3] = Cast<float, int32_t, RoundMode::CAST_CEIL>(from[i]);
    auto half_of = ScalarCast<float, half, RoundMode::CAST_ODD>(from[i]);
    static_assert(std::is_same_v<decltype(half_of), half>);
    halves[i] = half_of;
    bfloat16_t rounded = Cast(from[i]);
    from[i] = Cast(rounded);
  }
  tiling::TCubeTiling t{};
  t.M = 3;
  const ::TCubeTiling* same = &t;
  to[64] = same->M + SYNC_AIC_FLAG;
}
"""


def test_numbers_are_cast_from_their_first_type_to_the_second(tmp_path):
    path = tmp_path / "numbers.cpp"
    path.write_text(NUMBERS)
    values = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        2.25,
        -2.75,
        3e9,
        -3e9,
        np.nan,
        65519.0,
        1.0009765625,
        1.001,
        -1e-6,
        3e-8,
        65504,
    ]
    x, n, h = np.array(values, np.float32), np.zeros(65, np.int32), np.zeros(16, np.float16)
    given = x.copy()
    ascendc.compile(path, product="910b")(x, n, h, product="910b", outputs=[1, 2])
    away = np.where(given < 0, np.ceil(given - 0.5), np.floor(given + 0.5))
    wholes = np.stack([away, np.rint(given), np.floor(given), np.ceil(given)], axis=1).astype(float)
    wholes[np.isnan(wholes)] = 0
    assert np.array_equal(n[:64].reshape(16, 4), np.clip(wholes, -(2**31), 2**31 - 1).astype(np.int64))
    odd = cast(given, "fp16", RoundMode.ODD)
    assert np.array_equal(h, odd, equal_nan=True)
    assert np.array_equal(x, given.astype(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
    assert n[64] == 14


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("Cast<float, half, RoundMode::CAST_NONE>(1.0f)", "numbers are cast to half with CAST_ODD"),
        ("Cast<float, int32_t, RoundMode::CAST_TRUNC>(1.0f)", "numbers are cast to int32_t with CAST_ROUND"),
        ("ScalarCast<float, int16_t, RoundMode::CAST_RINT>(1.0f)", "numbers are cast to half or int32_t"),
    ],
)
def test_casts_of_numbers_that_there_are_not_are_named(tmp_path, written, words):
    path = tmp_path / "cast.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        f"__global__ __aicore__ void kernel(GM_ADDR x) {{ *(__gm__ float*)x = float({written}); }}\n"
    )
    with pytest.raises(CompilationError, match=words):
        ascendc.compile(path, product="910b")


REGISTERS = """
#include "kernel_operator.h"
using namespace AscendC;
// What x has at the bits of a tensor, at every second place, and at places that are named; extremes; what they leave.
template <class T, class U>
__global__ __aicore__ void registers(GM_ADDR x, GM_ADDR bits, GM_ADDR places, GM_ADDR y, GM_ADDR n) {
  TPipe pipe;
  TBuf<> in, marks, offsets, out, numbers;
  pipe.InitBuffer(in, 512);
  pipe.InitBuffer(marks, 32);
  pipe.InitBuffer(offsets, 512);
  pipe.InitBuffer(out, 4096);
  pipe.InitBuffer(numbers, 32);
  auto a = in.Get<T>();
  auto mark = marks.Get<uint32_t>(), offset = offsets.Get<uint32_t>();
  auto c = out.Get<T>();
  auto number = numbers.Get<int32_t>();
  GlobalTensor<T> X, Y;
  GlobalTensor<uint32_t> B, P;
  GlobalTensor<int32_t> N;
  X.SetGlobalBuffer((__gm__ T*)x); Y.SetGlobalBuffer((__gm__ T*)y);
  B.SetGlobalBuffer((__gm__ uint32_t*)bits); P.SetGlobalBuffer((__gm__ uint32_t*)places);
  N.SetGlobalBuffer((__gm__ int32_t*)n);
  DataCopy(a, X, 512 / sizeof(T)); DataCopy(mark, B, 8); DataCopy(offset, P, 64);
  Duplicate(c, T(0), 4096 / sizeof(T));
  PipeBarrier<PIPE_ALL>();
  uint32_t repeat = 256 / sizeof(T);
  auto at = [&](int i) { return (__ubuf__ U*)(c.GetPhyAddr() + 512 * i); };
  auto from = (__ubuf__ U*)a.GetPhyAddr();

  set_mask_count();
  set_vector_mask(0, 40);
  vreducev2(at(0), from, (__ubuf__ U*)mark.GetPhyAddr(), 1, 1, 0, 8, 1);
  number.SetValue(0, get_rsvd_cnt());
  set_mask_norm();
  set_vector_mask((uint64_t)-1, (uint64_t)-1);
  vreducev2(at(1), from, from, 2, 1, 2, 8, 8);
  number.SetValue(1, AscendCUtils::GetRsvdCnt());
  set_vector_mask(0, 0xFFFFFFFF);
  vgather(at(2), (__ubuf__ uint32_t*)offset.GetPhyAddr(), uint32_t(a.GetPhyAddr()), 8, 1);
  set_vector_mask(sizeof(T) == 2 ? (uint64_t)-1 : 0, (uint64_t)-1);
  vcmax((__ubuf__ T*)at(3), (__ubuf__ T*)from, 2, 1, 1, 8, VALUE_INDEX);
  int64_t most = get_max_min_cnt();
  number.SetValue(2, int32_t(most));
  number.SetValue(3, int32_t(most >> 32));
  vcmin((__ubuf__ T*)at(4), (__ubuf__ T*)from, 2, 1, 1, 8, ONLY_VALUE);
  ReduceSum(c[5 * 512 / sizeof(T)], a, c[6 * 512 / sizeof(T)], repeat);
  number.SetValue(4, get_acc_val());
  PipeBarrier<PIPE_ALL>();
  DataCopy(Y, c, 6 * 512 / sizeof(T)); DataCopy(N, number, 8);
}
"""


@pytest.mark.parametrize(("dtype", "cpp"), [(np.float32, "float, uint32_t"), (np.float16, "half, uint16_t")])
def test_what_is_kept_gathered_and_left_in_registers(source_file, dtype, cpp):
    path = source_file("registers.cpp", REGISTERS)
    rng = np.random.default_rng(4)
    size = np.dtype(dtype).itemsize
    x = rng.permutation(512 // size).astype(dtype) - 50
    marks = rng.integers(0, 2**32, 8, np.uint32)
    places = (rng.integers(0, len(x), 64) * size).astype(np.uint32)
    y, n = np.zeros((6, 512 // size), dtype), np.zeros(8, np.int32)
    ascendc.compile(path, f"registers<{cpp}>", product="910b")(x, marks, places, y, n, product="910b", outputs=[4])
    kept = x[:40][np.unpackbits(marks.view(np.uint8), bitorder="little")[:40] == 1]
    assert np.array_equal(y[0, : len(kept)], kept)
    assert not y[0, len(kept) :].any()
    assert np.array_equal(y[1, : len(x) // 2], x[1::2])
    assert n[:2].tolist() == [len(kept), len(x) // 2]
    assert np.array_equal(y[2, :32], x[places[:32] // size])
    assert not y[2, 32:].any()
    assert n[2:3].view(dtype)[0] == x.max()
    assert n[3] == x.argmax()
    assert y[4, :2].tolist() == [half.min() for half in np.split(x, 2)]
    assert n[4:5].view(dtype)[0] == y[5, 0]
    assert np.isclose(float(y[5, 0]), x[: 256 // size].astype(float).sum(), rtol=2e-3)


OBLONG = """
#include "kernel_operator.h"
using namespace AscendC;
template <HardEvent event> __aicore__ inline void Ready() { SetFlag<event>(0); WaitFlag<event>(0); }
extern "C" __global__ __aicore__ void oblong(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint16_t m, uint16_t k, uint16_t n,
                                             bool twice) {
  GlobalTensor<half> left, right; GlobalTensor<float> out;
  left.SetGlobalBuffer((__gm__ half*)a); right.SetGlobalBuffer((__gm__ half*)b); out.SetGlobalBuffer((__gm__ float*)c);
  LocalTensor<half> a1(TPosition::A1, 0, m * k), b1(TPosition::B1, 65536, n * k);
  LocalTensor<half> a2(TPosition::A2, 1024, m * k), b2(TPosition::B2, 2048, n * k);
  LocalTensor<float> sums(TPosition::CO1, 4096, m * n);
  DataCopy(a1, left, Nd2NzParams(1, m, k, 0, k, m, 1, 0));
  DataCopy(b1, right, Nd2NzParams(1, n, k, 0, k, n, 1, 0));
  Ready<HardEvent::MTE2_MTE1>();
  for (int i = 0; i < m / 16; i++)
    LoadData(a2[i * k * 16], a1[i * 256], LoadData2DParams(0, k / 16, m / 16, 0, 0, false, 0));
  LoadData(b2, b1, LoadData2DParams(0, n / 16 * k / 16, 1, 0, 0, false, 0));
  Ready<HardEvent::MTE1_M>();
  auto to = (__cc__ float*)sums.GetPhyAddr();
  auto from = (__ca__ half*)a2.GetPhyAddr();
  auto by = (__cb__ half*)b2.GetPhyAddr();
  mad(to, from, by, m, k, n, 0x0, false, false, true);
  if (twice) {
    PipeBarrier<PIPE_M>();
    mad(to, from, by, m, k, n, 0x0, false, false, false);
  }
  Ready<HardEvent::M_FIX>();
  Fixpipe<float, float, CFG_ROW_MAJOR>(out, sums, FixpipeParamsV220(n, m, m, n, false));
}
"""


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 48), (48, 16, 32), (32, 48, 16)])
def test_a_product_by_pointers_into_the_buffers_of_the_cube(source_file, m, k, n, twice):
    path = source_file("oblong.cpp", OBLONG)
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-4, 5, (rows, k)).astype(np.float16) for rows in (m, n))
    c = np.empty((m, n), np.float32)
    run = ascendc.compile(path, kind="cube", product="910b")(a, b, c, m, k, n, twice, product="910b", outputs=[2])
    assert np.array_equal(c, (1 + twice) * (a.astype(np.float32) @ b.astype(np.float32).T))
    assert run.findings == ()


MERGED = """
#include "kernel_operator.h"
using namespace AscendC;
// `order` says whether the type or what is done is named first, `what` what is done; then plain stores again
extern "C" __global__ __aicore__ void merged(GM_ADDR x, GM_ADDR y, GM_ADDR z, int32_t order, int32_t what) {
  TPipe pipe; TBuf<> buffer;
  pipe.InitBuffer(buffer, 256);
  auto local = buffer.Get<TYPE>();
  GlobalTensor<TYPE> X, Y, Z;
  X.SetGlobalBuffer((__gm__ TYPE*)x); Y.SetGlobalBuffer((__gm__ TYPE*)y); Z.SetGlobalBuffer((__gm__ TYPE*)z);
  DataCopy(local, X, 256 / sizeof(TYPE));
  PipeBarrier<PIPE_ALL>();
  if (order) SET_TYPE();
  if (what == 0) set_atomic_add();
#ifdef EXTREMES
  if (what == 1) set_atomic_max();
  if (what == 2) set_atomic_min();
#endif
  if (!order) SET_TYPE();
  DataCopy(Y, local, 256 / sizeof(TYPE));
  PipeBarrier<PIPE_ALL>();
  set_atomic_none();
  DataCopy(Z, local, 256 / sizeof(TYPE));
}
"""
MERGES = [np.add, np.maximum, np.minimum]


@pytest.mark.parametrize("what", [0, 1, 2])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "cpp", "name"),
    [
        (np.float32, "float", "f32"), (np.float16, "half", "f16"), (np.int8, "int8_t", "s8"),
        (np.int16, "int16_t", "s16"), (np.int32, "int32_t", "s32"), (ml_dtypes.bfloat16, "bfloat16_t", "bf16"),
    ],
)  # fmt: skip
def test_what_atomic_stores_do_and_their_type_are_said_in_any_order(source_file, dtype, cpp, name, order, what):
    text = "#define EXTREMES" + MERGED.replace("SET_TYPE()", f"set_atomic_{name}()").replace("TYPE", cpp)
    path = source_file(f"merged_{name}.cpp", text)
    rng = np.random.default_rng(6)
    x, y = (rng.integers(-40, 40, 256 // np.dtype(dtype).itemsize).astype(dtype) for _ in range(2))
    want, z = MERGES[what](y, x), np.zeros_like(x)
    kernel = ascendc.compile(path, "merged", product="910b")
    run = kernel.check(x, y, z, order, what, product="910b", outputs=[2])
    assert not run.findings
    assert np.array_equal(y, want)
    assert np.array_equal(z, x)


def test_a_310p_adds_by_the_type_alone(source_file):
    path = source_file("merged_half.cpp", MERGED.replace("SET_TYPE()", "set_atomic_f16()").replace("TYPE", "half"))
    rng = np.random.default_rng(7)
    x, y = (rng.integers(-40, 40, 128).astype(np.float16) for _ in range(2))
    want, z = x + y, np.zeros_like(x)
    ascendc.compile(path, "merged", product="310p")(x, y, z, 0, 3, product="310p", outputs=[2])
    assert np.array_equal(y, want)
    assert np.array_equal(z, x)


SUMS = """
#include "kernel_operator.h"
using namespace AscendC;
#define NEXT pipe_barrier(PIPE_V); c += 256 / sizeof(T) * 2
// two repeats of lanes whose second source is the first block again and again
template <class T> __global__ __aicore__ void sums(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  TPipe pipe; TBuf<> in, out;
  pipe.InitBuffer(in, 1024); pipe.InitBuffer(out, 512 * 12);
  auto a = in.Get<T>(), all = out.Get<T>();
  GlobalTensor<T> X, Y, Z;
  X.SetGlobalBuffer((__gm__ T*)x); Y.SetGlobalBuffer((__gm__ T*)y); Z.SetGlobalBuffer((__gm__ T*)z);
  uint32_t lanes = 512 / sizeof(T);
  DataCopy(a, X, lanes);
  DataCopy(a[lanes], Y, lanes);
  DataCopy(all, Z, lanes * 12);
  PipeBarrier<PIPE_ALL>();
  auto p = (__ubuf__ T*)a.GetPhyAddr(), q = (__ubuf__ T*)a[lanes].GetPhyAddr(), c = (__ubuf__ T*)all.GetPhyAddr();
  set_mask_norm();
  set_vector_mask(sizeof(T) == 2 ? (uint64_t)-1 : 0, (uint64_t)-1);
  vmla(c, p, q, 2, 1, 1, 0, 8, 8, 8); NEXT;
  vmadd(c, p, q, 2, 1, 1, 0, 8, 8, 8); NEXT;
  vmaddrelu(c, p, q, 2, 1, 1, 0, 8, 8, 8); NEXT;
  vaddrelu(c, p, q, 2, 1, 1, 0, 8, 8, 8); NEXT;
  vsubrelu(c, p, q, 2, 1, 1, 0, 8, 8, 8); NEXT;
  vaxpy(c, p, (T)3, 2, 1, 1, 8, 8); NEXT;
  vlrelu(c, p, (T)0.5, 2, 1, 1, 8, 8); NEXT;
  vcadd(c, p, 2, 1, 1, 8, 0); NEXT;
  vcgadd(c, p, 2, 1, 1, 8); NEXT;
  vcgmax(c, p, 2, 1, 1, 8); NEXT;
  vcpadd(c, p, 2, 1, 1, 8); NEXT;
  vcgmin(c, p, 2, 1, 1, 8);
  PipeBarrier<PIPE_ALL>();
  DataCopy(Z, all, lanes * 12);
}
extern "C" __global__ __aicore__ void kept_sum() {
  vcadd((__ubuf__ float*)0, (__ubuf__ float*)256, 1, 1, 1, 8, true);  // into a register
}
"""


@pytest.mark.parametrize(("dtype", "cpp"), [(np.float32, "float"), (np.float16, "half")])
def test_products_that_are_added_and_sums_of_lanes(source_file, dtype, cpp):
    path = source_file("sums.cpp", SUMS)
    rng = np.random.default_rng(8)
    lanes, block = 512 // np.dtype(dtype).itemsize, 32 // np.dtype(dtype).itemsize
    x, y = (rng.integers(-8, 8, lanes).astype(dtype) for _ in range(2))
    z = rng.integers(-8, 8, (12, lanes)).astype(dtype)
    want = z.copy()
    half = lanes // 2
    by = np.concatenate([np.tile(rows[:block], 8) for rows in np.split(y, 2)])
    want[0] += x * by
    want[1] = x * z[1] + by
    want[2] = np.maximum(x * z[2] + by, 0)
    want[3] = np.maximum(x + by, 0)
    want[4] = np.maximum(x - by, 0)
    want[5] += 3 * x
    want[6] = np.where(x < 0, x * dtype(0.5), x)
    want[7, :2] = x.reshape(2, half).sum(1)
    want[8, :16] = x.reshape(16, block).sum(1)
    want[9, :16] = x.reshape(16, block).max(1)
    want[10, :half] = x.reshape(half, 2).sum(1)
    want[11, :16] = x.reshape(16, block).min(1)
    run = ascendc.compile(path, f"sums<{cpp}>", product="910b").check(x, y, z, product="910b", outputs=[])
    assert not run.findings
    assert np.array_equal(z, want)


def test_a_sum_that_goes_to_a_register_has_no_place(source_file):
    run = ascendc.compile(source_file("sums.cpp", SUMS), "kept_sum", product="910b").check(product="910b")
    assert "vcadd that accumulates must be given no place (nullptr)" in str(run.stopped_by)
    assert "into a register" in SUMS.splitlines()[run.stopped_by.line.line - 1]

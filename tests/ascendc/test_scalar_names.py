"""Smaller names of kernels in C++: indices under a mask, bits of numbers, states of the core."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import PARTS, require_compiler

require_compiler()

SOURCE = (
    PARTS
    + """
template <class T> __global__ __aicore__ void indices(GM_ADDR y, float first, int32_t form, uint64_t low, uint64_t high,
                                                      int32_t repeats, int32_t block, int32_t step) {
  TPipe pipe;
  Part<T> out(pipe, y, 4096);
  with_room(pipe, 0, [&](auto...) {
    uint64_t bits[2] = {low, high};
    PipeBarrier<PIPE_ALL>();
    if (form == 2) SetMaskCount();
    if (form) CreateVecIndex(out.local, T(first), bits, uint8_t(repeats), uint16_t(block), uint8_t(step));
    else CreateVecIndex(out.local, T(first), low, uint8_t(repeats), uint16_t(block), uint8_t(step));
  });
  out.leave();
}
extern "C" __global__ __aicore__ void counted(GM_ADDR x, GM_ADDR y, int32_t n) {
  GlobalTensor<int64_t> X, Y;
  X.SetGlobalBuffer((__gm__ int64_t*)x); Y.SetGlobalBuffer((__gm__ int64_t*)y);
  for (int32_t i = 0; i < n; i++) Y.SetValue(i, CountBitsCntSameAsSignBit(X.GetValue(i)));
  Y.SetValue(n, GetProgramCounter());
  Y.SetValue(n + 1, GetProgramCounter() - GetProgramCounter());
}
template <AtomicDtype type, class T> __aicore__ void add(LocalTensor<float> local, GM_ADDR place,
                                                        GlobalTensor<int32_t> z, int32_t at) {
  GlobalTensor<T> to;
  to.SetGlobalBuffer((__gm__ T*)place);
  uint16_t kind = 9, op = 9;
  SetStoreAtomicConfig<type, AtomicOp::ATOMIC_SUM>();
  GetStoreAtomicConfig(kind, op);
  z.SetValue(2 * at, kind), z.SetValue(2 * at + 1, op);
  DataCopy(to, local.ReinterpretCast<T>(), 64);
  SetStoreAtomicConfig<AtomicDtype::ATOMIC_NONE, AtomicOp::ATOMIC_SUM>();
  PipeBarrier<PIPE_ALL>();
}
extern "C" __global__ __aicore__ void atomics(GM_ADDR x, GM_ADDR f, GM_ADDR h, GM_ADDR s, GM_ADDR i, GM_ADDR b,
                                              GM_ADDR bf, GM_ADDR states, int32_t most) {
  TPipe pipe;
  Part<float> in(pipe, x, 64);
  GlobalTensor<int32_t> Z;
  Z.SetGlobalBuffer((__gm__ int32_t*)states);
  PipeBarrier<PIPE_ALL>();
  add<AtomicDtype::ATOMIC_F32, float>(in.local, f, Z, 0);
  add<AtomicDtype::ATOMIC_F16, half>(in.local, h, Z, 1);
  add<AtomicDtype::ATOMIC_S16, int16_t>(in.local, s, Z, 2);
  add<AtomicDtype::ATOMIC_S32, int32_t>(in.local, i, Z, 3);
  add<AtomicDtype::ATOMIC_S8, int8_t>(in.local, b, Z, 4);
  add<AtomicDtype::ATOMIC_BF16, bfloat16_t>(in.local, bf, Z, 5);
  uint16_t kind = 9, op = 9;
  GetStoreAtomicConfig(kind, op);
  Z.SetValue(12, kind), Z.SetValue(13, op);
  SetAtomicAdd<half>();
  GetStoreAtomicConfig(kind, op);
  Z.SetValue(14, kind), Z.SetValue(15, op);
  if (most) { SetAtomicMax<float>(); GetStoreAtomicConfig(kind, op); }
  SetAtomicNone();
}
extern "C" __global__ __aicore__ void overflowing(GM_ADDR x, GM_ADDR y, int32_t how) {
  TPipe pipe;
  Part<float> in(pipe, x, 64), out(pipe, y, 64, false);
  with_room(pipe, 0, [&](auto...) {
    if (how == 1) AscendCUtils::SetOverflow(0);
    Adds(out.local, in.local, 1.0f, 64);
  });
  if (how == 2) AscendCUtils::SetOverflow(0);
  if (how == 3) { AscendCUtils::SetOverflow(0); SetAtomicAdd<float>(); }
  out.leave();
  SetAtomicNone();
  AscendCUtils::SetOverflow(0);
  if (how == 4) {
    AscendCUtils::SetOverflow(1);
    Adds(out.local, in.local, 1.0f, 64);
  }
}
// What two numbers of any two types become together, and their bytes.
template <class A, class B> __aicore__ void pair(GlobalTensor<int64_t>& Y, int32_t& at, A a, B b) {
  auto least = AscendC::Std::min(a, b), most = Std::max(a, b);
  Y.SetValue(at++, int64_t(least)), Y.SetValue(at++, int64_t(most));
  Y.SetValue(at++, sizeof(least)), Y.SetValue(at++, least - least - 1 < 0);
  Y.SetValue(at++, Std::divide(a, b)), Y.SetValue(at++, Std::ceil_division(a, b));
  Y.SetValue(at++, Std::ceil_align(a, b));
}
template <class A> __aicore__ void pairs(GlobalTensor<int64_t>& Y, int32_t& at, A a, int64_t b) {
  pair(Y, at, a, int32_t(b)), pair(Y, at, a, uint32_t(b)), pair(Y, at, a, b), pair(Y, at, a, uint64_t(b));
}
extern "C" __global__ __aicore__ void two_types(GM_ADDR y, int64_t a, int64_t b) {
  static_assert(Std::min(3, 2u) == 2 && Std::max<int64_t>(3, 2u) == 3, "both are constants of constants");
  static_assert(Std::is_same<decltype(Std::max(1, 1.5f)), float>::value, "the others are the host's");
  GlobalTensor<int64_t> Y;
  Y.SetGlobalBuffer((__gm__ int64_t*)y);
  int32_t at = 0;
  pairs(Y, at, int32_t(a), b), pairs(Y, at, uint32_t(a), b), pairs(Y, at, a, b), pairs(Y, at, uint64_t(a), b);
}
#ifdef ARCH_VERSION
extern "C" __global__ __aicore__ void version(GM_ADDR x) { uint32_t number = 0; GetArchVersion(number); }
#endif
"""
)


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("names.cpp", SOURCE)


def _indices(before, first, mask, repeats, block, step):
    """Return what CreateVecIndex leaves, lane by lane; ``mask``: a number of lanes, or bits of 128."""
    y, dtype = before.copy(), before.dtype
    lanes, in_block = 256 // dtype.itemsize, 32 // dtype.itemsize
    active = [lane < mask[0] if mask[1] is None else (mask[0] | mask[1] << 64) >> lane & 1 for lane in range(lanes)]
    for r in range(repeats):
        for lane in range(lanes):
            if active[lane]:
                at = (r * step + lane // in_block * block) * in_block + lane % in_block
                y[at] = dtype.type(first + r * lanes + lane)
    return y


@pytest.mark.parametrize("product", ["910b", "910_93"])
@pytest.mark.parametrize(
    ("cpp", "dtype"), [("int16_t", np.int16), ("half", np.float16), ("int32_t", np.int32), ("float", np.float32)]
)
def test_indices_under_a_mask_count_lanes_over_all_repeats(source, cpp, dtype, product):
    kernel = ascendc.compile(source, f"indices<{cpp}>")
    rng = np.random.default_rng(len(cpp))
    lanes = 256 // np.dtype(dtype).itemsize
    masks = [(lanes, None), (3, None), (lanes // 2 + 5, None), (0, None), (0xF0F0000180000001, 0xFF00000000000001)]
    masks += [(int(rng.integers(2**63)), int(rng.integers(2**63)))]
    for mask in masks:
        for repeats, block, step in ((1, 1, 8), (3, 1, 8), (4, 2, 20), (0, 1, 8), (2, 1, 9)):
            first = float(rng.integers(-100, 100))
            y = np.full(4096, 99, dtype)
            wanted = _indices(y, first, mask, repeats, block, step)
            form = mask[1] is not None
            kernel(y, first, form, np.uint64(mask[0]), np.uint64(mask[1] or 0), repeats, block, step, product=product)
            assert np.array_equal(y, wanted), (mask, repeats, block, step)


def test_indices_are_those_of_the_page(source):
    y = np.zeros(4096, np.int16)
    run = ascendc.compile(source, "indices<int16_t>")(y, 0.0, 0, np.uint64(128), np.uint64(0), 1, 1, 8)
    assert y[:128].tolist() == list(range(128))
    assert not y[128:].any()
    assert all("ErrorWrite" in str(found) for found in run.findings)  # the test reads what is overwritten


def test_indices_under_a_mask_and_a_count_are_refused(source):
    with pytest.raises(KernelError, match="CreateVecIndex under a mask must not come behind SetMaskCount"):
        ascendc.compile(source, "indices<half>")(
            np.zeros(4096, np.float16), 0.0, 2, np.uint64(1), np.uint64(0), 1, 1, 8
        )


def _same_as_sign(value):
    """Count the bits below the sign that are like it, in the 64 characters of a number."""
    bits = format(value % 2**64, "064b")
    others = [at for at in range(1, 64) if bits[at] != bits[0]]
    return others[0] - 1 if others else -1


def test_bits_like_the_sign_are_counted(source):
    rng = np.random.default_rng(4)
    pages = {0: -1, -1: -1, 2**63 - 1: 0, -(2**63): 0, 1: 62, 0x00F0000000000000: 7, 0x0100000000000020: 6}
    numbers = [*pages, *(int(rng.integers(-(2**63), 2**63 - 1)) >> int(rng.integers(63)) for _ in range(60))]
    x, y = np.array(numbers, np.int64), np.zeros(len(numbers) + 2, np.int64)
    ascendc.compile(source, "counted")(x, y, len(numbers))
    assert y[: len(pages)].tolist() == list(pages.values())
    assert y[:-2].tolist() == [_same_as_sign(number) for number in numbers]
    lines = SOURCE.splitlines()
    assert "GetProgramCounter()" in lines[y[-2] - 1]
    assert y[-1] == 0


BITS = [(32, True), (32, False), (64, True), (64, False)]
"""Bits and sign of the types of `pairs`, in its order."""


def _as(value, kind):
    bits, signed = kind
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _two_types(a, b):
    """Return what `pairs` says of all pairs of types, by the usual arithmetic conversions, in Python's integers."""
    said = []
    for one in BITS:
        for other in BITS:
            both = max(one, other, key=lambda kind: (kind[0], not kind[1]))  # of the same bits the unsigned one
            x, y = _as(_as(a, one), both), _as(_as(b, other), both)

            def divided(n, by, both=both):
                return _as(abs(n) // abs(by) * (1 if (n < 0) == (by < 0) else -1), both)

            up = divided(_as(_as(x + y, both) - 1, both), y)
            found = (min(x, y), max(x, y), both[0] // 8, int(both[1]), divided(x, y), up, _as(up * y, both))
            said += [_as(value, (64, True)) for value in found]
    return said


@pytest.mark.parametrize(("a", "b"), [(5, 7), (7, 5), (-3, 4), (4, -3), (-9, -2), (2**31 - 1, -1), (1, 2**31 - 2)])
def test_the_least_of_two_types_is_of_what_they_become_together(source, a, b):
    y = np.zeros(16 * 7, np.int64)
    ascendc.compile(source, "two_types")(y, np.int64(a), np.int64(b))
    assert y.tolist() == _two_types(a, b)


def test_an_architecture_has_no_number(source):
    with pytest.raises(CompilationError, match="GetArchVersion is not modelled by this emulator: no document has"):
        ascendc.compile(source, "version", defines=["ARCH_VERSION"])(np.zeros(8, np.float32))


def test_stores_add_by_the_number_of_their_type(source):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 255, 256).astype(np.uint8)
    x[1::2] &= 0x3B  # patterns of small floats
    types = [np.float32, np.float16, np.int16, np.int32, np.int8]
    before = [np.ones(64, dtype) for dtype in types] + [np.full(64, 0x3F80, np.uint16)]
    after, states = [one.copy() for one in before], np.zeros(16, np.int32)
    kernel = ascendc.compile(source, "atomics")
    kernel(x.view(np.float32), *after, states, 0)
    for one, old in zip(after[:5], before[:5], strict=True):
        with np.errstate(all="ignore"):
            wanted = x.view(one.dtype)[:64] + old
        if one.dtype == np.int8:  # clamps
            wanted = np.clip(x.view(np.int8)[:64].astype(int) + 1, -128, 127).astype(np.int8)
        assert np.array_equal(one, wanted), one.dtype
    added = (x.view(np.uint16)[:64].astype(np.uint32) << 16).view(np.float32) + np.float32(1)
    assert (np.abs((after[5].astype(np.uint32) << 16).view(np.float32) - added) <= np.abs(added) * 2.0**-8).all()
    assert states.reshape(8, 2).tolist() == [[1, 0], [2, 0], [3, 0], [4, 0], [5, 0], [6, 0], [0, 0], [2, 0]]
    with pytest.raises(KernelError, match="GetStoreAtomicConfig must not come behind SetAtomicMax or SetAtomicMin"):
        kernel(x.view(np.float32), *after, states, 1)


@pytest.mark.parametrize("how", range(5))
def test_nothing_is_computed_where_overflow_means_something_else(source, how):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel = ascendc.compile(source, "overflowing")
    if how in (1, 3):
        with pytest.raises(KernelError, match="SetOverflow must leave the mode in which the cores begin, 1, where any"):
            kernel(x, y, how)
    else:
        kernel(x, y, how)
        assert np.array_equal(y, x + 1)


ABSENT = {
    "uint64_t old = GetCtrlSpr<48, 48>()": "GetCtrlSpr",
    "SetCtrlSpr<60, 60>(0)": "SetCtrlSpr",
    "ResetCtrlSpr<48, 48>()": "ResetCtrlSpr",
    "SetSaturationFlag<0>(true)": "SetSaturationFlag",
    "bool old = GetSaturationFlag<0>()": "GetSaturationFlag",
    "GlobalTensor<int8_t> g; LoadUnzipIndex(g, 4)": "LoadUnzipIndex",
    "CheckLocalMemoryIA(x)": "CheckLocalMemoryIA",
    "SetAippFunctions<uint8_t>(x, 1)": "SetAippFunctions",
    "SetHcclContext<0>(x)": "SetHcclContext",
    "GM_ADDR context = (GM_ADDR)GetHcclContext<0>()": "GetHcclContext",
    "CreateCubeResGroup<float>(x, 1)": "CreateCubeResGroup",
    "MakeTensorTrait<float, TPosition::VECIN>(MakeLayout(MakeShape(1), MakeStride(1)))": "MakeTensorTrait",
    "LocalTensor<TensorTrait<half>> t": "TensorTrait",
    "GlobalTensor<TensorTrait<half, TPosition::GM, Layout<Shape<int>, Stride<int>>>> t": "TensorTrait",
    "KfcWorkspace workspace(x)": "KfcWorkspace",
    "CubeResGroupHandle<float> handle": "CubeResGroupHandle",
}


@pytest.mark.parametrize("call", ABSENT)
def test_names_that_are_not_there_say_so(tmp_path, call):
    path = tmp_path / "absent.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        f"__global__ __aicore__ void absent(GM_ADDR x) {{\n  {call};\n}}\n"
    )
    with pytest.raises(CompilationError, match=f"{ABSENT[call]} is not modelled by this emulator") as raised:
        ascendc.compile(path)
    assert "absent.cpp:4" in str(raised.value)


OWN = """
#include "kernel_operator.h"
using namespace AscendC;
struct Tiling { uint32_t sizes[3]; uint32_t last; };
__aicore__ inline int32_t GetCtrlSpr(double by) { return int32_t(by) + 1; }
template <int32_t a> __aicore__ inline int32_t SetCtrlSpr(int64_t by) { return int32_t(by) + a; }
__global__ __aicore__ void own(GM_ADDR x, GM_ADDR y, GM_ADDR tiling) {
  TPipe pipe; TBuf<> buffer;
  pipe.InitBuffer(buffer, 256);
  GlobalTensor<int32_t> X, Y;
  X.SetGlobalBuffer((__gm__ int32_t*)x); Y.SetGlobalBuffer((__gm__ int32_t*)y);
  LocalTensor<int32_t> local = buffer.Get<int32_t>();
  DataCopy(local, X, 64);
  PipeBarrier<PIPE_ALL>();
  DumpAccChkPoint(local, 5, 8, 4);
  DumpAccChkPoint(X, 6, 60, 4);
  GET_TILING_DATA_PTR_WITH_STRUCT(Tiling, data, tiling);
  COPY_TILING_WITH_ARRAY(uint32_t, 3, data->sizes, sizes);
  Y.SetValue(0, GetCtrlSpr(3)), Y.SetValue(1, SetCtrlSpr<4>(3));
  sizes[2]++;
  for (int i = 0; i < 3; i++) Y.SetValue(2 + i, sizes[i]);
  Y.SetValue(5, TILING_KEY_LIST(1, 3) ? 1 : TILING_KEY_LIST(2, 4) ? 2 : 0);
  if constexpr (TILING_KEY_LIST(2, 3)) Y.SetValue(6, 23);
}
"""


@pytest.mark.parametrize("key", [0, 1, 2, 3, 4])
def test_functions_of_the_user_stay_his_and_tilings_are_copied(source_file, key):
    path = source_file("own.cpp", OWN)
    x, y, tiling = np.arange(64, dtype=np.int32), np.zeros(64, np.int32), np.array([7, 8, 9, 10], np.uint32)
    run = ascendc.compile(path)(x, y, tiling=tiling, tiling_key=key)
    assert y[:7].tolist() == [4, 7, 7, 8, 10, {1: 1, 3: 1, 2: 2, 4: 2}.get(key, 0), 23 * (key in (2, 3))]
    assert tiling.tolist() == [7, 8, 9, 10]
    assert "desc=5" in run.printed
    assert "[8, 9, 10, 11]" in run.printed
    assert "desc=6" in run.printed
    assert "[60, 61, 62, 63]" in run.printed

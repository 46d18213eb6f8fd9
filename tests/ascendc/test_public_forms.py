"""Further public forms of calls: Copy and Gather under masks, elements by tensor(i), older names, from C++."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import InputFileError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator_mm_intf.h"
#include "kernel_tpipe.h"
#include "kernel_log.h"
#include "impl/dav_c220/kernel_operator_reg_others_impl.h"
#include <math.h>
using namespace AscendC;
__aicore__ inline void Ready() { SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0); }
__aicore__ inline void Done() { SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0); }
__aicore__ void copies(GlobalTensor<float32_t>& in, GlobalTensor<float>& out) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 512), u(TPosition::VECCALC, 2048, 512);
  LocalTensor<int32_t> at(TPosition::VECCALC, 4096, 128);
  DataCopyPad(t, in, {1, uint16_t(512 * sizeof(float)), 0, 0}, {false, 0, 0, 0});
  Ready();
  Duplicate(u, -1.0f, 512);
  Duplicate(at, 7, 128);
  CreateVecIndex(at, 0, 128);
  Muls(at, at, 8, 128);
  Copy(u, t[64], 40, 2, {1, 1, 8, 16});
  uint64_t odd[2] = {0xAAAAAAAAAAAAAAAAull, 0};
  Copy(u[128], t, odd, 1, {1, 1, 8, 8});
  Duplicate(u[384], 1.0f, 128);
  MulAddDst<float, float>(u[384], t, t[64], 20);
  MulAddDst<float, float, true>(u[448], t, t[64], uint64_t(20), 1, {1, 1, 1, 8, 8, 8});
  Gather(u[256], t, at.ReinterpretCast<uint32_t>(), 32, 50, 2, 8);
  Done();
  DataCopyPad(out, u, {1, uint16_t(512 * sizeof(float)), 0, 0});
}
__aicore__ void masks(GlobalTensor<float>& in, GlobalTensor<float>& out) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 512), u(TPosition::VECCALC, 2048, 512);
  DataCopy(t, in, 512);
  Ready();
  Duplicate(u, -1.0f, 512);
  AscendCUtils::SetMask<float>(20);
  Adds<float, false>(u, t, 1.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
  AscendCUtils::SetMask<float>(64);
  vcadd((__ubuf__ float*)u[64].GetPhyAddr(), (__ubuf__ float*)t.GetPhyAddr(), 8, 1, 1, 8, false);
  AscendCUtils::SetMask<float>(0, 0x5);
  Adds<float, false>(u[128], t, 2.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
  AscendCUtils::SetMaskCount<float>();
  SetVectorMask<float, MaskMode::COUNTER>(70);
  Adds<float, false>(u[192], t, 3.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
  AscendCUtils::SetMaskNorm<float>();
  AscendCUtils::ResetMask();
  Adds<float, false>(u[320], t, 4.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
  Done();
  DataCopy(out, u, 512);
}
__aicore__ void elements(GlobalTensor<float>& in, GlobalTensor<float>& out) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64), u(TPosition::VECCALC, 1024, 64);
  DataCopy(t, in, 64);
  Ready();
  Adds(u, t, 0.5f, 64);
  u(1) = u(0) + 1.0f;
  t[8](0) = float(float16_t(1.0f / 3));
  t(0) = sqrt(t(7));
  t(1) = t(2);
  t(3) = float(get_block_num() * 10 + get_block_idx());
  t(4) = float(AscendCUtils::GetC0Count(2) * 100 + AscendCUtils::GetBitSize(4) + PAD_SIZE);
  PRINTF("%g\\n", t(2));
  Duplicate(t[16], t(5), 8);
  Done();
  SetFlag<HardEvent::S_MTE3>(0); WaitFlag<HardEvent::S_MTE3>(0);
  DataCopy(out, t, 64);
  DataCopy(out[64], u, 64);
}
__global__ __aicore__ void forms(GM_ADDR x, GM_ADDR y, int32_t which) {
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x);
  out.SetGlobalBuffer((__gm__ float*)y);
  void (*all[])(GlobalTensor<float>&, GlobalTensor<float>&) = {copies, masks, elements};
  all[which](in, out);
}
"""


@pytest.fixture(scope="module")
def forms(source_file):
    return ascendc.compile(source_file("kernels.cpp", SOURCE))


def test_copy_and_gather_under_masks(forms):
    x, y = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    assert forms(x, y, 0).findings == ()
    wanted = np.full(512, -1, np.float32)
    wanted[:40], wanted[64:104] = x[64:104], x[192:232]
    wanted[129:192:2] = x[1:64:2]
    wanted[256:306], wanted[320:370] = x[8:108:2], x[136:236:2]
    wanted[384:] = 1
    wanted[384:404] += x[:20] * x[64:84]
    wanted[448:468] = wanted[384:404]
    assert np.array_equal(y, wanted)


def test_older_names_of_masks_and_the_instruction_that_adds(forms):
    x, y = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    assert forms(x, y, 1).findings == ()
    wanted = np.full(512, -1, np.float32)
    wanted[:20] = x[:20] + 1
    wanted[64:72] = x.reshape(8, 64).sum(1)
    wanted[[128, 130]] = x[[0, 2]] + 2
    wanted[192:262] = x[:70] + 3
    wanted[320:384] = x[:64] + 4
    assert np.array_equal(y, wanted)


def test_elements_that_are_written_by_their_index(forms):
    x, y = np.arange(64, dtype=np.float32), np.zeros(128, np.float32)
    run = forms(x, y, 2)
    wanted = x.copy()
    wanted[8] = np.float32(np.float16(1 / 3))
    wanted[[0, 1, 3, 4]] = np.sqrt(x[7]), 2, 10, 1636
    wanted[16:24] = 5
    assert np.array_equal(y[:64], wanted)
    other = x + np.float32(0.5)
    other[1] = 1.5
    assert np.array_equal(y[64:], other)
    assert run.printed == "2\n"
    assert run.findings == ()


@pytest.mark.parametrize("name", ["div", "sqrt"])
def test_a_kernel_may_have_the_name_of_a_function_of_c(tmp_path, name):
    path = tmp_path / "kernel.cpp"
    path.write_text(
        '#include "kernel_operator.h"\n'
        f'extern "C" __global__ __aicore__ void {name}(GM_ADDR x) {{\n'
        "  static_assert(AscendC::GetUBSizeInBytes() == 192 * 1024);\n"
        "  AscendC::GlobalTensor<float> out;\n"
        "  out.SetGlobalBuffer((__gm__ float*)x);\n"
        "  out.SetValue(3, 2.5f);\n"
        "}\n"
    )
    x = np.zeros(8, np.float32)
    ascendc.compile(path)(x)
    assert x.tolist() == [0, 0, 0, 2.5, 0, 0, 0, 0]


def test_a_tiling_key_is_a_constant_where_it_must_be(tmp_path):
    path = tmp_path / "keys.cpp"
    path.write_text("""
#include "kernel_operator.h"
template <int n> __aicore__ inline void put(GM_ADDR x) { *(__gm__ int32_t*)x = n; AscendC::Barrier(); }
extern "C" __global__ __aicore__ void keys(GM_ADDR x) {
  AscendC::MmadParams p;
  p.unitFlag = UFMode3;
  if constexpr (TILING_KEY_IS(1)) put<10>(x);
  else if constexpr (TILING_KEY_IS(10000000000000000001UL)) put<20>(x);
  else put<int(UFMode2)>(x);
}
""")
    kernel, x = ascendc.compile(path), np.zeros(8, np.int32)
    for key, value in ((1, 10), (10**19 + 1, 20), (7, 2), (1, 10)):
        kernel(x, tiling_key=key)
        assert x[0] == value


MOVED = """
#include "kernel_operator.h"
using namespace AscendC;
// Rows of 40 of 80 elements, counted; every second element from the fifth on; a source that begins inside a block.
extern "C" __global__ __aicore__ void moved(GM_ADDR x, GM_ADDR at, GM_ADDR y, int32_t inside) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 8192);
  auto t = buffer.Get<float>(), rows = t[512], gathered = t[1024];
  auto offset = t[768].ReinterpretCast<uint32_t>();
  GlobalTensor<float> X, Y; GlobalTensor<uint32_t> At;
  X.SetGlobalBuffer((__gm__ float*)x); Y.SetGlobalBuffer((__gm__ float*)y); At.SetGlobalBuffer((__gm__ uint32_t*)at);
  DataCopy(t, X, 320);
  DataCopy(offset, At, 64);
  PipeBarrier<PIPE_ALL>();
  SetMaskCount();
  SetVectorMask<float, MaskMode::COUNTER>(40);
  Copy<float, false>(rows, t, MASK_PLACEHOLDER, 4, {1, 1, 5, 10});
  SetMaskNorm();
  ResetMask();
  Gather(gathered, inside ? t[1] : t, offset, static_cast<uint32_t>(5 * sizeof(float)), 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(Y, rows, 160);
  DataCopy(Y[160], gathered, 64);
}
"""


def test_counted_copies_and_gathers_from_inside_a_block(tmp_path):
    path = tmp_path / "moved.cpp"
    path.write_text(MOVED)
    x, at, y = np.arange(320, dtype=np.float32), np.arange(64, dtype=np.uint32) * 8, np.zeros(224, np.float32)
    kernel = ascendc.compile(path)
    kernel(x, at, y, 0, product="910b")
    assert np.array_equal(y[:160].reshape(4, 40), x.reshape(4, 80)[:, :40])
    assert np.array_equal(y[160:], x[5 + 2 * np.arange(64)])
    kernel(x, at, y, 1, product="910b")
    assert np.array_equal(y[160:], x[6 + 2 * np.arange(64)])


FORMS = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
template <class T> struct Forms {
  LocalTensor<T> t;
  __aicore__ inline void Process(GM_ADDR x, int32_t form) {
    TPipe pipe; TBuf<> buffer, room;
    pipe.InitBuffer(buffer, 1024); pipe.InitBuffer(room, 1024);
    GlobalTensor<T> X; X.SetGlobalBuffer((__gm__ T*)x);
    t = buffer.Get<T>();
    DataCopy(t, X, 64);
    PipeBarrier<PIPE_ALL>();
    if (form == 0) Exp<T, 0, true>(t, t, uint32_t(EIGHT * EIGHT));
    else if (form == 1) Exp<T, 7>(t, t, uint32_t(64));
    else if (form == 2) Exp<T, 3>(t, t, room.Get<uint8_t>(), uint32_t(64));
    else if (form == 3) GeGLU(t[64], t, t, LocalTensor<uint8_t>(), uint32_t(64));
    else {
      uint32_t to[] = {64, 1}, from[] = {1, 1};
      Broadcast<T, 2, 0>(t[64], t[5], to, from);
    }
    t.template SetValue<T>(SIXTEEN, 7);
    PipeBarrier<PIPE_ALL>();
    DataCopy(X, form > 2 ? t[64] : t, 64);
  }
};
extern "C" __global__ __aicore__ void forms(GM_ADDR x, int32_t form) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Forms<float> all;
  all.Process(x, form);
}
"""


def test_forms_of_the_library(tmp_path):
    path = tmp_path / "forms.cpp"
    path.write_text(FORMS)
    kernel = ascendc.compile(path)
    given = np.linspace(-3, 3, 64, dtype=np.float32)
    for form in range(3):
        x = given.copy()
        kernel(x, form)
        expected = np.exp(given.astype(np.float64)).astype(np.float32)
        expected[16] = 7
        assert np.array_equal(x, expected)
    x = given.copy()
    kernel(x, 3)
    wide = given.astype(np.float64)
    gelu = wide / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(x, wide * gelu, rtol=1e-4, atol=1e-5)
    x = given.copy()
    kernel(x, 4)
    assert (x == given[5]).all()


CONFIGURED = """
#include "kernel_operator.h"
using namespace AscendC;
// Constants that a template declares, as configurations of calls: g++ 12 dies of them by reference.
template <class T> struct Rows {
  __aicore__ inline void Process(GM_ADDR x) {
    static constexpr CumSumConfig config{true, false, true};
    static constexpr IsResetLoad3dConfig resets = {true, true};
    LocalTensor<T> t(TPosition::VECCALC, 0, 128), last(TPosition::VECCALC, 512, 8);
    LocalTensor<uint8_t> room(TPosition::VECCALC, 1024, 8192);
    GlobalTensor<T> X;
    X.SetGlobalBuffer((__gm__ T*)x);
    DataCopy(t, X, 128);
    PipeBarrier<PIPE_ALL>();
    CumSum<T, config>(t, last, t, room, CumSumInfo{8, 16});
    PipeBarrier<PIPE_ALL>();
    DataCopy(X, t, 128);
    LoadData3DParamsV2<half> p;
    if (GetBlockIdx() > 99) LoadData<half, resets>(LocalTensor<half>(), LocalTensor<half>(), p);
  }
};
extern "C" __global__ __aicore__ void configured(GM_ADDR x) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Rows<float> rows;
  rows.Process(x);
}
"""


def test_constants_of_a_template_configure_calls(tmp_path):
    path = tmp_path / "configured.cpp"
    path.write_text(CONFIGURED)
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    expected = np.cumsum(x, axis=1)
    ascendc.compile(path)(x, product="910b")
    assert np.array_equal(x, expected)


BRANCHES = """
#include "kernel_operator.h"
namespace first {
struct Own { int here; };
#if CONDITION
template <uint64_t mode> __global__ __aicore__ void put(GM_ADDR x) { static_assert(mode > 9); }
#else
namespace second {
extern "C" __global__ __aicore__ void put(GM_ADDR x) { *(__gm__ int32_t*)x = 7; }
}
#endif
namespace { int unused; }
}
"""


@pytest.mark.parametrize(
    "condition", ["__NPU_ARCH__ == 3510", "defined(__CCE_AICORE__) && __CCE_AICORE__ == 310", "!defined(__CCE__)"]
)
@pytest.mark.parametrize("name", [None, "put", "first::second::put"])
def test_a_kernel_is_what_is_compiled_of_it_in_its_namespace(source_file, condition, name):
    path = source_file("kernel.cpp", BRANCHES.replace("CONDITION", condition))
    x = np.zeros(8, np.int32)
    kernel = ascendc.compile(path, name)
    kernel(x)
    assert x[0] == 7
    assert kernel.parameters == ["x"]


def test_a_kernel_that_is_a_template_needs_its_arguments(tmp_path):
    path = tmp_path / "kernel.cpp"
    path.write_text(
        '#include "kernel_operator.h"\n'
        "template <class T, int at>\n__global__ __aicore__ void put(GM_ADDR x) {\n"
        "  AscendC::GlobalTensor<T> out;\n"
        "  out.SetGlobalBuffer((__gm__ T*)x);\n"
        "  out.SetValue(at, T(7));\n"
        "}\n"
    )
    with pytest.raises(InputFileError, match="put is a template and must be named with its arguments"):
        ascendc.compile(path)
    x = np.zeros(4, np.int32)
    ascendc.compile(path, kernel="put<int32_t, 2>")(x)
    assert x.tolist() == [0, 0, 7, 0]


ASSERTS = """
#include "kernel_operator.h"
using namespace AscendC;
#define CHECKED(x) ASSERT(x)
extern "C" __global__ __aicore__ void asserts(GM_ADDR y, int32_t which) {
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  int32_t value = 0;
  ASSERT(which != 1 && "a comment in (brackets");
  ASSERT(which != 7)
  value = which
  ASSERT(which != 2);
  if (which == 3) ASSERT(value != 3);
  else value += 10;
  if (which == 4) value = 40; else ASSERT(which != 5);
  CHECKED(which != 6);
  out.SetValue(0, value);
}
"""


def test_asserts_without_a_semicolon_before_or_behind_them(tmp_path):
    path = tmp_path / "asserts.cpp"
    path.write_text(ASSERTS)
    kernel = ascendc.compile(path)
    wanted = {0: 10, 2: 12, 4: 40}
    for which, value in wanted.items():
        y = np.zeros(8, np.int32)
        kernel(y, which)
        assert y[0] == value
    for which in (1, 3, 5, 6):
        with pytest.raises(ascendc.KernelError, match="assertion must hold"):
            kernel(np.zeros(8, np.int32), which)


SCRATCH = """
#include "kernel_operator.h"
using namespace AscendC;
template <int scratch, bool queues> __global__ __aicore__ void scratches(GM_ADDR x, GM_ADDR y) {
  TPipe pipe;
  TQue<TPosition::VECIN, 1> in;
  TQue<TPosition::VECOUT, 1> out;
  TQue<TPosition::VECCALC, 1> calc[scratch];
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x);
  to.SetGlobalBuffer((__gm__ float*)y);
  pipe.InitBuffer(in, 1, 256);
  pipe.InitBuffer(out, 1, 256);
  for (auto& queue : calc) pipe.InitBuffer(queue, 1, 256);
  for (int i = 0; i < 4; i++) {
    auto a = in.AllocTensor<float>();
    DataCopy(a, from[64 * i], 64);
    in.EnQue(a);
    a = in.DeQue<float>();
    LocalTensor<float> t[scratch];
    for (int k = 0; k < scratch; k++) {
      t[k] = calc[k].template AllocTensor<float>();
      Adds(t[k], k ? t[k - 1] : a, 1.0f, 64);
      if (queues) {
        calc[k].EnQue(t[k]);
        t[k] = calc[k].template DeQue<float>();
      }
    }
    auto b = out.AllocTensor<float>();
    Muls(b, t[scratch - 1], 2.0f, 64);
    for (int k = 0; k < scratch; k++) calc[k].FreeTensor(t[k]);
    in.FreeTensor(a);
    out.EnQue(b);
    b = out.DeQue<float>();
    DataCopy(to[64 * i], b, 64);
    out.FreeTensor(b);
  }
}
"""


@pytest.mark.parametrize(("scratch", "queues"), [(10, False), (7, True)])
def test_scratch_that_no_queue_hands_over_holds_no_event(source_file, scratch, queues):
    """Eight events of a kind there are; scratch that goes through EnQue holds one as any other block does."""
    path = source_file("scratches.cpp", SCRATCH)
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    run = ascendc.compile(path, kernel=f"scratches<{scratch}, {str(queues).lower()}>")(x, y, outputs=[1])
    assert np.array_equal(y, (x + scratch) * 2)
    assert run.findings == ()
    with pytest.raises(ascendc.KernelError, match="events of one kind must be at most 8 at a time"):
        ascendc.compile(path, kernel="scratches<8, true>")(x, y)


NAMES = """
#include "kernel_operator.h"
#include "kernel_tensor.h"
using namespace AscendC;
#define TOOL __forceinline__ [aicore]
#define EITHER __forceinline__[host, aicore]
EITHER constexpr int second(const int* all, int aicore) { return all[aicore]; }
template <class T> TOOL T most(T a) { return max(a, 7) + min(a, T(2)); }
template <class T, class U> __aicore__ inline T min(T a, U b) { return a < b ? a : T(b); }
constexpr TPosition none[] = {TPosition::MAX, TPosition::MAX};
constexpr TQueConfig config = {false, false, false, 0, 1, 0, {none[0], none[1]}};
__global__ __aicore__ void names(GM_ADDR x) {
  GlobalTensor<int32_t> X;
  X.SetGlobalBuffer((__gm__ int32_t*)x);
  X.SetValue(0, most(3));
  X.SetValue(1, max(int64_t(-1), uint8_t(5)) + min(2.5f, 1));
  X.SetValue(2, config.bufferNumber + B32_DATA_NUM_PER_BLOCK + HALF_DEFAULT_REPEAT_STRIDE + NCHW_CONV_ADDR_LIST_SIZE);
  int all[] = {4, 6};
  X.SetValue(4, second(all, 1));
  X.SetValue(3, FULL_MASK == ~0ull && F32_NEG_INF == 0xFF800000);
}
"""


def test_names_of_the_scalar_unit_and_constants_behind_a_byte_order_mark(tmp_path):
    path = tmp_path / "kernel.cpp"
    path.write_text(NAMES, encoding="utf-8-sig")
    x = np.zeros(8, np.int32)
    ascendc.compile(path)(x)
    assert x[:5].tolist() == [9, 6, 29, 1, 6]


def test_templates_that_only_their_arguments_lead_to_are_found(tmp_path):
    path = tmp_path / "kernel.cpp"
    path.write_text("""
#include "kernel_operator.h"
__global__ __aicore__ void twos(GM_ADDR x) {
  AscendC::LocalTensor<float> t(AscendC::TPosition::VECCALC, 0, 8);
  AscendC::GlobalTensor<float> X;
  X.SetGlobalBuffer((__gm__ float*)x);
  Duplicate<float>(t, 2.0f, 8);
  AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(0);
  AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(0);
  DataCopy(X, t, 8);
}
""")
    x = np.zeros(8, np.float32)
    ascendc.compile(path)(x)
    assert x.tolist() == [2] * 8
    path.write_text(path.read_text().replace("Duplicate<float>(t", "Duplicate<float>(nothing"))
    with pytest.raises(CompilationError, match="nothing"):
        ascendc.compile(path)(x)

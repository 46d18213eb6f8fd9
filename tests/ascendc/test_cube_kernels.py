"""Cube kernels in C++ against NumPy: tiled products, both loads to L0, both layouts out of L0C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

MATMUL = Path(__file__).parents[2] / "examples" / "ascendc" / "matmul.cpp"


@pytest.mark.parametrize(
    ("sizes", "tiles", "blocks"), [((256, 192, 320), (128, 64, 64), 4), ((32, 48, 16), (16, 16, 16), 1)]
)
def test_the_tiled_product_is_exact_for_whole_numbers(sizes, tiles, blocks):
    m, k, n = sizes
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (k, n)).astype(np.float16)
    c = np.empty((m, n), np.float32)
    tiling = np.array([*sizes, *tiles], np.uint32)
    run = ascendc.compile(MATMUL)(a, b, c, None, tiling=tiling, blocks=blocks, outputs=[2])
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    assert run.findings == ()
    assert run.launches[0].core_kind == "cube"


SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
// A product of 32 x 32 with image-to-column loads.
__aicore__ inline LocalTensor<float> product(GM_ADDR a, GM_ADDR b) {
  GlobalTensor<half> left, right;
  left.SetGlobalBuffer((__gm__ half*)a); right.SetGlobalBuffer((__gm__ half*)b);
  LocalTensor<half> a1(TPosition::A1, 0, 1024), b1(TPosition::B1, 4096, 1024);
  LocalTensor<half> a2(TPosition::A2, 0, 1024), b2(TPosition::B2, 0, 1024);
  LocalTensor<float> sums(TPosition::CO1, 0, 1024);
  Nd2NzParams whole(1, 32, 32, 0, 32, 32, 1, 0);
  DataCopy(a1, left, whole);
  DataCopy(b1, right, whole);
  SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0); WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
  LoadData3DParamsV2<half> p;
  p.l1H = 1; p.l1W = 32; p.channelSize = 32; p.kExtension = 32; p.mExtension = 32;
  LoadData(a2, a1, p);
  p.enTranspose = true;
  LoadDataImpl(b2, b1, p);  // as convolutions call it
  SetFlag<HardEvent::MTE1_M>(EVENT_ID0); WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
  Mmad(sums, a2, b2, MmadParams(32, 32, 32, false, 0, false, false, false));
  SetFlag<HardEvent::M_FIX>(EVENT_ID0); WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
  return sums;
}
// Its result as rows or as fractals, with or without numbers below 0; of 8 bits with scale 0.5 and offset -3.
template <class T, bool rows, bool clips = false, bool copies = false>
__global__ __aicore__ void windows(GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  GlobalTensor<T> out;
  out.SetGlobalBuffer((__gm__ T*)c);
  LocalTensor<float> sums = product(a, b);
  FixpipeParamsV220 store(32, 32, 32, 32, false);
  if (!rows) store.dstStride = 32 * 16 * sizeof(T) / 32;
  store.quantPre = sizeof(T) == 2 ? F322F16 : sizeof(T) == 1 ? QF322B8_PRE : NoQuant;
  store.deqScalar = 0x3F000000ull | 509ull << 37 | 1ull << 46;
  store.reluEn = clips;
  if constexpr (copies) {
    if (sizeof(T) == 4) SetNdParaImpl(1);
    else SetFixpipeNz2ndFlag(1, 0, 0);
    DataCopyCO12DstParams copy(32, 32, store.dstStride, 32, store.quantPre, clips, false, rows);
    return DataCopy(out, sums, copy);
  }
  if constexpr (rows) Fixpipe<T, float, CFG_ROW_MAJOR>(out, sums, store);
  else Fixpipe<T, float, CFG_NZ>(out, sums, store);
}
// Its result as fractals of half in L1, by the older form, and from there; or with scales.
__global__ __aicore__ void through_l1(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t scaled) {
  GlobalTensor<half> out;
  out.SetGlobalBuffer((__gm__ half*)c);
  LocalTensor<float> sums = product(a, b);
  LocalTensor<half> l1(TPosition::A1, 8192, 1024);
  LocalTensor<uint64_t> scales(TPosition::A1, 16384, 32);
  FixpipeParams<float> store(2, 2 * 32, 0, 0);
  store.quantParams = {QuantMode_t::F322F16};
  if (scaled) Fixpipe(l1, sums, scales, store);
  else Fixpipe(l1, sums, store);
  SetFlag<HardEvent::FIX_MTE3>(EVENT_ID0); WaitFlag<HardEvent::FIX_MTE3>(EVENT_ID0);
  DataCopy(out, l1, 1024);
}
__global__ __aicore__ void both(GM_ADDR a) {
  if ASCEND_IS_AIC { PRINTF("cube %d of %d\\n", int(GetBlockIdx()), int(GetBlockNum())); }
  if ASCEND_IS_AIV { PRINTF("vector %d sub %d\\n", int(GetBlockIdx()), int(GetSubBlockIdx())); }
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("kernels.cpp", SOURCE)


@pytest.mark.parametrize("copies", ["false", "false, true"])
@pytest.mark.parametrize(("cpp", "dtype", "rows"), [("float", np.float32, True), ("half", np.float16, False)])
def test_windows_and_layouts(source, cpp, dtype, rows, copies):
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float16) for _ in range(2))
    c = np.zeros((32, 32), dtype)
    kernel = ascendc.compile(source, f"windows<{cpp}, {str(rows).lower()}, {copies}>", kind="cube")
    assert kernel(a, b, c).findings == ()
    product = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)
    assert np.array_equal(c if rows else c.reshape(2, 32, 16).transpose(1, 0, 2).reshape(32, 32), product)


@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("half", np.float16), ("int8_t", np.int8)])
def test_results_that_fixpipe_clips_and_quantises(source, cpp, dtype):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float16) for _ in range(2))
    c = np.zeros((32, 32), dtype)
    assert ascendc.compile(source, f"windows<{cpp}, true, true>", kind="cube")(a, b, c).findings == ()
    product = a.astype(np.float32) @ b.astype(np.float32)
    scaled = np.clip(np.rint(product / 2 - 3), -128, 127) if dtype == np.int8 else product
    assert np.array_equal(c, np.maximum(scaled, 0).astype(dtype))


def test_a_result_goes_to_l1_in_bursts_too(source):
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float16) for _ in range(2))
    c = np.zeros((2, 32, 16), np.float16)
    kernel = ascendc.compile(source, "through_l1", kind="cube")
    assert kernel(a, b, c, np.int32(0)).findings == ()
    np.testing.assert_array_equal(c.transpose(1, 0, 2).reshape(32, 32), a.astype(np.float32) @ b.astype(np.float32))
    line = 1 + SOURCE[: SOURCE.index("if (scaled)")].count("\n")
    words = rf"Fixpipe with scales must have quantPre VDEQF16.*kernels\.cpp:{line}\)"
    with pytest.raises(ascendc.KernelError, match=words):
        kernel(a, b, c, np.int32(1))


def test_both_kinds_of_cores_of_a_mixed_kernel_know_who_they_are(source):
    kernel = ascendc.compile(source, "both", kind="mix")
    said = kernel(np.zeros(8), blocks=2).printed.splitlines()
    assert said == ["cube 0 of 2", "cube 1 of 2", *(f"vector {i} sub {i % 2}" for i in range(4))]


def test_operand_types_that_the_cube_lacks_here_do_not_compile(tmp_path):
    path = tmp_path / "bytes.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n__global__ __aicore__ void bytes(GM_ADDR a) {\n'
        "  LocalTensor<uint8_t> l, r; LocalTensor<int32_t> c;\n  Mmad(c, l, r, MmadParams());\n}\n"
    )
    with pytest.raises(CompilationError, match="of int8_t into int32_t, and of other types into float"):
        ascendc.compile(path)


MIXED = """
#include "kernel_operator.h"
using namespace AscendC;
// c = relu(a b + 1): the Cube core leaves a block of 16 x 16 in memory, its vector cores finish eight rows each.
__global__ __aicore__ void fused(GM_ADDR a, GM_ADDR b, GM_ADDR workspace, GM_ADDR c, int32_t faulty) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  GlobalTensor<half> left, right; GlobalTensor<float> sums, out;
  left.SetGlobalBuffer((__gm__ half*)a); right.SetGlobalBuffer((__gm__ half*)b);
  sums.SetGlobalBuffer((__gm__ float*)workspace); out.SetGlobalBuffer((__gm__ float*)c);
  if ASCEND_IS_AIC {
    int64_t block = GetBlockIdx();
    LocalTensor<half> a1(TPosition::A1, 0, 256), b1(TPosition::B1, 1024, 256);
    LocalTensor<half> a2(TPosition::A2, 0, 256), b2(TPosition::B2, 0, 256);
    LocalTensor<float> l0c(TPosition::CO1, 0, 256);
    Nd2NzParams whole(1, 16, 16, 0, 16, 16, 1, 0);
    DataCopy(a1, left[block * 256], whole);
    DataCopy(b1, right, whole);
    SetFlag<HardEvent::MTE2_MTE1>(0); WaitFlag<HardEvent::MTE2_MTE1>(0);
    LoadData(a2, a1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    LoadData(b2, b1, LoadData2DParams(0, 1, 1, 0, 0, true, 0));
    SetFlag<HardEvent::MTE1_M>(0); WaitFlag<HardEvent::MTE1_M>(0);
    MmadImpl(l0c, a2, b2, MmadParams(16, 16, 16, false, 0, false, false, false));
    SetFlag<HardEvent::M_FIX>(0); WaitFlag<HardEvent::M_FIX>(0);
    Fixpipe(sums[block * 256], l0c, FixpipeParamsV220(16, 16, 16, 16, false));
    SetSyncBaseAddr(uint64_t(faulty));
    set_ffts_base_addr(uint64_t(faulty));
    if (faulty == 3) ffts_cross_core_sync(PIPE_FIX, GetffstMsg(2, 3));
    else if (faulty != 1) CrossCoreSetFlag<2, PIPE_FIX>(3);
  }
  if ASCEND_IS_AIV {
    int64_t at = GetBlockIdx() * 128;
    LocalTensor<float> t(TPosition::VECCALC, 0, 128);
    if (faulty == 3) wait_flag_dev(3);
    else if (faulty != 2) CrossCoreWaitFlag(3);
    DataCopy(t, sums[at], 128);
    SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
    Adds(t, t, 1.0f, 128);
    Relu(t, t, 128);
    SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(out[at], t, 128);
    if (faulty != 4) SyncAll<true>();
  }
}
"""


@pytest.fixture(scope="module")
def fused(source_file):
    return ascendc.compile(source_file("fused.cpp", MIXED))


def _fused_operands(rows=32):
    rng = np.random.default_rng(6)
    a, b = rng.integers(-4, 5, (rows, 16)).astype(np.float16), rng.integers(-4, 5, (16, 16)).astype(np.float16)
    return a, b, np.zeros((rows, 16), np.float32), np.zeros((rows, 16), np.float32)


@pytest.mark.parametrize("names", [0, 3])
def test_cube_and_vector_cores_of_a_mixed_kernel_hand_over_by_flags(fused, names):
    a, b, workspace, c = _fused_operands()
    run = fused(a, b, workspace, c, names, blocks=2)
    assert np.array_equal(c, np.maximum(a.astype(np.float32) @ b.astype(np.float32) + 1, 0))
    assert run.findings == ()
    assert run.launches[0].vectors == 2
    assert run.launches[0].core_count == 6
    assert run.seconds > 0


def test_more_blocks_than_cores_take_turns(fused):
    a, b, workspace, c = _fused_operands(16 * 61)
    run = fused(a, b, workspace, c, 4, blocks=61)
    assert np.array_equal(c, np.maximum(a.astype(np.float32) @ b.astype(np.float32) + 1, 0))
    assert run.findings == ()
    assert run.launches[0].core_count == 24 * 3
    words = r"SyncAll must be of at most as many blocks as there are cores \(24\), not of 61"
    with pytest.raises(KernelError, match=words):
        fused(a, b, workspace, c, 0, blocks=61)


def test_a_flag_between_cores_that_nobody_sets_is_an_error_and_a_wait_that_misses_a_race(fused):
    a, b, workspace, c = _fused_operands()
    with pytest.raises(ascendc.KernelError, match=r"core 2 CrossCoreWaitFlag\(3\) must be answered by a set") as raised:
        fused(a, b, workspace, c, 1, blocks=2)
    text = MIXED.splitlines()
    assert "CrossCoreWaitFlag(3)" in text[raised.value.line.line - 1]
    found = fused.check(a, b, workspace, c, 2, blocks=2).findings
    assert any("DataCopy(t, sums[at], 128)" in text[one.line.line - 1] for one in found)

"""Tensors whose place a kernel writes itself, names of the vendor's compiler, and headers of parts of Ascend C."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.forwarding import forwarding_headers
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
#include "adv_api/math/sin.h"
#include "lib/math/kernel_operator_cos_intf.h"
#include "adv_api/reduce/sum.h"
using namespace AscendC;
// a buffer of the core as one tensor of bytes, as kernels have it that place their tensors themselves
struct OnChip {
  LocalTensor<uint8_t> bytes;
  __aicore__ inline OnChip() {
    bytes.InitBuffer(0, 192 * 1024);
    bytes.address_.logicPos = static_cast<uint8_t>(TPosition::VECIN);
  }
  template <class T> __aicore__ inline LocalTensor<T> at(uint32_t offset) const {
    return bytes[offset].template ReinterpretCast<T>();
  }
};
extern "C" __global__ __aicore__ void by_hand(GM_ADDR x, GM_ADDR z, GM_ADDR words) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  PRELOAD(2);
  OnChip chip;
  GlobalTensor<float> in, out;
  GlobalTensor<int64_t> told;
  in.SetGlobalBuffer((__gm__ float*)x);
  out.SetGlobalBuffer((__gm__ float*)z);
  told.SetGlobalBuffer((__gm__ int64_t*)words);
  LocalTensor<float> a = chip.at<float>(0);
  LocalTensor<float> b;
  b.address_.logicPos = uint8_t(TPosition::VECCALC);
  b.address_.bufferAddr = 1024;
  b.address_.dataLen = 256;
  DataCopy(a, in, 64);
  SetFlag<HardEvent::MTE2_V>(0);
  WaitFlag<HardEvent::MTE2_V>(0);
  Adds(b, a, 1.0f, 64);
  SetFlag<HardEvent::V_MTE3>(0);
  WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, b, 64);
  told.SetValue(0, int64_t(b.GetSize()));
  told.SetValue(1, int64_t(b.GetPosition()));
  told.SetValue(2, int64_t(a.address_.dataLen));
  told.SetValue(3, int64_t(b[8].address_.bufferAddr));
  told.SetValue(4, clz(1));
  told.SetValue(5, int64_t(sizeof(__bf16)));
  told.SetValue(6, int64_t(float(__fp16(2.5f)) * 2));
  told.SetValue(7, int64_t(chip.bytes.address_.logicPos));
}
"""
ELEMENTS = """
#include "kernel_operator.h"
#include "basic_api/kernel_operator_list_tensor_intf.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void elements(GM_ADDR x, GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GlobalTensor<int32_t> in, out;
  in.SetGlobalBuffer((__gm__ int32_t*)x);
  out.SetGlobalBuffer((__gm__ int32_t*)z);
  LocalTensor<int32_t> t(TPosition::VECCALC, 0, 64);
  set_vector_mask(0, ~0ull);
  Duplicate(t, 100, 64);
  set_mask_norm();
  t(0) = in(0);
  t(1) += in(1);
  t(2) -= t(0);
  t(3) *= 2;
  t(4) /= 3;
  t(5) %= 7;
  t(6) <<= 1;
  t(7) |= 3;
  for (int i = 0; i < 8; i++) out(i) = t(i);
  out(8) = in(2) + out(7);
  out(8) += int32_t(block_num) * 1000;
  out(9) = int32_t(get_subblockid() + 10 * get_subblockdim());
  __ubuf__ int32_t* first = (__ubuf__ int32_t*)get_imm(0);
  out(10) = (uint64_t)first == t.GetPhyAddr();
  set_atomic_none();
}
"""
CHOOSING = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void choosing(GM_ADDR z, int32_t mode) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GlobalTensor<float> out;
  out.SetGlobalBuffer((__gm__ float*)z);
  LocalTensor<float> a(TPosition::VECCALC, 0, 8);
  Duplicate(a, 3.0f, 8);
  SetFlag<HardEvent::V_MTE3>(0);
  WaitFlag<HardEvent::V_MTE3>(0);
  if (mode == 1) SetAtomicAdd<float>();
  if (mode == 2) SetAtomicMax<float>();
  if (mode == 3) SetAtomicMin<float>();
  DataCopy(out, a, 8);
  SetAtomicNone();
}
"""


def compiled(tmp_path, text, kernel):
    path = tmp_path / f"{kernel}.cpp"
    path.write_text(text)
    return ascendc.compile(path, kernel)


def test_a_tensor_is_where_its_address_says(tmp_path):
    x, z, words = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.zeros(8, np.int64)
    result = compiled(tmp_path, SOURCE, "by_hand")(x, z, words, blocks=1, product="910b", outputs=[1])
    np.testing.assert_array_equal(z, x + 1)
    positions = 9, 11  # VECIN, VECCALC
    assert words.tolist() == [64, positions[1], 192 * 1024, 1024 + 32, 63, 2, 5, positions[0]]
    assert not result.findings


def test_elements_of_both_kinds_of_tensors_are_read_written_and_changed(tmp_path):
    x, z = np.array([7, 8, 9], np.int32), np.zeros(11, np.int32)
    compiled(tmp_path, ELEMENTS, "elements")(x, z, blocks=1, product="910b")
    changed = [7, 108, 93, 200, 33, 2, 200, 103]
    assert z.tolist() == [*changed, 9 + 103 + 1000, 10, 1]


def test_stores_add_or_keep_extremes_as_is_chosen_at_run_time_where_the_product_can(tmp_path):
    kernel = compiled(tmp_path, CHOOSING, "choosing")
    before = np.array([2, 3, 4, -1, np.inf, -np.inf, np.nan, 0], np.float32)
    after = (np.full(8, 3, np.float32), before + 3, np.maximum(before, 3), np.minimum(before, 3))
    for mode, want in enumerate(after):
        z = before.copy()
        result = kernel(z, np.int32(mode), blocks=2, product="910b")
        np.testing.assert_array_equal(z, want if mode != 1 else want + 3)
        assert bool(result.findings) == (mode == 0)  # two cores that store the same bytes
    for mode, name in ((2, "SetAtomicMax"), (3, "SetAtomicMin")):
        z = before.copy()
        with pytest.raises(ProgramError, match=rf"{name} must be on dav-c220, not dav-m200"):
            kernel(z, np.int32(mode), blocks=1, product="310p")
        np.testing.assert_array_equal(z, before)


def test_every_header_of_a_part_leads_to_what_the_package_has(tmp_path):
    includes = "\n".join(f'#include "{name}"' for name in sorted(forwarding_headers()))
    text = CHOOSING.replace('#include "kernel_operator.h"', includes)
    z = np.zeros(8, np.float32)
    compiled(tmp_path, text, "choosing")(z, np.int32(0), blocks=1, product="910b")
    assert z.tolist() == [3] * 8


def test_a_header_that_ascend_c_lacks_is_refused(tmp_path):
    text = CHOOSING.replace("kernel_operator.h", "adv_api/math/sine.h")
    with pytest.raises(CompilationError, match=r"adv_api/math/sine\.h"):
        compiled(tmp_path, text, "choosing")(np.zeros(8, np.float32), np.int32(0), blocks=1, product="910b")


def test_a_function_that_is_missing_is_named_though_its_header_is_there(tmp_path):
    text = CHOOSING.replace('"kernel_operator.h"', '"adv_api/math/digamma.h"').replace(
        "DataCopy(out", "Digamma(a, a, 8);\n  DataCopy(out"
    )
    with pytest.raises(CompilationError, match="Digamma"):
        compiled(tmp_path, text, "choosing")(np.zeros(8, np.float32), np.int32(0), blocks=1, product="910b")

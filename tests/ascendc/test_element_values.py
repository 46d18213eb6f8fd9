"""Elements of tensors behind auto and beside whole numbers have the type and the value of the element."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.element_values import with_values_of_elements
from tests.ascendc.compiler import require_compiler

require_compiler()

HEADER = """
#pragma once
#include "kernel_operator.h"
template <class T> __aicore__ inline float chosen(const AscendC::LocalTensor<T>& t, int i) {
  const float found = i >= 0 ? t(i) : 0;
  return found;
}
"""
SOURCE = """
#include "part.h"
using namespace AscendC;
__aicore__ inline int twice(int a) { return 2 * a; }
struct Parts {
  LocalTensor<float> rows[2];
  __aicore__ inline float last(int i) { return i < 0 ? -7 : this->rows[1](i); }
};
extern "C" __global__ __aicore__ void values(GM_ADDR x, GM_ADDR y, int first) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  LocalTensor<float> t(TPosition::VECCALC, 0, 16);
  DataCopy(t, in, 16);
  SetFlag<HardEvent::MTE2_S>(0); WaitFlag<HardEvent::MTE2_S>(0);
  auto kept = t(3);          // a value: what is written later changes nothing
  auto& same = t;
  t(3) = 100;
  Parts parts{{t, same[1]}};
  out(0) = kept;
  out(1) = t(3);
  out(2) = chosen(t, first);
  out(3) = chosen(t, first - 9);
  out(4) = parts.last(first);
  out(5) = first > 0 ? twice(first) : 1;
  out(6) = first > 0 ? in(first) : 0u;
  out(7) = first < 0 ? 1 : (t)(first);
}
"""


def test_elements_are_numbers_of_their_tensor_s_type(tmp_path):
    (tmp_path / "part.h").write_text(HEADER)
    (tmp_path / "values.cpp").write_text(SOURCE.replace("(t)(first)", "t(first)"))
    x, y = np.arange(16, dtype=np.float32) + np.float32(0.5), np.zeros(8, np.float32)
    ascendc.compile(tmp_path / "values.cpp")(x, y, np.int32(2), product="Ascend910B2")
    assert y.tolist() == [3.5, 100, 2.5, 0, 100, 4, 2.5, 2.5]


VALUE = "::npusim::value_of"
KEPT = "// auto v = t(0);\n#define X a ? t(0) : 0\n"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a ? t(i) : 0;", f"a ? {VALUE}(t(i)) : 0;"),
        ("a ?\n  this->t[f(1)](g(i), (2)) : -0x1Fu;", f"a ?\n  {VALUE}(this->t[f(1)](g(i), (2))) : -0x1Fu;"),
        ("a ? 0 : t(i) + 1;", f"a ? 0 : {VALUE}(t(i)) + 1;"),
        ("a ? t(i) : 0.5f;", "a ? t(i) : 0.5f;"),
        ("a ? t(i) : b;", "a ? t(i) : b;"),
        ("a ? f(t(i)) : b ? t(0) : 1;", f"a ? f(t(i)) : b ? {VALUE}(t(0)) : 1;"),
        ("auto v = t(0);", f"auto v = {VALUE}(t(0));"),
        ("auto v = t(0) + 1;", "auto v = t(0) + 1;"),
        ("auto& v = t(0); auto* w = t(0); auto z = t.Get<float>();",) * 2,
        (f"{KEPT}auto v = t(0);", f"{KEPT}auto v = {VALUE}(t(0));"),
    ],
)  # fmt: skip
def test_only_what_may_be_an_element_there_is_made_a_value(text, made):
    head = "LocalTensor<float> t;\n"
    assert with_values_of_elements(head + text) == head + made
    assert with_values_of_elements(text) == text

"""Full specialisations among the members of a class, and pipes destroyed once they have given their buffers."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.member_specialisations import without_default_constructors, without_member_specialisations
from tests.ascendc.compiler import require_compiler

require_compiler()

HEADER = """
#pragma once
template <class T> struct Steps {
  // template <> in a comment, and in "template <>"
  template <int32_t KIND = g_coreType>
  __aicore__ inline void operator()(GM_ADDR y);

  template <>
  __aicore__ inline void operator()<AscendC::AIC>(GM_ADDR y) {}
  template <>
  __aicore__ inline void operator()<AscendC::AIV>(GM_ADDR y) { put(y, 1 + other<float, 2>() + 10 * other<half, 3>() +
                                                                   100 * other<half, 2>() + Room<true>::size +
                                                                   Room<false>::size); }

  template <class U, int N> __aicore__ inline int other() { return 7; }
  template <>
  __aicore__ inline int other<float, (1 + 1)>() { return 3; }
  template <> __aicore__ inline int other<half, 3>() { return 4; }

  struct Small { static constexpr int size = 1000; };
  template <bool is_large> struct Room;
  template <>
  struct Room<true> { static constexpr int size = 4000; };
  template <> struct Room<false> : public Small {};

  __aicore__ inline void put(GM_ADDR y, float value) {
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer;
    AscendC::TPipe pipe;
    pipe.InitBuffer(buffer, 1024);
    AscendC::LocalTensor<T> whole = buffer.Get<T>();
    pipe.Destroy();
    AscendC::LocalTensor<T> part;
    part.SetAddr(whole[64].address_);
    AscendC::Duplicate(part, T(value), 64);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(0);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(0);
    AscendC::GlobalTensor<T> to;
    to.SetGlobalBuffer((__gm__ T*)y + 64 * AscendC::GetBlockIdx());
    AscendC::DataCopy(to, part, 64);
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::TPipe again;  // which has what the first one had
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> queue;
    again.InitBuffer(queue, 1, 256);
    AscendC::LocalTensor<T> result = queue.AllocTensor<T>();
    AscendC::Duplicate(result, T(value), 64);
    queue.EnQue(result);
    result = queue.DeQue<T>();
    AscendC::DataCopy(to, result, 64);
    queue.FreeTensor(result);
  }
};
"""
SOURCE = """
#include "kernel_operator.h"
#include "steps.h"
extern "C" __global__ __aicore__ void steps(GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  Steps<float> step;
  step(y);
}
"""


def test_members_of_each_kind_of_core_are_its_own(tmp_path):
    (tmp_path / "steps.h").write_text(HEADER)
    (tmp_path / "steps.cpp").write_text(SOURCE)
    y = np.zeros((6, 64), np.float32)
    run = ascendc.compile(tmp_path / "steps.cpp")(y, blocks=3, outputs=[0])
    assert (y == 1 + 3 + 10 * 4 + 100 * 7 + 4000 + 1000).all()
    assert not run.findings


def test_lines_stay_where_they_are():
    made = without_member_specialisations(HEADER)
    assert made.count("\n") == HEADER.count("\n")
    assert "template <>" not in made.replace("// template <> in", "").replace('"template <>"', "")
    assert made.splitlines()[3] == HEADER.splitlines()[3]


@pytest.mark.parametrize(
    "text",
    [
        "template <class T> void f(T);\ntemplate <> void f<int>(int) {}\n",  # not in a class
        "namespace a { template <> struct B<int> { int x; }; }\n",
        "struct A { template <class... T> struct B {}; template <> struct B<int> {}; };\n",
        "struct A { void f(); template <> void g<3>(int); };\n",  # of nothing that is there
        "struct A { template <class... T> void f(); template <> void f<int, float>() {} };\n",
    ],
)
def test_others_are_left_alone(text):
    assert without_member_specialisations(text) == text


BUFFERS = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void buffers(uint32_t bytes) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  TBuf<TPosition::C2PIPE2GM> scales;
  pipe.InitBuffer(scales, bytes);
}
"""


def test_a_pipe_has_all_four_parts_of_the_fixpipe_buffer(tmp_path):
    (tmp_path / "buffers.cpp").write_text(BUFFERS)
    kernel = ascendc.compile(tmp_path / "buffers.cpp")
    assert not kernel.check(2048 + 1024 + 2048 + 2048).findings
    [found] = kernel.check(7168 + 32).findings
    assert found.line.line == 8
    assert "Capacity" in str(found)


def test_structs_with_a_default_constructor_take_lists_of_their_members():
    made = without_default_constructors(
        "struct A {\n  A() = default;\n  int x, y;\n};\n"
        "struct B { B() = default; B(int); int x; };\n"
        "struct E { explicit E() = default; int x; };\n"
        "class C { public:\n  inline\n  C()\n = default ;\n  ~C() {} int x = 0; };\n"
        "struct D { A a; void f() { A() ; } };\nA::A() = default;\n"
    )
    assert made == (
        "struct A {\n  void npusim_no_constructor_of_A() {}\n  int x, y;\n};\n"
        "struct B { B() = default; B(int); int x; };\n"
        "struct E { explicit E() = default; int x; };\n"
        "class C { public:\n  inline\n  void npusim_no_constructor_of_C() {}\n\n  ~C() {} int x = 0; };\n"
        "struct D { A a; void f() { A() ; } };\nA::A() = default;\n"
    )

"""Which cores a kernel is for where its headers alone compute: what it reaches of them says it."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.cores import kind_of
from npu_sim.ascendc.reached import reached
from tests.ascendc.compiler import require_compiler

require_compiler()

HEADER = """
#pragma once
#include "kernel_operator.h"
namespace parts {
using namespace AscendC;

// How many cores of each kind came by, as a kernel may ask it that is compiled once for both.
__aicore__ inline void come_by(GM_ADDR z) {
  auto words = (__gm__ int32_t*)z;
  if ASCEND_IS_AIC { words[3 * GetBlockIdx()] = 1; }
  if ASCEND_IS_AIV { words[3 * (GetBlockIdx() / GetTaskRation()) + 1 + GetSubBlockIdx()] = 1; }
}

class Multiply {
 public:
  __aicore__ inline void Process() {
    TBuf<TPosition::A2> a; TBuf<TPosition::B2> b; TBuf<TPosition::CO1> c;
    pipe.InitBuffer(a, 512); pipe.InitBuffer(b, 512); pipe.InitBuffer(c, 1024);
    Mmad(c.Get<float>(), a.Get<half>(), b.Get<half>(), MmadParams{16, 16, 16, false, 0, false, false, true});
  }
 private:
  TPipe pipe;
};

// Mmad and Fixpipe are named here alone.
template <class Work> __aicore__ inline void on_the_cube() {
  if ASCEND_IS_AIC { Work work; work.Process(); }
}
#define MULTIPLIES parts::on_the_cube<parts::Multiply>()
using Unused = Multiply;
}
"""
SOURCE = """
#include "parts.h"
extern "C" __global__ __aicore__ void through_a_macro(GM_ADDR z) { MULTIPLIES; parts::come_by(z); }
extern "C" __global__ __aicore__ void through_its_own(GM_ADDR z) {
  parts::on_the_cube<parts::Unused>();
  parts::come_by(z);
}
extern "C" __global__ __aicore__ void alone(GM_ADDR z) { parts::come_by(z); }
"""


@pytest.mark.parametrize(
    ("name", "cores"),
    [("through_a_macro", [1, 1, 1]), ("through_its_own", [1, 1, 1]), ("alone", [0, 1, 0])],
)
def test_what_a_kernel_reaches_of_its_headers_says_its_cores(tmp_path, name, cores):
    (tmp_path / "parts.h").write_text(HEADER)
    (tmp_path / "kernel.cpp").write_text(SOURCE)
    z = np.zeros((2, 3), np.int32)
    kernel = ascendc.compile(tmp_path / "kernel.cpp", kernel=name)
    kernel(z, blocks=2 if name != "alone" else 1, product="Ascend910B2")
    assert z.tolist() == ([cores, cores] if name != "alone" else [cores, [0, 0, 0]])


CODE = """
int unrelated() { return Mmad(1); }
namespace a { namespace {
struct Base { int mark_base; };
template <class T> class Child : public Base { T mark_child() { return helper<T>(); } };
template <class T> T helper() { return LIMIT; }
} }
#define LIMIT (mark_macro + \\
  other_macro())
int other_macro() { return mark_last; }
typedef Child<int> Named;
int Child<int>::member() { return mark_member; }
extern "C" { void kernel(int x) { if (x) { Named one; } } }
void second(int kernel, int x) { mark_second; }
auto third = [](int one) { return mark_second; };
constexpr int tables[2][2] = {mark_second, mark_second};
"""


@pytest.mark.parametrize("argument", ["", "<int>", "<second>", "<third>", "<tables>"])
def test_reached_code_is_what_names_lead_to(argument):
    found = reached(f"kernel{argument}", [CODE])
    marks = {"base", "child", "macro", "last", "member", *(("second",) if argument not in ("", "<int>") else ())}
    assert {mark for mark in (*marks, "second") if f"mark_{mark}" in found} == marks
    assert "Mmad" not in found
    assert kind_of(found) == ("vector", 2)


def test_code_of_all_files_is_one():
    files = ["void kernel() { use(); }", "void use() { if (ASCEND_IS_AIC) deep(); }", "void deep() { Mmad(); }"]
    assert kind_of(reached("kernel", files)) == ("mix", 2)
    assert reached("nobody", files) == ""

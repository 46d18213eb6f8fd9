"""Kernels whose source asks for which kind of core it is compiled: each kind runs the code that is its own."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import require_compiler

require_compiler()

MIXED = """
#include "kernel_operator.h"
using namespace AscendC;
#ifdef __DAV_C220_CUBE__
constexpr int32_t OWN = 1;
#elif defined(__DAV_C220_VEC__)
constexpr int32_t OWN = 2;
#endif
// the same name, and other code for each kind
template <class T> struct Worker {
  T count = 0;
  __aicore__ inline void Process(GM_ADDR out, GM_ADDR in) {
    GlobalTensor<int32_t> z, x;
    z.SetGlobalBuffer((__gm__ int32_t*)out);
    x.SetGlobalBuffer((__gm__ int32_t*)in);
#ifdef __DAV_CUBE__
    for (int i = 0; i < 8; i++) z.SetValue(GetBlockIdx() * 8 + i, OWN * 100 + x.GetValue(i));
    CrossCoreSetFlag<2, PIPE_FIX>(0);
#else
    CrossCoreWaitFlag(0);
    LocalTensor<int32_t> t(TPosition::VECCALC, 0, 8);
    Duplicate(t, OWN * 100 + x.GetValue(0), 8);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(z[32 + GetBlockIdx() * 8], t, 8);
#endif
  }
};
#if defined(__DAV_C220_CUBE__) || defined(__DAV_C220_VEC__)
extern "C" __global__ __aicore__ void sides(GM_ADDR in, GM_ADDR out) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  Worker<int32_t> worker;
  worker.Process(out, in);
}
#endif
"""


def compiled(tmp_path, text, kernel="sides"):
    path = tmp_path / "sides.cpp"
    path.write_text(text)
    return ascendc.compile(path, kernel)


def test_each_kind_of_core_of_a_mixed_kernel_runs_its_own_code(tmp_path):
    kernel = compiled(tmp_path, MIXED)
    out = np.zeros(64, np.int32)
    for _ in range(2):
        result = kernel(np.arange(5, 13, dtype=np.int32), out, blocks=2, product="910b", outputs=[1])
        assert out[:16].tolist() == [*range(105, 113)] * 2
        assert out[32:].tolist() == [205] * 32
        # lines are those of the source, also of what a library has
        line = 1 + MIXED[: MIXED.index("DataCopy(z[32")].count("\n")
        places = result.launches[0].lines
        assert line in {places[site].line for site in result.rows()["site"].tolist() if site in places}


@pytest.mark.parametrize(
    "asked",
    [
        "constexpr int32_t own = Own<g_coreType>::VALUE;",
        "constexpr int32_t own = Own<1 + 0, g_coreType >::VALUE;",
        "int32_t own = 0; if constexpr (g_coreType == AscendC::AIC) { own = 100; } else { own = 200; }",
        "int32_t own = 0; if constexpr (ASCEND_IS_AIC) { own = 100; } else { own = 200; }",
    ],
)
def test_the_kind_of_core_is_a_constant_in_a_mixed_kernel(tmp_path, asked):
    kernel = compiled(
        tmp_path,
        f"""
#include "kernel_operator.h"
using namespace AscendC;
template <int A, int C = A> struct Own {{ static constexpr int32_t VALUE = C == AIC ? 100 : C == AIV ? 200 : 0; }};
extern "C" __global__ __aicore__ void sides(GM_ADDR out) {{
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  {asked}
  GlobalTensor<int32_t> z;
  z.SetGlobalBuffer((__gm__ int32_t*)out);
  z.SetValue(ASCEND_IS_AIV ? 8 + 8 * GetBlockIdx() : 0, own);
}}
""",
    )
    out = np.zeros(24, np.int32)
    kernel(out, blocks=1, product="910b")
    assert out[::8].tolist() == [100, 200, 200]


@pytest.mark.parametrize(("task", "name"), [("AIV_ONLY", "VEC"), ("AIC_ONLY", "CUBE")])
@pytest.mark.parametrize("prefix", ["__DAV_", "__DAV_C220_"])
def test_kernels_of_one_kind_know_which(tmp_path, task, name, prefix):
    asked = f"{prefix}{name}__"
    kernel = compiled(
        tmp_path,
        f"""
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void sides(GM_ADDR out) {{
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_{task});
  GlobalTensor<int32_t> z;
  z.SetGlobalBuffer((__gm__ int32_t*)out);
#ifdef {asked}
  z.SetValue(0, 7);
#endif
#ifdef {asked.replace(name, "CUBE" if name == "VEC" else "VEC")}
  z.SetValue(0, 9);
#endif
}}
""",
    )
    out = np.zeros(8, np.int32)
    kernel(out, blocks=1, product="910b")
    assert out[0] == 7


def test_what_one_kind_of_core_lacks_is_told_with_the_line_of_the_source(tmp_path):
    text = MIXED.replace("Duplicate(t,", "Duplicat(t,")
    with pytest.raises(CompilationError, match=r"sides\.cpp:\d+.*Duplicat") as raised:
        compiled(tmp_path, text)(np.zeros(8, np.int32), np.zeros(64, np.int32), blocks=1, product="910b")
    (line,) = set(re.findall(r"sides\.cpp:(\d+):\d+: error", str(raised.value)))
    assert int(line) == 1 + text[: text.index("Duplicat(")].count("\n")


def test_what_one_kind_of_core_may_not_do_is_told_with_its_line(tmp_path):
    text = MIXED.replace("Duplicate(t, OWN", "Duplicate(t[-1], OWN")
    kernel = compiled(tmp_path, text)
    with pytest.raises(ProgramError) as raised:
        kernel(np.zeros(8, np.int32), np.zeros(64, np.int32), blocks=1, product="910b", outputs=[1])
    assert f"sides.cpp:{1 + text[: text.index('Duplicate(t[')].count(chr(10))}" in str(raised.value)


BOTH = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void on_vectors(GM_ADDR z);
extern "C" __global__ __aicore__ void on_cubes(GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)z);
  out.SetValue(GetBlockIdx(), 100 + int(ASCEND_IS_AIV));
}
extern "C" __global__ __aicore__ void on_vectors(GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)z);
  if (GetBlockIdx() < 24) out.SetValue(GetBlockIdx(), 100 + int(ASCEND_IS_AIV));
}
extern "C" __global__ __aicore__ void on_vectors(GM_ADDR z);
"""


@pytest.mark.parametrize(("kernel", "kind", "value"), [("on_cubes", "cube", 100), ("on_vectors", "vector", 101)])
def test_a_task_type_in_a_kernel_goes_before_those_of_its_neighbours(tmp_path, kernel, kind, value):
    made, z = compiled(tmp_path, BOTH, kernel), np.zeros(24, np.int32)
    result = made(z, blocks=24, product="910b")
    assert z.tolist() == [value] * 24
    assert result.launches[0].core_kind == kind

"""A compiler for the tests of kernels in C++, which are skipped without one, and what several of them compile."""

from __future__ import annotations

import subprocess

import pytest

from npu_sim import ascendc
from npu_sim.ascendc.build import HOST_INCLUDE, INCLUDE
from npu_sim.compilers import find_compiler
from npu_sim.errors import NpuSimError


def require_compiler():
    """Return the compiler, or skip the module."""
    try:
        return find_compiler()
    except NpuSimError as error:
        pytest.skip(str(error), allow_module_level=True)


def host_program(folder, text):
    """Compile the host code ``text`` in ``folder`` and return the path of the program."""
    path, program = folder / "host.cpp", folder / "host"
    path.write_text(text)
    options = ["-std=c++17", "-w", f"-I{INCLUDE}", f"-I{HOST_INCLUDE}"]
    find_compiler().run([*options, str(path), "-o", str(program)], str(path))
    return program


def host_numbers(folder, text):
    """Compile the host code ``text`` in ``folder``; return a function that runs it and returns the numbers it says."""
    program = host_program(folder, text)
    return lambda *given: [int(word) for word in subprocess.check_output([program, *map(str, given)]).split()]


PARTS = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> struct Part {  // of UB, with what lies in global memory
  TBuf<TPosition::VECCALC> buffer; LocalTensor<T> local; GlobalTensor<T> global; uint32_t count;
  Part(TPipe& pipe, GM_ADDR place, uint32_t n, bool comes = true) : count(n) {
    pipe.InitBuffer(buffer, (n * sizeof(T) + 31) / 32 * 32);
    local = buffer.template Get<T>(); local.SetSize(n); global.SetGlobalBuffer((__gm__ T*)place);
    if (comes) DataCopyPad(local, global, DataCopyExtParams(1, n * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  }
  void leave() { DataCopyPad(global, local, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0)); }
};
template <class F> void with_room(TPipe& pipe, uint32_t room, F call) {
  TBuf<TPosition::VECCALC> buffer;
  if (room) pipe.InitBuffer(buffer, room);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  if (room) call(buffer.Get<uint8_t>()); else call();
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
}
"""
"""Tensors of a kernel in UB; between its copies a call with a temporary buffer of ``room`` bytes, 0: without one."""

CUBE = """
#include "kernel_operator.h"
using namespace AscendC;
constexpr int32_t up(int32_t value, int32_t by) { return (value + by - 1) / by * by; }
template <HardEvent event> __aicore__ inline void Ready() { SetFlag<event>(EVENT_ID0); WaitFlag<event>(EVENT_ID0); }
template <class T>
__aicore__ inline void multiply_over(LocalTensor<int32_t>& sums, LocalTensor<T>& a, LocalTensor<T>& b, int32_t m,
                                     int32_t n, int32_t k, int32_t times) {
  Ready<HardEvent::MTE1_M>();
  MmadParams step;
  step.m = m;
  step.n = n;
  step.k = k;
  for (int32_t i = 0; i < times; i++) {
    step.cmatrixInitVal = i == 0;
    Mmad(sums, a, b, step);
    PipeBarrier<PIPE_M>();
  }
  Ready<HardEvent::M_FIX>();
}
"""
"""Sums of a product that is added ``times`` over, so that they may pass what int32 holds."""


def cube_statement(source_file, tensors, statement):
    """Compile a kernel of the Cube core that has tensors and one statement."""
    more = "LocalTensor<float> f(TPosition::CO1, 0, 256); MmadParams p(16, 16, 64, 0, false, true);"
    text = f'{CUBE}\nextern "C" __global__ __aicore__ void other() {{ {tensors} {more} {statement} }}\n'
    return ascendc.compile(source_file("other.cpp", text), kind="cube")

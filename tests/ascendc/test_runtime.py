"""What ends a kernel ends in an error with its core and line, and this process lives on."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.compilers import CompilationError
from npu_sim.errors import InputFileError, NpuSimError, ProgramError, ShapeError
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
__aicore__ void loops(GM_ADDR x) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 64);
  Duplicate(buffer.Get<float>(), 0.0f, 8);  // 6
  volatile int n = 1;
  while (n) {}
}
__aicore__ void crashes(GM_ADDR x) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 64);
  Duplicate(buffer.Get<float>(), 0.0f, 8);  // 12
  *(volatile int*)nullptr = 3;
}
int deep(int n) { volatile char big[4096]; big[0] = char(n); return n ? deep(n + 1) + big[0] : 0; }
__aicore__ void overflows(GM_ADDR x) { if (deep(1)) Trap(); }
__aicore__ void throws(GM_ADDR x) { throw 3; }
__aicore__ void exits(GM_ADDR x) { _exit(5); }
__aicore__ void too_big(GM_ADDR x) {
  TPipe pipe; TBuf<> first, buffer; TQue<TPosition::VECIN, 1> queue;
  pipe.InitBuffer(first, 1 << 17);
  pipe.InitBuffer(buffer, 1 << 17);  // 22
  pipe.InitBuffer(queue, 1, 64);  // 23
  GlobalTensor<float> g; g.SetGlobalBuffer((__gm__ float*)x);
  auto head = buffer.Get<float>();
  Duplicate(head, 3.0f, 64);
  int event = pipe.FetchEventID(HardEvent::V_MTE3);
  SetFlag<HardEvent::V_MTE3>(event); WaitFlag<HardEvent::V_MTE3>(event);
  DataCopy(g[64 * GetBlockIdx()], head, 64);
  if (GetBlockNum() == 2) return;
  auto block = queue.AllocTensor<float>();
  Duplicate(block, 3.0f, 8);  // 32
}
__aicore__ void empty(GM_ADDR x) {
  TPipe pipe; TQue<TPosition::VECIN, 1> queue; pipe.InitBuffer(queue, 1, 64);
  auto tensor = queue.DeQue<half>();  // 36
}
__aicore__ void full(GM_ADDR x) {
  TPipe pipe; TQue<TPosition::VECIN, 1> queue; pipe.InitBuffer(queue, 1, 64);
  auto first = queue.AllocTensor<half>();
  auto second = queue.AllocTensor<half>();  // 41
}
__aicore__ void skips(GM_ADDR x) {
  if (GetBlockIdx() == 0) return;
  SyncAll();  // 45
}
__aicore__ void asserts(GM_ADDR x) {
  ascendc_assert(GetBlockNum() == 77, "blocks");  // 48
}
__aicore__ void unaligned(GM_ADDR x) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 64); auto u = buffer.Get<float>();
  GlobalTensor<float> g; g.SetGlobalBuffer((__gm__ float*)x); if (GetBlockIdx()) return;
  DataCopy(u, g, 13); PipeBarrier<PIPE_ALL>(); DataCopy(g[8], u, 8);  // 53
}
__aicore__ void outside(GM_ADDR x) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 4096);
  GlobalTensor<float> g; g.SetGlobalBuffer((__gm__ float*)x);
  DataCopy(buffer.Get<float>(),  // 58
           g[64], 1024);
}
__aicore__ void wide(GM_ADDR x) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  Adds(t, t, 1.0f, 1 << 30);  // 63
}
__global__ __aicore__ void ends(GM_ADDR x, int32_t which) {
  void (*all[])(GM_ADDR) = {loops, crashes, overflows, throws, exits, too_big, empty, full, skips,
                            asserts, unaligned, outside, wide};
  all[which](x);
}
__global__ __aicore__ void scalars(GM_ADDR y, int32_t n, float f, uint8_t b) {
  PRINTF("%d %g %d\\n", n, f, int(b));
}
struct Pair { int32_t a; int64_t b; };
__global__ __aicore__ void by_value(GM_ADDR y, Pair tiling) {
  PRINTF("%d %lld\\n", tiling.a, (long long)tiling.b);
}
REGISTER_TILING_DEFAULT(Pair)
__global__ __aicore__ void by_pointer(GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  if (TILING_KEY_IS(5)) PRINTF("%d %lld\\n", data.a, (long long)data.b);
}
int main() { aclInit(nullptr); ends<<<1, nullptr, nullptr>>>(nullptr, 0); return aclFinalize(); }
void launch(uint32_t blocks, void* stream, uint8_t* x) { ends<<<blocks, nullptr, stream>>>(x, 1); }
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("kernels.cpp", SOURCE)


NAMES = [
    "loops",
    "crashes",
    "overflows",
    "throws",
    "exits",
    "too_big",
    "empty",
    "full",
    "skips",
    "asserts",
    "unaligned",
    "outside",
    "wide",
]


def kernel(source, name):
    return ascendc.compile(source, name)


@pytest.mark.parametrize(
    ("name", "words", "core", "line"),
    [
        ("loops", "must not loop without an instruction for 0.3 seconds", 0, 6),
        ("crashes", "SIGSEGV", 0, 12),
        ("overflows", "stack of 1024 KiB overflowed", 0, None),
        ("throws", "kernel must not throw", 0, None),
        ("exits", "its program ended with exit code 5", 0, None),
        ("empty", "DeQue of a VECIN queue must come behind an EnQue", 0, 36),
        ("full", "AllocTensor of a VECIN queue must find a free one of its 1 blocks", 0, 41),
        ("skips", "SyncAll must be reached by every core", 1, 45),
        ("asserts", "assertion must hold: GetBlockNum() == 77", 0, 48),
    ],
)
def test_what_ends_a_kernel_names_core_and_line(source, name, words, core, line):
    run, which = kernel(source, "ends"), NAMES.index(name)
    with pytest.raises(ascendc.KernelError) as raised:
        run(np.zeros(64, np.float32), which, blocks=2, silence=0.3)
    error = raised.value
    assert isinstance(error, NpuSimError)
    assert words in str(error)
    assert "ends" in str(error)
    assert "Ascend910B2" in str(error)
    assert error.core == core
    assert (error.line and error.line.line) == line
    assert line is None or str(error.line) in str(error)
    checked = run.check(np.zeros(64, np.float32), which, blocks=2, silence=0.3)
    assert words in str(checked.stopped_by)


def test_a_number_of_elements_is_rounded_down_to_whole_blocks_and_that_is_a_finding(source):
    x = np.arange(64, dtype=np.float32)
    run = kernel(source, "ends")(x, NAMES.index("unaligned"), blocks=2)
    found = [one for one in run.findings if one.kind is Kind.FIELD_RANGE]
    assert [(one.line.line, one.core) for one in found] == [(53, 0)]
    assert found[0].detail == (
        "DataCopy count must be whole blocks of 32 bytes, not 13 elements of 4: the last 20 bytes are not moved"
    )
    assert np.array_equal(x, [*range(8), *range(8), *range(16, 64)])


@pytest.mark.parametrize(("name", "line"), [("outside", 58), ("wide", 63)])
def test_an_instruction_that_cannot_be_carried_out_is_a_finding_at_its_line(source, name, line):
    run, which = kernel(source, "ends"), NAMES.index(name)
    x = np.arange(64, dtype=np.float32)
    with pytest.raises(ProgramError) as raised:
        run(x, which)
    assert raised.value.violations[0].line.line == line
    checked = run.check(x, which)
    assert [found.line.line for found in checked.findings] == [line]
    assert "auto_sync on" in str(checked.findings[0])
    assert np.array_equal(x, np.arange(64))


@pytest.mark.parametrize(("between", "what"), [("SyncAll();", "a value"), ('printf("!\\n");', "a value (GetValue)")])
def test_what_a_core_asks_for_behind_what_could_not_be_computed_is_told(tmp_path, between, what):
    path = tmp_path / "asks.cpp"
    path.write_text(f"""
#include "kernel_operator.h"
using namespace AscendC;
__global__ __aicore__ void asks(GM_ADDR x) {{
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  GlobalTensor<float> g; g.SetGlobalBuffer((__gm__ float*)x);
  DataCopy(t, g[1024], 64);
  {between}
  if (t.GetValue(0) > 0) t.SetValue(1, 2.0f);
}}
""")
    checked = ascendc.compile(path).check(np.zeros(64, np.float32), blocks=2)
    assert {found.line.line for found in checked.findings} == {7}
    assert f"core 0 cannot read {what} behind what could not be computed" in str(checked.stopped_by)
    assert checked.stopped_by.line.line == 9


def test_loads_through_pointers_into_ub_are_told(tmp_path):
    path = tmp_path / "points.cpp"
    path.write_text("""
#include "kernel_operator.h"
using namespace AscendC;
__global__ __aicore__ void points(GM_ADDR x) {
  LocalTensor<float> t(TPosition::VECCALC, 96 * 1024, 64);
  float f = *((__ubuf__ float*)t.GetPhyAddr());
  *(__gm__ float*)x = f;
}
""")
    with pytest.raises(
        ascendc.KernelError, match=r"if that is a place in UB: there GetValue and SetValue are modelled"
    ):
        ascendc.compile(path)(np.zeros(64, np.float32))


@pytest.mark.parametrize("product", ["910", "310p", "910b"])
def test_the_scalar_unit_is_waited_for_by_a_flag_that_the_product_has(tmp_path, product):
    path = tmp_path / "looks.cpp"
    path.write_text("""
#include "kernel_operator.h"
using namespace AscendC;
__global__ __aicore__ void looks(GM_ADDR x, GM_ADDR y) {
  TPipe pipe; TQue<TPosition::VECIN, 1> in; TQue<TPosition::VECOUT, 1> out;
  pipe.InitBuffer(in, 1, 256); pipe.InitBuffer(out, 1, 256);
  GlobalTensor<half> X, Y; X.SetGlobalBuffer((__gm__ half*)x); Y.SetGlobalBuffer((__gm__ half*)y);
  auto a = in.AllocTensor<half>(), b = out.AllocTensor<half>();
  DataCopy(a, X, 128); in.EnQue(a); a = in.DeQue<half>();
  Adds(b, a, half(1), 128);
  b.SetValue(0, half(float(b.GetValue(3)) + 4));
  Muls(b, b, half(2), 128);
  out.EnQue(b); b = out.DeQue<half>();
  DataCopy(Y, b, 128);
  in.FreeTensor(a); out.FreeTensor(b);
}
""")
    x, y = np.arange(128, dtype=np.float16), np.zeros(128, np.float16)
    run = ascendc.compile(path)(x, y, product=product)
    assert y.tolist() == [16, *(2 * (x[1:] + 1))]
    assert run.findings == ()


def test_more_of_a_buffer_than_there_is_is_a_finding_and_its_use_is_refused(source):
    run, which = kernel(source, "ends"), NAMES.index("too_big")
    x = np.zeros(128, np.float32)
    found = run(x, which, blocks=2).findings
    assert (x == 3).all()
    assert [(one.core, one.line.line, one.kind) for one in found] == [
        (core, line, Kind.CAPACITY) for core in (0, 1) for line in (22, 23)
    ]
    assert "must leave UB at most 196608 bytes, not ask for 262144 (Ascend910B2)" in str(found[0])
    with pytest.raises(ProgramError) as raised:
        run(x, which)
    assert [one.line.line for one in raised.value.violations] == [32]


def test_numbers_structs_and_pointers_arrive(source):
    y = np.zeros(8, np.float32)
    assert kernel(source, "scalars")(y, -3, 2.5, np.uint8(200)).printed == "-3 2.5 200\n"
    pair = np.array([(7, 1 << 40)], np.dtype([("a", "i4"), ("b", "i8")], align=True))
    assert kernel(source, "by_value")(y, tiling=pair).printed == f"7 {1 << 40}\n"
    by_pointer = kernel(source, "by_pointer")
    assert by_pointer(y, None, tiling=pair.tobytes(), tiling_key=5).printed == f"7 {1 << 40}\n"
    assert by_pointer(y, None, tiling=pair.tobytes(), tiling_key=6).printed == ""


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("scalars", (1,), "must be given 4 arguments, not 2"),
        ("scalars", (1, 2, 3, 4), "must be given 4 arguments, not 5"),
        ("scalars", (1.5, 2, 3), "argument 1 of the kernel must be a whole number"),
        ("scalars", (1, 2, 300), "argument 3 of the kernel must be a number that its type can hold"),
        ("by_value", (b"short",), "argument 1 of the kernel must be a struct of 16 bytes, not 5"),
        ("by_value", (np.zeros(4, np.int64),), "argument 1 of the kernel must be bytes of a struct"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(source, name, given, words):
    with pytest.raises(ascendc.KernelError, match=words):
        kernel(source, name)(np.zeros(8, np.float32), *given)


def test_calls_that_make_no_sense_are_refused(source):
    run = kernel(source, "scalars")
    with pytest.raises(ShapeError, match=r"blocks must be in \[1, 65535\], not 0"):
        run(np.zeros(1), blocks=0)
    with pytest.raises(ShapeError, match="outputs of scalars must be numbers of arrays"):
        run(np.zeros(1), 1, 2.0, 3, outputs=[1])
    with pytest.raises(NpuSimError, match="y of scalars must be an array, a list of arrays, a number, bytes or None"):
        run("text", 1, 2.0, 3)
    with pytest.raises(InputFileError, match="kernel must be named where"):
        ascendc.compile(source)
    with pytest.raises(InputFileError, match="must be a C\\+\\+ source that can be read"):
        ascendc.compile(source.parent / "missing.cpp")
    with pytest.raises(
        InputFileError, match=r"kernel must be one of \S+ \(ends, scalars, by_value, by_pointer\), not no_such_kernel"
    ):
        ascendc.compile(source, "no_such_kernel")
    with pytest.raises(InputFileError, match="kernel must be a name"):
        ascendc.compile(source, "a; system()")


def test_a_name_that_the_machine_lacks_does_not_compile_and_is_named(tmp_path):
    path = tmp_path / "lacks.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        "__global__ __aicore__ void lacks(GM_ADDR x) {\n  LocalTensor<half> t;\n  MrgSort4(t, t, t, t);\n}\n"
    )
    with pytest.raises(CompilationError, match="MrgSort4 is not modelled by this emulator") as raised:
        ascendc.compile(path)
    assert "lacks.cpp:5" in str(raised.value)


def test_a_block_begins_with_registers_of_its_own(tmp_path):
    path = tmp_path / "blocks.cpp"
    path.write_text("""
#include "kernel_operator.h"
using namespace AscendC;
__global__ __aicore__ void blocks(GM_ADDR y) {
  TPipe pipe;
  TQue<TPosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 1, 256);
  GlobalTensor<float> Y;
  Y.SetGlobalBuffer((__gm__ float*)y + GetBlockIdx() * 64, 64);
  LocalTensor<float> t = queue.AllocTensor<float>();
  Duplicate(t, float(GetBlockNum()), uint64_t(64), 1, 1, 8);
  SetVectorMask<float>(3);
  Adds<float, false>(t, t, float(GetBlockIdx()), MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
  SetMaskCount();
  queue.EnQue(t);
  t = queue.DeQue<float>();
  SetAtomicAdd<float>();
  DataCopy(Y, t, 64);
  queue.FreeTensor(t);
}
""")
    y = np.zeros((100, 64), np.float32)
    run = ascendc.compile(path)(y, blocks=100)
    assert run.launches[0].core_count == 48
    assert (y[:, 3:] == 100).all()
    assert np.array_equal(y[:, 0], 100 + np.arange(100))


def test_a_program_of_another_version_is_not_run(tmp_path, monkeypatch):
    path = tmp_path / "nothing.cpp"
    path.write_text('#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void nothing(GM_ADDR x) {}\n')
    kernel, x = ascendc.compile(path), np.zeros(8, np.float32)
    assert not kernel(x).findings
    monkeypatch.setattr("npu_sim.ascendc.process.layout_number", lambda: 1)
    with pytest.raises(KernelError, match="must be compiled with this version of npu_sim, as by npu-sim cc"):
        kernel(x)


DIVIDES = """
#include "kernel_operator.h"
template <class T> __aicore__ void divide(GM_ADDR x, GM_ADDR y) {
  volatile T a = ((__gm__ T*)x)[0], b = ((__gm__ T*)x)[1];
  T c = b;
  ((__gm__ T*)y)[0] = a / b;
  ((__gm__ T*)y)[1] = a % b;
  ((__gm__ T*)y)[2] = a / c + 3;
}
extern "C" __global__ __aicore__ void divides(GM_ADDR x, GM_ADDR y, int32_t which) {
  AscendC::PipeBarrier<PIPE_ALL>();  // 11
  if (which == 0) divide<int32_t>(x, y);
  if (which == 1) divide<uint32_t>(x, y);
  if (which == 2) divide<int64_t>(x, y);
  if (which == 3) divide<uint64_t>(x, y);
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors divide by zero in silence")
@pytest.mark.parametrize(("which", "dtype"), list(enumerate((np.int32, np.uint32, np.int64, np.uint64))))
def test_a_scalar_division_by_zero_is_a_warning_and_ends_nothing(source_file, which, dtype):
    path = source_file("divides.cpp", DIVIDES)
    kernel = ascendc.compile(path, kind="vector")
    y = np.ones(3, dtype)
    run = kernel(np.array([7, 0], dtype), y, which)
    assert y.tolist() == [0, 7, 3]
    [found] = run.findings
    assert (found.severity, found.line.line) == ("warning", 11)
    assert "divides by zero" in str(found)
    assert not kernel(np.array([7, 2], dtype), y, which).findings
    assert y.tolist() == [3, 1, 6]

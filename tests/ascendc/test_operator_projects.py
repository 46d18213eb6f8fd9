"""Kernels of operator projects: their tilings come from the host sources beside them, host code stands in their way no
longer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.tiling_structs import host_headers, structs_header
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

HOST = """
#include "register/tilingdata_base.h"
#include "nothing/that/is/here.h"
namespace optiling {
constexpr uint32_t PARTS = 3;  // BEGIN_TILING_DATA_DEF(Nothing)
BEGIN_TILING_DATA_DEF(OneFactor)
  TILING_DATA_FIELD_DEF(uint8_t, shift);
  TILING_DATA_FIELD_DEF(float, scale);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(OneFactorOp, OneFactor)
BEGIN_TILING_DATA_DEF(ScaleTilingData)
  TILING_DATA_FIELD_DEF(uint8_t, rounds);
  TILING_DATA_FIELD_DEF(uint32_t, count);
  TILING_DATA_FIELD_DEF_ARR(uint16_t, PARTS, parts);
  TILING_DATA_FIELD_DEF(uint64_t, wide);
  TILING_DATA_FIELD_DEF_STRUCT(OneFactor, factor);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(ScaleTwo, ScaleTilingData)
}
"""
KERNEL = """
#include "kernel_operator.h"
#include "acl/acl.h"
#include "helpers.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void scale_two(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(t, tiling);
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  TPipe pipe;
  TQue<TPosition::VECIN, 1> queue;
  TQue<TPosition::VECOUT, 1> result;
  pipe.InitBuffer(queue, 1, t.count * sizeof(float));
  pipe.InitBuffer(result, 1, t.count * sizeof(float));
  LocalTensor<float> local = queue.AllocTensor<float>();
  DataCopy(local, in, t.count);
  queue.EnQue(local);
  local = queue.DeQue<float>();
  LocalTensor<float> scaled = result.AllocTensor<float>();
  Muls(scaled, local, t.factor.scale * float(t.wide) + t.parts[2], t.count);
  result.EnQue(scaled);
  queue.FreeTensor(local);
  scaled = result.DeQue<float>();
  DataCopy(out, scaled, t.count);
  result.FreeTensor(scaled);
}
"""
HELPERS = """
#pragma once
#include "acl/acl.h"
bool Load(void* device, const void* host, size_t size) {
  return aclrtMemcpy(device, size, host, size, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_SUCCESS;
}
"""
TILING = np.dtype(
    {
        "names": ["rounds", "count", "parts", "wide", "shift", "scale"],
        "formats": ["u1", "u4", ("u2", 3), "u8", "u1", "f4"],
        "offsets": [0, 4, 8, 16, 24, 28],
        "itemsize": 32,
    }
)
"""Each member at a multiple of its size, the whole and what it holds padded to 8 bytes."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the kernel of a project."""
    for folder, name, text in (
        ("op_host", "scale_two_tiling.h", HOST), ("op_kernel", "scale_two.cpp", KERNEL),
        ("op_kernel", "helpers.h", HELPERS),
    ):  # fmt: skip
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    return tmp_path / "op_kernel" / "scale_two.cpp"


def test_a_kernel_reads_the_tiling_that_its_host_sources_define(project: Path) -> None:
    tiling = np.zeros((), TILING)
    tiling["count"], tiling["parts"], tiling["wide"], tiling["scale"] = 64, (7, 8, 9), 2, 1.5
    x = np.arange(64, dtype=np.float32)
    y = np.empty_like(x)
    run = ascendc.compile(project)(x, y, None, tiling=tiling, outputs=[1])
    assert np.array_equal(y, x * np.float32(1.5 * 2 + 9))
    assert run.findings == ()


def test_a_kernel_reads_a_tiling_that_its_host_sources_include_of_another_operator(tmp_path: Path) -> None:
    for place, text in (
        ("one/op_host/shared_tiling.h", HOST),
        ("two/op_host/scale_two_tiling.h", '#pragma once\n#include "../../one/op_host/shared_tiling.h"\n'),
        ("two/op_host/scale_two.cpp", '#include "scale_two_tiling.h"\n#include "../not/there.h"\n'),
        ("two/op_kernel/scale_two.cpp", KERNEL.replace('#include "helpers.h"', "")),
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    kernel = tmp_path / "two/op_kernel/scale_two.cpp"
    assert host_headers(kernel) == [tmp_path / "one/op_host/shared_tiling.h"]
    tiling = np.zeros((), TILING)
    tiling["count"], tiling["parts"], tiling["wide"], tiling["scale"] = 64, (7, 8, 9), 2, 1.5
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    ascendc.compile(kernel)(x, y, None, tiling=tiling, outputs=[1])
    assert np.array_equal(y, x * np.float32(1.5 * 2 + 9))


def test_structures_come_behind_what_they_hold_and_only_if_the_source_has_none(project: Path) -> None:
    headers = host_headers(project)
    text = structs_header(headers, "scale_two", [KERNEL])
    assert [line.split()[2] for line in text.splitlines() if line.startswith("struct")] == [
        "OneFactor",
        "ScaleTilingData",
    ]
    assert "uint16_t parts[3];" in text
    assert text.endswith("using npusim_default_tiling = ScaleTilingData;\n")
    own = structs_header(headers, "another", ["struct OneFactor { int a; };"])
    assert "struct alignas(8) OneFactor" not in own
    assert own.endswith("using npusim_default_tiling = ScaleTilingData;\n")
    assert "using" not in structs_header(headers, "scale_two", ["REGISTER_TILING_DEFAULT(Mine)"])


def test_sources_outside_of_projects_have_no_tiling_of_hosts(project: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.cpp"
    alone.write_text(KERNEL.replace('#include "helpers.h"', ""))
    assert host_headers(alone) == []
    with pytest.raises(CompilationError, match="npusim_default_tiling"):
        ascendc.compile(alone).build()
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "tiling.h").write_text(HOST)
    ascendc.compile(alone, include=[shared]).build()


@pytest.mark.parametrize(
    "of_tests",
    ["struct ScaleTilingData { int nothing; };", "REGISTER_TILING_DEFAULT(Another)"],
    ids=["struct", "default"],
)
def test_what_tests_of_the_vendor_define_is_not_the_kernel_s(project: Path, of_tests: str) -> None:
    project.write_text(
        KERNEL.replace("using namespace", f"#ifdef __CCE_KT_TEST__\n{of_tests}\n#endif\nusing namespace", 1)
    )
    tiling = np.zeros((), TILING)
    tiling["count"], tiling["wide"], tiling["scale"] = 64, 2, 1.5
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    ascendc.compile(project)(x, y, None, tiling=tiling, outputs=[1])
    assert np.array_equal(y, x * 3)


SELECTED = """
#pragma once
#include "ascendc/host_api/tiling/template_argument.h"
ASCENDC_TPL_SEL(ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_KERNEL_TYPE_SEL(ASCENDC_TPL_AIC_ONLY),
                                     ASCENDC_TPL_UINT_SEL(MODE, ASCENDC_TPL_UI_LIST, 0)));
"""
START = "#define START(object) REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), object)"
SAID = {
    "selected": (SELECTED, "cube"),
    "default": ("inline void says() { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1); }", "mix"),
    "matmul": (f"{START}\n#define WORK [](auto pipe, auto object) {{ START(object); }}", "mix"),
    "another's matmul": (START, "vector"),
    "nothing": ("template <class T> inline void unused(T a) { Mmad(a, a, a, MmadParams()); }", "vector"),
    "other chip": ("#if __NPU_ARCH__ == 3510\ninline void s() { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY); }\n"
                   "#endif", "vector"),
}  # fmt: skip


@pytest.mark.parametrize("said", SAID)
def test_a_header_says_which_cores_a_kernel_is_for(tmp_path: Path, said: str) -> None:
    text, kind = SAID[said]
    (tmp_path / "says.h").write_text(text)
    path = tmp_path / "k.cpp"
    kernel = 'extern "C" __global__ __aicore__ void k(GM_ADDR x) {}\n'
    if "WORK" in text:
        kernel = kernel.replace("{}", "{ auto work = WORK; }")
    head = '#include "kernel_operator.h"\nusing namespace AscendC;\n#include "says.h"\n'
    path.write_text(head + kernel)
    assert ascendc.compile(path).kind == kind
    assert ascendc.compile(path, kind="cube").kind == "cube"
    path.write_text(head + kernel.replace("{", "{ KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY); "))
    assert ascendc.compile(path).kind == "vector"


BORROWER = """
#include "kernel_operator.h"
#include "arch22/borrower.h"
extern "C" __global__ __aicore__ void borrower(GM_ADDR y) { borrow(y); }
"""
OF_ANOTHER = """
#pragma once
#include "../{up}lender/lender_base.h"
#include "../{up}inc/shared.h"
{attribute} inline void borrow(GM_ADDR y) {{ *(__gm__ int32_t*)y = LENT + SHARED; }}
"""


@pytest.mark.parametrize("attribute", ["__aicore__", "[aicore]"], ids=["plain", "copied"])
@pytest.mark.parametrize("category", ["math", "index"])
def test_headers_of_another_operator_are_found_where_they_are_installed(tmp_path, attribute, category):
    """Also through headers of it, from a directory below, and in another category of the library."""
    texts = {
        "math/borrower/op_kernel/borrower.cpp": BORROWER,
        "math/borrower/op_kernel/arch22/borrower.h": OF_ANOTHER.format(up="../", attribute=attribute),
        f"{category}/lender/op_kernel/lender_base.h": '#include "lender_part.h"\n#include "../third/deeper/third.h"\n',
        f"{category}/lender/op_kernel/lender_part.h": "#pragma once\nconstexpr int LENT_PART = 40;\n",
        "math/third/op_kernel/deeper/third.h": "#pragma once\nconstexpr int LENT = LENT_PART + 1;\n",
        "common/inc/op_kernel/shared.h": "#pragma once\nconstexpr int SHARED = 1;\n",
        # beside the installed layout, and not what is asked for
        "math/lender/op_host/lender_base.h": "#error\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    y = np.zeros(8, np.int32)
    source = tmp_path / "math/borrower/op_kernel/borrower.cpp"
    kernel = ascendc.compile(source)
    kernel(y)
    assert y[0] == 42
    shared = tmp_path / "common/inc/op_kernel/shared.h"
    shared.write_text("#pragma once\nconstexpr int SHARED = 2;\n")
    ascendc.compile(source)(y)
    assert y[0] == 43
    shared.unlink()
    with pytest.raises(CompilationError, match=r"inc/shared\.h"):
        ascendc.compile(source)


def test_findings_name_the_header_of_another_operator_where_the_user_has_it(tmp_path: Path) -> None:
    texts = {
        "math/borrower/op_kernel/borrower.cpp": '#include "kernel_operator.h"\n#include "../lender/lender.h"\n'
        'extern "C" __global__ __aicore__ void borrower(GM_ADDR y) { lend(y); }\n',
        "math/lender/op_kernel/lender.h": "#pragma once\n__aicore__ inline void lend(GM_ADDR y) {\n"
        "  AscendC::LocalTensor<float> t(AscendC::TPosition::VECCALC, 0, 64);\n"
        "  AscendC::Adds(t, t, 1.0f, 64);\n}\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kernel = ascendc.compile(tmp_path / "math/borrower/op_kernel/borrower.cpp", kind="vector")
    (finding, *_) = kernel.check(np.zeros(8, np.float32)).findings
    assert Path(finding.line.file) == tmp_path / "math/lender/op_kernel/lender.h"
    assert finding.line.line == 4


def test_the_tiling_of_an_operator_whose_headers_are_included_is_there(tmp_path: Path) -> None:
    texts = {
        "list/one/op_kernel/one.cpp": '#include "kernel_operator.h"\n#include "../shared/shared.h"\n'
        'extern "C" __global__ __aicore__ void one(GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {\n'
        "  GET_TILING_DATA(data, tiling);\n  put(y, data);\n}\n",
        "list/shared/op_kernel/shared.h": "inline void put(GM_ADDR y, const Shared& t) {\n"
        "  *(__gm__ uint32_t*)y = t.count;\n}\n",
        "list/shared/op_host/shared_tiling.h": "BEGIN_TILING_DATA_DEF(Shared)\n"
        "  TILING_DATA_FIELD_DEF(uint32_t, count);\nEND_TILING_DATA_DEF;\nREGISTER_TILING_DATA_CLASS(One, Shared)\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    y = np.zeros(8, np.uint32)
    ascendc.compile(tmp_path / "list/one/op_kernel/one.cpp")(y, None, tiling=np.array([77, 0], np.uint32))
    assert y[0] == 77


MIXED = """
#include "kernel_operator.h"
#include "tiling/tiling_api.h"
#include "register/tilingdata_base.h"
namespace optiling {
BEGIN_TILING_DATA_DEF(Fill)
  TILING_DATA_FIELD_DEF(uint32_t, count);
END_TILING_DATA_DEF;
}
static ge::graphStatus Choose(gert::TilingContext* context, const platform_ascendc::PlatformAscendC& chip)
{
  optiling::Fill tiling;
  tiling.set_count(context->GetInput(0)->GetSize());
  return ge::GRAPH_SUCCESS;
}
template <class T> __aicore__ inline uint32_t Share(T count) { return count / GetBlockNum(); }
extern "C" __global__ __aicore__ void fill(GM_ADDR y, optiling::Fill tiling) {
  AscendC::GlobalTensor<float> out;
  uint32_t share = Share(tiling.get_count());
  out.SetGlobalBuffer((__gm__ float*)y + GetBlockIdx() * share);
  AscendC::LocalTensor<float> ones(AscendC::TPosition::VECOUT, 0, 256);
  AscendC::Duplicate(ones, 1.0f, share);
  AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(EVENT_ID0);
  AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(EVENT_ID0);
  AscendC::DataCopy(out, ones, share);
}
std::vector<float> Golden(size_t count)
{
  return std::vector<float>(count, 1.0f);
}
int main() { optiling::Fill tiling; fill<<<4, nullptr, nullptr>>>(nullptr, tiling); return 0; }
"""


def test_host_functions_and_their_tilings_stand_beside_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "fill.asc"
    path.write_text(MIXED.replace('#include "kernel_operator.h"', '#include <vector>\n#include "kernel_operator.h"', 1))
    y = np.zeros(128, np.float32)
    run = ascendc.compile(path)(y, tiling=np.array([128], np.uint64), blocks=4, outputs=[0])
    assert (y == 1).all()
    assert run.findings == ()


def test_a_length_is_that_of_the_structure_s_own_header(tmp_path: Path) -> None:
    headers = []
    for name, length in (("a", 64), ("b", 50)):
        headers.append(tmp_path / f"{name}.h")
        headers[-1].write_text(
            f"constexpr int COUNT = {length};\nBEGIN_TILING_DATA_DEF({name.upper()})\n"
            f"  TILING_DATA_FIELD_DEF_ARR(int32_t, COUNT, parts);\nEND_TILING_DATA_DEF;\n"
        )
    header = structs_header(headers, "kernel", [])
    assert "struct alignas(8) A { int32_t parts[64]; };" in header
    assert "struct alignas(8) B { int32_t parts[50]; };" in header


BESIDE = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void scale_two(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(ScaleTilingData, t, tiling);
  AscendC::GlobalTensor<DTYPE_X> in, out;
  in.SetGlobalBuffer((__gm__ DTYPE_X*)x), out.SetGlobalBuffer((__gm__ DTYPE_X*)y);
  auto scale = DTYPE_X(t.factor.scale), shift = DTYPE_X(t.parts[1]);
  for (uint32_t i = 0; i < t.count; i++) out.SetValue(i, in.GetValue(i) * scale + shift);
}
"""
DEFINED = """
#include "register/op_def_registry.h"
namespace ops {
class ScaleTwo : public OpDef {
 public:
  explicit ScaleTwo(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_INT32}).FormatList({ge::FORMAT_ND});
    this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_INT32}).FormatList({ge::FORMAT_ND});
    this->AICore().AddConfig("ascend910b");
  }
};
OP_ADD(ScaleTwo);
}
"""


@pytest.mark.parametrize("dtype", [np.float16, np.int32])
def test_hosts_may_stand_in_a_folder_beside_the_kernel_itself(tmp_path, dtype):
    hosts = tmp_path / "scale_two" / "ophost"
    hosts.mkdir(parents=True)
    (hosts.parent / "scale_two.cpp").write_text(BESIDE)
    (hosts / "scale_two_tiling.h").write_text(HOST)
    (hosts / "scale_two_def.cpp").write_text(DEFINED)
    tiling = np.zeros((), TILING)
    tiling["count"], tiling["parts"], tiling["scale"] = 100, (7, 5, 9), 3
    x = np.arange(100).astype(dtype)
    y = np.empty_like(x)
    run = ascendc.compile(hosts.parent / "scale_two.cpp")(x, y, None, blocks=1, tiling=tiling.tobytes(), outputs=[1])
    assert np.array_equal(y, x * dtype(3) + dtype(5))
    assert run.findings == ()

"""What projects rely on besides the library: headers, macros and names of their own, older constants, host logs."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.older_names import older_names
from npu_sim.ascendc.tiling_structs import host_headers
from tests.ascendc.compiler import require_compiler

require_compiler()

OWN_HEADER = """
#pragma once
#include "kernel_operator.h"
__aicore__ inline uint32_t RoundUpBy(uint32_t value, uint32_t by) { return (value + by - 1) / by * by; }
"""
OLDER = """
#include "kernel_utils.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void older(GM_ADDR y) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  Duplicate(t, 0.0f, 64);
  t.SetValue(0, float(ONE_REPEAT_FLOAT_SIZE));
  t.SetValue(1, PI);
  t.SetValue(2, float(MAX_REPEAT_HALF_SIZE));
  t.SetValue(3, float(sbitset1(sbitset0(0xFF, 3), 40) >> 3));
  t.SetValue(4, float(GetBlockIdxImpl()));
  t.SetValue(5, float(RoundUpBy(33, B64_BYTE_SIZE)));
  SetFlag<HardEvent::S_MTE3>(0); WaitFlag<HardEvent::S_MTE3>(0);
  GlobalTensor<float> out; out.SetGlobalBuffer((__gm__ float*)y + GetBlockIdx() * 64);
  DataCopy(out, t, 64);
}
"""


@pytest.fixture
def older(tmp_path):
    (tmp_path / "kernel_utils.h").write_text(OWN_HEADER)
    path = tmp_path / "older.cpp"
    path.write_text(OLDER)
    return path


def test_a_header_beside_the_source_stands_before_the_library_s_part_of_that_name(older):
    y = np.empty((2, 64), np.float32)
    run = ascendc.compile(older, kind="vector")(y, blocks=2, outputs=[0])
    wanted = np.zeros((2, 64), np.float32)
    wanted[:, :6] = [64, np.pi, 128 * 255, (0xF7 | 1 << 40) >> 3, 0, 40]
    wanted[1, 4] = 1
    assert np.array_equal(y, wanted)
    assert run.findings == ()


def test_a_source_that_has_a_value_for_an_older_name_keeps_it(older):
    older.write_text(OLDER.replace("using namespace AscendC;", "using namespace AscendC;\nconstexpr float PI = 3.0f;"))
    y = np.empty((1, 64), np.float32)
    ascendc.compile(older, kind="vector")(y, outputs=[0])
    assert y[0, 1] == 3


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("x = ONE_REPEAT_FLOAT_SIZE;", True),
        ("// ONE_REPEAT_FLOAT_SIZE\nint x;", False),
        ("#define ONE_REPEAT_FLOAT_SIZE 64\nx = ONE_REPEAT_FLOAT_SIZE;", False),
        ("constexpr int ONE_REPEAT_FLOAT_SIZE = 64;", False),
        ("constexpr int ONE_REPEAT_FLOAT_SIZE{64};", False),
        ("template <int ONE_REPEAT_FLOAT_SIZE, class T> f();", False),
        ("if (x == 3 && ONE_REPEAT_FLOAT_SIZE == x) y();", True),
    ],
)
def test_an_older_name_is_declared_where_nothing_else_gives_it_a_value(text, declared):
    assert ("ONE_REPEAT_FLOAT_SIZE = 64" in older_names([text])) == declared


IN_A_NAMESPACE = """
#include <torch/all.h>
#include "acl/acl.h"
namespace project {
namespace one {
#include <iostream>
#include <cmath>
#include "kernel_operator.h"
using namespace AscendC;
constexpr float FACTOR = 2.5f;
class Scale {
 public:
  __aicore__ inline void Process(GM_ADDR x) {
    LocalTensor<float> t(TPosition::VECCALC, 0, 64);
    GlobalTensor<float> g; g.SetGlobalBuffer((__gm__ float*)x);
    DataCopy(t, g, 64);
    SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
    Muls(t, t, FACTOR, 64);
    SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(g, t, 64);
  }
};
extern "C" __global__ __aicore__ void scale(GM_ADDR x) { Scale().Process(x); }
at::Tensor run(const at::Tensor& x) {
  std::cout << "host" << std::endl;
  scale<<<1, nullptr, nullptr>>>((uint8_t*)x.data_ptr());
  return x;
}
}
}
"""


def test_standard_headers_in_a_namespace_behind_headers_of_the_host(tmp_path):
    path = tmp_path / "scale.cpp"
    path.write_text(IN_A_NAMESPACE)
    x = np.arange(64, dtype=np.float32)
    ascendc.compile(path, kernel="scale", kind="vector")(x)
    assert np.array_equal(x, np.arange(64, dtype=np.float32) * np.float32(2.5))


TILING = """
#pragma once
#include "register/tilingdata_base.h"
{macros}
namespace optiling {{
BEGIN_TILING_DATA_DEF(PairTilingData)
TILING_DATA_FIELD_DEF(uint32_t, {first})
TILING_DATA_FIELD_DEF(uint32_t, {second})
END_TILING_DATA_DEF

REGISTER_TILING_DATA_CLASS(Pair, PairTilingData)
}}
"""
OWN_MACRO = """
#define OPS_LOG_E_IF_NULL(NAME, POINTER, RESULT) \\
  if ((POINTER) == nullptr) {                    \\
    printf("%s: %s", NAME, #POINTER);            \\
    RESULT;                                      \\
  }
"""
HOST = """
#include "pair_tiling.h"
#include "register/op_def_registry.h"
#include "tiling/sort/sort_tiling_intf.h"
#include "tiling/matrix/matmul_tilingdata.h"
#include "acl/acl_base.h"
#include "log/ops_log.h"
namespace optiling {
static ge::graphStatus Tile(gert::TilingContext* context) {
  const gert::StorageShape* shape = context->GetInputShape(0);
  OPS_LOG_E_IF_NULL("pair", shape, return ge::GRAPH_FAILED)
  int64_t count = shape->GetStorageShape().GetDim(0);
  OPS_LOG_E_IF(count == gert::Shape::kInvalidDimValue, "pair", return ge::GRAPH_FAILED, "no shape")
  if (count == 13) {
    ACL_APP_LOG(ACL_INFO, "not to be heard");
    ACL_APP_LOG(ACL_ERROR, "%ld is no good number", long(count));
    return ge::GRAPH_FAILED;
  }
  auto platform = platform_ascendc::PlatformAscendC(context->GetPlatformInfo());
  PairTilingData tiling;
  tiling.set_sorts(AscendC::GetSortTmpSize(platform, count, 4));
  tiling.set_joins(AscendC::GetConcatTmpSize(platform, count, 4));
  tiling.SaveToBuffer(context->GetRawTilingData()->GetData(), context->GetRawTilingData()->GetCapacity());
  context->GetRawTilingData()->SetDataSize(tiling.GetDataSize());
  context->SetBlockDim(1);
  return ge::GRAPH_SUCCESS;
}
}
namespace ops {
static ge::graphStatus Shapes(gert::InferShapeContext* context) {
  *context->GetOutputShape(0) = *context->GetRequiredInputShape(0);
  return ge::GRAPH_SUCCESS;
}
static ge::graphStatus Types(gert::InferDataTypeContext* context) {
  return context->SetOutputDataType(0, context->GetRequiredInputDataType(0));
}
class Pair : public OpDef {
 public:
  explicit Pair(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->SetInferShape(Shapes).SetInferDataType(Types);
    this->AICore().SetTiling(optiling::Tile).AddConfig("ascend910b");
  }
};
OP_ADD(Pair);
}
"""
KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void pair(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(t, tiling);
  GlobalTensor<float> out; out.SetGlobalBuffer((__gm__ float*)y);
  out.SetValue(0, float(t.sorts));
  out.SetValue(1, float(t.joins));
}
"""


@pytest.fixture(scope="module", params=["", OWN_MACRO], ids=["macros of the package", "its own macros"])
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    for name, text in (
        ("op_host/arch35/pair_tiling.h", TILING.format(first="other", second="more", macros="")),
        ("op_host/pair_tiling.h", TILING.format(first="sorts", second="joins", macros=request.param)),
        ("op_host/pair.cpp", HOST),
        ("op_kernel/pair.cpp", KERNEL),
        ("op_kernel/arch35/pair.cpp", KERNEL),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("count", "sorts"), [(100, 128 * 8), (4096, 4096 * 8), (1, 32 * 8)])
def test_semicolons_that_macros_bring_and_sizes_that_sorting_takes(pair, count, sorts):
    x, y = np.zeros(count, np.float32), np.empty(2, np.float32)
    tiled = ascendc.host_tiling(pair / "op_host/pair.cpp", [x], [y], product="910b")
    ascendc.compile(pair / "op_kernel/pair.cpp")(x, y, None, **tiled.call | {"workspace": ()}, product="910b")
    joins = np.frombuffer(tiled.data, np.uint32)[1]
    assert y.tolist() == [sorts, joins]
    assert joins > 0


def test_what_the_host_logs_as_an_error_is_heard(pair):
    with pytest.raises(ascendc.TilingError, match="13 is no good number") as caught:
        ascendc.host_tiling(pair / "op_host/pair.cpp", [np.zeros(13, np.float32)], [np.zeros(2, np.float32)])
    assert "not to be heard" not in str(caught.value)


def test_tilings_for_another_architecture_stand_behind_those_for_all(pair):
    def folders(kernel):
        return [path.parent.name for path in host_headers(pair / kernel) if path.suffix == ".h"]

    assert folders("op_kernel/pair.cpp") == ["op_host", "arch35"]
    assert folders("op_kernel/arch35/pair.cpp") == ["arch35", "op_host"]

"""Tiling functions of an operator's host sources: what they are given, what they decide, and kernels called with it."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import DTypeError, InputFileError
from ops.cli.main import main
from tests.ascendc.compiler import require_compiler

require_compiler()

TILING = """
#pragma once
#include "register/tilingdata_base.h"
namespace optiling {
BEGIN_TILING_DATA_DEF(ScaledTilingData)
  TILING_DATA_FIELD_DEF(uint32_t, count);
  TILING_DATA_FIELD_DEF(uint32_t, each)
  TILING_DATA_FIELD_DEF(float, factor);
  TILING_DATA_FIELD_DEF(int32_t, shift);
  TILING_DATA_FIELD_DEF_ARR(int32_t, 4, seen);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Scaled, ScaledTilingData)
}
"""
FUNCTION = """
#include "scaled_tiling.h"
#include "register/op_def_registry.h"
#include "tiling/platform/platform_ascendc.h"
namespace optiling {
static ge::graphStatus Tile(gert::TilingContext* context) {
  auto platform = platform_ascendc::PlatformAscendC(context->GetPlatformInfo());
  ScaledTilingData tiling;
  const gert::StorageShape* shape = context->GetInputShape(0);
  OP_CHECK_NULL_WITH_CONTEXT(context, shape);
  OP_CHECK_IF(shape->GetStorageShape().GetDimNum() != 2, OP_LOGE(context->GetNodeName(), "x has %zu dims",
              shape->GetStorageShape().GetDimNum()), return ge::GRAPH_FAILED);
  uint32_t count = shape->GetStorageShape().GetShapeSize(), cores = platform.GetCoreNumAiv();
  uint32_t blocks = count / 64 < cores ? count / 64 : cores;
  tiling.set_count(count);
  tiling.set_each((count + blocks - 1) / blocks);
  const gert::RuntimeAttrs* attributes = context->GetAttrs();
  tiling.set_factor(*attributes->GetFloat(0));
  const int64_t* shift = attributes->GetAttrPointer<int64_t>(1);
  tiling.set_shift(*shift);
  auto* list = attributes->GetAttrPointer<gert::ContinuousVector>(2);
  const int64_t* items = static_cast<const int64_t*>(list->GetData());
  int64_t sum = 0;
  for (size_t i = 0; i < list->GetSize(); i++) sum += items[i];
  bool flag = *attributes->GetBool(3);
  const gert::Tensor* bias = context->GetOptionalInputTensor(1);
  int32_t first = bias ? bias->GetData<int32_t>()[0] : -1;
  size_t several = context->GetIrInputInstanceInfo(2)->GetInstanceNum();
  const auto* node = context->GetComputeNodeInfo();
  if (node->GetInputInstanceInfo(2)->GetInstanceNum() != several || node->GetInputInstanceInfo(3) != nullptr)
    return ge::GRAPH_FAILED;
  if (several && node->GetInputInstanceInfo(2)->GetInstanceStart() != (bias ? 2u : 1u)) return ge::GRAPH_FAILED;
  if (several > 1) first += context->GetDynamicInputShape(2, 1)->GetStorageShape().GetDim(0);
  int32_t seen[4] = {int32_t(sum), flag ? 1 : 0, first, int32_t(context->GetOutputDesc(0)->GetDataType())};
  tiling.set_seen(seen);
  if (std::string(attributes->GetStr(4)) == "crash") *(volatile int*)nullptr = 1;
  context->SetBlockDim(blocks);
  context->SetTilingKey(several);
  tiling.SaveToBuffer(context->GetRawTilingData()->GetData(), context->GetRawTilingData()->GetCapacity());
  context->GetRawTilingData()->SetDataSize(tiling.GetDataSize());
  context->GetWorkspaceSizes(1)[0] = platform.GetLibApiWorkSpaceSize() + 32;
  return ge::GRAPH_SUCCESS;
}
}
"""
DEFINITION = """
namespace ops {
class Scaled : public OpDef {
 public:
  explicit Scaled(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT, ge::DT_FLOAT16})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->Input("bias").ParamType(OPTIONAL).DataType({ge::DT_INT32, ge::DT_INT32}).ValueDepend(OPTIONAL);
    this->Input("more").ParamType(DYNAMIC).DataTypeList({ge::DT_FLOAT});
    this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT, ge::DT_FLOAT16}).AutoContiguous();
    this->Attr("factor").AttrType(OPTIONAL).Float(2.0);
    this->Attr("shift").AttrType(OPTIONAL).Int(3);
    this->Attr("axes").AttrType(OPTIONAL).ListInt({1, 2});
    this->Attr("flag").AttrType(OPTIONAL).Bool(true);
    this->Attr("mode").AttrType(OPTIONAL).String("plain");
    this->SetInferShape(nullptr);
    this->AICore().SetTiling(optiling::Tile).AddConfig("ascend910b");
    OpAICoreConfig config;
    config.DynamicCompileStaticFlag(true).ExtendCfgInfo("opFile.value", "scaled");
    this->AICore().AddConfig("ascend910_93", config);
  }
};
OP_ADD(Scaled);
}
"""
KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void scaled(GM_ADDR x, GM_ADDR bias, GM_ADDR more, GM_ADDR y, GM_ADDR workspace,
                                             GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GET_TILING_DATA(t, tiling);
  TPipe pipe; TBuf<TPosition::VECCALC> buffer;
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  uint32_t first = GetBlockIdx() * t.each, count = first + t.each < t.count ? t.each : t.count - first;
  pipe.InitBuffer(buffer, (t.each * 4 + 31) / 32 * 32);
  LocalTensor<float> a = buffer.Get<float>();
  DataCopyPad(a, in[first], DataCopyExtParams(1, count * 4, 0, 0, 0), DataCopyPadExtParams<float>());
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Muls(a, a, t.factor, count);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopyPad(out[first], a, DataCopyExtParams(1, count * 4, 0, 0, 0));
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaled")
    for place, name, text in (
        ("op_host", "scaled_tiling.h", TILING), ("op_host", "scaled.cpp", FUNCTION + DEFINITION),
        ("op_kernel", "scaled.cpp", KERNEL),
    ):  # fmt: skip
        (folder / place).mkdir(exist_ok=True)
        (folder / place / name).write_text(text)
    return folder


X, Y = np.arange(12 * 100, dtype=np.float32).reshape(12, 100), np.zeros((12, 100), np.float32)
FIELDS = np.dtype([("count", "u4"), ("each", "u4"), ("factor", "f4"), ("shift", "i4"), ("seen", "i4", 4)])


def _tile(project, inputs, **options):
    return ascendc.host_tiling(project / "op_host/scaled.cpp", inputs, [Y], product="910b", **options)


def _fields(tiled):
    return np.frombuffer(tiled.data, FIELDS)[0].tolist()


def test_defaults_are_those_of_the_definition(project):
    tiled = _tile(project, [X, None, []])
    assert (tiled.op, tiled.blocks, tiled.key, tiled.workspaces) == ("Scaled", 18, 0, (16 * 2**20 + 32,))
    count, each, factor, shift, seen = _fields(tiled)
    assert (count, each, factor, shift) == (1200, 67, 2.0, 3)
    assert seen.tolist() == [3, 1, -1, 0]
    assert tiled.workspace.nbytes == 16 * 2**20 + 32


def test_what_is_given_arrives(project):
    attributes = {"factor": 7, "shift": -4, "axes": [10, 20, 30], "flag": False}
    inputs = [X.astype(np.float16), np.array([40], np.int32), [X, np.zeros((5, 6), np.float32)]]
    tiled = _tile(project, inputs, attributes=attributes)
    assert tiled.key == 2
    _, _, factor, shift, seen = _fields(tiled)
    assert (factor, shift, seen.tolist()) == (7.0, -4, [60, 0, 45, 0])
    # an input that is not there takes no other's place
    tiled = _tile(project, [X, None, [X, np.zeros((5, 6), np.float32)]])
    assert _fields(tiled)[4].tolist() == [3, 1, 4, 0]


def test_the_chip_is_that_of_the_call(project):
    x = np.zeros((640, 100), np.float32)
    for name, blocks in (("910b", 48), ("310p", 8)):
        assert ascendc.host_tiling(project / "op_host/scaled.cpp", [x, None, []], [Y], product=name).blocks == blocks


def test_a_kernel_is_called_with_what_its_host_decided(project):
    tiled = _tile(project, [X, None, []], attributes={"factor": 1.5})
    y = np.zeros_like(X)
    kernel = ascendc.compile(project / "op_kernel/scaled.cpp")
    run = kernel(X, None, None, y, tiled.workspace, **tiled.call, product="910b")
    assert np.array_equal(y, X * np.float32(1.5))
    assert run.findings == ()
    assert run.launches[0].core_count == 18


def test_the_command_line_asks_the_host(project, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    host = str(project / "op_host/scaled.cpp")
    call = ["--arg", "x.npy", "--arg", "none", "--arg", "none", "--out", "y:12x100:fp32", "--product", "910b"]
    command = ["run", str(project / "op_kernel/scaled.cpp"), *call, "--host", host, "--attr", "factor=1.5"]
    assert main([*command, "--attr", "axes=[3,4]"]) == 0
    assert np.array_equal(np.load("y.npy"), X * np.float32(1.5))
    assert "18 vector cores" in capsys.readouterr().out
    assert main([*command, "--attr", "shift"]) == 2
    assert "--attr must be NAME=VALUE, not 'shift'" in capsys.readouterr().err
    assert main([*command, "--tiling", "x.npy"]) == 2
    assert "--tiling must not be given with --host" in " ".join(capsys.readouterr().err.split())
    assert main([*command[:-4], "--attr", "factor=1.5"]) == 2
    assert "--attr is for --host" in capsys.readouterr().err


def test_what_the_host_refuses_is_told_in_its_words(project):
    with pytest.raises(ascendc.TilingError, match=r"Scaled must succeed, not return 4294967295 .*x has 1 dims"):
        _tile(project, [X.ravel(), None, []])
    with pytest.raises(ascendc.TilingError, match=r"ends by signal 11"):
        _tile(project, [X, None, []], attributes={"mode": "crash"})
    with pytest.raises(
        ascendc.TilingError, match=r"must be of the operator's \(factor shift axes flag mode\), not scale"
    ):
        _tile(project, [X, None, []], attributes={"scale": 1})
    with pytest.raises(ascendc.TilingError, match=r"shift is a whole number, not 0\.5"):
        _tile(project, [X, None, []], attributes={"shift": 0.5})
    with pytest.raises(DTypeError, match=r"inputs\[0\] must be of a type that operators have, not complex128"):
        _tile(project, [X.astype(complex), None, []])


def test_sources_that_are_not_there_or_do_not_compile_are_told(project, tmp_path):
    with pytest.raises(InputFileError, match="must be a host source that can be read"):
        ascendc.host_tiling(tmp_path / "none.cpp", [X], [Y])
    path = tmp_path / "broken.cpp"
    path.write_text('#include "register/op_impl_registry.h"\nIMPL_OP_OPTILING(Broken).Tiling(missing);\n')
    with pytest.raises(CompilationError, match="missing"):
        ascendc.host_tiling(path, [X], [Y])
    (tmp_path / "plain.cpp").write_text("int none;\n")
    with pytest.raises(InputFileError, match="op must be named"):
        ascendc.host_tiling(tmp_path / "plain.cpp", [X], [Y])


REGISTERED = """
#include "exe_graph/runtime/tiling_context.h"
#include "register/op_impl_registry.h"
#include "ascendc/host_api/tiling/template_argument.h"
#include "util/math_util.h"
struct Parsed { int64_t cores; };
struct Decided { int64_t tiles, cores; };
static ge::graphStatus Parse(gert::TilingParseContext* context) {
  auto platform = platform_ascendc::PlatformAscendC(context->GetPlatformInfo());
  context->GetCompiledInfo<Parsed>()->cores = platform.GetCoreNum();
  return ge::GRAPH_SUCCESS;
}
static ge::graphStatus Tile(gert::TilingContext* context) {
  auto* decided = context->GetTilingData<Decided>();
  decided->cores = static_cast<const Parsed*>(context->GetCompileInfo())->cores;
  int64_t size = context->GetInputTensor(0)->GetShapeSize();
  decided->tiles = Ops::Base::CeilDiv(size, int64_t(256)) + *context->GetAttrs()->GetInt(1);
  ASCENDC_TPL_SEL_PARAM(context, 3, context->GetInputDesc(0)->GetDataType() == ge::DT_FLOAT16);
  context->SetBlockDim(1);
  return ge::GRAPH_SUCCESS;
}
IMPL_OP_OPTILING(Counted).Tiling(Tile).TilingParse<Parsed>(Parse);
"""
BESIDE = """
#include "register/op_def_registry.h"
namespace ops {
class Counted : public OpDef {
 public:
  explicit Counted(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT16}).Format({ge::FORMAT_ND});
    this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT16}).Format({ge::FORMAT_ND});
    this->Attr("eps").AttrType(OPTIONAL).Float(1e-6);
    this->Attr("extra").AttrType(OPTIONAL).Int(100);
    this->AICore().AddConfig("ascend910b");
  }
};
OP_ADD(Counted);
}
"""


def test_a_registered_function_finds_its_definition_beside_it(tmp_path):
    (tmp_path / "counted_tiling.cpp").write_text(REGISTERED)
    (tmp_path / "counted_def.cpp").write_text(BESIDE)
    x = np.zeros(1000, np.float16)
    tiled = ascendc.host_tiling(tmp_path / "counted_tiling.cpp", [x], [x], product="910b")
    assert np.frombuffer(tiled.data, np.int64).tolist() == [104, 48]
    assert tiled.template_arguments == (3, 1)
    assert tiled.workspace.size == 0


def test_without_a_definition_attributes_come_in_their_order(tmp_path):
    path = tmp_path / "counted_tiling.cpp"
    path.write_text(REGISTERED)
    x = np.zeros(1000, np.float32)
    tiled = ascendc.host_tiling(path, [x], [x], attributes=[1e-6, 7], product="910b")
    assert np.frombuffer(tiled.data, np.int64).tolist() == [11, 48]
    assert tiled.template_arguments == (3, 0)
    with pytest.raises(ascendc.TilingError, match="attributes must be given by number"):
        ascendc.host_tiling(path, [x], [x], attributes={"extra": 7}, product="910b")


def test_an_edit_of_a_header_beside_compiles_again(project):
    header = project / "op_host/scaled_tiling.h"
    before = _tile(project, [X, None, []])
    header.write_text(TILING.replace("uint32_t, count", "uint64_t, count"))
    try:
        assert len(_tile(project, [X, None, []]).data) == len(before.data) + 8
    finally:
        header.write_text(TILING)


KEYED = """
#include "register/op_impl_registry.h"
#include "ascendc/host_api/tiling/template_argument.h"
#define FEW 0
#define MANY 3
ASCENDC_TPL_ARGS_DECL(Keyed, ASCENDC_TPL_UINT_DECL(mode, ASCENDC_TPL_2_BW, ASCENDC_TPL_UI_LIST, FEW, MANY, 7),
                      ASCENDC_TPL_BOOL_DECL(split, 0, 1), );
ASCENDC_TPL_SEL(ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_UINT_SEL(mode, ASCENDC_TPL_UI_LIST, FEW, MANY, 7),
                                     ASCENDC_TPL_BOOL_SEL(split, 0, 1)));
static ge::graphStatus Tile(gert::TilingContext* context) {
  const ge::char_t* name = context->GetNodeName();
  if (name == nullptr) return ge::GRAPH_FAILED;
  int64_t key = *context->GetAttrs()->GetInt(0);
  if (key >= 0) context->SetTilingKey(key);
  if (key == 99) context->SetTilingKey(GET_TPL_TILING_KEY(MANY, true));
  context->SetBlockDim(1);
  return ge::GRAPH_SUCCESS;
}
IMPL_OP_OPTILING(Keyed).Tiling(Tile);
"""


@pytest.mark.parametrize(
    ("key", "arguments"),
    [(-1, (0, 0)), (0, (0, 0)), (1, (3, 0)), (2, (7, 0)), (3, ()), (5, (3, 1)), (6, (7, 1)), (8, ()), (99, (3, 1))],
)
def test_a_key_chooses_among_the_declared_template_arguments(source_file, key, arguments):
    path = source_file("keyed_tiling.cpp", KEYED)
    x = np.zeros(8, np.float32)
    tiled = ascendc.host_tiling(path, [x], [x], attributes=[key], product="910b")
    assert tiled.template_arguments == arguments
    assert tiled.key == (key if 0 <= key < 99 else 0)


FORMATS = """
#include "register/op_def_registry.h"
namespace optiling {
static ge::graphStatus Tile(gert::TilingContext* context) {
  auto* seen = static_cast<int64_t*>(context->GetRawTilingData()->GetData());
  for (int i = 0; i < 3; i++) seen[i] = context->GetInputDesc(i)->GetStorageFormat();
  seen[3] = context->GetOutputDesc(0)->GetFormat().GetStorageFormat();
  context->GetRawTilingData()->SetDataSize(32);
  return ge::GRAPH_SUCCESS;
}
}
namespace ops {
class Laid : public OpDef {
 public:
  explicit Laid(const char* name) : OpDef(name) {
    this->Input("x").DataType({ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT16})
        .Format({ge::FORMAT_NC1HWC0, ge::FORMAT_NCHW, ge::FORMAT_NHWC});
    this->Input("index").DataType({ge::DT_INT32, ge::DT_INT64, ge::DT_INT32})
        .Format({ge::FORMAT_ND, ge::FORMAT_NCHW, ge::FORMAT_ND});
    this->Input("more").DataTypeList({ge::DT_INT8}).FormatList({ge::FORMAT_FRACTAL_NZ});
    this->Output("y").DataType({ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT16})
        .Format({ge::FORMAT_NC1HWC0, ge::FORMAT_ND, ge::FORMAT_NHWC});
    this->AICore().SetTiling(optiling::Tile).AddConfig("ascend910b");
    OpAICoreConfig config;
    config.Input("x").DataType({ge::DT_FLOAT}).Format({ge::FORMAT_NHWC});
    this->AICore().AddConfig("ascend310p", config);
  }
};
OP_ADD(Laid);
}
"""
ND, NCHW, NHWC, NC1HWC0, NZ = 2, 0, 1, 3, 29


@pytest.mark.parametrize(
    ("product", "types", "formats"),
    [
        ("910b", "f4 i4 f4", [NC1HWC0, ND, NZ, NC1HWC0]),
        ("910b", "f2 i8 f2", [NCHW, NCHW, NZ, ND]),
        ("910b", "f2 i4 f2", [NHWC, ND, NZ, NHWC]),
        ("310p", "f4 i4 f4", [NHWC, ND, NZ, NC1HWC0]),
    ],
)
def test_formats_are_those_that_the_definition_has_for_the_types(tmp_path, product, types, formats):
    (tmp_path / "laid.cpp").write_text(FORMATS)
    x, index, y = (np.zeros((2, 3, 4, 5, 16), kind) for kind in types.split())
    tiled = ascendc.host_tiling(tmp_path / "laid.cpp", [x, index, np.zeros(8, np.int8)], [y], product=product)
    assert np.frombuffer(tiled.data, np.int64).tolist() == formats

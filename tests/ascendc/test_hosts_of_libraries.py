"""Host code as libraries of operators have it: shared headers, messages, other sources, types as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler

require_compiler()

X, Y = np.zeros((3, 5), np.float32), np.zeros(15, np.float32)
FRAME = """
#include "register/op_def_registry.h"
{head}
namespace optiling {{
{before}
static ge::graphStatus Tile(gert::TilingContext* context) {{
  auto* out = context->GetTilingData<int64_t[8]>();
  auto& seen = *out;
  for (auto& one : seen) one = 0;
  {body}
  context->SetBlockDim(1);
  return ge::GRAPH_SUCCESS;
}}
IMPL_OP_OPTILING(Known).Tiling(Tile);
}}
"""


def tiled(folder, body, head="", before="", *, x=X, product="Ascend910B2"):
    host = folder / "index" / "known" / "op_host"
    host.mkdir(parents=True, exist_ok=True)
    (host / "known_tiling.cpp").write_text(FRAME.format(head=head, before=before, body=body))
    decided = ascendc.host_tiling(host / "known_tiling.cpp", [x], [Y], product=product)
    return np.frombuffer(decided.data, np.int64).tolist()


HEADERS = (
    "platform/platform_ascendc.h",
    "platform/soc_spec.h",
    "platform/platform_info.h",
    "platform/platform_info_def.h",
    "platform/platform_infos_def.h",
    "util/math_util.h",
    "util/platform_util.h",
    "util/shape_util.h",
    "op_host/util/platform_util.h",
    "op_common/op_host/util/shape_util.h",
    "op_host/tiling_base_util.h",
    "op_host/tiling_base_class.h",
    "op_common/op_host/tiling_base_util.h",
    "log/log.h",
    "log/error_code.h",
    "base/alog_pub.h",
    "base/err_msg.h",
    "err_msg.h",
    "toolchain/slog.h",
    "graph/operator.h",
    "graph/operator_reg.h",
)


def test_headers_that_libraries_share_are_there(tmp_path):
    assert tiled(tmp_path, "seen[0] = 1;", "".join(f'#include "{name}"\n' for name in HEADERS))[0] == 1


def test_what_graphs_see_of_an_operator_may_stand_beside_its_tiling(tmp_path):
    before = """
REG_OP(Known)
    .INPUT(x, TensorType({DT_FLOAT, DT_BF16}))
    .OUTPUT(y, TensorType({DT_FLOAT}))
    .ATTR(axis, Int, -1)
    .OP_END_FACTORY_REG(Known)
"""
    assert tiled(tmp_path, "seen[0] = 3;", '#include "graph/operator_reg.h"', before)[0] == 3


@pytest.mark.parametrize("name", ["op_host/tiling_base_util.h", "log/log.h", "platform/platform_ascendc.h"])
def test_each_header_stands_alone(tmp_path, name):
    assert tiled(tmp_path, "seen[0] = 2;", f'#include "{name}"')[0] == 2


def test_what_a_tiling_asks_of_the_platform_is_the_chip_of_the_call(tmp_path):
    body = """
  auto* known = context->GetPlatformInfo();
  std::string name, family, fixpipe, bias;
  seen[0] = known->GetPlatformRes("version", "SoC_version", name);
  known->GetPlatformRes("version", "Short_SoC_version", family);
  seen[1] = std::accumulate(name.begin(), name.end(), 0) * 10000 + std::accumulate(family.begin(), family.end(), 0);
  seen[2] = known->GetPlatformRes("AICoreintrinsicDtypeMap", "Intrinsic_fix_pipe_l0c2out", fixpipe);
  known->GetPlatformRes("AICoreintrinsicDtypeMap", "Intrinsic_data_move_l12bt", bias);
  seen[3] = bias.find("f16") != std::string::npos;
  uint64_t size;
  known->GetLocalMemSize(fe::LocalMemType::UB, size);
  seen[4] = size;
  seen[5] = int64_t(platform_ascendc::PlatformAscendC(known).GetCurNpuArch());
"""
    head = '#include "platform/platform_info.h"\n#include "platform/soc_spec.h"'
    for name, has_fixpipe, architecture in (
        ("Ascend910B2", 1, 2201),
        ("Ascend310P3", 0, 2002),
        ("Ascend910A", 0, 1001),
    ):
        chip = get_product(name)
        letters = sum(map(ord, chip.name)) * 10000 + sum(map(ord, chip.short_soc_version))
        wanted = [1, letters, has_fixpipe, has_fixpipe, chip.core.ub_bytes, architecture]
        assert tiled(tmp_path, body, head, product=name)[:6] == wanted


def test_an_entry_of_the_platform_that_is_not_known_is_refused_by_name(tmp_path):
    body = 'std::string all; seen[0] = context->GetPlatformInfo()->GetPlatformRes("AICoreSpec", "vector_freq", all);'
    with pytest.raises(ascendc.TilingError, match="vector_freq of AICoreSpec is not known of Ascend910B2"):
        tiled(tmp_path, body)


def test_shapes_of_numbers_and_texts_of_messages(tmp_path):
    body = """
  const gert::Shape& shape = Ops::Base::EnsureNotScalar(context->GetInputShape(0)->GetStorageShape());
  seen[0] = shape.GetDimNum();
  seen[1] = shape.GetShapeSize();
  seen[2] = Ops::Base::ToString(shape) == "TEXT";
  seen[3] = Ops::Base::IsRegbaseSocVersion(context);
"""
    head = '#include "op_host/tiling_base_util.h"'
    assert tiled(tmp_path, body.replace("TEXT", "[3, 5]"), head)[:4] == [2, 15, 1, 0]
    assert tiled(tmp_path, body.replace("TEXT", "[1]"), head, x=np.float32(1))[:4] == [1, 1, 1, 0]


SAID = (
    ('OP_LOGE_FOR_INVALID_SHAPEDIM(context, "x", std::string("2D").c_str(), "3D")', "invalid shapedim | x | 2D | 3D"),
    ('OP_LOGE_FOR_INVALID_VALUE_WITH_REASON(context->GetNodeName(), "k", 7, "too large")', "value | k | 7 | too large"),
    ('OP_LOGE_WITH_INVALID_ATTR(context->GetNodeName(), "mode", "9", "0 or 1")', "invalid attr | mode | 9 | 0 or 1"),
    ('REPORT_INNER_ERR_MSG("EZ9999", "%d rows", 3)', "3 rows"),
    ('if (CheckLogLevel(OP, DLOG_ERROR)) DlogRecord(OP, DLOG_ERROR, "%s %d", "row", 4)', "row 4"),
    ('OpLogSub(OP, DLOG_ERROR, context->GetNodeName(), "row %d", 6)', "row 6"),
    ('AlogRecord(OP, DLOG_TYPE_DEBUG, DLOG_ERROR, "row %d", 5)', "row 5"),
)


def test_messages_of_the_libraries_are_those_of_the_error(tmp_path):
    cases = "".join(f"case {at}: {said}; break; " for at, (said, _) in enumerate(SAID))
    body = f"switch (context->GetInputShape(0)->GetStorageShape().GetDim(0)) {{ {cases} }} return ge::GRAPH_FAILED;"
    for at, (_, wanted) in enumerate(SAID):
        with pytest.raises(ascendc.TilingError) as refused:
            tiled(tmp_path, body, '#include "log/log.h"', x=np.zeros(at, np.float32))
        assert wanted in str(refused.value)


def test_what_is_no_error_is_not_said(tmp_path):
    body = (
        'seen[0] = CheckLogLevel(OP, DLOG_DEBUG) + AlogCheckDebugLevel(OP, DLOG_WARN); DlogRecord(OP, DLOG_INFO, "x");'
    )
    assert tiled(tmp_path, body + " seen[1] = 1;", '#include "log/log.h"')[:2] == [0, 1]


STEPS = """
class Steps : public Ops::Base::TilingBaseClass {
 public:
  Steps(gert::TilingContext* context, int64_t* seen, int stop) : TilingBaseClass(context), seen_(seen), stop_(stop) {}

 protected:
  int64_t* seen_;
  int at_ = 0, stop_;
  ge::graphStatus step(int mark) {
    seen_[0] = seen_[0] * 10 + mark;
    return ++at_ == stop_ ? ge::GRAPH_FAILED : ge::GRAPH_SUCCESS;
  }
  ge::graphStatus GetShapeAttrsInfo() override { return step(1); }
  ge::graphStatus GetPlatformInfo() override { return step(2); }
  bool IsCapable() override { return step(3) == ge::GRAPH_SUCCESS; }
  ge::graphStatus DoOpTiling() override { return step(4); }
  ge::graphStatus DoLibApiTiling() override { return step(5); }
  ge::graphStatus GetWorkspaceSize() override { return step(6); }
  ge::graphStatus PostTiling() override { return step(7); }
  uint64_t GetTilingKey() const override { return 77; }
};
"""


def test_the_class_of_a_tiling_takes_its_steps_in_order(tmp_path):
    body = """
  int stop = context->GetInputShape(0)->GetStorageShape().GetDim(0);
  seen[1] = int32_t(Steps(context, seen, stop).DoTiling());
  seen[2] = context->GetTilingKey();
"""
    wanted = {0: [1234567, 0, 77], 2: [12, -1, 0], 3: [123, 50331649, 0], 6: [123456, -1, 0]}
    for stop, seen in wanted.items():
        x = np.zeros(stop, np.float32)
        assert tiled(tmp_path, body, '#include "op_host/tiling_base_class.h"', STEPS, x=x)[:3] == seen


def test_headers_are_named_from_the_root_of_their_project(tmp_path):
    other = tmp_path / "index" / "other" / "op_host"
    other.mkdir(parents=True)
    (other / "five.h").write_text(
        '#pragma once\n#include "index/other/op_host/four.h"\nconstexpr int FIVE = FOUR + 1;\n'
    )
    (other / "four.h").write_text("#pragma once\nconstexpr int FOUR = 4;\n")
    assert tiled(tmp_path, "seen[0] = FIVE;", '#include "index/other/op_host/five.h"')[0] == 5


@pytest.mark.parametrize("suffix", ["cpp", "cc"])
def test_functions_of_the_projects_other_sources_are_linked(tmp_path, suffix):
    for folder in ("common/inc/op_host", "common/src/op_host"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "common/inc/op_host/halves.h").write_text(
        "#pragma once\n#include <cstdint>\nnamespace own { int64_t Half(int64_t value); int64_t Unused(int64_t); }\n"
    )
    (tmp_path / f"common/src/op_host/halves.{suffix}").write_text(
        '#include "op_host/halves.h"\nnamespace own { int64_t Half(int64_t value) { return value / 2; } }\n'
    )
    assert tiled(tmp_path, "seen[0] = own::Half(14);", '#include "op_host/halves.h"')[0] == 7


def test_a_function_that_no_source_has_is_named_when_it_is_called(tmp_path):
    before = "int64_t OfOtherChips(gert::TilingContext* context);"
    body = "if (context->GetInputShape(0)->GetStorageShape().GetDimNum() == 1) seen[0] = OfOtherChips(context);"
    assert tiled(tmp_path, body, before=before)[0] == 0
    with pytest.raises(ascendc.TilingError, match="OfOtherChips must be in a source that is given"):
        tiled(tmp_path, body, before=before, x=np.zeros(3, np.float32))


def test_a_class_whose_functions_no_source_has_is_named_when_it_is_used(tmp_path):
    before = """
class OfOtherChips {
 public:
  virtual ~OfOtherChips() = default;
  virtual int64_t Tile();
};
"""
    body = """
  if (context->GetInputShape(0)->GetStorageShape().GetDimNum() == 1) {
    OfOtherChips own;
    OfOtherChips* volatile other = &own;
    seen[0] = other->Tile();
  }
"""
    assert tiled(tmp_path, body, before=before)[0] == 0
    with pytest.raises(ascendc.TilingError, match="OfOtherChips must be in a source that is given"):
        tiled(tmp_path, body, before=before, x=np.zeros(3, np.float32))


def test_a_product_is_cut_for_a_chip_that_the_host_describes(tmp_path):
    body = """
  matmul_tiling::PlatformInfo chip;
  chip.socVersion = platform_ascendc::SocVersion::ASCEND910B;
  chip.l1Size = 524288, chip.l0CSize = 131072, chip.l0ASize = 65536, chip.l0BSize = 65536, chip.ubSize = 196608;
  matmul_tiling::MatmulApiTiling told(chip);
  matmul_tiling::MatmulApiTiling asked(platform_ascendc::PlatformAscendC(context->GetPlatformInfo()));
  int at = 0;
  for (auto* product : {&told, &asked}) {
    using namespace matmul_tiling;
    product->SetAType(TPosition::GM, CubeFormat::ND, matmul_tiling::DataType::DT_FLOAT16);
    product->SetBType(TPosition::GM, CubeFormat::ND, matmul_tiling::DataType::DT_FLOAT16);
    product->SetCType(TPosition::GM, CubeFormat::ND, matmul_tiling::DataType::DT_FLOAT16);
    product->SetShape(96, 80, 64);
    product->SetOrgShape(96, 80, 64);
    optiling::TCubeTiling tiling;
    seen[at++] = product->GetTiling(tiling) >= 0;
    seen[at++] = tiling.baseM;
    seen[at++] = tiling.baseN;
  }
"""
    seen = tiled(tmp_path, body, '#include "tiling/tiling_api.h"')
    assert seen[:3] == seen[3:6]
    assert seen[0] == 1
    assert min(seen[1:3]) > 0


def test_arrays_of_a_call_lie_without_gaps_and_workspaces_are_counted(tmp_path):
    body = 'string name = "x"; '
    body += "seen[0] = name.size() && context->GetInputStride(0) == nullptr; seen[1] = context->GetWorkspaceNum();"
    body += "context->GetWorkspaceSizes(2); seen[2] = context->GetWorkspaceNum();"
    assert tiled(tmp_path, body)[:3] == [1, 0, 2]


def test_arrays_of_a_tiling_are_filled_through_their_pointer(tmp_path):
    before = """
BEGIN_TILING_DATA_DEF(Lists)
  TILING_DATA_FIELD_DEF_ARR(int64_t, 4, starts);
END_TILING_DATA_DEF;
"""
    body = "Lists lists{}; int64_t* at = lists.get_starts(); at[2] = 9; seen[0] = lists.starts[2];"
    assert tiled(tmp_path, body, before=before)[0] == 9


TYPED = """
#include "kernel_operator.h"
template <typename T, int FACTOR, class U>
__global__ __aicore__ void typed(GM_ADDR x, GM_ADDR y) {
  AscendC::GlobalTensor<T> from;
  AscendC::GlobalTensor<U> to;
  from.SetGlobalBuffer((__gm__ T*)x);
  to.SetGlobalBuffer((__gm__ U*)y);
  for (int at = 0; at < 8; at++) to.SetValue(at, static_cast<U>(static_cast<float>(from.GetValue(at)) * FACTOR));
}
"""


@pytest.mark.parametrize("given", ["typed<1, 3, 3>", "typed<half, 3, int32_t>", "typed< half , 3 , 3 >"])
def test_types_are_named_by_the_numbers_that_host_code_gives(tmp_path, given):
    source = tmp_path / "typed.cpp"
    source.write_text(TYPED)
    x, y = np.arange(8, dtype=np.float16), np.zeros(8, np.int32)
    ascendc.compile(source, kernel=given)(x, y, blocks=1)
    assert (y == x.astype(np.int32) * 3).all()


def test_a_number_of_no_type_is_refused(tmp_path):
    source = tmp_path / "typed.cpp"
    source.write_text(TYPED)
    with pytest.raises(Exception, match="template argument 2 of typed must be a type or its DT_ number, not 99"):
        ascendc.compile(source, kernel="typed<1, 3, 99>")


SHARED = """
#include "kernel_operator.h"
#include "only_here.h"
extern "C" __global__ __aicore__ void shared(GM_ADDR y) {
  AscendC::GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  out.SetValue(0, ONLY_HERE);
}
"""


def test_a_header_of_another_operator_is_found_by_its_name_alone_where_it_is_the_only_one(tmp_path):
    folders = [tmp_path / name / "op_kernel" for name in ("shared", "other", "third")]
    for folder in folders:
        folder.mkdir(parents=True)
    (folders[0] / "shared.cpp").write_text(SHARED)
    (folders[1] / "only_here.h").write_text('#include "deeper_here.h"\n#define ONLY_HERE (DEEPER + 1)\n')
    (folders[2] / "deeper_here.h").write_text("#define DEEPER 20\n")
    y = np.zeros(8, np.int32)
    ascendc.compile(folders[0] / "shared.cpp")(y, blocks=1)
    assert y[0] == 21
    (folders[2] / "only_here.h").write_text("#define ONLY_HERE 5\n")
    with pytest.raises(CompilationError, match=r"only_here\.h"):
        ascendc.compile(folders[0] / "shared.cpp")


def test_arrays_are_appended_to_the_tiling(tmp_path):
    body = """
    uint32_t table[5] = {3, 1, 4, 1, 5};
    auto raw = context->GetRawTilingData();
    raw->SetDataSize(24);
    seen[0] = raw->Append(table, 5) == ge::GRAPH_SUCCESS;
    seen[1] = raw->Append(int64_t(9)) == ge::GRAPH_SUCCESS && raw->GetDataSize() == 52;
    size_t most = (raw->GetCapacity() - raw->GetDataSize()) / 4;
    seen[2] = raw->Append(table, most + 1) == ge::GRAPH_FAILED && raw->GetDataSize() == 52;
    raw->SetDataSize(64);
    """
    seen = tiled(tmp_path, body)
    assert seen[:3] == [1, 1, 1]
    words = np.array(seen, np.int64).view(np.uint32)
    assert words[6:11].tolist() == [3, 1, 4, 1, 5]
    assert words[11:13].tolist() == [9, 0]


def test_the_library_tells_bytes_of_registers_and_lines(tmp_path):
    head = '#include "util/platform_util.h"\n#include "op_common/op_host/util/platform_util.h"\n'
    body = """
    seen[0] = Ops::Base::GetVRegSize(context), seen[1] = Ops::Base::GetCacheLineSize(context);
    seen[2] = Ops::Base::GetUbBlockSize(context);
    """
    assert tiled(tmp_path, body, head)[:3] == [256, 256, 32]


def test_shapes_of_graphs_that_are_not_known(tmp_path):
    body = """
    gert::Shape known{3, 5}, rank{-2}, shape{-1, -1}, half{-1, 4}, none;
    using namespace Ops::Base;
    auto bits = [](const gert::Shape& one) { return IsUnknownRank(one) + 2 * IsUnknownShape(one); };
    seen[0] = bits(known), seen[1] = bits(rank), seen[2] = bits(shape), seen[3] = bits(half), seen[4] = bits(none);
    SetUnknownRank(known);
    SetUnknownShape(3, half);
    seen[5] = bits(known), seen[6] = bits(half), seen[7] = half.GetDimNum() * 10 + known.GetDimNum();
    """
    assert tiled(tmp_path, body, '#include "util/shape_util.h"\n') == [0, 1, 2, 0, 0, 1, 2, 31]


def test_behind_the_tensors_that_come_in_stand_those_that_go_out(tmp_path):
    body = """
    for (size_t at = 0; at < 3; ++at) {
      const gert::Tensor* tensor = context->GetInputTensor(at);
      const gert::StorageShape* shape = context->GetInputShape(at);
      seen[2 * at] = tensor ? tensor->GetStorageShape().GetDim(0) : -1;
      seen[2 * at + 1] = shape ? shape->GetStorageShape().GetDim(0) : -1;
    }
    """
    assert tiled(tmp_path, body)[:6] == [3, 3, 15, -1, -1, -1]

"""The Matmul class by its configuration: what of C each field changes, constant tilings, what is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.accumulation import SERIAL
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
constexpr MatmulConfig edited() {
  MatmulConfig c = BASE;
  EDIT;
  return c;
}
constexpr MatmulConfig EDITED = edited();
template <CubeFormat F, class T> using In = MatmulType<TPosition::GM, F, T, true>;
using Left = In<CubeFormat::ND, half>;
using Out = MatmulType<TPosition::GM, CubeFormat::FORMAT, RESULT>;
using Bias = MatmulType<TPosition::GM, CubeFormat::ND, float>;
constexpr auto CONFIG = FINAL;
CHECKS
// Whole (0), or block by block, each behind the one before (1).
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, int32_t how, int32_t m, int32_t n,
                                   int32_t k, GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  Matmul<Left, Left, Out, Bias, CONFIG POLICY> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, GIVEN);
  GlobalTensor<half> A, B; GlobalTensor<RESULT> C; GlobalTensor<float> row;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ RESULT*)c);
  row.SetGlobalBuffer((__gm__ float*)bias);
  int32_t high = (m + t.singleCoreM - 1) / t.singleCoreM, own = GetBlockIdx();
  int32_t m0 = own % high * t.singleCoreM, n0 = own / high * t.singleCoreN;
  if (n0 >= n) return;
  mm.SetOrgShape(m, n, k, k);
  mm.SetTail(m - m0 < t.singleCoreM ? m - m0 : t.singleCoreM, n - n0 < t.singleCoreN ? n - n0 : t.singleCoreN, k);
  mm.SetTensorA(A[m0 * k]);
  mm.SetTensorB(B[n0]);
  if (t.isBias) mm.SetBias(row[n0]);
  int32_t pitch = Out::format == CubeFormat::ND_ALIGN ? (n * sizeof(RESULT) + 31) / 32 * 32 / sizeof(RESULT) : n;
  if (how == 0) mm.IterateAll(C[m0 * pitch + n0]);
  else for (int64_t i = 0; mm.Iterate(); i++) mm.GetTensorC(C[i * t.baseM * t.baseN], 0, true);
  mm.End();
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function like `build` that compiles each text once."""
    kernels = {}

    def once(**options):
        key = tuple(sorted(options.items()))
        if key not in kernels:
            kernels[key] = build(tmp_path_factory.mktemp("made"), **options)
        return kernels[key]

    return once


def build(path, *, base="CFG_NORM", edit="", final="EDITED", policy="", given="&t", checks="", kind=None, out="float",
          layout="ND", operands="ND"):  # fmt: skip
    """Return the kernel of a configuration."""
    text = SOURCE.replace("using Left = In<CubeFormat::ND", f"using Left = In<CubeFormat::{operands}")
    for name, value in {"BASE": base, "EDIT;": edit + ";", "FINAL": final, " POLICY": policy, "GIVEN": given,
                        "CHECKS": checks, "RESULT": out, "FORMAT": layout}.items():  # fmt: skip
        text = text.replace(name, value)
    source = path / "product.cpp"
    source.write_text(text)
    return ascendc.compile(source, "product", kind=kind, defines=("ASCENDC_CUBE_ONLY",) if kind == "cube" else ())


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)


def run(kernel, m, n, k, tiling, c, *, how=0, blocks=1, operands=None, outputs=(3,)):
    """Run, and return A B + bias, which is what there is to know of whole numbers."""
    a, b = operands or (numbers(1, m, k), numbers(2, k, n))
    bias = numbers(3, n).astype(np.float32)
    done = kernel(a, b, bias, c, how, m, n, k, tiling=tiling, blocks=blocks, outputs=list(outputs), accumulation=SERIAL)
    assert done.findings == ()
    return a.astype(np.float32) @ b.astype(np.float32) + bias * tiling.isBias


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 45, 70), (16, 16, 16), (100, 129, 33)])
@pytest.mark.parametrize(("out", "dtype"), [("float", np.float32), ("half", np.float16)])
def test_rows_of_nd_align_are_whole_blocks(made, kind, m, n, k, out, dtype):
    kernel = made(kind=kind, out=out, layout="ND_ALIGN")
    step = 32 // np.dtype(dtype).itemsize
    c = np.full((m, -(-n // step) * step), 77, dtype)
    tiling = ascendc.matmul_tiling(m, n, k, bias=True, base=(32, 32, 32), single=(64, 96, k))
    exact = run(kernel, m, n, k, tiling, c, blocks=4 if kind else 2, outputs=())
    assert np.array_equal(c[:, :n], exact.astype(dtype))
    assert (c[:, n:] == 77).all()


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 128), (50, 90, 128), (70, 200, 128)])
@pytest.mark.parametrize(("whole", "pads"), [(True, False), (True, True), (False, False)])
def test_constant_tilings_stand_in_for_those_at_run_time(made, kind, m, n, k, whole, pads):
    single = "64, 96, 128" if whole else "0, 0, 0"
    kernel = made(
        base=f"GetMMConfig<MatmulConfigMode::CONFIG_MDL>(MatmulShapeParams{{{single}, 32, 48, 64}})",
        edit=f"c.enableStaticPadZeros = {str(pads).lower()}",
        final="GetMatmulApiTiling<Left, Left, Out, Bias>(EDITED)", given="(TCubeTiling*)nullptr" if whole else "&t",
        checks=f"static_assert(CONFIG.baseN == 48 && CONFIG.singleCoreM == {64 if whole else -1});", kind=kind,
    )  # fmt: skip
    c = np.zeros((m, n), np.float32)
    tiling = ascendc.matmul_tiling(
        m, n, k, bias=True, single=(64, 96, 128), base=(-1, -1, -1) if whole else (16, 16, 16)
    )
    exact = run(kernel, m, n, k, tiling, c, blocks=6 if kind else 3)
    assert np.array_equal(c, exact)


def test_constants_may_be_changed_before_they_are_used(tmp_path):
    kernel = build(
        tmp_path,
        base="GetMMConfig<MatmulConfigMode::CONFIG_NORM>(MatmulShapeParams{48, 80, 96, 16, 16, 32})",
        final="[] { auto t = GetMatmulApiTiling<Left, Left, Out, Bias>(EDITED, 65536); t.stepKa = t.stepKb = 2; "
              "t.depthA1 = 4; t.depthB1 = 2; return t; }()",
        given="(TCubeTiling*)nullptr", checks="static_assert(CONFIG.depthA1 == 4 && CONFIG.dbL0A == 2);", kind="cube",
    )  # fmt: skip
    c = np.zeros((48, 80), np.float32)
    exact = run(kernel, 48, 80, 96, ascendc.matmul_tiling(48, 80, 96, single=(48, 80, 96)), c)
    assert np.array_equal(c, exact)


def test_a_configuration_without_sizes_needs_a_tiling(tmp_path):
    kernel = build(tmp_path, given="(TCubeTiling*)nullptr")
    tiling = ascendc.matmul_tiling(32, 32, 32)
    with pytest.raises(ascendc.KernelError, match="Matmul must be given its tiling first"):
        run(kernel, 32, 32, 32, tiling, np.zeros((32, 32), np.float32))


FIELDS = """
constexpr MatmulConfig special = GetSpecialMDLConfig(true, false, 1, false, true, true);
static_assert(special.doSpecialMDL && !special.doMultiDataLoad && special.intrinsicsCheck && special.isPerTensor);
constexpr MatmulConfig mdl =
    GetMDLConfig(false, false, 2, false, false, false, true, false, true, true, false, true, true);
static_assert(mdl.doMTE2Preload == 2 && mdl.enUnitFlag && !mdl.enableReuse && mdl.enableL1CacheUB);
static_assert(mdl.enableKdimReorderLoad && mdl.enableL1BankConflictOptimise && !mdl.enableMixDualMaster);
constexpr MatmulConfig share = GetIBShareNormConfig(false, false, false, BatchMode::BATCH_LARGE_THAN_L1, true, false);
static_assert(share.doIBShareNorm && share.enableDoubleCache && !share.enUnitFlag && !share.doNorm);
static_assert(share.batchMode == BatchMode::BATCH_LARGE_THAN_L1);
constexpr MatmulConfig basic = GetBasicConfig(128, 256, 64, true, false, BatchMode::SINGLE_LARGE_THAN_L1);
static_assert(basic.doBasicBlock && basic.basicN == 256 && basic.batchMode == BatchMode::SINGLE_LARGE_THAN_L1);
constexpr MatmulConfig mixed = GetMMConfig<MatmulConfigMode::CONFIG_IBSHARE>(
    MatmulFuncParams{true, false, true, false, 0, IterateOrder::ORDER_N, ScheduleType::OUTER_PRODUCT},
    MatmulBatchParams{true, BatchMode::BATCH_LESS_THAN_L1, false}, MatmulQuantParams{true, false},
    MatmulBiasParams{false});
static_assert(mixed.intrinsicsCheck && mixed.enableDoubleCache && mixed.scheduleType == ScheduleType::OUTER_PRODUCT);
static_assert(mixed.isNBatch && !mixed.isBiasBatch && mixed.isPerTensor && !mixed.enableSetBias && mixed.doIBShareNorm);
constexpr MatmulConfig listed{false, false, true, 0, 0, 0, false, false, false, false, 2, 0, 0, 0, 0, 0, 0, 0, true};
static_assert(listed.doMultiDataLoad && listed.doMTE2Preload == 2 && listed.enUnitFlag && !listed.isPerTensor);
static_assert(std::is_same_v<GetMmDstType<int8_t>::Type, int32_t> && std::is_same_v<GetMmDstType<half>::Type, float>);
"""
SPEED = ("intrinsicsCheck", "enVecND2NZ", "doMTE2Preload", "enUnitFlag", "enableUBReuse", "enableL1CacheUB",
         "enableDoubleCache", "isA2B2Shared", "enableL1BankConflictOptimise")  # fmt: skip


@pytest.mark.parametrize("base", ["CFG_NORM", "CFG_MDL", "GetSpecialMDLConfig()", "CFG_IBSHARE_NORM"])
def test_what_changes_speed_alone_is_taken(tmp_path, base):
    edit = "".join(f"c.{field} = true; " for field in SPEED) + "c.enableReuse = c.enableInit = c.enableEnd = false"
    kernel = build(tmp_path, base=base, edit=edit, checks=FIELDS, kind="cube")
    c = np.zeros((70, 52), np.float32)
    tiling = ascendc.matmul_tiling(70, 52, 90, bias=True, base=(32, 32, 32))
    assert np.array_equal(c, run(kernel, 70, 52, 90, tiling, c))


@pytest.mark.parametrize("edit", [
    "intraBlockPartSum = true", "isCO1Shared = true", "enableRelu = true",
    "decompMode = DecompressionMode::DECOMP_1bitTo4bit", "bmmOutMode = BatchOutMode::MULTI_BATCH",
    "isEnableChannelSplit = true", "isPartialOutput = true",
])  # fmt: skip
def test_what_is_not_modelled_does_not_compile(tmp_path, edit):
    with pytest.raises(CompilationError, match=f"MatmulConfig {edit.split()[0]}"):
        build(tmp_path, edit=f"c.{edit}")


@pytest.mark.parametrize(("edit", "operands", "message"), [
    ("", "NZ", "enableStaticPadZeros is modelled with A and B in TPosition::GM, in CubeFormat ND"),
    ("; c.doNorm = false; c.doBasicBlock = true", "ND", "enableStaticPadZeros must come with the Norm, MDL or IBShare"),
])  # fmt: skip
def test_padding_with_zeros_is_of_what_the_page_names(tmp_path, edit, operands, message):
    with pytest.raises(CompilationError, match=message):
        build(tmp_path, edit=f"c.enableStaticPadZeros = true{edit}", operands=operands)


def test_callbacks_of_another_form_do_not_compile(tmp_path):
    with pytest.raises(CompilationError, match="MatmulCallBackFunc"):
        build(tmp_path, policy=", MatmulCallBackFunc<nullptr, &::abort>")


@pytest.mark.parametrize("policy", ["SplitMMatmulPolicy", "SplitNMatmulPolicy", "MatmulWithScalePolicy"])
def test_policies_that_are_not_modelled_do_not_compile(tmp_path, policy):
    with pytest.raises(CompilationError, match="Matmul is modelled with MatmulPolicy, NBuffer33MatmulPolicy"):
        build(tmp_path, policy=f", MatmulCallBackFunc<nullptr, nullptr, nullptr>, Impl::Detail::{policy}")


def test_the_shape_is_set_on_the_cube_core_whatever_a_configuration_says(made):
    edit = "c.enableSetOrgShape = false"
    tiling, c = ascendc.matmul_tiling(50, 90, 40, bias=True, base=(32, 32, 32)), np.zeros((50, 90), np.float32)
    assert np.array_equal(c, run(made(edit=edit, kind="cube"), 50, 90, 40, tiling, c))
    with pytest.raises(ascendc.KernelError, match="SetOrgShape must not be called with MatmulConfig enableSetOrgShape"):
        run(made(edit=edit), 50, 90, 40, tiling, c)


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("edit", "how", "said"), [
    ("c.enableSetBias = false", 0, "SetBias must not be called with MatmulConfig enableSetBias false"),
    ("c.enableSetTail = false", 0, "SetTail must not be called with MatmulConfig enableSetTail false"),
    ("c.enableGetTensorC = false", 1, "GetTensorC must not be called with MatmulConfig enableGetTensorC false"),
    ("c.iterateMode = ITERATE_MODE_ALL", 1, "Iterate must not be called with MatmulConfig iterateMode 2"),
    ("c.iterateMode = ITERATE_MODE_NORMAL", 0, "IterateAll must not be called with MatmulConfig iterateMode 1"),
    ("c = GetBasicConfig(32, 64, 32)", 0, "MatmulConfig basicN 64 must be TCubeTiling baseN 32"),
    ("c.isA2B2Shared = true", 2, "at most 32768 bytes with MatmulConfig isA2B2Shared"),
])  # fmt: skip
def test_calls_that_a_configuration_excludes_end_the_kernel(tmp_path, kind, edit, how, said):
    kernel = build(tmp_path, edit=edit, kind=kind)
    base = (256, 16, 128) if how == 2 else (32, 32, 32)
    tiling = ascendc.matmul_tiling(64, 64, 64, bias=True, base=(32, 32, 32))
    tiling.baseM, tiling.baseN, tiling.baseK = base
    with pytest.raises(ascendc.KernelError, match=said):
        run(kernel, 64, 64, 64, tiling, np.zeros((64, 64), np.float32), how=how)


def test_dual_masters_are_modelled_on_cube_cores_alone(tmp_path):
    tiling = ascendc.matmul_tiling(64, 48, 32, base=(32, 32, 32))
    c = np.zeros((64, 48), np.float32)
    kernel = build(tmp_path, edit="c.enableMixDualMaster = true", kind="cube")
    assert np.array_equal(c, run(kernel, 64, 48, 32, tiling, c))
    with pytest.raises(ascendc.KernelError, match="enableMixDualMaster is modelled in kernels of Cube cores alone"):
        run(build(tmp_path, edit="c.enableMixDualMaster = true"), 64, 48, 32, tiling, c)


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 128), (50, 40, 100)])
def test_partial_output_gives_each_step_of_k(made, kind, m, n, k):
    kernel = made(base="CFG_MDL", edit="c.isPartialOutput = true", kind=kind)
    tiling = ascendc.matmul_tiling(m, n, k, base=(32, 32, 32), n_first=False)
    high, wide, deep = -(-m // 32), -(-n // 32), -(-k // 32)
    c = np.zeros((wide, high, deep, 32, 32), np.float32)
    run(kernel, m, n, k, tiling, c, how=1, outputs=())
    a, b = np.zeros((high * 32, deep * 32)), np.zeros((deep * 32, wide * 32))
    a[:m, :k], b[:k, :n] = numbers(1, m, k), numbers(2, k, n)
    parts = np.einsum("hmdk,dkwn->whdmn", a.reshape(high, 32, deep, 32), b.reshape(deep, 32, wide, 32))
    for i, j in np.ndindex(wide, high):  # each block as wide as it is
        rows, columns = min(32, m - 32 * j), min(32, n - 32 * i)
        blocks = c[i, j].reshape(deep, -1)[:, : rows * columns].reshape(deep, rows, columns)
        assert np.array_equal(blocks, parts[i, j, :, :rows, :columns])


@pytest.mark.parametrize(("base", "ones"), [("CFG_MDL", [0, 1, 1]), ("CFG_NORM", [0, 0, 0])])
def test_cores_begin_with_other_steps_of_k_where_a_configuration_says_so(tmp_path, base, ones):
    kernel = build(tmp_path, base=base, edit="c.enableKdimReorderLoad = true", kind="cube")
    # 2^24 + 1 - 2^24 is 0 or 1 by the step of K that comes first
    a, b = np.zeros((48, 96), np.float16), np.zeros((96, 16), np.float16)
    a[:, [0, 32]], a[:, 64] = 4096, -4096
    b[[0, 64]], b[32] = 4096, 1 / 4096
    tiling = ascendc.matmul_tiling(48, 16, 96, base=(16, 16, 32), single=(16, 16, 96))
    tiling.stepKa = tiling.stepKb = tiling.depthA1 = tiling.depthB1 = 1
    c = np.zeros((48, 16), np.float32)
    run(kernel, 48, 16, 96, tiling, c, blocks=3, operands=(a, b))
    assert c[::16, 0].tolist() == ones


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 40), (48, 40, 64), (80, 16, 16)])
def test_split_channels_are_fractals_of_eight_columns(made, kind, m, n, k):
    kernel = made(edit="c.isEnableChannelSplit = true", layout="NZ", kind=kind)
    c = np.zeros((n // 8, m, 8), np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, bias=True, base=(32, 32, 32))
    exact = run(kernel, m, n, k, tiling, c)
    assert np.array_equal(c.transpose(1, 0, 2).reshape(m, n), exact)


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("m", "n"), [(96, 96), (100, 70), (40, 130)])
@pytest.mark.parametrize(("policy", "keep"), [("TrianUpper", np.triu), ("TrianLower", np.tril)])
def test_triangular_policies_leave_the_other_blocks(made, kind, m, n, policy, keep):
    name = f", MatmulCallBackFunc<nullptr, nullptr, nullptr>, AscendC::Impl::Detail::{policy}MatmulPolicy"
    kernel = made(policy=name, kind=kind)
    c = np.full((m, n), 777, np.float32)
    exact = run(kernel, m, n, 48, ascendc.matmul_tiling(m, n, 48, bias=True, base=(32, 32, 32)), c, outputs=())
    blocks = keep(np.ones((-(-m // 32), -(-n // 32)), bool)).repeat(32, 0).repeat(32, 1)[:m, :n]
    assert np.array_equal(c, np.where(blocks, exact, 777))
    with pytest.raises(ascendc.KernelError, match="Iterate must not be called with a triangular policy"):
        run(kernel, 32, 32, 32, ascendc.matmul_tiling(32, 32, 32), np.zeros((32, 32), np.float32), how=1)


@pytest.mark.parametrize(("order", "transposed"), [("ORDER_M", True), ("ORDER_N", False), ("UNDEF", True)])
def test_the_order_of_blocks_of_an_outer_product(tmp_path, order, transposed):
    edit = f"c.scheduleType = ScheduleType::OUTER_PRODUCT; c.iterateOrder = IterateOrder::{order}"
    kernel = build(tmp_path, edit=edit, kind="cube")
    c = np.zeros((6, 16, 16), np.float32)
    exact = run(kernel, 32, 48, 16, ascendc.matmul_tiling(32, 48, 16, base=(16, 16, 16), n_first=False), c, how=1)
    blocks = exact.reshape(2, 16, 3, 16).transpose((2, 0, 1, 3) if transposed else (0, 2, 1, 3))
    assert np.array_equal(c, blocks.reshape(6, 16, 16))


IN_L0C = """
#include "kernel_operator.h"
#define ASCENDC_CUBE_ONLY
#include "lib/matmul_intf.h"
using namespace AscendC;
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t rounds, GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  using In = MatmulType<TPosition::GM, CubeFormat::ND, half>;
  using Sum = typename GetMmDstType<half>::Type;
  Matmul<In, In, MatmulType<TPosition::CO1, CubeFormat::NZ, Sum>, In, CFG_NORM,
         MatmulCallBackFunc<nullptr, nullptr, nullptr>, Impl::Detail::MatmulPolicy> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<half> A, B; GlobalTensor<float> C;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  TQue<TPosition::CO1, Impl::QUEUE_DEPTH> sums;
  int32_t blocks = (t.N + t.baseN - 1) / t.baseN;
  pipe.InitBuffer(sums, 1, t.baseM * blocks * t.baseN * sizeof(Sum));
  LocalTensor<Sum> all = sums.AllocTensor<Sum>();
  for (int32_t round = 0; round < rounds; round++) {
    mm.SetTensorA(A); mm.SetTensorB(B);
    for (int32_t i = 0; i < blocks; i++) mm.Iterate(round > 0, all[i * t.baseM * t.baseN]);
  }
  sums.EnQue(all);
  all = sums.DeQue<Sum>();
  FixpipeParamsV220 how;
  how.mSize = t.M; how.nSize = t.N; how.srcStride = (t.M + 15) / 16 * 16; how.dstStride = t.N;
  Fixpipe<float, Sum, CFG_ROW_MAJOR>(C, all, how);
  sums.FreeTensor(all);
  mm.End();
}
"""


@pytest.mark.parametrize(("m", "n", "k"), [(32, 96, 64), (20, 80, 40), (16, 32, 16)])
@pytest.mark.parametrize("rounds", [1, 2])
def test_blocks_may_be_computed_into_a_place_of_l0c(source_file, m, n, k, rounds):
    path = source_file("product.cpp", IN_L0C)
    kernel = ascendc.compile(path, "product", kind="cube")
    tiling = ascendc.matmul_tiling(m, n, k, base=(32 if m > 16 else 16, 32, 32))
    tiling.baseM = -(-m // 16) * 16
    a, b, c = numbers(1, m, k), numbers(2, k, n), np.zeros((m, n), np.float32)
    done = kernel(a, b, c, rounds, tiling=tiling, outputs=[2], accumulation=SERIAL)
    assert np.array_equal(c, rounds * (a.astype(np.float32) @ b.astype(np.float32)))
    assert done.findings == ()
    path.write_text(IN_L0C.replace("mm.Iterate(round > 0, all[i * t.baseM * t.baseN])", "mm.Iterate()"))
    with pytest.raises(ascendc.KernelError, match="must be given where to compute in L0C"):
        ascendc.compile(path, "product", kind="cube")(a, b, c, 1, tiling=tiling, outputs=[2])

"""Products of many matrices by one call of the Matmul class, in each order of their axes, against NumPy."""

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
constexpr MatmulConfig CONFIG =
    GetMMConfig<MatmulConfigMode::CONFIG_NORM>(MatmulBatchParams{MANY, BatchMode::MODE, EACH});
__global__ __aicore__ void products(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, int32_t ta, int32_t tb, int32_t in_a,
                                    int32_t in_b, int32_t loops, int32_t gap, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  using In = MatmulType<TPosition::GM, CubeFormat::ND, half, true, LayoutMode::INPUTS>;
  Matmul<In, In, MatmulType<TPosition::GM, CubeFormat::ND, float, false, LayoutMode::OUTPUT>,
         MatmulType<TPosition::GM, CubeFormat::ND, float>, CONFIG> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<half> A, B; GlobalTensor<float> C, row;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  row.SetGlobalBuffer((__gm__ float*)bias);
  mm.SetTensorA(A, ta);
  mm.SetTensorB(B, tb);
  if (t.isBias) mm.SetBias(row);
  CALL
}
"""
ONE = "mm.IterateBatch(C, in_a, in_b, false, gap, gap);"
CUBE = "mm.SetBatchNum(in_a, in_b); mm.IterateBatch(C, false, 0, false, gap, gap);"
AGAIN = "mm.IterateBatch(C, in_a, in_b, false, 0, 0, 0, false, 1);"
LOOPS = "mm.SetWorkspace(C); mm.template IterateNBatch<false>(loops, in_a, in_b, false); mm.WaitIterateBatch();"
ORDERS = {"NORMAL": "bngsd", "BNGS1S2": "bngsd", "BSNGD": "bsngd", "SBNGD": "sbngd"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that compiles a kernel once for what it is asked for."""
    kernels = {}

    def once(inputs, output, *, call=ONE, many="false", each="true", mode="BATCH_LESS_THAN_L1", kind=None):
        key = (inputs, output, call, many, each, mode, kind)
        if key not in kernels:
            text = SOURCE
            for name, value in {"INPUTS": inputs, "OUTPUT": output, "CALL": call, "MANY": many, "MODE": mode,
                                "EACH": each}.items():  # fmt: skip
                text = text.replace(name, value)
            if kind == "cube":
                text = text.replace("  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);\n", "")
            path = tmp_path_factory.mktemp("batch") / "products.cpp"
            path.write_text(text)
            defines = ("ASCENDC_CUBE_ONLY",) if kind == "cube" else ()
            kernels[key] = ascendc.compile(path, "products", kind=kind, defines=defines)
        return kernels[key]

    return once


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)


def laid(array, layout):
    """Return an array of axes b, n, g, s, d in the order of a layout."""
    return np.ascontiguousarray(array.transpose(["bngsd".index(axis) for axis in ORDERS[layout]]))


def back(array, layout):
    return array.transpose([ORDERS[layout].index(axis) for axis in "bngsd"])


def axes(tiling, name, b, n, g, s, d):
    for axis, value in zip("BSNGD" if name != "C" else ("B", "S1", "N", "G", "S2"), (b, s, n, g, d), strict=True):
        setattr(tiling, f"{name}LayoutInfo{axis}", value)


def check(
    kernel, inputs, output, m, n, k, *, ta=0, tb=0, batch=(2, 1, 3), g=(None, None), bias="", loops=1, call=(0, 0)
):
    """Run products of all (b, n, g), and compare; `g` of A and B where one has fewer."""
    b, heads, groups = batch
    groups_a, groups_b = (groups if one is None else one for one in g)
    left, right = numbers(1, b, heads, groups_a, m, k), numbers(2, b, heads, groups_b, k, n)
    stored = left.swapaxes(3, 4) if ta else left, right.swapaxes(3, 4) if tb else right
    rows = numbers(3, b, heads, groups, 1, n).astype(np.float32) if bias == "each" else numbers(3, n).astype(np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, bias=bool(bias), base=(32, 32, 32))
    for name, one, count in (("A", stored[0], groups_a), ("B", stored[1], groups_b)):
        axes(tiling, name, b, heads, count, *one.shape[3:])
    axes(tiling, "C", b, heads, groups, m, n)
    tiling.BatchNum = b * heads * groups
    c = np.zeros(laid(np.zeros((b, heads, groups, m, n), np.float32), output).shape, np.float32)
    in_a, in_b = (b * heads * count // loops for count in (groups_a, groups_b))
    done = kernel(
        laid(stored[0], inputs), laid(stored[1], inputs), rows, c, ta, tb, *(call if any(call) else (in_a, in_b)),
        loops, 0, tiling=tiling, outputs=[3], accumulation=SERIAL,
    )  # fmt: skip
    full = (one.repeat(groups // one.shape[2], 2).astype(np.float32) for one in (left, right))
    exact = np.matmul(*full) + (rows if bias else 0)
    assert np.array_equal(back(c, output), exact)
    assert done.findings == ()


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("inputs", "output"), [
    ("NORMAL", "NORMAL"), ("BNGS1S2", "BNGS1S2"), ("BSNGD", "BSNGD"), ("SBNGD", "SBNGD"), ("BSNGD", "BNGS1S2"),
])  # fmt: skip
@pytest.mark.parametrize(
    ("m", "n", "k", "ta", "tb"), [(32, 48, 16, 0, 0), (17, 50, 40, 0, 1), (33, 20, 70, 1, 0), (1, 5, 9, 1, 1)]
)
def test_products_in_each_order_of_axes(made, kind, inputs, output, m, n, k, ta, tb):
    kernel = made(inputs, output, kind=kind, call=CUBE if kind else ONE)
    check(kernel, inputs, output, m, n, k, ta=ta, tb=tb, bias="each" if m == 17 else "")


@pytest.mark.parametrize("mode", ["BATCH_LARGE_THAN_L1", "SINGLE_LARGE_THAN_L1"])
def test_what_of_them_fits_l1_changes_nothing(made, mode):
    check(made("NORMAL", "NORMAL", mode=mode), "NORMAL", "NORMAL", 40, 24, 50, bias="each")


@pytest.mark.parametrize(("inputs", "output"), [("NORMAL", "NORMAL"), ("BSNGD", "BNGS1S2"), ("SBNGD", "SBNGD")])
def test_one_bias_may_be_that_of_all(made, inputs, output):
    check(made(inputs, output, each="false"), inputs, output, 20, 36, 24, bias="one")


@pytest.mark.parametrize("g", [(1, 4), (4, 1), (2, 4)])
@pytest.mark.parametrize(("inputs", "output"), [("BSNGD", "BSNGD"), ("BNGS1S2", "BNGS1S2"), ("NORMAL", "NORMAL")])
def test_the_fewer_matrices_of_an_operand_are_those_of_several_products(made, inputs, output, g):
    check(made(inputs, output), inputs, output, 16, 24, 32, batch=(2, 2, 4), g=g)


@pytest.mark.parametrize(("inputs", "output"), [("BSNGD", "BNGS1S2"), ("NORMAL", "NORMAL")])
def test_many_batches_go_to_the_workspace(made, inputs, output):
    kernel = made(inputs, output, call=LOOPS, many="true")
    check(kernel, inputs, output, 24, 40, 16, batch=(2, 1, 3), loops=2, bias="each")
    with pytest.raises(ascendc.KernelError, match="IterateNBatch must come with MatmulConfig isNBatch true"):
        check(made(inputs, output, call=LOOPS), inputs, output, 24, 40, 16)


@pytest.mark.parametrize("kind", ["cube", None])
def test_matrices_may_lie_apart(made, kind):
    kernel = made("NORMAL", "NORMAL", kind=kind, call=CUBE if kind else ONE)
    a, b, c = numbers(1, 3, 700), numbers(2, 3, 700), np.zeros((3, 20, 18), np.float32)
    tiling = ascendc.matmul_tiling(20, 18, 30, base=(32, 32, 32))
    done = kernel(a, b, a, c, 0, 0, 3, 3, 1, 700, tiling=tiling, outputs=[3], accumulation=SERIAL)
    left, right = a[:, :600].reshape(3, 20, 30), b[:, :540].reshape(3, 30, 18)
    assert np.array_equal(c, np.matmul(left.astype(np.float32), right.astype(np.float32)))
    assert done.findings == ()


def test_products_may_be_added_to_what_is_there(made):
    a, b, c = numbers(1, 3, 16, 32), numbers(2, 3, 32, 16), numbers(3, 3, 16, 16).astype(np.float32)
    exact = c + np.matmul(a.astype(np.float32), b.astype(np.float32))
    tiling = ascendc.matmul_tiling(16, 16, 32)
    kernel = made("NORMAL", "NORMAL", call=AGAIN)
    done = kernel(a, b, a, c, 0, 0, 3, 3, 1, 0, tiling=tiling, outputs=[], accumulation=SERIAL)
    assert np.array_equal(c, exact)
    assert done.findings == ()


def test_what_of_many_products_is_not_modelled_ends_the_kernel(made):
    kernel = made("BSNGD", "BNGS1S2")
    with pytest.raises(ascendc.KernelError, match="batchA 4 and batchB 3 must be multiples of one another"):
        check(kernel, "BSNGD", "BNGS1S2", 16, 16, 16, call=(4, 3))
    a, c, tiling = numbers(1, 16, 4, 16), np.zeros((4, 16, 16), np.float32), ascendc.matmul_tiling(16, 16, 16)
    for given, said in (
        ((), "must have the axes of its matrices in the tiling"),
        ((4, 1), "sums over G are not modelled"),
    ):
        for name in "ABC" if given else "":
            axes(tiling, name, 1, 1, given[name == "C"], 16, 16)
        with pytest.raises(ascendc.KernelError, match=said):
            kernel(a, a, a, c, 0, 0, 4, 4, 1, 0, tiling=tiling, outputs=[3])
    partial = made("NORMAL", "NORMAL", call="mm.IterateBatch(C, in_a, in_b, false, 0, 0, 0, true);")
    with pytest.raises(ascendc.KernelError, match="IterateBatch with enPartialSum is not modelled"):
        kernel = partial(a, a, a, c, 0, 0, 4, 4, 1, 0, tiling=tiling, outputs=[3])
    with pytest.raises(CompilationError, match="Matmul must be given A and B of one LayoutMode"):
        made("NORMAL", "NORMAL", call="Matmul<In, MatmulType<TPosition::GM, CubeFormat::ND, half>, In> other;")

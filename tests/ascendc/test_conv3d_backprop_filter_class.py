"""The class Conv3DBackpropFilter in C++: the bits of the shipped weight gradient and of the class in Python."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import OperatorError, UndefinedOnHardware
from npu_sim.products import get_product
from npu_sim.program.violation import Kind
from ops.ascendc import Conv3dBpFilterTiling, ConvDtype, ConvFormat, TPosition
from ops.ascendc.tiling import tiling_data
from tests.ascendc.compiler import require_compiler
from tests.cases.weight_gradient import legal_split_tiling, plan_of, random_case, random_tiling
from tests.differential.test_ascendc import make, public, random_geometry, single_k
from tests.differential.vector_runs import bytes_of, patterns_of
from tests.oracles.ascendc import blocked, drive, fractal_z_3d, single_shapes

require_compiler()

SOURCE = Path(__file__).parents[2] / "examples" / "ascendc" / "conv3d_backprop_filter.cpp"
SPLIT = (
    "key", "single_m", "single_n", "single_ho", "m_count", "n_count", "k_count", "group", "c1_x", "c1_dy", "merge_dk",
    "items", "per_core", "core_group", "core_batch", "core_dk", "batch_dim", "dk_dim", "dw_bytes", "clear_share",
    "clear_buffer",
)  # fmt: skip
CPP = {"fp16": "half", "bf16": "bfloat16_t", "fp32": "float", "hf32": "float"}
STORAGE = {"half": np.float16, "bfloat16_t": ml_dtypes.bfloat16, "float": np.float32}


def tiling_words(plan):
    """Return the bytes of the kernel's tiling: those of the class, and how the cores share the work."""
    params = plan.launches[0].params[0]
    words = np.array(plan.tiling.words()[8:62], np.uint32)
    return words.tobytes() + np.array([int(params[name]) for name in SPLIT]).tobytes()


def both(plan, rng):
    """Return the launches of the C++ kernel and of the shipped one, run on equal bytes in the same split."""
    (launch,) = plan.launches
    cpp = CPP[plan.compute_dtype]
    x, dy = (
        rng.standard_normal(tensor.byte_count // np.dtype(STORAGE[cpp]).itemsize).astype(STORAGE[cpp])
        for tensor in (plan.x, plan.dy)
    )
    dw = np.full(plan.dw.byte_count // 4, 7, np.float32)
    model = default_accumulation(plan.product, plan.compute_dtype)
    made = ascendc.compile(SOURCE, f"conv3d_backprop_filter<{cpp}>")(
        x, dy, dw, tiling=tiling_words(plan), blocks=launch.core_count, product=plan.product, outputs=[2],
        accumulation=model,
    )  # fmt: skip
    for tensor, array in ((plan.x, x), (plan.dy, dy), (plan.dw, np.full_like(dw, 9))):
        bytes_of(plan.gm.arena, tensor)[:] = array.view(np.uint8)
    execute(launch, plan.product, ExecuteOptions(accumulation=model))
    assert np.array_equal(patterns_of(plan.gm.arena, plan.dw, np.uint32), dw.view(np.uint32))
    return made, launch


def assert_no_fault(run):
    """A load of X of which the windows meet the padding alone is said to be useless, and is."""
    assert {finding.kind for finding in run.findings} <= {Kind.WRITE_UNREAD}


def test_twin_has_the_bits_and_cycles_of_the_shipped_kernel():
    """Random layers under random tilings of all four keys: rows, flags and waits are those of the shipped kernel."""
    rng = np.random.default_rng(17)
    seen: Counter = Counter()
    while seen["cases"] < 48:
        try:
            plan = random_tiling(rng, plan_of(random_case(rng, series="910b", most_macs=400_000)))
        except OperatorError:
            continue
        tiling = plan.tiling
        if tiling.tap_by_tap or tiling.w_parts > 1:
            continue
        run, shipped = both(plan, rng)
        assert_no_fault(run)
        cycles = [run_timeline(launch, plan.product).total_cycles for launch in (run.launches[0], shipped)]
        assert abs(cycles[0] / cycles[1] - 1) < 0.002
        seen.update({
            "cases": 1, f"key {tiling.tiling_key}": 1, plan.compute_dtype: 1, "merged": int(tiling.dk_merged),
            "groups": int(tiling.group > 1), "cores": int(shipped.core_count > 1),
        })  # fmt: skip
    assert {name for name, count in seen.items() if count} >= {
        "key 0", "key 1", "key 2", "key 3", *CPP, "merged", "groups", "cores",
    }  # fmt: skip


DRIVER = """
#include "kernel_operator.h"
#include "lib/conv_backprop/conv3d_bp_filter_api.h"
using namespace AscendC;
using namespace ConvCommonApi;
REGISTER_TILING_DEFAULT(Conv3DBackpropFilterTilingData)
template <class T> using Gradient = ConvBackpropApi::Conv3DBackpropFilter<
    ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvFormat::NDC1HWC0, T>,
    ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvFormat::ND, int32_t>,
    ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvFormat::NDC1HWC0, T>,
    ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvFormat::FRACTAL_Z_3D, float>>;
template <class T> __global__ __aicore__ void drive(GM_ADDR x, GM_ADDR dy, GM_ADDR dw, GM_ADDR work, int64_t count,
                                                    int32_t atomic, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  GET_TILING_DATA(data, tiling);
  GlobalTensor<T> input, gradOutput;
  GlobalTensor<float> gradWeight;
  GlobalTensor<int64_t> w;
  input.SetGlobalBuffer((__gm__ T*)x);
  gradOutput.SetGlobalBuffer((__gm__ T*)dy);
  gradWeight.SetGlobalBuffer((__gm__ float*)dw);
  w.SetGlobalBuffer((__gm__ int64_t*)work);
  Gradient<T> gradient;
  gradient.Init(&data.dwTiling);
  for (int64_t i = 0; i < count; i++) {
    auto item = w[7 * i];
    gradient.SetGradOutput(gradOutput[item.GetValue(0)]);
    gradient.SetInput(input[item.GetValue(1)]);
    gradient.SetSingleShape(item.GetValue(3), item.GetValue(4), item.GetValue(5));
    gradient.SetStartPosition(item.GetValue(6));
    if (atomic == 1 && i % 2) {
      gradient.IterateAll(gradWeight[item.GetValue(2)]);
      continue;
    }
    while (gradient.Iterate()) {
      if (atomic == 2) gradient.GetTensorC(gradWeight[item.GetValue(2)], 1, true);
      else gradient.GetTensorC(gradWeight[item.GetValue(2)], atomic);
    }
    gradient.ctx.isFirstIter_ = true;
  }
  gradient.End();
}
"""


@pytest.fixture(scope="module")
def driver(source_file):
    return {cpp: ascendc.compile(source_file("drive.cpp", DRIVER), f"drive<{cpp}>") for cpp in STORAGE}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_class_has_the_bits_of_the_class_in_python(driver, dtype):
    """Single shapes in any order, added, stored plainly (0) or one behind the other (2); rounded sums."""
    rng = np.random.default_rng([len(dtype), 18])
    product = get_product("Ascend910B2")
    for number in range(14):
        g = random_geometry(rng, 60_000)
        tiling = public(g, dtype)
        if number % 3:
            tiling = legal_split_tiling(rng, tiling, product)
        storage, c0 = STORAGE[CPP[dtype]], tiling.channel_size
        x, dy = (
            blocked(rng.standard_normal(shape).astype(storage), c0)
            for shape in ((g.n, g.cin, g.di, g.hi, g.wi), (g.n, g.cout, g.do, g.ho, g.wo))
        )
        work = list(single_shapes(g, c0, tiling.single_core_m, tiling.single_core_n, single_k(tiling, g)))
        if not work:
            continue
        rng.shuffle(work)
        atomic = (1, 1, 0, 2)[number % 4]
        want = np.zeros_like(fractal_z_3d(np.zeros((g.cout, g.cin, g.kd, g.kh, g.kw)), c0))
        got = np.zeros_like(want)
        how = {"enAtomic": 1, "enSequentialWrite": True} if atomic == 2 else {"enAtomic": atomic}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedOnHardware)
            obj = make(dtype)
            obj.Init(tiling_data(tiling))
            drive(obj, work, x, dy, want, **how)
            obj.End()
        items = np.array([[w.dy, w.x, w.dw, w.m, w.n, w.k, w.ho] for w in work])
        run = driver[CPP[dtype]](
            x, dy, got, items, np.int64(len(work)), np.int32(atomic), tiling=bytes(tiling_data(tiling)), product=product
        )
        assert_no_fault(run)
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


WRONG = {
    "Conv3DBackpropFilter SetInput must come behind Init": "gradient.SetInput(gm);",
    "Conv3DBackpropFilter Init must be called once, not again": "gradient.Init(&t); gradient.Init(&t);",
    "Conv3DBackpropFilter End must come before End": "gradient.Init(&t); gradient.End(); gradient.End();",
    "stepM must be in [1, 2147483647] and a multiple of 1, not 0": "t.stepM = 0; gradient.Init(&t);",
    "baseK must be in [16, 2147483647] and a multiple of 16, not 8": "t.baseK = 8; gradient.Init(&t);",
    "baseM must be in [16, 1024] and a multiple of 16, not 2048": "t.baseK = 16; t.baseM = 2048; gradient.Init(&t);",
    "Iterate must come behind SetGradOutput,": "gradient.Init(&t); gradient.SetInput(gm); gradient.Iterate();",
    "GetTensorC must follow an Iterate that returned true": "gradient.Init(&t); gradient.GetTensorC(out);",
    "Iterate must follow GetTensorC of the last block": "Shape(); gradient.Iterate(); gradient.Iterate();",
    "ctx.isFirstIter_ must be true behind the end of a single shape": "Shape(); End(); gradient.Iterate();",
    "ctx.isFirstIter_ must be true behind SetSingleShape": "Shape(); End(); Set(); gradient.Iterate();",
    "singleShapeN must be a multiple of 144 above 0, not 16": "gradient.Init(&t); gradient.SetSingleShape(16, 16, 8);",
    "hoStartIdx must be below ho = 8, not 8": "gradient.Init(&t); gradient.SetStartPosition(8);",
    "hoStartIdx + singleShapeK / wo must be at most ho = 8, not 15":
        "Shape(); gradient.SetStartPosition(7); gradient.Iterate();",
    "a load of input must be at most bl1Bound = 16 elements": "t.bl1Bound = 16; Shape(); gradient.Iterate();",
}  # fmt: skip


def test_what_the_class_refuses_says_so(tmp_path):
    body = "".join(f"  if (which == {number}) {{ {code} }}\n" for number, code in enumerate(WRONG.values()))
    start = DRIVER[: DRIVER.index("template <class T> __global__")]
    path = tmp_path / "wrong.cpp"
    path.write_text(
        start
        + "__global__ __aicore__ void wrong(GM_ADDR x, GM_ADDR dw, int32_t which, GM_ADDR tiling) {\n"
        + "  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);\n"
        + "  GET_TILING_DATA(data, tiling);\n  TConv3DBpFilterTiling t = data.dwTiling;\n"
        + "  GlobalTensor<half> gm;\n  GlobalTensor<float> out;\n  Gradient<half> gradient;\n"
        + "  gm.SetGlobalBuffer((__gm__ half*)x);\n  out.SetGlobalBuffer((__gm__ float*)dw);\n"
        + "  auto Set = [&] { gradient.SetSingleShape(16, 144, 64); };\n"
        + "  auto Shape = [&] { gradient.Init(&t); gradient.SetInput(gm); gradient.SetGradOutput(gm); Set();\n"
        + "                     gradient.SetStartPosition(0); };\n"
        + "  auto End = [&] { while (gradient.Iterate()) gradient.GetTensorC(out); };\n"
        + body
        + "}\n"
    )
    kernel = ascendc.compile(path)
    data = Conv3dBpFilterTiling(get_product("Ascend910B2"))
    data.SetWeightType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, ConvDtype.FLOAT32)
    data.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    data.SetGradOutputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    data.SetWeightShape(16, 16, 1, 3, 3)
    data.SetInputShape(1, 16, 1, 10, 10)
    data.SetGradOutputShape(1, 16, 1, 8, 8)
    status, tiling = data.GetTiling()
    assert status == 0
    assert tiling is not None
    for number, message in enumerate(WRONG):
        x, dw = np.zeros(1600, np.float16), np.zeros(16 * 144, np.float32)
        with pytest.raises(ascendc.KernelError, match=re.escape(message)):
            kernel(x, dw, np.int32(number), tiling=bytes(tiling), product="Ascend910B2")
    with pytest.raises(ascendc.KernelError, match="Conv3DBackpropFilter must run on A2 or A3"):
        kernel(
            np.zeros(1600, np.float16), np.zeros(2304, np.float32), np.int32(1), tiling=bytes(tiling), product="310P"
        )

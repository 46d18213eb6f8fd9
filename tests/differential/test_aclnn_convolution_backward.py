"""The two-phase call on the machine: values, memory layouts, output types, empty tensors, the sample program."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.engines.hazards import run_hazards
from npu_sim.products import get_product
from npu_sim.report.explain import recording
from ops import aclnn
from ops.common.tensor_desc import TensorDesc
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.explain import explain_call
from ops.conv_backward.plan import plan_call
from ops.conv_backward.rules import check
from tests.cases.convolution_backward import NUMPY, Call, exact_gradients, random_call
from tests.oracles.aclnn_cases import arguments_of, call_of, load_cases
from tests.oracles.conv_backward_cases import EMPTY, make_call
from tests.oracles.convolution import Attributes, gradients
from tests.oracles.series import SERIES, SPLIT

FORMATS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
EXAMPLE = Path(__file__).parents[2] / "examples" / "aclnn_convolution_backward.py"


def scattered(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, fmt: str) -> TensorDesc:
    """Return a view with its axes in a random order in memory, gaps between elements, and an offset."""
    strides, step = [0] * len(shape), int(rng.integers(1, 3))
    for axis in rng.permutation(len(shape)):
        strides[axis] = step
        step *= shape[axis] + int(rng.integers(0, 2))
    offset = int(rng.integers(0, 9))
    desc = TensorDesc(shape=shape, dtype=dtype, format=fmt, strides=tuple(strides), offset=offset)
    return TensorDesc(
        shape=shape, dtype=dtype, format=fmt, strides=tuple(strides), offset=offset,
        storage_elems=desc.end + int(rng.integers(0, 9)),
    )  # fmt: skip


def run(call: ConvBackwardCall, storages: dict[str, np.ndarray], **options: Any) -> int:
    """Run both phases; return the workspace size."""
    positional, keywords = arguments_of(call, storages)
    with use_product(call.product):
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional, **keywords, **options)
    assert status == 0, aclnn.aclGetRecentErrMsg()
    workspace = np.empty(size, np.uint8) if size else None
    assert aclnn.aclnnConvolutionBackward(workspace, size, executor, None) == 0, aclnn.aclGetRecentErrMsg()
    return size


def call_with_views(rng: np.random.Generator, case: Call, output_dtypes: tuple[str, ...]) -> ConvBackwardCall:
    fmt = FORMATS[len(case.input_shape)]
    shapes = {"grad_output": case.output_shape, "input": case.input_shape, "weight": case.weight_shape}
    descs = {
        name: scattered(rng, shape, dtype, fmt)
        for (name, shape), dtype in zip(shapes.items(), case.dtypes, strict=True)
    }
    outputs = (case.input_shape, case.weight_shape, (case.output_shape[1],))
    for name, shape, dtype in zip(OUTPUTS, outputs, output_dtypes, strict=True):
        descs[name] = scattered(rng, shape, dtype, "ND" if len(shape) == 1 else fmt)
    return ConvBackwardCall(
        product=get_product(case.series),
        **descs,
        bias_sizes=None,
        stride=case.stride,
        padding=case.padding,
        dilation=case.dilation,
        transposed=case.transposed,
        output_padding=case.output_padding,
        groups=case.groups,
        output_mask=case.output_mask,
        cube_math_type=case.cube_math_type,
    )


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(6))
def test_views_and_output_types_get_the_exact_gradients_and_nothing_else(series, seed):
    rng = np.random.default_rng([40, seed, SERIES.index(series)])
    case = random_call(rng, series)
    kinds = [kind for kind in NUMPY if kind != "bf16" or series in SPLIT]
    output_dtypes = tuple(str(kind) for kind in rng.choice(kinds, 3))
    if len(case.input_shape) == 5 and case.groups > 1:
        output_dtypes = (output_dtypes[0], case.dtypes[2], output_dtypes[2])  # FP32 is refused there
    call = call_with_views(rng, case, output_dtypes)
    storages, before = {}, {}
    for name in ("grad_output", "input", "weight", *OUTPUTS):
        desc = getattr(call, name)
        storages[name] = rng.integers(-1, 2, desc.storage_elems).astype(NUMPY[desc.dtype])
        before[name] = storages[name].copy()
    arrays = tuple(getattr(call, name).view(before[name]) for name in ("grad_output", "input", "weight"))
    exact = exact_gradients(case, arrays)
    # up to 256 every integer is one in every type, however often it is rounded on its way
    assert max(np.abs(gradient).max() for gradient in exact) <= 256
    run(call, storages)
    for wanted, name, gradient in zip(case.output_mask, OUTPUTS, exact, strict=True):
        desc = getattr(call, name)
        got = desc.view(storages[name]).astype(np.float64)
        if wanted:
            np.testing.assert_array_equal(got, gradient, err_msg=str(case))
        touched = np.zeros(desc.storage_elems, bool)
        desc.view(touched)[...] = wanted
        assert storages[name][~touched].tobytes() == before[name][~touched].tobytes()
    for name in ("grad_output", "input", "weight"):
        assert storages[name].tobytes() == before[name].tobytes()


@pytest.mark.parametrize("series", ["310p", "910b"])
def test_bits_and_workspace_are_those_of_the_python_call(series):
    rng = np.random.default_rng([41, SERIES.index(series)])
    call = make_call(x=(2, 9, 7, 8), w=(6, 9, 3, 2), y=(2, 6, 5, 7), product=series, dtype="fp32", cube_math_type=1)
    names = ("grad_output", "input", "weight")
    storages = {name: rng.standard_normal(getattr(call, name).elems).astype(np.float32) for name in (*names, *OUTPUTS)}
    size = run(call, storages)
    arrays = [getattr(call, name).view(storages[name]) for name in names]
    result = ops.convolution_backward(*arrays, stride=1, padding=0, dilation=1, cube_math_type=1, product=series)
    for name in OUTPUTS:
        assert storages[name].tobytes() == getattr(result, name).tobytes()
    assert size == result.workspace_bytes > 0


@pytest.fixture
def deterministic_context():
    assert aclnn.aclrtCtxSetSysParamOpt(aclnn.ACL_OPT_DETERMINISTIC, 1) == 0
    yield
    aclnn.aclrtResetDevice(0)


@pytest.mark.parametrize("series", SERIES)
def test_context_in_deterministic_mode_gives_the_bits_and_the_workspace_of_the_keyword(series, deterministic_context):
    rng = np.random.default_rng([43, SERIES.index(series)])
    call = make_call(x=(6, 9, 9, 9), w=(6, 9, 3, 3), y=(6, 6, 7, 7), product=series, dtype="fp32", cube_math_type=2)
    names = ("grad_output", "input", "weight")
    given = {name: rng.standard_normal(getattr(call, name).elems).astype(np.float32) for name in names}
    arrays = [getattr(call, name).view(given[name]) for name in names]
    common = {"stride": 1, "padding": 0, "dilation": 1, "cube_math_type": 2, "product": series}
    plain, fixed = (ops.convolution_backward(*arrays, **common, deterministic=mode) for mode in (False, True))
    assert plain.plan.resolved.call.deterministic is False  # the keyword decides, not the context
    for name in ("grad_input", "grad_bias"):
        assert getattr(plain, name).tobytes() == getattr(fixed, name).tobytes()
    assert plain.grad_weight.tobytes() != fixed.grad_weight.tobytes()
    np.testing.assert_allclose(plain.grad_weight, fixed.grad_weight, rtol=0, atol=1e-4)

    def two_phases():
        storages = given | {name: np.empty(getattr(call, name).elems, np.float32) for name in OUTPUTS}
        return run(call, storages), [storages[name].tobytes() for name in OUTPUTS]

    def of(result):
        return result.workspace_bytes, [getattr(result, name).tobytes() for name in OUTPUTS]

    assert two_phases() == of(fixed)
    assert aclnn.aclrtCtxSetSysParamOpt(aclnn.ACL_OPT_DETERMINISTIC, 0) == 0
    assert two_phases() == of(plain)
    assert (fixed.workspace_bytes > plain.workspace_bytes) == (series in SPLIT)
    words, others = (explain_call(result.plan) for result in (fixed, plain))
    assert words.call == f"{others.call}, deterministic"
    assert ("sums of cores -> grad_weight" in words.launch_works) == (series in SPLIT)
    assert run_hazards(fixed.plan.calls.launches, fixed.product) == []


@pytest.mark.parametrize(("overflow", "limit"), [(None, np.inf), ("inf_nan", np.inf), ("saturate", 65504)])
def test_overflow_mode_is_that_of_the_call_and_of_the_python_call(overflow, limit):
    call = make_call(x=(1, 2, 3, 3), w=(2, 2, 1, 1), y=(1, 2, 3, 3), product="910b", dtype="fp16")
    names = ("grad_output", "input", "weight")
    storages = {name: np.full(getattr(call, name).elems, 300, np.float16) for name in (*names, *OUTPUTS)}
    positional, keywords = arguments_of(call, storages)
    with use_product("910b"):
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
            *positional, **keywords, overflow=overflow
        )
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnConvolutionBackward(np.empty(size, np.uint8), size, executor, None) == 0
    # 2 x 300 x 300 and 9 x 300 x 300 leave the range of float16, 9 x 300 does not
    for name, value in zip(OUTPUTS, (limit, limit, 2700), strict=True):
        np.testing.assert_array_equal(storages[name], np.full(storages[name].size, value, np.float16), err_msg=name)
    arrays = [getattr(call, name).view(storages[name]) for name in names]
    result = ops.convolution_backward(*arrays, stride=1, padding=0, dilation=1, product="910b", overflow=overflow)
    for name in OUTPUTS:
        assert storages[name].tobytes() == getattr(result, name).tobytes()


def test_call_explains_its_steps_to_a_recorder_once():
    call = make_call(x=(1, 3, 5, 5), w=(2, 3, 2, 2), y=(1, 2, 4, 4), product="310p")
    names = ("grad_output", "input", "weight", *OUTPUTS)
    storages = {name: np.zeros(getattr(call, name).elems, np.float16) for name in names}
    positional, keywords = arguments_of(call, storages)
    with recording() as recorder, use_product("310p"):
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional, **keywords)
        assert status == 0
        assert len(recorder.explanations()) == 1
        assert aclnn.aclnnConvolutionBackward(np.empty(size, np.uint8), size, executor, None) == 0
        ops.convolution_backward(
            *(getattr(call, name).view(storages[name]) for name in names[:3]),
            stride=1, padding=0, dilation=1, cube_math_type=1, product="310p",
        )  # fmt: skip
        vendor, plain = recorder.explanations()
    assert vendor.to_plain() == plain.to_plain()
    assert vendor.launches


def test_executor_made_repeatable_gives_the_gradients_of_new_data():
    call = make_call(x=(1, 3, 5, 5), w=(2, 3, 2, 2), y=(1, 2, 4, 4))
    storages = {name: np.zeros(getattr(call, name).elems, np.float16) for name in ("grad_output", "input", "weight")}
    storages |= {name: np.full(getattr(call, name).elems, 9, np.float16) for name in OUTPUTS}
    positional, keywords = arguments_of(call, storages)
    status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional, **keywords)
    assert status == aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    attributes = Attributes(stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1))
    rng = np.random.default_rng(42)
    for _ in range(3):
        for name in ("grad_output", "input", "weight"):
            storages[name][...] = rng.integers(-3, 4, storages[name].size)
        assert aclnn.aclnnConvolutionBackward(np.empty(size, np.uint8), size, executor, None) == 0
        arrays = [
            getattr(call, name).view(storages[name]).astype(np.int64) for name in ("grad_output", "input", "weight")
        ]
        for name, exact in zip(OUTPUTS, gradients(*arrays, attributes), strict=True):
            np.testing.assert_array_equal(getattr(call, name).view(storages[name]), exact)


def test_outputs_may_lie_in_the_memory_of_inputs():
    call = make_call(x=(1, 3, 5, 5), w=(2, 3, 2, 2), y=(1, 2, 4, 4))
    rng = np.random.default_rng(43)
    names = ("grad_output", "input", "weight", *OUTPUTS)
    apart = {name: rng.integers(-3, 4, getattr(call, name).elems).astype(np.float16) for name in names}
    together = {name: storage.copy() for name, storage in apart.items()}
    together |= {"grad_input": together["input"], "grad_weight": together["weight"]}
    run(call, apart)
    run(call, together)
    for name in OUTPUTS:
        assert apart[name].tobytes() == together[name].tobytes()


def test_executors_of_several_threads_do_not_disturb_each_other():
    call = make_call(x=(2, 9, 7, 8), w=(6, 9, 3, 2), y=(2, 6, 5, 7))
    attributes = Attributes(stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1))
    names = ("grad_output", "input", "weight", *OUTPUTS)
    sets = [
        {name: np.random.default_rng([44, seed]).integers(-2, 3, getattr(call, name).elems).astype(np.float16)
         for name in names}
        for seed in range(6)
    ]  # fmt: skip
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda storages: run(call, storages), sets))
    for storages in sets:
        arrays = [getattr(call, name).view(storages[name]).astype(int) for name in names[:3]]
        for name, exact in zip(OUTPUTS, gradients(*arrays, attributes), strict=True):
            np.testing.assert_array_equal(getattr(call, name).view(storages[name]), exact)


def test_broadcast_and_overlapping_inputs_are_read_through_their_views():
    def window(shape, strides):
        return TensorDesc(shape=shape, dtype="fp16", format="NCHW", strides=strides)

    call = make_call(grad_output=window((2, 6, 4, 4), (0, 0, 0, 0)), input=window((2, 4, 6, 6), (3, 5, 2, 1)))
    rng = np.random.default_rng(45)
    names = ("grad_output", "input", "weight", *OUTPUTS)
    storages = {name: rng.integers(-2, 3, getattr(call, name).storage_elems).astype(np.float16) for name in names}
    arrays = [getattr(call, name).view(storages[name]).astype(int) for name in names[:3]]
    run(call, storages)
    attributes = Attributes(stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1))
    for name, exact in zip(OUTPUTS, gradients(*arrays, attributes), strict=True):
        np.testing.assert_array_equal(getattr(call, name).view(storages[name]), exact)


@pytest.mark.parametrize(
    "changes", [EMPTY, {**EMPTY, "transposed": True}, {**EMPTY, "output_mask": (True, False, True)}]
)
def test_empty_call_fills_the_wanted_gradients_with_zeros(changes):
    call = make_call(**changes)
    names = ("grad_output", "input", "weight", *OUTPUTS)
    storages = {name: np.full(getattr(call, name).elems, 3, np.float16) for name in names}
    run(call, storages)
    for wanted, name in zip(call.output_mask, OUTPUTS, strict=True):
        assert (storages[name] == (0 if wanted else 3)).all()
    assert storages["grad_bias"].size > 0
    assert storages["grad_weight"].size > 0


def test_outputs_in_the_same_memory_are_written_in_the_order_of_the_interface():
    call = make_call(x=(1, 3, 5, 5), w=(2, 3, 2, 2), y=(1, 2, 4, 4))
    rng = np.random.default_rng(47)
    names = ("grad_output", "input", "weight")
    storages = {name: rng.integers(-3, 4, getattr(call, name).elems).astype(np.float16) for name in names}
    storages |= dict.fromkeys(OUTPUTS, shared := np.zeros(75, np.float16))
    run(call, storages)
    arrays = [getattr(call, name).view(storages[name]).astype(int) for name in names]
    exact = gradients(*arrays, Attributes(stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1)))
    expected = exact[0].reshape(-1).copy()
    expected[:24] = exact[1].reshape(-1)
    expected[:2] = exact[2]
    np.testing.assert_array_equal(shared, expected)


def test_outputs_may_lie_between_each_others_elements():
    def woven(shape, strides, offset):
        return TensorDesc(
            shape=shape, dtype="fp16", format="NCHW", strides=strides, offset=offset, storage_elems=150
        )  # fmt: skip

    call = make_call(
        x=(1, 3, 5, 5), w=(2, 3, 2, 2), y=(1, 2, 4, 4),
        grad_input=woven((1, 3, 5, 5), (150, 50, 10, 2), 0), grad_weight=woven((2, 3, 2, 2), (24, 8, 4, 2), 1),
    )  # fmt: skip
    rng = np.random.default_rng(48)
    names = ("grad_output", "input", "weight", "grad_bias")
    storages = {name: rng.integers(-3, 4, getattr(call, name).elems).astype(np.float16) for name in names}
    storages["grad_input"] = storages["grad_weight"] = np.full(150, 99, np.float16)
    run(call, storages)
    arrays = [getattr(call, name).view(storages[name]).astype(int) for name in names[:3]]
    exact = gradients(*arrays, Attributes(stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1)))
    for name, gradient in zip(OUTPUTS, exact, strict=True):
        np.testing.assert_array_equal(getattr(call, name).view(storages[name]), gradient)
    assert (storages["grad_input"][49::2] == 99).all()


@pytest.mark.parametrize("series", SERIES)
def test_launches_of_a_call_with_views_have_no_hazards(series):
    rng = np.random.default_rng([49, SERIES.index(series)])
    case = replace(random_call(rng, series), output_mask=(True, True, True))
    plan = plan_call(check(call_with_views(rng, case, case.dtypes)))
    assert [planned.step.name for planned in plan.calls.steps].count("ViewCopy") >= 2
    assert run_hazards(plan.calls.launches, plan.resolved.product) == []


def test_empty_call_clears_the_views_of_its_gradients_and_nothing_between():
    weight = TensorDesc(shape=(6, 4, 3, 3), dtype="fp16", format="NCHW", strides=(120, 27, 9, 2), offset=5)
    bias = TensorDesc(shape=(6,), dtype="fp32", format="ND", strides=(3,), offset=1)
    call = make_call(**EMPTY, grad_weight=weight, grad_bias=bias)
    names = ("grad_output", "input", "weight", *OUTPUTS)
    storages = {name: np.full(getattr(call, name).storage_elems, 3, NUMPY[getattr(call, name).dtype]) for name in names}
    with recording() as recorder:
        run(call, storages)
    (explanation,) = recorder.explanations()
    assert [row[1] for row in explanation.tables[0].rows] == ["MemSet", "MemSet", "ViewCopy", "ViewCopy"]
    assert explanation.facts["launched as"] == {"step 2": "Copy", "step 3": "Copy"}
    for name in ("grad_weight", "grad_bias"):
        desc = getattr(call, name)
        assert not desc.view(storages[name]).any()
        desc.view(storages[name])[...] = 3
        assert (storages[name] == 3).all()


# ---- the public calls, planned ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("series", "column"), [("310p", 0), ("910", 0), ("910b", 1), ("910_93", 1)])
def test_public_calls_that_pass_the_rules_are_planned(series, column):
    for case in load_cases():
        if case["status"][column]:
            continue
        positional, keywords = arguments_of(call_of(case, series))
        with use_product(series):
            status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional, **keywords)
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert executor is not None
        assert size >= 0


def test_sample_program_gives_the_gradients_of_ones():
    sample = runpy.run_path(str(EXAMPLE))
    with use_product("910b"):
        results = sample["main"]()
    g, x, w = (np.ones(shape, np.int64) for shape in ((2, 32, 14, 14), (2, 16, 14, 14), (32, 16, 3, 3)))
    exact = gradients(g, x, w, Attributes(stride=(1, 1), pads=((1, 1), (1, 1)), dilation=(1, 1)))
    for name, gradient in zip(("gradInput", "gradWeight", "gradBias"), exact, strict=True):
        np.testing.assert_array_equal(results[name], gradient)

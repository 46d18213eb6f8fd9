"""The public fronts as functions that make one wild call each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import npu_sim
import ops
from npu_sim import budget
from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.dtypes.cube_math import parse_cube_math_type, promote, resolve_compute_dtype
from npu_sim.dtypes.formats import get_dtype
from npu_sim.products import near_matches, product_hint
from ops import aclnn, ascendc, tbe
from ops.common.geometry import ConvGeometry
from ops.common.status import AclnnStatus
from ops.studies.capture import load_capture
from ops.studies.cases import case_of_shape, cases_of_model
from tests.cases.wild_arguments import WORDS, changed, near, number, one_changed, wild
from tests.cases.wild_commands import call_line, other_line
from tests.cases.wild_kernels import kernel_in_python
from tests.cases.wild_machine import debugger, kernel_in_cpp, program_file
from tests.cases.wild_requests import operator, operator_line, request
from tests.oracles.series import SERIES, UNIFIED

Front = Callable[[np.random.Generator], object]


class FrontError(AssertionError):
    """A front did what it must not do, without raising."""


_OPTIONS = ("product", "accumulation", "overflow", "threads")


def convolution_backward(rng: np.random.Generator) -> object:
    """Call `ops.convolution_backward`."""
    good = {
        "grad_output": np.ones((1, 4, 3, 3), np.float16), "input": np.ones((1, 4, 4, 4), np.float16),
        "weight": np.ones((4, 2, 2, 2), np.float16), "stride": (1, 1), "padding": [0, 0], "dilation": 1, "groups": 2,
    }  # fmt: skip
    more = (
        "transposed", "output_padding", "output_mask", "cube_math_type", "bias_sizes", "profile", "quirks",
        "deterministic", "strict_output_dtype", "core_order", *_OPTIONS,
    )  # fmt: skip
    return ops.convolution_backward(**changed(rng, good, more))


def convolution(rng: np.random.Generator) -> object:
    """Call `ops.convolution`."""
    good = {
        "input": np.ones((1, 4, 4, 4), np.float16), "weight": np.ones((4, 2, 2, 2), np.float16),
        "bias": np.ones(4, np.float16), "stride": (1, 1), "padding": [0, 0], "dilation": 1, "groups": 2,
    }  # fmt: skip
    more = (
        "transposed", "output_padding", "output_dtype", "cube_math_type", "profile", "strict_output_dtype", *_OPTIONS
    )  # fmt: skip
    return ops.convolution(**changed(rng, good, more))


def avg_pool2d_backward(rng: np.random.Generator) -> object:
    """Call `ops.avg_pool2d_backward`."""
    good = {
        "grad_output": np.ones((1, 3, 2, 2), np.float16), "input": np.ones((1, 3, 4, 4), np.float16),
        "kernel_size": [2, 2], "stride": (2, 2), "padding": 0,
    }  # fmt: skip
    more = (
        "ceil_mode", "count_include_pad", "divisor_override", "cube_math_type", "profile", "quirks",
        "strict_shape", "deterministic", *_OPTIONS,
    )  # fmt: skip
    return ops.avg_pool2d_backward(**changed(rng, good, more))


def avg_pool2d(rng: np.random.Generator) -> object:
    """Call `ops.avg_pool2d`."""
    good = {"input": np.ones((1, 3, 4, 4), np.float16), "kernel_size": [2, 2], "stride": (2, 2), "padding": 0}
    more = (
        "ceil_mode", "count_include_pad", "divisor_override", "cube_math_type", "profile", "quirks", *_OPTIONS
    )  # fmt: skip
    return ops.avg_pool2d(**changed(rng, good, more))


def _tensor(rng: np.random.Generator, shape: tuple[int, ...], wildness: float) -> Any:
    """Return an aclTensor; a wild one may be huge, strided or None."""
    good: dict[str, Any] = {
        "viewDims": shape, "dataType": 1, "strides": None, "offset": 0, "format": 0, "storageDims": None,
        "data": np.ones(int(np.prod(shape)), np.float16),
    }  # fmt: skip
    if rng.random() >= wildness:
        return aclnn.aclCreateTensor(*good.values())
    if rng.random() < 0.6:
        # huge or strided, without memory: enough for phase 1
        good["data"] = None
        entries = [int(rng.choice((*shape, 0, 1, 7, 1 << 20, 1 << 31, 1 << 62))) for _ in shape]
        good["viewDims"] = tuple(entries) if rng.random() < 0.5 else shape
        if rng.random() < 0.5:
            good["strides"] = tuple(int(rng.choice((0, 1, 2, 3, 17, 1 << 31, 1 << 62))) for _ in shape)
        good["offset"] = int(rng.choice((0, 0, 1, 1 << 40, 1 << 63 - 1)))
        return aclnn.aclCreateTensor(*good.values())
    return aclnn.aclCreateTensor(*changed(rng, good).values())


def _phases(
    rng: np.random.Generator, first: Any, second: Any, given: Mapping[str, Any], names: tuple[str, ...]
) -> object:
    """Run both phases with wild arguments; whatever happens must come back as a documented status."""
    keywords = {name: wild(rng) for name in (*names, "accumulation", "overflow", "threads") if rng.random() < 0.05}
    if rng.random() < 0.4:
        given = changed(rng, given)
    with npu_sim.use_product(str(rng.choice(SERIES))):
        return _run_phases(rng, first, second, given, keywords)


def _run_phases(rng: np.random.Generator, first: Any, second: Any, given: Mapping[str, Any], keywords: Any) -> object:
    aclnn.aclGetRecentErrMsg()
    status, size, executor = first(*given.values(), **keywords)
    if status == 0:
        workspace = np.empty(size, np.uint8) if size < 1 << 24 else None
        arguments = {"workspace": workspace, "workspaceSize": size, "executor": executor, "stream": None}
        if rng.random() < 0.3:
            arguments = changed(rng, arguments)
        status = second(*arguments.values())
    message = aclnn.aclGetRecentErrMsg() or ""
    if status not in AclnnStatus.__members__.values() or "internal error" in message or (status and not message):
        raise FrontError(f"{status} {message}")
    return int(status)


def aclnn_convolution_backward(rng: np.random.Generator) -> object:
    """Create wild objects and run aclnnConvolutionBackward on them."""
    few = 0.15
    shapes = ((1, 4, 3, 3), (1, 4, 4, 4), (4, 2, 2, 2))
    g, x, w, dx, dw, db = (_tensor(rng, shape, few) for shape in (*shapes, *shapes[1:], (4,)))
    arrays = [
        aclnn.aclCreateIntArray(near(rng, value) if rng.random() < few else value)
        for value in ([4], [1, 1], [0, 0], [1, 1], [0, 0])
    ]
    mask = aclnn.aclCreateBoolArray(wild(rng) if rng.random() < few else [True] * 3)
    given = {
        "gradOutput": g, "input": x, "weight": w, "biasSizes": arrays[0], "stride": arrays[1], "padding": arrays[2],
        "dilation": arrays[3], "transposed": False, "outputPadding": arrays[4], "groups": 2, "outputMask": mask,
        "cubeMathType": 1, "gradInput": dx, "gradWeight": dw, "gradBias": db,
    }  # fmt: skip
    names = ("profile", "quirks", "deterministic", "strict_output_dtype")
    first = aclnn.aclnnConvolutionBackwardGetWorkspaceSize
    return _phases(rng, first, aclnn.aclnnConvolutionBackward, given, names)


def aclnn_convolution(rng: np.random.Generator) -> object:
    """Create wild objects and run aclnnConvolution on them."""
    few = 0.15
    x, w, b, y = (_tensor(rng, shape, few) for shape in ((1, 4, 4, 4), (4, 2, 2, 2), (4,), (1, 4, 3, 3)))
    arrays = [
        aclnn.aclCreateIntArray(near(rng, value) if rng.random() < few else value)
        for value in ([1, 1], [0, 0], [1, 1], [0, 0])
    ]
    given = {
        "input": x, "weight": w, "bias": b, "stride": arrays[0], "padding": arrays[1], "dilation": arrays[2],
        "transposed": False, "outputPadding": arrays[3], "groups": 2, "output": y, "cubeMathType": 1,
    }  # fmt: skip
    first = aclnn.aclnnConvolutionGetWorkspaceSize
    return _phases(rng, first, aclnn.aclnnConvolution, given, ("profile", "strict_output_dtype"))


def aclnn_avg_pool2d_backward(rng: np.random.Generator) -> object:
    """Create wild objects and run aclnnAvgPool2dBackward on them."""
    g, x, dx = (_tensor(rng, shape, 0.25) for shape in ((1, 3, 2, 2), (1, 3, 4, 4), (1, 3, 4, 4)))
    arrays = [
        aclnn.aclCreateIntArray(near(rng, value) if rng.random() < 0.25 else value)
        for value in ([2, 2], [2, 2], [0, 0])
    ]
    given = {
        "gradOutput": g, "self": x, "kernelSize": arrays[0], "stride": arrays[1], "padding": arrays[2],
        "ceilMode": False, "countIncludePad": True, "divisorOverride": 0, "cubeMathType": 1, "gradInput": dx,
    }  # fmt: skip
    names = ("profile", "quirks", "strict_shape", "deterministic")
    first = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize
    return _phases(rng, first, aclnn.aclnnAvgPool2dBackward, given, names)


def aclnn_avg_pool2d(rng: np.random.Generator) -> object:
    """Create wild objects and run aclnnAvgPool2d on them."""
    x, y = (_tensor(rng, shape, 0.25) for shape in ((1, 3, 4, 4), (1, 3, 2, 2)))
    arrays = [
        aclnn.aclCreateIntArray(near(rng, value) if rng.random() < 0.25 else value)
        for value in ([2, 2], [2, 2], [0, 0])
    ]
    given = {
        "self": x, "kernelSize": arrays[0], "strides": arrays[1], "paddings": arrays[2], "ceilMode": False,
        "countIncludePad": True, "divisorOverride": 0, "cubeMathType": 1, "out": y,
    }  # fmt: skip
    first = aclnn.aclnnAvgPool2dGetWorkspaceSize
    return _phases(rng, first, aclnn.aclnnAvgPool2d, given, ("profile", "quirks"))


def aclnn_runtime(rng: np.random.Generator) -> object:
    """Call the small functions of the runtime."""
    calls = (
        lambda: aclnn.aclrtMalloc(number(rng)), lambda: aclnn.aclrtFree(wild(rng)),
        lambda: aclnn.aclrtMemcpy(wild(rng), number(rng), wild(rng), number(rng), wild(rng)),
        lambda: aclnn.aclrtSynchronizeStream(wild(rng)), lambda: aclnn.aclrtDestroyStream(wild(rng)),
        lambda: aclnn.aclDestroyTensor(wild(rng)), lambda: aclnn.aclDestroyIntArray(wild(rng)),
        lambda: aclnn.aclDestroyBoolArray(wild(rng)), lambda: aclnn.aclDestroyAclOpExecutor(wild(rng)),
        lambda: aclnn.aclSetAclOpExecutorRepeatable(wild(rng)), lambda: aclnn.aclInit(wild(rng)),
        lambda: aclnn.aclrtSetDevice(wild(rng)), lambda: aclnn.aclCreateIntArray(wild(rng)),
        lambda: aclnn.aclCreateBoolArray(wild(rng)), lambda: aclnn.aclCreateTensor(*(wild(rng) for _ in range(7))),
    )  # fmt: skip
    return calls[int(rng.integers(len(calls)))]()


_GROUP = {"real_g": 1, "mag_factor": 1, "cin1_g": 1, "cout_g": 16, "cin_ori": 16, "cout_ori": 16}


def tbe_dsl(rng: np.random.Generator) -> object:
    """Call the DSL on placeholders or arrays, and run and schedule what it returns."""
    x, dy = np.ones((1, 2, 1, 3, 3, 16), np.float16), np.ones((1, 1, 1, 2, 2, 16), np.float16)
    para: dict[str, Any] = {
        "strides": [1, 1, 1], "pads": [0] * 6, "dilations": [1] * 5, "res_dtype": "float32", "kernel_name": "k",
        "group_dict": dict(_GROUP),
    }  # fmt: skip
    lazy = rng.random() < 0.6
    if rng.random() < 0.5:
        para["group_dict"] = changed(rng, _GROUP)
    if rng.random() < 0.6:
        para = changed(rng, para)
    given: dict[str, Any] = {"filter_size": [16, 2, 16, 2, 2], "para_dict": para, "filter_layout": "NDCHW"}
    if rng.random() < 0.5:
        given = changed(rng, given)
    product = str(rng.choice(UNIFIED))
    with npu_sim.use_product(product):
        if not lazy:
            tensors = {"x": x, "out_backprop": dy}
            return tbe.conv3d_backprop_filter(**(changed(rng, tensors) if rng.random() < 0.5 else tensors), **given)
        made = []
        for array, name in ((x, "x"), (dy, "dy")):
            shape: Any = near(rng, array.shape) if rng.random() < 0.2 else array.shape
            good = {"shape": shape, "dtype": "float16", "name": name}
            made.append(tbe.placeholder(**(changed(rng, good) if rng.random() < 0.1 else good)))
        result = tbe.conv3d_backprop_filter(made[0], made[1], **given)
        plan = tbe.auto_schedule([result] if rng.random() < 0.9 else wild(rng))
        feed: Any = {"x": x, "dy": dy}
        feed = changed(rng, feed) if rng.random() < 0.3 else feed
        options = {name: wild(rng) for name in (*_OPTIONS[1:], "core_order") if rng.random() < 0.1}
        return str(plan), result.run(feed if rng.random() < 0.95 else wild(rng), **options)


def tbe_groups(rng: np.random.Generator) -> object:
    """Call the functions around the DSL."""
    channels = {"fmap_c": 48, "cout": 24, "groups": 6, "cout0": 16, "cin0": 16}
    group = tbe.calculate_group(48, 24, 6)
    given: dict[str, Any] = {
        "group_dict": changed(rng, group) if rng.random() < 0.5 else group,
        "groups": 6,
        "kernel": (1, 2, 2),
    }
    given = changed(rng, given) if rng.random() < 0.5 else given
    arrays = (np.zeros((2, 8, 16, 16), np.float32), np.zeros((24, 8, 1, 2, 2), np.float32))
    result, gradient = (near(rng, array) if rng.random() < 0.3 else array for array in arrays)
    calls = (
        lambda: tbe.calculate_group(**changed(rng, channels)),
        lambda: tbe.group_mask(**given),
        lambda: tbe.mask_groups(result, **given),
        lambda: tbe.gradient_from_result(result, **given),
        lambda: tbe.result_from_gradient(gradient, **given),
        lambda: tbe.to_6hd(near(rng, np.zeros((1, 5, 2, 3, 3), np.float16))),
        lambda: tbe.from_6hd(near(rng, np.zeros((1, 2, 1, 3, 3, 16), np.float16)), number(rng)),
        lambda: tbe.from_6hd(np.zeros((1, 2, 1, 3, 3, 16), np.float16), number(rng)),
        lambda: tbe.auto_schedule(wild(rng)),
        lambda: tbe.placeholder(wild(rng), wild(rng), wild(rng)),
    )
    return calls[int(rng.integers(len(calls)))]()


def _types(dtype: Any = np.float16) -> list[ascendc.ConvType]:
    gm, form = ascendc.TPosition.GM, ascendc.ConvFormat
    return [
        ascendc.ConvType(gm, form.NDC1HWC0, dtype),
        ascendc.ConvType(gm, form.ND, np.int32),
        ascendc.ConvType(gm, form.NDC1HWC0, dtype),
        ascendc.ConvType(gm, form.FRACTAL_Z_3D, np.float32),
    ]


def _host_tiling() -> Any:
    made = ascendc.Conv3dBpFilterTiling()
    gm, form = ascendc.TPosition.GM, ascendc.ConvFormat
    made.SetWeightType(gm, form.FRACTAL_Z_3D, np.float32)
    made.SetInputType(gm, form.NDC1HWC0, np.float16)
    made.SetGradOutputType(gm, form.NDC1HWC0, np.float16)
    made.SetWeightShape(16, 16, 1, 2, 2)
    made.SetInputShape(1, 16, 1, 3, 3)
    made.SetGradOutputShape(1, 16, 1, 2, 2)
    return made.GetTiling()[1]


def ascendc_class(rng: np.random.Generator) -> object:
    """Drive the kernel class with wild members and arguments, sometimes in a wrong order."""
    types: list[Any] = _types()
    if rng.random() < 0.1:
        types = list(one_changed(rng, tuple(types)))
    options = {name: wild(rng) for name in ("product", "accumulation", "extended", "lenient") if rng.random() < 0.05}
    made = ascendc.Conv3DBackpropFilter(*types, record=bool(rng.integers(2)), **options)
    tiling = _host_tiling()
    target = tiling.dwTiling
    for _ in range(int(rng.choice((0, 0, 1, 1, 2)))):
        name = str(rng.choice(list(target.__slots__)))
        setattr(target, name, number(rng) if rng.random() < 0.7 else wild(rng))
    x, dy, dw = np.ones(144, np.float16), np.ones(64, np.float16), np.zeros(1024, np.float32)
    steps: list[Callable[[], Any]] = [
        lambda: made.Init(tiling if rng.random() < 0.9 else wild(rng)),
        lambda: made.SetGradOutput(dy if rng.random() < 0.9 else wild(rng)),
        lambda: made.SetInput(x if rng.random() < 0.9 else wild(rng)),
        lambda: made.SetSingleShape(*(one_changed(rng, (16, 64, 4)) if rng.random() < 0.2 else (16, 64, 4))),
        lambda: made.SetStartPosition(0 if rng.random() < 0.9 else number(rng)),
        lambda: made.IterateAll(dw if rng.random() < 0.9 else wild(rng)),
        lambda: made.End(),
    ]
    if rng.random() < 0.1:
        rng.shuffle(steps)
    for step in steps:
        step()
    return made.facts(), made.walk()


def ascendc_tiling(rng: np.random.Generator) -> object:
    """Set wild values on the tiling class."""
    platform: Any = wild(rng) if rng.random() < 0.1 else None
    if rng.random() < 0.1:
        platform = ascendc.PlatformInfo(l1Size=number(rng), l0ASize=number(rng))
    made = ascendc.Conv3dBpFilterTiling(platform)
    gm, form = ascendc.TPosition.GM, ascendc.ConvFormat
    wildness = 0.15

    def some(values: Any) -> Any:
        return one_changed(rng, values) if rng.random() < wildness else values

    made.SetWeightType(*some((gm, form.FRACTAL_Z_3D, np.float32)))
    made.SetInputType(*some((gm, form.NDC1HWC0, np.float16)))
    made.SetGradOutputType(*some((gm, form.NDC1HWC0, np.float16)))
    for call, values in (
        (made.SetWeightShape, (16, 16, 1, 2, 2)),
        (made.SetInputShape, (1, 16, 1, 3, 3)),
        (made.SetGradOutputShape, (1, 16, 1, 2, 2)),
        (made.SetPadding, (0,) * 6),
        (made.SetStride, (1, 1, 1)),
        (made.SetDilation, (1, 1, 1)),
    ):
        call(*some(values))
    return made.GetTiling()


def _quiet(name: object) -> None:
    with npu_sim.use_product(name):  # type: ignore[arg-type]  # that is the point
        return


def _quiet_budget(limit: object) -> None:
    with budget.use_budget(limit):  # type: ignore[arg-type]  # that is the point
        return


def names_and_records(rng: np.random.Generator) -> object:
    """Look names up and build public records."""
    geometry = {"n": 1, "cin": 4, "cout": 4, "hi": 4, "wi": 4, "ho": 3, "wo": 3, "kh": 2, "kw": 2}
    product = npu_sim.get_product("910b")
    calls: tuple[Callable[[], object], ...] = (
        lambda: npu_sim.get_product(wild(rng)), lambda: npu_sim.get_product(str(rng.choice(WORDS))),
        lambda: _quiet(wild(rng)), lambda: npu_sim.current_product(wild(rng)),
        lambda: near_matches(str(rng.choice(WORDS))), lambda: product_hint(str(rng.choice(WORDS))),
        lambda: Accumulation(*changed(rng, {"group": 4, "inner": "exact", "round": "rne"}).values()),
        lambda: Accumulation.parse(wild(rng), Accumulation(4, "exact", "rne")),
        lambda: default_accumulation(product, wild(rng)), lambda: get_dtype(wild(rng)), lambda: promote(wild(rng)),
        lambda: parse_cube_math_type(wild(rng)), lambda: resolve_compute_dtype(wild(rng), wild(rng), product),
        lambda: ConvGeometry(**changed(rng, geometry)),
        lambda: _quiet_budget(wild(rng)),
    )  # fmt: skip
    return calls[int(rng.integers(len(calls)))]()


def study_inputs(rng: np.random.Generator) -> object:
    """Call what the studies build their cases from."""
    shape = {
        "x_shape": (1, 4, 4, 4), "weight_shape": (4, 2, 2, 2), "stride": (1,), "padding": (0, 0), "dilation": (1,),
        "groups": 2, "dtype": "fp16",
    }  # fmt: skip
    calls: tuple[Callable[[], object], ...] = (
        lambda: case_of_shape(**changed(rng, shape)),
        lambda: cases_of_model(**changed(rng, {"name": "resnet50", "batch": 8, "dtype": "fp16"})),
        lambda: load_capture(wild(rng)),
    )
    return calls[int(rng.choice((0, 0, 0, 1, 2)))]()


def matrix_product(rng: np.random.Generator) -> object:
    """Call `ops.matrix_product`."""
    good = {"a": np.ones((3, 4), np.float16), "b": np.ones((4, 5), np.float16), "bias": np.ones(5, np.float16)}
    return ops.matrix_product(**changed(rng, good, ("cube_math_type", *_OPTIONS)))


FRONTS: dict[str, Front] = {
    "ops.convolution": convolution,
    "aclnnConvolution": aclnn_convolution,
    "ops.convolution_backward": convolution_backward,
    "ops.avg_pool2d": avg_pool2d,
    "aclnnAvgPool2d": aclnn_avg_pool2d,
    "ops.avg_pool2d_backward": avg_pool2d_backward,
    "aclnnConvolutionBackward": aclnn_convolution_backward,
    "aclnnAvgPool2dBackward": aclnn_avg_pool2d_backward,
    "aclnn runtime": aclnn_runtime,
    "ops.tbe.conv3d_backprop_filter": tbe_dsl,
    "ops.tbe groups": tbe_groups,
    "ops.ascendc.Conv3DBackpropFilter": ascendc_class,
    "ops.ascendc.Conv3dBpFilterTiling": ascendc_tiling,
    "names and records": names_and_records,
    "study inputs": study_inputs,
    "ops.matrix_product": matrix_product,
    "command line": call_line,
    "other commands": other_line,
    "request files": request,
    "operators by argument": operator,
    "perf OPERATOR": operator_line,
    "kernels in Python": kernel_in_python,
    "kernels in C++": kernel_in_cpp,
    "program files": program_file,
    "npu_sim.debug.Machine": debugger,
}
"""One wild call each."""

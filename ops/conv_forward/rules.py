"""The check of a call: one table of rules in the library's order; the first breach decides.

Order and codes follow ops-nn ``conv/convolution_forward/op_host/op_api``; where the published page and the source
differ, the rule says which profile it belongs to. ``RULES.md`` beside this file is the table in words, made by
`ops.conv_forward.rules_page`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ops.common import conv_rules
from ops.common.capability import NO_CONV3D, NO_FP32, SPLIT, UNIFIED
from ops.common.conv_rules import (
    MAX_GROUPS,
    MAX_SMALL,
    MAX_STRIDE_3D,
    ConvRule,
    at_least,
    at_most,
    call_context,
    cube_math_known,
    cube_math_violation,
    extents_range,
    group_rows_violation,
    groups_positive,
    groups_range,
    kernel_range,
    length_violation,
    rank_violation,
    windows_violation,
)
from ops.common.rule import (
    dtype_rule,
    first,
    null_rule,
    product_rule,
    refuse_breach,
    sentence,
    shape_text,
)
from ops.common.status import AclnnStatus
from ops.common.tensor_desc import FORMAT_OF_RANK, TensorDesc
from ops.conv_forward.call import PAIRED_RANKS, ConvolutionCall
from ops.conv_forward.resolve import Resolved, promoted_dtype, resolve

API = "ops-nn conv/convolution_forward/op_host/op_api/aclnn_convolution.cpp"
PAGE = "aclnnConvolution page"
TESTS = "ops-nn conv/convolution_forward/tests"

TENSORS = {"input": "input", "weight": "weight", "bias": "bias", "output": "output"}
"""Names of the interface and of the fields of `ConvolutionCall`."""

BIAS_FORMATS = ("ND", "NCL", "NCHW", "NCDHW")
MAX_TENSOR_EXTENT = 1_000_000
MAX_KERNEL_3D = 511
MAX_MAP_UNIFIED = 4096
GIVEN_PAGE = 'profile="page" given'


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ConvRule[ConvolutionCall]):
    """One rule."""


_range = partial(Rule, step="9", status=AclnnStatus.ACLNN_ERR_INNER_NULLPTR, profiles=("page",), source=PAGE)


def _tensor(call: ConvolutionCall, parameter: str) -> TensorDesc | None:
    desc: TensorDesc | None = getattr(call, TENSORS[parameter])
    return desc


def _kebab(parameter: str) -> str:
    return parameter.replace("outputPadding", "output-padding")


def _null(parameter: str, kind: str, *, transposed: bool | None = None) -> Rule:
    field = conv_rules.ARRAYS.get(parameter, parameter)
    made = null_rule(Rule, f"{_kebab(parameter)}-null", parameter, field, kind, API)
    return replace(made, transposed=transposed)


def _dtype(parameter: str) -> Rule:
    return dtype_rule(Rule, f"{parameter}-dtype", parameter, TENSORS[parameter], f"{PAGE}; {API}")


def _as_promoted(call: ConvolutionCall, parameter: str) -> str | None:
    desc, promoted = _tensor(call, parameter), promoted_dtype(call)
    if desc is None or promoted is None or desc.dtype == promoted:
        return None
    rule = f"{promoted.upper()}, the common type of input and weight"
    return sentence(f"{parameter} dtype", rule, desc.dtype.upper())


def _rank(parameter: str) -> Rule:
    def violation(call: ConvolutionCall) -> str | None:
        desc = _tensor(call, parameter)
        if desc is None or desc.rank in FORMAT_OF_RANK:
            return None
        return sentence(f"{parameter} rank", "3, 4 or 5", f"{desc.rank} (shape {shape_text(desc.shape)})")

    return Rule(
        step="3", name=f"{parameter}-rank", parameter=parameter, requirement="of rank 3, 4 or 5", violation=violation,
        source=f"{PAGE}; {API}",
    )  # fmt: skip


def _same_rank(parameter: str) -> Rule:
    return Rule(
        step="3", name=f"{parameter}-rank-as-input", parameter=parameter, requirement="of the rank of input",
        violation=lambda call: rank_violation(parameter, _tensor(call, parameter), "input", call.input), source=API,
    )  # fmt: skip


def _bias_rank(call: ConvolutionCall) -> str | None:
    return None if call.bias is None or call.bias.rank == 1 else sentence("bias rank", "1", call.bias.rank)


def _bias_length(call: ConvolutionCall) -> str | None:
    bias, w = call.bias, call.weight
    if bias is None or w is None or bias.rank != 1 or w.rank < 2:
        return None
    wanted = w.shape[1] * call.groups if call.transposed else w.shape[0]
    what = "weight.shape[1] * groups" if call.transposed else "weight.shape[0]"
    return None if bias.shape[0] == wanted else sentence("bias length", f"{wanted}, {what}", bias.shape[0])


def _length(parameter: str) -> Rule:
    def violation(call: ConvolutionCall) -> str | None:
        pairs = parameter == "padding" and call.rank in PAIRED_RANKS[call.transposed]
        axes = call.rank - 2
        return length_violation(call, parameter, (axes, 2 * axes) if pairs else (axes,))

    return Rule(
        step="3", name=f"{_kebab(parameter)}-length", parameter=parameter, violation=violation,
        requirement="of length rank - 2"
        + (", or twice that for rank 4 and, not transposed, rank 3" if parameter == "padding" else ""),
        source=f"{PAGE}; {API}", transposed=True if parameter == "outputPadding" else None,
    )  # fmt: skip


def _output_format(call: ConvolutionCall) -> str | None:
    if call.input is None or call.output is None or call.input.format == call.output.format:
        return None
    return sentence("output format", f"{call.input.format}, as of input", call.output.format)


def _bias_format(call: ConvolutionCall) -> str | None:
    if call.bias is None or call.bias.format in BIAS_FORMATS:
        return None
    return sentence("bias format", " or ".join(BIAS_FORMATS), call.bias.format)


def _format(parameter: str) -> Rule:
    def violation(call: ConvolutionCall) -> str | None:
        desc = _tensor(call, parameter)
        wanted = FORMAT_OF_RANK.get(call.rank)
        if desc is None or wanted is None or desc.format == wanted:
            return None
        return sentence(f"{parameter} format", f"{wanted} for rank {call.rank}", desc.format)

    return Rule(
        step="4", name=f"{parameter}-format", parameter=parameter, violation=violation, source=f"{PAGE}; {API}",
        requirement="in NCL for rank 3, in NCHW for rank 4, in NCDHW for rank 5 (the library also takes FRACTAL_Z "
        "weights and NDHWC, which are not here)",
    )  # fmt: skip


def _kernel_empty(call: ConvolutionCall) -> str | None:
    if call.weight is None or 0 not in call.weight.shape[2:]:
        return None
    return sentence("weight shape", "without 0 behind its channels", shape_text(call.weight.shape))


def _channels(call: ConvolutionCall) -> str | None:
    x, w = call.input, call.weight
    if x is None or w is None or min(x.rank, w.rank) < 2:
        return None
    if call.transposed:
        rule = f"{x.shape[1]}, the channels of input"
        return None if w.shape[0] == x.shape[1] else sentence("weight.shape[0]", rule, w.shape[0])
    if w.shape[1] * call.groups == x.shape[1]:
        return None
    return sentence("weight.shape[1]", f"{x.shape[1]} / {call.groups}, the channels of input over groups", w.shape[1])


def _output_padding(call: ConvolutionCall) -> str | None:
    arrays = (call.output_padding or (), call.stride or (), call.dilation or ())
    return first(
        sentence(
            conv_rules.entry_name(call, "outputPadding", index),
            f"at least 0 and less than stride {stride} or dilation {dilation} of its axis",
            value,
        )
        for index, (value, stride, dilation) in enumerate(zip(*arrays, strict=False))
        if value < 0 or value >= max(stride, dilation)
    )


def _input_channels(call: ConvolutionCall) -> str | None:
    if call.input is None or call.input.rank < 2 or call.input.shape[1] > 0:
        return None
    return sentence("input.shape[1]", "at least 1 with transposed = true", 0)


def _back_padding(call: ConvolutionCall) -> str | None:
    if call.is_empty or call.padding is None or not call.spatial_axes:
        return None
    # the library reads the entries of H and W by their places in a padding of one entry for each axis
    axes = [axis for axis in call.spatial_axes if axis.name != "D"]
    pads = call.padding[call.rank == 5 :]
    lowest = 0 if call.rank == 5 else None
    for axis, pad in zip(axes, pads, strict=False):
        back = (axis.kernel - 1) * axis.dilation - pad
        if back > MAX_SMALL or (lowest is not None and back < lowest):
            rule = f"in [0, {MAX_SMALL}]" if lowest is not None else f"at most {MAX_SMALL}"
            return sentence(f"(weight extent - 1) * dilation - padding on axis {axis.name}", rule, back)
    return None


def _output_shape(call: ConvolutionCall) -> str | None:
    wanted = call.output_shape
    if call.output is None or wanted is None or call.output.shape == wanted:
        return None
    if min(wanted) < 0:
        return sentence("output shape", "without negative extents, as the other arguments give", shape_text(wanted))
    return sentence("output shape", f"{shape_text(wanted)}, as the other arguments give", shape_text(call.output.shape))


def _output_empty(call: ConvolutionCall) -> str | None:
    x, w, y = call.input, call.weight, call.output
    if x is None or w is None or y is None or y.elems == 0 or (x.elems and w.elems):
        return None
    return sentence("output", "empty where input or weight is", f"of shape {shape_text(y.shape)}")


def _only_page(call: ConvolutionCall, promoted: str, cube_math_type: int, rule: str) -> str | None:
    if call.profile != "page" or promoted_dtype(call) != promoted or call.cube_math_type != cube_math_type:
        return None
    return sentence("cubeMathType", f"{rule} for {promoted.upper()} tensors", cube_math_type)


def _mixed_output(call: ConvolutionCall) -> str | None:
    promoted, y = promoted_dtype(call), call.output
    if y is None or y.dtype != "fp32" or promoted in (None, "fp32") or call.cube_math_type == 2:
        return None
    return sentence("output dtype", f"{str(promoted).upper()}, the only type a kernel stores here", "FP32")


def _no_depth(call: ConvolutionCall) -> str | None:
    depth = [axis for axis in call.spatial_axes if axis.name == "D"]
    flat = depth and depth[0].x == depth[0].kernel == depth[0].y == 1 and depth[0].before == 0
    if call.rank != 5 or call.is_empty or (flat and not call.transposed):
        return None
    return sentence("input rank", "3 or 4, or 5 with one plane each of input, weight and output", "5 with a depth")


def _extent_range(parameter: str) -> Rule:
    return _range(
        name=f"{parameter}-extent-range", parameter=parameter,
        requirement=f"in [1, {MAX_TENSOR_EXTENT}] in every extent",
        violation=lambda call: extents_range(parameter, _tensor(call, parameter), MAX_TENSOR_EXTENT),
    )  # fmt: skip


def _map_range(call: ConvolutionCall) -> str | None:
    shape = () if call.input is None else call.input.shape
    return first(
        sentence(f"input extent on axis {name}", f"at most {MAX_MAP_UNIFIED}", extent)
        for name, extent in zip("HW", shape[-2:], strict=False)
        if extent > MAX_MAP_UNIFIED
    )


RULES: tuple[Rule, ...] = (
    product_rule(Rule),
    *(_null(parameter, "a tensor") for parameter in ("input", "weight")),
    *(_null(parameter, "an aclIntArray") for parameter in ("stride", "padding", "dilation")),
    _null("output", "a tensor"),
    _null("outputPadding", "an aclIntArray", transposed=True),
    _dtype("bias"),
    Rule(
        step="2", name="bias-dtype-as-input", parameter="bias", needs=SPLIT, profiles=("page",), switch=GIVEN_PAGE,
        requirement="of the common type of input and weight", source=f"{PAGE}; {TESTS} take others",
        violation=lambda call: _as_promoted(call, "bias") if call.profile == "page" else None,
    ),
    *map(_dtype, ("input", "weight", "output")),
    Rule(
        step="2", name="output-dtype-strict", parameter="output", source=PAGE, switch="strict_output_dtype",
        requirement="of the common type of input and weight",
        violation=lambda call: _as_promoted(call, "output") if call.strict_output_dtype else None,
    ),
    Rule(
        step="2", name="output-dtype-transposed", parameter="output", source=PAGE, transposed=True, profiles=("page",),
        requirement="of the common type of input and weight", violation=lambda call: _as_promoted(call, "output"),
    ),
    *map(_rank, ("input", "weight", "output")),
    *map(_same_rank, ("weight", "output")),
    Rule(
        step="3", name="bias-rank", parameter="bias", requirement="of rank 1", violation=_bias_rank,
        source=f"{PAGE}; {API}",
    ),
    Rule(
        step="3", name="bias-length", parameter="bias", violation=_bias_length, source=f"{PAGE}; {API}",
        requirement="as long as weight.shape[0] (transposed: weight.shape[1] * groups)",
    ),
    *map(_length, ("stride", "dilation", "padding", "outputPadding")),
    Rule(
        step="4", name="output-format-as-input", parameter="output", requirement="of the format of input",
        violation=_output_format, source=API,
    ),
    Rule(
        step="4", name="bias-format", parameter="bias", requirement=f"in {', '.join(BIAS_FORMATS)}",
        violation=_bias_format, source=f"{PAGE}; {API}",
    ),
    *map(_format, ("input", "weight")),
    Rule(
        step="5", name="weight-extents", parameter="weight", requirement="of at least 1 in each extent of the kernel",
        violation=_kernel_empty, source=API,
    ),
    *(
        Rule(
            step="5", name=f"{parameter}-low", parameter=parameter, requirement=f"at least {low} in every entry",
            violation=at_least(parameter, low), source=source,
        )
        for parameter, low, source in (("stride", 1, API), ("dilation", 1, API), ("padding", 0, PAGE))
    ),
    Rule(
        step="5", name="window", parameter="weight", source=f"{PAGE}; {API}", transposed=False,
        requirement="a kernel that, dilated, fits the padded input on every axis, unless input is empty",
        violation=lambda call: windows_violation(call) if call.input is not None and call.input.elems else None,
    ),
    Rule(
        step="5", name="groups-low", parameter="groups", requirement="at least 1", violation=groups_positive,
        source=f"{PAGE}; {API}",
    ),
    Rule(
        step="5", name="channels", parameter="weight", violation=_channels, source=f"{PAGE}; {API}",
        requirement="with weight.shape[1] * groups = the channels of input (transposed: weight.shape[0])",
    ),
    Rule(
        step="5", name="output-padding", parameter="outputPadding", source=f"{PAGE}; {API}", transposed=True,
        requirement="at least 0, and less than the stride or the dilation of its axis", violation=_output_padding,
    ),
    Rule(
        step="5", name="group-rows", parameter="groups", requirement="a divisor of weight.shape[0]",
        violation=group_rows_violation, source=API,
    ),
    Rule(
        step="5", name="input-channels", parameter="input", requirement="with channels", violation=_input_channels,
        source=API, transposed=True,
    ),
    Rule(
        step="5", name="back-padding", parameter="padding", source=API, transposed=True, profiles=("library",),
        requirement=f"such that (kernel - 1) * dilation - padding is at most {MAX_SMALL} in H and W, and in 3D at "
        "least 0, unless a tensor is empty (for four paddings of 2D the second stands for that of W)",
        violation=_back_padding,
    ),
    Rule(
        step="6", name="output-shape", parameter="output", violation=_output_shape, source=f"{PAGE}; {API}",
        requirement="of the shape that the other arguments give",
    ),
    Rule(
        step="6", name="output-empty", parameter="output", requirement="empty where input or weight is",
        violation=_output_empty, source=API,
    ),
    Rule(
        step="7", name="cube-math-type-unknown", parameter="cubeMathType", requirement="0, 1, 2 or 3",
        violation=cube_math_known, source=f"{PAGE}; {API}",
    ),
    Rule(
        step="7", name="cube-math-type-product", parameter="cubeMathType", source=f"{PAGE}; {API}", needs=NO_FP32,
        requirement="1 or 2 where the common type is FP32",
        violation=lambda call: cube_math_violation(call, promoted_dtype(call)),
    ),
    Rule(
        step="7", name="fp32-kept-page", parameter="cubeMathType", needs=SPLIT, profiles=("page",), switch=GIVEN_PAGE,
        requirement="not 0 for FP32 tensors", source=f"{PAGE}; {TESTS} compute it",
        violation=lambda call: _only_page(call, "fp32", 0, "1, 2 or 3"),
    ),
    Rule(
        step="7", name="bf16-as-fp16-page", parameter="cubeMathType", needs=SPLIT, profiles=("page",),
        switch=GIVEN_PAGE, requirement="not 2 for BF16 tensors",
        source=f"{PAGE}; {TESTS} compute it",
        violation=lambda call: _only_page(call, "bf16", 2, "0, 1 or 3"),
    ),
    *map(_extent_range, ("input", "weight", "bias")),
    _range(
        name="kernel-range-transposed", parameter="weight", needs=SPLIT, transposed=True, switch=GIVEN_PAGE,
        requirement=f"in [1, {MAX_SMALL}] in H and W (1D: L)", source=f"{PAGE}; {TESTS} compute larger ones",
        violation=lambda call: kernel_range(call) if call.profile == "page" else None,
    ),
    _range(
        name="kernel-range-3d", parameter="weight", needs=SPLIT, transposed=False, ranks=(5,),
        requirement=f"in [1, {MAX_KERNEL_3D}] in H and W", violation=lambda call: kernel_range(call, MAX_KERNEL_3D),
    ),
    _range(
        name="input-map-range", parameter="input", needs=UNIFIED, ranks=(4, 5), violation=_map_range,
        requirement=f"of at most {MAX_MAP_UNIFIED} in H and W",
    ),
    _range(
        name="kernel-range-unified", parameter="weight", needs=UNIFIED, ranks=(4, 5),
        requirement=f"in [1, {MAX_SMALL}] in D, H and W", violation=lambda call: kernel_range(call, MAX_SMALL, "DHW"),
    ),
    _range(
        name="stride-range-3d", parameter="stride", ranks=(5,), requirement=f"in [1, {MAX_STRIDE_3D}] in H and W",
        violation=at_most("stride", 1, dict.fromkeys("HW", MAX_STRIDE_3D)),
    ),
    _range(
        name="padding-range", parameter="padding", ranks=(3, 4), transposed=False,
        requirement=f"in [0, {MAX_SMALL}] in every entry",
        violation=at_most("padding", 0, dict.fromkeys("LHW", MAX_SMALL)),
    ),
    _range(
        name="padding-range-3d", parameter="padding", ranks=(5,), requirement=f"in [0, {MAX_SMALL}] in H and W",
        violation=at_most("padding", 0, dict.fromkeys("HW", MAX_SMALL)),
    ),
    _range(
        name="dilation-range-transposed", parameter="dilation", transposed=True,
        requirement=f"in [1, {MAX_SMALL}] in every entry",
        violation=at_most("dilation", 1, dict.fromkeys("LDHW", MAX_SMALL)),
    ),
    _range(
        name="dilation-range-3d", parameter="dilation", transposed=False, ranks=(5,),
        requirement=f"in [1, {MAX_SMALL}] in H and W", violation=at_most("dilation", 1, dict.fromkeys("HW", MAX_SMALL)),
    ),
    _range(
        name="groups-range", parameter="groups", requirement=f"in [1, {MAX_GROUPS}]", violation=groups_range,
    ),
    Rule(
        step="10", name="transposed-output-fp32", parameter="output", source=API, transposed=True, needs=SPLIT,
        profiles=("library",), status=AclnnStatus.ACLNN_ERR_RUNTIME_ERROR, violation=_mixed_output,
        requirement="not FP32 where the Cube multiplies FP16 or BF16 tensors with cubeMathType 0, 1 or 3 (no kernel is "
        "registered for it)",
    ),
    Rule(
        step="10", name="no-conv3d", parameter="input", needs=NO_CONV3D, violation=_no_depth,
        status=AclnnStatus.ACLNN_ERR_INNER_NULLPTR,
        source="ASSUMED (the page allows FP16 in 3D on 310P; its kernel is closed and not here)",
        requirement="of rank 3 or 4, or of rank 5 with one plane each of input, weight and output, unpadded in D and "
        "not transposed, which the library computes in 2D",
    ),
)  # fmt: skip
"""Every rule, in the order of the checks. What one kernel cannot do is refused by its plan (561103)."""


def check(call: ConvolutionCall) -> Resolved:
    """Return what ``call`` amounts to, without looking at data; errors as of `ops.common.rule.refuse_breach`."""
    refuse_breach(call, RULES, call_context)
    return resolve(call)

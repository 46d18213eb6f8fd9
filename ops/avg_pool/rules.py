"""The check of a call: one table of rules in the library's order; the first breach decides.

Order and codes follow ops-nn ``pooling/avg_pool3_d_grad/op_api``; where the published page and newer source differ, the
rule says which profile it belongs to. ``RULES.md`` beside this file is the table in words, made by
`ops.avg_pool.rules_page`. Negative extents cannot occur here: no tensor can be made with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.cube_math import CubeMathType
from ops.avg_pool.call import AXIS_NAMES, AvgPoolCall, PoolAxis
from ops.avg_pool.route import MAX_CHANNELS, MAX_DIVISOR, Route, choose_route
from ops.avg_pool.rule import TENSORS, Rule, cube_math_violation, half_kernel_violation, rank_violation, tensor
from ops.common.capability import NO_FP32, SPLIT, UNIFIED
from ops.common.resolved import ResolvedCall
from ops.common.rule import (
    dtype_rule,
    first,
    first_breach,
    null_rule,
    product_rule,
    product_text,
    refuse_breach,
    sentence,
    shape_text,
)
from ops.common.status import AclnnStatus

API = "ops-nn pooling/avg_pool3_d_grad/op_api/aclnn_avgpool2d_backward.cpp"
PAGE = "aclnnAvgPool2dBackward page"
_BOTH = f"{PAGE}; {API}"

_ARRAYS = {"kernelSize": "kernel_size", "stride": "stride", "padding": "padding"}
_FORMATS = ("NCHW", "NCL")


def _same(parameter: str, attribute: str, step: str, *, library_may_differ: bool) -> Rule:
    def violation(call: AvgPoolCall) -> str | None:
        one, other = tensor(call, parameter), call.grad_input
        if library_may_differ and call.profile == "library":
            return None
        if one is None or other is None or getattr(one, attribute) == getattr(other, attribute):
            return None
        values = (str(getattr(desc, attribute)).upper() for desc in (other, one))
        return sentence(f"{parameter} {attribute}", f"{next(values)}, as of gradInput", next(values))

    return Rule(
        step=step,
        name=f"{parameter}-{attribute}-as-gradInput",
        parameter=parameter,
        requirement=f"of the {attribute} of gradInput",
        violation=violation,
        source=PAGE if library_may_differ else API,
        switch='profile="library" not given' if library_may_differ else "",
    )


def _format(parameter: str) -> Rule:
    def violation(call: AvgPoolCall) -> str | None:
        desc = tensor(call, parameter)
        if desc is None or desc.format in _FORMATS:
            return None
        return sentence(f"{parameter} format", " or ".join(_FORMATS), desc.format)

    return Rule(
        step="3",
        name=f"{parameter}-format",
        parameter=parameter,
        requirement="in the format NCHW or NCL",
        violation=violation,
        source=_BOTH,
    )


def _format_4d(call: AvgPoolCall) -> str | None:
    if call.grad_output is None or call.grad_output.rank != 4:
        return None
    for parameter in ("gradOutput", "gradInput"):
        desc = tensor(call, parameter)
        if desc is not None and desc.format != "NCHW":
            return sentence(f"{parameter} format", "NCHW where gradOutput has 4 axes", desc.format)
    return None


def _rank(parameter: str) -> Rule:
    def violation(call: AvgPoolCall) -> str | None:
        return rank_violation(tensor(call, parameter), parameter)

    return Rule(
        step="4",
        name=f"{parameter}-rank",
        parameter=parameter,
        requirement="of rank 3 or 4",
        violation=violation,
        source=_BOTH,
    )


def _equal_ranks(call: AvgPoolCall) -> str | None:
    g, dx = call.grad_output, call.grad_input
    if g is None or dx is None or g.rank == dx.rank:
        return None
    return sentence("gradInput rank", f"{g.rank}, as of gradOutput", dx.rank)


def _array(parameter: str, lengths: tuple[int, ...], least: int) -> Rule:
    field = _ARRAYS[parameter]

    def violation(call: AvgPoolCall) -> str | None:
        values: tuple[int, ...] = getattr(call, field) or ()
        if len(values) not in lengths:
            rule = f"of length {' or '.join(map(str, lengths))}"
            return sentence(parameter, rule, f"{len(values)} ({shape_text(values)})")
        names = AXIS_NAMES if len(values) == 2 else ("",)
        return first(
            sentence(f"{parameter}{name}", f"at least {least}", value)
            for name, value in zip(names, values, strict=False)
            if value < least
        )

    return Rule(
        step="4" if parameter != "padding" else "5",
        name=f"{parameter}-values",
        parameter=parameter,
        requirement=f"{' or '.join(map(str, lengths))} entries of at least {least}",
        violation=violation,
        source=_BOTH,
    )


def _half_kernel(call: AvgPoolCall) -> str | None:
    return half_kernel_violation(call.kernel_size, call.padding, "padding")


def _self_shape(call: AvgPoolCall) -> str | None:
    x, dx = call.input, call.grad_input
    if x is None or dx is None or x.shape == dx.shape:
        return None
    return sentence("self shape", f"{shape_text(dx.shape)}, as of gradInput", shape_text(x.shape))


def _axis_text(axis: PoolAxis) -> str:
    return f"input {axis.x}, kernel {axis.kernel}, stride {axis.stride}, padding {axis.pad}"


def _strict_shape(call: AvgPoolCall) -> str | None:
    g, x = call.grad_output, call.input
    if not call.strict_shape or g is None or x is None:
        return None
    for axis in call.axes:
        expected = axis.expected_y(call.ceil_mode)
        if expected < 1:
            return sentence(f"kernelSize{axis.name}", f"one with a window on {_axis_text(axis)}", axis.kernel)
        if axis.y != expected:
            return sentence(f"gradOutput {axis.name}", f"{expected} ({_axis_text(axis)})", axis.y)
    return _planes(call)


def _planes(call: AvgPoolCall) -> str | None:
    g, x = call.grad_output, call.input
    if g is None or x is None or g.shape[:-2] == x.shape[:-2]:
        return None
    return sentence("gradOutput leading extents", f"{shape_text(x.shape[:-2])}, as of self", shape_text(g.shape[:-2]))


def _plane_count(call: AvgPoolCall) -> str | None:
    planes = 1
    for extent in call.input.shape[:-2] if call.input is not None else ():
        planes *= extent
    return sentence("gradOutput planes", f"{planes}, as of self", call.planes) if planes != call.planes else None


def _convolution_shape(call: AvgPoolCall) -> str | None:
    for axis in call.axes:
        room = axis.x + axis.pad + axis.end_pad - axis.kernel
        if room // axis.stride + 1 != axis.y:
            rule = f"{max(room // axis.stride + 1, 0)} or more ({_axis_text(axis)})"
            return sentence(f"gradOutput {axis.name}", rule, axis.y)
    return _planes(call)


def _channels(call: AvgPoolCall) -> str | None:
    if call.channels <= MAX_CHANNELS:
        return None
    return sentence("self channels", f"at most {MAX_CHANNELS}", call.channels)


def _page_channels(call: AvgPoolCall) -> str | None:
    return _channels(call) if call.profile == "page" else None


def _divisor(call: AvgPoolCall) -> str | None:
    if abs(call.divisor_override) <= MAX_DIVISOR:
        return None
    return sentence("divisorOverride", f"in [-{MAX_DIVISOR}, {MAX_DIVISOR}]", call.divisor_override)


def _no_fp32(call: AvgPoolCall) -> str | None:
    wish = CubeMathType(call.cube_math_type)
    if call.grad_output is None or call.grad_output.dtype != "fp32":
        return None
    if wish not in (CubeMathType.KEEP_DTYPE, CubeMathType.USE_HF32):
        return None
    allowed = f"{CubeMathType.ALLOW_FP32_DOWN_PRECISION.value} (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16)"
    return sentence("cubeMathType", f"{allowed} for FP32 tensors", f"{wish.value} ({wish.name})")


RULES: tuple[Rule, ...] = (
    product_rule(Rule),
    null_rule(Rule, "gradOutput-null", "gradOutput", "grad_output", "a tensor", _BOTH),
    null_rule(Rule, "self-null", "self", "input", "a tensor", _BOTH),
    null_rule(Rule, "kernelSize-null", "kernelSize", "kernel_size", "an array", _BOTH),
    null_rule(Rule, "padding-null", "padding", "padding", "an array", _BOTH),
    null_rule(Rule, "gradInput-null", "gradInput", "grad_input", "a tensor", _BOTH),
    *(dtype_rule(Rule, f"{name}-dtype", name, field, _BOTH) for name, field in TENSORS.items()),
    _same("gradOutput", "dtype", "2", library_may_differ=False),
    _same("self", "dtype", "2", library_may_differ=True),
    *map(_format, TENSORS),
    Rule(
        step="3", name="4d-format", parameter="gradOutput", source=API, violation=_format_4d,
        requirement="in the format NCHW, and so gradInput, if gradOutput has 4 axes",
    ),
    _same("self", "format", "3", library_may_differ=True),
    _rank("gradOutput"),
    _rank("gradInput"),
    Rule(
        step="4", name="gradInput-rank-as-gradOutput", parameter="gradInput", source=API, violation=_equal_ranks,
        requirement="of the rank of gradOutput",
    ),
    _array("kernelSize", (1, 2), 1),
    _array("stride", (0, 1, 2), 1),
    _array("padding", (1, 2), 0),
    Rule(
        step="5", name="padding-half-kernel", parameter="padding", source=_BOTH, violation=_half_kernel,
        requirement="at most half of kernelSize, axis by axis",
    ),
    Rule(
        step="6", name="cubeMathType", parameter="cubeMathType", source=_BOTH, violation=cube_math_violation,
        requirement="one of 0, 1, 2, 3",
    ),
    Rule(
        step="7", name="self-shape", parameter="self", source=API, violation=_self_shape,
        requirement="of the shape of gradInput",
    ),
    Rule(
        step="7", name="gradOutput-shape-strict", parameter="gradOutput", source="meaning of the pooling",
        violation=_strict_shape, requirement="of the shape of the forward output", switch="strict_shape",
    ),
    Rule(
        step="10", name="channels", parameter="self", source=_BOTH, violation=_channels, path="compute",
        needs=UNIFIED, requirement=f"of at most {MAX_CHANNELS} channels",
    ),
    Rule(
        step="10", name="channels-page", parameter="self", source=PAGE, violation=_page_channels, path="compute",
        needs=SPLIT, switch='profile="page" given', requirement=f"of at most {MAX_CHANNELS} channels",
    ),
    Rule(
        step="10", name="divisorOverride", parameter="divisorOverride", source=_BOTH, violation=_divisor,
        path="compute", needs=UNIFIED, requirement=f"in [-{MAX_DIVISOR}, {MAX_DIVISOR}]",
    ),
    Rule(
        step="10", name="divisorOverride-page", parameter="divisorOverride", source=PAGE, violation=_divisor,
        path="compute", needs=SPLIT, profiles=("page",), requirement=f"in [-{MAX_DIVISOR}, {MAX_DIVISOR}]",
    ),
    Rule(
        step="10", name="cubeMathType-fp32-page", parameter="cubeMathType", source=PAGE, violation=_no_fp32,
        path="compute", needs=NO_FP32, profiles=("page",), requirement="1 or 2 for FP32 tensors",
    ),
    Rule(
        step="12", name="cubeMathType-fp32-cube", parameter="cubeMathType", source=API, violation=_no_fp32,
        path="cube", needs=NO_FP32, profiles=("library",), requirement="1 or 2 for FP32 tensors",
    ),
    Rule(
        step="12", name="gradOutput-shape-cube", parameter="gradOutput", source=API, violation=_convolution_shape,
        path="cube",
        requirement="of at least (self - kernelSize) / stride + 1 windows on each axis, rounded down (what lies beyond "
        "self adds nothing), its batch and channels those of self",
    ),
    Rule(
        step="12", name="gradOutput-planes-vector", parameter="gradOutput", violation=_plane_count, path="vector",
        source="ASSUMED (the library does not compare them and reads beyond the tensor)",
        requirement="of as many planes as self",
    ),
    Rule(
        step="12", name="gradOutput-planes-global", parameter="gradOutput", source=API, violation=_planes,
        path="global", status=AclnnStatus.ACLNN_ERR_INNER_NULLPTR, requirement="of the batch and channels of self",
    ),
)  # fmt: skip
"""Every rule, in the order of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(ResolvedCall):
    """A call that passed every rule.

    Attributes
    ----------
    call : AvgPoolCall
        The arguments; no tensor and no array but ``stride`` is None.
    route : Route
        The way it takes.
    """

    call: AvgPoolCall
    route: Route

    @property
    def cube_dtype(self) -> str:
        """What the Cube would multiply, to choose the model of its additions: fp16 where a route does without it."""
        dtype = self.route.compute_dtype
        return dtype if dtype in self.product.cube_dtypes else "fp16"


def find_violation(call: AvgPoolCall) -> tuple[Rule, str] | None:
    """Return the first rule that ``call`` breaks and its sentence, None if it breaks none."""
    return first_breach(call, RULES)


def check(call: AvgPoolCall) -> Resolved:
    """Return what ``call`` amounts to, without looking at data; errors as of `ops.common.rule.refuse_breach`."""
    refuse_breach(call, RULES, product_text)
    return Resolved(call=call, route=choose_route(call))

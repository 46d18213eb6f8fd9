"""The check of a call: one table of rules in the library's order; the first breach decides.

Order and codes follow ops-nn ``pooling/avg_pool3_d/op_api``; where the published page and the source differ, the rule
says which profile it belongs to. ``RULES.md`` beside this file is the table in words, made by
`ops.avg_pool_forward.rules_page`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu_sim.dtypes.cube_math import CubeMathType
from ops.avg_pool.call import AXIS_NAMES, expanded
from ops.avg_pool.rule import cube_math_violation, half_kernel_violation, rank_violation
from ops.avg_pool_forward.call import AvgPool2dCall
from ops.avg_pool_forward.route import Route, choose_route
from ops.common import rule
from ops.common.capability import NO_FP32, SPLIT
from ops.common.resolved import ResolvedCall
from ops.common.rule import (
    dtype_rule,
    first,
    null_rule,
    product_rule,
    product_text,
    refuse_breach,
    sentence,
    shape_text,
)
from ops.common.tensor_desc import TensorDesc

API = "ops-nn pooling/avg_pool3_d/op_api/aclnn_avgpool2d.cpp"
PAGE = "aclnnAvgPool2d page"
_BOTH = f"{PAGE}; {API}"
TESTS = "ops-nn pooling/avg_pool3_d/tests"
GIVEN = 'profile="page" given'

TENSORS = {"self": "input", "out": "output"}
"""Names of the interface and of the fields of `AvgPool2dCall`."""
ARRAYS = {"kernelSize": "kernel_size", "strides": "strides", "paddings": "paddings"}

_FORMAT_OF_RANK = {3: "NCL", 4: "NCHW"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(rule.Rule[AvgPool2dCall]):
    """One rule.

    Attributes
    ----------
    routes : tuple of str
        Routes (`route.RouteName`) it looks at; () for all calls.
    """

    routes: tuple[str, ...] = ()

    def concerns(self, call: AvgPool2dCall) -> bool:
        """Return whether the rule looks at ``call`` at all."""
        return rule.Rule.concerns(self, call) and (not self.routes or choose_route(call).name in self.routes)


def _tensor(call: AvgPool2dCall, parameter: str) -> TensorDesc | None:
    desc: TensorDesc | None = getattr(call, TENSORS[parameter])
    return desc


def _same_dtype(call: AvgPool2dCall) -> str | None:
    x, y = call.input, call.output
    if x is None or y is None or x.dtype == y.dtype:
        return None
    return sentence("out dtype", f"{x.dtype.upper()}, as of self", y.dtype.upper())


def _format(parameter: str) -> Rule:
    def violation(call: AvgPool2dCall) -> str | None:
        desc = _tensor(call, parameter)
        if desc is None or call.input is None:
            return None
        wanted = _FORMAT_OF_RANK.get(call.input.rank)
        allowed = _FORMAT_OF_RANK.values() if wanted is None else (wanted,)
        if desc.format in allowed:
            return None
        return sentence(f"{parameter} format", " or ".join(allowed), desc.format)

    return Rule(
        step="3", name=f"{parameter}-format", parameter=parameter, violation=violation, source=_BOTH,
        requirement="in the format NCHW where self has 4 axes, NCL where it has 3",
    )  # fmt: skip


def _values(parameter: str, least: int) -> Rule:
    def violation(call: AvgPool2dCall) -> str | None:
        values: tuple[int, ...] = getattr(call, ARRAYS[parameter]) or ()
        names = AXIS_NAMES if len(values) == 2 else ("",) * len(values)
        return first(
            sentence(f"{parameter}{name}", f"at least {least}", value)
            for name, value in zip(names, values, strict=True)
            if value < least
        )

    return Rule(
        step="4", name=f"{parameter}-values", parameter=parameter, requirement=f"at least {least} in every entry",
        violation=violation, source=_BOTH,
    )  # fmt: skip


def _rank(call: AvgPool2dCall) -> str | None:
    return rank_violation(call.input, "self")


def _equal_ranks(call: AvgPool2dCall) -> str | None:
    x, y = call.input, call.output
    return None if x is None or y is None or x.rank == y.rank else sentence("out rank", f"{x.rank}, as of self", y.rank)


def _empty_plane(call: AvgPool2dCall) -> str | None:
    if call.input is None or 0 not in call.input.shape[-3:]:
        return None
    return sentence("self", "empty in no axis but N", f"of shape {shape_text(call.input.shape)}")


def _length(parameter: str, lengths: tuple[int, ...]) -> Rule:
    def violation(call: AvgPool2dCall) -> str | None:
        values: tuple[int, ...] = getattr(call, ARRAYS[parameter]) or ()
        if len(values) in lengths:
            return None
        return sentence(f"{parameter} length", " or ".join(map(str, lengths)), f"{len(values)} ({shape_text(values)})")

    return Rule(
        step="5", name=f"{parameter}-length", parameter=parameter, violation=violation, source=_BOTH,
        requirement=f"of length {' or '.join(map(str, lengths))}",
    )  # fmt: skip


def _half_kernel(call: AvgPool2dCall) -> str | None:
    return half_kernel_violation(call.kernel_size, call.paddings, "paddings")


def _windows(call: AvgPool2dCall) -> str | None:
    shape, x = call.output_shape, call.input
    if shape is None or x is None or min(shape[-2:]) > 0:
        return None
    index = 0 if shape[-2] < 1 else 1
    axis, kernel = AXIS_NAMES[index], expanded(call.kernel_size)[index]
    return sentence(f"kernelSize{axis}", f"one with a window on an input of {x.shape[index - 2]}", kernel)


def _output_shape(call: AvgPool2dCall) -> str | None:
    wanted = call.output_shape
    if call.output is None or wanted is None or call.output.shape == wanted:
        return None
    return sentence("out shape", f"{shape_text(wanted)}, as the other arguments give", shape_text(call.output.shape))


def _refused(
    dtype: str | None, wishes: tuple[CubeMathType, ...], *, given_page: bool = False
) -> Callable[[AvgPool2dCall], str | None]:
    """Return the check of a cubeMathType that tensors of ``dtype``, None for any, must not have.

    With ``given_page`` only a call that names the profile "page" is held to it: published tests compute the others.
    """

    def violation(call: AvgPool2dCall) -> str | None:
        x = call.input
        if given_page and call.profile != "page":
            return None
        if x is None or (dtype is not None and x.dtype != dtype) or call.cube_math_type not in wishes:
            return None
        allowed = " or ".join(f"{m.value} ({m.name})" for m in CubeMathType if m not in wishes)
        wish = CubeMathType(call.cube_math_type)
        return sentence("cubeMathType", f"{allowed} for {x.dtype.upper()} tensors", f"{wish.value} ({wish.name})")

    return violation


def _empty(call: AvgPool2dCall) -> str | None:
    if call.profile != "page" or call.input is None or not call.is_empty:
        return None
    return sentence("self", "a tensor with elements", f"empty (shape {shape_text(call.input.shape)})")


_KEEP, _DOWN, _HALF, _HF32 = CubeMathType

RULES: tuple[Rule, ...] = (
    product_rule(Rule),
    null_rule(Rule, "self-null", "self", "input", "a tensor", _BOTH),
    *(null_rule(Rule, f"{name}-null", name, field, "an array", _BOTH) for name, field in ARRAYS.items()),
    null_rule(Rule, "out-null", "out", "output", "a tensor", _BOTH),
    *(dtype_rule(Rule, f"{name}-dtype", name, field, _BOTH) for name, field in TENSORS.items()),
    Rule(
        step="2", name="out-dtype-as-self", parameter="out", source=_BOTH, violation=_same_dtype,
        requirement="of the dtype of self",
    ),
    *map(_format, TENSORS),
    _values("kernelSize", 1),
    _values("strides", 1),
    _values("paddings", 0),
    Rule(
        step="5", name="self-rank", parameter="self", source=_BOTH, violation=_rank,
        requirement="of rank 3 or 4",
    ),
    Rule(
        step="5", name="out-rank", parameter="out", source=API, violation=_equal_ranks,
        requirement="of the rank of self",
    ),
    Rule(
        step="5", name="self-planes", parameter="self", source=API, violation=_empty_plane,
        requirement="empty in no axis but N",
    ),
    _length("kernelSize", (1, 2)),
    _length("paddings", (1, 2)),
    _length("strides", (0, 1, 2)),
    Rule(
        step="5", name="paddings-half-kernel", parameter="paddings", source=_BOTH, violation=_half_kernel,
        requirement="at most half of kernelSize, axis by axis",
    ),
    Rule(
        step="5", name="windows", parameter="kernelSize", source=API, violation=_windows,
        requirement="one with a window on each axis",
    ),
    Rule(
        step="5", name="out-shape", parameter="out", source=_BOTH, violation=_output_shape,
        requirement="of the shape that the other arguments give",
    ),
    Rule(
        step="6", name="cubeMathType", parameter="cubeMathType", source=API, violation=cube_math_violation,
        requirement="one of 0, 1, 2, 3",
    ),
    Rule(
        step="6", name="cubeMathType-fp32", parameter="cubeMathType", source=_BOTH, needs=NO_FP32,
        violation=_refused("fp32", (_KEEP, _HF32)), requirement="1 or 2 for FP32 tensors",
    ),
    Rule(
        step="7", name="cubeMathType-hf32-page", parameter="cubeMathType", source=f"{PAGE}; {TESTS} compute it",
        profiles=("page",), switch=GIVEN, violation=_refused(None, (_HF32,), given_page=True), requirement="0, 1 or 2",
    ),
    Rule(
        step="7", name="cubeMathType-down-page", parameter="cubeMathType", source=f"{PAGE}; {TESTS} compute it",
        profiles=("page",), switch=GIVEN, needs=SPLIT, violation=_refused("fp32", (_DOWN, _HF32), given_page=True),
        requirement="0 or 2 for FP32 tensors",
    ),
    Rule(
        step="7", name="cubeMathType-bf16-page", parameter="cubeMathType", source=PAGE, profiles=("page",), needs=SPLIT,
        violation=_refused("bf16", (_HALF, _HF32)), requirement="0 or 1 for BF16 tensors",
    ),
    Rule(
        step="7", name="empty-page", parameter="self", source=f"{PAGE}; {TESTS} compute it",
        profiles=("page",), switch=GIVEN, violation=_empty, requirement="not empty",
    ),
    Rule(
        step="8", name="cubeMathType-hf32", parameter="cubeMathType", source=API, needs=SPLIT,
        routes=("global", "cube", "cube+mul"), violation=_refused("fp32", (_DOWN, _HF32)),
        requirement="0 or 2 for FP32 tensors",
    ),
)  # fmt: skip
"""Every rule, in the order of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(ResolvedCall):
    """A call that passed every rule.

    Attributes
    ----------
    call : AvgPool2dCall
        The arguments; no tensor and no array is None.
    route : Route
        The way it takes.
    """

    call: AvgPool2dCall
    route: Route


def check(call: AvgPool2dCall) -> Resolved:
    """Return what ``call`` amounts to, without looking at data; errors as of `ops.common.rule.refuse_breach`."""
    refuse_breach(call, RULES, product_text)
    return Resolved(call=call, route=choose_route(call))

"""Rules about the arguments, in the library's order: pointers, types, formats, values, shapes, channels, extents."""

from __future__ import annotations

from npu_sim.dtypes.cube_math import promote
from ops.common.capability import SPLIT, Capability
from ops.common.conv_rules import SUPPORTED_DTYPES, at_least, cube_math_known, groups_positive, windows_violation
from ops.common.rule import (
    STATUS_NULL,
    dtype_violation,
    null_rule,
    sentence,
    shape_text,
)
from ops.conv_backward import predicates
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.rule import (
    TENSORS,
    Path,
    Rule,
    tensor,
)

API = "ops-nn conv/convolution_backward/op_api/aclnn_convolution_backward.cpp"
CHECKER = "ops-nn conv/convolution_backward/op_api/convolution_backward_checker.cpp"
PAGE = "aclnnConvolutionBackward page"

FORMATS_OF_RANK = {3: ("NCL", "ND"), 4: ("NCHW",), 5: ("NCDHW",)}
OUTPUTS = ("gradInput", "gradWeight", "gradBias")
PARTNER_OF_OUTPUT = {"gradInput": "input", "gradWeight": "weight", "gradBias": "gradOutput"}


def _kebab(parameter: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in parameter)


def _null(parameter: str, kind: str) -> Rule:
    field = _kebab(parameter).replace("-", "_")
    return null_rule(Rule, f"{_kebab(parameter)}-null", parameter, field, kind, CHECKER)


def _wanted_null(index: int) -> Rule:
    parameter = OUTPUTS[index]

    def violation(call: ConvBackwardCall) -> str | None:
        if not call.wants(index) or tensor(call, parameter) is not None:
            return None
        return sentence(parameter, f"a tensor where outputMask[{index}] is true", "a null pointer")

    return Rule(
        step="1c",
        name=f"{_kebab(parameter)}-null-but-wanted",
        parameter=parameter,
        requirement=f"a tensor where outputMask[{index}] is true",
        status=STATUS_NULL,
        violation=violation,
        source=CHECKER,
    )


def _dtype(parameter: str) -> Rule:
    return Rule(
        step="2",
        name=f"{_kebab(parameter)}-dtype",
        parameter=parameter,
        requirement="FP32 or FP16, or BF16 where the Cube multiplies it ({bf16})"
        + ("; also where the mask is off" if parameter in OUTPUTS else ""),
        violation=lambda call: dtype_violation(call, TENSORS[parameter], parameter),
        source=f"{PAGE}; {CHECKER}",
    )


def _strict_dtype(parameter: str) -> Rule:
    partner = PARTNER_OF_OUTPUT[parameter]

    def violation(call: ConvBackwardCall) -> str | None:
        desc, one, other = tensor(call, parameter), tensor(call, partner), call.grad_output
        if desc is None or one is None or other is None:
            return None
        if not {desc.dtype, one.dtype, other.dtype} <= set(SUPPORTED_DTYPES):
            return None
        wanted = promote(one.dtype, other.dtype)
        rule = f"{wanted.upper()}, the higher type of {partner} and gradOutput"
        if parameter == "gradBias":
            rule = f"{wanted.upper()}, as of gradOutput"
        return None if desc.dtype == wanted else sentence(f"{parameter} dtype", rule, desc.dtype.upper())

    return Rule(
        step="2",
        name=f"{_kebab(parameter)}-dtype-strict",
        parameter=parameter,
        requirement="the dtype of gradOutput"
        if parameter == "gradBias"
        else f"the higher dtype of {partner} and gradOutput (FP32 for a mix of FP16 and BF16)",
        violation=violation,
        source=f"{PAGE} (the library casts instead)",
        switch="strict_output_dtype",
    )


def _format(parameter: str) -> Rule:
    def violation(call: ConvBackwardCall) -> str | None:
        desc = tensor(call, parameter)
        if desc is None:
            return None
        if desc.rank not in FORMATS_OF_RANK:
            return sentence(f"{parameter} rank", "3, 4 or 5", f"{desc.rank} (shape {shape_text(desc.shape)})")
        allowed = FORMATS_OF_RANK[desc.rank]
        if desc.format in allowed:
            return None
        return sentence(f"{parameter} format", f"{' or '.join(allowed)} for rank {desc.rank}", desc.format)

    return Rule(
        step="3",
        name=f"{_kebab(parameter)}-format",
        parameter=parameter,
        requirement="of rank 3 in NCL or ND, of rank 4 in NCHW, or of rank 5 in NCDHW",
        violation=violation,
        source=f"{PAGE}; {CHECKER}",
    )


def length_rule(parameter: str, *, step: str, name: str, path: Path, needs: Capability | None = None) -> Rule:
    """Return the rule of an array's length; calls with and without empty tensors have it at different places."""
    has_four = parameter in ("padding", "outputPadding")
    return Rule(
        step=step,
        name=name,
        parameter=parameter,
        requirement="of length rank - 2" + (", or 4 for rank 4" if has_four else ""),
        violation=lambda call: predicates.length_violation(call, parameter),
        source=f"{PAGE}; {CHECKER}",
        path=path,
        needs=needs,
    )


ARGUMENT_RULES: tuple[Rule, ...] = (
    *(_null(parameter, "a tensor") for parameter in ("gradOutput", "input", "weight")),
    *(_null(parameter, "an aclIntArray") for parameter in ("stride", "padding", "dilation", "outputPadding")),
    _null("outputMask", "an aclBoolArray"),
    Rule(
        step="1b",
        name="output-mask-length",
        parameter="outputMask",
        requirement="of length 3",
        status=STATUS_NULL,
        violation=predicates.mask_length,
        source=CHECKER,
    ),
    *(_wanted_null(index) for index in range(3)),
    *(_dtype(parameter) for parameter in ("gradOutput", "input", "weight")),
    *(rule for parameter in OUTPUTS for rule in (_dtype(parameter), _strict_dtype(parameter))),
    *(_format(parameter) for parameter in ("gradOutput", "input", "weight", "gradInput", "gradWeight")),
    Rule(
        step="3",
        name="grad-bias-format",
        parameter="gradBias",
        requirement="in ND; not checked elsewhere",
        violation=predicates.bias_format,
        source=f"{PAGE}; {CHECKER}",
        needs=SPLIT,
        transposed=False,
    ),
    *(
        Rule(
            step="4",
            name=f"{parameter}-low",
            parameter=parameter,
            requirement=f"at least {low} in every entry",
            violation=at_least(parameter, low),
            source=f"{PAGE}; {CHECKER}",
        )
        for parameter, low in (("stride", 1), ("padding", 0), ("dilation", 1))
    ),
    Rule(
        step="4",
        name="output-padding-not-zero",
        parameter="outputPadding",
        requirement="0 in every entry with transposed = false (the page says it has no effect)",
        violation=predicates.output_padding_zero,
        source=CHECKER,
        transposed=False,
    ),
    Rule(
        step="4",
        name="output-padding-low",
        parameter="outputPadding",
        requirement="at least 0 in every entry",
        violation=at_least("outputPadding", 0),
        source=f"{PAGE}; {CHECKER}",
        transposed=True,
    ),
    Rule(
        step="4",
        name="output-padding-high",
        parameter="outputPadding",
        requirement="less than the stride of the same axis (1D and 2D: step 13 refuses it through the extents)",
        violation=predicates.output_padding_below_stride,
        source=f"{CHECKER} (the page only has a lower bound)",
        profiles=("library",),
        ranks=(5,),
        transposed=True,
    ),
    Rule(
        step="4",
        name="groups-low",
        parameter="groups",
        requirement="at least 1",
        violation=groups_positive,
        source=f"{PAGE}; {CHECKER}",
    ),
    Rule(
        step="5",
        name="cube-math-type-unknown",
        parameter="cubeMathType",
        requirement="0, 1, 2 or 3",
        violation=cube_math_known,
        source=f"{PAGE}; {CHECKER}",
    ),
    Rule(
        step="5",
        name="cube-math-type-product",
        parameter="cubeMathType",
        requirement="1 or 2 where the common type of the inputs is FP32 and the Cube has no FP32 ({no fp32})",
        violation=predicates.cube_math_available,
        source=f"{PAGE} (an error on Atlas training products; silent on Atlas inference ones); {CHECKER}",
    ),
    Rule(
        step="7",
        name="grad-output-rank",
        parameter="gradOutput",
        requirement="of the rank of input",
        violation=predicates.same_rank("gradOutput", "input"),
        path="shapes",
        source=CHECKER,
    ),
    Rule(
        step="7",
        name="weight-rank",
        parameter="weight",
        requirement="of the rank of input",
        violation=predicates.same_rank("weight", "input"),
        path="shapes",
        source=CHECKER,
    ),
    *(
        Rule(
            step="7",
            name=f"{_kebab(parameter)}-empty",
            parameter=parameter,
            requirement="not empty",
            violation=predicates.not_empty(parameter),
            path="shapes",
            source=f"{PAGE}; {CHECKER}",
        )
        for parameter in ("gradOutput", "weight")
    ),
    *(
        Rule(
            step="7",
            name=f"{_kebab(parameter)}-shape",
            parameter=parameter,
            requirement=f"of the shape of {partner}; also where the mask is off",
            violation=predicates.same_shape(parameter, partner),
            path="shapes",
            source=CHECKER,
        )
        for parameter, partner in (("gradInput", "input"), ("gradWeight", "weight"))
    ),
    Rule(
        step="7",
        name="grad-bias-rank",
        parameter="gradBias",
        requirement="of rank 1; also where the mask is off",
        violation=predicates.bias_rank,
        path="shapes",
        source=CHECKER,
    ),
    Rule(
        step="7",
        name="grad-bias-length",
        parameter="gradBias",
        requirement="as long as gradOutput has channels",
        violation=predicates.bias_extent,
        path="shapes",
        source=CHECKER,
    ),
    *(
        length_rule(parameter, step="7", name=f"{_kebab(parameter)}-length", path="shapes")
        for parameter in ("stride", "dilation", "padding", "outputPadding")
    ),
    Rule(
        step="8",
        name="weight-rows",
        parameter="weight",
        requirement="with weight.shape[0] = the channels of gradOutput (transposed: of input)",
        violation=predicates.weight_rows,
        path="shapes",
        source=CHECKER,
    ),
    Rule(
        step="8",
        name="weight-columns",
        parameter="weight",
        requirement="with weight.shape[1] dividing the channels of input (transposed: of gradOutput)",
        violation=predicates.weight_columns_divide,
        path="shapes",
        source=CHECKER,
    ),
    Rule(
        step="8",
        name="groups-channels",
        parameter="groups",
        requirement="the channels of input (transposed: of gradOutput) over weight.shape[1]",
        violation=predicates.groups_match,
        path="shapes",
        source=f"{PAGE}; {CHECKER}",
    ),
    Rule(
        step="8",
        name="depthwise-channels",
        parameter="groups",
        requirement="a divisor of the channels of gradOutput (transposed: of input) where groups = the channels of "
        "input (transposed: of gradOutput)",
        violation=predicates.depthwise,
        path="shapes",
        source=CHECKER,
    ),
    Rule(
        step="9",
        name="window-3d",
        parameter="weight",
        requirement="a kernel that, dilated, fits the padded input on every axis (transposed: gradOutput)",
        violation=windows_violation,
        path="shapes",
        ranks=(5,),
        source=CHECKER,
    ),
    Rule(
        step="9",
        name="extents-3d",
        parameter="gradOutput",
        requirement="of the extents that input, weight and the attributes give (transposed: input of those of "
        "gradOutput)",
        violation=predicates.extents_violation,
        path="shapes",
        ranks=(5,),
        source=f"{PAGE}; {CHECKER}",
    ),
)
"""Steps 1 to 9. Step 0, null out-parameters, cannot occur in Python, where they are return values."""

"""A planned call in words and numbers: steps, formats, types, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation
from ops.common.conv_plan import conv_facts
from ops.common.explain import call_words, explanation_of
from ops.conv_forward.plan import ConvolutionPlan


def explain_call(plan: ConvolutionPlan, title: str = "aclnnConvolution") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    call = plan.resolved.call
    bias = "none" if call.bias is None else "added" if plan.route.adds_bias else "begins the Cube's sums"
    return explanation_of(
        plan,
        title,
        call_words(
            {"input": call.input, "weight": call.weight, "bias": call.bias},
            {
                "stride": (call.stride or (), 1),
                "padding": (call.padding or (), 0),
                "dilation": (call.dilation or (), 1),
                "outputPadding": (call.output_padding or (), 0),
                "groups": ((call.groups,), 1),
            },
        ),
        conv_facts(plan, call.column, bias=bias),
        notes=plan.route.notes,
    )

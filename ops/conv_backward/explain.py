"""A planned call in words and numbers: steps, formats, types, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation
from ops.common.conv_plan import conv_facts
from ops.common.explain import call_words, explanation_of
from ops.conv_backward.plan import ConvBackwardPlan


def explain_call(plan: ConvBackwardPlan, title: str = "aclnnConvolutionBackward") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    call = plan.resolved.call
    facts = conv_facts(plan, call.profile)
    facts |= {"deterministic": call.deterministic, "quirks": ", ".join(sorted(call.quirks)) or "none"}
    if plan.route.input_gradient_matmul is not None:
        facts["gradInput"] = f"matrix product ({plan.route.input_gradient_matmul})"
    if plan.route.weight_gradient_matmul:
        facts["gradWeight"] = "matrix product"
    words = call_words(
        {"gradOutput": call.grad_output, "input": call.input, "weight": call.weight},
        {
            "stride": (call.stride or (), 1),
            "padding": (call.padding or (), 0),
            "dilation": (call.dilation or (), 1),
            "groups": ((call.groups,), 1),
        },
    )
    return explanation_of(
        plan, title, f"{words}, deterministic" if call.deterministic else words, facts, notes=plan.route.notes
    )

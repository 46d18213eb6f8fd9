"""A planned call in words and numbers: steps, formats, types, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation, Value
from ops.common.explain import call_words, explanation_of
from ops.conv_forward.plan import ConvolutionPlan


def explain_call(plan: ConvolutionPlan, title: str = "aclnnConvolution") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    resolved = plan.resolved
    call = resolved.call
    facts: dict[str, Value] = {
        "route": plan.route.name,
        "transposed": call.transposed,
        "groups": call.groups,
        "bias": "none" if call.bias is None else "added" if plan.route.adds_bias else "begins the Cube's sums",
        "promoted dtype": resolved.promoted_dtype,
        "cubeMathType": call.cube_math_type,
        "the Cube multiplies": resolved.compute_dtype,
        "workspace (bytes)": plan.workspace_bytes,
        "profile": call.column,
    }
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
        facts,
        notes=plan.route.notes,
    )

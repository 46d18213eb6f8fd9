"""A planned call in words and numbers: route, deviations of the library, steps, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation, Value
from ops.avg_pool.call import DEVIATIONS
from ops.avg_pool.plan import AvgPoolPlan
from ops.common.explain import call_words, deviations_tables, explanation_of


def explain_call(plan: AvgPoolPlan, title: str = "aclnnAvgPool2dBackward") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    call, route = plan.resolved.call, plan.route
    gradient = plan.resolved.desc("grad_output")
    facts: dict[str, Value] = {
        "route": route.name,
        "why": route.why,
        "gradOutput": f"{gradient.dtype} {'x'.join(map(str, gradient.shape))}",
        "cubeMathType": call.cube_math_type,
        "computes in": route.compute_dtype,
        "workspace (bytes)": plan.workspace_bytes,
        "profile": call.column,
        "deterministic": call.deterministic,
        "quirks": ", ".join(sorted(call.quirks)) or "none",
        "deviations met": ", ".join(route.deviations) or "none",
    }
    deviations = deviations_tables(DEVIATIONS, route.deviations, call.quirks)
    words = call_words(
        {"gradOutput": call.grad_output, "input": call.input},
        {
            "kernel": (call.kernel_size or (), 0),
            "stride": (call.stride or (), 0),
            "padding": (call.padding or (), 0),
        },
    )
    return explanation_of(plan, title, f"{words}, deterministic" if call.deterministic else words, facts, deviations)

"""A planned call in words and numbers: route, deviations of the library, steps, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation, Value
from ops.avg_pool_forward.call import DEVIATIONS
from ops.avg_pool_forward.plan import AvgPool2dPlan
from ops.common.explain import call_words, deviations_tables, explanation_of

_AI_CPU = "the library computes this call on the AI CPU, which the machine does not have"


def explain_call(plan: AvgPool2dPlan, title: str = "aclnnAvgPool2d") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    call, route = plan.resolved.call, plan.route
    facts: dict[str, Value] = {
        "route": route.name,
        "why": route.why,
        "cubeMathType": call.cube_math_type,
        "computes in": route.compute_dtype,
        "workspace (bytes)": plan.workspace_bytes,
        "profile": call.column,
        "quirks": ", ".join(sorted(call.quirks)) or "none",
        "deviations met": ", ".join(route.deviations) or "none",
    }
    deviations = deviations_tables(DEVIATIONS, route.deviations, route.active)
    return explanation_of(
        plan,
        title,
        call_words(
            {"self": call.input},
            {
                "kernel": (call.kernel_size or (), 0),
                "stride": (call.strides or (), 0),
                "padding": (call.paddings or (), 0),
            },
        ),
        facts,
        deviations,
        notes=(_AI_CPU,) if route.on_ai_cpu else (),
    )

"""A planned call in words and numbers: route, deviations of the library, steps, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation, ExplanationTable, Value
from ops.avg_pool.call import DEVIATIONS
from ops.avg_pool.plan import AvgPoolPlan
from ops.common.explain import steps_table, tiling_facts


def explain_call(plan: AvgPoolPlan, title: str = "aclnnAvgPool2dBackward") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    call, route = plan.resolved.call, plan.route
    gradient = plan.resolved.desc("grad_output")
    facts: dict[str, dict[str, Value]] = {
        "call": {
            "route": route.name,
            "why": route.why,
            "gradOutput": f"{gradient.dtype} {'x'.join(map(str, gradient.shape))}",
            "cubeMathType": call.cube_math_type,
            "computes in": route.compute_dtype,
            "workspace (bytes)": plan.workspace_bytes,
            "profile": call.column,
            "library quirks": ", ".join(sorted(call.library_quirks)) or "none",
        }
    }
    facts.update(tiling_facts(plan.calls))
    rows = tuple(
        (name, text, "on" if name in call.library_quirks else "off", "yes" if name in route.deviations else "no")
        for name, text in DEVIATIONS.items()
    )
    columns = ("name", "what the library does", "library_quirks", "this call meets it")
    return Explanation(
        title=title,
        product=plan.resolved.product,
        facts=facts,
        tables=(
            steps_table(plan.calls),
            ExplanationTable(title="deviations of the library (off by default)", columns=columns, rows=rows),
        ),
        launches=plan.calls.launches,
    )

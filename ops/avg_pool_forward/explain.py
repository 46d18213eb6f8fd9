"""A planned call in words and numbers: route, deviations of the library, steps, tilings, workspace."""

from __future__ import annotations

from npu_sim.report.explain import Explanation, ExplanationTable, Value
from ops.avg_pool_forward.call import DEVIATIONS
from ops.avg_pool_forward.plan import AvgPool2dPlan
from ops.common.explain import call_words, kernel_facts, launch_works, steps_tables

_AI_CPU = "the library computes this call on the AI CPU, which the machine does not have"


def explain_call(plan: AvgPool2dPlan, title: str = "aclnnAvgPool2d") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    call, route = plan.resolved.call, plan.route
    facts: dict[str, dict[str, Value]] = {
        "call": {
            "route": route.name,
            "why": route.why,
            "cubeMathType": call.cube_math_type,
            "computes in": route.compute_dtype,
            "workspace (bytes)": plan.workspace_bytes,
            "profile": call.column,
            "quirks": ", ".join(sorted(call.quirks)) or "none",
            "deviations met": ", ".join(route.deviations) or "none",
        }
    }
    facts.update(kernel_facts(plan.calls))
    rows = tuple((name, DEVIATIONS[name], "on" if name in route.active else "off") for name in route.deviations)
    columns = ("name", "what the library does", "quirks")
    deviations = ExplanationTable(title="deviations of the library that this call meets", columns=columns, rows=rows)
    return Explanation(
        title=title,
        call=call_words(
            {"self": call.input},
            {
                "kernel": (call.kernel_size or (), 0),
                "stride": (call.strides or (), 0),
                "padding": (call.paddings or (), 0),
            },
        ),
        product=plan.resolved.product,
        facts=facts,
        tables=(*steps_tables(plan.calls), *((deviations,) if rows else ())),
        notes=(_AI_CPU,) if route.on_ai_cpu else (),
        launches=plan.calls.launches,
        launch_works=launch_works(plan.calls.steps),
    )

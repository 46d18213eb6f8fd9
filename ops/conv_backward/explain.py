"""A planned call in words and numbers: steps, formats, types, tilings, workspace."""

from __future__ import annotations

import dataclasses

from npu_sim.report.explain import Explanation, ExplanationTable, Value
from ops.common.pipeline import Buffer, CallPlan, PlannedStep
from ops.conv_backward.plan import ConvBackwardPlan

_COLUMNS = ("step", "kernel", "reads", "writes", "cores", "own workspace", "tiling")


def _buffers(buffers: tuple[Buffer, ...]) -> str:
    return "; ".join(
        f"{buffer.name.split('.')[0]} {buffer.dtype} {buffer.format} {'x'.join(map(str, buffer.shape))}"
        for buffer in buffers
    )


def _row(number: int, planned: PlannedStep) -> tuple[Value, ...]:
    step, kernel = planned.step, planned.kernel
    return (
        number,
        step.name,
        _buffers(step.reads),
        _buffers(step.writes),
        ", ".join(str(launch.core_count) for launch in kernel.launches),
        kernel.private_bytes,
        getattr(kernel.tiling, "origin", ""),
    )


def _tiling(planned: PlannedStep) -> dict[str, Value]:
    """Return the plain fields of a tiling record."""
    tiling = planned.kernel.tiling
    if not dataclasses.is_dataclass(tiling) or isinstance(tiling, type):
        return {}
    values = {field.name: getattr(tiling, field.name) for field in dataclasses.fields(tiling)}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}


def tiling_facts(calls: CallPlan) -> dict[str, dict[str, Value]]:
    """Return the tilings of all steps that have one."""
    facts = {f"tiling of step {number}, {step.step.name}": _tiling(step) for number, step in enumerate(calls.steps)}
    return {name: fields for name, fields in facts.items() if fields}


def steps_table(calls: CallPlan) -> ExplanationTable:
    """Return the steps of a call as a table."""
    rows = tuple(_row(number, planned) for number, planned in enumerate(calls.steps))
    return ExplanationTable(title="steps", columns=_COLUMNS, rows=rows)


def explain_call(plan: ConvBackwardPlan, title: str = "aclnnConvolutionBackward") -> Explanation:
    """Return what ``plan`` runs and why; touches no tensor data."""
    resolved = plan.resolved
    call = resolved.call
    facts: dict[str, dict[str, Value]] = {
        "call": {
            "route": plan.route.name,
            "transposed": call.transposed,
            "groups": call.groups,
            "promoted dtype": resolved.promoted_dtype,
            "cubeMathType": call.cube_math_type,
            "the Cube multiplies": resolved.compute_dtype,
            "workspace (bytes)": plan.workspace_bytes,
            "profile": call.profile,
            "quirks": ", ".join(sorted(call.quirks)) or "none",
        }
    }
    if plan.route.input_gradient_matmul is not None:
        facts["call"]["gradInput"] = f"matrix product ({plan.route.input_gradient_matmul})"
    if plan.route.weight_gradient_matmul:
        facts["call"]["gradWeight"] = "matrix product"
    facts.update(tiling_facts(plan.calls))
    return Explanation(
        title=title,
        product=resolved.product,
        facts=facts,
        tables=(steps_table(plan.calls),),
        notes=plan.route.notes,
        launches=plan.calls.launches,
    )

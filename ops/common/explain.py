"""The steps and tilings of a planned call in words and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from npu_sim.report.explain import Explanation, ExplanationTable, Value
from ops.common.pipeline import Buffer, CallPlan, PlannedStep
from ops.common.plan import OperatorPlan
from ops.common.tensor_desc import TensorDesc

_COLUMNS = ("step", "kernel", "reads", "writes", "cores", "workspace bytes", "tiling")


def _buffers(buffers: tuple[Buffer, ...]) -> str:
    return "; ".join(
        f"{buffer.name.split('.')[0]} {buffer.dtype} {buffer.format} {_times(buffer.shape)}" for buffer in buffers
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
    """Return where a tiling record is documented, and its plain fields."""
    tiling = planned.kernel.tiling
    if not dataclasses.is_dataclass(tiling) or isinstance(tiling, type):
        return {}
    values = {field.name: getattr(tiling, field.name) for field in dataclasses.fields(tiling)}
    values = {name: value.name if isinstance(value, Enum) else value for name, value in values.items()}
    plain = {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}
    return {"described by": f"{type(tiling).__module__}.{type(tiling).__name__}", **plain}


def _works_on(planned: PlannedStep, launch: str) -> str:
    """Return the tensors of a step without their shapes; a conversion names its tensor once, a fill what it fills."""
    reads, writes = planned.step.reads, planned.step.writes
    before, after = (sorted({buffer.name.split(".")[0] for buffer in buffers}) for buffers in (reads, writes))
    if launch == "MemSet":
        return ", ".join(after)
    if launch == "ReduceStreamK":
        return f"sums of cores -> {', '.join(after)}"
    if before != after or len(before) != 1:
        return f"{', '.join(before)} -> {', '.join(after)}" if before else ", ".join(after)
    if reads[0].dtype != writes[0].dtype:
        return f"{before[0]} {reads[0].dtype} -> {writes[0].dtype}"
    return f"{before[0]} {reads[0].format} -> {writes[0].format}"


def launch_works(steps: Sequence[PlannedStep]) -> tuple[str, ...]:
    """Return what each launch of some steps works on."""
    return tuple(_works_on(planned, launch.name) for planned in steps for launch in planned.kernel.launches)


def call_words(tensors: Mapping[str, TensorDesc | None], attributes: Mapping[str, tuple[Sequence[int], int]]) -> str:
    """Return which call it was.

    Parameters
    ----------
    tensors : mapping of str to TensorDesc or None
        Null pointers are left out.
    attributes : mapping of str to (sequence of int, int)
        Values along the axes and the one that goes without saying.
    """
    words = [f"{name} {desc.dtype} {_times(desc.shape)}" for name, desc in tensors.items() if desc is not None]
    words += [
        f"{name} {_times(values)}"
        for name, (values, neutral) in attributes.items()
        if any(value != neutral for value in values)
    ]
    return ", ".join(words)


def _times(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents))


def kernel_facts(calls: CallPlan) -> dict[str, dict[str, Value]]:
    """Return the launches of the steps that are launched under other names, and the tilings of those that have one."""
    facts: dict[str, dict[str, Value]] = {
        "launched as": {
            f"step {number}": ", ".join(planned.other_names)
            for number, planned in enumerate(calls.steps)
            if planned.other_names
        }
    }
    facts |= {f"tiling of step {number}, {step.step.name}": _tiling(step) for number, step in enumerate(calls.steps)}
    return {name: fields for name, fields in facts.items() if fields}


def steps_tables(calls: CallPlan) -> tuple[ExplanationTable, ...]:
    """Return the steps of a call as a table, and no table for a call without any."""
    rows = tuple(_row(number, planned) for number, planned in enumerate(calls.steps))
    return (ExplanationTable(title="steps", columns=_COLUMNS, rows=rows),) if rows else ()


def explanation_of(
    plan: OperatorPlan,
    title: str,
    call: str,
    facts: Mapping[str, Value],
    tables: Sequence[ExplanationTable] = (),
    notes: Sequence[str] = (),
) -> Explanation:
    """Return what a planned call of an operator runs and why.

    Parameters
    ----------
    plan : OperatorPlan
        The plan: product, steps, launches.
    title, call : str
        The operator, and which call it was (`call_words`).
    facts : mapping of str to value
        What is known of the call besides.
    tables, notes : sequence
        Behind the table of the steps, and behind all.
    """
    return Explanation(
        title=title,
        call=call,
        product=plan.resolved.product,
        facts={"call": dict(facts), **kernel_facts(plan.calls)},
        tables=(*steps_tables(plan.calls), *tables),
        notes=tuple(notes),
        launches=plan.calls.launches,
        launch_works=launch_works(plan.calls.steps),
    )


def deviations_tables(
    known: Mapping[str, str], met: Sequence[str], active: Collection[str]
) -> tuple[ExplanationTable, ...]:
    """Return the deviations of the library that a call meets, and which are on, as a table; none without any."""
    rows = tuple((name, known[name], "on" if name in active else "off") for name in met)
    columns = ("name", "what the library does", "quirks")
    title = "deviations of the library that this call meets"
    return (ExplanationTable(title=title, columns=columns, rows=rows),) if rows else ()

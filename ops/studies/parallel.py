"""Parts of a precision study computed by several processes at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

from npu_sim.budget import budget_bytes, use_budget
from ops.studies.kinds import Entry, emulator
from ops.studies.layers import AnyLayer, ResultName
from ops.studies.precision_part import run_part
from ops.studies.precision_results import LayerSummary, PrecisionRow, StudyOptions
from ops.studies.registry import kinds_of
from ops.studies.study_parts import Combination, Part

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Task:
    """A part as another process gets it: its kind by name, its tensors or what draws them.

    Attributes
    ----------
    layer, gradient, options
        Of the part.
    calls : tuple
        (entry, product, cubeMathType) of each call.
    budget : int or None
        Bytes it may take; None: what the other process has.
    """

    layer: AnyLayer
    gradient: ResultName
    calls: tuple[tuple[Entry, str, int | None], ...]
    options: StudyOptions
    budget: int | None


def tasks_of(parts: tuple[Part, ...], options: StudyOptions, budget: int | None) -> list[Task]:
    """Return a task for each part."""
    return [
        Task(
            part.layer,
            part.kind.gradient,
            tuple((one.entry, one.product, one.cube_math_type) for one in part.calls),
            options,
            budget,
        )
        for part in parts
    ]


def part_of(task: Task) -> Part:
    """Return the part that a task was made of."""
    (kind,) = kinds_of(task.layer, (task.gradient,))
    calls = tuple(
        Combination(layer=task.layer, kind=kind, entry=entry, product=product, cube_math_type=mode)
        for entry, product, mode in task.calls
    )
    return Part(layer=task.layer, kind=kind, calls=calls)


def run_task(task: Task) -> tuple[LayerSummary, tuple[PrecisionRow, ...]]:
    """Compute a part in this process."""
    with nullcontext() if task.budget is None else use_budget(task.budget):
        return run_part(part_of(task), task.options, emulator())


def run_parts(
    parts: tuple[Part, ...], options: StudyOptions, jobs: int, run: Callable[[Task], Result]
) -> Iterator[tuple[Part, Result]]:
    """Yield parts with their results as they end; threads and memory are shared evenly.

    Parameters
    ----------
    parts : tuple of Part
        What to compute.
    options : StudyOptions
        Of the study.
    jobs : int
        Processes, at most as many as there are parts.
    run : callable
        What a process does with a `Task`; a function of a module.

    Raises
    ------
    NpuSimError
        As ``run``, from the first part that fails; those that have not begun do not begin.
    """
    count = min(jobs, len(parts))
    threads = options.threads or max(1, (os.cpu_count() or 1) // count)
    own = replace(options, threads=threads)
    tasks = tasks_of(parts, own, budget_bytes() // count)
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(run, task): part for part, task in zip(parts, tasks, strict=True)}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            for future in running:
                future.cancel()

"""The tables of ``npu-sim perf``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.table import Table
from rich.text import Text

from npu_sim.engines.intervals import TimeInterval, task_interval
from npu_sim.report.files import write_files
from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli import shapes
from ops.cli.output import console, print_prose
from ops.cli.timing_text import (
    BOUNDS,
    CRITICAL_PATH,
    PIPES,
    advice_words,
    bounds_words,
    calibration,
    critical_path,
    parameters,
    percent,
    wait_words,
)
from ops.studies.calls.planned import BoundedCall, TimedCall
from ops.studies.launch_times import APPROXIMATE, ONE_AFTER_THE_OTHER, LaunchTimes, seconds_words
from ops.studies.scope import Scope
from ops.studies.timing import TimingReport


def print_timing(report: TimingReport) -> None:
    """Print the report of a command."""
    screen = console()
    print_prose(screen, f"Each layer: {report.timed}.", "bold")
    reasons = _parts if report.scope == "call" else _reasons
    for (product, mode), group in groupby(report.rows, key=lambda row: (row.product, row.request.cube_math_type)):
        rows = list(group)
        chip = rows[0].chip
        name = chip.name if product == chip.name else f"{product} = {chip.name}"
        mode_words = "" if mode is None else f", cubeMathType {mode}"
        screen.print(Text(f"{name}{mode_words}: {parameters(chip)}", style="bold"))
        results = [row.result for row in rows if row.result is not None]
        if len(results) == 1:
            print_prose(screen, _headline(results[0]), "bold")
        if results:
            for table in (*_times(results, report.scope, screen.width), *reasons(results, screen.width)):
                screen.print(table)
        for line in _kernel_lines(results):
            print_prose(screen, line)
        for line in shapes.refusal_lines((row.request.name, row.refusal) for row in rows):
            print_prose(screen, line)
        screen.print()
    for product, changes in (report.advice or {}).items():
        refused = sum(row.product == product and row.result is None for row in report.rows)
        for line in advice_words(changes, product, refused):
            print_prose(screen, line)
    for line in _legend(report):
        print_prose(screen, line)


def write_timing(
    report: TimingReport, json_path: str | None, json_file: Path | None, more: Mapping[Path, bytes] | None = None
) -> None:
    """Write the report as JSON to ``json_file`` and other files, and print it; with "-" its JSON alone."""
    text = report.to_json() + "\n"
    contents = {**({} if json_file is None else {json_file: text.encode()}), **(more or {})}
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(text)
        return
    print_timing(report)
    for path in contents:
        console().print(f"written: {path}", soft_wrap=True)


def _headline(result: BoundedCall) -> str:
    """Return what is said of one call first: its time, how sure that is, and what takes most of it."""
    task, pipe = result.task, result.busiest_pipe
    doubt = "" if task.is_calibrated else ", a guess"
    words = (
        f"{result.request.name} takes {seconds_words(task.seconds)} ({seconds_words(task.low_seconds)} to "
        f"{seconds_words(task.high_seconds)}{doubt}), by an estimate."
    )
    if not pipe:
        return words
    parts = _seconds_by_step(result)
    longest = max(parts, key=parts.__getitem__)
    most = "" if len(parts) == 1 else f" {longest} takes {percent(parts[longest] / task.seconds)} of it;"
    path = critical_path(result.critical_shares)
    return f"{words}{most} {pipe} is busy longest ({percent(result.pipe_shares[pipe])}). Critical path: {path}."


def _seconds_by_step(result: BoundedCall) -> dict[str, float]:
    """Return the task time of steps by their name."""
    parts: dict[str, float] = {}
    for step, times in result.by_step:
        parts[step.step.name] = parts.get(step.step.name, 0.0) + times.task_seconds
    return parts


def _kernel_lines(results: Sequence[BoundedCall]) -> Iterator[str]:
    """Yield what each step launches that is not called like its one kernel, in the first call that has it."""
    seen: set[str] = set()
    for result in results:
        for step, times in result.by_step:
            name = step.step.name
            if name not in seen and [launch.launch for launch in times.launches] != [name]:
                kernels = ", ".join(f"{one.launch} {_microseconds(one.task_seconds())}" for one in times.launches)
                yield f"{name} of {result.request.name} launches {kernels}."
            seen.add(name)


def _times(results: Sequence[BoundedCall], scope: Scope, width: int) -> list[Table]:
    is_call = scope == "call"
    cores, kernel = ("launches", ["kernel us"]) if is_call else ("cores", [])
    headings = ("layer", "Cube", cores, "cycles", "us", "task us", "low", "high", *kernel, "of peak", *PIPES, "busiest")
    rows = [
        (
            result.request.name,
            result.planned.compute_dtype or "-",
            str(len(result.launches) if is_call else result.core_count),
            *_figures(result, result.task, result.cube_utilisation, [result.kernel] if is_call else []),
        )
        for result in results
    ]
    if len(results) > 1:
        every = LaunchTimes(launches=tuple(launch for result in results for launch in result.launches))
        peak = sum(result.cube_utilisation * result.total_cycles for result in results) / max(every.total_cycles, 1)
        kernels = [LaunchTimes(launches=tuple(one for result in results for one in result.kernel.launches))]
        total = str(len(every.launches)) if is_call else ""
        task = task_interval(one for result in results for one in result.bounds)
        figures = _figures(every, task, peak, kernels if is_call else [])
        rows.append((f"{len(results)} {scope}s", "", total, *figures))
    return fitted_tables(
        headings, rows, width=width, left=("layer", "Cube", "busiest"), breaks=PIPES[:1], styles={len(results): "bold"}
    )


def _figures(times: LaunchTimes, task: TimeInterval, peak: float, kernels: Sequence[LaunchTimes]) -> tuple[str, ...]:
    """Return the cells from "cycles" on."""
    pipes, busiest = times.pipe_shares, times.busiest_pipe
    return (
        str(times.total_cycles),
        _microseconds(times.seconds),
        _microseconds(task.seconds),
        *bounds_words(task),
        *(_microseconds(kernel.task_seconds) for kernel in kernels),
        percent(peak, 1) if peak else "-",
        *(percent(pipes.get(pipe, 0.0)) for pipe in PIPES),
        f"{busiest} {percent(pipes[busiest])}" if busiest else "-",
    )


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def _parts(results: Sequence[BoundedCall], width: int) -> list[Table]:
    """Return which steps of each call its time goes to."""
    headings = ("layer", "task us of the launches, by step", "tiling of the kernel")
    rows = []
    for result in results:
        parts = _seconds_by_step(result)
        words = ", ".join(f"{name} {_microseconds(seconds)}" for name, seconds in parts.items()) or "nothing launched"
        rows.append((result.request.name, words, _tiling(result)))
    return fitted_tables(headings, rows, width=width, left=headings)


def _reasons(results: Sequence[BoundedCall], width: int) -> list[Table]:
    headings = ("layer", "Cube waits for", "critical path of the kernel", "tiling of the kernel")
    rows = []
    for result in results:
        cause = result.largest_cube_wait
        cells = (
            result.request.name,
            f"{wait_words(cause)} {percent(result.cube_wait_shares[cause])}" if cause else "no kernel multiplies",
            critical_path(result.critical_shares),
            _tiling(result),
        )
        rows.append(cells)
    return fitted_tables(headings, rows, width=width, left=headings)


def _tiling(result: TimedCall) -> str:
    return result.planned.tiling_origin.partition(" (")[0] or "-"


def _legend(report: TimingReport) -> Iterator[str]:
    rows = sum(row.result.row_count for row in report.computed if row.result is not None)
    refused = len(report.rows) - len(report.computed)
    combinations = counted(len(report.rows), "combination")
    yield f"layers: {report.source}. {combinations}: {refused} refused; {counted(rows, 'instruction')} timed."
    if report.scope == "call":
        kernel = f"{CRITICAL_PATH} kernel us: the kernel's part of task us, more of which --scope kernel shows. "
    else:
        kernel = f"{CRITICAL_PATH} --scope call times the calls around these kernels. "
    yield (
        f"us: core time; task us: with launch overhead; {BOUNDS} of peak: "
        "multiply-adds of the layer over what all Cubes could do in the core time. "
        f"Pipes: occupied share of the core time on the slowest core. {kernel}".rstrip()
    )
    yield f"{APPROXIMATE} {ONE_AFTER_THE_OTHER}"
    yield from dict.fromkeys(calibration(row.chip) for row in report.rows)

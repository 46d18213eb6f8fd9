"""How long the operator calls of a Python file take: a table of launches and a total for every call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from npu_sim.engines.intervals import LaunchBounds, bound_launch, task_interval
from npu_sim.report.explain import Explanation
from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli import scripts
from ops.cli.effort import announce
from ops.cli.output import console, print_prose
from ops.cli.shapes import progress_bar
from ops.cli.timing_text import BOUNDS, CRITICAL_PATH, PIPES, bounds_words, calibration, critical_path, percent
from ops.cli.trace_files import TraceFiles, read_trace_files
from ops.cli.usage import output_path
from ops.studies.effort import TIMING_ROWS_PER_SECOND, launches_effort
from ops.studies.launch_times import APPROXIMATE, ONE_AFTER_THE_OTHER, LaunchTimes, describe_parameters
from ops.studies.launch_trace import TracedLaunch

NOTE = f"{APPROXIMATE} {ONE_AFTER_THE_OTHER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall(LaunchTimes):
    """One call of an operator, or one kernel, with the times of its launches.

    Attributes
    ----------
    made : Explanation
        What it did.
    bounds : tuple of LaunchBounds
        Of each launch.
    """

    made: Explanation
    bounds: tuple[LaunchBounds, ...]


def time_script(
    file: str,
    arguments: Sequence[str],
    products: Sequence[str] | None,
    json_path: str | None,
    trace: str | None,
    trace_cores: Sequence[int] | None,
    op_prof: str | None,
    *,
    yes: bool,
    show_progress: bool,
) -> int:
    """Run a script and time what its operators launched; return the exit code."""
    product = scripts.one_product(products)
    files = read_trace_files(trace, trace_cores, op_prof, file, (output_path("--json", json_path, file),))
    outcome = scripts.run_script(file, arguments, product, explain=True, quiet=json_path == "-")
    scripts.hold_to_product(outcome, file, product)
    return report_times(outcome, file, json_path, files, yes=yes, show_progress=show_progress)


def report_times(
    outcome: scripts.Outcome, file: str, json_path: str | None, files: TraceFiles, *, yes: bool, show_progress: bool
) -> int:
    """Time what was launched, print and write it; return the exit code."""
    every = [launch for made in outcome.explanations for launch in made.launches]
    announce(launches_effort(every, TIMING_ROWS_PER_SECOND), yes=yes)
    calls = []
    with progress_bar(shown=show_progress) as progress:
        for number, made in enumerate(outcome.explanations):
            if progress:
                progress(number, len(outcome.explanations), made.title)
            calls.append(time_call(made))
    has_launches = any(call.launches for call in calls)
    more: dict[Path, bytes] = {}
    launches = list(traced_launches(calls))
    more |= files.contents(launches)
    if json_path != "-":
        print_calls(calls, console())
    scripts.write_report(_document(file, calls), json_path, file, more)
    files.write_folder(launches, quiet=json_path == "-")
    return 1 if outcome.code or not has_launches else 0


def time_call(made: Explanation) -> TimedCall:
    """Return a call with its times."""
    bounds = tuple(bound_launch(launch, made.product) for launch in made.launches)
    return TimedCall(made=made, launches=tuple(one.expected for one in bounds), bounds=bounds)


def traced_launches(calls: Sequence[TimedCall]) -> Iterator[TracedLaunch]:
    """Yield every launch with its times and what a trace calls it."""
    for number, call in enumerate(calls):
        made = call.made
        for launch, result, works_on in zip(made.launches, call.launches, made.works_of_launches(), strict=True):
            words = f"{launch.name} ({works_on})" if works_on else launch.name
            yield TracedLaunch(made.product, launch, result, f"call {number}, {made.title}: {words}")


def _document(file: str, calls: Sequence[TimedCall]) -> dict[str, Any]:
    chips = {call.made.product.name: call.made.product for call in calls}
    tasks = [task_interval(call.bounds) for call in calls]
    return {
        "schema_version": scripts.SCHEMA_VERSION,
        "source": file,
        "note": NOTE,
        "products": {name: describe_parameters(chip) for name, chip in chips.items()},
        "calls": [
            {
                "title": call.made.title,
                "call": call.made.call,
                "product": call.made.product.name,
                "is_finished": call.made.is_finished,
                "launch_count": len(call.launches),
                "total_cycles": call.total_cycles,
                "seconds": call.seconds,
                "task_seconds": call.task_seconds,
                "low_task_seconds": task.low_seconds,
                "high_task_seconds": task.high_seconds,
                "is_calibrated": task.is_calibrated,
            }
            for call, task in zip(calls, tasks, strict=True)
        ],
        "launches": [
            {"title": call.made.title, "call_number": number, "works_on": works_on, **json.loads(result.to_json())}
            for number, call in enumerate(calls)
            for result, works_on in zip(call.launches, call.made.works_of_launches(), strict=True)
        ],
    }


def print_calls(calls: Sequence[TimedCall], screen: Console) -> None:
    """Print a table of the launches of each call, and the sum."""
    for call in calls:
        print_prose(screen, call.made.heading, "bold")
        if not call.launches:
            screen.print("  nothing was launched")
        for table in _launch_tables(call, screen.width):
            screen.print(table)
        screen.print()
    timed = [call for call in calls if call.launches]
    if not timed:
        screen.print("nothing to time: no operator of the file launched a kernel")
        return
    if len(timed) > 1:
        seconds, task = sum(call.seconds for call in timed), task_interval(one for call in timed for one in call.bounds)
        launches = counted(sum(len(call.launches) for call in timed), "launch")
        words = f"{counted(len(timed), 'call')}, {launches}: {_microseconds(seconds)} us, with launch overhead "
        low, high = (_microseconds(bound) for bound in (task.low_seconds, task.high_seconds))
        screen.print(Text(f"{words}{_microseconds(task.seconds)} us ({low} to {high})", style="bold"))
    print_prose(
        screen,
        f"us: core time; task us: with launch overhead; {BOUNDS} Pipes: occupied share of the core time on the slowest "
        f"core. {CRITICAL_PATH}",
    )
    print_prose(screen, NOTE)
    for chip in {call.made.product.name: call.made.product for call in timed}.values():
        print_prose(screen, f"{chip.name} at {chip.timing_clock_hz / 1e6:.0f} MHz, parameter set {calibration(chip)}")


def _launch_tables(call: TimedCall, width: int) -> list[Table]:
    if not call.launches:
        return []
    works_of_launches = call.made.works_of_launches()
    rows = [
        (
            f"{number} {result.launch}" if len(call.launches) > 1 else result.launch,
            works_on,
            str(result.core_count),
            *_figures(LaunchTimes(launches=(result,)), call.bounds[number : number + 1]),
        )
        for number, (result, works_on) in enumerate(zip(call.launches, works_of_launches, strict=True))
    ]
    if len(rows) > 1:
        rows.append((f"{len(rows)} launches", "", "", *_figures(call, call.bounds)))
    headings: list[str] = [
        "launch", "works on", "cores", "cycles", "us", "task us", "low", "high", *PIPES, "critical path",
    ]  # fmt: skip
    shown = [i for i, heading in enumerate(headings) if heading != "works on" or any(works_of_launches)]
    return fitted_tables(
        [headings[i] for i in shown],
        [[row[i] for i in shown] for row in rows],
        width=width,
        left=("launch", "works on", "critical path"),
        breaks=(PIPES[0], "critical path"),
        styles={len(call.launches): "bold"},
    )


def _figures(times: LaunchTimes, bounds: Sequence[LaunchBounds]) -> tuple[str, ...]:
    """Return the cells from "cycles" on."""
    shares, task = times.pipe_shares, task_interval(bounds)
    return (
        str(times.total_cycles),
        _microseconds(times.seconds),
        _microseconds(task.seconds),
        *bounds_words(task),
        *(percent(shares.get(pipe, 0.0)) for pipe in PIPES),
        critical_path(times.critical_shares),
    )


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"

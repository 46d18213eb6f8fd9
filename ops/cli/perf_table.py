"""The tables of ``npu-sim perf``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table
from rich.text import Text

from npu_sim.report.record import counted
from ops.cli import shapes
from ops.cli.output import console, print_prose
from ops.cli.tables import fitted_tables
from ops.cli.timing_text import PIPES, calibration, critical_path, parameters, percent
from ops.studies import timing
from ops.studies.timing import TimingReport, TimingResult, TimingRow

_WAITS = {"barrier": "a barrier", "issue": "its instructions", "queue_full": "a full queue", "end": "end of the phase"}


def print_timing(report: TimingReport) -> None:
    """Print the report of a command."""
    screen = console()
    print_prose(screen, f"Each layer: {timing.TIMED}.", "bold")
    for (product, mode), group in groupby(report.rows, key=lambda row: (row.product, row.cube_math_type)):
        rows = list(group)
        chip = rows[0].chip
        name = chip.name if product == chip.name else f"{product} = {chip.name}"
        screen.print(Text(f"{name}, cubeMathType {mode}: {parameters(chip)}", style="bold"))
        results = [(row, row.result) for row in rows if row.result is not None]
        if results:
            for table in (*_times(results, screen.width), *_reasons(results, screen.width)):
                screen.print(table)
        if len(results) > 1:
            print_prose(
                screen, f"not in this sum: the {timing.WITHOUT} of whole calls, which can take several times as much"
            )
        for line in shapes.refusal_lines(rows):
            print_prose(screen, line)
        screen.print()
    for line in _legend(report):
        print_prose(screen, line)


def _times(results: Sequence[tuple[TimingRow, TimingResult]], width: int) -> list[Table]:
    headings = ("layer", "Cube", "cores", "cycles", "us", "task us", "of peak", *PIPES, "kernel busiest")
    rows = []
    for row, result in results:
        pipes = result.pipe_shares
        cells = (
            row.case.name,
            result.plan.compute_dtype,
            str(result.core_count),
            str(result.total_cycles),
            f"{result.seconds * 1e6:.1f}",
            f"{result.task_seconds * 1e6:.1f}",
            percent(result.cube_utilisation, 1),
            *(percent(pipes[pipe]) for pipe in PIPES),
            f"{result.busiest_pipe} {percent(pipes[result.busiest_pipe])}",
        )
        rows.append(cells)
    if len(results) > 1:
        timed = [result for _, result in results]
        total = sum(result.total_cycles for result in timed)
        peak = sum(result.cube_utilisation * result.total_cycles for result in timed) / total
        pipes = {
            pipe: sum(result.pipe_shares[pipe] * result.total_cycles for result in timed) / total for pipe in PIPES
        }
        busiest = max(PIPES, key=lambda pipe: pipes[pipe])
        cells = (
            f"{len(timed)} kernels",
            "",
            "",
            str(total),
            f"{sum(result.seconds for result in timed) * 1e6:.1f}",
            f"{sum(result.task_seconds for result in timed) * 1e6:.1f}",
            percent(peak, 1),
            *(percent(pipes[pipe]) for pipe in PIPES),
            f"{busiest} {percent(pipes[busiest])}",
        )
        rows.append(cells)
    styles = {len(results): "bold"}
    left = ("layer", "Cube", "kernel busiest")
    return fitted_tables(headings, rows, width=width, left=left, breaks=PIPES[:1], styles=styles)


def _reasons(results: Sequence[tuple[TimingRow, TimingResult]], width: int) -> list[Table]:
    headings = ("layer", "Cube waits for", "critical path of the kernel", "tiling")
    rows = []
    for row, result in results:
        cause = result.largest_cube_wait
        words = _WAITS.get(cause) or cause.removeprefix("flag_")
        cells = (
            row.case.name,
            f"{words} {percent(result.cube_wait_shares[cause])}",
            critical_path(result.critical_shares),
            result.plan.tiling.origin.partition(" (")[0],
        )
        rows.append(cells)
    return fitted_tables(headings, rows, width=width, left=headings)


def _legend(report: TimingReport) -> Iterator[str]:
    rows = sum(row.result.row_count for row in report.computed if row.result is not None)
    refused = len(report.rows) - len(report.computed)
    combinations = counted(len(report.rows), "combination")
    yield f"layers: {report.source}. {combinations}: {refused} refused; {counted(rows, 'instruction')} timed."
    yield (
        "us: core time of the kernels; task us: with launch overhead. of peak: multiply-adds of the layer over what "
        "all Cubes could do in the core time. Pipes: occupied share of the core time on the slowest core. Critical "
        "path: fixed is the kernel's prologue and epilogue, barrier the one between phases."
    )
    yield timing.APPROXIMATE
    yield from dict.fromkeys(calibration(row.chip) for row in report.rows)

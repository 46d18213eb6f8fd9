"""``npu-sim perf``: how long weight gradients take, and why, without touching tensor data."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from npu_sim.report.record import counted
from ops.cli import scripts, shapes
from ops.cli.effort import YesOption, announce
from ops.cli.output import console, note_compilation, print_prose, write_files
from ops.cli.script_times import time_script
from ops.cli.tables import fitted_tables
from ops.cli.timing_text import PIPES, calibration, critical_path, parameters, percent
from ops.studies import timing
from ops.studies.effort import timing_effort
from ops.studies.timing import TimingReport, TimingResult, TimingRow

_WAITS = {"barrier": "a barrier", "issue": "its instructions", "queue_full": "a full queue", "end": "end of the phase"}


def perf_command(
    file: shapes.FileArgument = None,
    arguments: shapes.ScriptArguments = None,
    model: shapes.ModelOption = None,
    batch: shapes.BatchOption = None,
    x: shapes.XOption = None,
    weight: shapes.WeightOption = None,
    stride: shapes.StrideOption = None,
    padding: shapes.PaddingOption = None,
    dilation: shapes.DilationOption = None,
    groups: shapes.GroupsOption = None,
    product: shapes.ProductOption = None,
    cube_math_type: shapes.ModeOption = None,
    layer: shapes.LayerOption = None,
    dtype: shapes.DtypeOption = None,
    json_path: shapes.JsonOption = None,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Chrome trace (Perfetto) of one layer, product and mode, or of all launches of a Python file.",
        ),
    ] = None,
    trace_core: Annotated[
        list[int] | None, typer.Option("--trace-core", help="Core in the trace; repeatable. Default: all.")
    ] = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Time kernels of weight gradients (a file, a network, one shape) or a Python file.

    Of a weight gradient the kernel alone is timed: the layout conversions, casts
    and input gradient of a whole backward call can take several times as much.
    No tensor data is touched, except by a Python file, which is run, on its own
    product unless --product names one. Such a file is the way to time whole
    backward calls and every other operator: average pooling, Ascend C kernels.

    Exit code 0: something was timed; 1: every combination is refused, or the
    Python file ended with an error or launched nothing; 2: bad input, or too
    much work without --yes; 3: internal error; 130: interrupted.
    """
    if file is not None and scripts.is_script(file):
        scripts.refuse_options(
            {
                "--model": model, "--batch": batch, "--x": x, "--weight": weight, "--stride": stride,
                "--padding": padding, "--dilation": dilation, "--groups": groups, "--layer": layer, "--dtype": dtype,
                "--cube-math-type": cube_math_type,
            }
        )  # fmt: skip
        raise typer.Exit(
            time_script(
                file, arguments or (), product, json_path, trace, trace_core, yes=yes, show_progress=not no_progress
            )
        )
    shapes.refuse_arguments(arguments)
    given = shapes.ShapeOptions(x=x, weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    cases = shapes.read_cases(file, model, batch, given, dtype=dtype, layers=layer)
    products, modes = shapes.read_products(product), shapes.read_modes(cube_math_type)
    json_file = shapes.output_path("--json", json_path, file)
    if trace == "-":
        raise shapes.UsageError("--trace must be a file, not standard output")
    trace_file = shapes.output_path("--trace", trace, file, (json_file,))
    if trace_core and trace_file is None:
        raise shapes.UsageError("--trace-core must be given together with --trace")
    combinations = len(cases.cases) * len(products) * len(modes)
    if trace_file is not None and combinations != 1:
        raise shapes.UsageError(
            f"--trace must come with one --layer, --product and --cube-math-type, not {combinations} combinations"
        )
    note_compilation()
    announce(timing_effort(cases, products, modes), yes=yes)
    with shapes.progress_bar(shown=not no_progress) as progress:
        report = timing.run_timing(cases, products, modes, progress=progress)
    contents: dict[Path, bytes] = {}
    json_text = report.to_json() + "\n"
    if json_file is not None:
        contents[json_file] = json_text.encode()
    if trace_file is not None and report.rows[0].result is not None:
        document = timing.trace_result(report.rows[0].result, tuple(trace_core) if trace_core else None)
        contents[trace_file] = json.dumps(document, allow_nan=False).encode()
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(json_text)
    else:
        _print(report)
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    raise typer.Exit(0 if report.computed else 1)


def _print(report: TimingReport) -> None:
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

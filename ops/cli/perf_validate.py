"""``npu-sim perf --validate``: predicted against published times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.report.files import write_files
from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli import shapes
from ops.cli.output import console, note_compilation, print_prose
from ops.cli.usage import UsageError, output_path

if TYPE_CHECKING:
    from ops.studies.validation import Agreement, ValidationReport


def perf_validate_command(
    validate: Annotated[bool, typer.Option("--validate", help="Compare with published times.")] = False,
    operator: Annotated[
        list[str] | None, typer.Option("--operator", help="Only this, such as cast; repeatable. Default: all.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="List every row whose measured time is not between low and high.")
    ] = False,
    picture: Annotated[
        str | None, typer.Option("--picture", metavar="FILE", help="Draw all rows: .png, .svg or .pdf.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Processes. Default: one for each CPU.")] = None,
    json_path: shapes.JsonOption = None,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Predict the published times that ship, and say how far off each is.

    Kernels of profiles, whole calls of benchmarks and CANN's tuning records, each
    with its public source, beside the baseline "peak + constant": operations at
    the Cubes' peak or bytes at the memory's bandwidth, and a constant per chip.

    Exit code 0: something was predicted; 1: nothing was; 2: bad input; 3:
    internal error; 130: interrupted.
    """
    # Imported here: they load the compiler, which the help does not need.
    from ops.cli import validation_picture
    from ops.studies.calls.request_items import operator_name
    from ops.studies.validation import validate as compare_all

    names = None if operator is None else tuple(map(operator_name, operator))
    json_file = output_path("--json", json_path, None)
    picture_file = output_path("--picture", picture, None, (json_file,))
    if picture == "-":
        raise UsageError("--picture must be a file, not standard output")
    if picture_file is not None:
        if picture_file.suffix not in validation_picture.SUFFIXES:
            raise UsageError(f"--picture must end in {', '.join(validation_picture.SUFFIXES)}, not {picture}")
        validation_picture.require_matplotlib()
    note_compilation()
    with shapes.progress_bar(shown=not no_progress) as progress:
        report = compare_all(names, jobs, progress)
    if not report.rows:
        raise UsageError(f"--operator must be one with published times, not {', '.join(operator or ())}")
    text = report.to_json() + "\n"
    contents: dict[Path, bytes] = {} if json_file is None else {json_file: text.encode()}
    if picture_file is not None:
        contents[picture_file] = validation_picture.draw(report, picture_file.suffix)
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(text)
    else:
        _print(report, details=details)
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    raise typer.Exit(0 if any(not one.error for one in report.rows) else 1)


def _print(report: ValidationReport, *, details: bool) -> None:
    from ops.studies.validation import HALVES, agreement

    screen = console()
    print_prose(screen, conclusion(report), "bold")
    headings = (
        "what", "n", "median", "p90", "held", "median*", "p90*", "bias", "inside", "width", "base", "base90",
    )  # fmt: skip
    rows = []
    for (product, operator, scope), found in report.groups.items():
        halves = [agreement([one for one in found if one.row.half == half]) for half in HALVES]
        every = agreement(found)
        if every is not None:
            rows.append(
                (
                    f"{product.removeprefix('Ascend')} {operator} {scope}",
                    *_half(halves[0]),
                    *_half(halves[1]),
                    *_rest(every),
                )
            )
    total = agreement(report.rows)
    if total is not None:
        halves = [agreement(report.half(half)) for half in HALVES]
        rows.append(("all", *_half(halves[0]), *_half(halves[1]), *_rest(total)))
    for table in fitted_tables(
        headings, rows, width=screen.width, left=("what",), breaks=("bias",), styles={len(rows) - 1: "bold"}
    ):
        screen.print(table)
    for line in _legend(report):
        print_prose(screen, line)
    if details:
        _print_misses(report)


def _half(one: Agreement | None) -> tuple[str, str, str]:
    return ("0", "-", "-") if one is None else (str(one.count), f"x{one.median:.2f}", f"x{one.p90:.2f}")


def _rest(one: Agreement) -> tuple[str, ...]:
    return (
        f"x{one.bias:.2f}",
        f"{one.coverage:.0%}",
        f"x{one.width:.2f}",
        f"x{one.baseline_median:.2f}",
        f"x{one.baseline_p90:.2f}",
    )


def conclusion(report: ValidationReport) -> str:
    """Return what the comparison comes to, in a sentence."""
    from ops.studies.validation import agreement

    held = agreement(report.half("validation")) or agreement(report.rows)
    if held is None:
        return "Nothing was predicted."
    return (
        f"Half of {held.count} published times are predicted within x{held.median:.2f}, nine of ten within "
        f"x{held.p90:.1f}; by peak + constant within x{held.baseline_median:.2f} and x{held.baseline_p90:.1f}."
    )


def _legend(report: ValidationReport) -> Iterator[str]:
    refused = sum(bool(one.error) for one in report.rows)
    missed = len(report.misses) - refused
    yield (
        f"{counted(len(report.rows), 'row')}: {refused} without a prediction; {missed} with a measured time not "
        "between low and high, which --details lists."
    )
    yield (
        "median, p90: ratio of the larger to the smaller time. n: rows that parameters were fitted to; held, with *: "
        "those that were held back. tiled: with the kernel's own tiling, which else is searched. bias: median of "
        "predicted over measured; inside: measured times between low and high; width: median of high over low; base: "
        "the baseline peak + constant. The last five are of all rows."
    )


def _print_misses(report: ValidationReport) -> None:
    screen = console()
    headings = ("row", "chip", "what", "shape", "measured", "predicted", "low", "high", "ratio", "half")
    rows = [
        (
            one.row.id, one.row.product, f"{one.row.op} {one.row.scope}", one.name, f"{one.row.measured_us:.2f}",
            f"{one.predicted_us:.2f}", f"{one.low_us:.2f}", f"{one.high_us:.2f}", f"x{one.ratio:.2f}", one.row.half,
        )
        for one in report.misses
        if not one.error
    ]  # fmt: skip
    for table in fitted_tables(headings, rows, width=screen.width, left=("row", "chip", "what", "shape", "half")):
        screen.print(table)
    for one in report.misses:
        if one.error:
            print_prose(screen, f"{one.row.id}, {one.row.product} {one.row.op}: {one.error}")

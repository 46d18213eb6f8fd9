"""``npu-sim check``: the hazard engine and the static rules over kernels."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from npu_sim.report.files import write_files
from npu_sim.report.record import count_of, counted
from ops.cli import shapes
from ops.cli.check_options import (
    CoreOption,
    ExplainOption,
    MaxFindingsOption,
    Output,
    SarifOption,
    ToolOption,
    print_code,
    print_findings,
    read_tools,
    refuse_core,
    sarif_of,
)
from ops.cli.effort import YesOption, announce
from ops.cli.output import console, note_compilation, print_prose
from ops.cli.usage import UsageError, output_path
from ops.studies.convolution_kinds import WEIGHT_GRADIENT_CALL

if TYPE_CHECKING:
    from ops.studies.checking import CheckReport, CheckRow


def check_command(
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
    tool: ToolOption = None,
    core: CoreOption = None,
    max_findings: MaxFindingsOption = 20,
    explain: ExplainOption = None,
    order: shapes.OrderOption = "program",
    core_order: shapes.CoreOrderOption = None,
    json_path: shapes.JsonOption = None,
    sarif_path: SarifOption = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Check the calls of weight gradients, or whatever a Python file launches.

    Looks for accesses out of bounds, uninitialised and stale reads, missing waits
    and barriers, outputs that are not filled, misused buffers and illegal
    instructions. What one fault shows in many tiles is one finding. Of a weight gradient every launch of its call is
    checked: the kernel, and the casts and layout conversions around it. A Python
    file is run; calls that name no product run on --product. It is the way to
    check every other operator: average pooling, the other gradients of a
    convolution, Ascend C kernels, kernels in Python (npu_sim.authoring). What is
    found does not depend on --order and --core-order, the results of the file do.

    Exit code 0: kernels were checked and nothing was found; 1: findings, every
    combination is refused, or the Python file ended with an error, launched
    nothing or left a kernel before its end; 2: bad input, or too much work
    without --yes; 3: internal error; 130: interrupted.
    """
    # Imported here: they load the compiler, which the help does not need.
    from ops.cli import scripts
    from ops.studies import checking
    from ops.studies.effort import checking_effort
    from ops.studies.findings import Wanted

    if explain is not None:
        raise typer.Exit(print_code(explain))
    wanted = Wanted(tools=read_tools(tool), core=core)
    if file is not None and (scripts.is_script(file) or scripts.is_program(file)):
        scripts.refuse_options(
            {
                "--model": model, "--batch": batch, "--x": x, "--weight": weight, "--stride": stride,
                "--padding": padding, "--dilation": dilation, "--groups": groups, "--layer": layer, "--dtype": dtype,
                "--cube-math-type": cube_math_type,
            }
        )  # fmt: skip
        from ops.cli.script_checks import check_script

        output = Output(json_path, sarif_path, max_findings)
        with shapes.orders_used(order, core_order):
            code = check_script(
                file, arguments or (), product, output, wanted=wanted, yes=yes, show_progress=not no_progress
            )
        raise typer.Exit(code)
    if order != "program" or core_order is not None:
        raise UsageError("--order and --core-order must be given with a Python file, which is run")
    shapes.refuse_arguments(arguments)
    given = shapes.ShapeOptions(x=x, weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    cases = shapes.read_cases(file, model, batch, given, dtype=dtype, layers=layer)
    products, modes = shapes.read_products(product), shapes.read_modes(cube_math_type)
    json_file = output_path("--json", json_path, file)
    sarif_file = output_path("--sarif", sarif_path, file)
    note_compilation()
    announce(checking_effort(cases, products, modes), yes=yes)
    with shapes.progress_bar(shown=not no_progress) as progress:
        report = checking.run_check(cases, products, modes, wanted=wanted, progress=progress)
    refuse_core(core, (launch.core_count for row in report.rows for launch in row.launches))
    json_text = "" if json_path is None else report.to_json() + "\n"
    contents: dict[Path, bytes] = {} if json_file is None else {json_file: json_text.encode()}
    if sarif_file is not None:
        contents[sarif_file] = sarif_of(finding for row in report.rows for finding in row.findings)
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(json_text)
    else:
        _print(report, console(), max_findings)
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    raise typer.Exit(0 if report.passed else 1)


def _print(report: CheckReport, screen: Console, shown: int) -> None:
    print_prose(screen, f"Each layer: every launch of the {WEIGHT_GRADIENT_CALL}.", "bold")
    for (product, mode), group in groupby(report.rows, key=lambda row: (row.product, row.cube_math_type)):
        rows = list(group)
        name = rows[0].chip.name
        screen.print(Text(f"{name if product == name else f'{product} = {name}'}, cubeMathType {mode}", style="bold"))
        for row in rows:
            _print_row(row, screen, shown)
        for line in shapes.refusal_lines((row.case.name, row.refusal) for row in rows):
            print_prose(screen, line)
        screen.print()
    screen.print(Text(f"layers: {report.source}.", style="dim"), soft_wrap=True)
    refused = len(report.rows) - len(report.checked)
    count = sum(launch.row_count for row in report.rows for launch in row.launches)
    screen.print(
        Text(
            f"{counted(len(report.rows), 'combination')}: {refused} refused; {counted(count, 'instruction')} checked, "
            f"{counted(report.finding_count, 'finding')}",
            style="bold",
        )
    )


def _print_row(row: CheckRow, screen: Console, shown: int) -> None:
    for number, launch in enumerate(row.launches):
        found = [finding for finding in row.findings if finding.violation.launch == number]
        size = f"{counted(launch.core_count, 'core')}, {counted(launch.phase_count, 'phase')}"
        outcome = f"{counted(launch.row_count, 'instruction')}: {count_of([one.code.severity for one in found])}"
        screen.print(Text(f"  {row.case.name}: {launch.name} ({launch.works_on}): {size}, {outcome}"), soft_wrap=True)
        print_findings(found, screen, shown)

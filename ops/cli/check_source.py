"""``npu-sim check`` with a kernel in C++."""

from __future__ import annotations

import typer

from ops.cli import shapes
from ops.cli.check_options import (
    CoreOption,
    MaxFindingsOption,
    Output,
    SarifOption,
    ToolOption,
    read_tools,
)
from ops.cli.effort import YesOption
from ops.cli.source_kernel import Given, takes_kernel


@takes_kernel
def check_source_command(
    given: Given,
    tool: ToolOption = None,
    core: CoreOption = None,
    max_findings: MaxFindingsOption = 20,
    json_path: shapes.JsonOption = None,
    sarif_path: SarifOption = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Compile a kernel in C++ for this machine, run it, and check every instruction.

    Looks for accesses out of bounds, uninitialised and stale reads, missing waits
    and barriers, outputs (--out) that are not filled, misused buffers and illegal
    instructions, each with file and line. The kernel runs as native code in a
    process of its own, with your rights.

    Exit code 0: nothing was found; 1: findings, or the kernel was left before its
    end (a rule of a call, a crash, an endless loop); 2: bad input, a source that
    does not compile, or too much work without --yes; 3: internal error; 130:
    interrupted.
    """
    from ops.cli.script_checks import check_paths, report_checks
    from ops.cli.scripts import Outcome
    from ops.studies.findings import Wanted

    output = Output(json_path, sarif_path, max_findings)
    wanted = Wanted(tools=read_tools(tool), core=core)
    check_paths(output, given.file)
    run, _ = given.called(checks=True)
    outcome = Outcome(code=0, error="", explanations=(run.explanation,))
    raise typer.Exit(report_checks(outcome, given.file, output, wanted=wanted, yes=yes, show_progress=not no_progress))

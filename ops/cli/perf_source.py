"""``npu-sim perf`` with a kernel in C++."""

from __future__ import annotations

import typer

from ops.cli import shapes
from ops.cli.effort import YesOption
from ops.cli.source_kernel import Given, takes_kernel
from ops.cli.trace_files import OpProfOption, TraceCoreOption, TraceOption, read_trace_files
from ops.cli.usage import output_path


@takes_kernel
def perf_source_command(
    given: Given,
    json_path: shapes.JsonOption = None,
    trace: TraceOption = None,
    trace_core: TraceCoreOption = None,
    op_prof: OpProfOption = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Compile a kernel in C++ for this machine, run it, and time its instructions.

    The kernel runs as native code in a process of its own, with your rights. Its
    time is that of a device by the cycle model, not of this machine.

    Exit code 0: it was timed; 1: an instruction is illegal or leaves its tensor; 2:
    it cannot be compiled, broke a rule of a call, crashed or did not end, or is
    too much work without --yes; 3: internal error; 130: interrupted.
    """
    from ops.cli.script_times import report_times
    from ops.cli.scripts import Outcome

    json_file = output_path("--json", json_path, given.file)
    files = read_trace_files(trace, trace_core, op_prof, given.file, (json_file,))
    run, _ = given.called(checks=False)
    outcome = Outcome(code=0, error="", explanations=(run.explanation,))
    raise typer.Exit(report_times(outcome, given.file, json_path, files, yes=yes, show_progress=not no_progress))

"""``npu-sim perf`` with a kernel in C++."""

from __future__ import annotations

import typer

from ops.cli import shapes
from ops.cli.effort import YesOption
from ops.cli.source_kernel import (
    ArgOption,
    AutoSyncOption,
    BlocksOption,
    DefineOption,
    DefinitionOption,
    FileArgument,
    Given,
    IncludeOption,
    KernelOption,
    KindOption,
    OutOption,
    ProductOption,
    TilingKeyOption,
    TilingOption,
)
from ops.cli.trace_files import OpProfOption, TraceCoreOption, TraceOption, read_trace_files


def perf_source_command(
    file: FileArgument,
    kernel: KernelOption = None,
    blocks: BlocksOption = 1,
    arg: ArgOption = None,
    out: OutOption = None,
    tiling: TilingOption = None,
    tiling_key: TilingKeyOption = 0,
    define: DefineOption = None,
    include: IncludeOption = None,
    definition: DefinitionOption = None,
    kind: KindOption = None,
    product: ProductOption = None,
    auto_sync: AutoSyncOption = True,
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

    json_file = shapes.output_path("--json", json_path, file)
    files = read_trace_files(trace, trace_core, op_prof, file, (json_file,))
    given = Given(
        file=file, kernel=kernel, blocks=blocks, args=arg or (), outs=out or (), tiling=tiling, tiling_key=tiling_key,
        defines=define or (), include=include or (), definition=definition, kind=kind, product=product,
        auto_sync=auto_sync,
    )  # fmt: skip
    run, _ = given.called(checks=False)
    outcome = Outcome(code=0, error="", explanations=(run.explanation,))
    raise typer.Exit(report_times(outcome, file, json_path, files, yes=yes, show_progress=not no_progress))

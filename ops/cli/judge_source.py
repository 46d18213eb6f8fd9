"""``npu-sim judge`` with a kernel in C++."""

from __future__ import annotations

import typer

from ops.cli import shapes
from ops.cli.check_options import MaxFindingsOption, SarifOption
from ops.cli.judge import BudgetOption, GoldenOption, report_judgement
from ops.cli.source_kernel import Given, takes_kernel
from ops.cli.usage import output_path


@takes_kernel
def judge_source_command(
    given: Given,
    golden: GoldenOption = None,
    budget: BudgetOption = None,
    max_findings: MaxFindingsOption = 20,
    json_path: shapes.JsonOption = None,
    sarif_path: SarifOption = None,
) -> None:
    """Judge a kernel in C++: values, races, legality and cycles in one answer.

    Compiles and runs the kernel and judges it as a kernel in Python: its results
    (--out) beside goldens, everything that check looks for, and the cycles of all
    cores. The kernel runs as native code in a process of its own, with your rights.

    A unit of the last place is that of the golden's element, or of the root mean
    square of the golden where the element is smaller.

    Exit code 0: the kernel passes; 1: it fails; 2: bad input, or a source that does
    not compile; 3: internal error; 130: interrupted.
    """
    from ops.studies.kernel_judging import Judgement, judge_calls

    json_file = output_path("--json", json_path, given.file)
    sarif_file = output_path("--sarif", sarif_path, given.file)
    made = given.recorded()
    # a kernel that was left before its end has no results
    calls = judge_calls([made], golden or () if made.execution is not None else (), budget, None, "")
    judged = Judgement(source=given.file, calls=calls, refusals=(), error="")
    raise typer.Exit(report_judgement(judged, json_path, json_file, sarif_file, max_findings, has_goldens=bool(golden)))

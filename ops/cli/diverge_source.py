"""``npu-sim diverge`` with a kernel in C++."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from npu_sim.debug.execution import Execution
from ops.cli import shapes
from ops.cli.diverge import ChainOption, DumpOption, no_divergence, report_divergence
from ops.cli.judge import BudgetOption, GoldenOption
from ops.cli.source_kernel import Given, takes_kernel
from ops.cli.usage import UsageError, output_path

GoodOption = Annotated[
    str | None,
    typer.Option("--good", metavar="FILE.cpp", help="A source whose kernel does it right, called with the same."),
]


@takes_kernel
def diverge_source_command(
    given: Given,
    golden: GoldenOption = None,
    good: GoodOption = None,
    budget: BudgetOption = None,
    chain: ChainOption = 12,
    dump: DumpOption = None,
    json_path: shapes.JsonOption = None,
) -> None:
    """Find the first instruction of a kernel in C++ whose result is wrong.

    With --golden the wrong elements are followed back to the first store that
    leaves any, and what its bytes came from is held against what right stores of
    the line came from. With --good a second source, whose kernel is right on the
    same arguments, runs beside it; then --budget is 0 unless given. Both run as
    native code in processes of their own, with your rights.

    Exit code 0: nothing is wrong; 1: a result diverges; 2: bad input, a source that
    does not compile, or a kernel that is left before its end; 3: internal error;
    130: interrupted.
    """
    from npu_sim.debug.divergence import diverge_from_golden
    from npu_sim.debug.good import diverge_from_good
    from ops.studies.goldens_given import read_goldens

    if bool(golden) == bool(good):
        raise UsageError("one of --golden and --good must be given, not both or none")
    dump_file = output_path("--dump", dump, given.file)
    output_path("--json", json_path, given.file)
    execution = _executed(given)
    if good is None:
        found = diverge_from_golden(execution, read_goldens(golden or (), execution), budget)
    else:
        twin = diverge_from_good(execution, _executed(replace(given, file=good)), budget or 0.0)
        found = twin or no_divergence()
    raise typer.Exit(report_divergence(found, given.file, json_path, dump_file, chain))


def _executed(given: Given) -> Execution:
    """Return the call of a kernel that must end."""
    made = given.recorded()
    if made.execution is None:
        raise UsageError(f"{given.file} must end, and not be left before: npu-sim check says why")
    return made.execution

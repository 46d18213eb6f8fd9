"""``npu-sim judge``: values, races, legality and cycles of kernels in one answer, for CI and for programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from npu_sim.report.files import write_files
from npu_sim.report.record import count_of, counted, to_json_text
from ops.cli import shapes
from ops.cli.check_options import MaxFindingsOption, SarifOption, print_findings, sarif_of
from ops.cli.output import console
from ops.cli.usage import output_path

if TYPE_CHECKING:
    from ops.studies.kernel_judging import JudgedCall, Judgement

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE.py", help="Python file that calls kernels, or a stored program.")
]
GoldenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--golden",
        metavar="[NAME=]FILE",
        help="What a tensor should hold behind the call: .npy, or .npz by names; repeatable.",
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(min=0, help="Units of the last place an element may be off. Default: 2 in 16 bits, 64 in float32."),
]
CallOption = Annotated[int | None, typer.Option("--call", min=0, help="Call that goldens are for. Default: the last.")]


def judge_command(
    file: FileArgument,
    arguments: shapes.ScriptArguments = None,
    golden: GoldenOption = None,
    budget: BudgetOption = None,
    call: CallOption = None,
    product: shapes.ScriptProductOption = None,
    max_findings: MaxFindingsOption = 20,
    order: shapes.OrderOption = "program",
    core_order: shapes.CoreOrderOption = None,
    json_path: shapes.JsonOption = None,
    sarif_path: SarifOption = None,
) -> None:
    """Judge kernels: values, races, legality and cycles in one answer.

    Runs a Python file and judges every kernel that it calls: its results beside
    goldens, everything that check looks for, and the cycles of all cores. The
    answer is the same whenever and wherever it is asked for (docs/schemas/judge.json).

    A unit of the last place is that of the golden's element, or of the root mean
    square of the golden where the element is smaller.

    Exit code 0: the kernels pass; 1: they fail; 2: bad input; 3: internal error;
    130: interrupted.
    """
    # Imported here: they load the compiler, which the help does not need.
    from ops.cli import scripts
    from ops.studies.findings import finding_of_refusal
    from ops.studies.kernel_judging import Judgement, judge_calls

    chip = scripts.one_product(product)
    json_file = output_path("--json", json_path, file)
    sarif_file = output_path("--sarif", sarif_path, file)
    with shapes.orders_used(order, core_order):
        outcome = scripts.run_script(
            file, arguments or (), chip, explain=False, quiet=json_path == "-", keeps_tensors=True, shows_refusals=False
        )
    scripts.hold_to_product(outcome, file, chip)
    refusals = () if outcome.refused is None else (finding_of_refusal(outcome.refused),)
    goldens = () if refusals else golden or ()
    calls = judge_calls(outcome.explanations, goldens, budget, call, outcome.error)
    judged = Judgement(source=file, calls=calls, refusals=refusals, error=outcome.error)
    raise typer.Exit(report_judgement(judged, json_path, json_file, sarif_file, max_findings, has_goldens=bool(golden)))


def report_judgement(
    judged: Judgement, json_path: str | None, json_file: Path | None, sarif_file: Path | None, shown: int, *,
    has_goldens: bool,
) -> int:  # fmt: skip
    """Print and write an answer; return the exit code. ``has_goldens``: whether any were given, used or not."""
    text = to_json_text(judged.document()) + "\n"
    contents = {} if json_file is None else {json_file: text.encode()}
    if sarif_file is not None:
        every = [finding for one in judged.calls for finding in one.findings]
        contents[sarif_file] = sarif_of([*judged.refusals, *every])
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(text)
    else:
        _print(judged, console(), shown, has_goldens=has_goldens)
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    return 0 if judged.passed else 1


def _print(judged: Judgement, screen: Console, shown: int, *, has_goldens: bool) -> None:
    for call in judged.calls:
        screen.print(Text(call.made.heading, style="bold"), soft_wrap=True)
        if call.stopped_by:
            screen.print(Text(f"  stopped by {' '.join(call.stopped_by.split())}", style="red"), soft_wrap=True)
        for tensor in call.values:
            screen.print(Text(f"  {value_words(tensor)}"), soft_wrap=True)
        if not call.values:
            why = _why_unjudged(judged, call) if has_goldens else "no golden is given"
            screen.print(Text(f"  values: not judged, {why}"))
        screen.print(Text(f"  checks: {count_of([one.code.severity for one in call.findings])}"))
        print_findings(call.findings, screen, shown)
        for launch, time in zip(call.made.launches, call.times, strict=False):
            words = f"{time.total_cycles} cycles, {time.seconds() * 1e6:.1f} us"
            spread = f"{min(time.core_cycles)} to {max(time.core_cycles)} on {counted(launch.core_count, 'core')}"
            screen.print(Text(f"  cycles of {launch.name}: {words}; {spread}"), soft_wrap=True)
        if call.timing_refusal:
            screen.print(Text(f"  not timed: {call.timing_refusal}", style="red"), soft_wrap=True)
    for finding in judged.refusals:
        screen.print(Text(f"{finding.launch}: refused", style="bold"))
        print_findings([finding], screen, 1)
    unjudged = "" if any(call.values for call in judged.calls) else ": the checks; no value was judged"
    words = f"pass{unjudged}" if judged.passed else f"fail: {', '.join(judged.reasons)}"
    screen.print(Text(words, style="bold"))


def _why_unjudged(judged: Judgement, call: JudgedCall) -> str:
    """Return why no golden of those given is compared with a call."""
    if call.made.execution is None:
        return "the kernel was not run to its end"
    return "another kernel is refused" if judged.refusals else "the golden is for another call"


def value_words(tensor: object) -> str:
    """Return how a tensor compares with its golden, in words."""
    from npu_sim.debug.divergence import WrongTensor

    assert isinstance(tensor, WrongTensor)
    words = f"values of {tensor.name}: at most {tensor.max_ulp:.3g} ULP off, budget {tensor.budget:g}"
    if not tensor.wrong_count:
        return words
    where = ", ".join(map(str, tensor.index))
    first = f"first at [{where}]: {tensor.actual:.7g}, not {tensor.golden:.7g}"
    return f"{words}; {tensor.wrong_count} of {tensor.element_count} elements over it, {first}"

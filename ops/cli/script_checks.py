"""What is wrong in the kernels that a Python file launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

from npu_sim.report.explain import Explanation
from npu_sim.report.record import count_of, counted
from ops.cli import scripts
from ops.cli.check_options import Output, print_findings, refuse_core, sarif_of
from ops.cli.effort import announce
from ops.cli.output import console, print_prose
from ops.cli.shapes import progress_bar
from ops.cli.usage import output_path
from ops.studies.biting import with_orders
from ops.studies.checking import MEMORY_PER_GM_BYTE, check_launches, known_of_beginnings
from ops.studies.effort import CHECKING_ROWS_PER_SECOND, launches_effort
from ops.studies.findings import EVERYTHING, Finding, Wanted, finding_of_refusal

SCHEMA_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCall:
    """One call of an operator, or one kernel, with the findings of its launches.

    Attributes
    ----------
    made : Explanation
        What it did.
    stopped_by : str
        The error that left its kernel before the end; "" if it ended.
    findings : tuple of tuple of Finding
        Launch by launch. Of a kernel that was stopped: what holds whatever would have followed.
    """

    made: Explanation
    stopped_by: str
    findings: tuple[tuple[Finding, ...], ...]


def check_script(
    file: str,
    arguments: Sequence[str],
    products: Sequence[str] | None,
    output: Output,
    *,
    wanted: Wanted = EVERYTHING,
    yes: bool,
    show_progress: bool,
) -> int:
    """Run a script and check what its operators launched; return the exit code."""
    product = scripts.one_product(products)
    check_paths(output, file)
    quiet = output.json_path == "-"
    outcome = scripts.run_script(file, arguments, product, explain=True, quiet=quiet, shows_refusals=False)
    scripts.hold_to_product(outcome, file, product)
    return report_checks(outcome, file, output, wanted=wanted, yes=yes, show_progress=show_progress)


def check_paths(output: Output, file: str) -> Path | None:
    """Refuse files that a report cannot be written to, before anything runs; return that of the SARIF."""
    output_path("--json", output.json_path, file)
    return output_path("--sarif", output.sarif_path, file)


def report_checks(
    outcome: scripts.Outcome, file: str, output: Output, *, wanted: Wanted, yes: bool, show_progress: bool
) -> int:
    """Check what was launched, print and write what is found; return the exit code."""
    json_path = output.json_path
    sarif_file = check_paths(output, file)
    refusals = [] if outcome.refused is None else [finding_of_refusal(outcome.refused)]
    refusals = [finding for finding in refusals if wanted.has(finding.violation)]
    launches = [launch for made in outcome.explanations for launch in made.launches]
    refuse_core(wanted.core, (launch.core_count for launch in launches))
    announce(launches_effort(launches, CHECKING_ROWS_PER_SECOND, MEMORY_PER_GM_BYTE), yes=yes)
    calls = []
    with progress_bar(shown=show_progress) as progress:
        for number, made in enumerate(outcome.explanations):
            if progress:
                progress(number, len(outcome.explanations), made.title)
            calls.append(check_call(made, outcome.error, wanted))
    if json_path != "-":
        print_calls(calls, console(), output.shown, refusals)
    rows = [
        {
            "title": call.made.title,
            "call_number": number,
            "call": call.made.call,
            "launch": launch.name,
            "works_on": works_on,
            "stopped_by": call.stopped_by,
            "findings": [finding.document() for finding in findings],
        }
        for number, call in enumerate(calls)
        for launch, works_on, findings in zip(
            call.made.launches, call.made.works_of_launches(), call.findings, strict=True
        )
    ]
    rows += [
        {
            "title": finding.launch,
            "call_number": len(calls),
            "call": "",
            "launch": finding.launch,
            "works_on": "",
            "stopped_by": outcome.error,
            "findings": [finding.document()],
        }
        for finding in refusals
    ]
    found = [finding for call in calls for findings in call.findings for finding in findings] + refusals
    extra = {} if sarif_file is None else {sarif_file: sarif_of(found)}
    scripts.write_report({"schema_version": SCHEMA_VERSION, "source": file, "launches": rows}, json_path, file, extra)
    worse = any(finding.code.severity != "advice" for finding in found)
    is_well = not outcome.code and rows and not worse and not any(call.stopped_by for call in calls)
    return 0 if is_well else 1


def check_call(made: Explanation, error: str, wanted: Wanted) -> CheckedCall:
    """Check the launches of a call; an unfinished kernel was stopped by the error that ended the script, if one did."""
    stopped_by = made.stopped_by or (error if not made.is_finished else "")
    return CheckedCall(
        made=made, stopped_by=stopped_by, findings=tuple(_findings(made, wanted, is_stopped=bool(stopped_by)))
    )


def _findings(made: Explanation, wanted: Wanted, *, is_stopped: bool) -> Iterator[tuple[Finding, ...]]:
    """Yield the findings of each launch; launches on one memory are checked together, for a later one may read."""
    for _, group in groupby(made.launches, key=lambda launch: id(launch.gm)):
        launches = list(group)
        _, findings = check_launches(launches, made.product, wanted)
        if is_stopped:
            findings = known_of_beginnings(launches, findings)
        if made.takes_orders:
            findings = with_orders(findings, launches)
        for number in range(len(launches)):
            yield tuple(finding for finding in findings if finding.violation.launch == number)


def print_calls(calls: Sequence[CheckedCall], screen: Console, shown: int, refusals: Sequence[Finding] = ()) -> None:
    """Print the launches of each call with the worst ``shown`` findings of each, and the sum."""
    for call in calls:
        made = call.made
        print_prose(screen, made.heading, "bold")
        if call.stopped_by:
            screen.print(Text(f"  stopped by {' '.join(call.stopped_by.split())}", style="red"), soft_wrap=True)
        numbered = len(made.launches) > 1
        checked = zip(made.launches, made.works_of_launches(), call.findings, strict=True)
        for number, (launch, works_on, findings) in enumerate(checked):
            words = f"{number} {launch.name}" if numbered else launch.name
            words += f" ({works_on})" if works_on else ""
            words += ", only what ran before" if call.stopped_by else ""
            screen.print(Text(f"  {words}: {count_of([one.code.severity for one in findings])}"), soft_wrap=True)
            print_findings(findings, screen, shown)
    for finding in refusals:
        print_prose(screen, f"{finding.launch}: refused", "bold")
        print_findings([finding], screen, 1)
    launched = [call.findings for call in calls if call.findings]
    if not launched and refusals:
        return
    if not launched:
        screen.print("nothing to check: no operator of the file launched a kernel")
        return
    launches = counted(sum(map(len, launched)), "launch")
    total = count_of([one.code.severity for call in launched for findings in call for one in findings])
    stopped = sum(bool(call.stopped_by) for call in calls)
    words = f"{counted(len(launched), 'call')}, {launches}: {total}" + (f", {stopped} stopped" if stopped else "")
    screen.print(Text(words, style="bold"))

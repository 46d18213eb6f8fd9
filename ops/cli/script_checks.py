"""What is wrong in the kernels that a Python file launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from npu_sim.program.launch import Launch
from npu_sim.program.violation import Violation
from npu_sim.report.explain import Explanation
from npu_sim.report.record import counted
from ops.cli import scripts
from ops.cli.effort import announce
from ops.cli.output import console, print_prose
from ops.cli.shapes import output_path, progress_bar
from ops.studies.checking import MEMORY_PER_GM_BYTE, check_launches, known_of_beginnings
from ops.studies.effort import CHECKING_ROWS_PER_SECOND, launches_effort

SCHEMA_VERSION = 2
_FINDINGS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCall:
    """One call of an operator, or one kernel, with the findings of its launches.

    Attributes
    ----------
    made : Explanation
        What it did.
    stopped_by : str
        The error that left its kernel before the end; "" if it ended.
    findings : tuple of tuple of Violation
        Launch by launch. Of a kernel that was stopped: what holds whatever would have followed.
    """

    made: Explanation
    stopped_by: str
    findings: tuple[tuple[Violation, ...], ...]


def check_script(
    file: str,
    arguments: Sequence[str],
    products: Sequence[str] | None,
    json_path: str | None,
    *,
    yes: bool,
    show_progress: bool,
) -> int:
    """Run a script and check what its operators launched; return the exit code."""
    product = scripts.one_product(products)
    output_path("--json", json_path, file)
    outcome = scripts.run_script(file, arguments, product, explain=True, quiet=json_path == "-")
    launches = [launch for made in outcome.explanations for launch in made.launches]
    announce(launches_effort(launches, CHECKING_ROWS_PER_SECOND, MEMORY_PER_GM_BYTE), yes=yes)
    calls = []
    with progress_bar(shown=show_progress) as progress:
        for number, made in enumerate(outcome.explanations):
            if progress:
                progress(number, len(outcome.explanations), made.title)
            calls.append(_checked(made, outcome.error))
    if json_path != "-":
        _print_calls(calls, console())
    rows = [
        {
            "title": call.made.title,
            "call_number": number,
            "call": call.made.call,
            "launch": launch.name,
            "works_on": works_on,
            "stopped_by": call.stopped_by,
            "findings": [_finding(found, launch) for found in findings],
        }
        for number, call in enumerate(calls)
        for launch, works_on, findings in zip(
            call.made.launches, call.made.works_of_launches(), call.findings, strict=True
        )
    ]
    scripts.write_report({"schema_version": SCHEMA_VERSION, "source": file, "launches": rows}, json_path, file, {})
    is_well = not outcome.code and rows and not any(call.stopped_by or any(call.findings) for call in calls)
    return 0 if is_well else 1


def _checked(made: Explanation, error: str) -> CheckedCall:
    """Check the launches of a call; an unfinished kernel was stopped by the error that ended the script, if one did."""
    stopped_by = made.stopped_by or (error if not made.is_finished else "")
    return CheckedCall(made=made, stopped_by=stopped_by, findings=tuple(_findings(made, is_stopped=bool(stopped_by))))


def _findings(made: Explanation, *, is_stopped: bool) -> Iterator[tuple[Violation, ...]]:
    """Yield the findings of each launch; launches on one memory are checked together, for a later one may read."""
    for _, group in groupby(made.launches, key=lambda launch: id(launch.gm)):
        launches = list(group)
        _, findings = check_launches(launches, made.product)
        if is_stopped:
            findings = known_of_beginnings(launches, findings)
        for number in range(len(launches)):
            yield tuple(finding.violation for finding in findings if finding.violation.launch == number)


def _finding(violation: Violation, launch: Launch) -> dict[str, Any]:
    line = launch.lines.get(violation.site)
    return {
        "file": line.file if line else "",
        "line": line.line if line else 0,
        "kind": violation.kind.value,
        "core": violation.core,
        "row": violation.row,
        "other_row": violation.other_row,
        "text": str(violation),
    }


def _print_calls(calls: Sequence[CheckedCall], screen: Console) -> None:
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
            screen.print(Text(f"  {words}: {counted(len(findings), 'finding')}"), soft_wrap=True)
            for violation in findings[:_FINDINGS_SHOWN]:
                line = launch.lines.get(violation.site)
                words = f"{line}: {violation}" if line else str(violation)
                screen.print(Text(f"    {words}", style="red"), soft_wrap=True)
            if len(findings) > _FINDINGS_SHOWN:
                screen.print(Text(f"    ... {len(findings) - _FINDINGS_SHOWN} more; --json has all of them"))
    launched = [call.findings for call in calls if call.findings]
    if not launched:
        screen.print("nothing to check: no operator of the file launched a kernel")
        return
    launches = counted(sum(map(len, launched)), "launch")
    total = counted(sum(len(findings) for call in launched for findings in call), "finding")
    stopped = sum(bool(call.stopped_by) for call in calls)
    words = f"{counted(len(launched), 'call')}, {launches}: {total}" + (f", {stopped} stopped" if stopped else "")
    screen.print(Text(words, style="bold"))

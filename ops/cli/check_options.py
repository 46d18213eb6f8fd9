"""What both ways of ``npu-sim check`` share: which findings, how they are shown and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from ops.cli.usage import UsageError

if TYPE_CHECKING:
    from ops.studies.findings import Finding

_TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck", "npuchk")

ToolOption = Annotated[
    list[str] | None,
    typer.Option(
        "-t", "--tool", metavar="NAME", help=f"Findings of this check: {', '.join(_TOOLS)}; repeatable. Default: all."
    ),
]
CoreOption = Annotated[int | None, typer.Option(min=0, help="Findings of this core only. Default: of all.")]
MaxFindingsOption = Annotated[int, typer.Option(min=0, help="Findings printed per launch; files have all kept.")]
SarifOption = Annotated[
    str | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, for editors and CI.")
]
ExplainOption = Annotated[
    str | None,
    typer.Option(
        metavar="[CODE]",
        help="Say what a code such as ErrorSync1 means and what to do; no check. Without a code: list all.",
    ),
]
_COLOURS = {"error": "red", "warning": "yellow", "advice": "cyan"}


def refuse_core(core: int | None, core_counts: Iterable[int]) -> None:
    """Refuse a core that no launch has: that nothing is found of it would say nothing.

    Raises
    ------
    UsageError
        There is none of this number, though there are launches.
    """
    most = max(core_counts, default=0)
    if core is not None and 0 < most <= core:
        raise UsageError(f"--core must be in [0, {most - 1}], the cores of the launches, not {core}")


class Output(NamedTuple):
    """Where a report goes, and how many findings per launch are printed."""

    json_path: str | None
    sarif_path: str | None
    shown: int


def read_tools(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the checks that were asked for.

    Raises
    ------
    UsageError
        If there is no such check.
    """
    for name in names or ():
        if name not in _TOOLS:
            raise UsageError(f"--tool must be one of {', '.join(_TOOLS)}, not {name!r}")
    return tuple(names or ())


def print_code(code: str) -> int:
    """Print what a code means; return the exit code."""
    from npu_sim.program.finding_codes import CODES, code_words

    if code == "all":
        width = max(len(kind.value) for kind in CODES)
        for kind, meaning in CODES.items():
            typer.echo(f"{kind.value:<{width}}  {meaning.severity:<7}  {meaning.tool:<9}  {meaning.title}")
        return 0
    lines = code_words(code)
    if not lines:
        known = ", ".join(kind.value for kind in CODES)
        raise UsageError(f"--explain must be a code of a finding ({known}), not {code!r}")
    for line in lines:
        typer.echo(line)
    return 0


def print_findings(findings: Sequence[Finding], screen: Console, shown: int) -> None:
    """Print findings of a launch with the listings around their rows."""
    for finding in findings[:shown]:
        first, *others = finding.lines()
        screen.print(Text(f"    {first}", style=_COLOURS[finding.code.severity]), soft_wrap=True)
        for line in others:
            screen.print(Text(f"    {line}"), soft_wrap=True)
        for window in finding.windows:
            for line in window.splitlines():
                screen.print(Text(f"      {line}"), soft_wrap=True)
        screen.print(Text(f"      to do: {finding.hint}", style="dim"), soft_wrap=True)
        if finding.order:
            screen.print(
                Text(f"      to see it: {finding.order}, with npu-sim run or judge", style="dim"), soft_wrap=True
            )
    if len(findings) > shown:
        screen.print(Text(f"    ... {len(findings) - shown} more; --json has all of them"))


def sarif_of(findings: Iterable[Finding]) -> bytes:
    """Return findings as the text of a SARIF file."""
    from npu_sim.report.sarif import sarif_text
    from ops.studies.findings import sarif_rules

    text = sarif_text(sarif_rules(), [finding.sarif() for finding in findings], version("npu-sim"))
    return f"{text}\n".encode()

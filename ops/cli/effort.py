"""Large work is announced before it begins, and asked for above a limit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.units import MIB
from ops.cli.output import note
from ops.cli.usage import UsageError

if TYPE_CHECKING:
    from ops.studies.effort import Effort

ANNOUNCED_SECONDS = 10
LIMIT_SECONDS = 120
LIMIT_BYTES = 8192 * MIB

YesOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        help=f"Do also what is estimated to take more than {LIMIT_SECONDS // 60} minutes or "
        f"{LIMIT_BYTES // (1024 * MIB)} GiB; otherwise you are asked, or in a pipe refused with exit code 2.",
    ),
]


def announce(effort: Effort, *, yes: bool) -> None:
    """Write what large work takes to standard error, and go on only if it is below the limits or wanted.

    Parameters
    ----------
    effort : Effort
        Estimated.
    yes : bool
        It is wanted.

    Raises
    ------
    UsageError
        It is above the limits, and nobody confirms it.
    """
    is_large = effort.seconds > LIMIT_SECONDS or effort.bytes > LIMIT_BYTES
    if effort.seconds < ANNOUNCED_SECONDS and not is_large:
        return
    words = effort_words(effort)
    if is_large and not yes:
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            limits = f"about {LIMIT_SECONDS // 60} minutes and {_gibibytes(LIMIT_BYTES)}"
            raise UsageError(f"Work must take at most {limits} without --yes, not {words}")
        note(words)
        if not typer.confirm("go on?", err=True):
            raise UsageError("Large work must be confirmed, not declined")
        return
    note(words)


def effort_words(effort: Effort) -> str:
    """Return "about 24,000,000 instructions, 1.5 GiB, 4 minutes"."""
    how = "at least" if effort.is_bound else "about"
    return f"{how} {_rounded(effort.instructions):,} instructions, {_gibibytes(effort.bytes)}, {_time(effort.seconds)}"


def _rounded(count: int) -> int:
    """Return ``count`` with two digits that mean something."""
    unit = 10 ** max(len(str(count)) - 2, 0)
    return round(count / unit) * unit


def _gibibytes(size: int) -> str:
    if size < 1024 * MIB // 10:
        return "little memory"
    return f"{size / (1024 * MIB):.1f} GiB of memory"


def _time(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"

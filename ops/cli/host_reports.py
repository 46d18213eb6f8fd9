"""What ``run --explain``, ``check`` and ``perf`` print of a Python file, for a C++ program and on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from npu_sim.report.explain import Explanation
from npu_sim.report.files import write_files
from ops.cli import script_checks, script_times, scripts
from ops.cli.output import console
from ops.cli.trace_files import TraceFiles
from ops.studies.findings import EVERYTHING

_SHOWN_FINDINGS = 20
"""Of each launch, as many as ``npu-sim check`` prints."""


@contextlib.contextmanager
def _screen() -> Iterator[Console]:
    with contextlib.redirect_stdout(sys.stderr):
        yield console()


def print_explanations(explanations: Sequence[Explanation]) -> None:
    """Print what each call did."""
    with _screen() as screen:
        for made in explanations:
            scripts.print_explanation(made, screen)


def print_check(explanations: Sequence[Explanation]) -> None:
    """Check the launches of each call and print the findings."""
    with _screen() as screen:
        calls = [script_checks.check_call(made, "", EVERYTHING) for made in explanations]
        script_checks.print_calls(calls, screen, _SHOWN_FINDINGS)


def print_times(explanations: Sequence[Explanation], trace: Path | None) -> None:
    """Time the launches of each call, print them, and write a trace if one is wanted.

    Raises
    ------
    OutputFileError
        The trace cannot be written.
    """
    with _screen() as screen:
        calls = [script_times.time_call(made) for made in explanations]
        script_times.print_calls(calls, screen)
        files = TraceFiles(trace=trace, op_prof=None, cores=None)
        contents = files.contents(list(script_times.traced_launches(calls)))
        write_files(contents)
        for path in contents:
            screen.print(f"written: {path}", soft_wrap=True)

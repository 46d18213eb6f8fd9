"""What ``npu-sim perf OPERATOR --tune`` prints: the fastest tiling beside the kernel's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from npu_sim.report.files import write_files
from npu_sim.report.tables import fitted_tables
from ops.cli.output import console, print_prose
from ops.studies.tuning import TuneReport, tuning_json


def write_tuning(reports: Sequence[TuneReport], json_path: str | None, json_file: Path | None) -> None:
    """Write reports as JSON to ``json_file``, and print them; with "-" their JSON alone."""
    text = tuning_json(reports) + "\n"
    if json_path == "-":
        sys.stdout.write(text)
        return
    if json_file is not None:
        write_files({json_file: text.encode()})
    for report in reports:
        _print(report)
    print_prose(
        console(),
        "Core times of the kernel alone, its operands in L2, by the model: a device may rank tilings otherwise. The "
        "search times some of all tilings and moves the fastest of them; a faster one may exist.",
    )
    if json_file is not None:
        console().print(f"written: {json_file}", soft_wrap=True)


def _print(report: TuneReport) -> None:
    microseconds = 1e6 / report.clock_hz
    before, after = (cycles * microseconds for cycles in (report.default_cycles, report.best_cycles))
    outcome = f"{after:.1f} us with the best of {report.timed_count} tilings, {report.gain:.0%} less"
    if report.best_cycles == report.default_cycles:
        outcome = f"none of {report.timed_count} other tilings is faster"
    print_prose(console(), f"{report.name} on {report.product}: {before:.1f} us with its own tiling, {outcome}.")
    rows = [
        (name, str(value), str(report.best[name]))
        for name, value in report.default.items()
        if value != report.best[name] or name.startswith(("base", "single", "usedCore", "step", "depth"))
    ]
    for table in fitted_tables(("field", "own", "best"), rows, width=console().width, left=("field",)):
        console().print(table)

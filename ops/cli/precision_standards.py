"""What each standard of a precision report says, where another than the default was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from npu_sim.report.standards.verdict import Verdict
from npu_sim.report.tables import fitted_tables
from ops.cli.output import print_prose
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, Golden, PrecisionRow

STANDARD_HEADINGS = ("standard", "golden", "pass", "FAIL", "void", "first that does not pass")


def print_standards(report: PrecisionReport, console: Console) -> None:
    """Print how many gradients pass each standard, and a figure of the first that does not; then the standards."""
    rows = standard_lines(report)
    left = ("standard", "golden", "first that does not pass")
    styles = {number: "red" for number, row in enumerate(rows) if row[3]}
    for table in fitted_tables(STANDARD_HEADINGS, rows, width=console.width, left=left, styles=styles):
        console.print(table)
    for line in standard_legend(report):
        print_prose(console, line)


def standard_names(report: PrecisionReport) -> tuple[str, ...]:
    """Return the names of all standards behind the verdicts."""
    return tuple(standard["name"] for standard in report.standards)


def standard_lines(report: PrecisionReport) -> list[tuple[str, ...]]:
    """Return the cells of each standard against each golden."""
    return [_cells(report, name, golden) for name in standard_names(report) for golden in GOLDENS]


def standard_legend(report: PrecisionReport) -> Iterator[str]:
    """Yield where each standard is written and what it asks, then what its verdicts rest on."""
    for standard in report.standards:
        at = f" at {standard['commit']}" if standard["commit"] else ""
        edition = f"{standard['title']}, {standard['version']}, {standard['source']}{at}"
        yield f"{standard['name']}: {edition}: {standard['rule']}."
    remarks = {verdict.remark for _, verdict in _all_verdicts(report)}
    if "recheck" in remarks:
        yield (
            f"pass (recheck): failed at first, and passes by the median ratios of {report.options.recheck} runs on "
            "tensors whose elements were drawn anew from those of the file."
        )
    deciding = report.options.golden
    peers = dict.fromkeys(one.peer for golden, one in _all_verdicts(report) if golden == deciding and one.peer)
    if peers:
        yield f"peer: {'; '.join(peers)}."


def _all_verdicts(report: PrecisionReport) -> Iterator[tuple[Golden, Verdict]]:
    for name in standard_names(report):
        for golden in GOLDENS:
            yield from ((golden, verdict) for _, verdict in _verdicts(report, name, golden))


def _cells(report: PrecisionReport, name: str, golden: Golden) -> tuple[str, ...]:
    verdicts = list(_verdicts(report, name, golden))
    outcomes = [verdict.outcome for _, verdict in verdicts]
    counts = (str(outcomes.count("pass")), *(str(outcomes.count(one) or "") for one in ("fail", "void")))
    ranked = [pair for outcome in ("fail", "void") for pair in verdicts if pair[1].outcome == outcome]
    words = ""
    if ranked:
        row, verdict = ranked[0]
        why = verdict.deciding if verdict.outcome == "fail" else f"void {verdict.void_cause}"
        words = f"{row.title} on {row.place} mode {row.mode}: {why}"
    decides = "*" if golden == report.options.golden else ""
    return (name, f"{golden}{decides}", *counts, words)


def _verdicts(report: PrecisionReport, name: str, golden: Golden) -> Iterator[tuple[PrecisionRow, Verdict]]:
    for row in report.computed:
        if row.result is not None:
            # a standard of a case judges that case alone
            verdicts = row.result.against(golden).verdicts
            yield from ((row, verdict) for verdict in verdicts if verdict.standard == name)

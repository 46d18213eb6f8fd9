"""What a notebook shows of a precision report: its conclusion, and a line for each gradient."""

from __future__ import annotations

from npu_sim.report.notebook import html_table
from ops.studies.precision_conclusion import cause_words, error_words, standards_words, verdict_words
from ops.studies.precision_report import GOLDENS, CaseResult, Golden, PrecisionReport, PrecisionRow

_HEADINGS = (
    "gradient",
    "worst on",
    "mode",
    "type",
    "relative L2, original",
    "rounded",
    "pass",
    "FAIL",
    "void",
    "refused",
)


def report_html(report: PrecisionReport) -> str:
    """Return the conclusion and the worst result of each gradient; failures first, then the larger error."""
    results = [row.result for row in report.computed if row.result is not None]
    words = (
        verdict_words(results, report.options.golden, standards_words(report.standards)),
        error_words(results),
        cause_words(results),
        report.note,
    )
    found = sorted(
        (_line(layer.title, report.rows_of(layer), report.options.golden) for layer in report.layers),
        key=lambda line: line[0],
    )
    return html_table("; ".join(filter(None, words)), _HEADINGS, [cells for _, cells in found])


def _line(title: str, rows: tuple[PrecisionRow, ...], deciding: Golden) -> tuple[tuple[int, float], tuple[str, ...]]:
    """Return place in the order and cells of a gradient."""
    computed = [(row, row.result) for row in rows if row.result is not None]
    outcomes = [result.against(deciding).outcome for _, result in computed]
    counts = tuple(str(outcomes.count(outcome)) for outcome in ("pass", "fail", "void"))
    refused = str(len(rows) - len(computed))
    if not computed:
        return (1, 0.0), (title, "-", "-", "-", "-", "-", *counts, refused)
    row, worst = max(computed, key=lambda pair: _error(pair[1], "original"))
    names = (title, row.place, row.mode, worst.compute_dtype)
    errors = tuple(f"{_error(worst, golden):.1e}" for golden in GOLDENS)
    return (-outcomes.count("fail"), -_error(worst, "original")), (*names, *errors, *counts, refused)


def _error(result: CaseResult, golden: Golden) -> float:
    return result.against(golden).error.relative_l2 or 0.0

"""What a notebook shows of a precision report: its conclusion, and a line for each gradient."""

from __future__ import annotations

from collections.abc import Mapping

from npu_sim.report.notebook import html_table
from ops.studies.precision_conclusion import relative_error
from ops.studies.precision_results import GOLDENS, Golden, PrecisionRow

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


def gradients_html(words: str, rows: Mapping[str, tuple[PrecisionRow, ...]], deciding: Golden) -> str:
    """Return a conclusion and the worst result of each gradient; failures first, then the larger error.

    Parameters
    ----------
    words : str
        The conclusion.
    rows : mapping of str to tuple of PrecisionRow
        Of each gradient by its title.
    deciding : {"original", "rounded"}
        Golden whose verdicts decide.
    """
    found = sorted((_line(title, own, deciding) for title, own in rows.items()), key=lambda line: line[0])
    return html_table(words, _HEADINGS, [cells for _, cells in found])


def _line(title: str, rows: tuple[PrecisionRow, ...], deciding: Golden) -> tuple[tuple[int, float], tuple[str, ...]]:
    """Return place in the order and cells of a gradient."""
    computed = [(row, row.result) for row in rows if row.result is not None]
    outcomes = [result.against(deciding).outcome for _, result in computed]
    counts = tuple(str(outcomes.count(outcome)) for outcome in ("pass", "fail", "void"))
    refused = str(len(rows) - len(computed))
    if not computed:
        return (1, 0.0), (title, "-", "-", "-", "-", "-", *counts, refused)
    row, worst = max(computed, key=lambda pair: relative_error(pair[1], "original"))
    names = (title, row.place, row.mode, worst.compute_dtype)
    errors = tuple(f"{relative_error(worst, golden):.1e}" for golden in GOLDENS)
    return (-outcomes.count("fail"), -relative_error(worst, "original")), (*names, *errors, *counts, refused)

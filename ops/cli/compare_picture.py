"""The histogram of a comparison as a picture."""

from __future__ import annotations

from ops.cli.compare_table import bin_words
from ops.cli.precision_picture import SUFFIXES, picture_bytes, require_matplotlib
from ops.studies.comparison_report import ComparisonReport

__all__ = ["SUFFIXES", "draw", "require_matplotlib"]

_BLUE, _RED = "#0072B2", "#D55E00"
_UPRIGHT = 8
"""More labels than this stand side by side only when turned."""


def draw(report: ComparisonReport, suffix: str) -> bytes:
    """Draw how many elements are how far apart; parameters and errors as of `precision_picture.draw`."""
    require_matplotlib()
    from matplotlib.figure import Figure

    labels = [bin_words(one) for one in report.histogram]
    counts = [one.count for one in report.histogram]
    colours = [_BLUE] * len(counts)
    if report.nan_count:
        labels, counts, colours = [*labels, "NaN"], [*counts, report.nan_count], [*colours, _RED]
    figure = Figure(figsize=(max(6.0, 0.45 * len(counts) + 1.5), 4.2), dpi=120, layout="constrained")
    panel = figure.subplots()
    bars = panel.bar(range(len(counts)), counts, color=colours)
    panel.bar_label(bars, labels=[str(count) if count else "" for count in counts], fontsize=7, padding=2)
    panel.set_yscale("symlog", linthresh=1)
    panel.set_ylim(0, 4 * max(counts))
    panel.set_xticks(range(len(counts)), labels, fontsize=8)
    if len(counts) > _UPRIGHT:
        for label in panel.get_xticklabels():
            label.set(rotation=45, horizontalalignment="right")
    panel.set_xlabel(f"ULP of {report.ulp_dtype} apart")
    panel.set_ylabel("elements")
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title(
        f"{report.gradient} of {report.layer}\nleft: {report.left.words}\nright: {report.right.words}", fontsize=9
    )
    return picture_bytes(figure, suffix)

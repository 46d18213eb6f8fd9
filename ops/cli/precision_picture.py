"""The precision report as a picture: relative L2 error by product and mode, one panel per gradient."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from npu_sim.errors import MissingExtraError
from npu_sim.report.standards.verdict import Outcome
from ops.cli.short_names import short_names
from ops.studies.precision_conclusion import cause_words, error_words, standards_words, verdict_words
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, LayerSummary, PrecisionRow

SUFFIXES = (".png", ".svg", ".pdf")
MAX_PANELS = 30
"""More layers than this do not fit one readable picture; those with the largest error are shown."""

# Okabe and Ito's colours, told apart with every common colour vision; the marker's shape says the same.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = {
    "fp32": ("#0072B2", "o"),
    "hf32": ("#E69F00", "s"),
    "fp16": ("#D55E00", "^"),
    "bf16": ("#009E73", "D"),
}
_GREY = "#777777"
_TITLE = 32
"""Characters of a layer name that fit above a panel."""

# Inches: left of a panel, its height, below it (numbers and products), below all of them (legend); above all panels,
# besides the lines of the title; a line of the title, and a character of it.
_LEFT, _PANEL, _BELOW, _FOOT = 0.72, 1.9, 0.8, 0.6
_TOP, _LINE, _CHARACTER = 0.65, 0.24, 0.1

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def require_matplotlib() -> None:
    """Refuse early if no picture can be drawn, without the half second that loading matplotlib takes.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "A picture must have matplotlib, which is not installed; run: pip install matplotlib (the extra report)"
        )


def picture_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a drawn figure as a file of the format that ``suffix`` (one of `SUFFIXES`) names."""
    stream = io.BytesIO()
    figure.savefig(stream, format=suffix.removeprefix("."))
    return stream.getvalue()


def draw(report: PrecisionReport, suffix: str) -> bytes:
    """Draw the picture.

    Parameters
    ----------
    report : PrecisionReport
        What to draw.
    suffix : {".png", ".svg", ".pdf"}
        File format.

    Returns
    -------
    bytes
        The file.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    layers = _chosen(report)
    blocks = sum(len(modes) + 1 for modes in _places(report).values())
    panel_width = max(3.6, 0.2 * blocks)
    columns = min(len(layers), max(1, int(18.0 // (panel_width + _LEFT))))
    lines = -(-len(layers) // columns)
    width = max(9.0, columns * (panel_width + _LEFT) + 0.15)
    title = _title(report, layers, int(width / _CHARACTER))
    top = _TOP + _LINE * len(title)
    height = top + lines * (_PANEL + _BELOW) + _FOOT
    figure = Figure(figsize=(width, height), dpi=120)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    # Measured by hand in inches: matplotlib's own fitting takes longer than everything else together.
    figure.subplots_adjust(
        left=_LEFT / width,
        right=1 - 0.15 / width,
        top=1 - top / height,
        bottom=(_FOOT + _BELOW) / height,
        wspace=_LEFT / ((width - 0.15) / columns - _LEFT),
        hspace=_BELOW / _PANEL,
    )
    limits = _limits(report, layers)
    titles = short_names([layer.title for layer in layers], _TITLE)
    for number, panel in enumerate(grid.flat):
        if number >= len(layers):
            panel.set_axis_off()
            continue
        _draw_panel(panel, report, layers[number], titles[number], limits)
        if number % columns == 0:
            panel.set_ylabel("relative L2 error", fontsize=9)
        if number + columns >= len(layers):
            panel.set_xlabel("cubeMathType, product", fontsize=9, labelpad=19)
    for number, (line, weight) in enumerate(title):
        at = (0.15 + _LINE * (number + 0.5)) / height
        figure.text(0.5, 1 - at, line, ha="center", va="center", fontsize=11.5, fontweight=weight)
    figure.text(0.5, 1 - (top - 0.35) / height, _subtitle(report, len(layers)), ha="center", fontsize=8, color=_GREY)
    figure.legend(
        handles=_legend_handles(report, layers),
        loc="lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
        bbox_to_anchor=(0.5, 0.0),
    )
    return picture_bytes(figure, suffix)


def _chosen(report: PrecisionReport) -> list[LayerSummary]:
    """Return the layers to show, in the order of the report."""
    worst = {layer.title: 0.0 for layer in report.layers}
    for row in report.computed:
        if row.result is not None:
            worst[row.title] = max(worst[row.title], row.result.original.error.relative_l2 or 0.0)
    shown = sorted(worst, key=lambda name: -worst[name])[:MAX_PANELS]
    return [layer for layer in report.layers if layer.title in shown]


def _places(report: PrecisionReport) -> dict[str, list[str]]:
    """Return the modes of each product and interface that has rows, in the order of the report."""
    places: dict[str, list[str]] = {}
    for row in report.rows:
        modes = places.setdefault(row.place, [])
        if row.mode not in modes:
            modes.append(row.mode)
    return places


def _title(report: PrecisionReport, layers: Sequence[LayerSummary], characters: int) -> list[tuple[str, str]]:
    """Return what the drawn layers come to, as lines of at most so many characters and their weights."""
    titles = {layer.title for layer in layers}
    drawn = [row.result for row in report.computed if row.title in titles and row.result is not None]
    verdict = verdict_words(drawn, report.options.golden, standards_words(report.standards))
    conclusion = "; ".join(filter(None, (verdict, cause_words(drawn))))
    return [
        (line, weight)
        for text, weight in ((conclusion, "bold"), (error_words(drawn), "normal"))
        for line in textwrap.wrap(text, characters)
    ]


def _subtitle(report: PrecisionReport, panels: int) -> str:
    source = report.source.rpartition("/")[2]
    commits = " and ".join(dict.fromkeys(standard["commit"] or standard["version"] for standard in report.standards))
    counted = f"counted: verdicts against the {report.options.golden} golden (standard at {commits})"
    text = f"Gradients of {source} against float64; {counted}"
    if panels < len(report.layers):
        text += f"; the {panels} of {len(report.layers)} layers with the largest error"
    return text + "; emulated, not certified against silicon"


def _limits(report: PrecisionReport, layers: Sequence[LayerSummary]) -> tuple[float, float]:
    """Return the common range of the error axis: whole decades around every finite, non-zero error."""
    values = [layer.reference.relative_l2 for layer in layers if layer.reference is not None]
    for row in report.computed:
        if row.result is not None:
            values += [row.result.original.error.relative_l2, row.result.rounded.error.relative_l2]
    finite = [value for value in values if value is not None and 0.0 < value < math.inf] or [1e-7, 1e-3]
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    return 10.0 ** (low - 1), 10.0 ** max(high, low + 1)


def _draw_panel(
    panel: Any, report: PrecisionReport, layer: LayerSummary, title: str, limits: tuple[float, float]
) -> None:
    """Draw one layer."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = limits
    panel.set_yscale("log")
    panel.set_ylim(low, high * 1.6)
    panel.yaxis.set_major_locator(LogLocator(10.0, numticks=12))
    panel.yaxis.set_minor_locator(NullLocator())
    # plain text: to parse seven formulas takes as long as to draw the rest of a panel
    panel.yaxis.set_major_formatter(lambda value, _: f"10{str(round(math.log10(value))).translate(_RAISED)}")
    panel.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    # at a place said, not one found by measuring every label of the axes
    panel.set_title(f"{title}  (K depth {layer.k_depth})", fontsize=10, loc="left", y=1.0)
    if layer.reference is not None:
        panel.axhline(
            _clamped(layer.reference.relative_l2, limits), color=_GREY, linewidth=1.0, linestyle="--", zorder=1
        )
    positions: dict[tuple[str, str], int] = {}
    start = 0
    for block, (place, modes) in enumerate(_places(report).items()):
        positions.update({(place, mode): start + offset for offset, mode in enumerate(modes)})
        if block % 2:
            panel.axvspan(start - 0.75, start + len(modes) - 0.25, color="#f6f6f6", zorder=0)
        panel.annotate(
            place,
            (start + (len(modes) - 1) / 2, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -26),
            textcoords="offset points",
            ha="center",
            va="baseline",
            fontsize=8,
        )
        start += len(modes) + 1
    panel.set_xticks(list(positions.values()), [mode for _, mode in positions], fontsize=7)
    panel.tick_params(axis="y", labelsize=8)
    panel.set_xlim(-0.75, start - 1.25)
    rows = report.rows_of(layer)
    _draw_results(panel, [(positions[row.place, row.mode], row) for row in rows], limits)


def _draw_results(panel: Any, rows: Sequence[tuple[int, PrecisionRow]], limits: tuple[float, float]) -> None:
    """Draw every combination at its position: two marks joined by a line, or a word for a refusal."""
    points: dict[tuple[str, str, int, Outcome], list[tuple[int, float]]] = {}
    joined: dict[str, list[tuple[int, list[float]]]] = {}
    for position, row in rows:
        if row.result is None:
            panel.annotate(
                "refused",
                (position, limits[0]),
                xytext=(0, 4),
                textcoords="offset points",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize=7,
                color=_GREY,
            )
            continue
        colour, marker = _STYLES[row.result.compute_dtype]
        ends: list[float] = []
        for comparison, area in ((row.result.original, 42), (row.result.rounded, 20)):
            value = _clamped(comparison.error.relative_l2, limits)
            # two labels at one edge: the original's to the right, the rounded one's to the left
            side = -1 if value in ends else 1
            ends.append(value)
            points.setdefault((colour, marker, area, comparison.outcome), []).append((position, value))
            label = _edge_label(comparison.error.relative_l2)
            if label:
                panel.annotate(
                    label,
                    (position, value),
                    xytext=(5 * side, 2),
                    textcoords="offset points",
                    ha="left" if side > 0 else "right",
                    fontsize=7,
                    color=colour,
                )
        joined.setdefault(colour, []).append((position, ends))
    for colour, lines in joined.items():
        positions = [position for position, _ in lines]
        lows, highs = zip(*(ends for _, ends in lines), strict=True)
        panel.vlines(positions, lows, highs, color=colour, linewidth=1.2, zorder=2)
    for (colour, marker, area, outcome), where in points.items():
        x, y = zip(*where, strict=True)
        face = colour if outcome == "pass" else "white"
        panel.scatter(
            x, y, s=area, marker=marker, facecolor=face, edgecolor=colour, linewidth=1.1, zorder=3, clip_on=False
        )
        if outcome == "fail":
            panel.scatter(x, y, s=area * 0.8, marker="x", color="black", linewidth=0.9, zorder=4, clip_on=False)


def _edge_label(value: float | None) -> str:
    """Return what an error is whose mark stands at an edge because no logarithmic axis has a place for it."""
    if value is None:
        return "none"
    return "0" if value == 0.0 else "inf" if math.isinf(value) else ""


def _clamped(value: float | None, limits: tuple[float, float]) -> float:
    """Return where an error is drawn: 0 at the lower edge, infinity and no figure (all NaN) at the upper."""
    return limits[1] * 1.3 if value is None else min(max(value, limits[0]), limits[1] * 1.3)


def _legend_handles(report: PrecisionReport, layers: Sequence[LayerSummary]) -> list[Any]:
    from matplotlib.lines import Line2D

    used = {row.result.compute_dtype for row in report.computed if row.result is not None}
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=f"multiplied in {dtype}")
        for dtype, (colour, marker) in _STYLES.items()
        if dtype in used
    ]

    def mark(size: float, label: str) -> Line2D:
        return Line2D([], [], color=_GREY, marker="o", linestyle="none", markersize=size, label=label)

    handles += [mark(6.5, "large: golden of the original inputs"), mark(4.0, "small: golden of the rounded inputs")]
    outcomes = {getattr(row.result, golden).outcome for row in report.computed for golden in GOLDENS}
    if "fail" in outcomes:
        label = "crossed out: fails the standard"
        handles.append(Line2D([], [], color="black", marker="x", linestyle="none", markersize=5, label=label))
    if "void" in outcomes:
        label = "hollow, void: the verdict says nothing"
        handles.append(mark(6.5, label))
        handles[-1].set_markerfacecolor("white")
    if any(layer.reference is not None for layer in layers):
        handles.append(Line2D([], [], color=_GREY, linestyle="--", label="gradient in the file (original inputs)"))
    return handles

"""The precision report as a picture: mean relative error by product and mode, one panel per layer."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from npu_sim.errors import NpuSimError
from ops.studies.precision import CaseResult, LayerSummary, PrecisionReport, PrecisionRow

SUFFIXES = (".png", ".svg", ".pdf")
MAX_PANELS = 60
"""More layers than this do not fit one readable picture; those with the largest error are shown."""

# Okabe and Ito's colours, told apart with every common colour vision; the marker's shape says the same.
_STYLES = {
    "fp32": ("#0072B2", "o"),
    "hf32": ("#E69F00", "s"),
    "fp16": ("#D55E00", "^"),
    "bf16": ("#009E73", "D"),
}
_GREY = "#777777"


class MissingExtraError(NpuSimError, ImportError):
    """A picture was asked for and matplotlib is not installed."""


def require_matplotlib() -> None:
    """Refuse early if no picture can be drawn.

    Raises
    ------
    MissingExtraError
        matplotlib cannot be imported.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "A picture must have matplotlib, which is not installed; run: pip install 'npu-sim[report]'"
        ) from error


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
    products, modes = report.options.products, report.options.cube_math_types
    columns = min(len(layers), 3 if len(products) * len(modes) <= 24 else 1)
    lines = -(-len(layers) // columns)
    width = columns * max(4.2, 0.55 + 0.21 * len(products) * len(modes)) + 0.5
    height = lines * 2.75 + 1.3
    figure = Figure(figsize=(max(width, 8.0), height), dpi=120)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    limits = _limits(report, layers)
    for number, panel in enumerate(grid.flat):
        if number < len(layers):
            _draw_panel(panel, report, layers[number], limits)
            if number % columns == 0:
                panel.set_ylabel("mean relative error (MERE)", fontsize=9)
            if number + columns >= len(layers):
                panel.set_xlabel("cubeMathType, product", fontsize=9, labelpad=20)
        else:
            panel.set_axis_off()
    title = "Error of the weight gradient against float64, by product and cubeMathType"
    figure.suptitle(title, y=1 - 0.2 / height).set_in_layout(False)
    figure.text(0.5, 1 - 0.58 / height, _subtitle(report, len(layers)), ha="center", fontsize=8, color=_GREY)
    figure.legend(
        handles=_legend_handles(report, layers),
        loc="lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
        bbox_to_anchor=(0.5, 0.0),
    )
    figure.tight_layout(rect=(0, 0.5 / height, 1, 1 - 0.65 / height), h_pad=1.2)
    stream = io.BytesIO()
    figure.savefig(stream, format=suffix.removeprefix("."))
    return stream.getvalue()


def _chosen(report: PrecisionReport) -> list[LayerSummary]:
    """Return the layers to show, in the order of the report."""
    worst = {layer.name: 0.0 for layer in report.layers}
    for row in report.computed:
        if row.result is not None:
            worst[row.layer] = max(worst[row.layer], row.result.original.error.mean_rel)
    shown = sorted(worst, key=lambda name: -worst[name])[:MAX_PANELS]
    return [layer for layer in report.layers if layer.name in shown]


def _subtitle(report: PrecisionReport, panels: int) -> str:
    standard = report.standard
    source = report.source.rpartition("/")[2]
    text = f"{source}; filled: passes {standard['name']} ({standard['commit']}), crossed out: fails"
    if panels < len(report.layers):
        text += f"; the {panels} of {len(report.layers)} layers with the largest error"
    return text + "; emulated, not certified against silicon"


def _limits(report: PrecisionReport, layers: Sequence[LayerSummary]) -> tuple[float, float]:
    """Return the common range of the error axis: whole decades around every finite, non-zero error."""
    values = [layer.reference.mean_rel for layer in layers if layer.reference is not None]
    for row in report.computed:
        if row.result is not None:
            values += [row.result.original.error.mean_rel, row.result.rounded.error.mean_rel]
    finite = [value for value in values if 0.0 < value < math.inf] or [1e-7, 1e-3]
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    return 10.0 ** (low - 1), 10.0 ** max(high, low + 1)


def _draw_panel(panel: Any, report: PrecisionReport, layer: LayerSummary, limits: tuple[float, float]) -> None:
    """Draw one layer."""
    products, modes = report.options.products, report.options.cube_math_types
    low, high = limits
    panel.set_yscale("log")
    panel.set_ylim(low, high * 1.6)
    panel.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.set_title(f"{layer.name}  (K depth {layer.k_depth})", fontsize=10, loc="left")
    if layer.reference is not None:
        panel.axhline(_clamped(layer.reference.mean_rel, limits), color=_GREY, linewidth=1.0, linestyle="--", zorder=1)
    rows = {(row.product, row.cube_math_type): row for row in report.rows if row.layer == layer.name}
    ticks, labels = [], []
    for block, product in enumerate(products):
        start = block * (len(modes) + 1)
        if block % 2:
            panel.axvspan(start - 0.75, start + len(modes) - 0.25, color="#f6f6f6", zorder=0)
        for offset, mode in enumerate(modes):
            ticks.append(start + offset)
            labels.append(str(mode))
            _draw_case(panel, start + offset, rows[product, mode], limits)
        panel.annotate(
            product,
            (start + (len(modes) - 1) / 2, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -26),
            textcoords="offset points",
            ha="center",
            va="baseline",
            fontsize=8,
        )
    panel.set_xticks(ticks, labels, fontsize=7)
    panel.tick_params(axis="y", labelsize=8)
    panel.set_xlim(-0.75, len(products) * (len(modes) + 1) - 1.25)


def _draw_case(panel: Any, position: int, row: PrecisionRow, limits: tuple[float, float]) -> None:
    """Draw one combination: two marks joined by a line, or a word for a refusal."""
    result: CaseResult | None = row.result
    if result is None:
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
        return
    colour, marker = _STYLES[result.compute_dtype]
    original = _clamped(result.original.error.mean_rel, limits)
    rounded = _clamped(result.rounded.error.mean_rel, limits)
    panel.plot([position, position], [rounded, original], color=colour, linewidth=1.2, zorder=2)
    for value, comparison, size in ((original, result.original, 42), (rounded, result.rounded, 20)):
        passed = comparison.verdict.passed
        panel.scatter(
            [position],
            [value],
            s=size,
            marker=marker,
            facecolor=colour if passed else "white",
            edgecolor=colour,
            linewidth=1.1,
            zorder=3,
            clip_on=False,
        )
        if comparison.error.mean_rel == 0.0:
            panel.annotate("0", (position, value), xytext=(5, 2), textcoords="offset points", fontsize=7, color=colour)
        if not passed:
            panel.scatter(
                [position], [value], s=size * 0.8, marker="x", color="black", linewidth=0.9, zorder=4, clip_on=False
            )


def _clamped(value: float, limits: tuple[float, float]) -> float:
    """Return where an error is drawn: 0 at the lower edge, infinity at the upper."""
    return min(max(value, limits[0]), limits[1] * 1.3) if not math.isnan(value) else limits[1] * 1.3


def _legend_handles(report: PrecisionReport, layers: Sequence[LayerSummary]) -> list[Any]:
    from matplotlib.lines import Line2D

    used = {row.result.compute_dtype for row in report.computed if row.result is not None}
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=f"Cube multiplies {dtype}")
        for dtype, (colour, marker) in _STYLES.items()
        if dtype in used
    ]

    def mark(size: float, label: str) -> Line2D:
        return Line2D([], [], color=_GREY, marker="o", linestyle="none", markersize=size, label=label)

    handles += [mark(6.5, "large: golden of the original inputs"), mark(4.0, "small: golden of the rounded inputs")]
    crossed = Line2D(
        [], [], color="black", marker="x", linestyle="none", markersize=5, label="crossed out: fails the standard"
    )
    handles.append(crossed)
    if any(layer.reference is not None for layer in layers):
        handles.append(Line2D([], [], color=_GREY, linestyle="--", label="gradient in the file (original inputs)"))
    return handles

"""The charts of the HTML report as pictures of their own, alike: heat maps, causes, histograms and maps of ULPs.

Where the marks stand is computed once, for both (`ops.cli.precision_charts`, `ops.cli.attribution_chart`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ops.cli import precision_charts as charts
from ops.cli.attribution_chart import BarLine, attribution_bars, used_causes
from ops.cli.bars import Bars
from ops.cli.precision_picture import require_matplotlib
from ops.cli.precision_table import merged
from ops.studies.attribution_report import AttributionRow
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, LayerSummary

SUFFIXES = (".png", ".svg")
"""Of each chart one picture of each."""
# The light colours of templates/page.css and precision.css.
_LEVELS = ("#f7fbff", "#e3eef9", "#cfe1f2", "#b0d2e8", "#84bcdb", "#549ccb", "#2d78b5", "#145193", "#0a2f63")
_CAUSES = (
    "#f0e442",
    "#e69f00",
    "#0072b2",
    "#56b4e9",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#999999",
    "#882255",
    "#332288",
)
_DARK = (2, 8, 9)
_INK, _SOFT, _LINE, _WHITE = "#1b1b1b", "#5a5a5a", "#d0d0d0", "#ffffff"
_BAR, _EXACT, _INFINITE, _VOID, _SPECIAL = "#0072b2", "#009e73", "#d55e00", "#6b5200", "#5a5a5a"
_FIRST_DARK = 6
"""Levels from here on have white text."""
_MARGIN, _TITLE, _KEY, _SMALL, _TEXT = 12, 26, 24, 10.0, 11.0
_DOTS_PER_INCH = 96
_BAR_PATH = re.compile(r"M([\d.]+) ([\d.]+)v-([\d.]+)h([\d.]+)")


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float
    fill: str
    edge: str = "none"
    thick: float = 1.0


@dataclass(frozen=True, slots=True)
class _Text:
    x: float
    y: float
    text: str
    size: float = _TEXT
    align: str = "left"
    colour: str = _INK


@dataclass(slots=True)
class _Sheet:
    """A picture in pixels from the left and from above."""

    width: float
    height: float
    boxes: list[_Box] = field(default_factory=list)
    texts: list[_Text] = field(default_factory=list)


def figures(report: PrecisionReport) -> dict[str, bytes]:
    """Return every chart of the HTML report by the name of its file, as `SUFFIXES` say.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    """
    require_matplotlib()
    return {f"{name}{suffix}": _drawn(sheet, suffix) for name, sheet in _sheets(report) for suffix in SUFFIXES}


def _sheets(report: PrecisionReport) -> Iterator[tuple[str, _Sheet]]:
    for golden in GOLDENS:
        pieces = charts.heat_maps(report, golden)
        for number, piece in enumerate(pieces):
            title = f"Relative L2 error against the {golden} golden, by gradient, product and mode"
            yield f"heat-{golden}{_numbered(number, pieces)}", _heat(piece, title)
    rows = report.attribution or ()
    bars = attribution_bars(rows)
    for number, some in enumerate(bars):
        yield f"causes{_numbered(number, bars)}", _causes(some, rows)
    for number, layer in enumerate(report.layers, 1):
        if (sheet := _histograms(report, layer)) is not None:
            yield f"{number:03d}-histograms", sheet
        yield from ((f"{number:03d}-ulp-map-{i}", sheet) for i, sheet in enumerate(_maps(report, layer), 1))


def _numbered(number: int, pieces: Sequence[object]) -> str:
    return f"-{number + 1}" if len(pieces) > 1 else ""


def _titled(width: float, height: float, title: str) -> _Sheet:
    """Return an empty sheet with room for the chart below its title."""
    sheet = _Sheet(max(width, 7 * len(title)) + 2 * _MARGIN, height + _TITLE + 2 * _MARGIN)
    sheet.texts.append(_Text(_MARGIN, _MARGIN + 12, title, 12.0))
    return sheet


def _cell(sheet: _Sheet, cell: charts.Cell, x: float, y: float, size: tuple[float, float]) -> None:
    """Draw one cell of a heat map or a map at its place behind ``x`` and below ``y``."""
    left, top = x + cell.x, y + cell.y
    edge, thick = {"fail": (_INFINITE, 2.0), "void": (_VOID, 1.2)}.get(cell.outcome, ("none", 1.0))
    known = cell.level >= 0
    fill = _LEVELS[cell.level] if known else _WHITE
    box = _Box(left + 1, top + 1, size[0] - 2, size[1] - 2, fill, edge if known else _LINE, thick)
    sheet.boxes.append(box)
    colour = _WHITE if cell.level >= _FIRST_DARK else _INK
    if cell.mark:
        sheet.texts.append(_Text(left + 4, top + 14, cell.mark, _SMALL, "left", colour))
    if cell.text:
        sheet.texts.append(_Text(left + size[0] - 5, top + size[1] - 6, cell.text, _SMALL, "right", colour))


def _key(sheet: _Sheet, pairs: Sequence[tuple[str, str]]) -> None:
    """Add a line below with what the colours mean."""
    x, y = float(_MARGIN), sheet.height - _MARGIN + _KEY - 6
    for colour, words in pairs:
        sheet.boxes.append(_Box(x, y - 10, 12, 12, colour, _LINE, 0.5))
        sheet.texts.append(_Text(x + 16, y, words, _SMALL, "left", _SOFT))
        x += 26 + 6.5 * len(words)
    sheet.width, sheet.height = max(sheet.width, x + _MARGIN), sheet.height + _KEY


def _words(sheet: _Sheet, labels: Sequence[str]) -> None:
    """Add a line below with labels side by side."""
    x, y = float(_MARGIN), sheet.height - _MARGIN + _KEY - 6
    for words in labels:
        sheet.texts.append(_Text(x, y, words, _SMALL, "left", _SOFT))
        x += 18 + 6.5 * len(words)
    sheet.width, sheet.height = max(sheet.width, x + _MARGIN), sheet.height + _KEY


def _heat(piece: charts.HeatMap, title: str) -> _Sheet:
    sheet = _titled(piece.width, piece.height, title)
    x, y = _MARGIN, _MARGIN + _TITLE
    sheet.texts += [_Text(x + one.x, y + one.y, one.text) for one in piece.columns]
    sheet.texts += [_Text(x + one.x, y + one.y, one.text, _SMALL, "right") for one in piece.rows]
    for cell in piece.cells:
        _cell(sheet, cell, x, y, (piece.cell_width, piece.cell_height))
    _key(sheet, list(zip(_LEVELS, charts.DECADE_LABELS, strict=True)))
    _words(sheet, charts.MARK_LABELS)
    return sheet


def _causes(bars: Bars[BarLine], rows: Sequence[AttributionRow]) -> _Sheet:
    sheet = _titled(bars.width, bars.height, "Share of the squared error that each cause makes")
    x, y = _MARGIN, _MARGIN + _TITLE
    for line in bars.lines:
        sheet.texts.append(_Text(x + bars.name_end, y + line.y + 14, line.name, _SMALL, "right"))
        for one in line.segments:
            sheet.boxes.append(_Box(x + one.x, y + line.y + 2, one.width, 16, _CAUSES[one.number], _WHITE))
            if one.label:
                colour = _WHITE if one.number in _DARK else _INK
                sheet.texts.append(_Text(x + one.x + 5, y + line.y + 14, one.label, _SMALL, "left", colour))
        sheet.texts.append(_Text(x + line.end, y + line.y + 14, line.error))
    _key(sheet, [(_CAUSES[number], words) for number, words in used_causes(rows)])
    return sheet


def _histograms(report: PrecisionReport, layer: LayerSummary) -> _Sheet | None:
    """Return the errors in ULPs of each result of a layer, one below the other; None where nothing is computed."""
    golden = report.options.golden
    lines = list(merged(report.rows_of(layer)))
    if not lines:
        return None
    found = [result.against(golden).ulp_histogram for _, _, result in lines]
    drawn = [charts.histogram(one, *charts.shared_axis(found)) for one in found]
    step = drawn[0].height + 22
    title = f"{layer.title}: errors in ULPs against the {golden} golden"
    sheet = _titled(drawn[0].width, step * len(lines), title)
    for number, ((places, modes, result), one) in enumerate(zip(lines, drawn, strict=True)):
        x, y = float(_MARGIN), float(_MARGIN + _TITLE + number * step)
        words = f"{' '.join(places)} mode {' '.join(modes)}, {result.compute_dtype}"
        sheet.texts.append(_Text(x, y + 10, words, _SMALL, "left", _SOFT))
        y += 16
        for path, colour in (
            (one.bars, _BAR), (one.exact, _EXACT), (one.infinite, _INFINITE), (one.special, _SPECIAL)
        ):  # fmt: skip
            for match in _BAR_PATH.finditer(path):
                left, base, tall, wide = map(float, match.groups())
                sheet.boxes.append(_Box(x + left, y + base - tall, wide, tall, colour))
        sheet.boxes.append(_Box(x + charts.HISTOGRAM_LEFT, y + one.base, one.width - charts.HISTOGRAM_LEFT, 0.6, _LINE))
        sheet.texts += [_Text(x + at.x, y + at.y, at.text, 9.0, "center", _SOFT) for at in one.across]
        sheet.texts += [_Text(x + at.x, y + at.y, at.text, 9.0, "right", _SOFT) for at in one.up]
    _key(
        sheet,
        [
            (_EXACT, "exact"), (_BAR, "elements, powers of two of a ULP"), (_INFINITE, "differ in NaN or Inf"),
            (_SPECIAL, "NaN or Inf in both"),
        ],
    )  # fmt: skip
    return sheet


def _maps(report: PrecisionReport, layer: LayerSummary) -> Iterator[_Sheet]:
    for row in report.rows_of(layer):
        shown = None if row.result is None else row.result.against(report.options.golden).ulp_map
        if shown is None or not shown.max_ulp:
            continue
        width, height, *cell = charts.map_size(shown)
        title = f"{row.title} on {row.place}, mode {row.mode}: largest error in ULPs, by place"
        sheet = _titled(width, height, title)
        for one in charts.map_cells(shown):
            _cell(sheet, one, _MARGIN, _MARGIN + _TITLE, (cell[0], cell[1]))
        _key(sheet, list(zip(_LEVELS, charts.ULP_LABELS, strict=True)))
        yield sheet


def _drawn(sheet: _Sheet, suffix: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(sheet.width / _DOTS_PER_INCH, sheet.height / _DOTS_PER_INCH), dpi=_DOTS_PER_INCH)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, sheet.width), ylim=(sheet.height, 0))
    axes.set_axis_off()
    points = 72 / _DOTS_PER_INCH
    for box in sheet.boxes:
        axes.add_patch(
            Rectangle(
                (box.x, box.y), box.width, box.height, facecolor=box.fill, edgecolor=box.edge,
                linewidth=box.thick * points,
            )
        )  # fmt: skip
    for one in sheet.texts:
        # names of layers are no formulae
        axes.text(
            one.x, one.y, one.text, fontsize=one.size * points, ha=one.align, va="baseline", color=one.colour,
            parse_math=False,
        )  # fmt: skip
    stream = io.BytesIO()
    # the same bytes for the same report
    with matplotlib.rc_context({"svg.hashsalt": "npu-sim", "svg.fonttype": "none"}):
        about: dict[str, Any] = {"Date": None} if suffix == ".svg" else {}
        figure.savefig(stream, format=suffix.removeprefix("."), dpi=2 * _DOTS_PER_INCH, metadata=about)
    return stream.getvalue()

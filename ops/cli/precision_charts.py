"""Where the marks of a precision report's charts stand: heat maps, histograms and maps, in pixels of an SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from npu_sim.report.ulps import UlpHistogram, UlpMap
from ops.cli.precision_table import short, verdict_text
from ops.cli.short_names import short_names
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import Golden, PrecisionRow

T = TypeVar("T")

MARKS = {"pass": "", "fail": "✕", "void": "○"}
"""Beside a figure, what the verdict is where it is no pass."""
REFUSED = "–"
MARK_LABELS = (
    f"{MARKS['fail']} the standard fails",
    f"{MARKS['void']} the verdict is void",
    f"{REFUSED} refused",
    "no mark: passes",
    "columns: product, below it cubeMathType",
)
"""What the marks of a heat map mean."""
DECADES = tuple(range(-8, 0))
"""A relative error below 10^-8 has the first colour, one of 0.1 or more the last."""
DECADE_LABELS = ("< 10⁻⁸", *(f"≥ 10⁻{digit}" for digit in "⁸⁷⁶⁵⁴³²¹"))
ULP_LIMITS = (0.0, 0.5, 1.0, 4.0, 32.0, 1024.0, 2.0**16, 2.0**24)
"""An error of no more than the first has the first colour, and so on; a larger one the last."""
ULP_LABELS = ("exact", "≤ 0.5", "≤ 1", "≤ 4", "≤ 32", "≤ 1024", "≤ 2^16", "≤ 2^24", "more")

# Pixels. Of a heat map: names, a cell, the two lines of headings; rows and columns of one that a page can hold.
_NAME, _WIDTH, _HEIGHT, _HEAD = 160, 62, 20, 38
_ROWS, _COLUMNS = 40, 16
_NAME_LENGTH, _CHARACTER = 24, 7
# Of a histogram: left of it, the room of its bars, above and below; the widest bar; half a label.
_LEFT, _BARS, _TOP, _TALL, _FOOT, _BAR, _LABEL = 34, 250, 8, 76, 26, 18, 16
_SPECIAL = 42
"""Room right of all bars but that of NaN and Inf in the golden."""
_MAP_CELL, _MAP_LINE = 40, 18
HISTOGRAM_LEFT = _LEFT


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a heat map: place, colour (0..8, or -1 for none), text, mark, and all of it in words."""

    x: int
    y: int
    level: int
    text: str
    mark: str
    outcome: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text at a place; ``full`` where it is shortened, ``target`` what it leads to."""

    x: float
    y: float
    text: str
    full: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Some gradients on some products in some modes."""

    width: int
    height: int
    cell_width: int
    cell_height: int
    columns: tuple[Label, ...]
    rows: tuple[Label, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Bars as one path, apart from them those of exact elements, infinite errors and NaN or Inf in both, and labels."""

    width: int
    height: int
    base: float
    bars: str
    exact: str
    infinite: str
    special: str
    across: tuple[Label, ...]
    up: tuple[Label, ...]
    words: str


def heat_maps(report: PrecisionReport, golden: Golden) -> tuple[HeatMap, ...]:
    """Return the relative L2 errors against one golden, cut into pieces that fit a page."""
    order = list(dict.fromkeys(row.place for row in report.rows))
    places = sorted(
        dict.fromkeys((row.place, row.mode) for row in report.rows), key=lambda place: order.index(place[0])
    )
    found = {(row.title, row.place, row.mode): row for row in report.rows}
    layers = [(number, layer.title) for number, layer in enumerate(report.layers)]
    return tuple(
        _heat_map(own_layers, own_places, found, golden)
        for own_places in _pieces(places, _COLUMNS)
        for own_layers in _pieces(layers, _ROWS)
    )


def _pieces(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return the items in pieces of about the same length."""
    length = -(-len(items) // max(1, -(-len(items) // most)))
    return [items[start : start + length] for start in range(0, len(items), length)]


def _heat_map(
    layers: Sequence[tuple[int, str]],
    places: Sequence[tuple[str, str]],
    found: dict[tuple[str, str, str], PrecisionRow],
    golden: Golden,
) -> HeatMap:
    across, down = [_NAME + i * _WIDTH for i in range(len(places))], [_HEAD + i * _HEIGHT for i in range(len(layers))]
    heads = [Label(x=x + 4, y=_HEAD - 6, text=mode) for x, (_, mode) in zip(across, places, strict=True)]
    for i, (place, _) in enumerate(places):
        if not i or places[i - 1][0] != place:
            room = sum(other == place for other, _ in places) * _WIDTH // _CHARACTER
            shown = place if len(place) <= room else f"{place[: room - 1]}…"
            heads.append(Label(x=across[i] + 4, y=_HEAD - 22, text=shown, full=place))
    cells = tuple(
        _cell(x, y, found[title, *place], golden)
        for y, (_, title) in zip(down, layers, strict=True)
        for x, place in zip(across, places, strict=True)
        if (title, *place) in found
    )
    names = short_names([title for _, title in layers], _NAME_LENGTH)
    return HeatMap(
        width=_NAME + len(places) * _WIDTH,
        height=_HEAD + len(layers) * _HEIGHT,
        cell_width=_WIDTH,
        cell_height=_HEIGHT,
        columns=tuple(heads),
        rows=tuple(
            Label(
                x=_NAME - 6,
                y=y + 14,
                text=name,
                full=title,
                target=f"g{number}",
            )
            for y, (number, title), name in zip(down, layers, names, strict=True)
        ),
        cells=cells,
    )


def _cell(x: int, y: int, row: PrecisionRow, golden: Golden) -> Cell:
    where = f"{row.title}, {row.place}, mode {row.mode}"
    if row.result is None:
        words = f"{where}: refused"
        return Cell(x=x, y=y, level=-1, text="", mark=REFUSED, outcome="refused", words=words)
    against = row.result.against(golden)
    value = against.error.relative_l2
    words = f"{where}, {row.result.compute_dtype}: relative L2 error {short(value)}, {verdict_text(against).plain}"
    return Cell(
        x=x,
        y=y,
        level=-1 if value is None else sum(value >= 10.0**decade for decade in DECADES),
        text=short(value),
        mark=MARKS[against.outcome],
        outcome=against.outcome,
        words=words,
    )


def histogram(found: UlpHistogram, lowest: int, highest: int) -> Histogram:
    """Return the bars of a histogram on an axis from the bin ``lowest`` to the bin ``highest``."""
    bins = highest - lowest + 1
    bar = min(_BAR, (_BARS - _SPECIAL) / (bins + 3))
    special = (_BARS - _SPECIAL / 2) / bar - 0.5
    most = max(found.exact, found.infinite, found.special, *found.counts, 1)
    base = _TOP + _TALL

    def path(number: float, count: int) -> str:
        """Return a bar; its height is logarithmic, and one element can be seen."""
        if not count:
            return ""
        tall = _TALL * (math.log10(count) + 0.3) / (math.log10(most) + 0.3)
        return f"M{_LEFT + number * bar:.1f} {base}v{-tall:.1f}h{bar - 1:.1f}v{tall:.1f}z"

    first = found.lowest_exponent - lowest + 1.5
    step = max(1, -(-bins // 6))
    across = [Label(x=_LEFT + bar / 2, y=base + 12, text="0")]
    across += [
        Label(x=_LEFT + (1.5 + exponent - lowest) * bar, y=base + 12, text=_power(exponent))
        for exponent in range(lowest, highest + 1)
        if exponent % step == 0 and (exponent - lowest) * bar > _LABEL
    ]
    if found.infinite:
        across.append(Label(x=_LEFT + (bins + 2.5) * bar, y=base + 12, text="∞"))
    if found.special:
        across.append(Label(x=_LEFT + (special + 0.5) * bar, y=base + 12, text="NaN/Inf"))
    ticks = dict.fromkeys((1, 10 ** math.floor(math.log10(most)), most))
    up = [
        Label(x=_LEFT - 4, y=base - _TALL * (math.log10(tick) + 0.3) / (math.log10(most) + 0.3) + 4, text=f"{tick:,}")
        for tick in ticks
    ]
    apart = [label for i, label in enumerate(up) if i == len(up) - 1 or label.y - up[-1].y > 10]
    return Histogram(
        width=_LEFT + _BARS,
        height=base + _FOOT,
        base=base,
        bars="".join(path(first + number, count) for number, count in enumerate(found.counts)),
        exact=path(0, found.exact),
        infinite=path(bins + 2, found.infinite),
        special=path(special, found.special),
        across=tuple(across),
        up=tuple(apart),
        words=_histogram_words(found),
    )


def _power(exponent: int) -> str:
    return f"{2**exponent}" if 0 <= exponent <= 6 else f"2^{exponent}"


def _histogram_words(found: UlpHistogram) -> str:
    count = found.exact + found.infinite + found.special + sum(found.counts)
    parts = [f"{found.exact} of {count} elements exact"]
    parts += [f"{one} from 2^{found.lowest_exponent + number} ULP" for number, one in enumerate(found.counts) if one]
    parts += [f"{found.infinite} differ in NaN or Inf"] if found.infinite else []
    return "; ".join([*parts, *([f"{found.special} NaN or Inf in both"] if found.special else [])])


def shared_axis(histograms: Sequence[UlpHistogram]) -> tuple[int, int]:
    """Return the first and the last bin that one of them has."""
    ends = [(one.lowest_exponent, one.lowest_exponent + len(one.counts) - 1) for one in histograms if one.counts]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0, 0)


def map_cells(found: UlpMap) -> tuple[Cell, ...]:
    """Return the cells of a map."""
    return tuple(
        Cell(
            x=column * _MAP_CELL,
            y=row * _MAP_LINE,
            level=sum(value > limit for limit in ULP_LIMITS),
            text=ulp_text(value),
            mark="",
            outcome="",
            words="",
        )
        for row, line in enumerate(found.max_ulp)
        for column, value in enumerate(line)
    )


def map_size(found: UlpMap) -> tuple[int, int, int, int]:
    """Return width and height of a map, and of a cell of it."""
    rows, columns = len(found.max_ulp), len(found.max_ulp[0]) if found.max_ulp else 0
    return columns * _MAP_CELL, rows * _MAP_LINE, _MAP_CELL, _MAP_LINE


def ulp_text(value: float) -> str:
    """Return an error in ULPs in at most six characters."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}" if value < 10_000 else f"{value:.0e}".replace("e+0", "e")

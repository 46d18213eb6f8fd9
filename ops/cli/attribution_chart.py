"""Bars of where errors come from: the shares of the causes side by side, in pixels of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ops.cli.attribution_table import WORDS, attribution_lines
from ops.cli.bars import Bar, Bars
from ops.studies.attribution_report import CAUSES, AttributionRow, Cause

_NAME, _BAR, _NOTE, _LINE, _CHARACTER, _ROWS = 300, 640, 150, 20, 7, 40
_NAME_LENGTH = _NAME // _CHARACTER


@dataclass(frozen=True, slots=True, kw_only=True)
class BarLine:
    """The bar of one line of the table: its name, shortened and in full, its segments, and the error at its end."""

    y: int
    name: str
    full: str
    segments: tuple[Bar, ...]
    end: float
    error: str


def attribution_bars(rows: Sequence[AttributionRow]) -> tuple[Bars[BarLine], ...]:
    """Return a bar for each line of the table.

    A full bar is the squared error. What a bar is shorter than that is the share of the cross terms; where they are
    negative the shares are more than all, and the bar is drawn as long as a full one.
    """
    _, lines = attribution_lines(rows)
    return tuple(
        Bars(
            width=_NAME + _BAR + _NOTE,
            height=len(piece) * _LINE,
            name_end=_NAME - 6,
            lines=tuple(_line(number * _LINE, cells, row) for number, (cells, row) in enumerate(piece)),
        )
        for piece in (lines[start : start + _ROWS] for start in range(0, len(lines), _ROWS))
    )


def used_causes(rows: Sequence[AttributionRow]) -> list[tuple[int, str]]:
    """Return number and words of each cause that makes a part of an error."""
    return [(i, WORDS[cause]) for i, cause in enumerate(CAUSES) if any(row.error.share(cause) for row in rows)]


def _line(y: int, cells: Sequence[str], row: AttributionRow) -> BarLine:
    shares = [(part.cause, part.share) for part in row.error.parts if part.share > 0]
    full = max(1.0, sum(share for _, share in shares))
    x, segments = float(_NAME), []
    for cause, share in shares:
        width = _BAR * share / full
        segments.append(_segment(x, width, cause, share))
        x += width
    gradient, places, modes, dtype, error = cells[:5]
    name = f"{gradient}, {places} mode {modes}, {dtype}"
    return BarLine(
        y=y,
        name=name if len(name) <= _NAME_LENGTH else f"…{name[1 - _NAME_LENGTH :]}",
        full=name,
        segments=tuple(segments),
        end=_NAME + _BAR + 6,
        error=f"{error}, {row.error.lost} lost" if row.error.lost else error,
    )


def _segment(x: float, width: float, cause: Cause, share: float) -> Bar:
    label = f"{cause} {share:.0%}"
    fits = len(label) * _CHARACTER < width
    words = f"{WORDS[cause]}: {share:.2%}"
    return Bar(x=round(x, 1), width=round(width, 1), number=CAUSES.index(cause), words=words, label=label * fits)

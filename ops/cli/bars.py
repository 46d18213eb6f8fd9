"""Lines of bars on one scale, in pixels of an SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

LineT = TypeVar("LineT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A part of a line: place and width, number of its kind, what it is in words, and a label where that fits."""

    x: float
    width: float
    number: int
    words: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Generic[LineT]):
    """Lines that fit a page, with names that end left of them."""

    width: int
    height: int
    name_end: int
    lines: tuple[LineT, ...]

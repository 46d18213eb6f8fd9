"""Tables that fit the screen and lose nothing: cells wrap between words, and what is still too wide is stacked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table

_TIGHT = 16
"""A cell of several words may be wrapped to this width to keep a table in one piece."""
_LOOSE = 24
"""... and to this one where the table is stacked anyway."""
_LEAST = 8
"""Where even words are too long, a column is not made narrower than this."""


def fitted_tables(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    left: Sequence[str],
    breaks: Sequence[str] = (),
    title: str | None = None,
    styles: Mapping[int, str] | None = None,
    names: int | None = None,
) -> list[Table]:
    """Return a table, or several with some of the columns each where they do not fit side by side.

    Parameters
    ----------
    headings : sequence of str
        Of the columns. The first of them, by ``names``, begin every table.
    rows : sequence of sequences of str
        A cell a column; () leaves a line free.
    width : int
        Columns of the screen.
    left : sequence of str
        Headings of the columns that hold words; numbers stand at the right.
    breaks : sequence of str
        Headings at which a table begins, where there are several.
    title : str or None
        Stands above the first table.
    styles : mapping of int to str, or None
        Styles of some rows, by their number.
    names : int or None
        Columns that name a row; None: those up to the first of ``left``, but at most two.
    """
    columns = [[heading, *(row[i] for row in rows if row)] for i, heading in enumerate(headings)]
    natural = [max(cell_len(line) for text in column for line in text.splitlines() or [""]) for column in columns]
    least = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in columns]
    return [
        _table(headings, rows, group, _widths(natural, least, group, width), left, None if number else title, styles)
        for number, group in enumerate(_groups(headings, natural, least, left, breaks, width, names))
    ]


def _groups(
    headings: Sequence[str],
    natural: Sequence[int],
    least: Sequence[int],
    left: Sequence[str],
    breaks: Sequence[str],
    width: int,
    names: int | None,
) -> list[list[int]]:
    """Return which columns stand in one table."""
    every = list(range(len(headings)))
    tight, loose = (
        [min(full, max(word, wrapped)) for full, word in zip(natural, least, strict=True)]
        for wrapped in (_TIGHT, _LOOSE)
    )
    if _total(tight, every) <= width:
        return [every]
    first_words = next((i for i, heading in enumerate(headings) if heading in left), 0)
    keys = every[: min(first_words, 1) + 1 if names is None else names]
    groups = [list(keys)]
    for column in every[len(keys) :]:
        is_full = _total(loose, [*groups[-1], column]) > width
        if len(groups[-1]) > len(keys) and (is_full or headings[column] in breaks):
            groups.append(list(keys))
        groups[-1].append(column)
    return groups


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[column] for column in columns) + len(columns) - 1


def _widths(natural: Sequence[int], least: Sequence[int], columns: Sequence[int], width: int) -> dict[int, int]:
    """Return the width of each column of a table: the widest give first, and words are cut only if they must be."""
    widths = {column: natural[column] for column in columns}
    for floor in (dict(enumerate(least)), dict.fromkeys(columns, _LEAST)):
        while sum(widths.values()) + len(columns) - 1 > width:
            wide = [column for column in columns if widths[column] > floor[column]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: Sequence[int],
    widths: Mapping[int, int],
    left: Sequence[str],
    title: str | None,
    styles: Mapping[int, str] | None,
) -> Table:
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            headings[column],
            justify="left" if headings[column] in left else "right",
            width=widths[column],
            overflow="fold",
        )
    for number, row in enumerate(rows):
        table.add_row(*(row[column] for column in columns if row), style=(styles or {}).get(number))
    return table


def break_paths(text: str, width: int) -> str:
    """Return ``text`` with line breaks behind slashes, in words that are wider than ``width`` columns."""
    return "\n".join(" ".join(_broken(word, width) for word in line.split(" ")) for line in text.split("\n"))


def _broken(word: str, width: int) -> str:
    lines = [""]
    for part in re.findall(r"[^/]*/|[^/]+", word) if cell_len(word) > width else [word]:
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)

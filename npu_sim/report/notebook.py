"""What a notebook shows of a record: a sentence and a short table, as HTML without styles of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from npu_sim.report.record import counted

MOST_LINES = 20


def html_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a title in bold and a table of at most `MOST_LINES` lines, and how many are left out; all escaped."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[:MOST_LINES])
    more = len(rows) - MOST_LINES
    note = f"<p>{counted(more, 'line')} left out.</p>" if more > 0 else ""
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{note}" if rows else ""
    return f"<div><strong>{escape(title)}</strong>{body}</div>"

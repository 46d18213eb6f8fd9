"""The table of a page of rules, from the records the check runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ops.common.capability import series_of_calls, with_series
from ops.common.rule import PROFILES, RuleT


def rules_table(
    rules: Iterable[RuleT],
    condition: Callable[[RuleT], str],
    abbreviations: Mapping[str, str],
    columns: Mapping[str, Callable[[RuleT], str]] | None = None,
) -> str:
    """Return a Markdown table with a row for each rule.

    Parameters
    ----------
    rules : iterable of Rule
        In the order of the checks.
    condition : callable
        Returns in words which calls a rule looks at; empty: all.
    abbreviations : mapping of str to str
        Short names of sources.
    columns : mapping of str to callable, or None
        More columns between "profile" and "if": heading, and what stands in a rule's row.
    """
    own = dict(columns or {})
    heads = ("step", "rule", "argument", "must be", "status", "series", "profile", *own, "if", "source")
    lines = [_line(heads), "|" + "---|" * len(heads) + "\n"]
    for rule in rules:
        source = rule.source
        for long, short in abbreviations.items():
            source = source.replace(long, short)
        cells = (
            rule.step,
            f"`{rule.name}`",
            rule.parameter,
            with_series(rule.requirement),
            str(int(rule.status)),
            "" if rule.needs is None else ", ".join(series_of_calls(rule.needs) or rule.needs.series()),
            "" if rule.profiles == PROFILES else ", ".join(rule.profiles),
            *(text(rule) for text in own.values()),
            condition(rule),
            source,
        )
        lines.append(_line(cells))
    return "".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"

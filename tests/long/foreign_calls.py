"""All recorded calls of other programs on all series: statuses by the pages, integers exactly, reals within bounds.

``python -m tests.long.foreign_calls [--json FILE]``

Every call is checked in every cubeMathType and computed in one that the series takes; the series of the DSL compute the
weight gradient of every convolution too.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from tests.cases.foreign_calls import Entry, Outcome, dsl_outcome, load, outcomes
from tests.long.recording import parser_of, publish
from tests.oracles.series import DSL, SERIES


def run(entries: list[Entry]) -> dict[str, Any]:
    """Check all entries."""
    counts: dict[str, Counter[str]] = {}
    wrong: list[dict[str, Any]] = []
    largest: dict[str, float] = {}

    def record(where: str, entry: Entry, made: Outcome) -> None:
        counts.setdefault(where, Counter())[f"{made.kind}: {made.why}" if made.kind == "refused" else made.kind] += 1
        largest[where] = max(largest.get(where, 0.0), made.share)
        if made.kind == "wrong":
            wrong.append({"where": where, "why": made.why, **entry})

    for entry in entries:
        for series in SERIES:
            for made in outcomes(entry, series):
                record(f"{series} {entry['operator']}", entry, made)
        if entry["operator"] == "convolution":
            for series in DSL:
                record(f"{series} DSL", entry, dsl_outcome(entry, series))
    return {
        "entries": len(entries),
        "outcomes": {where: dict(sorted(counts[where].items())) for where in sorted(counts)},
        "largest_share_of_a_bound": {where: round(largest[where], 3) for where in sorted(largest)},
        "wrong": wrong,
    }


def main() -> int:
    """Run, print and record; exit code 1 if anything was wrong."""
    parser = parser_of("tests.long.foreign_calls", __doc__)
    arguments = parser.parse_args()
    found = run(load())
    publish(parser.prog, found, arguments.json)
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Which results of a report show where in the gradient their errors are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ops.studies.precision_results import Comparison, Golden, PrecisionRow

MOST_MAPS = 64
"""A map takes as much room as the rest of its row, so a report holds no more."""


def with_chosen_maps(rows: Sequence[PrecisionRow], deciding: Golden) -> tuple[PrecisionRow, ...]:
    """Return the rows with the maps of what fails and of the worst result of each gradient, against ``deciding``.

    Failures come first, then the larger relative L2 error; of results equal to the last bit the first one has the map.
    """
    chosen = _chosen(rows, deciding)
    return tuple(
        row if row.result is None else _with_map(row, deciding if i in chosen else None) for i, row in enumerate(rows)
    )


def _chosen(rows: Sequence[PrecisionRow], deciding: Golden) -> set[int]:
    firsts: dict[Hashable, int] = {}
    worst: dict[str, int] = {}
    against: dict[int, Comparison] = {}
    for i, row in enumerate(rows):
        if row.result is None or row.result.against(deciding).outcome == "void":
            continue
        against[i] = row.result.against(deciding)
        firsts.setdefault((row.title, row.result.compute_dtype, row.result.original, row.result.rounded), i)
        if row.title not in worst or _error(against[i]) > _error(against[worst[row.title]]):
            worst[row.title] = i
    failed = {i for i in firsts.values() if against[i].outcome == "fail"}
    ranked = sorted(failed | set(worst.values()), key=lambda i: (i not in failed, -_error(against[i]), i))
    return set(ranked[:MOST_MAPS])


def _error(comparison: Comparison) -> float:
    return comparison.error.relative_l2 or 0.0


def _with_map(row: PrecisionRow, kept: Golden | None) -> PrecisionRow:
    """Return the row without maps but that against ``kept``."""
    result = row.result
    assert result is not None
    original, rounded = (
        one if one.golden == kept else replace(one, ulp_map=None) for one in (result.original, result.rounded)
    )
    return replace(row, result=replace(result, original=original, rounded=rounded))

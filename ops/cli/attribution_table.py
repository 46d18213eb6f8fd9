"""Where errors come from, as text: the answer, a table of shares, what the cross terms are, and the spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli.output import print_prose
from ops.cli.precision_table import short
from ops.studies.attribution_report import MOST_CROSS, AttributionRow, Cause, Range

WORDS: dict[Cause, str] = {
    "carried": "errors of the layers behind",
    "input": "rounding the inputs",
    "sums": "the additions in the Cube",
    "atomics": "the additions in memory",
    "output": "rounding the result",
    "sums and output": "additions and rounding the result",
    "input saturation": "saturation of the inputs",
    "output saturation": "saturation of the result",
    "input underflow": "underflow of the inputs",
    "input specials": "replacing NaN/Inf of the inputs by numbers",
}
_COLUMNS: tuple[tuple[Cause, str], ...] = (
    ("input", "input"), ("input underflow", "in tiny"), ("sums", "sums"), ("atomics", "atomics"), ("output", "output"),
    ("sums and output", "sums+out"), ("input saturation", "in sat"), ("output saturation", "out sat"),
)  # fmt: skip
_BY_CHANCE = 3.0
"""Standard deviations up to which a cross term is what random signs make."""
_MOST_LISTED = 5
ATTRIBUTION_LEGEND = (
    "error: relative L2 error against the tensors of the file, of elements that are finite in every stage; then the "
    "share of its square that each cause makes, input: rounded operands, in tiny: operands below the least normal "
    "number of the type that is multiplied, which lose digits or become 0 (a larger loss helps, where dy is one of "
    "them), sums: additions in the Cube, atomics: additions of parts of K in memory, output: the gradient's type, "
    "sums+out: the last three together, where the operator has no sums that could be taken out, in sat, out sat: what "
    "is beyond the type of the operands or of the result and becomes its largest number; cross: twice the inner "
    "products of these parts, so that all add up to 100 %; lost: elements that are NaN or Inf in some stage, in no "
    "other figure, and which cause made them so or made numbers of them, golden: those that are what the golden is."
)
_SUMS = (
    "sums before they are rounded, largest relative L2 error against what was multiplied, by who adds (the product's "
    "model; serial: one product after the other; deterministic: the call's mode of that name, which adds parts of K in "
    "a fixed order)"
)
SPREAD_LEGEND = (
    "min to max: relative L2 errors against what was multiplied, over orders in which cores add to memory (that of "
    "their numbers is not among them), and over tilings, deterministic ones too: where runs says of how many, one for "
    "each way in which a legal tiling cuts the sums, else those chosen for fewer cores or less of L1; runs: how many "
    "were tried, up to as many as --spread says, of tilings besides those of the call, of its deterministic mode and "
    "for less of L1; distinct: results that differ in a bit."
)


def print_attribution(rows: Sequence[AttributionRow], console: Console) -> None:
    """Print where the errors of computed gradients come from."""
    if not rows:
        return
    for words in attribution_words(rows):
        console.print(Text(words, style="bold"))
    console.print()
    headings, lines = attribution_lines(rows)
    left = ("gradient", "product", "mode", "type")
    for table in fitted_tables(headings, [cells for cells, _ in lines], width=console.width, left=left, names=4):
        console.print(table)
    for line in crossings(rows):
        console.print(Text(line, style="yellow"))
    if models := list(_models(rows)):
        print_prose(console, f"{_SUMS}: {'; '.join(models)}", "")
    if any(row.spread is not None for row in rows):
        console.print()
        _print_spread(rows, console)
    print_prose(console, ATTRIBUTION_LEGEND)


def attribution_words(rows: Sequence[AttributionRow]) -> tuple[str, ...]:
    """Return what the rows come to: the main cause, and how large the cross terms are."""
    return _answer(rows), _cross_words(rows)


def attribution_lines(
    rows: Sequence[AttributionRow],
) -> tuple[tuple[str, ...], list[tuple[tuple[str, ...], AttributionRow]]]:
    """Return headings, and the cells of each line with the first of the rows it stands for."""
    columns = [(cause, words) for cause, words in _COLUMNS if any(row.error.share(cause) is not None for row in rows)]
    headings = ("gradient", "product", "mode", "type", "error", *(words for _, words in columns), "cross")
    if any(row.error.lost for row in rows):
        headings = (*headings, "lost")
    cells = [(row, _shares(row, [cause for cause, _ in columns])) for row in rows]
    firsts: dict[tuple[str, ...], AttributionRow] = {}
    for row, shown in cells:
        firsts.setdefault((f"{row.layer} {row.gradient}", *shown), row)
    return headings, [(line[: len(headings)], firsts[line[0], *line[3:]]) for line in _merged(cells)]


def spread_lines(rows: Sequence[AttributionRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and lines of the spread, of the rows that have one."""
    headings = ("gradient", "product", "mode", "over", "runs", "distinct", "min", "median", "max")
    cells = [
        (row, cells)
        for row in rows
        if row.spread is not None
        for cells in (
            ("core orders", *_range_cells(row.spread.core_orders)),
            ("tilings", *_range_cells(row.spread.tilings, row.spread.possible_tilings)),
        )
    ]
    return headings, list(_merged(cells))


def _answer(rows: Sequence[AttributionRow]) -> str:
    """Return which causes are the main one of how many gradients, by what was multiplied."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.error.main is not None:
            lost = " (NaN/Inf)" if row.error.lost_by and row.error.main != "input specials" else ""
            types = found.setdefault(WORDS[row.error.main] + lost, {})
            types[row.compute_dtype] = types.get(row.compute_dtype, 0) + 1
    ranked = sorted(found.items(), key=lambda item: -sum(item[1].values()))
    words = "; ".join(f"{cause} in {sum(types.values())} ({', '.join(types)})" for cause, types in ranked)
    empty = sum(row.error.main is None and row.error.count == 0 for row in rows)
    exact = sum(row.error.main is None for row in rows) - empty
    others = ((exact, "without error"), (empty, "without a finite element"))
    rest = "".join(f"; {count} {what}" for count, what in others if count)
    return f"the largest part of the error of {counted(len(rows), 'gradient')} is {words or 'none'}{rest}"


def _cross_words(rows: Sequence[AttributionRow]) -> str:
    small = sum(row.error.crossing is None for row in rows)
    return f"cross terms are at most {MOST_CROSS:.0%} of the squared error in {small} of {len(rows)}"


def _lost(row: AttributionRow) -> str:
    """Return how many elements are lost, and by which cause: "12 input, 3 golden"."""
    kept = row.error.lost - sum(row.error.lost_by.values())
    by_cause = [*row.error.lost_by.items(), ("golden", kept)]
    return ", ".join(f"{count} {cause}" for cause, count in by_cause if count)


def _shares(row: AttributionRow, causes: Sequence[Cause]) -> tuple[str, ...]:
    shares = [row.error.share(cause) for cause in causes]
    parts = ["" if share is None else _percent(share) for share in shares]
    return (
        row.compute_dtype, short(row.error.relative_l2), *parts, _percent(row.error.cross), _lost(row),
    )  # fmt: skip


def _percent(share: float) -> str:
    """Return "0" for nothing, and what is too small to show as such."""
    if share == 0:
        return "0"
    return f"{share:.1%}" if abs(share) >= 0.0005 else "<0.1%"


def _merged(cells: Sequence[tuple[AttributionRow, tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table, those with the same figures in one."""
    modes: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for row, shown in cells:
        place = row.product if row.entry == "aclnn" else f"{row.product} {row.entry}"
        mode = "-" if row.cube_math_type is None else str(row.cube_math_type)
        modes.setdefault((f"{row.layer} {row.gradient}", place, shown), []).append(mode)
    places: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (gradient, place, shown), numbers in modes.items():
        places.setdefault((gradient, " ".join(numbers), shown), []).append(place)
    for (gradient, listed, shown), names in places.items():
        yield (gradient, " ".join(names), listed, *shown)


def _models(rows: Sequence[AttributionRow]) -> Iterator[str]:
    """Yield how far the sums of each model of the rows are off, beside those of the other ways to add."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        own = next(iter(row.additions), None)
        for name, error in row.additions.items() if own is not None else ():
            worst = found.setdefault(own or "", {})
            worst[name] = max(worst.get(name, 0.0), error or 0.0)
    for worst in found.values():
        yield ", ".join(f"{short(error)} {name}" for name, error in worst.items())


def crossings(rows: Sequence[AttributionRow]) -> Iterator[str]:
    """Yield what the cross terms above the limit are: chance, or which causes are correlated."""
    found = [(row, row.error.crossing) for row in rows if row.error.crossing is not None]
    chance = [row for row, term in found if abs(term.deviations) <= _BY_CHANCE]
    if chance:
        fewest, most = (extreme(row.error.count for row in chance) for extreme in (min, max))
        elements = f"{fewest} to {most} elements" if fewest < most else counted(most, "element")
        yield (
            f"cross terms above {MOST_CROSS:.0%} by chance, within {_BY_CHANCE:.0f} standard deviations of random "
            f"signs: {len(chance)} of {counted(len(rows), 'gradient')}, of {elements}"
        )
    rest = sorted(
        ((row, term) for row, term in found if abs(term.deviations) > _BY_CHANCE), key=lambda pair: -abs(pair[1].share)
    )
    for row, term in rest[:_MOST_LISTED]:
        one, other = term.causes
        yield (
            f"{row.layer} {row.gradient} on {row.product} mode {row.cube_math_type}: {one} and {other} are correlated, "
            f"cosine {term.cosine:.2f}, {term.deviations:.1f} standard deviations of random signs"
        )
    if len(rest) > _MOST_LISTED:
        yield f"and {len(rest) - _MOST_LISTED} more with correlated parts"


def _print_spread(rows: Sequence[AttributionRow], console: Console) -> None:
    headings, lines = spread_lines(rows)
    for table in fitted_tables(headings, lines, width=console.width, left=headings[:4], names=4):
        console.print(table)
    print_prose(console, SPREAD_LEGEND)


def _range_cells(found: Range, possible: int | None = None) -> tuple[str, ...]:
    runs = f"{found.runs}" if possible is None else f"{found.runs} of {possible}"
    return runs, str(found.distinct), short(found.min), short(found.median), short(found.max)

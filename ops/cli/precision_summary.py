"""The precision report's answer: a line that judges, a summary by product and mode, and one ranked table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from npu_sim.report.record import counted
from npu_sim.report.standards.registry import DEFAULT
from npu_sim.report.standards.verdict import Outcome
from npu_sim.report.tables import fitted_tables
from ops.cli.output import merged_messages, print_prose
from ops.cli.precision_standards import print_standards, standard_names
from ops.cli.precision_table import merged, refusals, short, verdict_text
from ops.cli.precision_warnings import warnings
from ops.studies.fitness import FITNESS_LEGEND
from ops.studies.precision_conclusion import cancelling, cause_words, error_words, standards_words
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, CaseResult, Golden, LayerSummary, PrecisionRow

MOST_SENTENCES = 12
"""Lines that say what is fit."""
MOST_RANKED = 20
"""Lines of the ranked table."""
_WORDS: Mapping[Outcome, str] = {"pass": "pass", "fail": "FAIL", "void": "void"}
_RANK: Mapping[Outcome, int] = {"fail": 0, "pass": 1, "void": 2}
_STYLES: Mapping[Outcome, str] = {"pass": "", "fail": "bold red", "void": "yellow"}
PRODUCT_LEGEND = (
    "original, rounded: largest relative L2 error of a gradient, the norm of the error over the norm of the golden "
    "in float64, and how many pass. The golden is that of the tensors in the file (original) or of the tensors as "
    "they were multiplied (rounded); * decides the exit code. worst gradient: the one with that original error. "
    "mode: cubeMathType. type: what was multiplied. A line stands for all products and modes with these figures."
)
"""What is needed to read the summary."""


def print_summary(report: PrecisionReport, console: Console) -> None:
    """Print the answer: verdicts, errors by product and mode, reservations, then every gradient, worst first."""
    console.print(_headline(report))
    for line in fitness_lines(report):
        console.print(Text(line, style=_fit_style(line)))
    for golden in GOLDENS:
        failed = report.count(golden, "fail")
        if failed and golden != report.options.golden:
            line = f"{failed} of {len(report.computed)} FAIL against the {golden} golden"
            console.print(Text(f"{line}; --golden {golden} lets it decide the exit code", style="bold red"))
    results = [row.result for row in report.computed if row.result is not None]
    for words in filter(None, (error_words(results), cause_words(results))):
        console.print(Text(words, style="bold"))
    console.print()
    _print_by_product(report, console)
    if standard_names(report) != (DEFAULT,):
        console.print()
        print_standards(report, console)
    for line in warnings(report):
        console.print(Text(line, style="yellow"))
    console.print()
    _print_ranked(report, console)


def fitness_lines(report: PrecisionReport) -> list[str]:
    """Return whether the gradients of each product and mode are fit for use, a sentence each, and no more than fit."""
    words = [one.words for one in report.fitness]
    more = len(words) - MOST_SENTENCES
    return words if more <= 0 else [*words[:MOST_SENTENCES], f"and {more} more products and modes, in the table below"]


def _fit_style(line: str) -> str:
    if "FAIL" in line:
        return "bold red"
    return "bold yellow" if "not judged by" in line else "bold"


def _headline(report: PrecisionReport) -> Text:
    """Return how many combinations there are, and their verdicts, those of the deciding golden first."""
    computed, refused = len(report.computed), len(report.rows) - len(report.computed)
    text = Text(f"{counted(len(report.rows), 'combination')}: {refused} refused, {computed} computed", style="bold")
    deciding = report.options.golden
    for golden in sorted(GOLDENS, key=lambda one: one != deciding):
        decides = f", which decides ({standards_words(report.standards)})" if golden == deciding else ""
        text.append(f"; {_counts(report.computed, golden)} against the {golden} golden{decides}")
    return text


def _counts(rows: Sequence[PrecisionRow], golden: Golden) -> str:
    """Return "4 pass, 1 FAIL, 1 void"; passes always, the others where there are any."""
    outcomes = [row.result.against(golden).outcome for row in rows if row.result is not None]
    words = [
        f"{outcomes.count(outcome)} {word}"
        for outcome, word in _WORDS.items()
        if outcome == "pass" or outcome in outcomes
    ]
    return ", ".join(words)


def _figure(result: CaseResult, golden: Golden) -> float:
    """Return the relative L2 error, NaN where there is none to measure."""
    value = result.against(golden).error.relative_l2
    return math.nan if value is None else value


def _largest(figures: Sequence[float]) -> str:
    known = [figure for figure in figures if not math.isnan(figure)]
    return short(max(known)) if known else "-"


@dataclass(slots=True, kw_only=True)
class _Group:
    """Rows of one product and interface, and of modes whose cells are the same."""

    places: list[str]
    modes: list[str] = field(default_factory=list)
    cells: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether nothing was computed."""
        return self.cells[0] == "-"


def _print_by_product(report: PrecisionReport, console: Console) -> None:
    headings, rows = product_lines(report)
    left = ("product", "mode", "type", "worst gradient", "verdicts")
    styles = {number: "red" for number, row in enumerate(rows) if any("FAIL" in cell for cell in row)}
    for table in fitted_tables(headings, rows, width=console.width, left=left, styles=styles, names=3):
        console.print(table)
    print_prose(console, FITNESS_LEGEND)
    print_prose(console, PRODUCT_LEGEND)
    for status, messages in refusals(report).items():
        for message in merged_messages(messages):
            print_prose(console, f"refused {status}: {message}")


def product_lines(report: PrecisionReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and lines of the summary: products and modes whose cells are the same are one line."""
    headings = (
        "product", "mode", "type", "worst gradient",
        *(heading for golden in _marked(report) for heading in (golden, "verdicts")), "refused",
    )  # fmt: skip
    return headings, [(" ".join(group.places), " ".join(group.modes), *group.cells) for group in _groups(report)]


def _marked(report: PrecisionReport) -> list[str]:
    """Return the goldens' names, the deciding one with an asterisk."""
    return [golden + ("*" if golden == report.options.golden else "") for golden in GOLDENS]


def _groups(report: PrecisionReport) -> list[_Group]:
    """Return the products and modes with equal cells as one."""
    by_place: dict[str, dict[str, list[PrecisionRow]]] = {}
    for row in report.rows:
        by_place.setdefault(row.place, {}).setdefault(row.mode, []).append(row)
    cancels = cancelling(report.layers)
    groups: list[_Group] = []
    for place, by_mode in by_place.items():
        own: dict[tuple[str, ...], _Group] = {}
        for mode, rows in by_mode.items():
            cells = _cells(rows, cancels)
            own.setdefault(cells, _Group(places=[place], cells=cells)).modes.append(mode)
        for group in own.values():
            same = next((one for one in groups if (one.modes, one.cells) == (group.modes, group.cells)), None)
            if same is None:
                groups.append(group)
            else:
                same.places.append(place)
    return sorted(groups, key=lambda group: group.is_refused)


def _cells(rows: Sequence[PrecisionRow], cancels: set[str]) -> tuple[str, ...]:
    """Return type, worst gradient, for each golden its largest error and verdicts, and how many are refused."""
    computed = [(row, row.result) for row in rows if row.result is not None]
    refused = len(rows) - len(computed)
    if not computed:
        return ("-", "-", *("-",) * 2 * len(GOLDENS), str(refused))
    # the error of what says nothing is no error of the mode
    telling = [
        (row.title, result)
        for row, result in computed
        if row.title not in cancels and result.original.outcome != "void"
    ]
    known = [(_figure(result, "original"), title) for title, result in telling]
    known = [pair for pair in known if not math.isnan(pair[0])]
    cells = [" ".join(dict.fromkeys(result.compute_dtype for _, result in computed))]
    cells.append(max(known, key=lambda pair: pair[0])[1] if known else "-")
    for golden in GOLDENS:
        cells.append(_largest([_figure(result, golden) for _, result in telling]))
        cells.append(_counts(rows, golden))
    return (*cells, str(refused) if refused else "")


def _print_ranked(report: PrecisionReport, console: Console) -> None:
    headings, lines = ranked_lines(report)
    if not lines:
        return
    shown = [cells for _, cells in lines[:MOST_RANKED]]
    styles = {number: _STYLES[outcome] for number, (outcome, _) in enumerate(lines[:MOST_RANKED])}
    left = ("gradient", "product", "mode", "type", "verdict")
    for table in fitted_tables(headings, shown, width=console.width, left=left, styles=styles, names=4):
        console.print(table)
    more = len(lines) - len(shown)
    text = ranked_legend(report)
    print_prose(console, f"{text} {counted(more, 'line')} left out." if more else text)


def ranked_lines(report: PrecisionReport) -> tuple[tuple[str, ...], list[tuple[Outcome, tuple[str, ...]]]]:
    """Return headings, and outcome and cells of every line of the ranked table."""
    headings = ("gradient", "product", "mode", "type", *_marked(report), "MERE", "max abs", "K depth", "verdict")
    return headings, [line[1:] for line in sorted(_ranked(report), key=lambda line: line[0])]


def ranked_legend(report: PrecisionReport) -> str:
    """Return what is needed to read the ranked table."""
    text = (
        "Failures first, then by relative L2 error against the original golden; void last. MERE (mean of error / "
        "(|golden| + 1e-7)) and max abs (largest error) against the original golden. verdict: against the golden that "
        "decides, and where it is another against the other one. K depth: products in one sum."
    )
    if any(title in cancelling(report.layers) for title in dict.fromkeys(row.title for row in report.computed)):
        text += " ~ the terms cancel: the gradient is nothing but rounding, in the framework too."
    failing = (row.result.against(golden) for row in report.computed if row.result for golden in GOLDENS)
    if any(verdict.outcome == "fail" and verdict.label == "limit" for one in failing for verdict in one.verdicts):
        text += (
            " FAIL limit: an error is beyond both the absolute limit and 32 ULP; else FAIL has the share that matches."
        )
    if any(row.gradient == "y" for row in report.rows):
        text += " y: the output of the forward call."
    return text


def _ranked(report: PrecisionReport) -> Iterator[tuple[tuple[float, ...], Outcome, tuple[str, ...]]]:
    """Yield place in the ranking, outcome and cells of every line."""
    cancels = cancelling(report.layers)
    for layer in report.layers:
        for products, modes, result in merged(report.rows_of(layer)):
            yield _line(layer, products, modes, result, report.options.golden, cancels=layer.title in cancels)


def _line(
    layer: LayerSummary, places: Sequence[str], modes: Sequence[str], result: CaseResult, deciding: Golden, *,
    cancels: bool,
) -> tuple[tuple[float, ...], Outcome, tuple[str, ...]]:  # fmt: skip
    decides = result.against(deciding)
    verdict = verdict_text(decides).plain
    worst = decides.outcome
    for golden in GOLDENS:
        other = result.against(golden)
        if other.outcome != decides.outcome:
            verdict += f", {golden} {verdict_text(other).plain}"
            worst = "fail" if other.outcome == "fail" else worst
    original = result.original.error
    figures = [short(result.against(golden).error.relative_l2) for golden in GOLDENS]
    rank = _figure(result, "original")
    cells = (
        layer.title, " ".join(places), " ".join(modes), result.compute_dtype,
        *(f"~ {figure}" if cancels else figure for figure in figures),
        short(original.mean_rel), short(original.max_abs), str(result.k_depth), verdict,
    )  # fmt: skip
    place = (_RANK[decides.outcome], _RANK[worst], float(cancels), 0.0 if math.isnan(rank) else -rank)
    return place, worst, cells

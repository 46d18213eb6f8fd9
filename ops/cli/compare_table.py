"""A comparison as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli.output import print_prose
from ops.studies.comparison_report import Bin, ComparisonReport, SideSummary, WorstElement
from ops.studies.comparison_terms import Term

_BAR = 40
"""Characters of the longest bar."""
_FITS_SHOWN = 6


def print_comparison(report: ComparisonReport, screen: Console) -> None:
    """Print what is equal, the histogram, the elements farthest apart, and the models that fit best."""
    shape = "x".join(map(str, report.shape))
    screen.print(Text(f"{report.gradient} of {report.layer}, {shape}, {report.source}", style="bold"))
    screen.print(Text(f"left   {_side(report.left)}"), soft_wrap=True)
    screen.print(Text(f"right  {_side(report.right)}"), soft_wrap=True)
    print_prose(screen, _words(report), "bold green" if report.equal else "bold")
    can_compare = report.nan_count < report.element_count
    if can_compare:
        _print_histogram(report, screen)
    if report.worst:
        screen.print()
        _print_worst(report, screen)
    if report.models and can_compare:
        screen.print()
        _print_fits(report, screen)


def _words(report: ComparisonReport) -> str:
    elements = counted(report.element_count, "element")
    if report.max_ulps is None:
        return f"no element can be compared: {report.nan_count} of {elements} NaN on one side only"
    words = f"{report.equal_count} of {elements} equal ({report.equal_count / report.element_count:.2%})"
    others = f", {report.nan_count} NaN on one side only; the others" if report.nan_count else ","
    return (
        f"{words}{others} at most {report.max_ulps} ULP of {report.ulp_dtype} apart, {report.mean_ulps:.3g} on average"
    )


def _side(side: SideSummary) -> str:
    made = f"multiplied {side.compute_dtype}, {side.accumulation}, " if side.compute_dtype else ""
    return f"{side.words}: {made}result {side.dtype}"


def bin_words(one: Bin) -> str:
    """Return "0", "3..4"."""
    return str(one.first) if one.first == one.last else f"{one.first}..{one.last}"


def _print_histogram(report: ComparisonReport, screen: Console) -> None:
    most = max(one.count for one in report.histogram)
    rows = [
        (bin_words(one), str(one.count), "#" * -(-_BAR * one.count // max(most, 1)))
        for one in report.histogram
        if one.count
    ]
    for table in fitted_tables(("ULP apart", "elements", ""), rows, width=screen.width, left=("",)):
        screen.print(table)


def _place(at: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, at))}]"


def _term(term: Term) -> str:
    factors = " ".join(f"{factor.tensor}{_place(factor.at)} {factor.value:.4g}" for factor in term.factors)
    return f"{term.value:.4g} = {factors}" if len(term.factors) > 1 else factors


def _print_worst(report: ComparisonReport, screen: Console) -> None:
    headings = ("element", "ULP", "left", "right", "float64", "terms", "sum of |terms|")
    for table in fitted_tables(headings, [_row(one) for one in report.worst], width=screen.width, left=("element",)):
        screen.print(table)
    rows = [(_place(one.at), "\n".join(map(_term, one.terms))) for one in report.worst if one.terms]
    if rows:
        screen.print()
        for table in fitted_tables(_TERMS, rows, width=screen.width, left=_TERMS):
            screen.print(table)


_TERMS = ("element", "largest terms")


def _row(one: WorstElement) -> tuple[str, ...]:
    return (
        _place(one.at), "NaN" if one.ulps is None else str(one.ulps), f"{one.left:.9g}", f"{one.right:.9g}",
        f"{one.golden:.9g}", str(one.term_count or "-"), f"{one.magnitude:.3g}" if one.term_count else "-",
    )  # fmt: skip


def _print_fits(report: ComparisonReport, screen: Console) -> None:
    own = report.left if report.fitted == "right" else report.right
    print_prose(screen, f"{own.words}, with other models of the Cube's additions, against the {report.fitted} side:")
    rows = [
        (fit.model, str(fit.equal_count), "-" if fit.max_ulps is None else str(fit.max_ulps))
        for fit in report.models[:_FITS_SHOWN]
    ]
    for table in fitted_tables(("model", "elements equal", "max ULP"), rows, width=screen.width, left=("model",)):
        screen.print(table)

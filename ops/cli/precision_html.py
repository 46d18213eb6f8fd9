"""The precision report as one HTML file: it loads nothing, and its figures are those of the JSON that is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npu_sim.report.record import counted, to_plain
from npu_sim.report.standards.registry import DEFAULT
from ops.cli import precision_charts as charts
from ops.cli.attribution_chart import attribution_bars, used_causes
from ops.cli.attribution_table import (
    ATTRIBUTION_LEGEND,
    SPREAD_LEGEND,
    attribution_lines,
    attribution_words,
    crossings,
    spread_lines,
)
from ops.cli.html_page import render_page
from ops.cli.output import merged_messages
from ops.cli.precision_standards import STANDARD_HEADINGS, standard_legend, standard_lines, standard_names
from ops.cli.precision_summary import PRODUCT_LEGEND, fitness_lines, product_lines, ranked_legend, ranked_lines
from ops.cli.precision_table import (
    COLUMNS,
    figure_cells,
    headline,
    legend,
    merged,
    notes,
    refusals,
    verdict_text,
)
from ops.cli.precision_warnings import warnings
from ops.studies.attribution_report import AttributionRow
from ops.studies.fitness import FITNESS_LEGEND
from ops.studies.precision_conclusion import cause_words, error_words, standards_words, verdict_words
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, LayerSummary

_TEXT = frozenset({
    "product", "mode", "type", "golden", "verdict", "verdicts", "worst gradient", "gradient", "standard", "over",
    "first that does not pass",
})  # fmt: skip
"""Columns of words; the others hold figures."""


def render(report: PrecisionReport) -> bytes:
    """Return the file.

    Parameters
    ----------
    report : PrecisionReport
        What to show.

    Returns
    -------
    bytes
        HTML 5 in UTF-8, with styles, script and the report's JSON (the element ``report``) inside.

    Raises
    ------
    MissingExtraError
        jinja2 is not installed.
    """
    return render_page("precision", _contents(report), to_plain(report))


def _contents(report: PrecisionReport) -> dict[str, Any]:
    results = [row.result for row in report.computed if row.result is not None]
    verdict = verdict_words(results, report.options.golden, standards_words(report.standards))
    product_headings, by_product = product_lines(report)
    ranked_headings, ranked = ranked_lines(report)
    numbers = {layer.title: number for number, layer in enumerate(report.layers)}
    return {
        "report": report,
        "title": "; ".join(filter(None, (verdict, cause_words(results)))) if results else "Every call is refused",
        "errors": error_words(results),
        "fitness": fitness_lines(report),
        "fitness_legend": FITNESS_LEGEND,
        "extent": ", ".join(
            (
                f"{counted(len(report.layers), 'gradient')} of {report.source.rpartition('/')[2]}",
                f"{counted(len(report.rows), 'combination')} with products and modes",
                f"{len(report.rows) - len(report.computed)} of them refused",
            )
        ),
        "warnings": list(warnings(report)),
        "product_headings": product_headings,
        "by_product": by_product,
        "product_legend": PRODUCT_LEGEND,
        "heat_maps": [(golden, charts.heat_maps(report, golden)) for golden in GOLDENS],
        "decade_labels": charts.DECADE_LABELS,
        "mark_labels": charts.MARK_LABELS,
        "ulp_labels": charts.ULP_LABELS,
        "attribution": _attribution(report.attribution or ()),
        "ranked_headings": ranked_headings,
        "ranked": [(f"g{numbers[cells[0]]}", outcome, cells) for outcome, cells in ranked],
        "ranked_legend": ranked_legend(report),
        "layers": [_layer(report, layer) for layer in report.layers],
        "layer_headings": [heading for heading, _, _ in COLUMNS],
        "words": _TEXT,
        "standard_headings": STANDARD_HEADINGS,
        "standards": standard_lines(report),
        "standard_legend": list(standard_legend(report)) if standard_names(report) != (DEFAULT,) else [],
        "legend": list(legend(report)),
        "refusals": [(status, message) for status, own in refusals(report).items() for message in merged_messages(own)],
    }


def _attribution(rows: Sequence[AttributionRow]) -> dict[str, Any] | None:
    """Return what the section of causes shows; None where nothing was taken apart."""
    if not rows:
        return None
    headings, lines = attribution_lines(rows)
    spread_headings, spread = spread_lines(rows)
    return {
        "words": attribution_words(rows),
        "crossings": list(crossings(rows)),
        "causes": used_causes(rows),
        "bars": attribution_bars(rows),
        "headings": headings,
        "lines": [cells for cells, _ in lines],
        "legend": ATTRIBUTION_LEGEND,
        "spread_headings": spread_headings,
        "spread": spread,
        "spread_legend": SPREAD_LEGEND,
    }


def _layer(report: PrecisionReport, layer: LayerSummary) -> dict[str, Any]:
    """Return what the section of one gradient shows."""
    rows, deciding = report.rows_of(layer), report.options.golden
    lines = list(merged(rows))
    histograms = [result.against(deciding).ulp_histogram for _, _, result in lines]
    lowest, highest = charts.shared_axis(histograms)
    words = headline(layer, rows).plain
    maps = [
        (row, shown, charts.map_size(shown), charts.map_cells(shown))
        for row in rows
        if row.result is not None and (shown := row.result.against(deciding).ulp_map) is not None and shown.max_ulp
    ]
    return {
        "title": layer.title,
        "words": words.removeprefix(layer.title).strip().splitlines(),
        "lines": _lines(report, layer),
        "histograms": [
            (f"{' '.join(places)} mode {' '.join(modes)}, {result.compute_dtype}", result.against(deciding),
             charts.histogram(one, lowest, highest))
            for (places, modes, result), one in zip(lines, histograms, strict=True)
        ],
        "maps": maps,
        "notes": [" ".join(line.split()) for line in notes(layer, rows)],
        "refused": [f"{row.place} mode {row.mode}" for row in rows if row.refusal is not None],
    }  # fmt: skip


def _lines(report: PrecisionReport, layer: LayerSummary) -> list[Sequence[str]]:
    """Return the lines of a gradient's table, one for each result and golden."""
    lines: list[Sequence[str]] = []
    if layer.reference is not None:
        lines.append(("in the file", "", "", "original", *figure_cells(layer.reference), ""))
    for places, modes, result in merged(report.rows_of(layer)):
        for golden in GOLDENS:
            against = result.against(golden)
            marked = golden + ("*" if golden == report.options.golden else "")
            names = (" ".join(places), " ".join(modes), result.compute_dtype, marked)
            lines.append((*names, *figure_cells(against.error), verdict_text(against).plain))
    return lines

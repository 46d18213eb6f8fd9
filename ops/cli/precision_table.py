"""The details of the precision report: a table of each gradient, and what is needed to read it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from npu_sim.dtypes.cube_math import CubeMathType
from npu_sim.report.precision import ErrorMetrics
from npu_sim.report.record import counted
from npu_sim.report.standards.verdict import MATCHED, Verdict
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, CaseResult, Comparison, Golden, LayerSummary, PrecisionRow

COLUMNS = (
    ("product", 14, "left"),
    ("mode", 7, "left"),
    ("type", 4, "left"),
    ("golden", 9, "left"),
    ("rel L2", 7, "right"),
    ("max abs", 7, "right"),
    ("MERE", 7, "right"),
    ("max rel", 7, "right"),
    ("max ULP", 7, "right"),
    ("1-cosine", 8, "right"),
    ("verdict", 11, "left"),
)

_NAMES = 3
"""The first columns, which name the combination."""


def print_details(report: PrecisionReport, console: Console) -> None:
    """Print the tables of all gradients, then the legend."""
    for layer in report.layers:
        rows = report.rows_of(layer)
        console.print(headline(layer, rows))
        for part in _layer_parts(layer, rows, report.options.golden, console.width):
            console.print(part)
        refused = [row for row in rows if row.refusal is not None]
        if refused:
            console.print(Text(f"refused        {_refused_line(refused)}", style="dim"))
        for line in notes(layer, rows):
            console.print(Text(line, style="yellow"), soft_wrap=True)
        console.print()
    for line in legend(report):
        console.print(line, style="dim")


def headline(layer: LayerSummary, rows: Sequence[PrecisionRow]) -> Text:
    """Return shapes, format and the size of the gradient, which leaves out what is NaN or Inf."""
    errors = [row.result.original.error for row in rows if row.result is not None]
    scale = max((error.golden_max_abs for error in errors if error.golden_max_abs is not None), default=None)
    has_specials = any(error.golden_specials for error in errors)

    def times(extents: Sequence[int]) -> str:
        return "x".join(str(extent) for extent in extents)

    text = Text(layer.title, style="bold")
    details = "" if layer.operator == "convolution" else f"{layer.operator}: "
    details += f"x {times(layer.x_shape)}, dy {times(layer.dy_shape)}"
    for name, values, neutral in (
        ("weight", layer.weight_shape, None),
        ("kernel", layer.kernel_size, None),
        ("stride", layer.stride, 1),
        ("padding", layer.padding, 0),
        ("output padding", layer.output_padding, 0),
        ("dilation", layer.dilation, 1),
    ):
        if any(value != neutral for value in values):
            details += f", {name} {times(values)}"
    if layer.groups != 1:
        details += f", groups {layer.groups}"
    details += ", ceil mode" if layer.ceil_mode else ""
    details += "" if layer.count_include_pad else ", padding not counted"
    details += f", divisor {layer.divisor_override}" if layer.divisor_override else ""
    text.append(f"  {details}\n", style="not bold")
    text.append(f"{layer.tensors}, K depth {layer.k_depth}", style="not bold")
    if scale is not None:
        size = "finite |gradient|" if has_specials else "|gradient|"
        text.append(f", {size} <= {short(scale)}", style="not bold")
    return text


def _layer_parts(
    layer: LayerSummary, rows: Sequence[PrecisionRow], deciding: Golden, width: int
) -> Iterator[Table | Text]:
    """Yield the table of a layer; where it does not fit, products, mode and type stand above their figures instead."""
    named: list[tuple[tuple[str, str, str], list[tuple[str | Text, ...]]]] = []
    if layer.reference is not None:
        named.append((("in the file", "", ""), [("original", *figure_cells(layer.reference), "")]))
    for products, modes, result in merged(rows):
        lines: list[tuple[str | Text, ...]] = []
        for golden in GOLDENS:
            comparison = result.against(golden)
            marked = golden + ("*" if golden == deciding else "")
            lines.append((marked, *figure_cells(comparison.error), verdict_text(comparison)))
        named.append(((" ".join(products), " ".join(modes), result.compute_dtype), lines))
    blank = ("", "", "")
    cells = [(*(names if not number else blank), *line) for names, lines in named for number, line in enumerate(lines)]
    widths = [
        max(least, *(cell_len(str(row[i])) for row in cells)) if cells else least
        for i, (_, least, _) in enumerate(COLUMNS)
    ]
    if sum(widths) + len(widths) - 1 <= width:
        yield _table(cells, widths, 0, is_first=True)
        return
    yield _table([], widths, _NAMES, is_first=True)
    for (users, mode, compute_dtype), lines in named:
        yield Text(f"{users}, mode {mode}, {compute_dtype}" if mode else users)
        yield _table([(*blank, *line) for line in lines], widths, _NAMES, is_first=False)


def _table(rows: Sequence[Sequence[str | Text]], widths: Sequence[int], first: int, *, is_first: bool) -> Table:
    """Return the columns from ``first`` on, indented if some are left out."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_header=is_first)
    if first:
        table.add_column("", width=1)
    for (heading, _, justify), width in list(zip(COLUMNS, widths, strict=True))[first:]:
        table.add_column(heading, width=width, no_wrap=True, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*([""] if first else []), *row[first:])
    return table


def merged(rows: Sequence[PrecisionRow]) -> Iterator[tuple[list[str], tuple[str, ...], CaseResult]]:
    """Yield (products, modes, result), one for all combinations whose figures are the same to the last bit."""
    modes_of: list[tuple[str, CaseResult, list[str]]] = []
    for row in rows:
        if row.result is None:
            continue
        for product, result, modes in modes_of:
            if product == row.place and _same(result, row.result):
                modes.append(row.mode)
                break
        else:
            modes_of.append((row.place, row.result, [row.mode]))
    merged: list[tuple[list[str], tuple[str, ...], CaseResult]] = []
    for product, result, modes in modes_of:
        for products, other_modes, other in merged:
            if other_modes == tuple(modes) and _same(result, other):
                products.append(product)
                break
        else:
            merged.append(([product], tuple(modes), result))
    yield from merged


def _same(one: CaseResult, other: CaseResult) -> bool:
    """Whether two results show the same line; the tiling may differ. NaN figures never count as the same."""
    return (one.compute_dtype, one.output_dtype, one.accumulation, one.original, one.rounded) == (
        other.compute_dtype,
        other.output_dtype,
        other.accumulation,
        other.original,
        other.rounded,
    )


def figure_cells(error: ErrorMetrics) -> list[str]:
    """Return the cells of `COLUMNS` from "rel L2" to "1-cosine"."""
    values = (error.relative_l2, error.max_abs, error.mean_rel, error.max_rel)
    # The cosine leaves out the pairs that are not finite; beside an infinite error it would read as a perfect match.
    cosine = None if error.special_mismatches or error.cosine is None else 1.0 - error.cosine
    return [*(short(value) for value in values), _ulps(error.max_ulp), short(cosine)]


def short(value: float | None) -> str:
    """Return a figure with two digits; "-" for none."""
    if value is None:
        return "-"
    return f"{value:.1e}" if value and math.isfinite(value) else f"{value:g}"


def _ulps(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}" if value < 1e6 else short(value)


def verdict_text(comparison: Comparison) -> Text:
    """Return the outcome in a word or two, with what failed."""
    if comparison.outcome == "void":
        return Text(f"void {comparison.void_cause}", style="bold yellow")
    if comparison.outcome == "pass" and comparison.error.golden_specials:
        # The standards let NaN equal NaN; a reader must not take that for a good gradient.
        return Text("pass (NaN)", style="yellow")
    if comparison.outcome == "pass":
        remarks = ", ".join(dict.fromkeys(verdict.remark for verdict in comparison.verdicts if verdict.remark))
        return Text(f"pass ({remarks})" if remarks else "pass", style="green")
    failed = [verdict for verdict in comparison.verdicts if verdict.outcome == "fail"]
    if len(comparison.verdicts) > 1:
        return Text(f"FAIL {len(failed)} of {len(comparison.verdicts)}", style="bold red")
    return Text(f"FAIL {_failed_figure(failed[0])}", style="bold red")


def _failed_figure(verdict: Verdict) -> str:
    """Return the word for what failed; a share of matching elements as such."""
    if verdict.label != "matched":
        return verdict.label
    # Rounded down: 98.97 % must not read 99.0 %.
    return f"{math.floor(verdict.figure(MATCHED) * 1000) / 10:.1f}%"


def _refused_line(rows: Sequence[PrecisionRow]) -> str:
    parts = []
    for status in dict.fromkeys(row.refusal.status for row in rows if row.refusal):
        own = ((row.place, row.mode) for row in rows if row.refusal and row.refusal.status == status)
        parts.append(f"status {status}: {places_words(own)}")
    return " | ".join(parts)


def places_words(places: Iterable[tuple[str, str]]) -> str:
    """Return products and modes as "310p 910 mode 1 2; 910b mode 0": those with the same modes together."""
    modes_of: dict[str, dict[str, None]] = {}
    for place, mode in places:
        modes_of.setdefault(place, {})[mode] = None
    places_of: dict[str, list[str]] = {}
    for place, modes in modes_of.items():
        places_of.setdefault(" ".join(modes), []).append(place)
    return "; ".join(f"{' '.join(names)} mode {modes}" for modes, names in places_of.items())


def legend(report: PrecisionReport) -> Iterator[str]:
    """Yield the paragraphs that explain the tables."""
    options = report.options
    numbers = dict.fromkeys(row.cube_math_type for row in report.rows if row.cube_math_type is not None)
    modes = ", ".join(f"{number} {CubeMathType(number).name}" for number in numbers)
    yield (
        f"gradient: {report.gradient}, casts and layout conversions included. mode: cubeMathType {modes}. type: what "
        "was multiplied (of a bias gradient added). A line stands for all products and modes with the same figures; in "
        "the file: the framework's own gradient that the .npz brings along."
    )
    cast = f"after --dtype {options.dtype} " if options.dtype else ""
    yield (
        "golden: float64 gradient of the tensors in the file (original), or of those tensors as they were multiplied "
        f"{cast}(rounded); * decides the exit code. rel L2: norm of the error / norm of "
        "the golden. MERE, max rel: mean and maximum of error / (|golden| + 1e-7)."
    )
    for standard in report.standards:
        at = f" at {standard['commit']}" if standard["commit"] else ""
        yield (
            f"verdict: {standard['title']} ({standard['name']}), {standard['version']}, {standard['source']}{at}: "
            f"{standard['rule']}."
        )
    yield (
        "Results multiplied in HF32 are judged by a standard's HiFLOAT32 row if it has one, others by the row of the "
        "gradient's dtype. FAIL names what fails, or the share of elements that match; pass (ULP): only thanks to the "
        "32 ULP clause."
    )
    yield from (f"tolerance {line}." for line in _tolerances(report))
    yield f"additions of the Cube: {', '.join(_accumulations(report)) or 'none'}."
    about = [f"{key} {report.metadata[key]}" for key in ("dataset", "epoch", "step", "seed") if key in report.metadata]
    yield f"layers: {report.source}{' (' + ', '.join(about) + ')' if about else ''}."
    yield report.note


def _accumulations(report: PrecisionReport) -> list[str]:
    """Return "fp16 exact16-rne" and so on, with the products where a type has several models."""
    products_of: dict[tuple[str, str], list[str]] = {}
    for row in report.computed:
        if row.result is not None:
            known = products_of.setdefault((row.result.compute_dtype, row.result.accumulation), [])
            if row.place not in known:
                known.append(row.place)
    dtypes = [dtype for dtype, _ in products_of]
    return [
        f"{dtype} {name}" + (f" ({' '.join(products)})" if dtypes.count(dtype) > 1 else "")
        for (dtype, name), products in products_of.items()
    ]


def refusals(report: PrecisionReport) -> dict[int, list[str]]:
    """Return each distinct reason once, by status."""
    reasons: dict[int, list[str]] = {}
    for row in report.rows:
        if row.refusal is not None:
            known = reasons.setdefault(row.refusal.status, [])
            message = " ".join(row.refusal.message.split())
            if message not in known:
                known.append(message)
    return reasons


def notes(layer: LayerSummary, rows: Sequence[PrecisionRow]) -> Iterator[str]:
    """Yield what the figures of one layer do not show: NaN and Inf in its tensors and goldens, inputs lost in casts."""
    if layer.input_specials:
        verb = "is" if layer.input_specials == 1 else "are"
        yield f"NaN/Inf        {counted(layer.input_specials, 'input')} {verb} NaN/Inf in the file"
    seen: dict[str, None] = {}
    for row in rows:
        if row.result is None:
            continue
        dtype = row.result.compute_dtype
        for golden in GOLDENS:
            error = row.result.against(golden).error
            if error.golden_specials:
                share = f"{error.golden_specials} of {error.count} golden elements are NaN/Inf"
                seen[f"NaN/Inf        {dtype}, {golden}: {share}"] = None
        counts = losses(row.result)
        if any(counts):
            seen[f"inputs lost    {lost_words(counts)} in {dtype}"] = None
    yield from seen


_OUTCOMES = ("became 0", "became Inf or the largest number", "NaN/Inf became 0 or the largest number")
"""What a cast can do to inputs, in the order of `losses`."""


def losses(result: CaseResult) -> tuple[int, ...]:
    """Return how many inputs of a result were lost in each way of `_OUTCOMES`."""
    return result.input_underflow, result.input_overflow, result.input_specials_lost


def lost_words(counts: Sequence[int]) -> str:
    """Return "3 became 0, ..." for such counts."""
    return ", ".join(f"{count} {outcome}" for outcome, count in zip(_OUTCOMES, counts, strict=True) if count)


def _tolerances(report: PrecisionReport) -> list[str]:
    """Return "FLOAT32: rtol 2^-10, atol 2^-16, limit 0.01" for each row of the standards in use."""
    used: dict[str, None] = {}
    for row in report.computed:
        if row.result is not None:
            for verdict in row.result.against(report.options.golden).verdicts:
                named = f" of {verdict.standard}" if len(report.standards) > 1 else ""
                used[f"{verdict.row}{named}: {verdict.thresholds}"] = None
    return list(used)

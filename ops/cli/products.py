"""``npu-sim products``: what is known about every product, how well, and from where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from npu_sim.errors import ProductError, shown
from npu_sim.products import (
    CUBE_DTYPES,
    DEFAULT_PRODUCT,
    PLATFORM_CONFIG,
    UNSTATED,
    Product,
    facts,
    get_product,
    list_products,
    list_series,
    unit_of,
)
from npu_sim.report.files import check_writable, write_files
from npu_sim.report.marked_assumptions import MarkedAssumption, marked_assumptions
from npu_sim.report.record import to_plain
from npu_sim.report.tables import break_paths, fitted_tables
from npu_sim.units import KIB, MIB
from ops.cli.output import PIPE_WIDTH, console, note_hints
from ops.cli.usage import UsageError

SCHEMA_VERSION = 1
_PACKAGES = ("npu_sim", "ops")
_NARROW = "fact, value, evidence, products"

_SOURCES_LEGEND = (
    f"ini: stands for {PLATFORM_CONFIG}",
    "asc-devkit: stands for mirror-cann/asc-devkit:",
    "AD, MK, PI, PP, MI, TK, TB, INI, FIT (cost parameters): see the head of npu_sim/products/cost.py",
)
_SHORTER = (
    (PLATFORM_CONFIG, "ini: "),
    ("mirror-cann/asc-devkit:", "asc-devkit: "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fact of one product, ready to be shown.

    Attributes
    ----------
    product : str
        SoC version.
    field : str
        Dotted name; cost parameters begin with ``cost.``.
    value : object
        JSON value.
    unit, evidence, source, note, confidence : str
        As in the records; ``confidence`` is empty for facts that have none.
    """

    product: str
    field: str
    value: Any
    unit: str
    evidence: str
    source: str
    note: str
    confidence: str

    def mentions(self, words: str) -> bool:
        """Return whether name, evidence, source or note have ``words``, in any case."""
        return words.casefold() in f"{self.field} {self.evidence} {self.source} {self.note}".casefold()


def products_command(
    name: Annotated[
        str | None, typer.Argument(metavar="PRODUCT", help="SoC version, series alias or product file, shown in full.")
    ] = None,
    product: Annotated[str | None, typer.Option("--product", help="The same, as other commands take it.")] = None,
    sources: Annotated[
        bool, typer.Option("--sources", help="Show each fact with its value, unit, evidence and source.")
    ] = False,
    assumptions: Annotated[
        bool,
        typer.Option(
            "--assumptions",
            help="Show only what is assumed, or corroborated at best, as no source states it: of the products, and "
            "without PRODUCT what the machine and the operators assume too.",
        ),
    ] = False,
    about: Annotated[
        str | None,
        typer.Option(
            "--about", metavar="WORDS", help="Of --sources and --assumptions those that mention this, such as matmul."
        ),
    ] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; '-' is standard output.")
    ] = None,
) -> None:
    """List the products: cores, clock, buffers, Cube types and peak rates, each with its source."""
    if name is not None and product is not None:
        raise ProductError(f"Product must be named once, not as {shown(name)} and as {shown(product)}")
    if about is not None and not (sources or assumptions):
        raise UsageError("--about must be given together with --sources or --assumptions")
    words = about or ""
    product = product if name is None else name
    chosen = list_products() if product is None else (get_product(product),)
    note_hints(() if product is None else (product,))
    if json_path is not None:
        _write_json(assumptions_document(chosen, words) if assumptions else products_document(chosen), json_path)
        if json_path == "-":
            return
    parts: list[Table | str | Text]
    screen = console()
    if assumptions:
        found = [
            entry for one in chosen for entry in entries_of(one) if entry.evidence in UNSTATED and entry.mentions(words)
        ]
        parts = _sourced(found, "Assumptions", screen.width)
        if product is None and (marked := _marked(words)):
            parts += ["", "Of the machine, the kernels and the operators, as their modules say:"]
            parts += [Text(f"{one.module}: {one.text}") for one in marked]
    elif sources:
        found = [entry for one in chosen for entry in entries_of(one) if entry.mentions(words)]
        parts = _sourced(found, "Facts and their sources", screen.width)
    elif product is not None:
        parts = [*product_view(chosen[0])]
    else:
        parts = [*products_table(chosen, screen.width), *_legend(chosen)]
    for part in parts or [Text(f"nothing mentions {words}")]:
        screen.print(part)


def _sourced(entries: Sequence[Entry], title: str, width: int) -> list[Table | str | Text]:
    return [sources_table(entries, title=title, width=width), *_SOURCES_LEGEND] if entries else []


def entries_of(product: Product) -> list[Entry]:
    """Return every sourced fact of ``product``, cost parameters last; None without a source is left out."""
    found = []
    for field, value in facts(product):
        source = product.sources.get(field)
        if source is not None:
            found.append(_entry(product, field, value, source, remark=source.note))
    cost = product.cost
    for spec in fields(cost):
        cost_source = cost.sources.get(spec.name)
        if cost_source is not None:
            value = getattr(cost, spec.name)
            found.append(
                _entry(product, f"cost.{spec.name}", value, cost_source, confidence=str(cost_source.confidence))
            )
    return found


def products_document(products: Sequence[Product]) -> dict[str, Any]:
    """Return everything about ``products`` as a JSON object."""
    return {
        "schema_version": SCHEMA_VERSION,
        "default_product": DEFAULT_PRODUCT,
        "aliases": dict(list_series()),
        "products": [_product_object(product) for product in products],
    }


def _marked(words: str) -> list[MarkedAssumption]:
    """Return the passages of modules that mention ``words``."""
    return [one for one in marked_assumptions(_PACKAGES) if words.casefold() in f"{one.module} {one.text}".casefold()]


def assumptions_document(products: Sequence[Product], words: str = "") -> dict[str, Any]:
    """Return what the vendor does not state, as far as it mentions ``words``, as a JSON object.

    An entry per field, value and source of ``products``, and one per passage that a module marks.
    """
    assumed = [
        entry
        for product in products
        for entry in entries_of(product)
        if entry.evidence in UNSTATED and entry.mentions(words)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "assumptions": [
            {"field": first.field, **_fact_object(first), "products": [entry.product for entry in group]}
            for group in _groups(assumed)
            for first in group[:1]
        ],
        "marked": to_plain(_marked(words)),
    }


def products_table(products: Sequence[Product], width: int) -> list[Table]:
    """Return the overview, one line per product, as tables that fit ``width``."""
    memories = ("L1", "L0A", "L0B", "L0C", "UB", "L2")
    headings = ("product", "series", "arch", "cores", "MHz", *memories, "Cube types", "fp16\nTFLOPS")
    rows: list[tuple[str, ...]] = []
    series = products[0].series
    for product in products:
        if product.series != series:
            rows.append(())
            series = product.series
        core = product.core
        cells = (
            product.name,
            product.series,
            product.arch.removeprefix("dav-"),
            _cores(product),
            str(product.clock_hz // 1_000_000) + ("*" if product.measured_clock_hz else ""),
            *(str(size // KIB) for size in (core.l1_bytes, core.l0a_bytes, core.l0b_bytes)),
            *(str(size // KIB) for size in (core.l0c_bytes, core.ub_bytes)),
            str(product.l2_bytes // MIB),
            " ".join(_cube_types(product)).replace("int8 int4", "int8/4"),
            f"{product.peak_flops('fp16') / 1e12:.1f}",
        )
        rows.append(cells)
    return fitted_tables(
        headings, rows, width=width, left=("product", "series", "arch", "Cube types"), title="Products"
    )


def _legend(products: Sequence[Product]) -> list[str]:
    aliases = ", ".join(f"{alias} = {soc}" for alias, soc in list_series().items())
    measured = sorted({one.timing_clock_hz for one in products if one.measured_clock_hz is not None})
    clocks = ", ".join(str(clock // 1_000_000) for clock in measured)
    return [
        "",
        f"Aliases: {aliases}",
        f"Default: {DEFAULT_PRODUCT}",
        "Cores: Cube / vector, v: cores with a vector unit only. L1 to UB in KiB, L2 in MiB.",
        f"* nominal, as for the peak; profiler data shows {clocks} MHz, which timing uses.",
    ]


def product_view(product: Product) -> list[Table | str]:
    """Return the parts of the full view of one product."""
    peaks = ", ".join(f"{dtype} {product.peak_flops(dtype) / 1e12:.1f}" for dtype in _cube_types(product))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("fact", "value", "unit", "evidence"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "value")
    given = [entry.field for entry in entries_of(product) if entry.evidence == "user"]
    for entry in entries_of(product):
        if not entry.field.startswith("cost."):
            table.add_row(entry.field, _text(entry.value), "" if entry.unit == "1" else entry.unit, entry.evidence)
    return [
        f"{product.name}: {product.series_name} (series {product.series}, {product.arch})",
        f"Peak, TFLOPS (integers TOPS): {peaks}",
        table,
        f"Timing: parameter set {product.cost.name}, revision {product.cost.revision}. Sources: add --sources.",
        *([f"Given by the user: {', '.join(given)}"] if given else []),
    ]


def sources_table(entries: Iterable[Entry], *, title: str, width: int) -> Table:
    """Return ``entries`` with their sources; products that agree in everything share a line.

    Where ``width`` is less than `PIPE_WIDTH`, evidence and products stand below the value.
    """
    is_wide = width >= PIPE_WIDTH
    headings = ("fact, value", "evidence, products", "source") if is_wide else (_NARROW, "source")
    rows = [_source_row(group, is_wide) for group in _groups(entries)]
    # no name of a fact is cut; the source gets what is left
    longest = max((cell_len(word) for row in rows for word in row[0].split()), default=0)
    lines = max((cell_len(line) for row in rows for line in row[0].splitlines()), default=0)
    users = max((cell_len(line) for row in rows for line in row[1].splitlines()), default=0)
    users = max(18, min(users, 24))
    widths = [max(longest, min(lines, width // 2)), users] if is_wide else [max(longest, len(_NARROW), min(lines, 44))]
    widths.append(width - sum(widths) - 2 * len(widths))
    table = Table(title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading, columns in zip(headings, widths, strict=True):
        table.add_column(heading, overflow="fold", width=columns)
    for row in rows:
        table.add_row(*row[:-1], break_paths(row[-1], widths[-1]))
    return table


def _source_row(group: Sequence[Entry], is_wide: bool) -> tuple[str, ...]:
    """Return the cells of facts that differ in nothing but the product."""
    first = group[0]
    source = _general(first)
    for long, short in _SHORTER:
        source = source.replace(long, short)
    if first.note:
        source += f" ({first.note})"
    unit = "" if first.unit == "1" or first.value in (None, []) else f" {first.unit}"
    if first.value == 1 and "/" not in unit:
        unit = unit.removesuffix("s")
    users = _product_names([entry.product for entry in group])
    fact = f"{first.field}\n  {_text(first.value)}{unit}"
    if is_wide:
        return fact, f"{first.evidence}\n{users}", source
    return f"{fact}\n  {first.evidence}, {users}", source


def _entry(product: Product, field: str, value: Any, source: Any, *, remark: str = "", confidence: str = "") -> Entry:
    return Entry(
        product=product.name,
        field=field,
        value=_json_value(value),
        unit=unit_of(field),
        evidence=source.evidence,
        source=source.text,
        note=remark,
        confidence=confidence,
    )


def _groups(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Group entries that differ in nothing but the product (and its file in the source); cost parameters come last."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    order: dict[str, tuple[bool, int]] = {}
    for entry in entries:
        order.setdefault(entry.field, (entry.field.startswith("cost."), len(order)))
        key = (entry.field, json.dumps(entry.value), entry.evidence, _general(entry), entry.note)
        groups.setdefault(key, []).append(entry)
    return sorted(groups.values(), key=lambda group: order[group[0].field])


def _general(entry: Entry) -> str:
    """Return the source with the product's own configuration file replaced by a place-holder."""
    return entry.source.replace(f"{entry.product}.ini", "<SoC>.ini")


def _product_names(names: Sequence[str]) -> str:
    """Return ``names`` with complete series replaced by their alias, and all products by ``all``."""
    everything = [product.name for product in list_products()]
    if len(names) == len(everything):
        return "all"
    parts: list[str] = []
    for alias in list_series():
        members = [product.name for product in list_products() if product.series == alias]
        if all(name in names for name in members):
            parts.append(alias)
        else:
            parts.extend(name for name in members if name in names)
    return ", ".join((*parts, *(name for name in names if name not in everything)))


def _product_object(product: Product) -> dict[str, Any]:
    found = entries_of(product)
    return {
        "name": product.name,
        "series": product.series,
        "peak_flops": {dtype: product.peak_flops(dtype) for dtype in _cube_types(product)},
        "timing_clock_hz": product.timing_clock_hz,
        "facts": {e.field: _fact_object(e) for e in found if not e.field.startswith("cost.")},
        "cost": {
            "name": product.cost.name,
            "revision": product.cost.revision,
            "facts": {e.field.removeprefix("cost."): _fact_object(e) for e in found if e.field.startswith("cost.")},
        },
    }


def _fact_object(entry: Entry) -> dict[str, Any]:
    return {
        "value": entry.value,
        "unit": entry.unit,
        "evidence": entry.evidence,
        "source": entry.source,
        "note": entry.note,
        "confidence": entry.confidence,
    }


def _json_value(value: Any) -> Any:
    """Return ``value`` as JSON has it: tuples as lists, sets of operand types in their usual order."""
    if isinstance(value, frozenset):
        return sorted(value, key=CUBE_DTYPES.index)
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "none"
    return str(value)


def _cube_types(product: Product) -> list[str]:
    return [dtype for dtype in CUBE_DTYPES if dtype in product.cube_dtypes]


def _cores(product: Product) -> str:
    """Return the core counts: "24/48" on split products, "8+7v" with vector-only cores, else "32"."""
    if product.core.is_split:
        return f"{product.cube_core_count}/{product.vector_core_count}"
    extra = f"+{product.vector_only_core_count}v" if product.vector_only_core_count else ""
    return f"{product.cube_core_count}{extra}"


def _write_json(document: dict[str, Any], path: str) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if path == "-":
        typer.echo(text, nl=False)
        return
    target = Path(path)
    check_writable(target)
    write_files({target: text.encode()})

"""The rows of a precision report as flat tables: CSV, Markdown and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from npu_sim.errors import MissingExtraError
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import GOLDENS, PrecisionRow

Cell = str | int | float | None
_FIGURES = ("relative_l2", "max_abs", "rmse", "mean_rel", "max_rel", "mean_ulp", "max_ulp", "cosine")
_NAMES = ("layer", "gradient", "entry", "product", "soc", "cube_math_type", "input_dtype")
_RESULT = ("compute_dtype", "output_dtype", "accumulation", "k_depth", "route", "input_underflow", "input_overflow")
_INTEGERS = ("cube_math_type", "refusal_status", "k_depth", "input_underflow", "input_overflow")
_IN_MARKDOWN = (
    "layer", "gradient", "entry", "product", "cube_math_type", "compute_dtype", "original_relative_l2",
    "rounded_relative_l2", "original_outcome", "rounded_outcome", "refusal_status",
)  # fmt: skip


def flat_rows(report: PrecisionReport) -> list[dict[str, Cell]]:
    """Return each row of a report as a flat record with the same columns.

    They are the fields of `PrecisionRow`, of its result and refusal, and for each golden "<golden>_outcome",
    "<golden>_void_cause" and the figures of `npu_sim.report.precision.ErrorMetrics`; None where there is none.
    """
    return [_flat(row) for row in report.rows]


def _flat(row: PrecisionRow) -> dict[str, Cell]:
    flat: dict[str, Cell] = {name: getattr(row, name) for name in _NAMES}
    flat["refusal_status"] = row.refusal.status if row.refusal else None
    flat["refusal_message"] = " ".join(row.refusal.message.split()) if row.refusal else None
    flat |= {name: getattr(row.result, name) if row.result else None for name in _RESULT}
    for golden in GOLDENS:
        against = row.result.against(golden) if row.result else None
        flat[f"{golden}_outcome"] = against.outcome if against else None
        flat[f"{golden}_void_cause"] = against.void_cause if against else None
        flat |= {f"{golden}_{name}": getattr(against.error, name) if against else None for name in _FIGURES}
    return flat


def csv_bytes(report: PrecisionReport) -> bytes:
    """Return the rows as CSV with a heading line; an empty cell is None, floats read back exactly."""
    rows, stream = flat_rows(report), io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def markdown_bytes(report: PrecisionReport) -> bytes:
    """Return a Markdown table of the rows with the columns that decide."""
    lines: list[Sequence[str]] = [_IN_MARKDOWN, ["---"] * len(_IN_MARKDOWN)]
    lines += [[_markdown(row[name]) for name in _IN_MARKDOWN] for row in flat_rows(report)]
    standards = ", ".join(f"{standard['title']} {standard['version']}" for standard in report.standards)
    deciding = f"The {report.options.golden} golden decides; {standards}; {report.program}; {report.source}."
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{_markdown(deciding)}\n\n{text}\n{report.note}\n".encode()


def _markdown(value: Cell) -> str:
    if value is None:
        return ""
    text = f"{value:.2e}" if isinstance(value, float) else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|")


def parquet_bytes(report: PrecisionReport) -> bytes:
    """Return the rows as a Parquet file.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.

    Notes
    -----
    A column has the same type in every file, also where all of it is None, so that files of several studies fit.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            "A Parquet file must have pyarrow, which is not installed; run: pip install pyarrow (the extra parquet)"
        ) from error
    rows, sink = flat_rows(report), pyarrow.BufferOutputStream()
    types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "str": pyarrow.string()}
    schema = pyarrow.schema([(name, types[_type_of(name)]) for name in rows[0]])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue())


def _type_of(column: str) -> str:
    if column in _INTEGERS:
        return "int"
    return "float" if column.partition("_")[2] in _FIGURES else "str"


WRITERS: Mapping[str, Callable[[PrecisionReport], bytes]] = {
    ".csv": csv_bytes,
    ".md": markdown_bytes,
    ".parquet": parquet_bytes,
}
"""By the suffix of a table's file."""

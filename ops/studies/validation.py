"""Predicted against measured times: every published row that ships, by chip and operator, beside a simple baseline.

The baseline is what fits on an envelope: operations at the peak of the Cubes or bytes at the bandwidth of the memory,
whichever takes longer, and one constant for each chip, the median of what is left on the calibration half. Errors are
ratios: a median of x1.2 means that half of the rows are less than a fifth off.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import median
from typing import Any, Literal

from npu_sim.errors import InternalError, NpuSimError
from npu_sim.report.record import to_json_text
from ops.studies.calls.answers import time_item
from ops.studies.calls.planned import PlannedCall
from ops.studies.calls.request_items import read_item
from ops.studies.cases import program_name
from ops.studies.scope import Progress

SCHEMA_VERSION = 2
DATA = "data/measured_kernels.json"
Half = Literal["calibration", "validation"]
HALVES: tuple[Half, ...] = ("calibration", "validation")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A published time.

    Attributes
    ----------
    id, op, product, scope : str
        Name, operator, chip; a whole call, a kernel, or its core time.
    half : {"calibration", "validation"}
        Whether parameters were fitted while looking at it.
    source : str
        The public file it is from.
    is_inferred : bool
        The chip, or what was multiplied, follows from other facts.
    measured_us : float
        The time.
    request : mapping
        The request of `npu-sim perf` that asks for it.
    """

    id: str
    op: str
    product: str
    scope: str
    half: Half
    source: str
    is_inferred: bool
    measured_us: float
    request: Mapping[str, Any]

    @property
    def is_tiled(self) -> bool:
        """Whether the kernel's own tiling is known."""
        return not self.request.keys().isdisjoint(("tiling", "al0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """A published time beside what is predicted.

    Attributes
    ----------
    row : MeasuredRow
        The row.
    name : str
        Its shape in words.
    error : str
        Why nothing is predicted; "" where something is.
    predicted_us, low_us, high_us : float
        Expected time and bounds; 0 with an ``error``.
    baseline_us : float
        Peak and constant.
    """

    row: MeasuredRow
    name: str = ""
    error: str = ""
    predicted_us: float = 0.0
    low_us: float = 0.0
    high_us: float = 0.0
    baseline_us: float = 0.0

    @property
    def ratio(self) -> float:
        """Predicted over measured time."""
        return self.predicted_us / self.row.measured_us

    @property
    def is_inside(self) -> bool:
        """Whether the measured time lies between the bounds."""
        return self.low_us <= self.row.measured_us <= self.high_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far predictions are off, over some rows.

    Attributes
    ----------
    count : int
        Rows.
    median, p90 : float
        Of the ratio of the larger to the smaller time.
    bias : float
        Median of predicted over measured.
    baseline_median, baseline_p90 : float
        The same of the baseline.
    coverage : float
        Share of rows between low and high.
    width : float
        Median of high over low.
    """

    count: int
    median: float
    p90: float
    bias: float
    baseline_median: float
    baseline_p90: float
    coverage: float
    width: float


def agreement(rows: Sequence[ComparedRow]) -> Agreement | None:
    """Return how far predictions of ``rows`` are off; None without any."""
    found = [row for row in rows if not row.error]
    if not found:
        return None
    logs = [math.log(row.ratio) for row in found]
    simple = [abs(math.log(row.baseline_us / row.row.measured_us)) for row in found]
    sizes = [abs(value) for value in logs]
    return Agreement(
        count=len(found),
        median=math.exp(median(sizes)),
        p90=math.exp(_quantile(sizes, 0.9)),
        bias=math.exp(median(logs)),
        baseline_median=math.exp(median(simple)),
        baseline_p90=math.exp(_quantile(simple, 0.9)),
        coverage=sum(row.is_inside for row in found) / len(found),
        width=median(row.high_us / row.low_us for row in found),
    )


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the values do not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """The outcome.

    Attributes
    ----------
    rows : tuple of ComparedRow
        In the order of the data.
    """

    rows: tuple[ComparedRow, ...]

    @property
    def groups(self) -> dict[tuple[str, str, str], tuple[ComparedRow, ...]]:
        """Rows by chip, operator ("tiled" where tilings are known) and scope, the most first."""
        found: dict[tuple[str, str, str], list[ComparedRow]] = defaultdict(list)
        for one in self.rows:
            kind = f"{one.row.op} tiled" if one.row.is_tiled else one.row.op
            found[one.row.product, kind, one.row.scope].append(one)
        ordered = sorted(found.items(), key=lambda item: (item[0][0], -len(item[1]), item[0]))
        return {key: tuple(rows) for key, rows in ordered}

    def half(self, half: Half) -> tuple[ComparedRow, ...]:
        """Return the rows of one half."""
        return tuple(one for one in self.rows if one.row.half == half)

    @property
    def misses(self) -> tuple[ComparedRow, ...]:
        """Rows whose measured time lies outside the bounds, the farthest first, and those that have no prediction."""
        missed = [one for one in self.rows if one.error or not one.is_inside]
        return tuple(sorted(missed, key=lambda one: 0.0 if one.error else -abs(math.log(one.ratio))))

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return to_json_text(
            {
                "schema_version": SCHEMA_VERSION,
                "program": program_name(),
                "overall": {half: agreement(self.half(half)) for half in HALVES},
                "groups": [
                    {
                        "product": product,
                        "op": rows[0].row.op,
                        "is_tiled": rows[0].row.is_tiled,
                        "scope": scope,
                        **{half: agreement([one for one in rows if one.row.half == half]) for half in HALVES},
                    }
                    for (product, _, scope), rows in self.groups.items()
                ],
                "rows": [_row_document(one) for one in self.rows],
            }
        )


def _row_document(one: ComparedRow) -> dict[str, Any]:
    row = one.row
    return {
        "id": row.id,
        "op": row.op,
        "product": row.product,
        "scope": row.scope,
        "half": row.half,
        "source": row.source,
        "is_inferred": row.is_inferred,
        "name": one.name,
        "measured_us": row.measured_us,
        "predicted_us": None if one.error else one.predicted_us,
        "low_us": None if one.error else one.low_us,
        "high_us": None if one.error else one.high_us,
        "baseline_us": None if one.error else one.baseline_us,
        "is_inside": None if one.error else one.is_inside,
        "error": one.error,
    }


def measured_rows(operators: Sequence[str] | None = None) -> tuple[MeasuredRow, ...]:
    """Return the published times that ship, of these operators or all."""
    document = json.loads(files("ops.studies").joinpath(DATA).read_text(encoding="utf-8"))
    own = ("measured_us", "source", "evidence", "half")
    return tuple(
        MeasuredRow(
            id=row["id"],
            op=row["op"],
            product=row["product"],
            scope=row["scope"],
            half=row["half"],
            source=document["sources"][row["source"]],
            is_inferred=row.get("evidence") == "inferred",
            measured_us=row["measured_us"],
            request={name: value for name, value in row.items() if name not in own},
        )
        for row in document["rows"]
        if operators is None or row["op"] in operators
    )


def compare(row: MeasuredRow) -> ComparedRow:
    """Predict one row; its baseline lacks the chip's constant."""
    try:
        item = read_item(row.request)
        timed = time_item(item)
    except InternalError:
        raise
    except NpuSimError as error:
        return ComparedRow(row=row, error=" ".join(str(error).split()))
    interval = timed.core if row.scope == "core_time" else timed.task
    return ComparedRow(
        row=row,
        name=item.request.name,
        predicted_us=interval.seconds * 1e6,
        low_us=interval.low_seconds * 1e6,
        high_us=interval.high_seconds * 1e6,
        baseline_us=_peak_seconds(timed.planned) * 1e6,
    )


def _peak_seconds(planned: PlannedCall) -> float:
    """Return the time of the operations at peak, or that of the caller's tensors at the memory's bandwidth."""
    chip = planned.product
    moved = sum(buffer.byte_count for buffer in planned.calls.places if buffer.role != "workspace")
    seconds = moved / (chip.cost.hbm_total_bytes_per_microsecond * 1e6)
    if planned.macs:
        per_second = chip.macs_per_cycle(planned.compute_dtype) * chip.cube_core_count * chip.timing_clock_hz
        seconds = max(seconds, planned.macs / per_second)
    return seconds


def validate(
    operators: Sequence[str] | None = None, jobs: int | None = None, progress: Progress | None = None
) -> ValidationReport:
    """Predict every published time.

    Parameters
    ----------
    operators : sequence of str or None
        Names of `ops.studies.calls.request_items.READERS`; None: all.
    jobs : int or None
        Processes; None: one for each CPU.
    progress : callable or None
        Called with (rows done, rows in all, what comes next).
    """
    rows = measured_rows(operators)
    count = jobs or os.cpu_count() or 1
    found: list[ComparedRow] = []
    if count > 1:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
            for one in pool.map(compare, rows, chunksize=8):
                found.append(one)
                if progress:
                    progress(len(found), len(rows), one.row.id)
    else:
        for row in rows:
            if progress:
                progress(len(found), len(rows), row.id)
            found.append(compare(row))
    return ValidationReport(rows=_with_constants(found))


def _with_constants(rows: Sequence[ComparedRow]) -> tuple[ComparedRow, ...]:
    """Add to each baseline the median of what is left of its chip's calibration half, of all its rows without one."""
    left: dict[str, list[float]] = defaultdict(list)
    for half in (("calibration",), HALVES):
        for one in rows:
            if not one.error and one.row.half in half and (half != HALVES or one.row.product not in left):
                left[one.row.product].append(one.row.measured_us - one.baseline_us)
    constants = {product: max(median(values), 0.0) for product, values in left.items()}
    return tuple(
        one if one.error else replace(one, baseline_us=one.baseline_us + constants[one.row.product]) for one in rows
    )

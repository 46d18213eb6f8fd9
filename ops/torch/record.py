"""What was emulated of a model: errors of its results by module, refusals, and what PyTorch computed itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from npu_sim.report.record import counted, to_json_text
from npu_sim.report.tables import fitted_tables
from ops.studies.rounding import count_overflow, count_underflow

_WORDS = {
    "output": "output",
    "grad_input": "input gradient",
    "grad_weight": "weight gradient",
    "grad_bias": "bias gradient",
    "grad_factor": "gradient of a factor",
}
SCHEMA = "npu-sim torch emulation 1"
WIDTH = 100
"""Columns of the text of a record."""
_NO_DIGIT = 0.1
"""Where PyTorch's own gradient is as far from the float64 one, the terms cancel: a bias in front of a normalisation has
the gradient 0, and what either computes is rounding alone. Such an error is shown and ranks last."""


@dataclass(slots=True)
class Difference:
    """Sums over all elements of a gradient against another, over all calls.

    Attributes
    ----------
    squared_error, squared_golden, largest : float
        Over elements that are finite in both.
    specials : int
        Elements that are NaN or infinite in one and not in the other, or not in the same way.
    """

    squared_error: float = 0.0
    squared_golden: float = 0.0
    largest: float = 0.0
    specials: int = 0

    def add(self, actual: np.ndarray, golden: np.ndarray) -> None:
        """Add float64 arrays of one shape."""
        finite = np.isfinite(actual) & np.isfinite(golden)
        same = finite | (actual == golden) | (np.isnan(actual) & np.isnan(golden))
        error = np.where(finite, actual, 0) - np.where(finite, golden, 0)
        self.specials += int(same.size - np.count_nonzero(same))
        self.squared_error += float(np.vdot(error, error))
        self.squared_golden += float(np.sum(np.square(golden, where=finite, out=np.zeros_like(golden))))
        self.largest = max(self.largest, float(np.abs(error).max(initial=0)))

    @property
    def relative_l2(self) -> float:
        """Root of the sums' ratio; 0 without error, infinite where all is error."""
        if not self.squared_error:
            return 0.0
        return math.sqrt(self.squared_error / self.squared_golden) if self.squared_golden else math.inf


@dataclass(slots=True, kw_only=True)
class ResultRow:
    """One result of one module, over all calls.

    Attributes
    ----------
    module, operator, result : str
        Whose, of which operator, and which: "output", "grad_input", "grad_weight" or "grad_bias"; "grad_factor" is
        a matrix product of a backward pass of which nothing tells whose gradient it is.
    dtype, compute_dtype : str
        Of the tensors, and what the operator computed in.
    calls, elements : int
        How often, and how many numbers in all.
    seconds : float
        Host time of the operator, all its results together.
    against_float64, against_torch, torch_against_float64 : Difference or None
        Of the emulated result against the float64 one of the same operands and against PyTorch's own, and of that
        against float64; None if nothing was compared.
    operands, underflow, overflow : int
        Elements of the tensors that were multiplied, and those of them that became 0 or too large on the way there.
    """

    module: str
    operator: str
    result: str
    dtype: str
    compute_dtype: str
    calls: int = 0
    elements: int = 0
    seconds: float = 0.0
    against_float64: Difference | None = None
    against_torch: Difference | None = None
    torch_against_float64: Difference | None = None
    operands: int = 0
    underflow: int = 0
    overflow: int = 0

    @property
    def cancels(self) -> bool:
        """Whether the terms of the result cancel, so that its relative error says nothing."""
        own = self.torch_against_float64
        return own is not None and own.relative_l2 >= _NO_DIGIT

    def compare(self, emulated: np.ndarray, own: np.ndarray, golden: np.ndarray) -> None:
        """Add a call's results: emulated, PyTorch's own and in float64, all as float64 arrays."""
        for name, actual, reference in (
            ("against_float64", emulated, golden),
            ("against_torch", emulated, own),
            ("torch_against_float64", own, golden),
        ):
            difference = getattr(self, name) or Difference()
            difference.add(actual, reference)
            setattr(self, name, difference)

    def count_lost(self, original: np.ndarray, operand: np.ndarray) -> None:
        """Add a tensor, as it was given and as it was multiplied."""
        self.operands += original.size
        self.underflow += count_underflow(original, operand)
        self.overflow += count_overflow(original, operand, self.compute_dtype)


@dataclass(slots=True, kw_only=True)
class RefusalRow:
    """Calls that the operator refuses; PyTorch computed it.

    Attributes
    ----------
    module, operator : str
        Whose, and which.
    status : int
        aclnn status code.
    message : str
        The rule, the value and the product.
    calls : int
        How often.
    """

    module: str
    operator: str
    status: int
    message: str
    calls: int = 0


@dataclass(slots=True, kw_only=True)
class Record:
    """All of a run.

    Attributes
    ----------
    product, cube_math_type, accumulation : str
        On what, and how it multiplied and added; "" for the product's own model of additions.
    rows : dict of tuple to ResultRow
        By module, operator, result and types.
    refusals : dict of tuple to RefusalRow
        By module, operator and message.
    native : Counter of tuple of str
        How often PyTorch computed a convolution, pooling or matrix product itself, by module and operator.
    """

    product: str
    cube_math_type: str
    accumulation: str
    rows: dict[tuple[str, ...], ResultRow] = field(default_factory=dict)
    refusals: dict[tuple[str, ...], RefusalRow] = field(default_factory=dict)
    native: Counter[tuple[str, str]] = field(default_factory=Counter)

    def row(self, module: str, operator: str, result: str, dtype: str, compute_dtype: str) -> ResultRow:
        """Return the row of a result, made if it is the first."""
        key = (module, operator, result, dtype, compute_dtype)
        if key not in self.rows:
            self.rows[key] = ResultRow(
                module=module, operator=operator, result=result, dtype=dtype, compute_dtype=compute_dtype
            )
        return self.rows[key]

    def refuse(self, module: str, operator: str, status: int, message: str) -> None:
        """Note a refused call."""
        key = (module, operator, message)
        if key not in self.refusals:
            self.refusals[key] = RefusalRow(module=module, operator=operator, status=status, message=message)
        self.refusals[key].calls += 1

    def ranked(self) -> list[ResultRow]:
        """Return the rows, largest error against float64 first; in the order of the run what has none to go by."""
        return sorted(
            self.rows.values(),
            key=lambda row: (row.cancels, -row.against_float64.relative_l2 if row.against_float64 else 0.0),
        )

    def to_json(self) -> str:
        """Return the record as JSON text: its attributes, rows with their sums and relative L2 errors."""
        rows = [_plain_row(row) for row in self.ranked()]
        native = [{"module": module, "operator": name, "calls": calls} for (module, name), calls in self.native.items()]
        return to_json_text(
            {
                "schema": SCHEMA,
                "product": self.product,
                "cube_math_type": self.cube_math_type,
                "accumulation": self.accumulation,
                "results": rows,
                "refusals": list(self.refusals.values()),
                "native": native,
            }
        )

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=WIDTH, color_system=None, highlight=False, markup=False, force_terminal=False)
        with console.capture() as captured:
            console.print(self._headline())
            for table in _result_tables(self.ranked()):
                console.print(table)
            if any(row.against_float64 for row in self.rows.values()):
                console.print(_LEGEND)
            if any(row.cancels for row in self.rows.values()):
                console.print("~ the terms cancel: the result is nothing but rounding, in PyTorch too")
            for refusal in self.refusals.values():
                console.print(
                    f"refused, so PyTorch computed it: {refusal.module} {refusal.operator} "
                    f"({counted(refusal.calls, 'call')}): {refusal.status}: {refusal.message}"
                )
            if self.native:
                by_name: Counter[str] = Counter()
                for (_, name), calls in self.native.items():
                    by_name[name] += calls
                parts = ", ".join(f"{name} {calls}" for name, calls in sorted(by_name.items()))
                console.print(f"computed by PyTorch itself, calls: {parts}")
        return captured.get().rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _headline(self) -> str:
        calls = max((row.calls for row in self.rows.values()), default=0)
        modules = len({row.module for row in self.rows.values()})
        run = f"{counted(modules, 'module')} on {self.product}, cubeMathType {self.cube_math_type}"
        if self.accumulation:
            run += f", additions {self.accumulation}"
        if calls > 1:
            run += f", up to {calls} calls each"
        worst = next(iter(self.ranked()), None)
        if worst is None or worst.against_float64 is None or worst.cancels:
            return f"{run}."
        return (
            f"The {_WORDS[worst.result]} of {worst.module} is farthest from float64: "
            f"relative L2 error {worst.against_float64.relative_l2:.1e}. {run}."
        )


def _plain_row(row: ResultRow) -> Mapping[str, Any]:
    plain: dict[str, Any] = {}
    for name in ResultRow.__dataclass_fields__:
        value = getattr(row, name)
        if isinstance(value, Difference):
            value = {
                "relative_l2": value.relative_l2,
                "max_abs": value.largest,
                "special_mismatches": value.specials,
            }
        plain[name] = value
    return plain


_HEADINGS = (
    "module",
    "result",
    "calls",
    "computed in",
    "emu-f64",
    "torch-f64",
    "emu-torch",
    "max abs",
    "NaN/Inf",
    "lost",
)
_LEGEND = (
    "emu-f64, torch-f64, emu-torch: relative L2 distance between the emulated result, PyTorch's own and the float64 "
    "one; max abs: largest error against float64; NaN/Inf: elements that only one of them has; lost: operands that "
    "became 0 or infinite on their way into the Cube."
)


def _result_tables(rows: list[ResultRow]) -> list[Any]:
    compared = any(row.against_float64 for row in rows)
    cells = [_cells(row) for row in rows]
    shown = _HEADINGS if compared else _HEADINGS[:4]
    return fitted_tables(
        shown,
        [cell[: len(shown)] for cell in cells],
        width=WIDTH,
        left=("module", "result", "computed in"),
    )


def _cells(row: ResultRow) -> list[str]:
    cells = [row.module, row.result, str(row.calls), row.compute_dtype]
    error, own, apart = row.against_float64, row.torch_against_float64, row.against_torch
    if error is None or own is None or apart is None:
        return cells + ["-"] * (len(_HEADINGS) - len(cells))
    lost = (row.underflow + row.overflow) / row.operands if row.operands else 0.0
    return [
        *cells,
        f"{'~ ' if row.cancels else ''}{error.relative_l2:.1e}",
        f"{own.relative_l2:.1e}",
        f"{apart.relative_l2:.1e}",
        f"{error.largest:.1e}",
        str(error.specials),
        "-" if not row.operands else f"{lost:.2%}" if lost else "0",
    ]

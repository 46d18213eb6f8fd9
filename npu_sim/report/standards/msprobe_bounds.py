"""msprobe's absolute threshold method and its accumulative error method: no element may be beyond its bound.

An element with a small golden is bounded by its absolute error, another by its relative error. Where the result or the
golden is NaN or Inf, both NaN are right, and so are two numbers that are within the relative bound once infinities are
replaced by the largest number of the format. `standards.msprobe_facts` has the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from npu_sim.report.precision import ElementErrors
from npu_sim.report.standards.msprobe_facts import (
    GOLDEN_EPS,
    error_balance,
    masks,
    msprobe_standard,
    relative_errors,
    share,
)
from npu_sim.report.standards.standard import Evidence
from npu_sim.report.standards.verdict import Check, Finding, every, number_text


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Relative bound, what counts as small, and the absolute bound of such elements."""

    relative: float
    small_value: float
    absolute: float


_ABSOLUTE = {
    "fp16": _Bounds(2.0**-10, 2.0**-10, 2.0**-16),
    "bf16": _Bounds(2.0**-8, 2.0**-10, 1e-16),
    "fp32": _Bounds(2.0**-20, 2.0**-20, 2.0**-30),
}
_ACCUMULATIVE = {
    name: _Bounds(bound, 1.0, bound) for name, bound in (("fp16", 2.0**-8), ("bf16", 2.0**-7), ("fp32", 2.0**-11))
}
_BALANCE = {"fp16": 2.0**-20, "bf16": 2.0**-7, "fp32": 2.0**-14}


def _checks(errors: ElementErrors, table: Mapping[str, _Bounds]) -> tuple[Check, ...]:
    bounds = table[errors.format.name]
    split = masks(errors, bounds.small_value)
    special = ~(split.small | split.normal)
    shares = (
        ("NaN or Inf", "NaN/Inf", share(~_right_specials(errors, bounds.relative), special)),
        ("normal", "rel", share(relative_errors(errors) > bounds.relative, split.normal)),
        ("small", "small", share(errors.error > bounds.absolute, split.small)),
    )
    return tuple(
        Check(name=f"share of {kind} elements beyond the bound", label=label, value=value, relation="<=", threshold=0)
        for kind, label, value in shares
    )


def _right_specials(errors: ElementErrors, bound: float) -> np.ndarray:
    largest = errors.format.largest
    a, g = (np.clip(values, -largest, largest) for values in (errors.actual, errors.golden))
    return (np.isnan(a) & np.isnan(g)) | (np.abs(a - g) / (np.abs(g) + GOLDEN_EPS[errors.format.name]) <= bound)


def _absolute(evidence: Evidence) -> Finding:
    return every(*_checks(evidence.errors, _ABSOLUTE))


def _accumulative(evidence: Evidence) -> Finding:
    errors = evidence.errors
    balance = Check(
        name="error balance",
        label="balance",
        value=error_balance(errors),
        relation="<=",
        threshold=_BALANCE[errors.format.name],
    )
    return every(*_checks(errors, _ACCUMULATIVE), balance)


ABSOLUTE = msprobe_standard(
    "absolute",
    "absolute threshold",
    "no relative error is beyond its bound, and no absolute one where the golden is small",
    {
        name: f"relative {number_text(one.relative)}, absolute {number_text(one.absolute)} up to |golden| "
        f"{number_text(one.small_value)}"
        for name, one in _ABSOLUTE.items()
    },
    _absolute,
)
ACCUMULATIVE = msprobe_standard(
    "accumulative",
    "accumulative error",
    "no relative error is beyond its bound, no absolute one where |golden| is at most 1, and up and down balance",
    {
        name: f"relative and absolute {number_text(one.relative)}, balance {number_text(_BALANCE[name])}"
        for name, one in _ACCUMULATIVE.items()
    },
    _accumulative,
)

"""msprobe's checks by cosine, largest error and shares of relative errors.

They are the API pre-check, the double thousandth standard of conv1d and conv2d, and the comparison of dumps.
`standards.msprobe_facts` has their source.
"""

from __future__ import annotations

import numpy as np

from npu_sim.report.precision import ElementErrors
from npu_sim.report.standards.msprobe_facts import msprobe_standard, relative_errors
from npu_sim.report.standards.standard import Evidence
from npu_sim.report.standards.verdict import Check, Finding, all_of
from npu_sim.report.sums import cosine, largest

_COSINE = 0.99
_SMALL_ERROR = 0.001
_NOTHING = 2.0**-52
"""Tensors without a larger element are all 0 to msprobe."""
_LEAST_COSINE, _LARGEST_ERROR = 0.9, 1.0


def _cosine(errors: ElementErrors) -> float:
    """Return the cosine over the pairs that are finite; 1 of a single element, or where both tensors are 0."""
    finite = np.isfinite(errors.actual) & np.isfinite(errors.golden)
    a, g = errors.actual[finite], errors.golden[finite]
    scales = [largest(np.abs(values)) for values in (a, g)]
    are_zero = [scale <= _NOTHING for scale in scales]
    if a.size <= 1 or all(are_zero):
        return 1.0
    return 0.0 if any(are_zero) else cosine(a / scales[0], g / scales[1])


def _share_below(errors: ElementErrors, bound: float) -> float:
    relative = relative_errors(errors)
    return int(np.count_nonzero(relative < bound)) / relative.size if relative.size else 1.0


def _share_check(errors: ElementErrors, words: str, bound: float) -> Check:
    return Check(
        name=f"share of relative errors below {words}",
        label=words,
        value=_share_below(errors, bound),
        relation=">",
        threshold=1 - bound,
    )


def _precheck(evidence: Evidence) -> Finding:
    errors = evidence.errors
    similar = Check(name="cosine", label="cosine", value=_cosine(errors), relation=">", threshold=_COSINE)
    near = Check(
        name="largest error", label="max abs", value=largest(errors.error), relation="<", threshold=_SMALL_ERROR
    )
    first = all_of(errors.special_mismatches, similar)
    if not first.passes:
        return first
    if near.holds:
        return Finding(passes=True, checks=(*first.checks, near), deciding=near)
    thousandth = _share_check(errors, "0.001", 0.001)
    if errors.format.name == "fp32":
        required, better = thousandth, _share_check(errors, "0.0001", 0.0001)
    else:
        required, better = _share_check(errors, "0.01", 0.01), thousandth
    checks = (*first.checks, near, required, better)
    if not required.holds:
        return Finding(passes=False, checks=checks, deciding=required)
    return Finding(passes=True, checks=checks, deciding=better, remark="" if better.holds else "warning")


def _thousandth(evidence: Evidence) -> Finding:
    errors = evidence.errors
    return all_of(
        errors.special_mismatches,
        Check(
            name="share of relative errors below 0.001",
            label="0.001",
            value=_share_below(errors, 0.001),
            relation=">=",
            threshold=0.999,
        ),
    )


def _dump(evidence: Evidence) -> Finding:
    errors = evidence.errors
    similarity, error = _cosine(errors), largest(errors.error)
    similar = Check(name="cosine", label="cosine", value=similarity, relation=">=", threshold=_COSINE)
    near = Check(name="largest error", label="max abs", value=error, relation="<=", threshold=_SMALL_ERROR)
    # where one of the two is good enough, the other may be worse than it, but not by any amount
    either = similar if similar.holds or not near.holds else near
    return all_of(
        errors.special_mismatches,
        either,
        Check(name="cosine", label="cosine", value=similarity, relation=">=", threshold=_LEAST_COSINE),
        Check(name="largest error", label="max abs", value=error, relation="<=", threshold=_LARGEST_ERROR),
    )


_LOW = "cosine 0.99, largest error 0.001, shares of relative errors below 0.01 and 0.001"
_SHARES = {"fp16": _LOW, "bf16": _LOW, "fp32": _LOW.replace("0.01 and 0.001", "0.001 and 0.0001")}
PRECHECK = msprobe_standard(
    "precheck",
    "API pre-check",
    "the cosine is above 0.99, and either the largest error is below 0.001 or the share of relative errors below a "
    "bound is above one minus that bound; where it is not above the second such share, the pass is a warning",
    _SHARES,
    _precheck,
)
THOUSANDTH = msprobe_standard(
    "thousandth",
    "double thousandth",
    "at least 99.9 % of the relative errors are below 0.001; msprobe's standard for conv1d and conv2d",
    dict.fromkeys(_SHARES, "share 0.999 below 0.001"),
    _thousandth,
)
DUMP = msprobe_standard(
    "dump",
    "comparison of dumps",
    "the cosine is not below 0.99 or the largest error not above 0.001, and neither is beyond 0.9 and 1",
    dict.fromkeys(_SHARES, "cosine 0.99 or error 0.001, cosine 0.9, error 1"),
    _dump,
)

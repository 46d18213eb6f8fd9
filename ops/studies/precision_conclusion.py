"""What a precision report comes to, in words: the picture's title and the last lines of the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npu_sim.report.precision import OUTPUT_FORMATS
from npu_sim.report.standards.verdict import Outcome
from ops.studies.layers import NOT_MEASURED
from ops.studies.precision_results import CaseResult, Golden, LayerSummary

_SMALL_PART = 0.1
"""Where the additions make no more than this part of the error, the rounding of the inputs is said to make it."""
_NO_DIGIT = 0.1
"""Where the framework's own gradient is as far from float64, the terms of the gradient cancel (as in `ops.torch`)."""
_OTHERS: tuple[Outcome, ...] = ("fail", "void")


def relative_error(result: CaseResult, golden: Golden) -> float:
    """Return the relative L2 error, 0 where there is none."""
    return result.against(golden).error.relative_l2 or 0.0


def standards_words(standards: Sequence[Mapping[str, str]]) -> str:
    """Return the title of the standard, or how many there are."""
    return standards[0]["title"] if len(standards) == 1 else f"all {len(standards)} standards"


def verdict_words(results: Sequence[CaseResult], golden: Golden, standard: str) -> str:
    """Return how many gradients pass ``standard`` against ``golden``, fail it, or are void."""
    outcomes = [result.against(golden).outcome for result in results]
    others = "".join(f", {outcomes.count(other)} {other}" for other in _OTHERS if other in outcomes)
    return f"{outcomes.count('pass')} of {len(outcomes)} gradients pass {standard}{others}"


def error_words(results: Sequence[CaseResult]) -> str:
    """Return the largest relative L2 errors by what was multiplied, those of `telling` results; "" without any.

    A result of a type with fewer bits than what was multiplied is named apart: its error is that of its own rounding.
    """
    shown = telling(results)
    worst: dict[str, float] = {}
    for result in shown:
        error = relative_error(result, "original")
        dtype = _rounded_type(result)
        worst[dtype] = max(error, worst.get(dtype, 0.0))
    if not worst:
        return ""
    listed = ", ".join(f"{error:.1e} in {dtype}" for dtype, error in sorted(worst.items(), key=lambda item: item[1]))
    rounded = max(relative_error(result, "rounded") for result in shown)
    more = f"; against the rounded inputs at most {rounded:.1e}" if _rounding(shown) else ""
    void = len(results) - len(shown)
    left_out = f"; without {void} void against the original golden" if void else ""
    return f"relative L2 error at most {listed}{more}{left_out}"


def _rounded_type(result: CaseResult) -> str:
    """Return "fp32", or "fp32 rounded to bf16" where the result has fewer bits than what was multiplied."""
    computed, written = (OUTPUT_FORMATS[dtype].mantissa_bits for dtype in (result.compute_dtype, result.output_dtype))
    narrower = f" rounded to {result.output_dtype}" if written < computed else ""
    return f"{result.compute_dtype}{narrower}"


def cause_words(results: Sequence[CaseResult]) -> str:
    """Return what makes the error, "" if that cannot be said of every gradient in types that inputs are rounded to."""
    judged = [result for result in telling(results) if result.rounded.outcome != "void"]
    dtypes = dict.fromkeys(result.compute_dtype for result in _rounding(judged))
    own = [result for result in judged if result.compute_dtype in dtypes]
    if not own or any(
        relative_error(one, "rounded") > _SMALL_PART * relative_error(one, "original")
        or one.input_overflow
        or one.input_specials_lost
        for one in own
    ):
        return ""
    return (
        f"the error in {' and '.join(dtypes)} comes from rounding the inputs, not from the Cube's additions as modelled"
    )


def telling(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the results whose error against the original golden says something; that of a void one says nothing."""
    return [result for result in results if result.original.outcome != "void"]


def cancelling(layers: Sequence[LayerSummary]) -> set[str]:
    """Return the gradients whose terms cancel, as far as the framework's own gradients in the file tell."""
    return {
        layer.title
        for layer in layers
        if layer.reference is not None and (layer.reference.relative_l2 or 0.0) >= _NO_DIGIT
    }


def not_measured_words(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield which modules got gradients in the step of the file that no row of the report is about."""
    modules = metadata.get(NOT_MEASURED, {})
    if modules:
        listed = ", ".join(f"{kind} ({', '.join(names)})" for kind, names in modules.items())
        yield (
            f"not measured: the gradients of {listed}, whose parameters the step trains too; fit says nothing of them "
            "(ops.torch.emulate with linear=True, compare=True measures those of linear layers)."
        )


def _rounding(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the gradients whose inputs were rounded on their way to the Cube."""
    return [result for result in results if result.original.error != result.rounded.error]

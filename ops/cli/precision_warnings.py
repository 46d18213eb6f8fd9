"""What makes the verdicts of a precision report weaker than they read, and what can be done about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from npu_sim.report.standards.verdict import Verdict, VoidCause
from ops.cli.precision_table import losses, lost_words, places_words, short
from ops.studies.layers import LEFT_OUT
from ops.studies.precision_conclusion import cancelling, not_measured_words
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import Comparison, Golden, LayerSummary, PrecisionRow

_WEAK_SHARE = 0.5
"""A tolerance that more than this share of zeros would meet depends on the scale of the loss more than on the error."""
_NAMES_SHOWN = 6
_REMEDIES: Mapping[VoidCause, str] = {
    "empty": "the gradient has no element",
    "peer": "there is no peer to compare with",
    "golden": "no element of the golden is finite",
    "inputs": "an operand became all 0 in the type that is multiplied; scale the loss, or the operand, or take a mode "
    "that multiplies a wider type",
    "zeros": "a gradient of nothing but zeros would pass too",
}
"""What makes a verdict void, in words, and what to do."""
_ZEROS_BESIDE_SPECIALS = "a gradient of nothing but zeros beside the NaN/Inf of the golden would pass too"
_WITHOUT_ABSOLUTE = "without an absolute tolerance (--standard double-benchmark-l1)"


def warnings(report: PrecisionReport) -> Iterator[str]:
    """Yield what makes the verdicts of the report weaker than they read, one line per reason."""
    specials: dict[str, None] = {layer.title: None for layer in report.layers if layer.input_specials}
    lost: dict[str, dict[str, tuple[int, ...]]] = {}
    for row in report.computed:
        result, title = row.result, row.title
        if result is None:
            continue
        if any(against.error.golden_specials for against in (result.original, result.rounded)):
            specials[title] = None
        counts = losses(result)
        if any(counts):
            # products differ where one saturates; the larger number is the one to know
            known = lost.setdefault(result.compute_dtype, {})
            known[title] = tuple(map(max, counts, known.get(title, counts)))
    if specials:
        yield f"NaN/Inf in inputs or goldens of {_listed(list(specials))}: where both have them the standard says pass."
    for dtype, layers in lost.items():
        sums = tuple(map(sum, zip(*layers.values(), strict=True)))
        yield f"inputs: {lost_words(sums)} in {dtype} ({_listed(list(layers))})."
    yield from _zero_lines(report)
    yield from _void_lines(report)
    yield from _weak_lines(report)
    yield from _large_lines(report)
    yield from not_measured_words(report.metadata)
    yield from (f"left out: {reason}." for reason in report.metadata.get(LEFT_OUT, ()))


def _void_lines(report: PrecisionReport) -> Iterator[str]:
    """Yield where verdicts are void, why, and what to do, those with one reason together."""
    cancels = cancelling(report.layers)
    with_specials = {layer.title for layer in report.layers if layer.input_specials}
    found: dict[tuple[str, str, str], dict[str, dict[tuple[str, str], Comparison]]] = {}
    for row in report.computed:
        decides = None if row.result is None else row.result.against(report.options.golden)
        if decides is None or decides.void_cause is None:
            continue
        verdict = _void_verdict(decides)
        is_zeros = decides.void_cause == "zeros"
        is_small = is_zeros and decides.error.golden_max_abs
        numbers = f" against {verdict.row}: {verdict.thresholds}" if is_small else ""
        remedy = _remedy(decides, verdict, is_noise=row.title in cancels) if is_zeros else ""
        why = _REMEDIES[decides.void_cause]
        if decides.error.golden_specials:
            why = _ZEROS_BESIDE_SPECIALS if is_zeros else why
            if decides.void_cause == "golden" or not decides.error.golden_max_abs:
                remedy += _special_remedy(row, decides.golden, is_in_file=row.title in with_specials)
        gradients = found.setdefault((why, numbers, remedy), {})
        gradients.setdefault(row.title, {})[row.place, row.mode] = decides
    for (why, numbers, remedy), gradients in found.items():
        every = [one for places in gradients.values() for one in places.values()]
        sizes = [one.error.golden_max_abs for one in every if one.error.golden_max_abs]
        size = f", |gradient| <= {short(max(sizes))}{numbers}" if numbers and sizes else ""
        if "{}" in remedy:
            remedy = remedy.format(max(_void_verdict(one).least_scale or 0 for one in every))
        yield f"void, which is no pass, at {_where(gradients)}: {why}{size}{remedy}."


def _zero_lines(report: PrecisionReport) -> Iterator[str]:
    """Yield where a failure may be NaN of a NaN or Inf times a zero that the golden does not multiply."""
    layers = {layer.title: layer for layer in report.layers}
    found: dict[str, dict[tuple[str, str], None]] = {}
    for row in report.computed:
        layer, result = layers[row.title], row.result
        if result is None or layer.operator != "convolution" or not _meets_zeros(layer):
            continue
        verdicts = result.against(report.options.golden).verdicts
        differs = any(verdict.outcome == "fail" and verdict.label == "NaN/Inf" for verdict in verdicts)
        if differs and (layer.input_specials or result.input_overflow):
            found.setdefault(row.title, {})[row.place, row.mode] = None
    if found:
        yield (
            f"FAIL NaN/Inf at {_where(found)}: operands are NaN or Inf where they are multiplied. The kernel takes "
            "them times the zeros of the padding, and for dx times those between strided elements, which makes NaN; "
            "the golden adds nothing there, and PyTorch's dw does the one or the other by type and shape. The failure "
            "may be that alone: judge tensors that are finite in the type that is multiplied."
        )


def _meets_zeros(layer: LayerSummary) -> bool:
    """Whether the kernel of a result multiplies an operand with zeros that are in no tensor."""
    if layer.gradient == "dx":
        return any(extent > 1 for extent in (*layer.weight_shape[2:], *layer.stride))
    return layer.gradient != "db" and any(layer.padding)


def _where(gradients: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Return gradients with their products and modes as "a dw, b dw on 910b mode 1; ..."."""
    names_of: dict[str, list[str]] = {}
    for title, places in gradients.items():
        names_of.setdefault(places_words(places), []).append(title)
    return "; ".join(f"{_listed(names)} on {places}" for places, names in names_of.items())


def _remedy(comparison: Comparison, verdict: Verdict, *, is_noise: bool) -> str:
    """Return what can be done where zeros would pass; "{}" stands for a scale."""
    if not comparison.error.golden_max_abs and comparison.error.golden_specials:
        return ": every finite element of the golden is 0"
    if not comparison.error.golden_max_abs:
        return ": every element of the golden is 0, which no scale of the loss and no standard can judge"
    if is_noise:
        return "; ~ the terms cancel, and no scale of the loss makes more than rounding of them"
    if verdict.peer:
        return "; the peer is no nearer to the golden"
    scale = "scale the loss by 2^{} or more and capture again, or " if verdict.least_scale is not None else ""
    return f"; {scale}judge {_WITHOUT_ABSOLUTE}"


def _special_remedy(row: PrecisionRow, golden: Golden, *, is_in_file: bool) -> str:
    """Return what can be done about the NaN and Inf of a golden, by where they come from."""
    result = row.result
    assert result is not None
    words = "; look for the NaN/Inf in the tensors of this step, and take another" if is_in_file else ""
    if golden == "rounded" and result.input_overflow:
        words += (
            f"; the cast to {result.compute_dtype} made Inf or the largest number of inputs that are finite in the "
            "file: scale the loss, or the operand, down, or take a mode that multiplies a wider type"
        )
    if not words:
        operand = "an operand" if row.gradient == "y" else "the loss"
        words = f"; the tensors are finite, their sums beyond {result.output_dtype}: scale {operand} down"
    return words


def _void_verdict(comparison: Comparison) -> Verdict:
    """Return the verdict that made a comparison void; the first of one that was put together without."""
    return next((one for one in comparison.verdicts if one.void_cause is not None), comparison.verdicts[0])


def _weak_lines(report: PrecisionReport) -> Iterator[str]:
    """Yield which verdicts would be others with another scale of the loss."""
    weak: dict[str, float] = {}
    rows: dict[str, None] = {}
    for row in report.computed:
        decides = None if row.result is None else row.result.against(report.options.golden)
        if decides is None or decides.void_cause is not None:
            continue
        for verdict in decides.verdicts:
            if (verdict.zero_match_ratio or 0.0) > _WEAK_SHARE:
                weak[row.title] = max(verdict.zero_match_ratio or 0.0, weak.get(row.title, 0.0))
                rows[f"{verdict.row}: {verdict.thresholds}"] = None
    if weak:
        # Rounded down: what is not all must not read 100 %.
        shares = [f"{math.floor(share * 1000) / 10:.1f} % of {name}" for name, share in weak.items()]
        yield (
            f"weak verdicts: a gradient of zeros would match {_listed(shares)}, as |gradient| is below atol there "
            f"({'; '.join(rows)}), those that are 0 not counted; with a larger loss the same relative error may fail."
        )


def _large_lines(report: PrecisionReport) -> Iterator[str]:
    """Yield which gradients fail as they are large, not as they are wrong."""
    found: dict[str, dict[str, dict[tuple[str, str], tuple[int, Comparison]]]] = {}
    for row in report.computed:
        decides = None if row.result is None else row.result.against(report.options.golden)
        for verdict in () if decides is None else decides.verdicts:
            if verdict.outcome == "fail" and verdict.least_scale is not None and decides is not None:
                numbers = f"{verdict.row}: {verdict.thresholds}"
                places = found.setdefault(numbers, {}).setdefault(row.title, {})
                places[row.place, row.mode] = verdict.least_scale, decides
    for numbers, gradients in found.items():
        every = [one for places in gradients.values() for one in places.values()]
        size = max(one.error.golden_max_abs or 0.0 for _, one in every)
        worst = max(one.error.relative_l2 or 0.0 for _, one in every)
        yield (
            f"FAIL limit at {_where(gradients)}: a gradient this large has errors beyond the absolute limit and 32 ULP "
            f"by rounding alone, |gradient| <= {short(size)} against {numbers}, relative L2 error at most "
            f"{short(worst)}; scale the loss by 2^{min(scale for scale, _ in every)} or less and capture again, "
            f"or judge {_WITHOUT_ABSOLUTE}."
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more

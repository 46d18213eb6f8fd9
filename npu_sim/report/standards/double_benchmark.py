"""CANN's commercial standard for floating point: the errors of a result over those of a peer, by level L0, L1 or L2.

Source: hicann/opbase docs/zh/ops_precision_standard/commercial_standard.md at commit 6049643 (2026-04-09). Where the
document leaves the arithmetic open it is that of the operator test kit (``--compare cross_check``,
hicann/ops-test-kit ttk/core_modules/comparison/cross_check.py):

- An element counts as small when |golden| is below the small value of the format. The others give MARE, MERE and RMSE,
  each divided by the peer's, but by no less than the small value; 0 over 0 is 1.
- Small elements are counted where the error is above a bound, in the result and in the peer.
- Where the result, the peer or the golden is NaN or Inf, the result is right if it is what the peer is, or if the
  golden is NaN or Inf and the result is the same. Anything else fails: the document calls it wrong where the peer
  agrees with such a golden, and wants the rest looked into. Where results saturate, elements with an infinity do not
  count.

The level's number of cases and repetitions are not judged: this is the verdict on one case. The document lets a failed
case be run again with other inputs: `npu_sim.report.standards.recheck`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.report.precision import OUTPUT_FORMATS, RELATIVE_FLOOR, ElementErrors
from npu_sim.report.standards.standard import DTYPES, Evidence, Standard
from npu_sim.report.standards.verdict import Check, Finding, all_of, number_text
from npu_sim.report.sums import largest, mean

SMALL_RATIO = 2.0
"""Times as many small elements may be wrong as in the peer, or as one."""


@dataclass(frozen=True, slots=True)
class Level:
    """Largest ratios of one level."""

    mare: float
    mere: float
    rmse: float


LEVELS: Mapping[str, Level] = {"L0": Level(10, 2, 2), "L1": Level(5, 1.5, 1.5), "L2": Level(2, 1.2, 1.2)}
"""Ordinary, important and key operators. Convolution and pooling are L0 (msprobe's lists, `standards.msprobe_peer`)."""


@dataclass(frozen=True, slots=True)
class _Split:
    """Masks of the elements: NaN or Inf on some side, and those of the others that are large and small."""

    special: npt.NDArray[np.bool_]
    large: npt.NDArray[np.bool_]
    small: npt.NDArray[np.bool_]


def error_ratios(evidence: Evidence) -> dict[str, float]:
    """Return the ratios MARE, MERE and RMSE of a result and its peer.

    Parameters
    ----------
    evidence : Evidence
        With a peer.

    Returns
    -------
    dict of str to float
        None of them if no element has a large golden.
    """
    own, other = evidence.errors, _peer(evidence)
    large = _split(own, other, evidence.row).large
    if not large.any():
        return {}
    floor = OUTPUT_FORMATS[evidence.row].small_value
    figures = zip(_figures(own, large).items(), _figures(other, large).values(), strict=True)
    return {name: _ratio(value, peer_value, floor) for (name, value), peer_value in figures}


def _find(evidence: Evidence, level: Level) -> Finding:
    own, other = evidence.errors, _peer(evidence)
    split = _split(own, other, evidence.row)
    bound = OUTPUT_FORMATS[evidence.row].small_value_error
    wrong, wrong_in_peer = (int(np.count_nonzero(split.small & (one.error > bound))) for one in (own, other))
    limits = {"MARE": level.mare, "MERE": level.mere, "RMSE": level.rmse}
    ratios = [
        Check(name=f"{name} ratio", label=name, value=value, relation="<=", threshold=limits[name])
        for name, value in error_ratios(evidence).items()
    ]
    small = Check(
        name="ratio of wrong small elements",
        label="small",
        value=wrong / max(wrong_in_peer, 1),
        relation="<=",
        threshold=SMALL_RATIO,
    )
    return all_of(_wrong_specials(own, other, split.special), *ratios, small)


def _peer(evidence: Evidence) -> ElementErrors:
    if evidence.peer is None:
        raise ValueError("the double benchmark needs a peer")
    return evidence.peer.errors


def _split(own: ElementErrors, other: ElementErrors, row: str) -> _Split:
    finite = np.isfinite(own.actual) & np.isfinite(other.actual) & np.isfinite(own.golden)
    special = ~finite
    if own.overflow == "saturate":
        special &= ~(np.isinf(own.actual) | np.isinf(other.actual))
    is_small = np.abs(own.golden) < OUTPUT_FORMATS[row].small_value
    return _Split(special, finite & ~is_small, finite & is_small)


def _figures(errors: ElementErrors, where: npt.NDArray[np.bool_]) -> dict[str, float]:
    error = errors.error[where]
    relative = error / (np.abs(errors.golden[where]) + RELATIVE_FLOOR)
    return {"MARE": largest(relative), "MERE": mean(relative), "RMSE": math.sqrt(mean(error * error))}


def _ratio(value: float, peer_value: float, floor: float) -> float:
    return 1.0 if value == peer_value == 0.0 else value / max(peer_value, floor)


def _wrong_specials(own: ElementErrors, other: ElementErrors, special: npt.NDArray[np.bool_]) -> int:
    a, b, g = own.actual, other.actual, own.golden
    as_peer = (a == b) | (np.isnan(a) & np.isnan(b))
    as_golden = ~np.isfinite(g) & ((a == g) | (np.isnan(a) & np.isnan(g)))
    return int(np.count_nonzero(special & ~as_peer & ~as_golden))


def _thresholds(row: str, level: Level) -> str:
    output_format = OUTPUT_FORMATS[row]
    return (
        f"ratios of MARE {level.mare:g}, MERE {level.mere:g}, RMSE {level.rmse:g}; |golden| below "
        f"{number_text(output_format.small_value)} is small, wrong above {number_text(output_format.small_value_error)}"
    )


def _standard(name: str, level: Level) -> Standard:
    return Standard(
        name=f"double-benchmark-{name.lower()}",
        title=f"CANN double benchmark {name}",
        version="commercial, 2026-04-09",
        source="hicann/opbase docs/zh/ops_precision_standard/commercial_standard.md",
        commit="6049643",
        rule="the errors over those of a peer, and wrong small elements over the peer's, are at most their thresholds",
        rows=DTYPES,
        thresholds=lambda row: _thresholds(row, level),
        find=lambda evidence: _find(evidence, level),
        needs_peer=True,
    )


DOUBLE_BENCHMARKS = tuple(_standard(name, level) for name, level in LEVELS.items())

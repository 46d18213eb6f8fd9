"""What the checks of msprobe share: its source, its masks, its relative error.

Source of every number of the modules ``msprobe_*``: Ascend/msprobe 26.2.0 at commit 8ff00da3,
python/msprobe/pytorch/api_accuracy_checker (precision_standard/standard_config.py, compare/algorithm.py,
compare/compare.py, compare/api_precision_compare.py) and core/compare/multiprocessing_compute.py.

One rule is put before those that say nothing of NaN and Inf: an element whose NaN/Inf state differs from the golden's
fails, where msprobe leaves it out of some figures. Elements that share it have no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.report.precision import ElementErrors
from npu_sim.report.standards.standard import WITHOUT_HF32, Evidence, Standard
from npu_sim.report.standards.verdict import Finding

GOLDEN_EPS = {"fp16": 2.0**-23, "bf16": 2.0**-8, "fp32": 2.0**-52}
"""Added to |golden| in relative errors, by format of the result: the epsilon of the dtype that msprobe computes its
golden in, float32 and float64; for bfloat16 a number of its own."""
PEER_FLOOR = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-14}
"""What figures of a peer count as at least."""


@dataclass(frozen=True, slots=True)
class Masks:
    """Elements that are finite on both sides, and those of them with a small and another golden."""

    small: npt.NDArray[np.bool_]
    normal: npt.NDArray[np.bool_]


def masks(errors: ElementErrors, small_value: float) -> Masks:
    """Return the masks; a golden of just ``small_value`` is small."""
    finite = np.isfinite(errors.actual) & np.isfinite(errors.golden)
    is_small = np.abs(errors.golden) <= small_value
    return Masks(finite & is_small, finite & ~is_small)


def relative_errors(errors: ElementErrors) -> npt.NDArray[np.float64]:
    """Return error / (|golden| + epsilon); infinite where the NaN/Inf state differs, 0 where it is shared."""
    magnitude = np.where(np.isfinite(errors.golden), np.abs(errors.golden), 0.0)
    return errors.error / (magnitude + GOLDEN_EPS[errors.format.name])


def share(where: npt.NDArray[np.bool_], of: npt.NDArray[np.bool_]) -> float:
    """Return the share of the elements ``of`` that are also ``where``; 0 of none."""
    count = int(np.count_nonzero(of))
    return int(np.count_nonzero(where & of)) / count if count else 0.0


def error_balance(errors: ElementErrors) -> float:
    """Return |elements above the golden - elements below it| over all elements."""
    a, g = errors.actual, errors.golden
    above, below = int(np.count_nonzero(a > g)), int(np.count_nonzero(a < g))
    return abs(above - below) / a.size if a.size else 0.0


def peer_ratio(format_name: str, value: float, peer_value: float) -> float:
    """Return the ratio of two figures."""
    return value / max(peer_value, PEER_FLOOR[format_name])


def msprobe_standard(
    name: str,
    title: str,
    rule: str,
    thresholds: Mapping[str, str],
    find: Callable[[Evidence], Finding],
    *,
    needs_peer: bool = False,
) -> Standard:
    """Return a standard of msprobe; ``thresholds`` by format of the result."""
    return Standard(
        name=f"msprobe-{name}",
        title=f"msprobe {title}",
        version="26.2.0",
        source="Ascend/msprobe python/msprobe",
        commit="8ff00da3",
        rule=rule,
        rows=WITHOUT_HF32,
        thresholds=lambda row: thresholds["fp32" if row == "hf32" else row],
        find=find,
        needs_peer=needs_peer,
    )

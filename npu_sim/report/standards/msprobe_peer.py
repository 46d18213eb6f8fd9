"""msprobe's checks against a peer: the benchmark method and the ULP method. `standards.msprobe_facts` has their source.

The benchmark method has the levels of the double benchmark; its lists put convolution and pooling at L0, the level here
(addmm, matmul, mm, sum, layer and RMS norm, cross entropy, GELU, index, one_hot and nonzero are L2; embedding, fusion
attention and scatter L1). Its error balance is no part of the verdict.
"""

from __future__ import annotations

import math

import numpy as np

from npu_sim.report.precision import ElementErrors
from npu_sim.report.standards.double_benchmark import LEVELS, SMALL_RATIO
from npu_sim.report.standards.msprobe_facts import masks, msprobe_standard, peer_ratio, relative_errors, share
from npu_sim.report.standards.standard import Evidence
from npu_sim.report.standards.verdict import Check, Finding, all_of, number_text
from npu_sim.report.sums import largest, mean

_SMALL_VALUE = {"fp16": 2.0**-10, "bf16": 2.0**-10, "fp32": 2.0**-20}
_SMALL_ERROR = {"fp16": 1e-16, "bf16": 1e-16, "fp32": 2.0**-30}
_UNEVEN = 0.0001
"""msprobe scales the mean square by n / (n - left out + 0.0001) + 0.0001."""
_LEVEL = LEVELS["L0"]
_MANY_ULPS = {"fp16": 1.0, "bf16": 1.0, "fp32": 32.0}
_ULP_SHARE = {"fp16": 0.001, "bf16": 0.001, "fp32": 0.05}
_MEAN_ULP = 64.0


def _peer(evidence: Evidence) -> ElementErrors:
    if evidence.peer is None:
        raise ValueError("the method needs a peer")
    return evidence.peer.errors


def _figures(errors: ElementErrors) -> dict[str, float]:
    name, count = errors.format.name, errors.error.size
    split = masks(errors, _SMALL_VALUE[name])
    relative, error = relative_errors(errors)[split.normal], np.where(split.normal, errors.error, 0.0)
    left_out = count - int(np.count_nonzero(split.normal))
    square = mean(error * error) * (count / (count - left_out + _UNEVEN) + _UNEVEN)
    return {
        "max rel": largest(relative),
        "mean rel": mean(relative),
        "RMSE": math.sqrt(square),
        "small": share(errors.error > _SMALL_ERROR[name], split.small),
    }


def _benchmark(evidence: Evidence) -> Finding:
    own, other = evidence.errors, _peer(evidence)
    names = {
        "max rel": ("ratio of largest relative errors", _LEVEL.mare),
        "mean rel": ("ratio of mean relative errors", _LEVEL.mere),
        "RMSE": ("RMSE ratio", _LEVEL.rmse),
        "small": ("ratio of shares of wrong small elements", SMALL_RATIO),
    }
    figures = zip(_figures(own).items(), _figures(other).values(), strict=True)
    ratios = {label: peer_ratio(own.format.name, value, peer_value) for (label, value), peer_value in figures}
    checks = [
        Check(name=name, label=label, value=ratios[label], relation="<=", threshold=threshold)
        for label, (name, threshold) in names.items()
    ]
    return all_of(own.special_mismatches, *checks)


def _ulps(errors: ElementErrors) -> np.ndarray:
    """Return the errors in ULP; a golden of 0 counts as 1, as in msprobe."""
    at_zero = np.ldexp(errors.error, errors.format.mantissa_bits)
    return np.where(errors.golden == 0, at_zero, errors.ulps)


def _ulp(evidence: Evidence) -> Finding:
    own, other = evidence.errors, _peer(evidence)
    name = own.format.name
    ulps = _ulps(own)
    shares = [mean(one > _MANY_ULPS[name]) for one in (ulps, _ulps(other))]
    bound = f"{_MANY_ULPS[name]:g} ULP"
    ways = [
        Check(
            name=f"share of errors above {bound}", label="ULP", value=shares[0], relation="<",
            threshold=_ULP_SHARE[name],
        ),
        Check(
            name=f"ratio of the shares of errors above {bound}", label="ULP", value=peer_ratio(name, *shares),
            relation="<", threshold=1,
        ),
    ]  # fmt: skip
    if name == "fp32":
        ways.insert(0, Check(name="mean ULP", label="ULP", value=mean(ulps), relation="<", threshold=_MEAN_ULP))
    specials = all_of(own.special_mismatches)
    enough = next((way for way in ways if way.holds), None)
    return Finding(
        passes=specials.passes and enough is not None,
        checks=(*ways, *specials.checks),
        deciding=specials.deciding if not specials.passes else enough or ways[0],
    )


def _ulp_thresholds(name: str) -> str:
    mean_ulp = f"mean {_MEAN_ULP:g} ULP, or " if name == "fp32" else ""
    return f"{mean_ulp}share {_ULP_SHARE[name]:g} above {_MANY_ULPS[name]:g} ULP, or fewer than the peer"


BENCHMARK = msprobe_standard(
    "benchmark",
    "benchmark L0",
    "largest and mean relative error, RMSE and share of wrong small elements over a peer's are within thresholds",
    {
        name: f"ratios {_LEVEL.mare:g}, {_LEVEL.mere:g}, {_LEVEL.rmse:g}, small {SMALL_RATIO:g}; |golden| up to "
        f"{number_text(_SMALL_VALUE[name])} is small, wrong above {number_text(_SMALL_ERROR[name])}"
        for name in _SMALL_VALUE
    },
    _benchmark,
    needs_peer=True,
)
ULP = msprobe_standard(
    "ulp",
    "ULP",
    "in float32 the mean error is below 64 ULP, or few errors are above a number of ULP, or fewer than the peer's",
    {name: _ulp_thresholds(name) for name in _MANY_ULPS},
    _ulp,
    needs_peer=True,
)

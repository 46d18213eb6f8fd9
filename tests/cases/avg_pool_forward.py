"""Random calls of forward pooling, and how far from the definition they may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ops.avg_pool_forward.api import AvgPool2d
from tests.cases.avg_pool import DTYPES, SMALLEST, UNIT, Case, random_case
from tests.oracles.pooling import forward
from tests.oracles.series import SPLIT

MODES = {("fp32", True): (0, 2), ("bf16", True): (0, 1), ("fp16", True): (0, 1, 2), ("fp32", False): (1, 2)}
"""Values of cubeMathType that the page allows, by type and split cores; 0 to 2 for others."""


def random_forward_case(rng: np.random.Generator, series: str) -> Case:
    """Return a random call, sometimes of one window over the plane, with a cubeMathType that the page allows."""
    case = random_case(rng, series)
    if rng.random() < 0.15:
        size = case.extents
        case = replace(case, pooling=replace(case.pooling, kernel=size, pad=(0, 0)))
    modes = MODES.get((case.dtype, series in SPLIT), (0, 1, 2))
    return replace(case, cube_math_type=int(rng.choice(modes)))


def fmap(case: Case, seed: Any) -> np.ndarray:
    """Return an input."""
    rng = np.random.default_rng(seed)
    shape = (*case.leading, *case.extents)
    values = rng.integers(-8, 9, shape) if case.integers else rng.standard_normal(shape)
    return values.astype(DTYPES[case.dtype])


def bound(case: Case, x: np.ndarray, r: AvgPool2d) -> np.ndarray:
    """Return how far a right result may be, element by element.

    Each term is rounded with the operand and with the weight, sums are in float32,
    and the kernel's, the factor's, the product's and the tensor's roundings follow; every one has its spacing.
    """
    size = forward(
        np.abs(x.astype(np.float64)), replace(case.pooling, divisor_override=abs(case.pooling.divisor_override))
    )
    taps = case.pooling.kernel[0] * case.pooling.kernel[1]
    compute = r.compute_dtype
    relative = 6 * UNIT[compute] + (taps + 3) * UNIT["fp32"] + UNIT[case.dtype]
    tiny = SMALLEST["fp16" if compute == "fp16" else "fp32"] * (taps + 1) * (2 + np.abs(x.astype(np.float64)).max())
    allowed: np.ndarray = 1.05 * relative * size + tiny + SMALLEST[case.dtype]
    return allowed

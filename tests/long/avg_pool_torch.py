"""The definition of the pooling gradient (`tests.oracles.pooling`) against PyTorch's, float64, thousands of poolings.

``python -m tests.long.avg_pool_torch [--cases 5000] [--seed 0] [--json FILE] [--golden FILE]``; needs torch (extra
``capture``). ``--golden`` keeps some of PyTorch's gradients for `tests/unit/test_avg_pool_oracle.py`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.long.recording import parser_of, publish
from tests.oracles.pooling import Pooling, input_gradient, output_extent

GOLDEN_CASES = 60
KERNEL_MOST, STRIDE_MOST, EXTENT_MOST = 6, 6, 15


def random_config(rng: np.random.Generator) -> tuple[tuple[int, int], Pooling]:
    """Return extents and a pooling that PyTorch takes."""
    while True:
        kernel = tuple(int(k) for k in rng.integers(1, KERNEL_MOST + 1, 2))
        pooling = Pooling(
            kernel=(kernel[0], kernel[1]),
            stride=(int(rng.integers(1, STRIDE_MOST + 1)), int(rng.integers(1, STRIDE_MOST + 1))),
            pad=(int(rng.integers(0, kernel[0] // 2 + 1)), int(rng.integers(0, kernel[1] // 2 + 1))),
            ceil_mode=bool(rng.integers(0, 2)),
            count_include_pad=bool(rng.integers(0, 2)),
            divisor_override=int(rng.choice([0, 0, 1, -7, 9, 255, -255])),
        )
        extents = (int(rng.integers(1, EXTENT_MOST + 1)), int(rng.integers(1, EXTENT_MOST + 1)))
        if min(out_of(extents, pooling)) > 0:
            return extents, pooling


def out_of(extents: tuple[int, int], pooling: Pooling) -> tuple[int, int]:
    """Return the windows along each axis."""
    every = zip(extents, pooling.kernel, pooling.stride, pooling.pad, strict=True)
    h, w = (output_extent(*axis, pooling.ceil_mode) for axis in every)
    return h, w


def peer(extents: tuple[int, int], pooling: Pooling, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a gradOutput with PyTorch's forward shape, and PyTorch's gradient."""
    import torch

    x = torch.zeros((2, *extents), dtype=torch.float64)
    p = pooling
    rest = (p.kernel, p.stride, p.pad, p.ceil_mode, p.count_include_pad, p.divisor_override or None)
    y = torch.ops.aten.avg_pool2d(x, *rest)
    grad = np.random.default_rng(seed).standard_normal(tuple(y.shape))
    result = torch.ops.aten.avg_pool2d_backward(torch.from_numpy(grad), x, *rest)
    return grad, result.numpy()


def allowed(extents: tuple[int, int], grad: np.ndarray, pooling: Pooling) -> np.ndarray:
    """Return what two orders of float64 additions and one rounding of each quotient may differ by."""
    taps = pooling.kernel[0] * pooling.kernel[1]
    size: np.ndarray = np.abs(input_gradient(np.abs(grad), extents, pooling))
    return 2.0 * (taps + 1) * 2.0**-53 * size


def main() -> int:
    """Compare, print and record; exit code 1 if anything differed."""
    parser = parser_of("tests.long.avg_pool_torch", __doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--golden", type=Path, default=None)
    arguments = parser.parse_args()
    import torch

    rng = np.random.default_rng(arguments.seed)
    failures: list[dict[str, Any]] = []
    golden: list[str] = []
    counts = {"ceil_mode": 0, "padding": 0, "not count_include_pad": 0, "divisor_override": 0, "clipped last window": 0}
    for seed in range(arguments.cases):
        extents, pooling = random_config(rng)
        out = out_of(extents, pooling)
        grad, wanted = peer(extents, pooling, seed)
        counts["ceil_mode"] += pooling.ceil_mode
        counts["padding"] += max(pooling.pad) > 0
        counts["not count_include_pad"] += not pooling.count_include_pad
        counts["divisor_override"] += pooling.divisor_override != 0
        every = zip(out, pooling.stride, pooling.kernel, extents, pooling.pad, strict=True)
        counts["clipped last window"] += any((o - 1) * s + k > e + 2 * p for o, s, k, e, p in every)
        same_shape = grad.shape[1:] == out
        if (
            not same_shape
            or (np.abs(input_gradient(grad, extents, pooling) - wanted) > allowed(extents, grad, pooling)).any()
        ):
            failures.append({"extents": extents, "windows": grad.shape[1:], **asdict(pooling)})
        elif len(golden) < GOLDEN_CASES and max(extents) <= 7:
            line = {"seed": seed, "extents": extents, **asdict(pooling), "out": out}
            golden.append(json.dumps({**line, "gradient": wanted[0].reshape(-1).tolist()}, separators=(",", ":")))
    found = {
        "torch": torch.__version__,
        "cases": arguments.cases,
        "cases_with": counts,
        "different": failures,
    }
    command = f"{parser.prog} --seed {arguments.seed} --cases {arguments.cases}"
    publish(command, found, arguments.json)
    if arguments.golden is not None:
        arguments.golden.write_text("\n".join(golden) + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

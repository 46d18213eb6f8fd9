"""The tilings that `npu-sim perf --tune` finds beside the fastest of all that there are, of small kernels.

``python -m tests.long.tuned_tilings [--json FILE]``

Every point of the space of each kernel is timed, which small shapes allow; the search must come within 3 %.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from npu_sim.products import get_product
from ops.common.geometry import ConvGeometry
from ops.matmul.tiling import MatmulShape
from ops.studies.calls.products import MatrixProductRequest
from ops.studies.tuning import Tunable, cycles_of, tunable_product, tunable_weight_gradient, tune
from tests.long.recording import parser_of, publish

CHIP = get_product("910b")
WITHIN = 1.03
PRODUCTS = (
    (16, 16, 64), (16, 48, 32), (32, 32, 32), (32, 64, 16), (48, 16, 48), (16, 32, 96), (32, 16, 128), (16, 16, 256),
    (64, 32, 16), (48, 32, 32),
)  # fmt: skip
"""M, N and K."""
GRADIENTS = (
    (1, 16, 16, 6, 3), (2, 16, 16, 5, 1), (1, 32, 16, 4, 3), (4, 16, 32, 4, 1), (1, 16, 48, 7, 1), (2, 32, 32, 3, 1),
    (3, 16, 16, 4, 2), (1, 32, 32, 5, 1), (8, 16, 16, 3, 3), (1, 16, 16, 9, 1),
)  # fmt: skip
"""Images, channels of x and of y, rows and columns of both, and of the window."""


def tunables() -> list[Tunable]:
    """Return the kernels."""
    products = [tunable_product(MatrixProductRequest(shape=MatmulShape(m=m, n=n, k=k)), CHIP) for m, n, k in PRODUCTS]
    gradients = [
        tunable_weight_gradient(
            ConvGeometry(n=n, cin=cin, cout=cout, hi=size, wi=size, ho=size, wo=size, kh=taps, kw=taps,
                         pad=(0, 0, (taps - 1) // 2, taps // 2, (taps - 1) // 2, taps // 2)),
            "fp16", CHIP,
        )
        for n, cin, cout, size, taps in GRADIENTS
    ]  # fmt: skip
    return [*products, *gradients]


def fastest(tunable: Tunable) -> tuple[int, int]:
    """Return the least core time of all tilings, and how many there are."""
    points = itertools.product(*tunable.space.axes.values())
    every = [cycles for point in points if (cycles := cycles_of(tunable, point)) is not None]
    return min(every), len(every)


def run() -> Mapping[str, Any]:
    """Compare all kernels."""
    rows = {}
    for tunable in tunables():
        least, count = fastest(tunable)
        before = time.process_time()
        found = tune(tunable, jobs=1)
        rows[tunable.name] = {
            "tilings": count, "timed": found.timed_count, "own_cycles": found.default_cycles,
            "found_cycles": found.best_cycles, "least_cycles": min(least, found.default_cycles),
            "cpu_seconds": round(time.process_time() - before, 1),
        }  # fmt: skip
        assert found.best_cycles <= WITHIN * least, (tunable.name, rows[tunable.name])
    worst = max(row["found_cycles"] / row["least_cycles"] for row in rows.values())
    return {"kernels": len(rows), "largest_ratio_to_the_least": round(worst, 4), "rows": rows}


def main() -> None:
    """Run it from the command line."""
    arguments = parser_of("tests.long.tuned_tilings", __doc__).parse_args()
    publish("python -m tests.long.tuned_tilings", run(), arguments.json)


if __name__ == "__main__":
    main()

"""Hold exp and ln of float32 to decimal arithmetic: every input whose result could be rounded the wrong way.

``python -m tests.long.transcendental`` looks at all 2^32 patterns, about a minute.
"""

from __future__ import annotations

import argparse
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.transcendental import exp32, exp64, ln32, ln64

DOUBTFUL_ULPS = 16
"""Distance from the middle of two float32, in float64 units of the last place, below which a value is looked at."""
PATTERNS = 1 << 32
_REST = np.int64((1 << 29) - 1)
_MIDDLE = np.int64(1 << 28)


def _finder(function: Any) -> Any:
    @jit
    def find(first: Any, last: Any, found: Any) -> Any:
        count = np.int64(0)
        for pattern in range(first, last):
            x = np.uint32(pattern).view(np.float32)
            y = function(x)
            bits = np.float64(y).view(np.int64)
            if abs((bits & _REST) - _MIDDLE) < DOUBTFUL_ULPS and y == y and abs(y) > 1.2e-38:
                if count < len(found):
                    found[count] = pattern
                count += 1
        return count

    return find


def rounded(value: Decimal) -> np.float32:
    """Return the float32 nearest to a decimal number, ties to even; the number lies in the normal range."""
    with localcontext() as context:
        context.prec = 60
        near = np.float32(float(value))
        candidates = sorted({np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))})
        return min(candidates, key=lambda one: (abs(Decimal(float(one)) - value), int(one.view(np.uint32)) & 1))


def exact(name: str, x: np.float32) -> Decimal:
    """Return exp or ln of ``x`` to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(float(x)).exp() if name == "exp" else Decimal(float(x)).ln()


def wrong(name: str, first: int = 0, last: int = PATTERNS) -> tuple[int, list[int]]:
    """Return how many patterns of a range were looked at with decimals, and which give the wrong float32."""
    narrow, wide = {"exp": (exp32, exp64), "ln": (ln32, ln64)}[name]
    found = np.zeros(1 << 20, np.int64)
    count = int(_finder(wide)(first, last, found))
    assert count <= len(found)
    bad = []
    for pattern in found[:count].tolist():
        x = np.uint32(pattern).view(np.float32)
        if narrow(x) != rounded(exact(name, x)):
            bad.append(pattern)
    return count, bad


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    failed = False
    for name in ("exp", "ln"):
        count, bad = wrong(name)
        print(f"{name}: {count} doubtful patterns, {len(bad)} rounded wrongly {bad[:10]}")
        failed |= bool(bad)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())

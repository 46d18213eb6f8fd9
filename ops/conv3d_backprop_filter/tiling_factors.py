"""Into how many parts CANN's tiling library cuts an axis: by divisors, and by more where an extent has few of them.

Source, restated: cann-ops ``src/common/op_host/op_tiling/cube/util/math_util.cc``.
"""

from __future__ import annotations

import bisect
from functools import lru_cache
from math import isqrt

from npu_sim.units import ceil_div

_FEW_DIVISORS, _FEW_L0_DIVISORS, _FEW_L1_DIVISORS = 4, 2, 4
_SMALL_ENOUGH, _L0_EXTENT, _L1_EXTENT = 8, 64, 128
_LEAST_SEED, _MOST_SEED = 16, 1024


@lru_cache(maxsize=512)
def _divisors(value: int) -> tuple[int, ...]:
    low = [factor for factor in range(1, isqrt(value) + 1) if value % factor == 0]
    return tuple(sorted({*low, *(value // factor for factor in low)}))


def factors(value: int, most: int) -> tuple[int, ...]:
    """Return the divisors of ``value`` up to ``most``, ascending."""
    found = _divisors(value)
    return found[: bisect.bisect_right(found, most)]


def factor_at_most(value: int, most: int) -> int:
    """Return the largest divisor of ``value`` up to ``most``, which is at least 1."""
    return factors(value, most)[-1]


@lru_cache(maxsize=512)
def parts(extent: int, cores: int) -> tuple[int, ...]:
    """Return the numbers of parts to try: divisors of the extent or of a power of two near it, and of the cores."""
    below = factors(_mapped(extent, cores), min(extent, cores))
    return tuple(sorted({*below, *factors(cores, min(extent, cores))}))


@lru_cache(maxsize=512)
def part(extent: int, count: int, cores: int) -> int:
    """Return the largest of ``count`` parts: as even as possible, or an extent nearby that has divisors for blocks."""
    if count == 1 and _has_divisors(extent):
        return extent
    best, last = ceil_div(extent, count), ceil_div(_mapped(extent, cores), count)
    while best != last and not _has_divisors(best):
        best += 1 if best < last else -1
    return best


def looks_prime(value: int) -> bool:
    """Return the library's answer, which is right from 2 on."""
    if value <= 3:
        return value > 1
    return value % 6 in (1, 5) and len(_divisors(value)) == 2


def _mapped(extent: int, cores: int) -> int:
    """Return the extent, or for one with few divisors the next power of two (at most 2048)."""
    if extent < _LEAST_SEED or _most_divisors(extent, 1, cores) > _FEW_DIVISORS:
        return extent
    seed = _LEAST_SEED
    while seed < _MOST_SEED and not seed < extent <= 2 * seed:
        seed *= 2
    return 2 * seed


def _has_divisors(extent: int) -> bool:
    if extent <= _SMALL_ENOUGH:
        return True
    small = _most_divisors(extent, 1, _L0_EXTENT)
    large = _most_divisors(extent, _L0_EXTENT + 1, _L1_EXTENT) if extent > _L1_EXTENT else 0
    return small > _FEW_L0_DIVISORS and (extent <= _L1_EXTENT or small + large > _FEW_L1_DIVISORS)


def _most_divisors(value: int, low: int, high: int) -> int:
    """Return how many divisors that divisor of ``value`` between ``low`` and ``high`` has that has the most."""
    return max((len(_divisors(factor)) for factor in factors(value, high) if factor >= low), default=0)

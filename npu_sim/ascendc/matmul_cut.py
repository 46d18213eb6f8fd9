"""How a product is cut for cores and into base blocks: ``include/npusim/matmul_cut.h`` in Python.

Extents are numbers of fractals: of 16 rows of A, of 16 columns of B, of 32 bytes of K. Why it is this rule
is said there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as pairs
from math import inf, isqrt

from npu_sim.units import align_up, ceil_div

_WIDE = 16
"""Columns of a block, in fractals."""


@dataclass(frozen=True)
class Cut:
    """What a core computes, and how many cores there are along each extent."""

    m: int
    n: int
    k: int
    rows: int = 1
    columns: int = 1
    depths: int = 1


@dataclass(frozen=True)
class Whole:
    """The product to cut, with what of it lies turned in memory."""

    m: int
    n: int
    k: int
    a_turned: bool = False
    b_turned: bool = False
    cuts_k: bool = False


@dataclass(frozen=True)
class Room:
    """Fractals of a turn of L0A, L0B and L0C, and what blocks of M and N and of K are multiples of."""

    left: int
    right: int
    sums: int
    has_bias: bool
    unit: int = 1
    unit_k: int = 1


def _rounded(extent: int) -> int:
    if extent < 16:
        return extent
    power = 32
    while power < 2048 and not power // 2 < extent <= power:
        power *= 2
    return power


def _richest(extent: int, low: int, high: int) -> int:
    divisors = (one for one in range(low, min(high, extent) + 1) if extent % one == 0)
    return max((sum(one % i == 0 for i in range(1, one + 1)) for one in divisors), default=0)


def _is_divisible(extent: int) -> bool:
    if extent <= 8:
        return True
    small = _richest(extent, 1, 64)
    return small > 2 and (extent <= 128 or small + _richest(extent, 65, 128) > 4)


def _part_of(extent: int, alike: int, count: int) -> int:
    if count == 1 and _is_divisible(extent):
        return extent
    part, end = ceil_div(extent, count), ceil_div(alike, count)
    while part != end and not _is_divisible(part):
        part += 1 if part < end else -1
    return part


def _counts(extent: int, alike: int, cores: int, other: int | None) -> list[int]:
    # more parts of K than it has count as none
    end = cores if other is None else min(cores, extent)
    found = {i for i in range(1, end + 1) if extent % i == 0 or alike % i == 0 or cores % i == 0}
    if other is not None and cores > 1:
        root, inverse = (isqrt(ceil_div(cores * a, b) - 1) + 1 for a, b in ((extent, other), (other, extent)))
        found |= {root, cores // inverse}
    return sorted(found)


def _turns(m: int, n: int, k: int) -> int:
    wide = min(_WIDE, n)
    high = min(m, 128 // wide, 64)
    wide = min(n, 128 // high, 64)
    high = min(m, 128 // wide, 64)
    return ceil_div(m, high) * ceil_div(n, wide) * ceil_div(k, max(1, min(64 // high, 64 // wide, k)))


def _loads(p: Whole, c: Cut, l1_bytes: int) -> float:
    line, wide = c.k * 512, min(_WIDE, c.n)
    high = min(_WIDE, c.m, 128 // wide)
    deep = min(64 // high, 64 // wide, c.k) * 512
    all_a, all_b = p.m * c.columns, p.n * c.rows
    if min(c.m + c.n, c.m + 2 * wide, c.n + 2 * high) * line <= l1_bytes:
        return all_a + all_b
    b_stays = 2 * (wide * line + high * deep) <= l1_bytes
    a_stays = 2 * (high * line + wide * deep) <= l1_bytes
    if not a_stays and not b_stays:
        return p.m * ceil_div(p.n, wide) + p.n * ceil_div(p.m, high)
    if 2 * (wide + high) * line <= l1_bytes:
        rows = ceil_div(l1_bytes - 2 * wide * line, 2 * line * high) * high
        columns = ceil_div(l1_bytes - 2 * high * line, 2 * line * wide) * wide
        return min(all_a + p.n * ceil_div(p.m, rows), all_b + p.m * ceil_div(p.n, columns))
    least = inf
    if a_stays or c.m * line + 2 * wide * deep <= l1_bytes:
        least = all_a + p.n * ceil_div(p.m, high)
    if b_stays or c.n * line + 2 * high * deep <= l1_bytes:
        least = min(least, all_b + p.m * ceil_div(p.n, wide))
    return least


def cut(p: Whole, cores: int, l1_bytes: int) -> Cut:
    """Return what each of at most `cores` cores computes."""
    if cores <= 1:
        return Cut(*(_part_of(extent, _rounded(extent), 1) for extent in (p.m, p.n, p.k)))
    alike_m, alike_n = (p.m, p.n) if p.cuts_k else (_rounded(p.m), _rounded(p.n))
    if p.m * p.n <= min(cores, 128) and max(p.m, p.n) * p.k <= 128:
        m, n = (one if one <= 32 else ceil_div(_rounded(one), _rounded(one) // 32) for one in (p.m, p.n))
        divisors = (i for i in range(2, cores + 1) if p.k % i == 0)
        depth = next(divisors, 1) if p.cuts_k and p.k > 32 else 1
        return Cut(m, n, p.k // depth, ceil_div(p.m, m), ceil_div(p.n, n), depth)
    depths = _counts(p.k, p.k, cores, None) if p.cuts_k else [1]
    best, best_turns, best_load, best_cores, is_wide = Cut(p.m, p.n, p.k), inf, inf, 1, False
    counts_width = not p.b_turned or p.a_turned
    for columns, rows, depth in pairs(_counts(p.n, alike_n, cores, p.m), _counts(p.m, alike_m, cores, p.n), depths):
        count = rows * columns * depth
        if not 0 < count <= cores:
            continue
        one = Cut(ceil_div(p.m, rows), ceil_div(p.n, columns), p.k // depth, rows, columns, depth)
        may_be_wide = (p.b_turned or p.n < _WIDE or one.n >= _WIDE) and (
            not p.a_turned or p.m < _WIDE or one.m >= _WIDE
        )
        if counts_width and is_wide and not may_be_wide:
            continue
        load, number = _loads(p, one, l1_bytes) * (one.k if p.cuts_k else 1), _turns(one.m, one.n, one.k)
        better = (
            (counts_width and not is_wide and may_be_wide)
            or number < best_turns
            or (number == best_turns and count > best_cores)
            or (count == best_cores and load < best_load)
            or (count == best_cores and load == best_load and rows * columns > best.rows * best.columns)
        )
        if better:
            best, best_turns, best_load, best_cores = one, number, load, count
            is_wide = (p.b_turned or one.n >= _WIDE) and (not p.a_turned or one.m >= _WIDE) and count > 1
    m, n = _part_of(p.m, alike_m, best.rows), _part_of(p.n, alike_n, best.columns)
    if ceil_div(p.m, m) * ceil_div(p.n, n) * best.depths > cores:
        m, n = best.m, best.n
    return Cut(m, n, ceil_div(p.k, best.depths), ceil_div(p.m, m), ceil_div(p.n, n), best.depths)


def _near(number: int, extent: int, most: int, most_of_power: int, unit: int) -> list[int]:
    found: set[int] = set()
    power = 1 << (min(extent, 4096).bit_length() - 1)
    for of, end in ((extent, most), (power, most_of_power)):
        above = [i for i in range(number + 1, min(end, of) + 1) if of % i == 0][:1]
        below = [i for i in range(number, 0, -1) if of % i == 0]
        found |= set((above + below)[:2])
    return sorted({align_up(one, unit) for one in found}, reverse=True)


def base_block(part: Cut, given: tuple[int, int], room: Room) -> tuple[int, int, int] | None:
    """Return the base block of a core's part; rows and columns of `given` above 0 are taken as they are."""
    m, n, k = align_up(part.m, room.unit), align_up(part.n, room.unit), align_up(part.k, room.unit_k)
    widest, best, last, is_quick = 16 if room.has_bias else 64, None, (0, 0, 0, 0), False
    for wide in [given[1]] if given[1] else _near(11, n, widest, widest, room.unit):
        if wide > min(room.sums, room.right) or (not given[1] and (wide > n or (n >= _WIDE and wide < _WIDE))):
            continue
        highest = min(room.sums // wide, room.left)
        for high in [given[0]] if given[0] else _near(highest, m, highest, highest, room.unit):
            if high > highest or (not given[0] and high > m):
                continue
            deepest = min(room.left // high, room.right // wide)
            for deep in _near(deepest, k, deepest, 64, room.unit_k):
                work, steps = high * wide * deep, (deep if wide > 1 else 1) + (high if deep > 1 else 1)
                quick = max(6, 2 * high * deep) + max(6, 4 * wide * deep) < work
                if deep > deepest or (is_quick and not quick):
                    continue
                load = ceil_div(m, high) * n + ceil_div(n, wide) * m
                if min(m, n) * k <= 128:
                    load = m + n
                elif deep >= k:
                    load = min(n + ceil_div(n, wide) * m, m + ceil_div(m, high) * n)
                best_load, best_work, best_sums, best_steps = last
                same = best is not None and load == best_load
                better = (
                    best is None
                    or load < best_load
                    or (quick and not is_quick)
                    or (same and work > best_work and work * high * wide >= best_work * best_sums)
                    or (same and work == best_work and steps < best_steps)
                )
                if better:
                    best, last, is_quick = (high, wide, deep), (load, work, high * wide, steps), is_quick or quick
    return best

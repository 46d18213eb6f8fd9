"""What L2 and memory allow a launch: the bytes of all cores over the totals of the die.

The timeline gives each core at most its share of the totals, and reads and stores each a full one, because they are
seldom active at once. Where they are, the launch still cannot be shorter than all its bytes take together: that is the
floor here, `memory_cycles`. What exceeds the slowest core is the part ``memory`` of the critical path.

What misses L2: whatever exceeds its capacity, and the first read of what was initialised before the launch. The inputs
of a caller were last used long ago; workspace was written by a launch before. Where that share of the reads misses, so
does the same share of the places that are written, since a line that comes in drives out one that was written (a
profiled Cast of 12 MB, which L2 holds, runs at the same bytes a second as one of 2.5 GB). Of tensors that L2 has no
room for, the part that it could hold is there as likely as tensors that it holds.
ASSUMED: these rules but the third, for single launches; no source says what L2 holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.engines.timeline_result import TimedProduct, TimelineOptions
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products.cost import CostParams
from npu_sim.program.launch import InputPlace, Launch
from npu_sim.units import ceil_div

READ, STORED = 0, 2
"""Columns of a table of extents, int64[tensors + 1, 4]: first byte read and the one behind the last, and the same of
what is stored. The last line is of rows that name no tensor."""
_NOWHERE = 1 << 62


def no_extents(lines: int) -> npt.NDArray[np.int64]:
    """Return the table of a launch that touches nothing."""
    return np.full((lines, 4), (_NOWHERE, -_NOWHERE) * 2, np.int64)


def l2_hits(byte_count: int, l2_bytes: int) -> int:
    """Return the part of the accesses to that many bytes that hit L2, in thousandths."""
    return 1000 if byte_count <= l2_bytes else 1000 * l2_bytes // byte_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What the cores of a launch touch in GM.

    Attributes
    ----------
    byte_count : int
        Bytes from the first to the last one touched in each tensor, those of several tensors counted once.
    read_bytes, stored_bytes : int
        Bytes from the first to the last one read, and stored, in each tensor.
    input_bytes : int
        Those of `read_bytes` that are of tensors that were there before the launch.
    """

    byte_count: int
    read_bytes: int
    stored_bytes: int
    input_bytes: int


def touched_of(extents: npt.NDArray[np.int64], gm: GlobalMemory) -> Touched:
    """Return what a table of extents, int64[tensors + 1, 4] or without lines, comes to in ``gm``."""
    # a handful of lines: NumPy takes longer to begin
    lines = [(number, *line) for number, line in enumerate(extents.tolist()) if max(line[1], line[3]) > -_NOWHERE]
    reads = {number: max(end - first, 0) for number, first, end, _, _ in lines}
    ends = ((min(read, stored), max(read_end, store_end)) for _, read, read_end, stored, store_end in lines)
    return Touched(
        byte_count=bytes_in((max(first, 0), min(end, gm.total_bytes)) for first, end in ends),
        read_bytes=sum(reads.values()),
        stored_bytes=sum(max(end - first, 0) for *_, first, end in lines),
        input_bytes=sum(
            count for number, count in reads.items() if number < len(gm.tensors) and gm.tensors[number].initialised
        ),
    )


def bytes_in(extents: Iterable[tuple[int, int]]) -> int:
    """Return the bytes in (first, behind the last) pairs, those in several counted once."""
    count, behind = 0, 0
    for low, high in sorted(extents):
        count += max(high - max(low, behind), 0)
        behind = max(behind, high)
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTraffic:
    """Bytes of a launch, all cores.

    Attributes
    ----------
    read_bytes, store_bytes : int
        From and to GM.
    missing_read_bytes, missing_store_bytes : int
        Those of them that go to memory.
    """

    read_bytes: int
    store_bytes: int
    missing_read_bytes: int
    missing_store_bytes: int


def memory_traffic(
    reads: int, stores: int, touched: Touched, read_miss_permille: int, l2_hit_permille: int
) -> MemoryTraffic:
    """Return what a launch moves and how much of it misses.

    Parameters
    ----------
    reads, stores : int
        Bytes from and to GM.
    touched : Touched
        Where they are.
    read_miss_permille : int
        Part of what is read that is not in L2 when the launch begins.
    l2_hit_permille : int
        Part of all accesses that L2 has room for.
    """
    missing = min(touched.read_bytes, reads) * read_miss_permille // 1000
    share = min(touched.stored_bytes, stores) * read_miss_permille // 1000
    over = 1000 - l2_hit_permille
    return MemoryTraffic(
        read_bytes=reads,
        store_bytes=stores,
        missing_read_bytes=max(missing, reads * over // 1000),
        missing_store_bytes=max(share, stores * over // 1000),
    )


def memory_cycles(traffic: MemoryTraffic, cost: CostParams, clock_hz: int) -> int:
    """Return the least cycles in which L2 and memory pass the bytes of a launch.

    Hits take their time of L2, misses theirs of memory, which is slower while it reads and writes by turns: reads and
    writes flow together until the lesser is through.
    """
    misses = traffic.missing_read_bytes, traffic.missing_store_bytes
    both = 2 * min(misses)
    memory = cost.hbm_total_bytes_per_microsecond
    parts = (
        (traffic.read_bytes + traffic.store_bytes - sum(misses), cost.l2_total_bytes_per_microsecond),
        (both, min(cost.hbm_mixed_bytes_per_microsecond, memory)),
        (sum(misses) - both, memory),
    )
    return sum(ceil_div(byte_count * clock_hz, 1_000_000 * rate) for byte_count, rate in parts)


def l2_misses(launch: Launch, product: TimedProduct, options: TimelineOptions, touched: Touched) -> tuple[int, int]:
    """Return the part of the accesses that hit L2, and that of what is read that misses it, in thousandths."""
    if options.l2_hit_permille is not None:
        return options.l2_hit_permille, 0
    apart = touched.byte_count if launch.reuse_bytes is None else min(touched.byte_count, launch.reuse_bytes)
    # of what L2 has no room for, as much as of the rest is there when it is first read
    there = (1000 - _read_misses(launch, product, options, touched)) * l2_hits(touched.byte_count, product.l2_bytes)
    return l2_hits(apart, product.l2_bytes), 1000 - there // 1000


def _read_misses(launch: Launch, product: TimedProduct, options: TimelineOptions, touched: Touched) -> int:
    """Return the part of what is read that is not in L2 when the launch begins, in thousandths."""
    place: InputPlace = "l2" if options.inputs_in_l2 else launch.inputs
    missing = {"memory": 1000, "unknown": product.cost.unknown_miss_permille, "l2": 0}[place]
    return missing * touched.input_bytes // max(touched.read_bytes, 1)

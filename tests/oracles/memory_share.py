"""What shares the totals of L2 and memory, byte by byte and nanosecond by nanosecond: the oracle of the memory floor.

A set of touched bytes decides what is read for the first time; a loop over small steps of time lets reads and writes
flow, together while there are both. Nothing here adds up a formula.
"""

from __future__ import annotations

from fractions import Fraction


def missing_bytes(accesses, initialised, *, cold):
    """Return the bytes that are read, and stored, for the first time and not in L2, from accesses one after the other.

    accesses: (tensor, first byte, bytes, "read" or "store"); initialised: tensors that memory holds.
    """
    read, stored = set(), set()
    for tensor, first, count, kind in accesses:
        (read if kind == "read" else stored).update((tensor, at) for at in range(first, first + count))
    cold_reads = {place for place in read if cold and place[0] in initialised}
    share = Fraction(len(cold_reads), len(read)) if read else Fraction(0)
    return len(cold_reads), int(len(stored) * share)


def fluid_microseconds(hits, reads, stores, l2_rate, memory_rate, mixed_rate, step=Fraction(1, 64)):
    """Return how long hits, then missing reads and stores, take in steps of time, rates in bytes a microsecond."""
    time = Fraction(0)
    while hits > 0:
        hits -= l2_rate * step
        time += step
    while reads > 0 or stores > 0:
        if reads > 0 and stores > 0:
            reads -= mixed_rate * step / 2
            stores -= mixed_rate * step / 2
        elif reads > 0:
            reads -= memory_rate * step
        else:
            stores -= memory_rate * step
        time += step
    return time

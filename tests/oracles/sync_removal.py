"""What a program loses when one row is removed or changed, by brute force: orderings, and bytes that nobody wrote.

The pairs of rows that touch common bytes do not depend on synchronisation, so they are found once; the order is worked
out again, as a full transitive closure, for every removal. `closure` gives in linear time what
`tests.oracles.hazards.happens_before` gives; a test holds the two together.
"""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import Op, Pipe, Space
from npu_sim.program.violation import Kind
from tests.oracles.footprint import touched_bytes
from tests.oracles.hazards import ADD, READ, WRITE
from tests.oracles.programs import SYNC_OPS

SYNC_KINDS = {Kind.SYNC_READ_HAZARD: "read", Kind.SYNC_WRITE_HAZARD: "write"}


def conflicts(rows):
    """Return {(later, earlier, "read" or "write")} for all pairs of rows with common bytes, at least one written."""
    touched = [touched_bytes(row) for row in rows]
    pairs = set()
    for later, here in enumerate(touched):
        for earlier in range(later):
            for (space, access), mine in here.items():
                for (other_space, other_access), theirs in touched[earlier].items():
                    both_read = access == READ and other_access == READ
                    both_add = access == other_access == ADD
                    if space == other_space and not both_read and not both_add and not mine.isdisjoint(theirs):
                        pairs.add((later, earlier, "read" if access == READ else "write"))
    return pairs


def closure(rows):
    """Return for each row the bit set of the rows that are complete before it starts.

    The scalar unit issues all rows: what it waited for is complete before any later row, what it stored is not.
    """
    before, newest, flags = [], {}, {}
    everything, issued = 0, 0
    for i, (op, pipe, peer, event) in enumerate(rows[["op", "pipe", "peer", "event"]].tolist()):
        bits = issued
        for j in {newest.get(pipe), newest.get("barrier")} - {None}:
            bits |= before[j] | 1 << j
        if op == Op.PIPE_BARRIER and pipe == Pipe.ALL:
            bits = everything
            newest["barrier"] = i
        if op == Op.SET_FLAG:
            flags[pipe, peer, event] = i
        elif op == Op.WAIT_FLAG and (peer, pipe, event) in flags:
            j = flags.pop((peer, pipe, event))
            bits |= before[j] | 1 << j
            if pipe == Pipe.S:
                issued |= before[j] | 1 << j
        before.append(bits)
        newest[pipe] = i
        everything |= 1 << i
    return before


def unordered(rows, pairs):
    """Return the conflicts among ``pairs`` that nothing orders."""
    before = closure(rows)
    return {(later, earlier, what) for later, earlier, what in pairs if not before[later] >> earlier & 1}


def lost_by_removal(rows, pairs, removed):
    """Return the unordered conflicts, in row numbers of the program without row ``removed``."""
    shifted = {
        (later - (later > removed), earlier - (earlier > removed), what)
        for later, earlier, what in pairs
        if removed not in (later, earlier)
    }
    return unordered(np.delete(rows, removed), shifted)


def judged_removals(rows, hazards):
    """Remove every synchronisation row in turn, and assert that ``hazards`` reports what the removal loses.

    Yields (removed row, conflicts that lose their order, what ``hazards`` found).
    """
    assert hazards(rows) == []
    pairs = conflicts(rows)
    assert unordered(rows, pairs) == set()
    for removed in np.flatnonzero(np.isin(rows["op"], SYNC_OPS)).tolist():
        op = Op(rows["op"][removed])
        expected = lost_by_removal(rows, pairs, removed)
        found = hazards(np.delete(rows, removed))
        reported = {(v.row, v.other_row, SYNC_KINDS[v.kind]) for v in found if v.kind in SYNC_KINDS}
        context = f"row {removed}, {op.name} {Pipe(rows['pipe'][removed]).name}"
        assert reported <= expected, context
        assert bool(reported) == bool(expected), context
        # whatever it ordered, a flag without its partner is a fault of its own; a barrier has no partner
        orphans = [v for v in found if v.kind in (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE)]
        assert bool(orphans) == (op != Op.PIPE_BARRIER), context
        yield removed, expected, found


def broken_orders(rows, hazards):
    """Return how many removals of each of `SYNC_OPS` lose an ordering; all are `judged_removals`."""
    broken = dict.fromkeys(SYNC_OPS, 0)
    for removed, expected, _ in judged_removals(rows, hazards):
        broken[Op(rows["op"][removed])] += bool(expected)
    return broken


def uninitialised(rows, table):
    """Return {row: {(space, byte)}}: what each row of one core reads, or adds to, before anything has written it."""
    written = set()
    for address, byte_count, allocated, initialised in table.tolist():
        first = address if initialised else address + byte_count
        written.update((int(Space.GM), byte) for byte in range(first, address + allocated))
    missing = {}
    for number, row in enumerate(rows):
        touched = touched_bytes(row)
        needs = {(space, byte) for (space, access), here in touched.items() if access != WRITE for byte in here}
        if needs - written:
            missing[number] = needs - written
        written.update((space, byte) for (space, access), here in touched.items() if access == WRITE for byte in here)
    return missing

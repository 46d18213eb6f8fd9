"""Brute force: dependent rows of one pipe without a barrier, and reads of tiles whose life is over, byte by byte.

Shares nothing with `npu_sim.engines.hazards_jit`: order is a transitive closure, memory a dictionary of bytes.
"""

from __future__ import annotations

from npu_sim.isa.op import MMADS, Op, Pipe, Space
from tests.oracles.footprint import touched_bytes

READ, WRITE = 0, 1


def complete_before(rows, pipes):
    """Return for each row the bit set of the rows whose results it meets, where ``pipes`` need barriers.

    A row of such a pipe inherits what the row before it met. A set, and a barrier of the pipe, stand behind everything
    that the pipe did before; the rows behind a set do not.
    """
    before, inherited, flags, issued = [], [], {}, 0
    for i, row in enumerate(rows):
        op, pipe = Op(row["op"]), int(row["pipe"])
        bits = own = issued
        for j in range(i):
            other_op, other = Op(rows[j]["op"]), int(rows[j]["pipe"])
            of_all = other_op == Op.PIPE_BARRIER and other == Pipe.ALL
            if (op == Op.PIPE_BARRIER and pipe == Pipe.ALL) or of_all:
                bits |= before[j] | 1 << j
                own |= before[j] | 1 << j
            elif other == pipe:
                bits |= inherited[j]
                own |= inherited[j]
                if pipe not in pipes or op in (Op.SET_FLAG, Op.PIPE_BARRIER):
                    bits |= 1 << j
                    own |= 0 if pipe in pipes and op == Op.SET_FLAG else 1 << j
        if op == Op.SET_FLAG:
            flags[pipe, int(row["peer"]), int(row["event"])] = i
        elif op == Op.WAIT_FLAG:
            held_by = flags.pop((int(row["peer"]), pipe, int(row["event"])), None)
            if held_by is not None:
                bits |= before[held_by] | 1 << held_by
                own |= bits
                if pipe == Pipe.S:
                    issued |= before[held_by] | 1 << held_by
        before.append(bits)
        inherited.append(own)
    return before


def missing_barriers(rows, pipes):
    """Return {(later, earlier, "read" or "write")} of the dependent rows of one pipe that no barrier joins."""
    before, touched, pairs = complete_before(rows, pipes), [touched_bytes(row) for row in rows], set()
    for i, row in enumerate(rows):
        if row["op"] in MMADS and int(row["m"]) * int(row["n"]) >= 2560:
            continue
        for j in range(i):
            if rows[j]["pipe"] != row["pipe"] or row["pipe"] not in pipes or before[i] >> j & 1:
                continue
            same = rows[j]["op"] == row["op"] and (row["pipe"] == Pipe.V or row["op"] == Op.FILL)
            for (space, access), here in touched[i].items():
                for kind in (WRITE, 2):
                    there = touched[j].get((space, kind), set())
                    if here.isdisjoint(there) or (access == 2 and kind == 2):
                        continue
                    if access == READ or not same:
                        pairs.add((i, j, "read" if access == READ else "write"))
    return pairs


def stale_reads(rows):
    """Return {(reading row, row that wrote)} of the reads on the chip of what a reader had handed back.

    A write belongs to the flags (reader's pipe, event) that its pipe has waited for and not set back.
    """
    held, turned = {}, {}
    owner, belongs, replaced, consumed = {}, {}, set(), {}
    found = set()
    for i, row in enumerate(rows):
        op, pipe = Op(row["op"]), int(row["pipe"])
        if op == Op.WAIT_FLAG:
            held.setdefault(pipe, set()).add((int(row["peer"]), int(row["event"])))
            turned[int(row["peer"]), pipe, int(row["event"])] = i
        elif op == Op.SET_FLAG:
            held.setdefault(pipe, set()).discard((int(row["peer"]), int(row["event"])))
        touched = touched_bytes(row)
        reads = {(space, b) for (space, what), here in touched.items() if what == READ for b in here}
        writes = {(space, b) for (space, what), here in touched.items() if what == WRITE for b in here}
        for byte in (byte for byte in reads if byte[0] != Space.GM and byte in owner):
            w = owner[byte]
            writer, flags = belongs[w]
            for reader in {q for q, _ in flags}:
                seen = consumed.get((byte, reader), -1)
                events = [event for q, event in flags if q == reader]
                is_over = all(turned.get((reader, writer, event), -1) > seen for event in events)
                if seen > w and is_over and w not in replaced:
                    found.add((i, w))
        for byte in reads:
            consumed[byte, pipe] = i
        for byte in writes:
            if byte in owner:
                replaced.add(owner[byte])
            owner[byte] = i
        belongs[i] = pipe, frozenset(held.get(pipe, ()))
    return found

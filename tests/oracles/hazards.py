"""Brute force: the whole happens-before relation of a small program and every conflicting pair, byte by byte.

Shares nothing with `npu_sim.engines.hazards`: order is a transitive closure over explicit edges (bit sets), memory is
sets of byte addresses from `tests.oracles.footprint`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from tests.oracles.footprint import ITEM, touched_bytes

READ, WRITE, ADD = 0, 1, 2


def happens_before(rows):
    """Return for each row the bit set of the rows that are complete before it starts.

    Edges: the row before on the same pipe; everything around a barrier of all pipes; from the set that holds a flag to
    the wait that clears it. The scalar unit issues all rows, so what it waited for is complete before any later row;
    what it stored itself is not.
    """
    before = []
    flags = {}
    issued = 0
    for i, row in enumerate(rows):
        op, pipe = Op(row["op"]), int(row["pipe"])
        direct = set()
        for j in range(i):
            other = rows[j]
            of_all = Op(other["op"]) == Op.PIPE_BARRIER and int(other["pipe"]) == Pipe.ALL
            i_am_all = op == Op.PIPE_BARRIER and pipe == Pipe.ALL
            if int(other["pipe"]) == pipe or of_all or i_am_all:
                direct.add(j)
        if op == Op.SET_FLAG:
            flags[pipe, int(row["peer"]), int(row["event"])] = i
        elif op == Op.WAIT_FLAG:
            held_by = flags.pop((int(row["peer"]), pipe, int(row["event"])), None)
            if held_by is not None:
                direct.add(held_by)
        bits = issued
        for j in direct:
            bits |= before[j] | (1 << j)
        if op == Op.WAIT_FLAG and pipe == Pipe.S and held_by is not None:
            issued |= before[held_by] | (1 << held_by)
        before.append(bits)
    return before


@dataclass
class Expected:
    """Everything that is wrong with a program."""

    pairs: set = field(default_factory=set)
    """(key of the later row, key of the earlier one, "read" or "write": what the later one does)."""
    uninitialised: dict = field(default_factory=dict)
    """{key: {(space, byte)}}."""
    unset_waits: set = field(default_factory=set)
    double_sets: set = field(default_factory=set)
    """(key of the second set, key of the first)."""
    left_set: set = field(default_factory=set)


def _conflicts(later, earlier):
    """Yield "read" or "write" for each way two accesses of common bytes conflict."""
    for (space, access), here in later.items():
        for (other_space, other_access), there in earlier.items():
            if space != other_space or (access == READ and other_access == READ):
                continue
            if (access == ADD and other_access == ADD) or here.isdisjoint(there):
                continue
            yield "read" if access == READ else "write"


def _flag_faults(rows, phase, core, expected):
    flags = {}
    for i, row in enumerate(rows):
        if row["op"] == Op.SET_FLAG:
            key = int(row["pipe"]), int(row["peer"]), int(row["event"])
            if key in flags:
                expected.double_sets.add(((phase, core, i), (phase, core, flags[key])))
            flags[key] = i
        elif row["op"] == Op.WAIT_FLAG:
            key = int(row["peer"]), int(row["pipe"]), int(row["event"])
            if key in flags:
                del flags[key]
            else:
                expected.unset_waits.add((phase, core, i))
    expected.left_set |= {(phase, core, i) for i in flags.values()}


def left_open(row):
    """Return the bytes of UB that a load leaves open, as {(space, byte)}: by the page of DataCopyPad."""
    found = set()
    if Op(row["op"]) != Op.DATA_COPY_PAD or row["src0_space"] != Space.GM or row["mode"] & Mode.PAD:
        return found
    item = ITEM[Data(row["dtype"])]
    length, left = int(row["block_len"]), int(row["left_padding"]) * item
    padding = left + int(row["right_padding"]) * item
    at = int(row["dst"])
    for _ in range(int(row["block_count"]) if length and padding else 0):
        blocks = -(-(length + padding) // 32)
        found |= {(Space.UB, at + i) for i in range(32 * blocks) if not left <= i < left + length}
        at += 32 * (blocks + int(row["dst_gap"]))
    return found


def analyse(programs, table):
    """Return what is wrong with ``programs[phase][core]`` (issued rows) on tensors ``table``."""
    expected = Expected()
    written = set()
    for address, byte_count, allocated, initialised in table.tolist():
        first = address if initialised else address + byte_count
        written.update((int(Space.GM), byte) for byte in range(first, address + allocated))
    for phase, cores in enumerate(programs):
        touched = [[touched_bytes(row) for row in rows] for rows in cores]
        for core, rows in enumerate(cores):
            _flag_faults(rows, phase, core, expected)
            before = happens_before(rows)
            on_chip = set()
            for i in range(len(rows)):
                key = phase, core, i
                for j in range(i):
                    if not before[i] >> j & 1:
                        for what in _conflicts(touched[core][i], touched[core][j]):
                            expected.pairs.add((key, (phase, core, j), what))
                for other in range(core):
                    gm = {k: v for k, v in touched[core][i].items() if k[0] == Space.GM}
                    for j, theirs in enumerate(touched[other]):
                        for what in _conflicts(gm, theirs):
                            expected.pairs.add((key, (phase, other, j), what))
                missing = set()
                for (space, access), here in touched[core][i].items():
                    known = written if space == Space.GM else on_chip
                    if access != WRITE:
                        missing |= {(space, byte) for byte in here} - known
                if missing:
                    expected.uninitialised[key] = missing
                for (space, access), here in touched[core][i].items():
                    if access == WRITE:
                        (written if space == Space.GM else on_chip).update((space, byte) for byte in here)
                on_chip -= left_open(rows[i])
    return expected

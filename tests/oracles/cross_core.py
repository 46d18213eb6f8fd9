"""Brute force for cores that run by turns: who must be complete before whom, across cores, and every conflicting pair.

Shares nothing with the engines: cores take one row each in a round, sets of rows stand for what is complete, and flags
between cores are counted as the page says (spec of CrossCoreSetFlag: modes 0, 1, 2), messages of the
Matmul library as mode 3. A word that cores poll is a list of the stores to it; each word must be stored to by one core
alone, as which of several comes first depends on turns.
"""

from __future__ import annotations

from npu_sim.isa.op import Op, Pipe, Space
from tests.oracles.footprint import touched_bytes
from tests.oracles.hazards import _conflicts


def members(blocks, vectors, core, mode, event):
    """Return (who sets together, on whom it counts)."""
    cubes = list(range(blocks))
    every = [blocks + i for i in range(blocks * vectors)]
    if core < blocks:
        own = [blocks + core * vectors + i for i in range(vectors)]
        named = [one for one in own if one - own[0] == event % 2]
        return {0: (cubes, cubes), 2: ([core], own), 3: ([core], named)}[mode]
    block = (core - blocks) // vectors
    own = [blocks + block * vectors + i for i in range(vectors)]
    return {0: (every, every), 1: (own, own), 2: (own, [block]), 3: ([core], [block])}[mode]


def order(programs, blocks, vectors):
    """Return {(core, row): set of (core, row) complete before it starts}, or None if the cores wait for ever.

    ``programs``: issued rows by core; every wait within a core comes behind its set.
    """
    cores = range(len(programs))
    at = dict.fromkeys(cores, 0)
    before, sets, taken, words = {}, [], {}, {}
    issued = {core: set() for core in cores}
    flags = {core: {} for core in cores}
    while True:
        moved = False
        for core in cores:
            if at[core] == len(programs[core]):
                continue
            i, row = at[core], programs[core][at[core]]
            op, pipe = Op(row["op"]), int(row["pipe"])
            known = set(issued[core])
            if op == Op.CROSS_CORE_WAIT_FLAG:
                event = int(row["event"])
                answers = _answers(sets, core, event, blocks, vectors)
                number = taken.get((core, event), 0)
                if number >= len(answers):
                    continue
                taken[core, event] = number + 1
                for setter in answers[number]:
                    known |= before[setter] | {setter}
                issued[core] |= known
            if op == Op.WAIT_SIGNAL:
                stored = words.get(int(row["value"]), [])[: int(row["count"])]
                if len(stored) < row["count"]:
                    continue
                for setter in stored:
                    known |= before[setter] | {setter}
                issued[core] |= known
            for j in range(i):
                other = programs[core][j]
                is_all = [Op(r["op"]) == Op.PIPE_BARRIER and int(r["pipe"]) == Pipe.ALL for r in (row, other)]
                if int(other["pipe"]) == pipe or any(is_all):
                    known |= before[core, j] | {(core, j)}
            if op == Op.SET_FLAG:
                flags[core][pipe, int(row["peer"]), int(row["event"])] = i
            elif op == Op.WAIT_FLAG:
                held = flags[core].pop((int(row["peer"]), pipe, int(row["event"])))
                known |= before[core, held] | {(core, held)}
                if pipe == Pipe.S:
                    issued[core] |= before[core, held] | {(core, held)}
            elif op == Op.CROSS_CORE_SET_FLAG:
                sets.append((core, i, int(row["value"]), int(row["event"])))
            elif op == Op.SET_SIGNAL:
                words.setdefault(int(row["value"]), []).append((core, i))
            before[core, i] = known
            at[core] += 1
            moved = True
        if not moved:
            return before if all(at[core] == len(programs[core]) for core in cores) else None


def _answers(sets, core, event, blocks, vectors):
    """Return the sets that each count on a core's flag is made of, in the order in which it counts."""
    found, queues = [], {}
    for setter, i, mode, number in sets:
        together, targets = members(blocks, vectors, setter, mode, number)
        if number != event or core not in targets:
            continue
        queue = queues.setdefault((mode, tuple(together)), {one: [] for one in together})
        queue[setter].append((setter, i))
        if all(queue.values()):
            found.append([one.pop(0) for one in queue.values()])
    return found


def conflicts(programs, blocks, vectors, before):
    """Return the pairs of rows, as frozensets of (core, row), that touch common bytes in no order."""
    touched = {(core, i): touched_bytes(row) for core, rows in enumerate(programs) for i, row in enumerate(rows)}
    keys, pairs = sorted(touched), set()
    for number, a in enumerate(keys):
        for b in keys[:number]:
            if a in before[b] or b in before[a]:
                continue
            here, there = touched[a], touched[b]
            if a[0] != b[0]:
                here = {k: v for k, v in here.items() if k[0] == Space.GM}
            if any(True for _ in _conflicts(here, there)):
                pairs.add(frozenset((a, b)))
    return pairs

"""Rows that were judged before: programs repeat their instructions, and a row is judged by itself.

Of a row counts what `row_digest.mask_of` says, without numbers that no rule looks at; of an address in GM its alignment
and whether it can be one. Rows are compared bit by bit, so that no row is taken for another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Space
from npu_sim.isa.gm_extent import space_of
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.op import by_opcode
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.program.row_digest import DST_LANE, LANES, SRC_LANE, UNKNOWN_MASK, lanes_in_use, mask_of, mixed
from npu_sim.units import BLOCK_BYTES

GM_BITS = ~np.uint64((1 << 40) - 1) | np.uint64(BLOCK_BYTES - 1)
"""What the rules of single rows may read of an address in GM: its alignment, and whether it can be one."""
CAPACITY = 1 << 15
"""Rows that are known at a time, 4 MiB: loops of the scalar unit have one for each element and value."""
_SLOTS = 4 * CAPACITY


def _mask_of(instruction: Instruction) -> Any:
    return mask_of(instruction, frozenset({"value"} if instruction.any_value else ()))


MASKS = by_opcode(_mask_of, default=UNKNOWN_MASK, dtype=np.uint64)
IN_USE = lanes_in_use(MASKS)


@jit
def unknown_rows(
    rows: np.ndarray, words: np.ndarray, slots: np.ndarray, known: np.ndarray, count: Int, found: np.ndarray
) -> Int:
    """Return how many rows are like none before, and append them to those that are known.

    Parameters
    ----------
    rows : INSTR[n]
    words : uint64[16 * n]
        The same.
    slots : int64[_SLOTS]
        By hash: number of a known row, counted from 1; 0: none.
    known : uint64[CAPACITY, LANES]
        What counts of each.
    count : int
        How many are known.
    found : int64[CAPACITY]
        Receives the numbers of the rows.

    Returns
    -------
    int
        -1: there is no room for them.
    """
    first = count
    row_words = np.zeros(LANES, np.uint64)
    for i in range(len(rows)):
        op = np.int64(rows[i]["op"])
        used = np.int64(IN_USE[op, 0])
        to_gm, from_gm = space_of(rows[i], 0) == Space.GM, space_of(rows[i], 1) == Space.GM
        digest = np.uint64(0)
        for at in range(1, 1 + used):
            lane = np.int64(IN_USE[op, at])
            word = words[i * LANES + lane] & MASKS[op, lane]
            if (to_gm and lane == DST_LANE) or (from_gm and lane == SRC_LANE):
                word &= GM_BITS
            row_words[lane] = word
            digest = mixed(digest, word)
        slot = np.int64(digest >> np.uint64(40)) & (_SLOTS - 1)
        while slots[slot] != 0:
            one = slots[slot] - 1
            same = np.int64(1)
            while same <= used and known[one, IN_USE[op, same]] == row_words[IN_USE[op, same]]:
                same += 1
            if same > used:  # lane 0 has the opcode, so the same lanes count of both
                break
            slot = (slot + 1) & (_SLOTS - 1)
        if slots[slot] != 0:
            continue
        if count == CAPACITY:
            return np.int64(-1)
        for at in range(1, 1 + used):
            known[count, IN_USE[op, at]] = row_words[IN_USE[op, at]]
        found[count - first] = i
        count += 1
        slots[slot] = count
    return np.int64(count - first)


class KnownRows:
    """Rows that a judge found right."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots = np.zeros(_SLOTS, np.int64)
        self._known = np.empty((CAPACITY, LANES), np.uint64)
        self._found = np.empty(CAPACITY, np.int64)
        self._count = 0

    def are_right(self, rows: np.ndarray, judge: Callable[[np.ndarray], bool]) -> bool:
        """Return whether all rows are right, of which ``judge`` sees those that are like none before.

        Parameters
        ----------
        rows : INSTR[n]
        judge : callable
            Returns whether all of some rows are right. They are known from then on.

        Returns
        -------
        bool
            False also where there is no room for so many different rows.
        """
        words = np.ascontiguousarray(rows).view(np.uint8).view(np.uint64)
        with self._lock:
            found = self._found
            count = int(unknown_rows(rows, words, self._slots, self._known, self._count, found))
            if count == 0:
                return True
            new = words.view(np.uint8).reshape(-1, ROW_BYTES)[found[: max(count, 0)]].view(INSTR).reshape(-1)
            is_right = False
            try:
                is_right = count > 0 and judge(new)
            finally:
                self._count += count
                if not is_right:
                    self._slots[:], self._count = 0, 0
            return is_right


class _Tables:
    """`KnownRows` of the last few machines that were asked for."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing: also what a process begins with that is the copy of one whose other threads were judging."""
        self._lock = threading.Lock()
        self._tables: list[tuple[Any, KnownRows]] = []

    def of(self, machine: tuple[Any, ...]) -> KnownRows:
        """Return the table for what rows are judged by; the same one for what is equal."""
        with self._lock:
            for known, table in self._tables:
                if known == machine:  # tuples look at identity first
                    return table
            self._tables = [*self._tables[1 - _TABLES :], (machine, KnownRows())]
            return self._tables[-1][1]


_TABLES = 8
_KNOWN = _Tables()
known_rows_of = _KNOWN.of

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_KNOWN.forget)

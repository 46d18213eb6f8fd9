"""MrgSort: two to four lists of sorted pairs become one."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, Index, Instruction, Rows
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.sorting import ELEMENT, rank_at

OP = 69
_LISTS = 4
_LONGEST = 4095
_STEP, _FIXED, _START = 500, 6_000, 20
"""Thousandths of a cycle of an element and beside them, cycles until it is complete (MK streams: 16 cycles of 32
elements and 6; documented: 2 elements a cycle)."""


emit_mrg_sort = vector_emitter(
    "mrg_sort",
    OP,
    "dst src0 src1 dtype length0 length1 src2 length2 src3 length3 repeat",
    """MrgSort: lists of pairs of score and index, in falling order each, become one list in falling order.

Lengths in pairs of 8 bytes; a list of length 0 is not there. Of equal scores that of the first list comes first.
``repeat`` above 1 is for four lists of one length side by side: the next four follow them, the next result the first.
Lists are merged to their ends (ifExhaustedSuspension false).""",
)


@jit
def _list(row, number):
    """Return (first byte, pairs) of a list of the first repeat."""
    if number == 0:
        return np.int64(row["src0"]), np.int64(row["length0"])
    if number == 1:
        return np.int64(row["src1"]), np.int64(row["length1"])
    if number == 2:
        return np.int64(row["src2"]), np.int64(row["length2"])
    return np.int64(row["src3"]), np.int64(row["length3"])


@jit
def _pairs(row):
    """Return the pairs of one repeat."""
    total = np.int64(0)
    for number in range(_LISTS):
        total += max(_list(row, number)[1], np.int64(0))
    return total


@jit
def footprint(row, out):
    """Every list, and the result."""
    repeats, step = np.int64(row["repeat"]), _pairs(row) * ELEMENT
    count = NONE
    for number in range(_LISTS):
        first, pairs = _list(row, number)
        count = line(out, count, UB, READ, first, pairs * ELEMENT, repeats, step)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), step, repeats, step)


@jit
def run(row, ub):
    """Take the first of the highest heads, again and again."""
    dtype = row["dtype"]
    if dtype != Data.FP16 and dtype != Data.FP32:
        return False
    pairs = _pairs(row)
    for r in range(np.int64(row["repeat"])):
        shift = r * pairs * ELEMENT
        at0, at1, at2, at3 = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for i in range(pairs):
            best, best_rank, best_at = -1, np.int64(0), np.int64(0)
            for number in range(_LISTS):
                first, length = _list(row, number)
                taken = at0 if number == 0 else at1 if number == 1 else at2 if number == 2 else at3
                if taken >= length:
                    continue
                at = first + shift + taken * ELEMENT
                own = rank_at(ub, at, dtype)
                if best < 0 or own > best_rank:
                    best, best_rank, best_at = number, own, at
            at0, at1 = at0 + (best == 0), at1 + (best == 1)
            at2, at3 = at2 + (best == 2), at3 + (best == 3)
            copy_bytes(ub, np.int64(row["dst"]) + shift + i * ELEMENT, ub, best_at, ELEMENT)
    return True


@jit
def cost(row, cost):
    """Two elements a cycle."""
    repeats, pairs = np.int64(row["repeat"]), _pairs(row)
    if repeats <= 0 or pairs <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    millicycles = _FIXED + repeats * pairs * _STEP
    return streamed(ONCE, millicycles, np.int64(_START), repeats * pairs * ELEMENT, cost)


def check(chunk: Rows, index: Index) -> None:
    places = np.stack([chunk.column(index, f"src{i}") for i in range(_LISTS)])
    lengths = np.stack([chunk.column(index, f"length{i}") for i in range(_LISTS)])
    for i in (2, 3):
        chunk.misaligned(index, places[i] % ELEMENT != 0, f"src{i}", f"a multiple of {ELEMENT}")
    apart = (np.diff(places, axis=0) != lengths[:-1] * ELEMENT).any(axis=0) | (lengths != lengths[0]).any(axis=0)
    repeated = chunk.column(index, "repeat") > 1
    chunk.rule(index, repeated & apart, "repeat", "1 unless four lists of one length lie side by side")


INSTRUCTION = Instruction(
    api="MrgSort",
    emit=emit_mrg_sort,
    source=DEVKIT + "MrgSort; only A2 and A3 have it",
    ranges=(*((f"length{i}", 0, _LONGEST) for i in range(_LISTS)), ("repeat", 0, BYTE)),
    dtypes={C220: FLOATS},
    alignment={"src0": ELEMENT, "src1": ELEMENT},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"src2": 0, "src3": 0, "length2": 0, "length3": 0, "repeat": 1},
)

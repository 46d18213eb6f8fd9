"""Which cores add to the same bytes of GM: only they have to wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npu_sim._jit import Flag, Int, jit
from npu_sim.engines.kit import RUNS
from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.footprint import ATOMIC_ADD, RUN_CAPACITY, footprint
from npu_sim.program.launch import KeptRows, Launch

_MOST_STRIPES = 1 << 16
_LEAST_STRIPE = 512
"""Bytes that count as one: a core that touches some of them touches all."""


@jit
def _stripes(rows: np.ndarray, runs: np.ndarray, low: Int, stripe: Int, touched: np.ndarray, ends: np.ndarray) -> Flag:
    """Set ``touched`` for each stripe behind ``low`` that rows add to, or widen ``ends`` if that is empty.

    False: a row has no footprint.
    """
    for i in range(len(rows)):
        if rows[i]["mode"] & Mode.ATOMIC == 0:
            continue
        count = footprint(rows[i], runs)
        if count < 0:
            return False
        for r in range(count):
            if runs[r, 0] != Space.GM or runs[r, 1] != ATOMIC_ADD:
                continue
            for repeat in range(runs[r, 4]):
                first = runs[r, 2] + repeat * runs[r, 5]
                last = first + runs[r, 3] - 1
                if len(touched) == 0:
                    ends[0], ends[1] = min(ends[0], first), max(ends[1], last + 1)
                else:
                    touched[(first - low) // stripe : (last - low) // stripe + 1] = True
    return True


def _sharers(parts: Sequence[np.ndarray]) -> npt.NDArray[np.bool_]:
    """Return for the rows of each of some cores whose additions meet its own; all, where that is not known."""
    count = len(parts)
    everyone = np.ones((count, count), np.bool_)
    runs = RUNS.take(RUN_CAPACITY)
    ends = np.array([np.iinfo(np.int64).max, 0], np.int64)
    known = all(_stripes(rows, runs, 0, 1, np.zeros(0, np.bool_), ends) for rows in parts)
    low, high = map(int, ends)
    stripe = max(_LEAST_STRIPE, -(-(high - low) // _MOST_STRIPES))
    touched = np.zeros((count, max(0, high - low) // stripe + 1), np.bool_)
    known = known and all(_stripes(rows, runs, low, stripe, touched[core], ends) for core, rows in enumerate(parts))
    RUNS.give_back(RUN_CAPACITY, runs)
    if not known:
        return everyone
    bits = np.packbits(touched, axis=1)
    return np.array([(bits & own).any(axis=1) for own in bits])


def earlier_sharers(launch: Launch, phase: int, sequence: Sequence[int]) -> list[Sequence[int]]:
    """Return for each place of a `core_sequence` the places before it whose cores add to the same bytes of GM.

    All places before it where the rows of the launch are not kept.
    """
    kept: KeptRows = launch.kept
    if kept.rows is None:
        return [range(place) for place in range(len(sequence))]
    if phase not in kept.sharers:
        # threads that meet here find the same twice
        parts = [kept.of(core, phase) for core in range(launch.core_count)]
        kept.sharers[phase] = _sharers([rows for rows in parts if rows is not None])
    found = kept.sharers[phase]
    return [[before for before in range(place) if found[core, sequence[before]]] for place, core in enumerate(sequence)]

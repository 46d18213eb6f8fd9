"""Which cores add to the same bytes of GM: only they have to wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npu_sim._jit import Int, jit
from npu_sim.engines.kit import RUNS
from npu_sim.isa.codes import SPACES, Mode, Space
from npu_sim.isa.footprint import ATOMIC_ADD, RUN_CAPACITY, footprint, reach
from npu_sim.isa.row import join_rows
from npu_sim.program.launch import KeptRows, Launch

_MOST_STRIPES = 1 << 16
_LEAST_STRIPE = 512
"""Bytes that count as one: a core that touches some of them touches all."""


@jit
def _touch(rows: np.ndarray, runs: np.ndarray, low: Int, stripe: Int, touched: np.ndarray) -> None:
    """Set ``touched`` for each stripe from ``low`` on that rows, which have a footprint, add to."""
    for i in range(len(rows)):
        for r in range(footprint(rows[i], runs)):
            if runs[r, 0] != Space.GM or runs[r, 1] != ATOMIC_ADD:
                continue
            for repeat in range(runs[r, 4]):
                first = runs[r, 2] + repeat * runs[r, 5] - low
                touched[first // stripe : (first + runs[r, 3] - 1) // stripe + 1] = True


def _sharers(parts: Sequence[np.ndarray]) -> npt.NDArray[np.bool_]:
    """Return for the rows of each of some cores whose additions meet its own; all, where that is not known."""
    count = len(parts)
    adding = [rows[rows["mode"] & Mode.ATOMIC != 0] for rows in parts]
    ends = np.zeros((sum(map(len, adding)), SPACES, 2), np.int64)
    runs = RUNS.take(RUN_CAPACITY)
    reach(join_rows(adding), runs, ends)
    known, in_gm = bool((ends[:, 0, 0] >= 0).all()), ends[:, Space.GM]
    in_gm = in_gm[in_gm[:, 0] < in_gm[:, 1]]
    low, high = (int(in_gm[:, 0].min()), int(in_gm[:, 1].max())) if len(in_gm) else (0, 0)
    stripe = max(_LEAST_STRIPE, -(-(high - low) // _MOST_STRIPES))
    touched = np.zeros((count, (high - low) // stripe + 1), np.bool_)
    if known:
        for own, rows in zip(touched, adding, strict=True):
            _touch(rows, runs, low, stripe, own)
    RUNS.give_back(RUN_CAPACITY, runs)
    if not known:
        return np.ones((count, count), np.bool_)
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

"""Launches of rows that exist, and the rows of launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.isa.row import INSTR, ROW_BYTES, empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.cross_core import is_cross_core
from npu_sim.program.launch import Launch

_CHUNK_ROWS = 1 << 12


def launch_of(name: str, programs: Sequence[Sequence[np.ndarray]], gm: GlobalMemory, **others: Any) -> Launch:
    """Return recorded rows as a launch.

    Parameters
    ----------
    name : str
    programs : sequence of sequence of INSTR[:]
        ``programs[core][phase]``; a core may have fewer phases than others.
    gm : GlobalMemory
        The tensors that GM addresses mean.
    **others
        Further fields of the launch; `Launch.crosses` is found out.
    """
    # Bytes, because NumPy would copy the overlapping fields of a row one after the other.
    kept = [[[np.ascontiguousarray(rows).view(np.uint8).reshape(-1, ROW_BYTES)] for rows in core] for core in programs]
    others.setdefault("crosses", any(is_cross_core(rows).any() for core in programs for rows in core))
    return launch_of_parts(name, kept, gm, **others)


def launch_of_parts(
    name: str, programs: Sequence[Sequence[Sequence[npt.NDArray[np.uint8]]]], gm: GlobalMemory, **others: Any
) -> Launch:
    """Return rows that were recorded part by part as a launch, without joining them.

    Parameters
    ----------
    name : str
    programs : sequence of sequence of sequence of uint8[:, 128]
        ``programs[core][phase]``: its rows, in parts; a core may have fewer phases than others.
    gm, **others
        As `launch_of`; `Launch.crosses` must be given.
    """

    def replay(rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
        target = rows.view(np.uint8).reshape(-1, ROW_BYTES)
        for program in programs[core][phase] if phase < len(programs[core]) else ():
            for first in range(0, len(program), len(rows)):
                part = program[first : first + len(rows)]
                target[: len(part)] = part
                yield len(part)

    params = np.zeros(1, np.dtype([("row_count", np.int64)]))
    params["row_count"] = sum(len(part) for core in programs for parts in core for part in parts)
    return Launch(
        name=name,
        kernel=replay,
        params=params,
        core_count=len(programs),
        gm=gm,
        phase_count=max(len(core) for core in programs),
        step_rows=1,
        **others,
    )


def rows_of(launch: Launch, core: int, phase: int) -> np.ndarray:
    """Return all rows of one core and phase, INSTR[n]."""
    buffer = empty_rows(max(_CHUNK_ROWS, launch.step_rows))
    data = buffer.view(np.uint8).reshape(-1, ROW_BYTES)
    parts = [data[:count].copy() for count in launch.rows(core, phase, buffer)]
    whole: np.ndarray = np.concatenate([data[:0], *parts]).reshape(-1).view(INSTR)
    return whole

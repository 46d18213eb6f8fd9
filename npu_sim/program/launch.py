"""A launch: one kernel on some cores, as a resumable emitter of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.violation import Violation

STATE_LENGTH = 64
"""int64 words of an emitter's state. Word 0: core, word 1: phase, both set by the engine; the rest is the kernel's."""

Emitter = Callable[[np.ndarray, np.ndarray, np.ndarray], int]

CoreKind = Literal["cube", "vector"]

Shortcut = Callable[[npt.NDArray[np.uint8], bool, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    name : str
        Kernel name for reports.
    emit : callable
        Jitted ``emit(rows: INSTR[:], params: record[1], state: int64[STATE_LENGTH]) -> int``: writes the next rows of
        the core and phase in ``state`` from index 0 and returns how many; 0 means the phase is over. It stops before
        the buffer is full and continues at the next call, so a program never has to exist as a whole.
    params : structured array of length 1
        Tiling and addresses.
    core_count : int
        Emulated cores (block_dim).
    phase_count : int
        Phases; all cores finish a phase before any starts the next (SyncAll between them).
    gm : GlobalMemory
        Tensors the kernel reads and writes.
    step_rows : int
        Room an emitter needs for one indivisible step; engines give at least this much.
    sites : mapping of int to str
        Names of the ``site`` numbers, for messages.
    trusted : bool
        True: the execute engine runs the rows unchecked, as it does those of this project's emitters, which tests hold
        to every limit. False: it first checks legality and GM bounds, because jitted code has no bounds checks.
    core_kind : "cube" or "vector"
        Which cores of a product with separate ones run it; the cores of the others are both.
    shortcut : callable or None
        ``shortcut(arena, saturate, threads)`` has the effect of the whole launch on the tensors in the uint8 arena of
        `gm`, bit for bit, in less time than its rows take: for kernels that only move, convert or add in a fixed order.
        Tests hold it to the rows.
    known : tuple of Violation
        What whoever made the rows knows to be undefined on a device and no row shows; the hazards engine reports it.
    """

    name: str
    emit: Emitter
    params: np.ndarray
    core_count: int
    gm: GlobalMemory
    phase_count: int = 1
    step_rows: int = 64
    sites: dict[int, str] = field(default_factory=dict)
    trusted: bool = False
    core_kind: CoreKind = "cube"
    shortcut: Shortcut | None = None
    known: tuple[Violation, ...] = ()

    def new_state(self, core: int, phase: int) -> npt.NDArray[np.int64]:
        """Return the start state of one core and phase."""
        state = np.zeros(STATE_LENGTH, np.int64)
        state[0] = core
        state[1] = phase
        return state

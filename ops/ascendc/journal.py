"""What an object did, for explanations and checks."""

from __future__ import annotations

import warnings

import numpy as np

from npu_sim.errors import UndefinedOnHardware
from npu_sim.program.violation import Kind, Violation
from npu_sim.report.explain import Value
from ops.conv3d_backprop_filter import walk_split as walk

_LINES_KEPT = 4096
"""Base blocks an object remembers."""


class Journal:
    """Counts, the walk block by block, and where the published code leaves the result undefined.

    Parameters
    ----------
    state : int64[STATE_LENGTH]
        State of the emitters; read whenever something is noted.
    keep_walk : bool
        Remember the blocks.
    """

    def __init__(self, state: np.ndarray, *, keep_walk: bool) -> None:
        self._state, self._keep_walk = state, keep_walk
        self.single_shapes = self.blocks = 0
        self.lines: list[tuple[Value, ...]] = []
        self.findings: list[Violation] = []

    def block(self, params: np.void, *, loads: str) -> None:
        """Note the base block that Iterate has computed."""
        self.blocks += 1
        if not self._keep_walk or len(self.lines) >= _LINES_KEPT:
            return
        s = self._state
        m = min(int(params["base_m"]), int(s[walk.M_LEN] - s[walk.CUR_M] * params["base_m"]))
        n = min(int(params["base_n"]), int(s[walk.N_LEN] - s[walk.CUR_N] * params["base_n"]))
        place = tuple(int(s[word]) for word in (walk.K_LEN, walk.HO_START, walk.CUR_M, walk.CUR_N))
        self.lines.append((int(s[walk.ITEM]), m, n, *place, loads, int(s[walk.K_ITER]), None, None, None))

    def stored(self, *, half: int, element: int, how: str) -> None:
        """Note where and how GetTensorC wrote the last block."""
        if self.lines and self.lines[-1][-1] is None:
            self.lines[-1] = (*self.lines[-1][:-3], half, element, how)

    def undefined(self, name: str, text: str, *, row: int, site: int, depth: int = 1) -> None:
        """Warn the caller ``depth`` calls above, and keep the finding; ``row`` counts from Init."""
        self.findings.append(
            Violation(
                kind=Kind.UNDEFINED,
                row=row,
                core=int(self._state[0]),
                tile=int(self._state[walk.ITEM]),
                site=site,
                detail=text,
            )
        )
        warnings.warn(f"{text} ({name})", UndefinedOnHardware, stacklevel=2 + depth)

    def counts(self, row_count: int) -> dict[str, Value]:
        """Return how much was done."""
        return {
            "single shapes": self.single_shapes,
            "base blocks": self.blocks,
            "loads of gradOutput (A1)": int(self._state[walk.A_LOADS]),
            "loads of input (B1)": int(self._state[walk.B_LOADS]),
            "instructions": row_count,
        }

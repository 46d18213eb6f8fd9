"""What an object did, for explanations and checks."""

from __future__ import annotations

import warnings

import numpy as np

from npu_sim.errors import UndefinedOnHardware
from npu_sim.program.violation import Kind, Violation
from npu_sim.report.explain import Value

_LINES_KEPT = 4096
"""Base blocks an object remembers."""


class Journal:
    """Counts, the walk block by block, and where the published code leaves the result undefined.

    Parameters
    ----------
    walk : `walk_split.WALK`
        Where the object is; read whenever something is noted.
    core : int
        Whose object it is.
    keep_walk : bool
        Remember the blocks.
    """

    def __init__(self, walk: np.void, core: int, *, keep_walk: bool) -> None:
        self._walk, self._core, self._keep_walk = walk, core, keep_walk
        self.single_shapes = self.blocks = 0
        self.lines: list[tuple[Value, ...]] = []
        self.findings: list[Violation] = []

    def block(self, *, loads: str) -> None:
        """Note the base block that Iterate has computed."""
        self.blocks += 1
        if not self._keep_walk or len(self.lines) >= _LINES_KEPT:
            return
        w = self._walk
        place = tuple(int(w[name]) for name in ("tile", "m_use", "n_use", "k_len", "first_row", "m", "n"))
        self.lines.append((*place, loads, int(w["k_steps"]), None, None, None))

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
                core=self._core,
                tile=int(self._walk["tile"]),
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
            "loads of gradOutput (A1)": int(self._walk["a_loads"]),
            "loads of input (B1)": int(self._walk["b_loads"]),
            "instructions": row_count,
        }

"""What can be said of a program of which only the first rows are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npu_sim.isa.op import Op
from npu_sim.program.violation import Kind, Violation


def is_open(violation: Violation, rows_of: Callable[[int, int], np.ndarray]) -> bool:
    """Return whether rows that follow could make good what is wrong; everything else looks back.

    A flag that is left set may still be waited for, a state switched off, a buffer given back, an output filled.

    Parameters
    ----------
    violation : Violation
    rows_of : callable
        From launch and core to all rows of the core.
    """
    if violation.kind in (Kind.OUTPUT_HOLE, Kind.STATE_LEFT, Kind.BUFFER_LEAK):
        return True
    if violation.kind is not Kind.SYNC_UNPAIRED:
        return False
    return bool(rows_of(violation.launch, violation.core)[violation.row]["op"] == Op.SET_FLAG)

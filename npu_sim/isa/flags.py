"""What SetFlag, WaitFlag and their relatives between cores must name."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.codes import Pipe
from npu_sim.isa.instruction import EVERY_PIPE, Index, Rows
from npu_sim.isa.names import pipe_name

CROSS_CORE_FLAGS = 16
"""Counters that each core has for flags of other cores."""
CROSS_CORE_LIMIT = 15
"""Largest value of such a counter."""
CROSS_CORE_MODES = 4
MESSAGE_MODE = 3
"""Of the Matmul library, see `npu_sim.program.cross_core`; the others are the device's."""


def check_flag(chunk: Rows, index: Index) -> None:
    """Check the other pipe and the event."""
    pipes, peers = chunk.column(index, "pipe"), chunk.column(index, "peer")
    core = chunk.product.core
    allowed = [pipe for pipe in EVERY_PIPE if pipe != Pipe.FIX or core.has_fixpipe]
    bad = ~np.isin(peers, allowed) | (peers == pipes)
    names = ", ".join(pipe.name for pipe in allowed)
    chunk.unsupported(
        index, bad, lambda row: f"peer must be another pipe of {names}, not {pipe_name(int(row['peer']))}"
    )
    chunk.ranges(index, (("event", 0, core.event_count - 1),))


def check_cross_core_flag(chunk: Rows, index: Index) -> None:
    """Check the number of a flag between cores."""
    chunk.ranges(index, (("event", 0, CROSS_CORE_FLAGS - 1),))

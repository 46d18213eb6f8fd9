"""What SetFlag and WaitFlag must name."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.codes import Pipe
from npu_sim.isa.instruction import EVERY_PIPE, Index, Rows
from npu_sim.isa.names import pipe_name


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

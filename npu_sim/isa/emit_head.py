"""What all emitters share."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.op import Pipe, Space


@jit
def pipe_of_copy(dst_space, src_space):
    """Return the pipe a DataCopy between two spaces runs on; `Pipe.ALL` if the path does not exist anywhere."""
    if src_space == Space.GM and (dst_space == Space.L1 or dst_space == Space.UB):
        return Pipe.MTE2
    if src_space == Space.UB and (dst_space == Space.GM or dst_space == Space.L1):
        return Pipe.MTE3
    if src_space == Space.L1 and dst_space == Space.GM:
        return Pipe.MTE3
    if src_space == Space.L1 and dst_space == Space.UB:
        return Pipe.MTE1
    if src_space == Space.UB and dst_space == Space.UB:
        return Pipe.V
    return Pipe.ALL


@jit
def write_head(row, op, pipe, site, tile):
    """Write what every row has, and no mode bits."""
    row["op"] = op
    row["pipe"] = pipe
    row["site"] = site
    row["tile"] = tile
    row["mode"] = 0

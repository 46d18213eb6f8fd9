"""Where a row touches GM, from first byte to last: what `footprint` says, without its runs, for one look a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Space


@jit
def block_extent(row: Any, unit: Int) -> Any:
    """Return (first byte, byte behind the last) in GM of a copy of blocks; lengths and gaps count ``unit`` bytes."""
    reads = row["src0_space"] == Space.GM
    first = np.int64(row["src0"]) if reads else np.int64(row["dst"])
    gap = np.int64(row["src_gap"]) if reads else np.int64(row["dst_gap"])
    block, blocks = np.int64(row["block_len"]), np.int64(row["block_count"])
    return first, first + (blocks * block + (blocks - 1) * gap) * unit

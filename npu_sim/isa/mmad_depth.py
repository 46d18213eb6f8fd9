"""How far Mmads reach along k, for those who look at what they read."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.op import Op


def depths_of(row: np.void) -> tuple[int, int]:
    """Return how many bytes of a line of L0A, and of one of L0B, an Mmad multiplies."""
    k = int(row["k"])
    if int(row["op"]) == Op.MMAD_SPARSE:
        return k, k // 2
    if int(row["op"]) == Op.MMAD_INT4:
        return k // 2, k // 2
    whole = k * int(ITEM_BYTES_OF_CODE[int(row["dtype"])])
    return whole, whole

"""Byte-exact loads and stores between GM and UB, with or without DataCopyPad.

On cores without it every copy is a multiple of 32 bytes: a load reads up to 31 bytes more, and whoever stores takes
care of the surplus.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_data_copy, emit_data_copy_pad
from npu_sim.isa.op import Space
from ops.common.kernel_parts import BLOCK


@jit
def load_bytes(rows, n, pads, ub, gm, length, data, tensor, site, tile):
    """Load ``length`` bytes from GM: exactly these where ``pads``, else rounded up to whole blocks."""
    if pads and length % BLOCK != 0:
        return emit_data_copy_pad(
            rows, n, Space.UB, ub, Space.GM, gm, 1, length, 0, 0, 0, 0, 0, 0, data, tensor, site, tile
        )
    blocks = np.int64((length + BLOCK - 1) // BLOCK)
    return emit_data_copy(rows, n, Space.UB, ub, Space.GM, gm, 1, blocks, 0, 0, data, tensor, site, tile)


@jit
def store_bytes(rows, n, pads, gm, ub, length, data, tensor, site, tile):
    """Store ``length`` bytes to GM: exactly these where ``pads``, else rounded up to whole blocks."""
    if pads and length % BLOCK != 0:
        return emit_data_copy_pad(
            rows, n, Space.GM, gm, Space.UB, ub, 1, length, 0, 0, 0, 0, 0, 0, data, tensor, site, tile
        )
    blocks = np.int64((length + BLOCK - 1) // BLOCK)
    return emit_data_copy(rows, n, Space.GM, gm, Space.UB, ub, 1, blocks, 0, 0, data, tensor, site, tile)

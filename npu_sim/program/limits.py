"""Alignment of addresses, which holds for every instruction that does not say otherwise.

Source: asc-devkit ``docs/zh/api/SIMD-API``, the general constraints for address alignment.
"""

from __future__ import annotations

from npu_sim.isa.codes import Space
from npu_sim.units import BLOCK_BYTES, FRACTAL_BYTES

ADDRESS_ALIGNMENT_BYTES: dict[Space, int] = {
    Space.GM: 1,
    Space.L1: BLOCK_BYTES,
    Space.UB: BLOCK_BYTES,
    Space.L0A: FRACTAL_BYTES,
    Space.L0B: FRACTAL_BYTES,
    Space.L0C: 64,
    Space.BT: 64,
    Space.FB: 128,
}
"""Alignment of start addresses (asc-devkit, general constraints)."""

MMAD_BARRIER_ELEMS = 2560
"""Mmads that add to one accumulator need a barrier between them while (m / 16) * (n / 16) < 10, that is m * n < 2560
(asc-devkit ``docs/zh/api/SIMD-API``, Mmad page, constraints)."""

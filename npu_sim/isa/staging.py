"""Room for the operands of one repeat in the float32 scratch of the vector unit."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

_FIRST = 4096
"""Behind what is decoded at a time (`isa.vector_apart`)."""
_WORDS = REPEAT_BYTES // 4


@jit
def staged(staging: np.ndarray, number: Int) -> np.ndarray:
    """Return the 256 bytes of operand ``number`` of a repeat; ``staging`` has at least 8192 float32."""
    first = _FIRST + number * _WORDS
    return reinterpret(staging[first : first + _WORDS], np.uint8)

"""Not: bitwise, on lanes of 16 bits; uint16 are the same bits as int16."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, Data
from npu_sim.isa.elementwise import elementwise


@jit
def _integers(x):
    return ~x


INSTRUCTION = elementwise(
    "Not",
    86,
    "src",
    "dst[i] = ~src[i] in UB, on 16 bits.",
    integers=_integers,
    reference=np.invert,
    dtypes=dict.fromkeys(ARCHS, frozenset({Data.INT16})),
    call=20,
)

"""Vector instructions whose results leave in a narrower type: Relu of sums and differences, products.

The result is rounded to the type of the sources first. As in Cast, NaN becomes 0 and what no integer of the type is
becomes the nearest one; 16 bits are added with saturation, as the documented example of the largest numbers has it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import cast_scalar
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import C220, M200, Data
from npu_sim.isa.converting import converting
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.vector_values import fit_integer, narrow, widen

_PAIRS = frozenset({(Data.FP32, Data.FP16), (Data.FP16, Data.INT8), (Data.INT16, Data.INT8)})


def relu_cast(name: str, op: int, sign: Literal["+", "-"], api: str) -> Instruction:
    """Return the instruction of Relu of sums or differences."""
    factor = -1 if sign == "-" else 1

    @jit
    def element(x, y, z, src, dst, saturate):  # type: ignore[no-untyped-def]
        if src == Data.INT16:
            return min(max(fit_integer(x + factor * y, 16, 1), 0), 127)
        if src == Data.FP32:
            total = np.uint32(x).view(np.float32) + np.float32(factor) * np.uint32(y).view(np.float32)
            return np.int64(narrow(total if total > 0 else np.float32(0), Data.FP16, saturate))
        half = narrow(widen(x, Data.FP16) + np.float32(factor) * widen(y, Data.FP16), Data.FP16, saturate)
        return max(cast_scalar(np.int64(half), src, dst, RoundMode.RINT, saturate), 0)

    return converting(
        name,
        op,
        "src0 src1",
        f"dst[i] = max(src0[i] {sign} src1[i], 0) in UB, to half from float, to int8 from half and int16.",
        api=api,
        element=element,
        pairs=dict.fromkeys((M200, C220), _PAIRS),
        call="vector_add_cycles",
    )

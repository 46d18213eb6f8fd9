"""Runs of L0C on their way out: converted to the type of the result."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp32_to_nearest_bf16, fp32_to_nearest_fp16
from npu_sim.isa.codes import Data
from npu_sim.isa.lanes import copy_bytes
from npu_sim.reinterpret import reinterpret


@jit
def convert_run(src, src_at, dst, dst_at, count, dtype, saturate):
    """Convert ``count`` float32 of ``src`` to ``dtype`` bytes at ``dst[dst_at]``."""
    if dtype == Data.FP32 or dtype == Data.INT32:
        copy_bytes(dst, dst_at, src, src_at * 4, 4 * count)
    else:
        bits = reinterpret(src[src_at : src_at + count], np.uint32)
        half = reinterpret(dst[dst_at : dst_at + 2 * count], np.uint16)
        if dtype == Data.FP16:
            for i in range(count):
                half[i] = fp32_to_nearest_fp16(bits[i], saturate)
        else:
            for i in range(count):
                half[i] = fp32_to_nearest_bf16(bits[i], saturate)

"""The additions of ReduceSum in the order of its rows, without them."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.bulk_jit import decode_bf16, decode_fp16, nearest_bf16, nearest_fp16
from npu_sim.isa.op import Data
from npu_sim.reinterpret import reinterpret
from ops.vector.kernel_reduce_sum import LANES


@jit
def sum_channels(src, dst, params, first, last, saturate):
    """Sum channels ``first`` to ``last`` with the additions and the order of the rows.

    Parameters
    ----------
    src : float32[n * c * r] or uint16[n * c * r]
        Values, resp. patterns of the 16-bit type in ``params``.
    dst : uint32[c] or uint16[c]
        Patterns of the sums.
    params : `reduce_sum.REDUCE_SUM_PARAMS`[1]
    first, last : int64
    saturate : int64
        Whether the final rounding clamps.
    """
    p = params[0]
    width, r, data = np.int64(p["width"]), np.int64(p["r"]), p["data"]
    acc = np.empty(width, np.float32)
    words = np.empty(width, np.uint32)
    total = np.empty(1, np.uint32)
    for channel in range(first, last):
        acc[:] = np.float32(0.0)
        for batch in range(p["n"]):
            row = (batch * p["c"] + channel) * r
            for at in range(0, r, width):
                length = min(width, r - at)
                lanes = words[:length]
                part = src[row + at : row + at + length]
                if data == Data.FP16:
                    decode_fp16(reinterpret(part, np.uint16), lanes)
                    values = reinterpret(lanes, np.float32)
                elif data == Data.BF16:
                    decode_bf16(reinterpret(part, np.uint16), lanes)
                    values = reinterpret(lanes, np.float32)
                else:
                    values = reinterpret(part, np.float32)
                for i in range(length):
                    acc[i] = acc[i] + values[i]
        half = width
        while half > LANES:
            half //= 2
            for i in range(half):
                acc[i] = acc[i] + acc[half + i]
        half = LANES
        while half > 1:
            half //= 2
            for i in range(half):
                acc[i] = acc[2 * i] + acc[2 * i + 1]
        total[0] = reinterpret(acc[:1], np.uint32)[0]
        out = dst[channel : channel + 1]
        if data == Data.FP16:
            nearest_fp16(total, reinterpret(out, np.uint16), saturate)
        elif data == Data.BF16:
            nearest_bf16(total, reinterpret(out, np.uint16), saturate)
        else:
            reinterpret(out, np.uint32)[0] = total[0]

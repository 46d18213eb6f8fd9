"""The additions of AvgPool3DGrad in the order of its rows, without them."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from ops.avg_pool.kernel_avg_pool3d_grad import factor_of, window


@jit
def scatter(grads, sums, params, first, end):
    """Clear lanes ``first`` to ``end`` of the sums, then add all windows in ascending order.

    Cores take ascending ranges of windows and atomic additions of different cores happen in core order, so the order of
    additions to one element is that of the windows, on any number of cores. Without overlap a product is stored as it
    is.

    Parameters
    ----------
    grads : float32[pixels of gradOutput, lanes]
    sums : float32[pixels of the input, lanes]
    params : `avg_pool3d_grad.AVG_POOL_PARAMS`[1]
    first, end : int64
    """
    p = params[0]
    width = np.int64(p["w"])
    for pixel in range(len(sums)):
        sums[pixel, first:end] = np.float32(0.0)
    for oh in range(p["oh"]):
        for ow in range(p["ow"]):
            h0, h1, w0, w1, divisor = window(p, oh, ow)
            factor = factor_of(divisor)
            grad = grads[oh * p["ow"] + ow]
            for row in range(h0, h1):
                for column in range(w0, w1):
                    total = sums[row * width + column]
                    if p["overlap"] != 0:
                        for lane in range(first, end):
                            total[lane] = total[lane] + grad[lane] * factor
                    else:
                        for lane in range(first, end):
                            total[lane] = grad[lane] * factor

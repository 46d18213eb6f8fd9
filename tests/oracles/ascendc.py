"""A driver of the Ascend C object, written from the offsets of the public kernels, and naive storage orders.

Nothing here uses the project's layouts, tilings or kernels: loops over elements, and the offsets as the drivers of
ops-nn ``conv/conv3d_backprop_filter_v2/op_kernel/arch22`` compute them for one group with separate depth taps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def ceil_div(a, b):
    return -(-a // b)


def blocked(tensor, c0):
    """NCDHW to flat NDC1HWC0, padding channels zero."""
    n, c, d, h, w = tensor.shape
    out = np.zeros((n, d, ceil_div(c, c0), h, w, c0), tensor.dtype)
    for channel in range(c):
        out[:, :, channel // c0, :, :, channel % c0] = tensor[:, channel]
    return out.reshape(-1)


def fractal_z_3d(weight, c0):
    """NCDHW weight (cout, cin, kd, kh, kw) to flat (kd, c1, kh, kw, cout rounded up to 16, c0) float32."""
    cout, cin, kd, kh, kw = weight.shape
    out = np.zeros((kd, ceil_div(cin, c0), kh, kw, ceil_div(cout, 16) * 16, c0), np.float32)
    for channel in range(cin):
        out[:, channel // c0, :, :, :cout, channel % c0] = weight[:, channel].transpose(1, 2, 3, 0)
    return out.reshape(-1)


@dataclass(frozen=True)
class Work:
    """One single shape: offsets in elements of the three tensors, extents, first row."""

    dy: int
    x: int
    dw: int
    m: int
    n: int
    k: int
    ho: int


def single_shapes(g, c0, single_m, single_n, single_k):
    """Yield every single shape of a convolution ``g`` (any object with the extents), no depth pair in the padding."""
    cin, cout_memory = ceil_div(g.cin, c0) * c0, ceil_div(g.cout, c0) * c0
    cout = ceil_div(g.cout, 16) * 16
    window = g.kh * g.kw
    m_extent, n_extent, k_extent = cout_memory, cin * window, g.ho * g.wo
    for batch in range(g.n):
        for do in range(g.do):
            for kd in range(g.kd):
                di = do * g.stride[0] - g.pad[0] + kd * g.dilation[0]
                if not 0 <= di < g.di:
                    continue
                for m0 in range(0, m_extent, single_m):
                    for n0 in range(0, n_extent, single_n):
                        for k0 in range(0, k_extent, single_k):
                            ho0 = k0 // g.wo
                            hi0 = max(0, ho0 * g.stride[1] - g.pad[2])
                            yield Work(
                                dy=((batch * g.do + do) * cout_memory + m0) * g.ho * g.wo + k0 * c0,
                                x=((batch * g.di + di) * cin + n0 // window) * g.hi * g.wi + hi0 * g.wi * c0,
                                dw=kd * cin * window * cout + n0 * cout + m0 * c0,
                                m=min(single_m, m_extent - m0),
                                n=min(single_n, n_extent - n0),
                                k=min(single_k, k_extent - k0),
                                ho=ho0,
                            )


def drive(obj, work, x, dy, dw, **get_tensor):
    """Run single shapes through an initialised object; ``get_tensor`` are arguments of GetTensorC."""
    for item in work:
        obj.SetGradOutput(dy[item.dy :])
        obj.SetInput(x[item.x :])
        obj.SetSingleShape(item.m, item.n, item.k)
        obj.SetStartPosition(item.ho)
        while obj.Iterate():
            obj.GetTensorC(dw[item.dw :], **get_tensor)
        obj.ctx.isFirstIter_ = True

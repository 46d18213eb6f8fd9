"""Random convolutions over the whole range of the operator's page, as large as time allows.

Extents to 2^20, kernels, dilations and paddings to 255, strides to 10^5: beyond what one load, or L1, holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npu_sim.units import align_up
from ops.common.geometry import ConvGeometry

LONGEST = 1 << 20
MOST_SMALL = 255
MOST_STRIDE = 100_000
FEATURES = ("row", "row", "kernel", "stride", "dilation", "pads", "column")
_CHANNELS = ((1, 1, 1), (1, 1, 8), (1, 3, 1), (1, 8, 17), (1, 20, 5), (2, 3, 2), (3, 16, 16), (17, 1, 1), (40, 1, 2))
"""Groups, input and output channels of one group."""


def _up_to(rng: np.random.Generator, most: int) -> int:
    """Draw from 1 to ``most``, every order of magnitude alike."""
    return int(np.exp(rng.uniform(0, np.log(most + 0.5))) + 0.5)


def page_geometry(
    rng: np.random.Generator, *, most_macs: int, most_elems: int = 1 << 21, allow_depth: bool = True, rank: int = 0
) -> ConvGeometry:
    """Draw a convolution of at most ``most_macs`` multiply-adds, inserted zeros, padding and merged groups included.

    Tensors have at most ``most_elems`` elements, of whole channel blocks. ``rank``: spatial axes, 0 for any.
    """
    while True:
        spatial = rank or int(rng.choice((1, 2, 2, 3) if allow_depth else (1, 2, 2)))
        geometry = _draw(rng, FEATURES[int(rng.integers(len(FEATURES)))], spatial)
        if geometry is None:
            continue
        g = geometry
        taps, blocks = g.kd * g.kh * g.kw, align_up(g.cin, 16) * align_up(g.cout // g.groups, 16)
        x, y = g.n * g.di * g.hi * g.wi, g.n * g.do * g.ho * g.wo
        largest = max(x * align_up(g.cin, 16), y * align_up(g.cout, 16), taps * blocks)
        # whoever judges takes the taps one by one
        if max(x, y) * taps * blocks <= most_macs and largest <= most_elems and taps * max(x, y) <= most_macs // 64:
            return g


def windows_of(
    size: Sequence[int], pads: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Return the windows along D, H and W, none or less where one does not fit; ``pads`` before and after each axis."""
    return [
        (size[axis] + pads[2 * axis] + pads[2 * axis + 1] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        for axis in range(3)
    ]


def _draw(rng: np.random.Generator, feature: str, spatial: int) -> ConvGeometry | None:
    size, kernel, stride, dilation = [1] * 3, [1] * 3, [1] * 3, [1] * 3
    pads = [0] * 6
    for axis in range(3 - spatial, 3):
        size[axis] = _up_to(rng, 40)
        kernel[axis] = int(rng.integers(1, 4))
        stride[axis], dilation[axis] = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        pads[2 * axis] = pads[2 * axis + 1] = int(rng.integers(0, 3))
    wide = 1 if feature == "column" and spatial > 1 else 2
    size[wide] = _up_to(rng, LONGEST)
    some = range(max(3 - spatial, 1), 3)
    if feature == "kernel":
        kernel[int(rng.choice(some))] = int(rng.integers(1, MOST_SMALL + 1))
    if feature in ("stride", "kernel"):
        for axis in some:
            stride[axis] = _up_to(rng, MOST_STRIDE if spatial < 3 else 63)
    if feature == "dilation":
        for axis in range(3 - spatial, 3):
            dilation[axis] = _up_to(rng, MOST_SMALL)
    if feature == "pads" or rng.random() < 0.2:
        for axis in some:
            pads[2 * axis] = pads[2 * axis + 1] = int(rng.integers(0, MOST_SMALL + 1))
            if spatial == 2:
                pads[2 * axis + 1] = int(rng.integers(0, MOST_SMALL + 1))
    out = windows_of(size, pads, kernel, stride, dilation)
    if min(out) < 1:
        return None
    groups, cin, cout = _CHANNELS[int(rng.integers(len(_CHANNELS)))]
    return ConvGeometry(
        n=int(rng.integers(1, 3)), cin=cin * groups, cout=cout * groups, groups=groups, di=size[0], hi=size[1],
        wi=size[2], do=out[0], ho=out[1], wo=out[2], kd=kernel[0], kh=kernel[1], kw=kernel[2],
        stride=(stride[0], stride[1], stride[2]),
        pad=(pads[0], pads[1], pads[2], pads[3], pads[4], pads[5]),
        dilation=(dilation[0], dilation[1], dilation[2]), spatial_rank=spatial,
    )  # fmt: skip

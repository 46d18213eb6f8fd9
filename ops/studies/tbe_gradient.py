"""Weight gradients by the TBE DSL, as studies call it."""

from __future__ import annotations

import numpy as np

from ops.studies.kinds import Asked, Call, Run, Tensors
from ops.studies.layers import Layer


def in_three_axes(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """Return one entry for each of depth, height and width, of entries for the last axes."""
    return (*(fill,) * (3 - len(values)), *values)


def paired(padding: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Return (front, back, top, bottom, left, right)."""
    pads = padding if len(padding) == 2 * axes else tuple(pad for pad in padding for _ in range(2))
    return (0,) * (6 - len(pads)) + tuple(pads)


def in_five_axes(tensor: np.ndarray) -> np.ndarray:
    """Return a tensor of a 1D or 2D convolution as NCDHW, the axes it lacks being 1."""
    n, c, *spatial = tensor.shape
    return tensor.reshape(n, c, *in_three_axes(tuple(spatial), 1))


def _run(layer: Layer, tensors: Tensors, asked: Asked) -> Run:
    # imported here: they load the compiler, which reading a file does not need
    from npu_sim.accumulation import default_accumulation
    from npu_sim.products import use_product
    from ops import tbe

    x, dy = (in_five_axes(tensors[name]) for name in (("dy", "x") if layer.transposed else ("x", "dy")))
    cout, cin_group, *taps = layer.weight_shape
    kernel = in_three_axes(tuple(taps), 1)
    with use_product(asked.product):
        group = tbe.calculate_group(x.shape[1], cout, layer.groups)
        one, other = (
            tbe.tvm.placeholder((n, d, -(-c // 16), h, w, 16), tensor.dtype, name)
            for name, tensor in (("x", x), ("dy", dy))
            for n, c, d, h, w in (tensor.shape,)
        )
        depth, height, width = in_three_axes(layer.dilation, 1)
        result = tbe.conv3d_backprop_filter(
            one,
            other,
            [cout, kernel[0], cin_group, *kernel[1:]],
            {
                "strides": list(in_three_axes(layer.stride, 1)),
                "pads": list(paired(layer.padding, len(layer.stride))),
                "dilations": [1, depth, 1, height, width],
                "group_dict": group,
            },
        )
        feed = {"x": tbe.to_6hd(x), "dy": tbe.to_6hd(dy)}
        made = result.run(feed, accumulation=asked.accumulation, threads=asked.threads)
    gradient = tbe.gradient_from_result(made, group, layer.groups, kernel)
    return Run(
        gradient=gradient.reshape(layer.weight_shape),
        compute_dtype="fp16",
        accumulation=asked.accumulation or default_accumulation(asked.chip, "fp16").name,
        tiling=result.plan.tiling.origin,
    )


TBE_WEIGHT_GRADIENT = Call(words="call of the TBE DSL's conv3d_backprop_filter", has_modes=False, run=_run)

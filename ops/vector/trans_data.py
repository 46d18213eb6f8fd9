"""TransData launches: between row-major tensors and the blocked formats, on the vector cores.

The kernels only move bits, so what they leave in GM is what `npu_sim.layouts.transform` computes, and that is their
shortcut.
"""

from __future__ import annotations

import numpy as np

from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.layouts.transform import Transform
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import InputPlace, Launch, Shortcut
from ops.vector import kernel_trans_data_activation, kernel_trans_data_lines, kernel_trans_data_weight
from ops.vector.frame import vector_launch
from ops.vector.trans_data_plan import (
    ActivationDirection,
    WeightDirection,
    activation_commands,
    activation_params,
    weight_commands,
    weight_params,
)

NAME = "TransData"


def _shortcut(
    src: GmTensor, dst: GmTensor, layout: ActivationLayout | WeightLayout, item_bytes: int, forward: bool
) -> Shortcut:
    """Return a shortcut that transforms in memory; ``forward``: ``dst`` is the blocked one. Sizes were checked."""
    words = np.dtype(f"u{item_bytes}")
    transform = Transform(layout, to_blocked=forward)

    def shortcut(memory: GlobalMemory, saturate: bool, threads: int) -> None:
        transform.run(memory.bytes_of(src).view(words), memory.bytes_of(dst).view(words), threads)

    return shortcut


def _inputs(forward: bool) -> InputPlace:
    """Return where the source is: a kernel of the Cube has just written a blocked one."""
    return "unknown" if forward else "l2"


def trans_data_activation_launch(
    gm: GlobalMemory,
    src: GmTensor,
    dst: GmTensor,
    layout: ActivationLayout,
    item_bytes: int,
    direction: ActivationDirection,
    product: Product,
) -> Launch:
    """Return the TransData launch of a feature map.

    Parameters
    ----------
    src, dst : GmTensor
        "to_blocked": NCHW or NCDHW to NC1HWC0 or NDC1HWC0 (channels that do not exist become 0); "from_blocked": back.
    layout : ActivationLayout
        Shape and C0: 16, or 8 for 32-bit elements where the product transposes them.
    item_bytes : int
        2 or 4; the bits are not interpreted.
    direction : {"to_blocked", "from_blocked"}
        Which tensor is blocked.

    Raises
    ------
    LayoutError
        Element width or C0 is not supported.
    ShapeError
        The tensor is empty, or the size of ``src`` or ``dst`` is not the layout's.
    """
    params = activation_params(src, dst, layout, item_bytes, direction, product)
    forward, kernel = direction == "to_blocked", kernel_trans_data_activation
    return vector_launch(
        NAME, kernel.to_blocked if forward else kernel.from_blocked, params, gm, kernel.SITES, fixed_cost="trans_data",
        inputs=_inputs(forward),
        list_commands=activation_commands(layout, item_bytes, direction, product),
        shortcut=_shortcut(src, dst, layout, item_bytes, forward),
    )  # fmt: skip


def trans_data_weight_launch(
    gm: GlobalMemory,
    src: GmTensor,
    dst: GmTensor,
    layout: WeightLayout,
    item_bytes: int,
    direction: WeightDirection,
    product: Product,
) -> Launch:
    """Return the TransData launch of a weight or of its gradient.

    Parameters
    ----------
    src, dst : GmTensor
        "to_fractal": NCHW or NCDHW to FRACTAL_Z or FRACTAL_Z_3D (padding, and what couples different groups, becomes
        0); "from_fractal": back (both are ignored).
    layout : WeightLayout
        Shape, groups and C0: 16, or 8 for 32-bit elements.
    gm, item_bytes, direction, product
        As of `trans_data_activation_launch`.

    Raises
    ------
    LayoutError
        Element width or C0 is not supported.
    ShapeError
        The size of ``src`` or ``dst`` is not the layout's.
    """
    params = weight_params(src, dst, layout, item_bytes, direction, product)
    forward, kernel = direction == "to_fractal", kernel_trans_data_weight
    return vector_launch(
        NAME, kernel.to_fractal if forward else kernel.from_fractal, params, gm, kernel_trans_data_lines.SITES,
        step_rows=kernel.STEP_ROWS, fixed_cost="trans_data", inputs=_inputs(forward),
        list_commands=weight_commands(layout, item_bytes),
        shortcut=_shortcut(src, dst, layout, item_bytes, forward),
    )  # fmt: skip

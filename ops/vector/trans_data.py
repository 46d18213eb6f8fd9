"""TransData launches: between row-major tensors and the blocked formats, on the vector cores.

The kernels only move bits, so what they leave in GM is what `npu_sim.layouts.transform` computes, and that is their
shortcut.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from npu_sim.layouts import transform
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch, Shortcut
from ops.vector import kernel_trans_data_activation, kernel_trans_data_lines, kernel_trans_data_weight
from ops.vector.frame import vector_launch
from ops.vector.trans_data_plan import (
    ActivationDirection,
    WeightDirection,
    activation_params,
    weight_params,
)

NAME = "TransData"

_Move = Callable[[np.ndarray, np.ndarray, int], None]


def _shortcut(
    src: GmTensor,
    dst: GmTensor,
    src_shape: tuple[int, ...],
    dst_shape: tuple[int, ...],
    item_bytes: int,
    move: _Move,
) -> Shortcut:
    """Return a shortcut that hands views of the arena to ``move(source, out, threads)``."""
    words = np.dtype(f"u{item_bytes}")

    def view(arena: npt.NDArray[np.uint8], tensor: GmTensor, shape: tuple[int, ...]) -> np.ndarray:
        return arena[tensor.address : tensor.address + tensor.byte_count].view(words).reshape(shape)

    def shortcut(arena: npt.NDArray[np.uint8], saturate: bool, threads: int) -> None:
        move(view(arena, src, src_shape), view(arena, dst, dst_shape), threads)

    return shortcut


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
    gm : GlobalMemory
        Holds both tensors.
    src, dst : GmTensor
        "to_blocked": NCHW or NCDHW to NC1HWC0 or NDC1HWC0 (channels that do not exist become 0); "from_blocked": back.
    layout : ActivationLayout
        Shape and C0: 16, or 8 for 32-bit elements where the product transposes them.
    item_bytes : int
        2 or 4; the bits are not interpreted.
    direction : {"to_blocked", "from_blocked"}
        Which tensor is blocked.
    product : Product
        Where it runs.

    Raises
    ------
    LayoutError
        Element width or C0 is not supported.
    ShapeError
        The tensor is empty, or the size of ``src`` or ``dst`` is not the layout's.
    """
    params = activation_params(src, dst, layout, item_bytes, direction, product)
    plain, blocked = layout.logical_shape, (layout.storage_elems,)

    def to_blocked(source: np.ndarray, out: np.ndarray, threads: int) -> None:
        transform.blocked_from_activation(source, layout, out, threads=threads)

    def from_blocked(source: np.ndarray, out: np.ndarray, threads: int) -> None:
        transform.activation_from_blocked(source, layout, out, threads=threads)

    forward = direction == "to_blocked"
    kernel = kernel_trans_data_activation
    return vector_launch(
        NAME,
        kernel.to_blocked if forward else kernel.from_blocked,
        params,
        gm,
        core_count=int(params[0]["cores"]),
        sites=kernel.SITES,
        step_rows=int(params[0]["step_rows"]),
        shortcut=_shortcut(src, dst, plain, blocked, item_bytes, to_blocked)
        if forward
        else _shortcut(src, dst, blocked, plain, item_bytes, from_blocked),
    )


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
    gm : GlobalMemory
        Holds both tensors.
    src, dst : GmTensor
        "to_fractal": NCHW or NCDHW to FRACTAL_Z or FRACTAL_Z_3D (padding, and what couples different groups, becomes
        0); "from_fractal": back (both are ignored).
    layout : WeightLayout
        Shape, groups and C0: 16, or 8 for 32-bit elements.
    item_bytes : int
        2 or 4; the bits are not interpreted.
    direction : {"to_fractal", "from_fractal"}
        Which tensor is blocked.
    product : Product
        Where it runs.

    Raises
    ------
    LayoutError
        Element width or C0 is not supported.
    ShapeError
        The size of ``src`` or ``dst`` is not the layout's.
    """
    params = weight_params(src, dst, layout, item_bytes, direction, product)
    plain, blocked = layout.logical_shape, (layout.storage_elems,)

    def to_fractal(source: np.ndarray, out: np.ndarray, threads: int) -> None:
        transform.fractal_from_weight(source, layout, out, threads=threads)

    def from_fractal(source: np.ndarray, out: np.ndarray, threads: int) -> None:
        transform.weight_from_fractal(source, layout, out, threads=threads)

    forward = direction == "to_fractal"
    kernel = kernel_trans_data_weight
    return vector_launch(
        NAME,
        kernel.to_fractal if forward else kernel.from_fractal,
        params,
        gm,
        core_count=int(params[0]["cores"]),
        sites=kernel_trans_data_lines.SITES,
        step_rows=kernel.STEP_ROWS,
        shortcut=_shortcut(src, dst, plain, blocked, item_bytes, to_fractal)
        if forward
        else _shortcut(src, dst, blocked, plain, item_bytes, from_fractal),
    )

"""TransData launches between FRACTAL_Z as of one group and FRACTAL_Z with merged groups, on split cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from npu_sim.errors import LayoutError, ShapeError
from npu_sim.isa.op import Data
from npu_sim.layouts.formats import WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, ceil_div
from ops.common.records import int_fields, record, tensor_fields
from ops.vector import bulk_trans_data_groups as bulk
from ops.vector import kernel_trans_data_groups as kernel
from ops.vector.frame import usable_ub_bytes, vector_launch
from ops.vector.kernel_trans_data_groups import LANES

GroupDirection = Literal["to_groups", "from_groups"]
_REGIONS = ("first_in", "second_in", "first_turned", "second_turned", "joined", "out", "moved")
"""Buffers in UB, equal shares of it."""
PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "c", "c0", "row", "count", "mag", "kd", "taps", "blocks",
    "rows", "merged_blocks", "merged_rows", "cores", "shares", "share", "axis", "inner", "piece", "cleared", *_REGIONS,
)  # fmt: skip
"""What the kernels read: addresses and lengths (``row``, ``cleared``) in bytes, extents in elements. ``c``, ``count``:
input and output channels of a small group; ``blocks``, ``rows``: of the tensor as of one group. Tasks are shared out
along an ``axis`` in ``shares`` of at most ``share``, with ``inner`` tasks to each step of it; ``piece``: rows at a
time; ``cleared``: bytes of the input buffers that are cleared first."""
_COMMANDS = 6
"""Of a task: load, turn, clear, copy, turn back, store (CANN 8.1 ``trans_data_groups.py``)."""


def whole_layout(layout: WeightLayout) -> WeightLayout:
    """Return ``layout`` as if of one group: all output channels, the input channels of one group."""
    return replace(layout, groups=1)


def trans_data_groups_launch(
    gm: GlobalMemory,
    src: GmTensor,
    dst: GmTensor,
    layout: WeightLayout,
    item_bytes: int,
    direction: GroupDirection,
    product: Product,
) -> Launch:
    """Return the launch between `whole_layout` and ``layout``; what it leaves alone of ``dst`` must be zero.

    Parameters
    ----------
    src, dst : GmTensor
        "to_groups": from `whole_layout` to ``layout``; "from_groups": back. What a merged group has beside the channels
        of the small groups on its diagonal goes to padding channels, or nowhere.
    layout : WeightLayout
        Shape, groups and C0.
    item_bytes : int
        2 or 4; the bits are not interpreted.
    direction : {"to_groups", "from_groups"}
        Which tensor has merged groups.

    Raises
    ------
    LayoutError
        Rows of C0 elements are not whole blocks.
    ShapeError
        The size of ``src`` or ``dst`` is not the layout's.
    """
    row = layout.c0 * item_bytes
    if item_bytes not in (2, 4) or row % BLOCK_BYTES:
        raise LayoutError(
            f"Rows of C0 elements must be blocks of {BLOCK_BYTES} bytes, not {layout.c0} elements of {item_bytes} "
            f"bytes ({product.name})"
        )
    whole = whole_layout(layout)
    forward = direction == "to_groups"
    for tensor, stored in ((src, whole if forward else layout), (dst, layout if forward else whole)):
        if tensor.byte_count != stored.storage_bytes(item_bytes):
            wanted = stored.storage_bytes(item_bytes)
            raise ShapeError(f"Tensor {tensor.name} must have {wanted} bytes, not {tensor.byte_count}")
    taps = layout.kh * layout.kw
    region = usable_ub_bytes(product) // len(_REGIONS) // (LANES * BLOCK_BYTES) * LANES * BLOCK_BYTES
    count = layout.cout_per_group
    if forward:
        # columns of an odd count of 16 rows; at most 255 repeats of a transposition
        most = min(region // row // LANES, 255)
        piece = min(count, (most - 1 + most % 2) * LANES)
        cleared = region + int(kernel.odd_lines(piece)) * row
        axes: tuple[int, ...] = (layout.groups, layout.kd, whole.cin1_g, taps)
    else:
        piece = min(count, region // (LANES * 2 * row))
        cleared = 0
        axes = (layout.groups, layout.kd, whole.cin1_g)
    values = {
        **tensor_fields(src=src, dst=dst), "data": int(Data.FP16), "item": item_bytes, "c": layout.cin_per_group,
        "c0": layout.c0, "row": row, "count": count, "mag": layout.mag, "kd": layout.kd, "taps": taps,
        "blocks": whole.cin1_g, "rows": whole.cout_g, "merged_blocks": layout.cin1_g, "merged_rows": layout.cout_g,
        **_shares(axes, product.vector_core_count), "piece": piece, "cleared": cleared,
        **{name: number * region for number, name in enumerate(_REGIONS)},
    }  # fmt: skip
    params, words = record(PARAMS, values), np.dtype(f"u{item_bytes}")

    def shortcut(memory: GlobalMemory, saturate: bool, threads: int) -> None:
        move = bulk.to_groups if forward else bulk.from_groups
        move(memory.bytes_of(src).view(words), memory.bytes_of(dst).view(words), params, layout.groups)

    return vector_launch(
        "TransData", kernel.to_groups if forward else kernel.from_groups, params, gm, kernel.SITES,
        step_rows=3 * kernel.STEP_ROWS, fixed_cost="trans_data", inputs="l2",
        list_commands=1000 * _COMMANDS * BLOCK_BYTES // (2 * row), shortcut=shortcut,
    )  # fmt: skip


def _shares(axes: tuple[int, ...], cores: int) -> dict[str, int]:
    """Return how tasks are shared out: along the outermost axis that gives every core one, else the innermost.

    ASSUMED: the kernel has a mode for each axis; which is chosen is not published.
    """
    outer, inner = 1, 1
    for extent in axes:
        inner *= extent
    for number, extent in enumerate(axes):
        inner //= extent
        if outer * extent >= cores or number == len(axes) - 1:
            break
        outer *= extent
    share = ceil_div(extent, max(cores // outer, 1))
    shares = ceil_div(extent, share)
    return {"cores": outer * shares, "shares": shares, "share": share, "axis": extent, "inner": inner}

"""Which part of dY and of X one stretch of work reads: all of both, some columns, or the pixels of one tap.

A kernel that cannot take whole rows of X to L1, or whose image-to-column load cannot encode the window, sums over
parts: dW is a sum over output positions, so any part of them with its own window of X is one more round of the same
loop. Padding exists at the true borders only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.emit import set_feature_map, set_window
from ops.common.kernel_parts import ceil_div, core_share


class Part(NamedTuple):
    """A part of one depth plane of dY and of X; distances and places in pixels.

    Attributes
    ----------
    pixels : int
        Of dY; not positive where the part reads nothing but padding.
    wo, hi, wi, pad_left, pad_right : int
        Columns of dY, rows and columns of X and its padding, as image-to-column sees them.
    dy_first, dy_columns, dy_row : int
        Where dY's part begins in its plane, its columns there, and from row to row.
    x_first, x_columns, x_row, x_column : int
        The same of X, and from column to column.
    """

    pixels: int
    wo: int
    hi: int
    wi: int
    pad_left: int
    pad_right: int
    dy_first: int
    dy_columns: int
    dy_row: int
    x_first: int
    x_columns: int
    x_row: int
    x_column: int


@jit
def set_img2col(rows: np.ndarray, n: Int, p: Any, part: Any, x_rows: Int, pad_top: Int) -> None:
    """Fill row ``n`` for a load3d from ``x_rows`` rows of a part in L1, below ``pad_top`` rows of padding.

    ``part`` is a `Part`, or has its fields. An image of one column is the same bytes as one of one row, which the load
    reads faster and every product has.
    """
    l1_h, l1_w = (1, x_rows) if p.tap_by_tap else (x_rows, part.wi)
    set_feature_map(
        rows, n, l1_h=l1_h, l1_w=l1_w, pad_left=part.pad_left, pad_right=part.pad_right, pad_top=pad_top,
        pad_bottom=p.pad_down,
    )  # fmt: skip
    set_window(
        rows, n, stride_w=p.stride_w, stride_h=p.stride_h, filter_w=p.wk, filter_h=p.hk, dilation_w=p.dilation_w,
        dilation_h=p.dilation_h,
    )  # fmt: skip


@jit
def whole_maps(p: Any) -> Part:
    """Return all of dY and X."""
    return Part(p.ho * p.wo, p.wo, p.hi, p.wi, p.pad_left, p.pad_right, 0, p.wo, p.wo, 0, p.wi, p.wi, 1)


@jit
def _columns(p: Any, number: Int) -> Part:
    """Return part ``number`` of ``p.w_parts`` of dY's columns, and the columns of X under their windows."""
    first, end = core_share(p.wo, p.w_parts, number)
    left = first * p.stride_w - p.pad_left
    right = (end - 1) * p.stride_w - p.pad_left + (p.wk - 1) * p.dilation_w + 1
    inside, behind = max(left, 0), min(right, p.wi)
    wo, wi = end - first, behind - inside
    pixels = p.ho * wo if wi > 0 else 0
    return Part(pixels, wo, p.hi, wi, inside - left, right - behind, first, wo, p.wo, inside, wi, p.wi, 1)


@jit
def _served(extent: Int, out: Int, stride: Int, lead: Int) -> Any:
    """Return the outputs [first, end) whose input ``i * stride - lead`` lies in an axis of ``extent``."""
    return ceil_div(max(lead, 0), stride), min(out, (extent - 1 + lead) // stride + 1)


@jit
def _pixels_of_tap(p: Any, number: Int) -> Part:
    """Return the pixels of dY that tap ``number`` of the window multiplies, and those of X.

    In L1 both lie dense: images of one column under a window of 1 x 1.
    """
    i, j = divmod(number, p.taps_w)
    lead_h, lead_w = p.tap_pad_h - i * p.tap_dilation_h, p.tap_pad_w - j * p.tap_dilation_w
    top, bottom = _served(p.hi, p.ho, p.tap_stride_h, lead_h)
    left, right = _served(p.wi, p.wo, p.tap_stride_w, lead_w)
    columns = right - left
    pixels = max(bottom - top, 0) * max(columns, 0)
    x = (top * p.tap_stride_h - lead_h) * p.wi + left * p.tap_stride_w - lead_w
    return Part(
        pixels, 1, pixels, 1, 0, 0, top * p.wo + left, columns, p.wo, x, columns, p.tap_stride_h * p.wi, p.tap_stride_w
    )


@jit
def part_of(p: Any, number: Int, tap: Int) -> Part:
    """Return part ``number``, or the part of tap ``tap``, as the tiling in ``p`` has it."""
    if p.tap_by_tap:
        return _pixels_of_tap(p, tap)
    if p.w_parts > 1:
        return _columns(p, number)
    return whole_maps(p)

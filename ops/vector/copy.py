"""The launch of a strided copy: Contiguous, ViewCopy and Slice.

Axes that are adjacent in memory on both sides are merged; elements that lie side by side in both views are a *run*.
Rows of one run each go through UB, as many at a time as half of it holds. A run of less than 32 bytes (a transposed
view) is a short row with DataCopyPad, and moves by the scalar unit on unified cores; the launch is then called
"Copy (scalar moves)".

ASSUMED, because the library's own schedules are closed: how rows are grouped and shared out. Values never change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from npu_sim.errors import ShapeError
from npu_sim.isa.op import Data
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import FixedCost, Launch
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.kernel_parts import MAX_BLOCK_COUNT
from ops.common.view import View, shares_places
from ops.vector import kernel_copy
from ops.vector.frame import cores_for, has_byte_copies, usable_ub_bytes, vector_launch

MAX_RANK = 8
_LEAST_PIECE_BYTES = 512
"""Rows are not cut finer to occupy more cores."""
_ROWS_WITH_TAILS = 64
"""Rows at a time whose ends are put together by scalar moves: each takes 32 bytes of UB for that."""
_STAGED_ELEMS = 1024
"""Elements the scalar unit gathers before they are stored."""

_FIELDS = (
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "scalar", "pads", "dense", "may_spill",
    "run", "rows", "row_src", "row_dst", "group", "groups", "piece", "pieces", "tasks", "unit", "cores", "half",
    "slots", "slots_per_half", "step_rows", "rank",
)  # fmt: skip
_AXES = ("extents", "src_strides", "dst_strides")
COPY_PARAMS = np.dtype([*((name, "i8") for name in _FIELDS), *((name, "i8", (MAX_RANK,)) for name in _AXES)])
"""What `kernel_copy` reads: places, ``run``, ``piece`` and strides in bytes, the axes outside a row."""

_DATA = {1: Data.INT8, 2: Data.INT16, 4: Data.INT32, 8: Data.INT32}
"""Element types that stand for raw bytes; eight bytes are two words."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a copy after merging: extent, and strides on both sides in elements."""

    extent: int
    src: int
    dst: int


def merged_axes(src: View, dst: View) -> list[Axis]:
    """Return the axes of extent above 1, longest destination stride first, neighbours in memory merged."""
    axes = [Axis(extent, a, b) for extent, a, b in zip(src.shape, src.strides, dst.strides, strict=True) if extent != 1]
    axes.sort(key=lambda axis: -axis.dst)
    out: list[Axis] = []
    for axis in axes:
        outer = out[-1] if out else None
        if outer and outer.src == axis.extent * axis.src and outer.dst == axis.extent * axis.dst:
            out[-1] = Axis(outer.extent * axis.extent, axis.src, axis.dst)
        else:
            out.append(axis)
    return out


def _permutes(axes: list[Axis]) -> bool:
    """Return whether the axes of the source come in another order."""
    return any(outer.src < inner.src for outer, inner in pairwise(axes))


def _check(src: GmTensor, src_view: View, dst: GmTensor, dst_view: View, item_bytes: int, axes: list[Axis]) -> None:
    if src_view.shape != dst_view.shape:
        raise ShapeError(f"dst_view must have the shape {src_view.shape} of src_view, not {dst_view.shape} (Copy)")
    if item_bytes not in _DATA:
        raise ShapeError(f"item_bytes must be one of 1, 2, 4, 8, not {item_bytes} (Copy)")
    for tensor, view in ((src, src_view), (dst, dst_view)):
        if view.end * item_bytes > tensor.byte_count:
            rule = f"within the {tensor.byte_count} bytes of {tensor.name}"
            raise ShapeError(f"view must lie {rule}, not reach to byte {view.end * item_bytes} (Copy)")
    if shares_places(dst_view.shape, dst_view.strides):
        raise ShapeError(f"dst_view must hold each element in a place of its own, not {dst_view} (Copy)")
    if len(axes) > MAX_RANK:
        raise ShapeError(f"views must have at most {MAX_RANK} axes after merging, not {len(axes)} (Copy)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """How rows are cut into tasks.

    Attributes
    ----------
    group : int
        Rows of a task.
    piece : int
        Bytes of a task's rows: the run, or less where a row is cut.
    pieces : int
        Tasks of one row.
    """

    group: int
    piece: int
    pieces: int


def plan_rows(run: int, rows: int, outer: int, half: int, cores: int, most_rows: int) -> RowPlan:
    """Choose tasks for ``outer`` times ``rows`` rows of ``run`` bytes.

    As many rows as ``half`` bytes of UB hold, fewer if cores would be left without work, from the first or in the last
    round of tasks; a row is cut if it is longer than that or if there are fewer rows than cores. No piece is shorter
    than 32 bytes, unless the row is.
    """
    pitch = align_up(run, BLOCK_BYTES)
    longest = half - BLOCK_BYTES
    if rows * outer < cores:
        share = align_up(ceil_div(run, ceil_div(cores, rows * outer)), BLOCK_BYTES)
        longest = min(longest, max(share, _LEAST_PIECE_BYTES))
    if run > longest:
        return RowPlan(group=1, piece=longest, pieces=max((run - BLOCK_BYTES) // longest + 1, 1))
    group = min(rows, half // pitch, most_rows)
    if outer * ceil_div(rows, group) < cores:
        group = max(ceil_div(rows, ceil_div(cores, outer)), 1)
    else:
        rounds = ceil_div(outer * ceil_div(rows, group), cores)
        group = min(group, ceil_div(rows, max(rounds * cores // outer, 1)))
    return RowPlan(group=group, piece=run, pieces=1)


def copy_launch(
    gm: GlobalMemory,
    src: GmTensor,
    src_view: View,
    dst: GmTensor,
    dst_view: View,
    item_bytes: int,
    product: Product,
    *,
    fixed_cost: FixedCost = "vector",
) -> Launch:
    """Return the launch that copies one view into another, element by element; other bytes of ``dst`` stay.

    Parameters
    ----------
    src, dst : GmTensor
        Storage.
    src_view, dst_view : View
        Of one shape. Elements of the source may coincide (stride 0), those of the destination may not.
    item_bytes : {1, 2, 4, 8}
        Bytes of an element.
    fixed_cost : str
        What the library's kernel of the copy takes beside its rows (`Launch.fixed_cost`); runs of less than 32 bytes
        whose axes change places are a Transpose anyway.

    Raises
    ------
    ShapeError
        A view does not fit its tensor, shapes differ, or elements of the destination coincide.
    """
    is_copy = len(src_view.shape) == len(dst_view.shape) and dst_view.elems > 0
    axes = merged_axes(src_view, dst_view) if is_copy else []
    _check(src, src_view, dst, dst_view, item_bytes, axes)
    elems = dst_view.elems
    values: dict[str, int] = dict.fromkeys(_FIELDS, 0)
    values |= {
        "src": src.address + src_view.offset * item_bytes, "dst": dst.address + dst_view.offset * item_bytes,
        "src_tensor": src.index, "dst_tensor": dst.index, "data": int(_DATA[item_bytes]), "item": item_bytes,
        "scalar": min(item_bytes, 4), "pads": int(has_byte_copies(product)),
        "dense": int(dst_view.end - dst_view.offset == elems),
        "may_spill": int(dst_view.end * item_bytes == dst.byte_count),
    }  # fmt: skip
    run = 1
    outer = list(axes)
    if axes and axes[-1].src == axes[-1].dst == 1:
        run = outer.pop().extent
    by_scalars = not values["pads"] and run * item_bytes < BLOCK_BYTES
    if by_scalars:
        _plan_scalars(values, elems, item_bytes, product)
        outer = axes
    else:
        outer = _plan_rows(values, outer, run * item_bytes, elems, item_bytes, product)
    params = np.zeros(1, COPY_PARAMS)
    for name, value in (*values.items(), ("rank", len(outer))):
        params[name] = value
    for i, axis in enumerate(outer):
        params["extents"][0, i] = axis.extent
        params["src_strides"][0, i] = axis.src * item_bytes
        params["dst_strides"][0, i] = axis.dst * item_bytes
    by_elements = kernel_copy.copy_staged if values["dense"] else kernel_copy.copy_elements
    kernel = by_elements if by_scalars else kernel_copy.copy_rows
    return vector_launch(
        "Copy (scalar moves)" if by_scalars else "Copy", kernel, params, gm, kernel_copy.SITES, inputs="unknown",
        fixed_cost="transpose" if run * item_bytes < BLOCK_BYTES and _permutes(axes) else fixed_cost,
        shortcut=partial(_copy_all, src, src_view, dst, dst_view, item_bytes),
    )  # fmt: skip


def _plan_scalars(values: dict[str, int], elems: int, item_bytes: int, product: Product) -> None:
    """Fill in the tasks of `kernel_copy.copy_elements` and `copy_staged`."""
    if elems * item_bytes < BLOCK_BYTES and not values["may_spill"]:
        values["dense"] = 0
    unit = _LEAST_PIECE_BYTES // item_bytes if values["dense"] else 1
    moves = item_bytes // values["scalar"]
    values |= {
        "tasks": elems, "unit": unit, "cores": cores_for(product, elems // unit), "group": _STAGED_ELEMS,
        "half": _STAGED_ELEMS * item_bytes, "slots": 2 * _STAGED_ELEMS * item_bytes,
        "step_rows": 32 + 2 * moves + BLOCK_BYTES // values["scalar"],
    }  # fmt: skip


def _plan_rows(
    values: dict[str, int], outer: list[Axis], run: int, elems: int, item_bytes: int, product: Product
) -> list[Axis]:
    """Fill in the tasks of `kernel_copy.copy_rows`; return the axes outside a task."""
    row = Axis(1, 0, 0)
    if outer and values["pads"]:
        # any axis can be the rows of a task, best the longest one that a single copy takes
        best = max(range(len(outer)), key=lambda i: (outer[i].src * item_bytes >= run, outer[i].extent, i))
        row = outer.pop(best)
    elif outer:
        row = outer.pop()
    has_tails = not values["pads"] and not values["dense"] and run % BLOCK_BYTES != 0
    slots = _ROWS_WITH_TAILS if has_tails else 1
    half = (usable_ub_bytes(product) // 2 - slots * BLOCK_BYTES) // BLOCK_BYTES * BLOCK_BYTES
    outside = math.prod(axis.extent for axis in outer)
    cores = product.vector_core_count
    most_rows = _ROWS_WITH_TAILS if has_tails else MAX_BLOCK_COUNT
    rows = row.extent if elems else 0
    plan = plan_rows(run, max(rows, 1), max(outside, 1), half, cores, most_rows)
    groups = ceil_div(rows, plan.group)
    tasks = outside * groups * plan.pieces
    tail_moves = BLOCK_BYTES // values["scalar"] + 1
    values |= {
        "run": run, "rows": rows, "row_src": row.src * item_bytes, "row_dst": row.dst * item_bytes,
        "group": plan.group, "groups": groups, "piece": plan.piece, "pieces": plan.pieces, "tasks": tasks,
        "cores": cores_for(product, tasks), "half": half, "slots": 2 * half, "slots_per_half": slots,
        "step_rows": 32 + 2 * plan.group + tail_moves * min(plan.group, slots),
    }  # fmt: skip
    return outer


def _copy_all(
    src: GmTensor,
    src_view: View,
    dst: GmTensor,
    dst_view: View,
    item_bytes: int,
    memory: GlobalMemory,
    saturate: bool,
    threads: int,
) -> None:
    """Copy with NumPy; nothing saturates, and one thread moves bytes as fast as memory takes them."""
    code = np.dtype(f"u{item_bytes}")
    if dst_view.elems == 0:
        return
    source = memory.bytes_of(src)[: src.byte_count // item_bytes * item_bytes].view(code)
    target = memory.bytes_of(dst)[: dst.byte_count // item_bytes * item_bytes].view(code)
    np.copyto(dst_view.of(target), src_view.of(source))

"""The ReduceSum launch: sums over axes 0 and 2 of [n][c][r], the bias gradient of a convolution.

Definition of the bits, the same on every product and core count. Per channel ``width`` float32 accumulators, ``width``
= the smallest of 64, 128, .., 2048 that is not below r (2048 if there is none), start at +0. For every n in ascending
order and every piece of ``width`` consecutive values of the row, in ascending order, value i is added to accumulator i.
Then the upper half is added to the lower half until 64 are left, and these are added as a binary tree of neighbours
(ReduceRepeat). The sum is rounded once to the type of the input, ties to even. All additions are float32.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (Add, ReduceRepeat: tree of neighbours). ASSUMED, because the library's own
schedule is closed: everything else; no channel is split over cores. float32 sums on 910 exist by its platform file,
where the documentation lists half only.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from npu_sim.crew import run_parts
from npu_sim.dtypes.convert import CAST_MODES, check_cast
from npu_sim.dtypes.formats import DTYPES, RoundMode
from npu_sim.errors import DTypeError, ShapeError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.records import int_fields, record, tensor_fields
from ops.vector import kernel_reduce_rows, kernel_reduce_sum
from ops.vector.bulk_reduce_sum import sum_channels
from ops.vector.frame import block_elems, cores_for, has_byte_copies, usable_ub_bytes, vector_launch

FLOATS = ("fp32", "fp16", "bf16")
MAX_LANES = 2048
_BULK_ELEMS = 1 << 16
"""Elements that are worth a host thread."""

REDUCE_SUM_PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "n", "c", "r", "width", "tiles", "unit", "group", "cores",
    "pads", "input", "input_half", "wide", "fold", "sums", "out", "round_mode",
)  # fmt: skip
"""What `kernel_reduce_sum` reads: extents in elements, places and ``input_half`` in bytes."""

REDUCE_ROWS_PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "n", "c", "pads", "round_mode", "share", "cores", "batch",
    "piece", "wide", "out", "input", "input_half",
)  # fmt: skip
"""What `kernel_reduce_rows` reads: extents in elements, places and ``input_half`` in bytes."""


def accumulator_lanes(r: int) -> int:
    """Return the float32 accumulators of one channel of ``r`` values per batch item."""
    width = kernel_reduce_sum.LANES
    while width < min(r, MAX_LANES):
        width *= 2
    return width


def _places(group: int, unit: int, width: int, item: int) -> dict[str, int]:
    """Return where the buffers lie in UB, and the end of the last one, in bytes."""
    tile = group * width
    folds = unit * kernel_reduce_sum.LANES * 4 if width > kernel_reduce_sum.LANES else 0
    sizes = {
        "acc": tile * 4,
        "input": 2 * tile * item,
        "wide": tile * 4 if item < 4 else 0,
        "fold": folds,
        "sums": 2 * align_up(unit * 4, BLOCK_BYTES),
        "out": 2 * BLOCK_BYTES,
    }
    at = 0
    places = {}
    for name, size in sizes.items():
        places[name] = at
        at += size
    if not folds:
        places["fold"] = places["acc"]
    return {**places, "end": at}


def _unit(c: int, item: int, product: Product) -> int:
    """Return the channels that are stored together: a block of 32 bytes, or less where that leaves cores idle.

    Less needs stores of single bytes. Profiled sums of 64 and 256 channels take 2 and 6 on a core, 32 and 43 of 48.
    """
    block = block_elems(item)
    if not has_byte_copies(product):
        return block
    share = max(ceil_div(c, product.vector_core_count), 1)
    return ceil_div(share, ceil_div(share, block))


def _round_mode(dtype: str, product: Product) -> RoundMode:
    """Return the mode that rounds the sums; refuse types the product's vector unit cannot convert both ways."""
    if dtype == "fp32":
        return RoundMode.NONE
    check_cast(dtype, "fp32", RoundMode.NONE, product.arch)
    modes = CAST_MODES[product.arch][("fp32", dtype)]
    return RoundMode.RINT if RoundMode.RINT in modes else RoundMode.NONE


def reduce_sum_launch(
    gm: GlobalMemory, src: GmTensor, dst: GmTensor, n: int, c: int, r: int, dtype: str, product: Product
) -> Launch:
    """Return the launch that sums ``src`` [n][c][r] over its first and last axis into ``dst`` [c].

    Parameters
    ----------
    src, dst : GmTensor
        Exactly n * c * r resp. c elements.
    n, c, r : int
        Extents; sums over nothing are +0.
    dtype : {"fp32", "fp16", "bf16"}
        Type of input and output.

    Raises
    ------
    DTypeError, ProductError
        No such type, resp. not on this product.
    ShapeError
        The extents do not match the tensors.
    """
    if dtype not in FLOATS:
        raise DTypeError(f"dtype must be one of {', '.join(FLOATS)}, not {dtype!r} (ReduceSum, {product.name})")
    round_mode = _round_mode(dtype, product)
    item = DTYPES[dtype].item_bytes
    for name, tensor, count in (("src", src, n * c * r), ("dst", dst, c)):
        if min(n, c, r) < 0 or count * item != tensor.byte_count:
            rule = f"[n, c, r] = {[n, c, r]} elements of {dtype}" if name == "src" else f"{c} elements of {dtype}"
            raise ShapeError(f"{name} must be {rule}, not {tensor.byte_count} bytes (ReduceSum, {product.name})")
    unit, width = _unit(c, item, product), accumulator_lanes(r)
    group = unit
    if _places(group, unit, width, item)["end"] > usable_ub_bytes(product):
        group = 1
    places = _places(group, unit, width, item)
    units = ceil_div(c, unit)
    cores = cores_for(product, ceil_div(units, ceil_div(max(units, 1), product.vector_core_count)))
    values = {
        **tensor_fields(src=src, dst=dst),
        "data": int(DTYPES[dtype].data), "item": item, "n": n, "c": c, "r": r, "width": width,
        "tiles": ceil_div(r, width), "unit": unit, "group": group, "cores": cores,
        "pads": int(has_byte_copies(product)), "input_half": group * width * item, "round_mode": int(round_mode),
        **{name: places[name] for name in ("input", "wide", "fold", "sums", "out")},
    }  # fmt: skip
    params = record(REDUCE_SUM_PARAMS, values)
    if r == 1:
        return _rows_launch(gm, src, dst, params, product)
    return vector_launch(
        "ReduceSum", kernel_reduce_sum.reduce_sum, params, gm, kernel_reduce_sum.SITES, fixed_cost="reduce_sum",
        step_rows=kernel_reduce_sum.STEP_ROWS, shortcut=partial(_sum_all, src, dst, params),
    )  # fmt: skip


def _rows_launch(gm: GlobalMemory, src: GmTensor, dst: GmTensor, params: np.ndarray, product: Product) -> Launch:
    """Return the launch where every channel has one value per batch item, so that channels can be lanes."""
    n, c, item = (int(params[name][0]) for name in ("n", "c", "item"))
    block = block_elems(item)
    share = align_up(ceil_div(max(c, 1), product.vector_core_count), block)
    # sums, results, and for 16-bit values a widened row; two halves of input rows
    per_lane = 8 + (4 if item < 4 else 0)
    batch = max(min(n, kernel_reduce_rows.MOST_ROWS), 1)
    lanes = kernel_reduce_sum.LANES
    piece = min(share, usable_ub_bytes(product) // (per_lane + 2 * batch * item) // lanes * lanes)
    step = align_up(piece * 4, BLOCK_BYTES)
    half = batch * align_up(piece * item, BLOCK_BYTES)
    wide = step if item < 4 else 0
    values = {
        **{name: int(params[name][0]) for name in ("src", "dst", "src_tensor", "dst_tensor", "data", "item", "n", "c",
                                                   "pads", "round_mode")},
        "share": share, "cores": cores_for(product, ceil_div(c, share)), "batch": batch, "piece": piece, "wide": step,
        "out": step + wide, "input": 2 * step + wide, "input_half": half,
    }  # fmt: skip
    return vector_launch(
        "ReduceSum", kernel_reduce_rows.reduce_rows, record(REDUCE_ROWS_PARAMS, values), gm, kernel_reduce_rows.SITES,
        fixed_cost="reduce_sum", step_rows=kernel_reduce_rows.STEP_ROWS, shortcut=partial(_sum_all, src, dst, params),
    )  # fmt: skip


def _sum_all(
    src: GmTensor,
    dst: GmTensor,
    params: np.ndarray,
    memory: GlobalMemory,
    saturate: bool,
    threads: int,
) -> None:
    """Sum every channel, channels shared out to threads."""
    code = np.dtype(f"u{int(params['item'][0])}")
    values = memory.bytes_of(src).view(code)
    sums = memory.bytes_of(dst).view(code)
    channels = len(sums)
    parts = max(min(threads, channels, len(values) // _BULK_ELEMS), 1)

    def part_of(part: int) -> None:
        sum_channels(values, sums, params, channels * part // parts, channels * (part + 1) // parts, int(saturate))

    run_parts(part_of, parts)

"""Reductions under the vector mask: what becomes of the lanes of each repeat, its blocks or its pairs.

Sums are binary trees of neighbours, every sum rounded to the type of the elements (asc-devkit
``docs/zh/api/SIMD-API``, reductions). The tree reproduces the sums of infinities and NaN that the boundary table
prints, but for +-65344 of 15 ones and an infinity in saturation mode, where it gives 65504. ASSUMED: masked lanes are
+0 in sums; of several NaN, and of zeros of the better sign, the first gives the index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.dtypes.convert_jit import fp16_to_fp32, fp32_to_nearest_fp16
from npu_sim.isa.codes import C100, C220, M200, Data, Space
from npu_sim.isa.cost_vector import block_conflicts
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.footprint_boxes import NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, HALF, ITEM, WORD, Index, Instruction, Rows
from npu_sim.isa.lanes import decode_rows
from npu_sim.isa.mask import block_bits, is_counter, is_void, lanes_of, mask_of_repeat, masked_boxes, repeats_of
from npu_sim.isa.masked import masked_occupancy
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret

VALUE_INDEX, INDEX_VALUE, ONLY_VALUE, ONLY_INDEX = range(4)
"""ReduceOrder: what is written of an extreme."""
_ORDERS = {C100: range(1), M200: range(2), C220: range(4)}
_INDEX_BYTES = 4
"""Of an index alone; beside a value it has the bytes of an element."""
PAIR_STEP = 128
"""Bytes of the unit of ``dst_rep_stride`` where pairs are added."""


# Lanes of one repeat --------------------------------------------------------------------------------------------------


@jit
def load_lanes(row: Any, ub: np.ndarray, number: Int, low: Int, high: Int, values: np.ndarray) -> None:
    """Decode the blocks of a repeat that have active lanes into float32[128]; other lanes are not written."""
    dtype, item = row["dtype"], np.int64(item_bytes(row["dtype"]))
    per_block = BLOCK // item
    first = np.int64(row["src0"]) + number * np.int64(row["src_rep_stride"]) * BLOCK
    for block in range(8):
        if block_bits(low, high, block * per_block, per_block) != 0:
            at = first + block * np.int64(row["src_blk_stride"]) * BLOCK
            decode_rows(dtype, ub, at, 0, values, block * per_block, 0, 1)


@jit
def is_active(low: Int, high: Int, lane: Int) -> Flag:
    """Return whether a lane is active under a mask of two halves."""
    return block_bits(low, high, lane, 1) != 0


@jit
def clear_masked(values: np.ndarray, lanes: Int, low: Int, high: Int) -> None:
    """Make the masked lanes +0."""
    for lane in range(lanes):
        if not is_active(low, high, lane):
            values[lane] = 0.0


@jit
def add_neighbours(values: np.ndarray, first: Int, width: Int, dtype: Int, saturate: Int) -> None:
    """Replace ``width`` numbers from ``first`` on by the sums of their pairs, each rounded to the type."""
    words = reinterpret(values, np.uint32)
    for i in range(width // 2):
        values[first + i] = values[first + 2 * i] + values[first + 2 * i + 1]
    if dtype == Data.FP16:
        for i in range(first, first + width // 2):
            words[i] = fp16_to_fp32(fp32_to_nearest_fp16(words[i], saturate))


@jit
def tree(values: np.ndarray, first: Int, width: Int, dtype: Int, saturate: Int) -> None:
    """Add ``width`` numbers, a power of two, from ``first`` on: ((a0 + a1) + (a2 + a3)) + ..; the sum is the first."""
    while width > 1:
        add_neighbours(values, first, width, dtype, saturate)
        width //= 2


@jit
def _beats(value: np.float32, other: np.float32, largest: Flag) -> Flag:
    """Return whether a value is the better extreme: a NaN beats numbers, +0 is above -0."""
    if np.isnan(other) or np.isnan(value):
        return not np.isnan(other)
    if value == other:
        return value == 0 and np.signbit(value) != largest and np.signbit(other) == largest
    return value > other if largest else value < other


@jit
def extreme_lane(values: np.ndarray, first: Int, width: Int, low: Int, high: Int, largest: Flag) -> Int:
    """Return the lane of the largest or smallest active value, the first of equals; -1 if none is active."""
    best = -1
    for lane in range(first, first + width):
        if is_active(low, high, lane) and (best < 0 or _beats(values[lane], values[best], largest)):
            best = lane
    return best


@jit
def store(ub: np.ndarray, at: Int, length: Int, bits: Int) -> None:
    """Store an integer as ``length`` little-endian bytes."""
    for i in range(length):
        ub[at + i] = (bits >> (8 * i)) & 0xFF


@jit
def store_value(ub: np.ndarray, at: Int, dtype: Int, values: np.ndarray, lane: Int, saturate: Int) -> None:
    """Store a float32 as an element of half or float."""
    word = reinterpret(values, np.uint32)[lane]
    if dtype == Data.FP32:
        store(ub, at, 4, np.int64(word))
    else:
        store(ub, at, 2, np.int64(fp32_to_nearest_fp16(word, saturate)))


# Footprints -----------------------------------------------------------------------------------------------------------


@jit
def _sources(row: Any, out: Any) -> Int:
    item = item_bytes(row["dtype"])
    return masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)


@jit
def _one_of_each(row: Any, out: Any, step: Int, length: Int) -> Int:
    """One result for each repeat."""
    lanes = lanes_of(item_bytes(row["dtype"]))
    count = _sources(row, out)
    if is_void(row, lanes):
        return count
    pitch = np.int64(row["dst_rep_stride"]) * step
    return line(out, count, UB, WRITE, np.int64(row["dst"]), length, repeats_of(row, lanes), pitch)


@jit
def footprint_of_sums(row: Any, out: Any) -> Int:
    """One element for each repeat."""
    item = np.int64(item_bytes(row["dtype"]))
    return _one_of_each(row, out, item, item)


@jit
def result_bytes(order: Int, item: Int) -> Int:
    """Return the bytes of an extreme in the form ``order``; 0 for none of the forms."""
    if order in (VALUE_INDEX, INDEX_VALUE):
        return 2 * np.int64(item)
    return np.int64(item) if order == ONLY_VALUE else np.int64(_INDEX_BYTES) if order == ONLY_INDEX else np.int64(0)


@jit
def footprint_of_extremes(row: Any, out: Any) -> Int:
    """One value, index or pair of both for each repeat."""
    length = result_bytes(row["order"], item_bytes(row["dtype"]))
    if length == 0:
        return NO_FOOTPRINT
    return _one_of_each(row, out, length, length)


@jit
def _units(row: Any, out: Any, unit: Int, step: Int) -> Int:
    """One element for each ``unit`` lanes that have an active one; ``step`` bytes is the unit of the repeat stride."""
    item = np.int64(item_bytes(row["dtype"]))
    lanes = lanes_of(item)
    count, units = _sources(row, out), lanes // unit
    pitch, dst = np.int64(row["dst_rep_stride"]) * step, np.int64(row["dst"])
    if is_counter(row):
        repeats = repeats_of(row, lanes)
        if repeats <= 0:
            return count
        left = (row["mask_low"] & 0xFFFFFFFF) - (repeats - 1) * lanes
        count = line(out, count, UB, WRITE, dst, units * item, repeats - 1, pitch)
        return line(out, count, UB, WRITE, dst + (repeats - 1) * pitch, (left + unit - 1) // unit * item, ONCE, NONE)
    at = np.int64(0)
    while at < units:
        first = at
        while at < units and block_bits(row["mask_low"], row["mask_high"], at * unit, unit) != 0:
            at += 1
        count = line(out, count, UB, WRITE, dst + first * item, (at - first) * item, np.int64(row["repeat"]), pitch)
        at += 1
    return count


@jit
def footprint_of_blocks(row: Any, out: Any) -> Int:
    """One element for each block that has an active lane, 8 places a repeat."""
    item = np.int64(item_bytes(row["dtype"]))
    return _units(row, out, min(BLOCK // max(item, np.int64(1)), lanes_of(item)), 8 * item)


@jit
def footprint_of_pairs(row: Any, out: Any) -> Int:
    """One element for each pair that has an active lane, 128 bytes a repeat."""
    return _units(row, out, np.int64(2), np.int64(PAIR_STEP))


# Semantics ------------------------------------------------------------------------------------------------------------


def run_of_extremes(largest: bool) -> Any:
    """Return the semantics of the extreme of each repeat, with its index."""

    @jit
    def run(row: Any, ub: np.ndarray, staging: np.ndarray, config: np.ndarray) -> Flag:
        dtype, order = row["dtype"], row["order"]
        if (dtype != Data.FP16 and dtype != Data.FP32) or order < VALUE_INDEX or order > ONLY_INDEX:
            return False
        item = np.int64(item_bytes(dtype))
        lanes, length = lanes_of(item), result_bytes(order, item)
        values = staging[:128]
        for r in range(repeats_of(row, lanes)):
            low, high = mask_of_repeat(row, r, lanes)
            load_lanes(row, ub, r, low, high, values)
            lane = extreme_lane(values, 0, lanes, low, high, largest)
            if lane < 0:
                continue
            at = np.int64(row["dst"]) + r * np.int64(row["dst_rep_stride"]) * length
            if order == ONLY_INDEX:
                store(ub, at, _INDEX_BYTES, lane)
                continue
            store_value(ub, at + (item if order == INDEX_VALUE else 0), dtype, values, lane, config[3])
            if order != ONLY_VALUE:
                store(ub, at + (item if order == VALUE_INDEX else 0), item, lane)
        return True

    return run


def run_of_block_extremes(largest: bool) -> Any:
    """Return the semantics of the extreme of each block."""

    @jit
    def run(row: Any, ub: np.ndarray, staging: np.ndarray, config: np.ndarray) -> Flag:
        dtype = row["dtype"]
        if dtype != Data.FP16 and dtype != Data.FP32:
            return False
        item = np.int64(item_bytes(dtype))
        lanes, per_block = lanes_of(item), BLOCK // item
        values = staging[:128]
        for r in range(repeats_of(row, lanes)):
            low, high = mask_of_repeat(row, r, lanes)
            load_lanes(row, ub, r, low, high, values)
            for block in range(8):
                lane = extreme_lane(values, block * per_block, per_block, low, high, largest)
                if lane >= 0:
                    at = np.int64(row["dst"]) + (8 * r * np.int64(row["dst_rep_stride"]) + block) * item
                    store_value(ub, at, dtype, values, lane, config[3])
        return True

    return run


@jit
def run_sums(row: Any, ub: np.ndarray, staging: np.ndarray, config: np.ndarray) -> Flag:
    """Add the active lanes of each repeat."""
    dtype = row["dtype"]
    if dtype != Data.FP16 and dtype != Data.FP32:
        return False
    item = np.int64(item_bytes(dtype))
    lanes = lanes_of(item)
    values = staging[:128]
    if is_void(row, lanes):
        return True
    for r in range(repeats_of(row, lanes)):
        low, high = mask_of_repeat(row, r, lanes)
        load_lanes(row, ub, r, low, high, values)
        clear_masked(values, lanes, low, high)
        tree(values, 0, lanes, dtype, config[3])
        at = np.int64(row["dst"]) + r * np.int64(row["dst_rep_stride"]) * item
        store_value(ub, at, dtype, values, 0, config[3])
    return True


def run_of_unit_sums(pairs: bool) -> Any:
    """Return the semantics of the sums of pairs, or of blocks."""

    @jit
    def run(row: Any, ub: np.ndarray, staging: np.ndarray, config: np.ndarray) -> Flag:
        dtype = row["dtype"]
        if dtype != Data.FP16 and dtype != Data.FP32:
            return False
        item = np.int64(item_bytes(dtype))
        lanes = lanes_of(item)
        unit = np.int64(2) if pairs else BLOCK // item
        pitch = np.int64(row["dst_rep_stride"]) * (np.int64(PAIR_STEP) if pairs else 8 * item)
        values = staging[:128]
        for r in range(repeats_of(row, lanes)):
            low, high = mask_of_repeat(row, r, lanes)
            load_lanes(row, ub, r, low, high, values)
            clear_masked(values, lanes, low, high)
            for number in range(lanes // unit):
                if block_bits(low, high, number * unit, unit) != 0:
                    tree(values, number * unit, unit, dtype, config[3])
                    at = np.int64(row["dst"]) + r * pitch + number * item
                    store_value(ub, at, dtype, values, number * unit, config[3])
        return True

    return run


# Records --------------------------------------------------------------------------------------------------------------


def _cost(start: Any, steps: Any) -> Any:
    @jit
    def cost(row: Any, cost: Any) -> Any:
        size = np.int64(item_bytes(row["dtype"]))
        conflicts = block_conflicts(row["src_blk_stride"], cost["ub_bank_groups"])
        return masked_occupancy(row, size, size, max(steps(size, cost), 1000 * conflicts), start(cost), cost)

    return cost


def fixed_cost(start: int, half: int, single: int) -> Any:
    """Return a cost rule: cycles until the first result, thousandths of a cycle a repeat of half and of float."""

    @jit
    def of_call(cost: Any) -> Int:
        return np.int64(start)

    @jit
    def of_repeat(size: Int, cost: Any) -> Int:
        return np.int64(half) if size == 2 else np.int64(single)

    return _cost(of_call, of_repeat)


@jit
def _call_of_sums(cost: Any) -> Int:
    return cost["vector_reduce_cycles"]


@jit
def _step_of_sums(size: Int, cost: Any) -> Int:
    return cost["vector_reduce_step_millicycles"]


cost_of_sums = _cost(_call_of_sums, _step_of_sums)


def reduction(
    name: str,
    op: int,
    emitted: str,
    documentation: str,
    *,
    dtypes: Mapping[str, frozenset[Data]],
    footprint: Any,
    run: Any,
    cost: Any,
    has_order: bool = False,
    align: int = ITEM,
    check: Callable[[Rows, Index], None] | None = None,
) -> Instruction:
    """Return the record of a reduction under the vector mask.

    Parameters
    ----------
    name, op : str, int
        Name in Ascend C, opcode.
    emitted : str
        Name of the emitter.
    documentation : str
        What becomes of a repeat, with the unit of ``dst_rep_stride``.
    dtypes, footprint, run, cost
        See `Instruction`.
    has_order : bool
        Whether ``order`` says what is written.
    align : int
        Alignment of the destination.
    check : callable, optional
        Further rules.
    """
    order = "order " if has_order else ""
    emit = masked_emitter(
        emitted, op, f"dst src=src0 dtype {order}repeat dst_rep_stride src_blk_stride src_rep_stride",
        f"""{name}: {documentation}

Of each of ``repeat`` repeats the lanes under the mask (SetVectorMask); source strides in 32-byte blocks.""",
    )  # fmt: skip

    def check_all(chunk: Rows, index: Index) -> None:
        if chunk.product.arch == C100:
            chunk.rule(index, chunk.column(index, "dst_rep_stride") == 0, "dst_rep_stride", f"at least 1 on {C100}")
        if has_order:
            _check_order(chunk, index)
        if check is not None:
            check(chunk, index)

    return Instruction(
        api=name,
        emit=emit,
        source=f"{DEVKIT}{name}, mask style",
        spaces={"dst": Space.UB, "src0": Space.UB},
        ranges=(
            *((("order", VALUE_INDEX, ONLY_INDEX),) if has_order else ()),
            ("repeat", 0, BYTE),
            ("dst_rep_stride", 0, WORD),
            ("src_blk_stride", 0, WORD),
            ("src_rep_stride", 0, WORD),
        ),
        dtypes=dtypes,
        alignment={"dst": align},
        unit="vector",
        footprint=footprint,
        run=run,
        cost=cost,
        check=check_all,
        defaults={"repeat": 1, "dst_rep_stride": 1, "src_blk_stride": 1, "src_rep_stride": 8},
    )


OF_EXTREMES = {C100: HALF, M200: FLOATS, C220: FLOATS}
"""Types by architecture of all reductions but ReduceRepeat<SUM>."""


def extreme_of_repeats(name: str, op: int, emitted: str, *, largest: bool) -> Instruction:
    """Return WholeReduceMax or WholeReduceMin.

    Cycles: MK streams of vcmax and vcmin, 7 a repeat; PI start-up.
    """
    which = "largest" if largest else "smallest"
    return reduction(
        name,
        op,
        emitted,
        f"each repeat of 256 bytes becomes its {which} element and the number of its lane. ``order``: 0 value and "
        "index, 1 index and value, 2 value alone, 3 index alone (4 bytes); ``dst_rep_stride`` in results. A NaN wins; "
        "+0 is above -0; of equal lanes the first counts.",
        dtypes=OF_EXTREMES,
        footprint=footprint_of_extremes,
        run=run_of_extremes(largest),
        cost=fixed_cost(33, 7000, 7000),
        has_order=True,
    )


def reduction_of_blocks(name: str, op: int, what: str, run: Any) -> Instruction:
    """Return BlockReduceSum, BlockReduceMax or BlockReduceMin.

    Cycles: MK streams of vcgmax, 7 a repeat of half and 1 of float; CA start-up.
    """
    words = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    return reduction(
        name,
        op,
        words,
        f"each block of 32 bytes becomes one element, {what} of its lanes, 8 elements a repeat; blocks without active "
        "lanes are left out. ``dst_rep_stride`` in 8 elements.",
        dtypes=OF_EXTREMES,
        footprint=footprint_of_blocks,
        run=run,
        cost=fixed_cost(31, 7000, 1000),
        align=16,
        check=_check_block_results,
    )


def _check_block_results(chunk: Rows, index: Index) -> None:
    off = chunk.column(index, "dst") % (8 * chunk.item_bytes(index)) != 0
    chunk.misaligned(index, off, "dst", "a multiple of 8 elements")


def _check_order(chunk: Rows, index: Index) -> None:
    allowed = _ORDERS[chunk.product.arch]
    order = chunk.column(index, "order")
    bad = (order >= 0) & (order <= ONLY_INDEX) & ~np.isin(order, list(allowed))
    names, arch = ", ".join(map(str, allowed)), chunk.product.arch
    chunk.unsupported(index, bad, lambda row: f"order must be one of {names} on {arch}, not {int(row['order'])}")
    items = chunk.item_bytes(index)
    units = np.where(order == ONLY_VALUE, items, np.where(order == ONLY_INDEX, _INDEX_BYTES, 2 * items))
    off = chunk.column(index, "dst") % units != 0
    chunk.misaligned(index, off, "dst", "a multiple of the bytes of a result")

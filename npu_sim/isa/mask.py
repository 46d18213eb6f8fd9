"""The vector mask and what repeats and strides make of it: lanes, addresses, bytes.

A repeat is 256 bytes of the widest operand; an operand of a narrower type has fewer blocks. Lane l of repeat r is at
``base + 32 (r * repeat stride + l * item // 32 * block stride) + l * item % 32`` (asc-devkit, general description of
vector computation). Bit l of the mask says whether it is active; in COUNTER mode the first n lanes over all repeats
are. ASSUMED: of a block only the active lanes are read, bits of lanes that an operand does not have mean nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import Mode
from npu_sim.isa.cost_rates import divide_up, fits
from npu_sim.isa.footprint_boxes import BLOCK, NO_FOOTPRINT, NONE, ONCE, UB, box
from npu_sim.isa.lanes import copy_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

MASK_BITS = 128
_HALF = 64
_ELEMENTS = np.int64(0xFFFFFFFF)
"""Bits of the mask that are the number of elements in COUNTER mode."""


@jit
def is_counter(row: Any) -> Flag:
    """Return whether the mask of an issued row is a number of elements."""
    return row["mode"] & Mode.COUNTER != 0


@jit
def lanes_of(wide: Int) -> Int:
    """Return the lanes of a repeat whose widest operand has elements of ``wide`` bytes."""
    return MASK_BITS if wide <= 1 else REPEAT_BYTES // wide


@jit
def elements_of(row: Any) -> Int:
    """Return the number of elements that the mask of an issued row is in COUNTER mode."""
    return row["mask_low"] & _ELEMENTS


@jit
def repeats_of(row: Any, lanes: Int) -> Int:
    """Return how often an issued row repeats."""
    if is_counter(row):
        return divide_up(elements_of(row), lanes)
    return np.int64(row["repeat"])


@jit
def mask_of_repeat(row: Any, number: Int, lanes: Int) -> Any:
    """Return the mask of one repeat of an issued row as (low half, high half)."""
    if not is_counter(row):
        return row["mask_low"], row["mask_high"]
    left = elements_of(row) - number * lanes
    return leading(left), leading(left - _HALF)


@jit
def leading(count: Int) -> Int:
    """Return 64 bits of which the lowest ``count`` are 1."""
    if count >= _HALF:
        return np.int64(-1)
    return ~(np.int64(-1) << max(np.int64(count), np.int64(0)))


@jit
def leading_lanes(low: Int, high: Int, lanes: Int) -> Int:
    """Return how many lanes of a repeat are active if these are its first ones, else -1."""
    if lanes < _HALF:
        low &= leading(lanes)
    first = np.int64(0)
    while first < min(lanes, _HALF) and (low >> first) & 1 != 0:
        first += 1
    if low != leading(first):
        return np.int64(-1)
    if lanes <= _HALF:
        return first
    second = np.int64(0)
    while second < _HALF and (high >> second) & 1 != 0:
        second += 1
    if high != leading(second) or (second > 0 and first < _HALF):
        return np.int64(-1)
    return first + second


@jit
def lanes_reached(low: Int, high: Int, lanes: Int) -> Int:
    """Return one more than the last active lane of a repeat, 0 if none is."""
    last = np.int64(lanes)
    while last > 0 and block_bits(low, high, last - 1, 1) == 0:
        last -= 1
    return last


@jit
def elements_in_a_row(row: Any, lanes: Int) -> Int:
    """Return the active lanes of an issued row if over all repeats no other lies between them, else -1."""
    if is_counter(row):
        return elements_of(row)
    repeats = max(np.int64(row["repeat"]), np.int64(0))
    active = leading_lanes(row["mask_low"], row["mask_high"], lanes)
    return active * repeats if active == lanes or repeats <= 1 else np.int64(-1)


@jit
def block_bits(low: Int, high: Int, first: Int, count: Int) -> Int:
    """Return bits ``[first, first + count)`` of a mask; ``count`` divides 64 and is at most 32."""
    word = low if first < _HALF else high
    return (word >> np.int64(first & (_HALF - 1))) & ((np.int64(1) << np.int64(count)) - 1)


@jit
def is_void(row: Any, lanes: Int) -> Flag:
    """Return whether no lane of an issued row is active."""
    if repeats_of(row, lanes) <= 0:
        return True
    no_low = row["mask_low"] & leading(lanes) == 0
    return not is_counter(row) and no_low and (lanes <= _HALF or row["mask_high"] == 0)


@jit
def active_lanes(row: Any, lanes: Int) -> Int:
    """Return the number of active lanes over all repeats."""
    if is_counter(row):
        return elements_of(row)
    count = np.int64(0)
    for lane in range(lanes):
        count += block_bits(row["mask_low"], row["mask_high"], lane, 1)
    repeats = np.int64(row["repeat"])
    return count * repeats if repeats > 0 else np.int64(0)


# Footprints -----------------------------------------------------------------------------------------------------------


@jit
def boxes_of_mask(
    out: np.ndarray,
    count: Int,
    access: Int,
    base: Int,
    item: Int,
    lanes: Int,
    between: Int,
    step: Int,
    repeats: Int,
    low: Int,
    high: Int,
) -> Int:
    """Note the active lanes of repeats under one mask: neighbouring blocks of one pattern together.

    Parameters
    ----------
    item, lanes : int
        Bytes of an element, elements of a repeat.
    between, step : int
        Bytes from block to block and from repeat to repeat.
    low, high : int
        The mask.
    """
    per_block = min(BLOCK // item, lanes)
    blocks = lanes // per_block
    block = np.int64(0)
    while block < blocks:
        bits = block_bits(low, high, block * per_block, per_block)
        alike = np.int64(1)
        while block + alike < blocks and block_bits(low, high, (block + alike) * per_block, per_block) == bits:
            alike += 1
        lane = np.int64(0)
        while lane < per_block:
            first = lane
            while lane < per_block and (bits >> lane) & 1 != 0:
                lane += 1
            at = base + block * between + first * item
            count = box(out, count, UB, access, at, (lane - first) * item, alike, between, repeats, step, ONCE, NONE)
            lane += 1
        block += alike
    return count


@jit
def masked_boxes(
    out: np.ndarray, count: Int, access: Int, base: Int, item: Int, wide: Int, blk: Int, rep: Int, row: Any
) -> Int:
    """Note the bytes of one operand of an issued row.

    Parameters
    ----------
    base, item : int
        Address in UB and bytes of an element of the operand.
    wide : int
        Bytes of an element of the widest operand.
    blk, rep : int
        Blocks of 32 bytes from block to block and from repeat to repeat.

    Returns
    -------
    int
        As `footprint_boxes.box`.
    """
    if count < 0:
        return count
    if not fits(blk | rep):
        return NO_FOOTPRINT
    lanes = lanes_of(wide)
    between, step = np.int64(blk) * BLOCK, np.int64(rep) * BLOCK
    item = np.int64(item)
    if not is_counter(row):
        low, high = row["mask_low"], row["mask_high"]
        return boxes_of_mask(out, count, access, base, item, lanes, between, step, np.int64(row["repeat"]), low, high)
    elements = elements_of(row)
    full, tail = elements // lanes, elements % lanes
    ones = np.int64(-1)
    count = boxes_of_mask(out, count, access, base, item, lanes, between, step, full, ones, ones)
    low, high = leading(tail), leading(tail - _HALF)
    return boxes_of_mask(out, count, access, base + full * step, item, lanes, between, NONE, ONCE, low, high)


# Elements of one repeat -----------------------------------------------------------------------------------------------


@jit
def take(ub: np.ndarray, at: Int, item: Int, lanes: Int, blk: Int, low: Int, high: Int, out: np.ndarray) -> None:
    """Copy the blocks of a repeat that have active lanes to ``out``, one behind the other.

    ``at``: first byte of the repeat. Lanes whose block is left out keep what ``out`` holds.
    """
    per_block = min(BLOCK // item, lanes)
    blocks = lanes // per_block
    # what lies between active blocks is there too
    while blk == 1 and blocks > 0 and block_bits(low, high, (blocks - 1) * per_block, per_block) == 0:
        blocks -= 1
    if blk == 1:
        copy_bytes(out, 0, ub, at, blocks * BLOCK)
        return
    for block in range(blocks):
        if block_bits(low, high, block * per_block, per_block) != 0:
            copy_bytes(out, block * BLOCK, ub, at + block * blk * BLOCK, BLOCK)


@jit
def _put_lanes(block: np.ndarray, data: np.ndarray, bits: Int) -> None:
    """Copy the elements of a block whose bits are set."""
    for lane in range(len(block)):
        if (bits >> np.int64(lane)) & 1 != 0:
            block[lane] = data[lane]


@jit
def put(ub: np.ndarray, at: Int, item: Int, lanes: Int, blk: Int, low: Int, high: Int, data: np.ndarray) -> None:
    """Copy the active lanes of a repeat from ``data``, one block behind the other, to where `take` reads."""
    per_block = min(BLOCK // item, lanes)
    if blk == 1 and leading_lanes(low, high, lanes) == lanes:
        copy_bytes(ub, at, data, 0, lanes * item)
        return
    for block in range(lanes // per_block):
        bits = block_bits(low, high, block * per_block, per_block)
        if bits == 0:
            continue
        first, length = at + block * blk * BLOCK, per_block * item
        old, new = ub[first : first + length], data[block * BLOCK : block * BLOCK + length]
        if bits == (np.int64(1) << np.int64(per_block)) - 1:
            copy_bytes(ub, first, data, block * BLOCK, length)
        elif item == 4:
            _put_lanes(reinterpret(old, np.uint32), reinterpret(new, np.uint32), bits)
        elif item == 2:
            _put_lanes(reinterpret(old, np.uint16), reinterpret(new, np.uint16), bits)
        elif item == 8:
            _put_lanes(reinterpret(old, np.uint64), reinterpret(new, np.uint64), bits)
        else:
            _put_lanes(old, new, bits)

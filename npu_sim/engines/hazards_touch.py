"""What a row touches, run by run: its place in the buffer or the tensor, and every cell against its history."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.engines.hazards_book import (
    BLOCK_LIMIT,
    CAPACITY,
    CHIP_BASE,
    CHIP_FLOOR,
    CORE_BASE,
    CORE_RAW,
    CORE_WAR,
    CORE_WAW,
    FOREIGN_ATOMIC,
    FOREIGN_READER,
    FREE_COUNT,
    FULL,
    GM,
    GM_ONLY,
    GM_READER,
    GM_SCALAR_READER,
    LAUNCH_BASE,
    LEFT_OPEN,
    NODE_COUNT,
    ONE,
    PHASE_BASE,
    RAW,
    READ_BEYOND,
    READ_NOWHERE,
    RUN_BLOCKS,
    SCALAR_READER,
    SLOTS,
    SPACE,
    UB,
    WAR,
    WAW,
    WRITE_BEYOND,
    WRITE_NOWHERE,
    ZERO,
    report,
)
from npu_sim.engines.hazards_cells import (
    end_lives,
    keep_foreign,
    quiet_until,
    scan,
    scan_left_open,
    scan_lives,
    set,
    used_slots,
)
from npu_sim.isa.codes import Pipe
from npu_sim.isa.footprint import ATOMIC_ADD, READ, WRITE


@jit
def _touch_cells(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    space: Int,
    access: Int,
    entry: Int,
    limits: Int,
    c0: Int,
    length: Int,
    mask: Int,
    init_floor: Int,
    repeats: Int,
    step: Int,
) -> None:
    """Check an access to the bytes ``mask`` of cells against every slot that matters, then record it.

    They are ``[c0, c0 + length)`` and those ``step`` cells further on, ``repeats`` times.
    """
    pipe = entry & 7
    on_chip = space != GM
    reader = pipe if pipe != Pipe.S else SCALAR_READER
    core_floor = book[CORE_BASE] * 8
    floor = book[PHASE_BASE] * 8
    if on_chip:
        # What other cores left in a buffer does not exist.
        floor = book[CHIP_FLOOR] * 8
        init_floor = book[CHIP_BASE] * 8 if access == READ else ZERO
    used = used_slots(slots, book, c0, c0 + (repeats - 1) * step + length, space)
    for slot in range(SLOTS):
        if (slot > 0 and used >> slot & 1 == 0) or (space == UB and slot == LEFT_OPEN):
            continue
        is_reader = slot > 0 if on_chip else slot > 3
        if is_reader and (access == READ or (on_chip and slot == reader)):
            continue
        if access == ATOMIC_ADD and 1 <= slot <= 3:
            continue
        own_code, core_code = WAW, CORE_WAW
        if is_reader:
            own_code, core_code = WAR, CORE_WAR
        elif access == READ:
            own_code, core_code = RAW, CORE_RAW
        init = init_floor if slot == 0 else ZERO
        for i in range(repeats):
            first = c0 + i * step
            quiet = quiet_until(slots, book, np.int64(slot), first, first + length, limits, floor, init)
            if quiet < first + length:
                scan(
                    slots, nodes, book, findings, lives, np.int64(slot), quiet, first + length, mask, limits, own_code,
                    core_code, floor, init, space,
                )  # fmt: skip
    target: Int = ZERO
    foreign = ZERO
    if on_chip:
        if access == READ:
            target = reader
    elif access == READ:
        target, foreign = GM_READER if pipe != Pipe.S else GM_SCALAR_READER, FOREIGN_READER
    elif access == ATOMIC_ADD:
        target, foreign = np.int64(1 if pipe == Pipe.MTE3 else 2), FOREIGN_ATOMIC
    for i in range(repeats):
        first = c0 + i * step
        if foreign != 0 and floor != core_floor and used >> target & 1 != 0:
            keep_foreign(slots, nodes, book, target, foreign, first, first + length, mask)
        if on_chip and access == READ:
            scan_lives(slots, book, findings, lives, turned, first, first + length, space)
            if space == UB and used >> LEFT_OPEN & 1 != 0:
                scan_left_open(slots, nodes, book, findings, first, first + length, mask)
        elif on_chip:
            end_lives(slots, book, lives, first, first + length)
        set(slots, nodes, book, target, first, first + length, mask, entry, space)


@jit
def _touch_bytes(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    space: Int,
    access: Int,
    entry: Int,
    limits: Int,
    start: Int,
    end: Int,
    init_floor: Int,
) -> None:
    """Check and record an access to the bytes ``[start, end)``: a part of a cell, whole cells, a part of a cell."""
    base = book[SPACE + 4 * space + 0]
    while start < end:
        cell, lead = start >> 5, start & 31
        if lead == 0 and end - start >= 32:
            behind, mask = end >> 5, FULL
        else:
            behind = cell + 1
            mask = (FULL << lead) & FULL
            if behind * 32 > end:
                mask &= (ONE << (end & 31)) - 1
        _touch_cells(
            slots, nodes, book, findings, lives, turned, space, access, entry, limits, base + cell, behind - cell,
            mask, init_floor, ONE, ZERO,
        )  # fmt: skip
        start = behind * 32


@jit
def _beyond(
    book: np.ndarray, findings: np.ndarray, access: Int, space: Int, low: Int, high: Int, start: Int, end: Int
) -> None:
    """Report the part of ``[start, end)`` outside ``[low, high)``."""
    code = CAPACITY
    if space == GM:
        code = READ_BEYOND if access == READ else WRITE_BEYOND
    report(book, findings, code, ZERO, space, start, end - start, high if end > high else low)


@jit
def look_run(book: np.ndarray, findings: np.ndarray, tensors: np.ndarray, runs: np.ndarray, tensor: Int) -> None:
    """Check that the one run of a row in GM lies inside its tensor, and nothing else."""
    start, end = runs[0, 2], runs[0, 2] + runs[0, 3]
    if tensor < 0 or tensor >= len(tensors):
        report(book, findings, READ_NOWHERE, ZERO, GM, start, end - start, tensor)
        return
    low = tensors[tensor, 0]
    if start < low or end > low + tensors[tensor, 2]:
        _beyond(book, findings, READ, GM, low, low + tensors[tensor, 2], start, end)


@jit
def touch_run(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    births: np.ndarray,
    tensors: np.ndarray,
    runs: np.ndarray,
    r: Int,
    entry: Int,
    limits: Int,
    tensor: Int,
) -> None:
    """Check and record run ``r`` of a footprint."""
    space, access, start = runs[r, 0], runs[r, 1], runs[r, 2]
    length, repeats, stride = runs[r, 3], runs[r, 4], runs[r, 5]
    low, high = ZERO, book[SPACE + 4 * space + 1]
    data_end, init_floor = high, ZERO
    if space == GM:
        if tensor < 0 or tensor >= len(tensors):
            code = READ_NOWHERE if access == READ else WRITE_NOWHERE
            report(book, findings, code, ZERO, space, start, (repeats - 1) * stride + length, tensor)
            return
        low = tensors[tensor, 0]
        high = low + tensors[tensor, 2]
        data_end = low + tensors[tensor, 1]
        # An atomic add reads its destination. Spare bytes behind a tensor may be read without having been written.
        if births[tensor] == 0:
            births[tensor] = book[LAUNCH_BASE]
        if access != WRITE and tensors[tensor, 3] == 0:
            init_floor = births[tensor] * 8
    elif book[GM_ONLY] != 0:
        return
    end = start + (repeats - 1) * stride + length
    if (start | length | stride) & 31 == 0 and low <= start and end <= (high if init_floor == 0 else data_end):
        _touch_cells(
            slots, nodes, book, findings, lives, turned, space, access, entry, limits,
            book[SPACE + 4 * space] + (start >> 5), length >> 5, FULL, init_floor, repeats, stride >> 5,
        )  # fmt: skip
        return
    first, last = ZERO, repeats
    if start < low or start + (repeats - 1) * stride + length > high:
        _beyond(book, findings, access, space, low, high, start, start + (repeats - 1) * stride + length)
        if start < low:
            first = max(first, (low - start - length) // stride + 1)
        last = min(last, (high - start + stride - 1) // stride)
    for i in range(first, last):
        begin = max(low, start + i * stride)
        end = min(high, start + i * stride + length)
        if begin >= end:
            continue
        cut = end if init_floor == 0 else min(end, max(begin, data_end))
        if begin < cut:
            _touch_bytes(
                slots, nodes, book, findings, lives, turned, space, access, entry, limits, begin, cut, init_floor
            )
        if cut < end:
            _touch_bytes(slots, nodes, book, findings, lives, turned, space, access, entry, limits, cut, end, ZERO)


@jit
def leave_open(
    slots: np.ndarray, nodes: np.ndarray, book: np.ndarray, runs: np.ndarray, count: Int, entry: Int
) -> None:
    """Note that ``entry`` has just written the bytes of UB of ``runs[:count]`` and left open what they hold."""
    base, capacity = book[SPACE + 4 * UB + 0], book[SPACE + 4 * UB + 1]
    for r in range(count):
        for i in range(runs[r, 4]):
            start = runs[r, 2] + i * runs[r, 5]
            end = min(start + runs[r, 3], capacity)
            start = max(start, ZERO)
            while start < end:
                cell, lead = start >> 5, start & 31
                mask = (FULL << lead) & FULL
                if (cell + 1) * 32 > end:
                    mask &= (ONE << (end & 31)) - 1
                set(slots, nodes, book, LEFT_OPEN, base + cell, base + cell + 1, mask, entry, UB)
                start = (cell + 1) * 32


@jit
def blocks_touched(book: np.ndarray, runs: np.ndarray, count: Int) -> Int:
    """Return an upper bound of what counts against `BLOCK_LIMIT` in ``count`` runs; it stops above that."""
    blocks = np.int64(0)
    for i in range(count):
        capacity = book[SPACE + 4 * runs[i, 0] + 1]
        repeats = min(runs[i, 4], capacity // runs[i, 5] + 2)
        blocks += repeats * ((min(runs[i, 3], capacity) >> 5) + RUN_BLOCKS)
        if blocks > BLOCK_LIMIT:
            break
    return blocks


@jit
def nodes_needed(book: np.ndarray, runs: np.ndarray, count: Int) -> Int:
    """Return an upper bound of the nodes that recording the ``count`` runs in ``runs`` may take.

    A partly touched cell takes two nodes, in GM two more for what an earlier core did there. Keeping lists of earlier
    cores copies each of their nodes at most once.
    """
    needed = np.int64(8 * count)
    for i in range(count):
        space = runs[i, 0]
        if (runs[i, 2] | runs[i, 3] | runs[i, 5]) & 31 != 0:
            needed += 8 * min(runs[i, 4], book[SPACE + 4 * space + 1] // runs[i, 5] + 2)
    if book[PHASE_BASE] != book[CORE_BASE]:
        needed += 3 * (book[NODE_COUNT] - book[FREE_COUNT])
    return needed

"""What operands of the general form of a vector instruction must not do: strides and overlap.

Source: asc-devkit ``docs/zh/api/SIMD-API``, general constraints (address overlap) and general description of vector
computation (strides).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Data, Mode
from npu_sim.isa.instruction import Flags, Index, Rows
from npu_sim.isa.mask import MASK_BITS
from npu_sim.units import BLOCK_BYTES, REPEAT_BYTES

_BLOCKS = 8
_ACCUMULATED = (Data.FP16, Data.FP32, Data.INT32)
_STRIDES = {"src0": ("src_blk_stride", "src_rep_stride"), "src1": ("src1_blk_stride", "src1_rep_stride")}
_Numbers = npt.NDArray[np.int64]


def _mask_bits(chunk: Rows, index: Index) -> Flags:
    """Return bool[n, 128]: the active lanes of a first repeat."""
    halves = np.stack([chunk.column(index, name) for name in ("mask_low", "mask_high")], axis=1)
    bits = np.unpackbits(np.ascontiguousarray(halves).view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
    counters = chunk.column(index, "mode") & Mode.COUNTER != 0
    elements = chunk.column(index, "mask_low") & 0xFFFFFFFF
    bits[counters] = np.arange(MASK_BITS) < elements[counters, None]
    return bits


def _active_blocks(bits: Flags, items: _Numbers, lanes: _Numbers) -> Flags:
    """Return bool[n, 8]: blocks of an operand that have an active lane; ``items`` are the bytes of its elements."""
    active = np.zeros((len(items), _BLOCKS), np.bool_)
    block = np.minimum(np.arange(MASK_BITS) * items[:, None] // BLOCK_BYTES, _BLOCKS - 1)
    rows, where = np.nonzero(bits & (np.arange(MASK_BITS) < lanes[:, None]))
    active[rows, block[rows, where]] = True
    return active


def _blocks(chunk: Rows, index: Index, base: str, stride: str) -> _Numbers:
    return chunk.column(index, base)[:, None] // BLOCK_BYTES + np.arange(_BLOCKS) * chunk.column(index, stride)[:, None]


def _meet(first: _Numbers, first_active: Flags, second: _Numbers, second_active: Flags) -> Flags:
    """Return which rows have an active block in both operands."""
    same = first[:, :, None] == second[:, None, :]
    return (same & first_active[:, :, None] & second_active[:, None, :]).any(axis=(1, 2))


def check_strides(
    chunk: Rows,
    index: Index,
    sources: int,
    *,
    accumulates: bool = False,
    dst_items: _Numbers | None = None,
) -> None:
    """Report strides and overlaps that are undefined.

    Parameters
    ----------
    chunk, index
        Issued rows of one opcode.
    sources : int
        Vectors they read.
    accumulates : bool
        Whether the second source may be the result of the repeat before.
    dst_items : int64[n], optional
        Bytes of an element of the result, where it is of another type.
    """
    runs = (chunk.column(index, "mode") & Mode.COUNTER != 0) | (chunk.column(index, "repeat") > 0)
    index, dst_items = index[runs], None if dst_items is None else dst_items[runs]
    bits, items = _mask_bits(chunk, index), chunk.item_bytes(index)
    targets = items if dst_items is None else np.maximum(dst_items, 1)
    lanes = np.minimum(REPEAT_BYTES // np.maximum(items, targets), MASK_BITS)
    written = _active_blocks(bits, targets, lanes)
    stays = (chunk.column(index, "dst_blk_stride") == 0) & (written.sum(axis=1) > 1)
    chunk.rule(index, stays, "dst_blk_stride", "at least 1 where the mask has lanes of several blocks")
    dst = _blocks(chunk, index, "dst", "dst_blk_stride")
    read = _active_blocks(bits, items, lanes)
    counters = chunk.column(index, "mode") & Mode.COUNTER != 0
    repeats = np.where(
        counters, (chunk.column(index, "mask_low") & 0xFFFFFFFF) > lanes, chunk.column(index, "repeat") > 1
    )
    for name in ("src0", "src1")[:sources]:
        blk, rep = _STRIDES[name]
        src = _blocks(chunk, index, name, blk)
        same_start = chunk.column(index, "dst") == chunk.column(index, name)
        identical = same_start & ((dst == src) | ~read).all(axis=1) & (targets == items)
        # a type of its own reads and writes other blocks of one repeat: narrower results may begin where it does
        within = _meet(dst, written, src, read) & ~identical & ~(same_start & (targets < items))
        chunk.rule(index, within, name, "the destination or apart from it within a repeat")
        step, dst_step = chunk.column(index, rep), chunk.column(index, "dst_rep_stride")
        later = repeats & _meet(dst, written, src + step[:, None], read) & ~within
        if name == "src1" and accumulates:
            types = np.isin(chunk.column(index, "dtype"), _ACCUMULATED)
            later &= ~(types & same_start & ((step == 0) | (dst_step == 0)))
        chunk.rule(index, later, name, "apart from the destination of the repeat before")

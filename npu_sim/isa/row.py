"""The instruction row: the only thing kernels write and engines read.

One row holds every operand of its instruction. The operand area is a union: fields of different instructions share
bytes, and `op.OpSpec.fields` says which ones are valid. A side table for the slow-changing operands of load3d (as the
hardware keeps them in special registers) would save 64 bytes a row and cost every engine an indirection and every
kernel a bookkeeping step; rows stream through a buffer that stays in cache, so the bytes are free.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_HEAD: tuple[tuple[str, str, int], ...] = (
    ("op", "u1", 0),
    ("pipe", "u1", 1),
    ("peer", "u1", 2),
    ("event", "u1", 3),
    ("dtype", "u1", 4),
    ("dst_dtype", "u1", 5),
    ("mode", "u2", 6),
    ("dst_space", "u1", 8),
    ("src0_space", "u1", 9),
    ("src1_space", "u1", 10),
    ("round_mode", "u1", 11),
    ("site", "i4", 12),
    ("tile", "i4", 16),
    ("tensor", "i4", 20),
    ("dst", "i8", 24),
    ("src0", "i8", 32),
    ("src1", "i8", 40),
)
_OPERANDS_AT = 48
_UNION: tuple[tuple[str, ...], ...] = (
    ("m", "n", "k"),
    ("value", "count"),
    ("block_count", "block_len", "src_gap", "dst_gap"),
    ("nd_num", "n_value", "d_value", "src_nd_stride", "src_d_value", "dst_c0_stride", "dst_n_stride", "dst_nd_stride"),
    ("m_size", "n_size", "dst_stride"),
    (
        "l1_h",
        "l1_w",
        "pad_left",
        "pad_right",
        "pad_top",
        "pad_bottom",
        "stride_w",
        "stride_h",
        "filter_w",
        "filter_h",
        "dilation_w",
        "dilation_h",
        "channel_size",
        "k_ext",
        "m_ext",
        "k_start",
        "m_start",
    ),
)
# Fields that instructions of more than one shape use sit at fixed places behind the areas they would overlap.
_FIXED: tuple[tuple[str, int], ...] = (
    # DataCopy, LoadData 2D and Fill share dst_gap (slot 3); Fixpipe shares nd_num, src_nd_stride, dst_nd_stride.
    ("start_index", 0),
    ("repeat", 18),
    ("src_stride", 8),
    ("dst_frac_gap", 9),
    ("block_num", 0),
    ("c1_index", 12),
    ("fetch_filter_w", 13),
    ("fetch_filter_h", 14),
    ("left_top_w", 15),
    ("left_top_h", 16),
    ("jump_stride", 17),
    ("repeat_mode", 19),
    # DataCopyPad, and the vector instructions that count repeats.
    ("left_padding", 4),
    ("right_padding", 5),
    ("mask", 12),
    ("src_blk_stride", 13),
    ("dst_blk_stride", 14),
    ("src_rep_stride", 16),
    ("dst_rep_stride", 17),
    ("src1_rep_stride", 19),
    # Lists that are merged, what addresses computed from data may reach, what is written of an extreme.
    ("length0", 0),
    ("length1", 1),
    ("length2", 2),
    ("length3", 3),
    ("src2", 4),
    ("src3", 5),
    ("src_bytes", 6),
    ("dst_bytes", 6),
    ("pattern", 7),
    ("comparison", 7),
    ("src2_rep_stride", 7),
    ("src1_blk_stride", 15),
    ("order", 8),
    # Fixpipe with more than a conversion.
    ("relu", 11),
    ("offset", 12),
)
WIDE_FIELDS: dict[str, int] = {"mask_low": 0, "mask_high": 2}
"""First slot of each operand of 64 bits: the halves of the vector mask."""
LIST_LENGTH = 16
"""Addresses of an address list."""
LIST_FIELDS: dict[str, int] = {"dst_list": 0, "src_list": 8}
"""First slot of each address list: 16 numbers of 32-byte blocks in UB, 16 bits each."""


def _operand_offsets() -> dict[str, int]:
    offsets: dict[str, int] = {}
    for names in _UNION:
        for slot, name in enumerate(names):
            offsets.setdefault(name, slot)
    offsets.update(_FIXED)
    # Fixpipe uses nd_num (0), src_nd_stride (3), dst_nd_stride (7), src_stride (8): its own fields go to free slots.
    offsets.update(m_size=1, n_size=2, dst_stride=4)
    # Fill and the count-style vector instructions: value may hold float bits, so it has a slot of its own.
    offsets.update(value=10, count=11)
    return offsets


def _instr_dtype() -> np.dtype:
    names = [name for name, _, _ in _HEAD]
    formats: list[str | tuple[str, tuple[int]]] = [fmt for _, fmt, _ in _HEAD]
    offsets = [offset for _, _, offset in _HEAD]
    for name, slot in _operand_offsets().items():
        names.append(name)
        formats.append("i4")
        offsets.append(_OPERANDS_AT + 4 * slot)
    for name, slot in WIDE_FIELDS.items():
        names.append(name)
        formats.append("i8")
        offsets.append(_OPERANDS_AT + 4 * slot)
    for name, slot in LIST_FIELDS.items():
        names.append(name)
        formats.append(("u2", (LIST_LENGTH,)))
        offsets.append(_OPERANDS_AT + 4 * slot)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ROW_BYTES})


ROW_BYTES = 128

INSTR = _instr_dtype()
"""Row dtype. ``op pipe peer event``: what runs where; ``dst src0 src1``: byte addresses in their spaces (GM: in the
arena of the launch); ``tensor``: GM tensor id; ``site``: place in the kernel; ``tile``: work item. ``dst_list`` and
``src_list`` are the operands that the hardware keeps in vector address registers, 16 bits per block address too."""


def empty_rows(capacity: int) -> np.ndarray:
    """Return a zeroed buffer of ``capacity`` rows."""
    return np.zeros(capacity, INSTR)


def join_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate row arrays byte by byte; NumPy's own concatenation repacks records whose fields overlap."""
    if not parts:
        return empty_rows(0)
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts]).view(INSTR)

"""Where a row touches GM, from first byte to last: what `footprint` says, without its runs, for one look a row."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.footprint_boxes import BLOCK, FRACTAL
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Mode, Op, Space


@jit
def _nd2nz(row):
    item = item_bytes(row["dtype"])
    rows = (np.int64(row["n_value"]) - 1) * np.int64(row["src_d_value"])
    matrices = (np.int64(row["nd_num"]) - 1) * np.int64(row["src_nd_stride"])
    return (matrices + rows + np.int64(row["d_value"])) * item


@jit
def _fixpipe(row):
    item = item_bytes(row["dst_dtype"])
    m, n, stride = np.int64(row["m_size"]), np.int64(row["n_size"]), np.int64(row["dst_stride"])
    if row["mode"] & Mode.NZ2ND != 0:
        matrices = (np.int64(row["nd_num"]) - 1) * np.int64(row["dst_nd_stride"])
        return (matrices + (m - 1) * stride + n) * item
    shift = 3 if row["mode"] & Mode.CHANNEL_SPLIT != 0 else 4
    return ((n - 1) >> shift) * stride * BLOCK + (m << shift) * item


@jit
def gm_extent(row):
    """Return (first byte, byte behind the last) of what a row reads or writes in GM.

    Parameters
    ----------
    row : INSTR record
        A row that moves bytes between GM and a buffer. Operands that no instruction can hold give any two numbers.

    Returns
    -------
    (int64, int64)
        Addresses in the arena.
    """
    op = row["op"]
    reads = row["src0_space"] == Space.GM and op != Op.FIXPIPE
    first = np.int64(row["src0"]) if reads else np.int64(row["dst"])
    if op == Op.DATA_COPY or op == Op.DATA_COPY_PAD:
        unit = BLOCK if op == Op.DATA_COPY else np.int64(1)
        gap = np.int64(row["src_gap"]) if reads else np.int64(row["dst_gap"])
        block, blocks = np.int64(row["block_len"]), np.int64(row["block_count"])
        length = (blocks * block + (blocks - 1) * gap) * unit
    elif op == Op.ND2NZ:
        length = _nd2nz(row)
    elif op == Op.FIXPIPE:
        length = _fixpipe(row)
    elif op == Op.LOAD_2D:
        first += np.int64(row["start_index"]) * FRACTAL
        length = ((np.int64(row["repeat"]) - 1) * np.int64(row["src_stride"]) + 1) * FRACTAL
    else:
        length = np.int64(item_bytes(row["dtype"]))
    return first, first + length

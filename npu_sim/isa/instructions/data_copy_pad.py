"""DataCopyPad: blocks of any number of bytes between GM and UB."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.atomic import EXTREMES, add_to_gm, atomic_kind, can_add
from npu_sim.isa.codes import C220, Mode, Pipe, Space
from npu_sim.isa.cost_paths import read_gm, store_gm
from npu_sim.isa.cost_rates import amount
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, READ, UB, WRITE, line, store_access
from npu_sim.isa.footprint_extent import block_extent
from npu_sim.isa.instruction import B8, B16, B32, DEVKIT, WORD, Index, Instruction, Rows
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.units import BLOCK_BYTES

OP = 20


emit_data_copy_pad = emitter(
    "data_copy_pad",
    OP,
    "MTE2 if src_space == GM else MTE3",
    "dst_space dst src_space=src0_space src=src0 block_count block_len src_gap dst_gap left_padding "
    "right_padding mode value_bits=value dtype tensor",
    """DataCopyPad between GM and UB: ``block_count`` blocks of ``block_len`` bytes.

Gaps are from the end of a block to the start of the next, in bytes on the GM side and in 32-byte blocks on the UB
side, where every block takes whole 32-byte blocks. To UB: ``left_padding`` and ``right_padding`` elements of
``dtype`` around each block; with ``mode`` `Mode.PAD` these and the rest of the last block hold ``value_bits``,
without it anything. If there is no padding, the rest of the last block repeats the first element of the block.""",
)


@jit
def footprint(row, out):
    """DataCopyPad: exact bytes in GM, whole 32-byte blocks in UB when they are written, exact bytes when read."""
    length = np.int64(row["block_len"])
    blocks = np.int64(row["block_count"])
    if length <= 0:
        return 0
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    src_gap, dst_gap = np.int64(row["src_gap"]), np.int64(row["dst_gap"])
    if row["src0_space"] == Space.GM:
        item = item_bytes(row["dtype"])
        padded = (np.int64(row["left_padding"]) + np.int64(row["right_padding"])) * item + length
        taken = (padded + BLOCK - 1) // BLOCK * BLOCK
        count = line(out, NONE, np.int64(Space.GM), READ, src, length, blocks, length + src_gap)
        return line(out, count, UB, WRITE, dst, taken, blocks, taken + dst_gap * BLOCK)
    taken = (length + BLOCK - 1) // BLOCK * BLOCK
    count = line(out, NONE, UB, READ, src, length, blocks, taken + src_gap * BLOCK)
    return line(out, count, np.int64(Space.GM), store_access(row), dst, length, blocks, length + dst_gap)


@jit
def leaves_open(row, out):
    """Padding without a value, and what is behind it in the last block."""
    length = np.int64(row["block_len"])
    item = item_bytes(row["dtype"])
    left, right = np.int64(row["left_padding"]) * item, np.int64(row["right_padding"]) * item
    if length <= 0 or left + right == 0 or row["src0_space"] != Space.GM or row["mode"] & Mode.PAD:
        return 0
    blocks, dst = np.int64(row["block_count"]), np.int64(row["dst"])
    taken = (left + length + right + BLOCK - 1) // BLOCK * BLOCK
    step = taken + np.int64(row["dst_gap"]) * BLOCK
    count = line(out, NONE, UB, WRITE, dst, left, blocks, step)
    return line(out, count, UB, WRITE, dst + left + length, taken - left - length, blocks, step)


@jit
def extent(row):
    """Bytes in GM."""
    return block_extent(row, np.int64(1))


@jit
def log_demand(row):
    """One run a block."""
    blocks = np.int64(row["block_count"])
    return blocks, blocks * (np.int64(row["block_len"]) + 15)


UNSPECIFIED_BYTE = 0xFF
"""What lanes of `leaves_open` hold: a NaN in every float format, so that a use shows."""


@jit
def _fill(ub, start, end, value, item):
    """Write the element ``value`` again and again from ``start`` to ``end``."""
    for at in range(start, end):
        ub[at] = (value >> (8 * ((at - start) % item))) & 0xFF


@jit
def _to_ub(ub, gm, row):
    """DataCopyPad GM to UB: each block is read byte-exact and written as whole 32-byte blocks."""
    item = item_bytes(row["dtype"])
    length = np.int64(row["block_len"])
    left, right = np.int64(row["left_padding"]) * item, np.int64(row["right_padding"]) * item
    taken = (left + length + right + BLOCK - 1) // BLOCK * BLOCK
    value = np.int64(row["value"])
    src_step = length + np.int64(row["src_gap"])
    dst_step = taken + np.int64(row["dst_gap"]) * BLOCK
    if length == 0:
        return
    for i in range(np.int64(row["block_count"])):
        src = np.int64(row["src0"]) + i * src_step
        dst = np.int64(row["dst"]) + i * dst_step
        data = dst + left
        copy_bytes(ub, data, gm, src, length)
        if left + right == 0:
            first = min(item, length)
            for at in range(data + length, dst + taken):
                ub[at] = gm[src + (at - data - length) % first]
        elif row["mode"] & Mode.PAD:
            _fill(ub, dst, data, value, item)
            _fill(ub, data + length, dst + taken, value, item)
        else:
            ub[dst:data] = UNSPECIFIED_BYTE
            ub[data + length : dst + taken] = UNSPECIFIED_BYTE


@jit
def _to_gm(gm, ub, row, sink, log_runs, log_bytes):
    """DataCopyPad UB to GM: exactly ``block_len`` bytes of each block, added when the row says so."""
    length = np.int64(row["block_len"])
    src_step = (length + BLOCK - 1) // BLOCK * BLOCK + np.int64(row["src_gap"]) * BLOCK
    dst_step = length + np.int64(row["dst_gap"])
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    if row["mode"] & Mode.ATOMIC:
        elements = length // item_bytes(row["dtype"])
        for i in range(np.int64(row["block_count"])):
            add_to_gm(
                gm,
                dst + i * dst_step,
                ub,
                src + i * src_step,
                elements,
                atomic_kind(row["mode"], row["dtype"]),
                sink,
                log_runs,
                log_bytes,
            )
    else:
        for i in range(np.int64(row["block_count"])):
            copy_bytes(gm, dst + i * dst_step, ub, src + i * src_step, length)


@jit
def run(row, gm, ub, sink, log_runs, log_bytes):
    """Copy either way; what is added must be whole elements of a type that can be added."""
    if row["mode"] & Mode.ATOMIC != 0:
        dtype = row["dtype"]
        if row["block_len"] % item_bytes(dtype) != 0 or not can_add(dtype):
            return False
    if row["src0_space"] == Space.GM:
        _to_ub(ub, gm, row)
    else:
        _to_gm(gm, ub, row, sink, log_runs, log_bytes)
    return True


@jit
def cost(row, cost):
    rows = np.int64(row["block_count"])
    length = np.int64(row["block_len"])
    byte_count = amount(rows, length, np.int64(1))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    floor = cost["ub_row_floor_millicycles"] if rows > 1 else np.int64(0)
    if row["src0_space"] != Space.GM:
        atomic = (row["mode"] & Mode.ATOMIC) != 0
        # a row shares blocks where it begins or ends inside one; of rows shorter than a block nothing is known
        ragged = rows > 1 and length >= 32 and (length % 32 != 0 or (length + np.int64(row["dst_gap"])) % 32 != 0)
        return store_gm(byte_count, rows, floor, ragged, cost["ub_to_gm_millibytes_per_cycle"], atomic, cost)
    rate = cost["gm_to_ub_millibytes_per_cycle"]
    if rows > 1 and (length + np.int64(row["src_gap"])) % 32 != 0:
        rate = rate * 1000 // cost["gm_to_ub_misaligned_permille"]
    return read_gm(
        byte_count,
        rows,
        floor,
        cost["gm_to_ub_command_cycles"],
        rate,
        np.int64(0),
        cost["gm_to_ub_pad_isolated_cycles"],
        cost["gm_to_ub_isolated_millibytes_per_cycle"],
        cost,
    )


def check(chunk: Rows, index: Index) -> None:
    item = chunk.item_bytes(index)
    for name in ("left_padding", "right_padding"):
        chunk.rule(index, chunk.column(index, name) * item > BLOCK_BYTES, name, f"at most {BLOCK_BYTES} bytes")
    to_ub = chunk.column(index, "dst_space") == Space.UB
    for name, in_ub in (("dst_gap", to_ub), ("src_gap", ~to_ub)):
        bad = in_ub & (chunk.column(index, name) > WORD)
        chunk.rule(index, bad, name, f"in [0, {WORD}] blocks in UB")
    adds = chunk.column(index, "mode") & Mode.ATOMIC != 0
    chunk.rule(index, adds & (chunk.column(index, "block_len") % item != 0), "block_len", "whole elements to add them")


INSTRUCTION = Instruction(
    api="DataCopyPad",
    emit=emit_data_copy_pad,
    fields=(
        "dst_space",
        "dst",
        "src0_space",
        "src0",
        "block_count",
        "block_len",
        "src_gap",
        "dst_gap",
        "left_padding",
        "right_padding",
        "value",
        "dtype",
        "mode",
    ),
    source=DEVKIT + "DataCopyPad with DataCopyExtParams; lengths and GM gaps in bytes, UB gaps in 32-byte blocks",
    routes={(Space.UB, Space.GM): Pipe.MTE2, (Space.GM, Space.UB): Pipe.MTE3},
    ranges=(
        ("block_count", 1, 4095),
        ("block_len", 0, 2097151),
        ("src_gap", 0, 2**31 - 1),
        ("dst_gap", 0, 2**31 - 1),
        ("left_padding", 0, BLOCK_BYTES),
        ("right_padding", 0, BLOCK_BYTES),
    ),
    dtypes={C220: B8 | B16 | B32},
    modes={C220: Mode.PAD | Mode.ATOMIC | EXTREMES},
    adds=True,
    unit="vector",
    footprint=footprint,
    leaves_open=leaves_open,
    run=run,
    cost=cost,
    extent=extent,
    log_demand=log_demand,
    check=check,
    defaults={
        "block_count": 1,
        "src_gap": 0,
        "dst_gap": 0,
        "left_padding": 0,
        "right_padding": 0,
        "mode": 0,
        "value_bits": 0,
        "tensor": -1,
    },
)

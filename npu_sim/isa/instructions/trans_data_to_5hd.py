"""TransDataTo5HD: 16 x 16 blocks of UB, anywhere, transposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npu_sim._jit import jit
from npu_sim.errors import shown
from npu_sim.isa.codes import C100, C220, M200, Pipe, Space
from npu_sim.isa.cost_rates import UNSUPPORTED
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, box
from npu_sim.isa.instruction import B32, BYTE, DEVKIT, UNIFIED_B16, WORD, Index, Instruction, Rows
from npu_sim.isa.lanes import transpose_blocks
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.row import LIST_LENGTH
from npu_sim.isa.vector_values import is_arithmetic
from npu_sim.reinterpret import reinterpret

OP = 29

NO_BLOCK = 0xFFFF
"""Block number of an address that no UB has; stands for addresses that are not multiples of 32 bytes."""


@jit
def block_number(address):
    """Return the 32-byte block at an address of UB, `NO_BLOCK` if there is none."""
    block = address >> 5
    if address & 31 != 0 or block < 0 or block > NO_BLOCK:
        return NO_BLOCK
    return block


@jit
def set_dst_address(rows, n, i, address):
    """Set destination ``i`` (0 to 15) of row ``n``, which `emit_trans_data_to_5hd` completes; a byte address in UB."""
    rows[n]["dst_list"][i] = block_number(address)


@jit
def set_src_address(rows, n, i, address):
    """Set source ``i`` (0 to 15) of row ``n``, which `emit_trans_data_to_5hd` completes; a byte address in UB."""
    rows[n]["src_list"][i] = block_number(address)


@jit
def set_dst_addresses(rows, n, base, inner_count, inner_step, outer_step):
    """Set the destinations of row ``n`` to ``base + i % inner_count * inner_step + i // inner_count * outer_step``.

    Bytes; an ``inner_count`` of 16 is a plain list ``base + i * inner_step``.
    """
    for i in range(16):
        set_dst_address(rows, n, i, base + i % inner_count * inner_step + i // inner_count * outer_step)


@jit
def set_src_addresses(rows, n, base, inner_count, inner_step, outer_step):
    """Set the sources of row ``n`` to ``base + i % inner_count * inner_step + i // inner_count * outer_step``.

    Bytes; an ``inner_count`` of 16 is a plain list ``base + i * inner_step``.
    """
    for i in range(16):
        set_src_address(rows, n, i, base + i % inner_count * inner_step + i // inner_count * outer_step)


emit_trans_data_to_5hd = emitter(
    "trans_data_to_5hd",
    OP,
    Pipe.V,
    "dtype repeat dst_rep_stride src_rep_stride",
    """TransDataTo5HD; set the 16 + 16 addresses of row ``n`` first (`set_dst_addresses`, `set_src_address`, ..).

16-bit: destination i, element j = source j, element i. 32-bit: destinations 2i and 2i + 1 together hold element i
of the 16 sources. Repeat r starts ``r`` strides of 32-byte blocks behind the addresses; a single repeat starts one
stride behind them, so its strides are 0.""",
    dst_space=Space.UB,
    src0_space=Space.UB,
)


@jit
def list_boxes(out, count, access, blocks, shift, length, repeats, step):
    """Note ``length`` bytes of the blocks of an address list; addresses at one distance from each other are one box."""
    first = np.int64(0)
    while first < 16:
        start = np.int64(blocks[first])
        last = first
        distance = np.int64(0)
        if first < 15:
            distance = np.int64(blocks[first + 1]) - start
            last = first + 1
            while last < 15 and np.int64(blocks[last + 1]) - np.int64(blocks[last]) == distance:
                last += 1
        count = box(
            out,
            count,
            UB,
            access,
            start * BLOCK + shift,
            length,
            last - first + 1,
            distance * BLOCK,
            repeats,
            step,
            ONCE,
            NONE,
        )
        first = last + 1
    return count


@jit
def footprint(row, out):
    """Note the blocks of the address lists and, every stride, those of the other repeats."""
    repeats = np.int64(row["repeat"])
    src_step, dst_step = np.int64(row["src_rep_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    src_shift = src_step if repeats == 1 else NONE
    dst_shift = dst_step if repeats == 1 else NONE
    count = list_boxes(out, NONE, READ, row["src_list"], src_shift, BLOCK, repeats, src_step)
    return list_boxes(out, count, WRITE, row["dst_list"], dst_shift, BLOCK, repeats, dst_step)


@jit
def _transpose(ub, row, staging):
    """TransDataTo5HD: transposes of 16 blocks of 32 bytes anywhere in UB, all read before any is written.

    Parameters
    ----------
    ub : uint8[:]
    row : INSTR record
        16 or 32-bit ``dtype``.
    staging : float32[:]
        Scratch, at least 64.

    Returns
    -------
    bool
        False, with nothing done, if an address is outside UB.
    """
    repeats = np.int64(row["repeat"])
    if repeats == 0:
        return True
    sources, targets = row["src_list"], row["dst_list"]
    src_step, dst_step = np.int64(row["src_rep_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    # A single repeat starts one stride behind the addresses (TransDataTo5HD page).
    src_shift, dst_shift = (src_step, dst_step) if repeats == 1 else (np.int64(0), np.int64(0))
    addresses = reinterpret(staging[:64], np.int64)
    last = np.int64(0)
    for i in range(16):
        addresses[i] = np.int64(sources[i]) * BLOCK + src_shift
        addresses[16 + i] = np.int64(targets[i]) * BLOCK + dst_shift
        last = max(last, addresses[i] + (repeats - 1) * src_step, addresses[16 + i] + (repeats - 1) * dst_step)
    if last + BLOCK > len(ub):
        return False
    wide = item_bytes(row["dtype"]) == 4
    for r in range(repeats):
        transpose_blocks(wide, ub, addresses, r * src_step, r * dst_step)
    return True


@jit
def run(row, ub, staging):
    """Transpose; False also for addresses outside UB."""
    return is_arithmetic(row["dtype"]) and _transpose(ub, row, staging)


@jit
def cost(row, cost):
    """One step a repeat; no mask is set, so that calls stream."""
    size = np.int64(item_bytes(row["dtype"]))
    if size != 2 and size != 4:
        return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
    repeats = np.int64(row["repeat"])
    step = cost["vector_5hd_step_millicycles"] if size == 2 else cost["vector_5hd_32bit_step_millicycles"]
    return streamed(repeats, step, cost["vector_5hd_cycles"], repeats * 512, cost)


def check(chunk: Rows, index: Index) -> None:
    single = chunk.column(index, "repeat") == 1
    for name in ("dst_rep_stride", "src_rep_stride"):
        chunk.rule(index, single & (chunk.column(index, name) != 0), name, "0 for a single repeat")


def _addresses(name, setter):
    """Return what fills an address list from the builder's operand ``name``."""

    def prepare(addresses):
        is_list = isinstance(addresses, Sequence) or (isinstance(addresses, np.ndarray) and addresses.ndim == 1)
        if not is_list or len(addresses) != LIST_LENGTH:
            return f"{name} must be {LIST_LENGTH} addresses, not {shown(addresses)}"
        return [(setter, (i, address)) for i, address in enumerate(addresses)]

    return prepare


INSTRUCTION = Instruction(
    api="TransDataTo5HD",
    emit=emit_trans_data_to_5hd,
    fields=("dst_list", "src_list", "dtype", "repeat", "dst_rep_stride", "src_rep_stride"),
    source=DEVKIT + "TransDataTo5HD; 16 + 16 block addresses, strides in 32-byte blocks",
    ranges=(
        ("repeat", 0, BYTE),
        ("dst_rep_stride", 0, WORD),
        ("src_rep_stride", 0, WORD),
    ),
    # the 8-bit form, which moves halves of blocks, is `trans_data_bytes`
    dtypes={C100: UNIFIED_B16, M200: UNIFIED_B16 | B32, C220: UNIFIED_B16 | B32},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    issue_cost="address_list_issue_cycles",
    check=check,
    defaults={"repeat": 1, "dst_rep_stride": 0, "src_rep_stride": 0},
    prepare={
        "dst_list": _addresses("dst_list", set_dst_address),
        "src_list": _addresses("src_list", set_src_address),
    },
)

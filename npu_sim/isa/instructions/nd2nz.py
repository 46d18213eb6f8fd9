"""DataCopy with Nd2NzParams: row-major matrices in GM become fractal columns in L1."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data, Pipe, Space
from npu_sim.isa.cost_rates import UNSUPPORTED, amount, divide_up, transfer_cycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, WRITE, box
from npu_sim.isa.instruction import B8, B16, B32, DEVKIT, MOVE_FIELDS, WORD, Index, Instruction, Rows
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import BLOCK, ITEM_BYTES_OF_CODE, item_bytes

OP = 7


emit_nd2nz = emitter(
    "nd2nz",
    OP,
    Pipe.MTE2,
    "dst src=src0 dtype nd_num n_value d_value src_nd_stride src_d_value dst_c0_stride dst_n_stride "
    "dst_nd_stride tensor",
    "DataCopy ND2NZ, GM to L1; source strides and ``dst_nd_stride`` in elements, the other two in 32 bytes.",
    dst_space=Space.L1,
    src0_space=Space.GM,
)


@jit
def footprint(row, out):
    """ND2NZ reads the valid elements only and writes whole blocks (zeros behind the last column)."""
    item = item_bytes(row["dtype"])
    matrices, rows, columns = np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(row["d_value"])
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    count = box(
        out,
        NONE,
        np.int64(row["src0_space"]),
        READ,
        src,
        columns * item,
        rows,
        np.int64(row["src_d_value"]) * item,
        matrices,
        np.int64(row["src_nd_stride"]) * item,
        ONCE,
        NONE,
    )
    blocks = (columns * item + BLOCK - 1) // BLOCK
    if count == 0:
        return 0
    return box(
        out,
        count,
        np.int64(row["dst_space"]),
        WRITE,
        dst,
        BLOCK,
        rows,
        np.int64(row["dst_n_stride"]) * BLOCK,
        blocks,
        np.int64(row["dst_c0_stride"]) * BLOCK,
        matrices,
        np.int64(row["dst_nd_stride"]) * item,
    )


@jit
def extent(row):
    """Bytes in GM."""
    first = np.int64(row["src0"])
    item = item_bytes(row["dtype"])
    rows = (np.int64(row["n_value"]) - 1) * np.int64(row["src_d_value"])
    matrices = (np.int64(row["nd_num"]) - 1) * np.int64(row["src_nd_stride"])
    return first, first + (matrices + rows + np.int64(row["d_value"])) * item


@jit
def run(row, gm, l1):
    """DataCopy ND2NZ: row-major matrices in GM to [C0 column][row][C0] in L1; the last column's tail becomes 0."""
    dtype = row["dtype"]
    if dtype < Data.FP16 or dtype > Data.UINT8:
        return False
    item = item_bytes(dtype)
    c0 = BLOCK // item
    d_value = np.int64(row["d_value"])
    n_value = np.int64(row["n_value"])
    src_row = np.int64(row["src_d_value"]) * item
    column = np.int64(row["dst_c0_stride"]) * BLOCK
    step = np.int64(row["dst_n_stride"]) * BLOCK
    columns = (d_value + c0 - 1) // c0
    for z in range(np.int64(row["nd_num"])):
        s0 = np.int64(row["src0"]) + z * np.int64(row["src_nd_stride"]) * item
        d0 = np.int64(row["dst"]) + z * np.int64(row["dst_nd_stride"]) * item
        for r in range(n_value):
            for c in range(columns):
                d = d0 + c * column + r * step
                s = s0 + r * src_row + c * BLOCK
                valid = min(c0, d_value - c * c0) * item
                copy_bytes(l1, d, gm, s, valid)
                for i in range(valid, BLOCK):
                    l1[d + i] = 0
    return True


@jit
def cost(row, cost):
    size = item_bytes(row["dtype"])
    rows = amount(np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(1))
    byte_count = amount(np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(row["d_value"]) * size)
    rate = cost["gm_to_l1_millibytes_per_cycle"]
    isolated_rate = cost["nd2nz_isolated_millibytes_per_cycle"]
    if isolated_rate == 0 or size == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    payload = transfer_cycles(byte_count, rate)
    pitch = np.int64(row["src_d_value"]) * size
    # rows that follow each other without a gap share the lines of L2: they are read like one
    has_gaps = row["src_d_value"] != row["d_value"]
    if rows > 1 and pitch % 32 != 0:
        payload = divide_up(payload * cost["gm_row_misaligned_permille"], 1000)
        payload = max(payload, divide_up(rows * cost["gm_row_misaligned_floor_millicycles"], 1000))
    elif has_gaps:
        payload = max(payload, divide_up(rows * cost["gm_row_floor_millicycles"], 1000))
        if rows > 1 and pitch % 512 != 0:
            payload = divide_up(payload * cost["gm_row_pitch_permille"], 1000)
    occupancy = cost["gm_to_l1_command_cycles"] + payload
    latency = max(cost["nd2nz_isolated_cycles"] + transfer_cycles(byte_count, isolated_rate) - occupancy, 0)
    contiguous = cost["gm_to_l1_isolated_cycles"] - cost["gm_to_l1_command_cycles"]
    return occupancy, max(latency, contiguous) + cost["gm_miss_latency_cycles"], byte_count


def check(chunk: Rows, index: Index) -> None:
    columns = chunk.column(index, "d_value") * ITEM_BYTES_OF_CODE[chunk.column(index, "dtype")] > BLOCK
    unset = (chunk.column(index, "dst_c0_stride") == 0) & columns
    chunk.rule(index, unset, "dst_c0_stride", "at least 1 where there is more than one column")


INSTRUCTION = Instruction(
    api="DataCopy(Nd2NzParams)",
    emit=emit_nd2nz,
    fields=(
        *MOVE_FIELDS,
        "nd_num",
        "n_value",
        "d_value",
        "src_nd_stride",
        "src_d_value",
        "dst_c0_stride",
        "dst_n_stride",
        "dst_nd_stride",
    ),
    source=DEVKIT + "DataCopy on-the-fly ND2NZ",
    routes={(Space.L1, Space.GM): Pipe.MTE2},
    ranges=(
        ("nd_num", 0, 4095),
        ("n_value", 0, 16384),
        ("d_value", 0, WORD),
        ("src_nd_stride", 0, WORD),
        ("src_d_value", 1, WORD),
        ("dst_c0_stride", 0, 16384),
        ("dst_n_stride", 1, 16384),
        ("dst_nd_stride", 0, WORD),
    ),
    dtypes={C220: B8 | B16 | B32},
    unit="cube",
    footprint=footprint,
    run=run,
    cost=cost,
    extent=extent,
    check=check,
    defaults={"nd_num": 1, "src_nd_stride": 0, "dst_n_stride": 1, "dst_nd_stride": 0, "tensor": -1},
)

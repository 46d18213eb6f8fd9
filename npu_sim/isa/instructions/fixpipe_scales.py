"""Fixpipe with a scale of its own for each column of L0C.

That is quantPre VQF322B8_PRE (float to 8 bits), VREQ8 (integers to 8 bits) and VDEQF16 (integers to half).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data, Mode, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import FB, NONE, ONCE, READ, line
from npu_sim.isa.instruction import B8, DEVKIT, Index, Instruction, Rows
from npu_sim.isa.instructions import fixpipe, fixpipe_quant
from npu_sim.isa.instructions.fixpipe_quant import quantised, scale_in, sticky_product
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.names import type_name
from npu_sim.reinterpret import reinterpret

OP = 42
_SHIFT_BIT, _SIGN_BIT, _OFFSET_AT = 36, 46, 37

emit_fixpipe_scales = emitter(
    "fixpipe_scales",
    OP,
    Pipe.FIX,
    "dst_space dst src=src0 scales=src1 dtype dst_dtype m_size n_size src_stride dst_stride nd_num src_nd_stride "
    "dst_nd_stride mode relu tensor",
    """Fixpipe as `emit_fixpipe_quant`; ``scales`` is an address in the Fixpipe buffer, of a word of 8 bytes a column.

Bits 0 to 31 of a word are the float scale, 37 to 45 the offset, 46 says whether results of 8 bits have a sign.""",
    src0_space=Space.L0C,
    src1_space=Space.FB,
)


@jit
def footprint(row, out):
    count = line(out, NONE, FB, READ, np.int64(row["src1"]), np.int64(row["n_size"]) * 8, ONCE, NONE)
    total = fixpipe.moves(row, out, count)
    return total if total != count else NONE


@jit
def log_demand(row):
    """One run for each 16 columns of a row."""
    matrices = max(np.int64(row["nd_num"]), 1) if row["mode"] & Mode.NZ2ND else np.int64(1)
    count = matrices * np.int64(row["m_size"]) * ((np.int64(row["n_size"]) + 15) // 16)
    return count, 32 * count


@jit
def _are_modelled(words, first, n, is_signed):
    """Return whether no word asks for a shift, or for 8 bits that are read with another sign."""
    for c in range(n):
        word = words[first + c]
        if word >> np.uint64(_SHIFT_BIT) & np.uint64(1) != 0:
            return False
        if is_signed >= 0 and np.int64(word >> np.uint64(_SIGN_BIT) & np.uint64(1)) != is_signed:
            return False
    return True


@jit
def run(row, gm, l1, l0c, fb, staging, sink, log_runs, log_bytes):
    """Quantise runs of 16 columns, and store them as Fixpipe does."""
    dtype = row["dst_dtype"]
    is_byte = dtype == Data.INT8 or dtype == Data.UINT8
    is_signed = np.int64(dtype == Data.INT8) if is_byte else np.int64(-1)
    of_integers, is_nd = row["dtype"] == Data.INT32, row["mode"] & Mode.NZ2ND != 0
    if (is_byte and row["mode"] & Mode.ATOMIC != 0) or (not is_byte and (dtype != Data.FP16 or not of_integers)):
        return False
    m, n = np.int64(row["m_size"]), np.int64(row["n_size"])
    first = np.int64(row["src1"])
    matrices = np.int64(row["nd_num"]) if is_nd else np.int64(1)
    if m <= 0 or n <= 0 or matrices <= 0:
        return True
    if first < 0 or first % 8 != 0 or first + 8 * n > len(fb):
        return False
    words, low_halves = reinterpret(fb, np.uint64), reinterpret(fb, np.int32)
    if not _are_modelled(words, first // 8, n, is_signed):
        return False
    target = gm if row["dst_space"] == Space.GM else l1
    atomic = row["mode"] & Mode.ATOMIC != 0 and row["dst_space"] == Space.GM
    item, column = item_bytes(dtype), np.int64(row["src_stride"]) * 16
    low, high = (-128.0, 127.0) if dtype == Data.INT8 else (0.0, 255.0)
    integers, results = reinterpret(l0c, np.int32), np.empty(16, np.float32)
    for z in range(matrices):
        begin = np.int64(row["src0"]) // 4 + z * np.int64(row["src_nd_stride"]) * 256
        for c in range(0, n, 16):
            width = min(16, n - c)
            for r in range(m):
                if is_nd:
                    at = np.int64(row["dst"]) + item * (
                        z * np.int64(row["dst_nd_stride"]) + r * np.int64(row["dst_stride"]) + c
                    )
                else:
                    at = np.int64(row["dst"]) + c // 16 * np.int64(row["dst_stride"]) * BLOCK + 16 * r * item
                for j in range(width):
                    place, word = begin + c // 16 * column + 16 * r + j, words[first // 8 + c + j]
                    scale = scale_in(np.int64(low_halves[first // 4 + 2 * (c + j)]))
                    if is_byte:
                        x = np.float64(integers[place]) if of_integers else np.float64(l0c[place])
                        offset = np.int64(word >> np.uint64(_OFFSET_AT)) & 0x1FF
                        shift = np.float64(offset - 512 if offset > 255 else offset)
                        target[fixpipe.byte_at(row, z, r, c + j)] = (
                            quantised(x, scale, shift, row["relu"] != 0, low, high) & 0xFF
                        )
                    else:
                        results[j] = sticky_product(integers[place], scale)
                        if row["relu"] != 0 and results[j] <= 0:
                            results[j] = 0
                if not is_byte:
                    fixpipe.store_run(
                        target, at, atomic, results, 0, width, dtype, reinterpret(staging, np.uint8), sink, log_runs,
                        log_bytes,
                    )  # fmt: skip
    return True


def check(chunk: Rows, index: Index) -> None:
    fixpipe.check(chunk, index)
    fixpipe_quant.check_bytes(chunk, index)
    is_byte = np.isin(chunk.column(index, "dst_dtype"), [int(data) for data in B8])
    bad = ~is_byte & (chunk.column(index, "dtype") != Data.INT32)
    chunk.unsupported(index, bad, lambda row: f"must convert {type_name(int(row['dtype']))} to what it can become")


INSTRUCTION = Instruction(
    api="Fixpipe",
    emit=emit_fixpipe_scales,
    source=DEVKIT + "Fixpipe (FixpipeParamsV220) with cbufWorkspace",
    routes={(Space.GM, Space.L0C): Pipe.FIX, (Space.L1, Space.L0C): Pipe.FIX},
    ranges=(
        ("m_size", 0, 65535),
        ("n_size", 0, 256),
        ("src_stride", 0, 65535),
        ("dst_stride", 1, 2**31 - 1),
        ("relu", 0, 1),
    ),
    dtypes={C220: frozenset({Data.FP32, Data.INT32})},
    dst_dtypes={C220: B8 | {Data.FP16}},
    modes={C220: Mode.NZ2ND | Mode.ATOMIC},
    alignment={"src1": 8},
    own_types=("scales",),
    by_data="bit 36 clear in each word of the Fixpipe buffer, and bit 46 set for int8_t and clear for uint8_t",
    adds=True,
    unit="cube",
    footprint=footprint,
    run=run,
    cost=fixpipe.cost,
    extent=fixpipe.extent,
    log_demand=log_demand,
    check=check,
    defaults={
        "dst_space": Space.GM,
        "dtype": Data.INT32,
        "nd_num": 1,
        "src_nd_stride": 0,
        "dst_nd_stride": 0,
        "mode": 0,
        "relu": 0,
        "tensor": -1,
    },
)

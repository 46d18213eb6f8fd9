"""From a row to its semantics: the one place that knows which function an opcode means."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.atomic import add_to_gm
from npu_sim.isa.copy_pad import copy_to_gm, copy_to_ub, scalar_copy
from npu_sim.isa.cube import OK, clamp_l0c, mmad
from npu_sim.isa.fixpipe import fixpipe, l0c_to_ub
from npu_sim.isa.img2col import load_3d, load_3d_v1
from npu_sim.isa.mte import (
    copy_blocks,
    fill_bytes,
    fill_l0,
    is_carried,
    item_bytes,
    load_2d_to_l0,
    load_2d_to_l1,
    load_transpose,
    nd2nz,
)
from npu_sim.isa.op import OP_COUNT, Data, Mode, Op, Space
from npu_sim.isa.vector import cast, combine, combine_scalar, duplicate
from npu_sim.isa.vector_kind import has_scalar, has_two_inputs
from npu_sim.isa.vector_move import reduce_repeat, trans_data_to_5hd
from npu_sim.reinterpret import reinterpret

CONFIG_LENGTH = 8
"""int64 words of the numeric configuration: 0 group, 1 inner, 2 round (`accumulation` codes), 3 saturate, 4 HF32 drop
bits, 5 HF32 tie rule, 6-7 spare."""


@jit
def _data_copy(row, gm, l1, ub, sink, log_runs, log_bytes):
    """DataCopy between raw byte spaces, adding in GM when the row says so."""
    count = np.int64(row["block_count"])
    length = np.int64(row["block_len"]) * 32
    src_step = length + np.int64(row["src_gap"]) * 32
    dst_step = length + np.int64(row["dst_gap"]) * 32
    src_at, dst_at = np.int64(row["src0"]), np.int64(row["dst"])
    src_space = row["src0_space"]
    src = gm if src_space == Space.GM else (l1 if src_space == Space.L1 else ub)
    dst_space = row["dst_space"]
    dst = gm if dst_space == Space.GM else (l1 if dst_space == Space.L1 else ub)
    if row["mode"] & Mode.ATOMIC and dst_space == Space.GM:
        elements = length // item_bytes(row["dtype"])
        for i in range(count):
            add_to_gm(
                dst,
                dst_at + i * dst_step,
                src,
                src_at + i * src_step,
                elements,
                row["dtype"],
                sink,
                log_runs,
                log_bytes,
            )
    else:
        copy_blocks(dst, dst_at, src, src_at, count, length, src_step, dst_step)


@jit
def _mmad(row, l0a, l0b, l0c, config, scratch):
    mode = row["mode"]
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m == 0 or n == 0 or k == 0:
        return OK
    k0 = 8 if row["dtype"] == Data.FP32 else 16
    drop = config[4] if mode & Mode.HF32 else 0
    address = np.int64(row["dst"])
    code = mmad(
        l0a,
        l0b,
        l0c,
        np.int64(row["src0"]),
        np.int64(row["src1"]),
        address,
        m,
        n,
        k,
        k0,
        1 if mode & Mode.K_ALIGN else 0,
        1 if mode & Mode.INIT else 0,
        drop,
        config[5],
        config[0],
        config[1],
        config[2],
        scratch,
    )
    if code == OK and config[3] != 0:
        clamp_l0c(l0c, address, m, n)
    return code


@jit
def _is_arithmetic(dtype):
    """Return whether the vector unit and atomic adds compute with ``dtype`` here."""
    return dtype >= Data.FP16 and dtype <= Data.INT16


@jit
def has_semantics(row):
    """Return whether the element types of a row exist here; hardware has more (8-bit Cube, requantising Fixpipe).

    Without this a row of such a type would move or compute something else in silence.
    """
    op, dtype = row["op"], row["dtype"]
    if op == Op.MMAD:
        return dtype == Data.FP16 or dtype == Data.BF16 or dtype == Data.FP32
    if op == Op.DATA_COPY:
        return row["mode"] & Mode.ATOMIC == 0 or dtype == Data.INT8 or _is_arithmetic(dtype)
    if op == Op.LOAD_3D_V1:
        return dtype == Data.FP16 or dtype == Data.BF16
    if op == Op.LOAD_3D or op == Op.LOAD_2D or op == Op.LOAD_TRANSPOSE or op == Op.FILL:
        return row["dst_space"] == Space.L1 or is_carried(dtype)
    if op == Op.FIXPIPE or op == Op.L0C_TO_UB:
        return is_carried(row["dst_dtype"])
    if op == Op.DATA_COPY_PAD:
        whole = row["block_len"] % item_bytes(dtype) == 0
        return row["mode"] & Mode.ATOMIC == 0 or (whole and (dtype == Data.INT8 or _is_arithmetic(dtype)))
    if op == Op.DIV or op == Op.REDUCE_REPEAT:
        return dtype == Data.FP16 or dtype == Data.FP32
    if op == Op.TRANS_DATA_TO_5HD or op == Op.DUPLICATE or has_two_inputs(op) or has_scalar(op):
        return _is_arithmetic(dtype)
    if op == Op.ND2NZ:
        return dtype >= Data.FP16 and dtype <= Data.UINT8
    if op == Op.CAST:
        return dtype != Data.NONE and row["dst_dtype"] != Data.NONE
    return op < OP_COUNT


@jit
def _run_cube_rows(rows, first, last, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes):
    """Carry out rows of the Cube and its data movers as far as they go; return the row it ends at.

    These are the opcodes up to L0C_TO_UB. `_run_vector_rows` carries out those from DUPLICATE on; flags, barriers,
    state and DataCopy, up to DATA_COPY, belong to both.
    """
    for i in range(first, last):
        row = rows[i]
        op = row["op"]
        if not has_semantics(row):
            return i
        if op == Op.MMAD:
            if _mmad(row, l0a, l0b, l0c, config, scratch) != OK:
                return i
        elif op == Op.LOAD_3D:
            load_3d(l0b if row["dst_space"] == Space.L0B else l0a, l1, row, staging)
        elif op == Op.DATA_COPY:
            _data_copy(row, gm, l1, ub, sink, log_runs, log_bytes)
        elif op == Op.LOAD_2D:
            src = gm if row["src0_space"] == Space.GM else l1
            if row["dst_space"] == Space.L1:
                load_2d_to_l1(l1, src, row)
            else:
                load_2d_to_l0(l0b if row["dst_space"] == Space.L0B else l0a, src, row)
        elif op == Op.FIXPIPE:
            target = gm if row["dst_space"] == Space.GM else l1
            fixpipe(target, l0c, row, reinterpret(staging, np.uint8), sink, log_runs, log_bytes)
        elif op == Op.L0C_TO_UB:
            l0c_to_ub(ub, l0c, row, config[3])
        elif op == Op.LOAD_3D_V1:
            load_3d_v1(l0b if row["dst_space"] == Space.L0B else l0a, l1, row, staging)
        elif op == Op.ND2NZ:
            nd2nz(l1, np.int64(row["dst"]), gm, np.int64(row["src0"]), row)
        elif op == Op.LOAD_TRANSPOSE:
            load_transpose(l0b if row["dst_space"] == Space.L0B else l0a, l1, row)
        elif op == Op.FILL:
            if row["dst_space"] == Space.L1:
                fill_bytes(l1, row)
            else:
                fill_l0(l0b if row["dst_space"] == Space.L0B else l0a, row, staging)
        elif op >= Op.DUPLICATE:
            return i
    return last


@jit
def _run_vector_rows(rows, first, last, gm, l1, ub, config, staging, sink, log_runs, log_bytes):
    """Carry out rows of the vector and scalar units and their copies as far as they go; return the row it ends at."""
    for i in range(first, last):
        row = rows[i]
        op = row["op"]
        if not has_semantics(row):
            return i
        if op == Op.DATA_COPY:
            _data_copy(row, gm, l1, ub, sink, log_runs, log_bytes)
        elif op == Op.DUPLICATE:
            duplicate(ub, row)
        elif op == Op.CAST:
            cast(ub, row, config[3])
        elif has_two_inputs(op):
            combine(ub, row, staging, config[3])
        elif has_scalar(op):
            combine_scalar(ub, row, staging, config[3])
        elif op == Op.TRANS_DATA_TO_5HD:
            if not trans_data_to_5hd(ub, row, staging):
                return i
        elif op == Op.DATA_COPY_PAD:
            if row["src0_space"] == Space.GM:
                copy_to_ub(ub, gm, row)
            else:
                copy_to_gm(gm, ub, row, sink, log_runs, log_bytes)
        elif op == Op.REDUCE_REPEAT:
            reduce_repeat(ub, row, staging, config[3])
        elif op == Op.SCALAR_COPY:
            scalar_copy(gm if row["dst_space"] == Space.GM else ub, gm if row["src0_space"] == Space.GM else ub, row)
        elif op > Op.DATA_COPY:
            return i
    return last


@jit
def _is_for_cube(rows, first, last):
    """Return whether the first row that only one of the two functions carries out is the Cube's."""
    for i in range(first, last):
        op = rows[i]["op"]
        if op > Op.DATA_COPY:
            return op < Op.DUPLICATE
    return False


def run_rows(
    rows: np.ndarray,
    first: int,
    last: int,
    gm: np.ndarray,
    l1: np.ndarray,
    l0a: np.ndarray,
    l0b: np.ndarray,
    l0c: np.ndarray,
    ub: np.ndarray,
    config: np.ndarray,
    scratch: np.ndarray,
    staging: np.ndarray,
    sink: np.ndarray,
    log_runs: np.ndarray,
    log_bytes: np.ndarray,
) -> int:
    """Carry out ``rows[first:last]`` in program order.

    Cube and vector units have a compiled function each, so that a program of one compiles nothing for the other; where
    a unified core mixes them they take turns.

    Parameters
    ----------
    rows : INSTR[:]
        Rows that went through `issue`.
    first, last : int
        Range of rows.
    gm, l1, ub : uint8[:]
        Arenas.
    l0a, l0b, l0c : float32[:]
        Carriers and accumulators.
    config : int64[CONFIG_LENGTH]
        Numeric configuration.
    scratch : float64[:]
        Workspace of `cube.mmad`.
    staging : float32[:]
        Scratch, at least 8192 (32 KiB) and as long as L0C.
    sink, log_runs, log_bytes : arrays
        Where atomic additions go (`atomic`).

    Returns
    -------
    int
        -1, or the first row that cannot be carried out: an unknown opcode, element types that do not exist here, or
        a Mmad or TransDataTo5HD outside the buffers.
    """
    at = first
    while at < last:
        before = at
        if _is_for_cube(rows, at, last):
            at = _run_cube_rows(
                rows, at, last, gm, l1, l0a, l0b, l0c, ub, config, scratch, staging, sink, log_runs, log_bytes
            )
        else:
            at = _run_vector_rows(rows, at, last, gm, l1, ub, config, staging, sink, log_runs, log_bytes)
        if at == before:
            return at
    return -1

"""Emitters: one jitted function per opcode. Each writes row ``n`` of ``rows`` and returns ``n + 1``.

Every emitter writes the operands that `op.OPS` lists for its opcode and nothing else, so a row buffer is never cleared.
``site`` is the place in the kernel and ``tile`` the work item, both only for messages. Addresses are bytes in their
space (GM: in the arena of the launch), lengths in the unit the Ascend C parameter of the same name has.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit_head import pipe_of_copy, write_head
from npu_sim.isa.emit_vector import (
    block_number,
    emit_add,
    emit_adds,
    emit_cast,
    emit_div,
    emit_duplicate,
    emit_max,
    emit_min,
    emit_mul,
    emit_muls,
    emit_reduce_repeat,
    emit_sub,
    emit_trans_data_to_5hd,
    set_dst_address,
    set_dst_addresses,
    set_src_address,
    set_src_addresses,
)
from npu_sim.isa.op import Op, Pipe, Space

__all__ = [
    "block_number",
    "emit_add",
    "emit_adds",
    "emit_cast",
    "emit_data_copy",
    "emit_data_copy_pad",
    "emit_div",
    "emit_duplicate",
    "emit_fill",
    "emit_fixpipe",
    "emit_l0c_to_ub",
    "emit_load_2d",
    "emit_load_3d",
    "emit_load_3d_v1",
    "emit_load_transpose",
    "emit_max",
    "emit_min",
    "emit_mmad",
    "emit_mul",
    "emit_muls",
    "emit_nd2nz",
    "emit_pipe_barrier",
    "emit_reduce_repeat",
    "emit_scalar_copy",
    "emit_set_atomic",
    "emit_set_flag",
    "emit_set_hf32",
    "emit_sub",
    "emit_trans_data_to_5hd",
    "emit_wait_flag",
    "pipe_of_copy",
    "set_dst_address",
    "set_dst_addresses",
    "set_feature_map",
    "set_src_address",
    "set_src_addresses",
    "set_window",
]


@jit
def emit_set_flag(rows, n, src_pipe, dst_pipe, event, site, tile):
    """SetFlag<src_dst>(event): set when the earlier instructions of ``src_pipe`` are complete."""
    row = rows[n]
    write_head(row, Op.SET_FLAG, src_pipe, site, tile)
    row["peer"] = dst_pipe
    row["event"] = event
    return n + 1


@jit
def emit_wait_flag(rows, n, src_pipe, dst_pipe, event, site, tile):
    """WaitFlag<src_dst>(event): ``dst_pipe`` waits for the flag and clears it."""
    row = rows[n]
    write_head(row, Op.WAIT_FLAG, dst_pipe, site, tile)
    row["peer"] = src_pipe
    row["event"] = event
    return n + 1


@jit
def emit_pipe_barrier(rows, n, pipe, site, tile):
    """PipeBarrier<pipe>: later instructions of ``pipe`` (`Pipe.ALL`: of every pipe) wait for earlier ones."""
    write_head(rows[n], Op.PIPE_BARRIER, pipe, site, tile)
    return n + 1


@jit
def emit_set_atomic(rows, n, dtype, site, tile):
    """SetAtomicAdd<dtype>; `Data.NONE` is SetAtomicNone."""
    row = rows[n]
    write_head(row, Op.SET_ATOMIC, Pipe.S, site, tile)
    row["dtype"] = dtype
    return n + 1


@jit
def emit_set_hf32(rows, n, enable, site, tile):
    """SetHF32Mode(enable)."""
    row = rows[n]
    write_head(row, Op.SET_HF32, Pipe.S, site, tile)
    row["value"] = enable
    return n + 1


@jit
def emit_data_copy(
    rows, n, dst_space, dst, src_space, src, block_count, block_len, src_gap, dst_gap, dtype, tensor, site, tile
):
    """DataCopy: ``block_count`` blocks of ``block_len`` x 32 bytes; gaps in 32 bytes, end to start.

    ``dtype`` matters only for atomic adds; ``tensor`` is the GM tensor of the GM side (-1: none).
    """
    row = rows[n]
    write_head(row, Op.DATA_COPY, pipe_of_copy(dst_space, src_space), site, tile)
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = src_space
    row["src0"] = src
    row["block_count"] = block_count
    row["block_len"] = block_len
    row["src_gap"] = src_gap
    row["dst_gap"] = dst_gap
    row["dtype"] = dtype
    row["tensor"] = tensor
    return n + 1


@jit
def emit_nd2nz(
    rows,
    n,
    dst,
    src,
    dtype,
    nd_num,
    n_value,
    d_value,
    src_nd_stride,
    src_d_value,
    dst_c0_stride,
    dst_n_stride,
    dst_nd_stride,
    tensor,
    site,
    tile,
):
    """DataCopy ND2NZ, GM to L1; source strides and ``dst_nd_stride`` in elements, the other two in 32 bytes."""
    row = rows[n]
    write_head(row, Op.ND2NZ, Pipe.MTE2, site, tile)
    row["dst_space"] = Space.L1
    row["dst"] = dst
    row["src0_space"] = Space.GM
    row["src0"] = src
    row["dtype"] = dtype
    row["nd_num"] = nd_num
    row["n_value"] = n_value
    row["d_value"] = d_value
    row["src_nd_stride"] = src_nd_stride
    row["src_d_value"] = src_d_value
    row["dst_c0_stride"] = dst_c0_stride
    row["dst_n_stride"] = dst_n_stride
    row["dst_nd_stride"] = dst_nd_stride
    row["tensor"] = tensor
    return n + 1


@jit
def emit_load_2d(
    rows, n, dst_space, dst, src_space, src, dtype, start_index, repeat, src_stride, dst_gap, mode, tensor, site, tile
):
    """LoadData2D: ``repeat`` fractals; ``mode`` is 0 or `Mode.TRANSPOSE`. MTE1 from L1, MTE2 from GM."""
    row = rows[n]
    write_head(row, Op.LOAD_2D, Pipe.MTE2 if src_space == Space.GM else Pipe.MTE1, site, tile)
    row["mode"] = mode
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = src_space
    row["src0"] = src
    row["dtype"] = dtype
    row["start_index"] = start_index
    row["repeat"] = repeat
    row["src_stride"] = src_stride
    row["dst_gap"] = dst_gap
    row["tensor"] = tensor
    return n + 1


@jit
def emit_load_transpose(
    rows, n, dst_space, dst, src, dtype, start_index, repeat, src_stride, dst_gap, dst_frac_gap, site, tile
):
    """LoadDataWithTranspose, L1 to L0A or L0B: squares of 16x16 (16-bit: one fractal, 32-bit: two)."""
    row = rows[n]
    write_head(row, Op.LOAD_TRANSPOSE, Pipe.MTE1, site, tile)
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = Space.L1
    row["src0"] = src
    row["dtype"] = dtype
    row["start_index"] = start_index
    row["repeat"] = repeat
    row["src_stride"] = src_stride
    row["dst_gap"] = dst_gap
    row["dst_frac_gap"] = dst_frac_gap
    return n + 1


@jit
def set_feature_map(rows, n, l1_h, l1_w, pad_left, pad_right, pad_top, pad_bottom):
    """Fill the SetFmatrix operands of row ``n`` (a load3d row that `emit_load_3d*` completes)."""
    row = rows[n]
    row["l1_h"] = l1_h
    row["l1_w"] = l1_w
    row["pad_left"] = pad_left
    row["pad_right"] = pad_right
    row["pad_top"] = pad_top
    row["pad_bottom"] = pad_bottom


@jit
def set_window(rows, n, stride_w, stride_h, filter_w, filter_h, dilation_w, dilation_h):
    """Fill the window operands of row ``n`` (a load3d row that `emit_load_3d*` completes)."""
    row = rows[n]
    row["stride_w"] = stride_w
    row["stride_h"] = stride_h
    row["filter_w"] = filter_w
    row["filter_h"] = filter_h
    row["dilation_w"] = dilation_w
    row["dilation_h"] = dilation_h


@jit
def emit_load_3d(rows, n, dst_space, dst, src, dtype, channel_size, k_ext, m_ext, k_start, m_start, mode, site, tile):
    """LoadData3DV2, L1 to L0A or L0B; call `set_feature_map` and `set_window` for row ``n`` first.

    ``mode`` is 0 or `Mode.TRANSPOSE` (L0A: K-major; L0B always is).
    """
    row = rows[n]
    write_head(row, Op.LOAD_3D, Pipe.MTE1, site, tile)
    row["mode"] = mode
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = Space.L1
    row["src0"] = src
    row["dtype"] = dtype
    row["channel_size"] = channel_size
    row["k_ext"] = k_ext
    row["m_ext"] = m_ext
    row["k_start"] = k_start
    row["m_start"] = m_start
    return n + 1


@jit
def emit_load_3d_v1(
    rows,
    n,
    dst_space,
    dst,
    src,
    dtype,
    c1_index,
    fetch_filter_w,
    fetch_filter_h,
    left_top_w,
    left_top_h,
    jump_stride,
    repeat_mode,
    repeat,
    site,
    tile,
):
    """LoadData3DV1, L1 to L0A or L0B, one fractal per repeat; call `set_feature_map` and `set_window` first."""
    row = rows[n]
    write_head(row, Op.LOAD_3D_V1, Pipe.MTE1, site, tile)
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = Space.L1
    row["src0"] = src
    row["dtype"] = dtype
    row["c1_index"] = c1_index
    row["fetch_filter_w"] = fetch_filter_w
    row["fetch_filter_h"] = fetch_filter_h
    row["left_top_w"] = left_top_w
    row["left_top_h"] = left_top_h
    row["jump_stride"] = jump_stride
    row["repeat_mode"] = repeat_mode
    row["repeat"] = repeat
    return n + 1


@jit
def emit_fill(rows, n, dst_space, dst, dtype, repeat, block_num, dst_gap, value_bits, site, tile):
    """InitConstValue: ``repeat`` times ``block_num`` blocks (L1: 32 bytes, L0A/L0B: 512), ``dst_gap`` blocks apart.

    ``value_bits`` is the bit pattern of one element of ``dtype``.
    """
    row = rows[n]
    write_head(row, Op.FILL, Pipe.MTE2 if dst_space == Space.L1 else Pipe.MTE1, site, tile)
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["dtype"] = dtype
    row["repeat"] = repeat
    row["block_num"] = block_num
    row["dst_gap"] = dst_gap
    row["value"] = value_bits
    return n + 1


@jit
def emit_mmad(rows, n, dst, src_a, src_b, dtype, m, n_elems, k, mode, site, tile):
    """Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n]; ``mode``: `Mode.INIT`, `Mode.K_ALIGN`."""
    row = rows[n]
    write_head(row, Op.MMAD, Pipe.M, site, tile)
    row["mode"] = mode
    row["dst_space"] = Space.L0C
    row["src0_space"] = Space.L0A
    row["src1_space"] = Space.L0B
    row["dst"] = dst
    row["src0"] = src_a
    row["src1"] = src_b
    row["dtype"] = dtype
    row["m"] = m
    row["n"] = n_elems
    row["k"] = k
    return n + 1


@jit
def emit_fixpipe(
    rows,
    n,
    dst_space,
    dst,
    src,
    dst_dtype,
    m_size,
    n_size,
    src_stride,
    dst_stride,
    nd_num,
    src_nd_stride,
    dst_nd_stride,
    mode,
    tensor,
    site,
    tile,
):
    """Fixpipe, L0C to GM or L1; ``mode``: `Mode.CHANNEL_SPLIT`, `Mode.NZ2ND`. Strides as FixpipeParamsV220."""
    row = rows[n]
    write_head(row, Op.FIXPIPE, Pipe.FIX, site, tile)
    row["mode"] = mode
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = Space.L0C
    row["src0"] = src
    row["dst_dtype"] = dst_dtype
    row["m_size"] = m_size
    row["n_size"] = n_size
    row["src_stride"] = src_stride
    row["dst_stride"] = dst_stride
    row["nd_num"] = nd_num
    row["src_nd_stride"] = src_nd_stride
    row["dst_nd_stride"] = dst_nd_stride
    row["tensor"] = tensor
    return n + 1


@jit
def emit_l0c_to_ub(rows, n, dst, src, dst_dtype, block_count, block_len, src_gap, dst_gap, site, tile):
    """DataCopy L0C to UB, MATRIX mode: ``block_len`` and ``src_gap`` in 16x16 fractals, ``dst_gap`` in 32 bytes."""
    row = rows[n]
    write_head(row, Op.L0C_TO_UB, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["dst"] = dst
    row["src0_space"] = Space.L0C
    row["src0"] = src
    row["dst_dtype"] = dst_dtype
    row["block_count"] = block_count
    row["block_len"] = block_len
    row["src_gap"] = src_gap
    row["dst_gap"] = dst_gap
    return n + 1


@jit
def emit_data_copy_pad(
    rows,
    n,
    dst_space,
    dst,
    src_space,
    src,
    block_count,
    block_len,
    src_gap,
    dst_gap,
    left_padding,
    right_padding,
    mode,
    value_bits,
    dtype,
    tensor,
    site,
    tile,
):
    """DataCopyPad between GM and UB: ``block_count`` blocks of ``block_len`` bytes.

    Gaps are from the end of a block to the start of the next, in bytes on the GM side and in 32-byte blocks on the UB
    side, where every block takes whole 32-byte blocks. To UB: ``left_padding`` and ``right_padding`` elements of
    ``dtype`` around each block; with ``mode`` `Mode.PAD` these and the rest of the last block hold ``value_bits``,
    without it anything. If there is no padding, the rest of the last block repeats the first element of the block.
    """
    row = rows[n]
    write_head(row, Op.DATA_COPY_PAD, Pipe.MTE2 if src_space == Space.GM else Pipe.MTE3, site, tile)
    row["mode"] = mode
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = src_space
    row["src0"] = src
    row["block_count"] = block_count
    row["block_len"] = block_len
    row["src_gap"] = src_gap
    row["dst_gap"] = dst_gap
    row["left_padding"] = left_padding
    row["right_padding"] = right_padding
    row["value"] = value_bits
    row["dtype"] = dtype
    row["tensor"] = tensor
    return n + 1


@jit
def emit_scalar_copy(rows, n, dst_space, dst, src_space, src, dtype, tensor, site, tile):
    """GetValue and SetValue: the scalar unit moves one element of ``dtype`` inside UB or between UB and GM.

    ``tensor`` is the GM tensor of the GM side (-1: none).
    """
    row = rows[n]
    write_head(row, Op.SCALAR_COPY, Pipe.S, site, tile)
    row["dst_space"] = dst_space
    row["dst"] = dst
    row["src0_space"] = src_space
    row["src0"] = src
    row["dtype"] = dtype
    row["tensor"] = tensor
    return n + 1

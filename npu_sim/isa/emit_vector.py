"""Emitters of the vector instructions; `npu_sim.isa.emit` offers them with all others."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit_head import write_head
from npu_sim.isa.op import Op, Pipe, Space


@jit
def emit_duplicate(rows, n, dst, dtype, count, value_bits, site, tile):
    """Duplicate: ``count`` elements of UB get the bit pattern ``value_bits``."""
    row = rows[n]
    write_head(row, Op.DUPLICATE, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["dst"] = dst
    row["dtype"] = dtype
    row["count"] = count
    row["value"] = value_bits
    return n + 1


@jit
def _two_inputs(row, op, dst, src0, src1, dtype, count, site, tile):
    write_head(row, op, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["src0_space"] = Space.UB
    row["src1_space"] = Space.UB
    row["dst"] = dst
    row["src0"] = src0
    row["src1"] = src1
    row["dtype"] = dtype
    row["count"] = count


@jit
def emit_add(rows, n, dst, src0, src1, dtype, count, site, tile):
    """Add: dst[i] = src0[i] + src1[i] in UB, ``count`` elements."""
    _two_inputs(rows[n], Op.ADD, dst, src0, src1, dtype, count, site, tile)
    return n + 1


@jit
def emit_sub(rows, n, dst, src0, src1, dtype, count, site, tile):
    """Sub: dst[i] = src0[i] - src1[i] in UB, ``count`` elements."""
    _two_inputs(rows[n], Op.SUB, dst, src0, src1, dtype, count, site, tile)
    return n + 1


@jit
def emit_mul(rows, n, dst, src0, src1, dtype, count, site, tile):
    """Mul: dst[i] = src0[i] * src1[i] in UB, ``count`` elements."""
    _two_inputs(rows[n], Op.MUL, dst, src0, src1, dtype, count, site, tile)
    return n + 1


@jit
def emit_div(rows, n, dst, src0, src1, dtype, count, site, tile):
    """Div: dst[i] = src0[i] / src1[i] in UB, ``count`` elements; half and float."""
    _two_inputs(rows[n], Op.DIV, dst, src0, src1, dtype, count, site, tile)
    return n + 1


@jit
def emit_max(rows, n, dst, src0, src1, dtype, count, site, tile):
    """Max: dst[i] = the larger of src0[i] and src1[i] in UB, ``count`` elements."""
    _two_inputs(rows[n], Op.MAX, dst, src0, src1, dtype, count, site, tile)
    return n + 1


@jit
def emit_min(rows, n, dst, src0, src1, dtype, count, site, tile):
    """Min: dst[i] = the smaller of src0[i] and src1[i] in UB, ``count`` elements."""
    _two_inputs(rows[n], Op.MIN, dst, src0, src1, dtype, count, site, tile)
    return n + 1


@jit
def _one_scalar(row, op, dst, src, dtype, count, value_bits, site, tile):
    write_head(row, op, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["src0_space"] = Space.UB
    row["dst"] = dst
    row["src0"] = src
    row["dtype"] = dtype
    row["count"] = count
    row["value"] = value_bits


@jit
def emit_muls(rows, n, dst, src, dtype, count, value_bits, site, tile):
    """Muls: dst[i] = src[i] * value in UB; ``value_bits`` is the scalar's bit pattern in ``dtype``."""
    _one_scalar(rows[n], Op.MULS, dst, src, dtype, count, value_bits, site, tile)
    return n + 1


@jit
def emit_adds(rows, n, dst, src, dtype, count, value_bits, site, tile):
    """Add a scalar (Adds): dst[i] = src[i] + value in UB; ``value_bits`` is the scalar's bit pattern in ``dtype``."""
    _one_scalar(rows[n], Op.ADDS, dst, src, dtype, count, value_bits, site, tile)
    return n + 1


@jit
def emit_cast(rows, n, dst, src, src_dtype, dst_dtype, round_mode, count, site, tile):
    """Cast: ``count`` elements of UB from ``src_dtype`` to ``dst_dtype`` with a `dtypes.RoundMode`."""
    row = rows[n]
    write_head(row, Op.CAST, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["src0_space"] = Space.UB
    row["dst"] = dst
    row["src0"] = src
    row["dtype"] = src_dtype
    row["dst_dtype"] = dst_dtype
    row["round_mode"] = round_mode
    row["count"] = count
    return n + 1


@jit
def emit_reduce_repeat(
    rows, n, dst, src, dtype, mask, repeat, dst_rep_stride, src_blk_stride, src_rep_stride, site, tile
):
    """ReduceRepeat<SUM>: each repeat of 256 bytes becomes one element, the sum of its first ``mask`` elements.

    ``dst_rep_stride`` in elements, ``src_blk_stride`` (between the 8 blocks of a repeat) and ``src_rep_stride`` in
    32-byte blocks.
    """
    row = rows[n]
    write_head(row, Op.REDUCE_REPEAT, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["src0_space"] = Space.UB
    row["dst"] = dst
    row["src0"] = src
    row["dtype"] = dtype
    row["mask"] = mask
    row["repeat"] = repeat
    row["dst_rep_stride"] = dst_rep_stride
    row["src_blk_stride"] = src_blk_stride
    row["src_rep_stride"] = src_rep_stride
    return n + 1


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


@jit
def emit_trans_data_to_5hd(rows, n, dtype, repeat, dst_rep_stride, src_rep_stride, site, tile):
    """TransDataTo5HD; set the 16 + 16 addresses of row ``n`` first (`set_dst_addresses`, `set_src_address`, ..).

    16-bit: destination i, element j = source j, element i. 32-bit: destinations 2i and 2i + 1 together hold element i
    of the 16 sources. Repeat r starts ``r`` strides of 32-byte blocks behind the addresses; a single repeat starts one
    stride behind them, so its strides are 0.
    """
    row = rows[n]
    write_head(row, Op.TRANS_DATA_TO_5HD, Pipe.V, site, tile)
    row["dst_space"] = Space.UB
    row["src0_space"] = Space.UB
    row["dtype"] = dtype
    row["repeat"] = repeat
    row["dst_rep_stride"] = dst_rep_stride
    row["src_rep_stride"] = src_rep_stride
    return n + 1

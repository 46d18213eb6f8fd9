"""Vector loads and stores between raw bytes and float32 carriers: one 32-byte block at a time.

Numba's CPU target has no float16, and plain loops over bit patterns decode at a tenth of the speed of one conversion of
a vector, so each step is LLVM IR (`lanes_ir`); without the JIT it is its twin in NumPy (`lanes_twin`).
"""

from __future__ import annotations

from npu_sim._jit import JIT_ENABLED, jit
from npu_sim.isa.codes import Data

if JIT_ENABLED:
    from npu_sim.isa import lanes_ir as _kernels
else:
    from npu_sim.isa import lanes_twin as _kernels

_decode_fp16, _decode_bf16, _copy_fp32 = (_kernels.decode(kind) for kind in ("fp16", "bf16", "fp32"))
_transpose_fp16, _transpose_bf16, _transpose_fp32 = (_kernels.transpose(kind) for kind in ("fp16", "bf16", "fp32"))
_transpose_blocks_16, _transpose_blocks_32 = _kernels.transpose_blocks(16), _kernels.transpose_blocks(32)
_copy, _splat, _compress = _kernels.copy, _kernels.splat, _kernels.compress
_add_block = _kernels.add_block
_nonzero, _fragile, _tiny, _awkward = _kernels.nonzero, _kernels.fragile, _kernels.tiny, _kernels.awkward
_minus_zero, _nan, _unusual, _extreme = _kernels.minus_zero, _kernels.nan, _kernels.unusual, _kernels.extreme


@jit
def decode_rows(dtype, src, src_byte, src_step, dst, dst_index, dst_step, count):
    """Decode ``count`` 32-byte blocks into carriers.

    Parameters
    ----------
    dtype : Data
        FP16 or BF16 (16 carriers a block) or FP32 (8).
    src : uint8[:]
        Raw bytes; block i starts at ``src_byte + i * src_step``.
    dst : float32[:]
        Carriers; block i goes to ``dst_index + i * dst_step``.
    """
    if dtype == Data.FP16:
        for i in range(count):
            _decode_fp16(src, src_byte + i * src_step, dst, dst_index + i * dst_step)
    elif dtype == Data.BF16:
        for i in range(count):
            _decode_bf16(src, src_byte + i * src_step, dst, dst_index + i * dst_step)
    else:
        for i in range(count):
            _copy_fp32(src, src_byte + i * src_step, dst, dst_index + i * dst_step)


@jit
def copy_bytes(dst, dst_byte, src, src_byte, length):
    """Copy ``length`` bytes between two arrays, of any element type, whose ranges do not overlap."""
    _copy(dst, dst_byte, src, src_byte, length)


@jit
def add_rows(dst, dst_byte, src, src_index, src_step, count):
    """Add ``count`` rows of 8 float32, ``src_step`` apart in float32[:], to adjacent ones in the uint8[:] ``dst``."""
    for i in range(count):
        _add_block(dst, dst_byte + 32 * i, src, src_index + i * src_step)


@jit
def splat_rows(dst, dst_index, dst_step, count, lanes, value):
    """Write ``value`` to ``count`` rows of ``lanes`` (16 or 8) carriers."""
    if lanes == 16:
        for i in range(count):
            _splat(dst, dst_index + i * dst_step, value)
    else:
        for i in range(count):
            for j in range(8):
                dst[dst_index + i * dst_step + j] = value


@jit
def decode_fractal_transposed(dtype, src, src_byte, dst, dst_index):
    """Decode a 512-byte fractal (16 rows of 32 bytes) so that carrier ``16 c + r`` is element (r, c)."""
    if dtype == Data.FP16:
        _transpose_fp16(src, src_byte, dst, dst_index)
    elif dtype == Data.BF16:
        _transpose_bf16(src, src_byte, dst, dst_index)
    else:
        _transpose_fp32(src, src_byte, dst, dst_index)


@jit
def transpose_blocks(wide, data, addresses, source_shift, target_shift):
    """Transpose 16 blocks of 32 bytes that start anywhere in ``data`` (uint8[:]).

    Parameters
    ----------
    wide : bool
        Words of 32 instead of 16 bits; then two results hold one word of all 16 blocks.
    addresses : int64[:]
        First bytes of the 16 blocks, then of the 16 results.
    source_shift, target_shift : int
        Bytes added to the addresses.
    """
    if wide:
        _transpose_blocks_32(data, addresses, source_shift, target_shift)
    else:
        _transpose_blocks_16(data, addresses, source_shift, target_shift)


@jit
def compress_lanes(src, src_index, mask, dst, dst_index):
    """Copy those of 16 adjacent float32 that the bits of ``mask`` name; 16 places are overwritten."""
    _compress(src, src_index, mask, dst, dst_index)


@jit
def nonzero_lanes(values, index, count):
    """Return the bits of the lanes that are not +0 or -0 in any of ``count`` adjacent vectors of 16 float32."""
    return _nonzero(values, index, count)


@jit
def fragile_lanes(values, index, count):
    """Return the bits of the lanes that adding a zero may change in any of ``count`` adjacent vectors of 16 float32.

    These are -0 and, as some models of the Cube have it, subnormal numbers, infinities and NaN.
    """
    return _fragile(values, index, count)


@jit
def tiny_lanes(values, index, count):
    """Return the bits of the lanes that are below 2^-51 but not zero in any of ``count`` adjacent vectors of 16."""
    return _tiny(values, index, count)


@jit
def awkward_lanes(values, index, count):
    """Return the bits of the lanes that are tiny, infinite or NaN in any of ``count`` adjacent vectors of 16."""
    return _awkward(values, index, count)


@jit
def minus_zero_lanes(values, index, count):
    """Return the bits of the lanes that are -0 in any of ``count`` adjacent vectors of 16 float32."""
    return _minus_zero(values, index, count)


@jit
def nan_lanes(values, index, count):
    """Return the bits of the lanes that are NaN in any of ``count`` adjacent vectors of 16 float32."""
    return _nan(values, index, count)


@jit
def unusual_lanes(values, index, count):
    """Return the bits of the lanes that are not 0 but below 2^-24, or from 2^40 on or NaN, in ``count`` vectors."""
    return _unusual(values, index, count)


@jit
def extreme_lanes(values, index, count):
    """Return the bits of the lanes that are -0, nonzero below 2^-102, from 2^126 on or NaN in ``count`` vectors."""
    return _extreme(values, index, count)

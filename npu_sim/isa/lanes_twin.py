"""What `lanes_ir` does, in NumPy: for runs without the JIT, and as the twin in tests."""

from __future__ import annotations

import ml_dtypes
import numpy as np

_DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
_WORDS = {16: np.uint16, 32: np.uint32}


def decode(kind):
    """Build ``f(src: uint8[:], byte, dst: float32[:], index)`` for one 32-byte block of ``kind``."""
    dtype = _DTYPES[kind]

    def block_of(src, byte, dst, index):
        block = src[byte : byte + 32].view(dtype).astype(np.float32)
        dst[index : index + block.size] = block

    return block_of


def _lanes_where(test):
    """Build ``f(values: float32[:], index, count)``: the bits of lanes where any of ``count`` vectors passes."""

    def lanes(values, index, count):
        found = np.zeros(16, np.bool_)
        for at in range(index, index + count * 16, 16):
            found |= test(values[at : at + 16].view(np.uint32))
        return sum(1 << i for i in range(16) if found[i])

    return lanes


def _is_fragile(bits):
    exponents = bits << np.uint32(1) >> np.uint32(24)
    return ((exponents == 0) | (exponents == 255)) & (bits != 0)


def _is_tiny(bits):
    size = np.abs(bits.view(np.float32))
    return (size < np.float32(2.0**-51)) & (size != 0)


def _is_outside(smallest, largest):
    def test(bits):
        size = np.abs(bits.view(np.float32))
        return ~((size == 0) | ((size >= np.float32(2.0**smallest)) & (size < np.float32(2.0**largest))))

    return test


nonzero = _lanes_where(lambda bits: bits << np.uint32(1) != 0)
fragile = _lanes_where(_is_fragile)
tiny = _lanes_where(_is_tiny)
awkward = _lanes_where(lambda bits: _is_tiny(bits) | ~np.isfinite(bits.view(np.float32)))
minus_zero = _lanes_where(lambda bits: bits == 1 << 31)
nan = _lanes_where(lambda bits: np.isnan(bits.view(np.float32)))
unusual = _lanes_where(_is_outside(-24, 40))
extreme = _lanes_where(lambda bits: _is_outside(-102, 126)(bits) | (bits == 1 << 31))


def transpose(kind):
    """Build ``f(src: uint8[:], byte, dst: float32[:], index)`` for a fractal of 512 bytes."""
    dtype = _DTYPES[kind]

    def fractal_of(src, byte, dst, index):
        fractal = src[byte : byte + 512].view(dtype).astype(np.float32).reshape(16, -1)
        dst[index : index + fractal.size] = fractal.T.ravel()

    return fractal_of


def copy(dst, dst_byte, src, src_byte, length):
    """Copy ``length`` bytes."""
    target, source = dst.view(np.uint8), src.view(np.uint8)
    target[dst_byte : dst_byte + length] = source[src_byte : src_byte + length]


def add_block(dst, dst_byte, src, src_index):
    """Add 8 float32 to those at ``dst_byte``."""
    dst[dst_byte : dst_byte + 32].view(np.float32)[:] += src[src_index : src_index + 8]


def splat(dst, index, value):
    """Store 16 copies of ``value`` at ``dst[index]``."""
    dst[index : index + 16] = value


def compress(src, src_index, mask, dst, dst_index):
    """Store the named ones of 16 lanes, adjacent."""
    named = [lane for lane in range(16) if mask >> lane & 1]
    lanes = src[src_index : src_index + 16].view(np.uint32)[named]
    dst[dst_index : dst_index + lanes.size].view(np.uint32)[:] = lanes


def transpose_blocks(bits):
    """Build ``f(data: uint8[:], addresses: int64[32], source shift, target shift)`` for words of ``bits``."""
    dtype = _WORDS[bits]

    def blocks_of(data, addresses, source_shift, target_shift):
        starts = addresses.tolist()
        blocks = [data[at + source_shift : at + source_shift + 32].view(dtype) for at in starts[:16]]
        results = np.stack(blocks, axis=1).reshape(16, -1)
        for at, result in zip(starts[16:32], results, strict=True):
            data[at + target_shift : at + target_shift + 32] = result.view(np.uint8)

    return blocks_of

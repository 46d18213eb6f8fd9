"""CastDequant of int16 by its definition: lanes in lists, exact fractions."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np

from npu_sim.isa.op import Data, Op, Space
from tests.oracles.byte_ranges import boxes, join
from tests.oracles.masked import active_lanes, like_repeats

UB = Space.UB
WORDS = 16


def word_of(scale, offset, is_signed):
    """Return the 64 bits of a scale, an offset and signMode."""
    return struct.unpack("<I", struct.pack("<f", scale))[0] | (offset % 512) << 37 | int(is_signed) << 46


def result_of(value, word):
    """Return the byte that an integer becomes, by the 64 bits of SetDeqScale."""
    scale = struct.unpack("<f", struct.pack("<I", word % 2**32 // 2**13 * 2**13))[0]
    offset = word // 2**37 % 512
    offset -= 512 if offset > 255 else 0
    low, high = (-128, 127) if word // 2**46 % 2 else (0, 255)
    if math.isnan(scale) or (math.isinf(scale) and value == 0):
        return 0
    if math.isinf(scale):
        return (high if (scale > 0) == (value > 0) else low) % 256
    return min(max(round(value * Fraction(scale) + offset), low), high) % 256


def _source(row, repeat, lane):
    block = repeat * int(row["src_rep_stride"]) + lane // 16 * int(row["src_blk_stride"])
    return int(row["src0"]) + 32 * block + 2 * (lane % 16)


def _result(row, repeat, lane):
    block = repeat * int(row["dst_rep_stride"]) + lane // 16 * int(row["dst_blk_stride"])
    return int(row["dst"]) + 32 * block + (16 if row["repeat_mode"] else 0) + lane % 16


def _run(row, machine):
    is_vector = row["op"] == Op.CAST_DEQUANT_VECTOR
    lanes = active_lanes(row, 128)
    if is_vector and lanes and any(lanes):
        words = machine.load(UB, int(row["src1"]), 8 * WORDS).view(np.uint64).tolist()
    else:
        scale = int(row["value"]) % 2**32
        words = [scale | int(row["offset"]) % 512 << 37 | (row["dst_dtype"] == Data.INT8) << 46] * WORDS
    for repeat, active in enumerate(lanes):
        values = [int(machine.load(UB, _source(row, repeat, lane), 2).view(np.int16)[0]) for lane in active]
        for lane, value in zip(active, values, strict=True):
            byte = result_of(value, words[lane % 16])
            machine.store(UB, _result(row, repeat, lane), np.array([byte], np.uint8))


RUN = dict.fromkeys((Op.CAST_DEQUANT, Op.CAST_DEQUANT_VECTOR), _run)


def touched(row, out):
    """Note the bytes that a row touches in a `tests.oracles.footprint.Touched`."""
    for repeat, active in enumerate(active_lanes(row, 128)):
        for lane in active:
            out.read(UB, _source(row, repeat, lane), 2)
            out.write(UB, _result(row, repeat, lane), 1)
            if row["op"] == Op.CAST_DEQUANT_VECTOR:
                out.read(UB, int(row["src1"]), 8 * WORDS)


def extent(r):
    """Return the bytes of each operand, as `tests.oracles.extent` wants them."""
    patterns = like_repeats(r, 128)
    found = {}
    for name, prefix, size, first_byte in (("src0", "src", 2, 0), ("dst", "dst", 1, 16 * bool(r.repeat_mode))):
        blk, rep = getattr(r, f"{prefix}_blk_stride"), getattr(r, f"{prefix}_rep_stride")
        if not 0 <= blk | rep < 2**16:
            raise r.undefined(f"{prefix}_blk_stride")
        ends = [
            boxes(getattr(r, name) + 32 * (first * rep + lane // 16 * blk) + first_byte + lane % 16 * size, size,
                  (repeats, 32 * rep))
            for first, repeats, active in patterns for lane in active
        ]  # fmt: skip
        found[name] = UB, join(*ends)
    if r.op == Op.CAST_DEQUANT_VECTOR:
        runs = any(repeats > 0 and len(active) for _, repeats, active in patterns)
        found["src1"] = UB, boxes(r.src1, 8 * WORDS, (int(runs), 0))
    return found

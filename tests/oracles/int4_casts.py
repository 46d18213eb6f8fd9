"""Casts between half and int4 by their definition: nibbles in lists, rounding with exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.op import Op, Space
from tests.oracles.byte_ranges import boxes, join
from tests.oracles.masked import active_lanes, like_repeats

UB = Space.UB


def random_pairs(rng):
    """Return a random mask in halves, with sign, whose lanes come in pairs."""
    words = [sum(3 << 2 * at for at in range(32) if rng.random() < share) for share in rng.random(2)]
    return tuple(word - (word >> 63 << 64) for word in words)


def _start(row, name, repeat):
    prefix = "src" if name == "src0" else "dst"
    return int(row[name]) + 32 * repeat * int(row[f"{prefix}_rep_stride"]), 32 * int(row[f"{prefix}_blk_stride"])


def _half(row, name, repeat, lane):
    first, block = _start(row, name, repeat)
    return first + lane * 2 // 32 * block + lane * 2 % 32


def _byte(row, name, repeat, lane):
    first, block = _start(row, name, repeat)
    return first + lane // 64 * block + lane % 64 // 2


def _to_int4(value, mode):
    """Return four bits."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return 7 if value > 0 else 8
    exact = Fraction(value)
    rounded = {
        RoundMode.NONE: round, RoundMode.RINT: round, RoundMode.FLOOR: math.floor, RoundMode.CEIL: math.ceil,
        RoundMode.TRUNC: math.trunc,
        RoundMode.ROUND: lambda x: math.floor(x + Fraction(1, 2)) if x >= 0 else math.ceil(x - Fraction(1, 2)),
    }[mode](exact)  # fmt: skip
    return min(max(rounded, -8), 7) % 16


def _run_to(row, machine):
    mode = RoundMode(int(row["round_mode"]))
    for repeat, lanes in enumerate(active_lanes(row, 128)):
        nibbles = {}
        for lane in lanes:
            value = machine.load(UB, _half(row, "src0", repeat, lane), 2).view(np.float16)[0]
            nibbles.setdefault(_byte(row, "dst", repeat, lane), {})[lane % 2] = _to_int4(float(value), mode)
        for at, own in nibbles.items():
            byte = int(machine.load(UB, at, 1)[0])
            machine.store(UB, at, np.array([own.get(0, byte % 16) + 16 * own.get(1, byte // 16)], np.uint8))


def _run_from(row, machine):
    for repeat, lanes in enumerate(active_lanes(row, 128)):
        nibbles = [
            int(machine.load(UB, _byte(row, "src0", repeat, lane), 1)[0]) >> 4 * (lane % 2) & 15 for lane in lanes
        ]
        for lane, nibble in zip(lanes, nibbles, strict=True):
            value = np.array([nibble - 16 if nibble > 7 else nibble], np.float16)
            machine.store(UB, _half(row, "dst", repeat, lane), value.view(np.uint8))


RUN = {Op.CAST_TO_INT4: _run_to, Op.CAST_FROM_INT4: _run_from}


def touched(row, out):
    """Note the bytes that a row touches in a `tests.oracles.footprint.Touched`."""
    is_to = row["op"] == Op.CAST_TO_INT4
    for repeat, lanes in enumerate(active_lanes(row, 128)):
        for lane in lanes:
            if is_to:
                out.read(UB, _half(row, "src0", repeat, lane), 2)
                out.write(UB, _byte(row, "dst", repeat, lane), 1)
            else:
                out.read(UB, _byte(row, "src0", repeat, lane), 1)
                out.write(UB, _half(row, "dst", repeat, lane), 2)


def extent(r):
    """Return the bytes of each operand, as `tests.oracles.extent` wants them."""
    patterns = like_repeats(r, 128)
    found = {}
    for name, prefix in (("src0", "src"), ("dst", "dst")):
        blk, rep = getattr(r, f"{prefix}_blk_stride"), getattr(r, f"{prefix}_rep_stride")
        if not 0 <= blk | rep < 2**16:
            raise r.undefined(f"{prefix}_blk_stride")
        is_half = (name == "src0") == (r.op == Op.CAST_TO_INT4)
        ends = []
        for first, repeats, active in patterns:
            for lane in active:
                block, offset, size = (lane // 16, lane % 16 * 2, 2) if is_half else (lane // 64, lane % 64 // 2, 1)
                ends.append(
                    boxes(getattr(r, name) + 32 * (first * rep + block * blk) + offset, size, (repeats, 32 * rep))
                )
        found[name] = UB, join(*ends)
    return found

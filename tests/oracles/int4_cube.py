"""Products of int4 and the load that turns squares of them, by their definition: matrices of whole numbers in lists."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import Mode, Op, Space
from tests.oracles.byte_ranges import boxes, join


def nibbles_of(data):
    """Return the elements of bytes, the low half of each first, as whole numbers from -8 to 7."""
    found = []
    for byte in data.tolist():
        found += [byte % 16, byte // 16]
    return [one - 16 if one > 7 else one for one in found]


def bytes_of(elements):
    """Return whole numbers from -8 to 7 as bytes of two."""
    return np.array([low % 16 + 16 * (high % 16) for low, high in zip(*[iter(elements)] * 2, strict=True)], np.uint8)


def _load_transpose(row, machine):
    for i in range(int(row["repeat"])):
        source = int(row["src0"]) + 2048 * (int(row["start_index"]) + i * int(row["src_stride"]))
        square = [nibbles_of(machine.load(Space.L1, source + 32 * line, 32)) for line in range(64)]
        for j in range(4):
            fractal = [square[column][16 * j + line] for line in range(16) for column in range(64)]
            target = i * (int(row["dst_gap"]) + 1) + j * (int(row["dst_frac_gap"]) + 1)
            machine.store(Space.L0B, int(row["dst"]) + 512 * target, bytes_of(fractal))


def _a_at(row, m, byte):
    if int(row["m"]) == 1:
        return int(row["src0"]) + byte
    k1 = -(-int(row["k"]) // 64)
    return int(row["src0"]) + (m // 16 * k1 + byte // 32) * 512 + m % 16 * 32 + byte % 32


def _b_at(row, n, byte):
    return int(row["src1"]) + (byte // 32 * -(-int(row["n"]) // 16) + n // 16) * 512 + n % 16 * 32 + byte % 32


def _c_at(row, m, n):
    m1 = -(-int(row["m"]) // 16)
    return int(row["dst"]) + 4 * (((n // 16 * m1 + m // 16) * 16 + m % 16) * 16 + n % 16)


def _mmad(row, machine):
    m_size, n_size, depth = int(row["m"]), int(row["n"]), int(row["k"]) // 2
    if 0 in (m_size, n_size, depth):
        return
    a, b = (
        [
            nibbles_of(machine.load_each(space, [at(row, i, byte) for byte in range(depth)], 1).ravel())
            for i in range(size)
        ]
        for space, at, size in ((Space.L0A, _a_at, m_size), (Space.L0B, _b_at, n_size))
    )
    for m in range(m_size):
        for n in range(n_size):
            total = sum(x * y for x, y in zip(a[m], b[n], strict=True))
            if not int(row["mode"]) & Mode.INIT:
                total += int(machine.load(Space.L0C, _c_at(row, m, n), 4).view(np.int32)[0])
            total = min(max(total, -(2**31)), 2**31 - 1)
            machine.store(Space.L0C, _c_at(row, m, n), np.array([total], np.int32).view(np.uint8))


RUN = {Op.LOAD_TRANSPOSE_INT4: _load_transpose, Op.MMAD_INT4: _mmad}


def touched(row, out):
    """Note the bytes that a row touches in a `tests.oracles.footprint.Touched`."""
    if row["op"] == Op.LOAD_TRANSPOSE_INT4:
        for i in range(int(row["repeat"])):
            square = int(row["start_index"]) + i * int(row["src_stride"])
            out.read(Space.L1, int(row["src0"]) + 2048 * square, 2048)
            for j in range(4):
                target = i * (int(row["dst_gap"]) + 1) + j * (int(row["dst_frac_gap"]) + 1)
                out.write(Space.L0B, int(row["dst"]) + 512 * target, 512)
        return
    depth = int(row["k"]) // 2
    if 0 in (int(row["m"]), int(row["n"]), depth):
        return
    for byte in range(depth):
        for m in range(int(row["m"])):
            out.read(Space.L0A, _a_at(row, m, byte), 1)
        for n in range(int(row["n"])):
            out.read(Space.L0B, _b_at(row, n, byte), 1)
    for m in range(int(row["m"])):
        for n in range(int(row["n"])):
            if not int(row["mode"]) & Mode.INIT:
                out.read(Space.L0C, _c_at(row, m, n), 4)
            out.write(Space.L0C, _c_at(row, m, n), 4)


def _load_extent(r):
    r.item()  # a type there is
    target = (r.repeat, (r.dst_gap + 1) * 512), (4, (r.dst_frac_gap + 1) * 512)
    return {
        "src0": (Space.L1, boxes(r.src0 + 2048 * r.start_index, 2048, (r.repeat, 2048 * r.src_stride))),
        "dst": (Space.L0B, boxes(r.dst, 512, *target)),
    }


def _end(lines, depth, over, down):
    """Return the end of ``lines`` of ``depth`` bytes in fractals ``over`` apart along lines, ``down`` along k."""
    return max(
        (line // 16 * over + byte // 32 * down) * 512 + line % 16 * 32 + byte % 32 + 1
        for line in range(max(0, lines - 32), lines)
        for byte in {depth - 1, depth // 32 * 32 - 1} - {-1}
    )


def _mmad_extent(r):
    r.item()  # a type there is
    depth = r.k // 2
    if r.m <= 0 or r.n <= 0 or depth <= 0:
        return {}
    a = depth if r.m == 1 else _end(r.m, depth, -(-depth // 32), 1)
    b = _end(r.n, depth, 1, -(-r.n // 16))
    c = join(
        boxes(r.dst, r.m * 64, (r.n // 16, -(-r.m // 16) * 1024)),
        boxes(r.dst + r.n // 16 * -(-r.m // 16) * 1024, r.n % 16 * 4, (r.m, 64)),
    )
    return {"src0": (Space.L0A, (r.src0, r.src0 + a)), "src1": (Space.L0B, (r.src1, r.src1 + b)), "dst": (Space.L0C, c)}


EXTENTS = {Op.LOAD_TRANSPOSE_INT4: _load_extent, Op.MMAD_INT4: _mmad_extent}

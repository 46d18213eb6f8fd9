"""Weights of which every four along k keep two, by their definition: lists of numbers, one element after the other."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import Mode, Op, Space
from tests.oracles.byte_ranges import boxes, join

PICKS = {
    (2, 2): (2, 3), (1, 2): (1, 3), (0, 2): (0, 3), (1, 1): (1, 2), (0, 1): (0, 2), (0, 0): (0, 1), (2, 0): (2, 2),
    (1, 0): (1, 1), (2, 1): (2, 2),
}  # fmt: skip
"""Which two of four elements of A two indices choose: the table of the page of MmadWithSparse, whose one pair that is
missing, (2, 1), is what its words make of it."""


def compressed(matrix):
    """Return (stored, indices) of B [k, n] with at most two elements that are not 0 in every four, as the page says.

    ``stored``: [k / 2, n]; ``indices``: [k / 2, n], 0 to 2.
    """
    k, n = matrix.shape
    stored, indices = np.zeros((k // 2, n), matrix.dtype), np.zeros((k // 2, n), np.int64)
    for column in range(n):
        for group in range(k // 4):
            four = matrix[4 * group : 4 * group + 4, column].tolist()
            places = [place for place in range(4) if four[place] != 0]
            assert len(places) <= 2
            if len(places) == 2:
                first, second = places
                pair, values = (first, second - 1), (four[first], four[second])
            elif places == [3]:
                pair, values = (0, 2), (0, four[3])
            else:
                first = places[0] if places else 0
                pair, values = (first, 0), (four[first], 0)
            indices[2 * group : 2 * group + 2, column] = pair
            stored[2 * group : 2 * group + 2, column] = values
    return stored, indices


def fractals_of(stored):
    """Return the bytes of B [k / 2, n] in nZ order, filled up with zeros."""
    depth, n = stored.shape
    padded = np.zeros((-(-depth // 32) * 32, -(-n // 16) * 16), np.int8)
    padded[:depth, :n] = stored
    k1, n1 = padded.shape[0] // 32, padded.shape[1] // 16
    return padded.reshape(k1, 32, n1, 16).transpose(0, 2, 3, 1).copy().reshape(-1).view(np.uint8)


def index_bytes_of(indices):
    """Return the bytes of indices [k / 2, n] in the order of `fractals_of`, four to a byte, the first lowest."""
    depth, n = indices.shape
    padded = np.zeros((-(-depth // 32) * 32, -(-n // 16) * 16), np.int64)
    padded[:depth, :n] = indices
    k1, n1 = padded.shape[0] // 32, padded.shape[1] // 16
    lines = padded.reshape(k1, 32, n1, 16).transpose(0, 2, 3, 1).reshape(-1, 4)
    return (lines << 2 * np.arange(4)).sum(1).astype(np.uint8)


def _load_sparse(row, machine):
    for i in range(int(row["repeat"])):
        number = int(row["start_index"]) + i
        machine.store(
            Space.L0B, int(row["dst"]) + 512 * i, machine.load(Space.L1, int(row["src0"]) + 512 * number, 512)
        )
        indices = machine.load(Space.L1, int(row["src1"]) + 128 * number, 128)
        machine.store(Space.IDX, int(row["dst"]) // 4 + 128 * i, indices)


def _places(row):
    """Yield (m, n, where in L0C), and of every stored element (k / 2, where in L0B, where its index, at which bit)."""
    n1 = -(-int(row["n"]) // 16)
    for n in range(int(row["n"])):
        found = []
        for stored in range(int(row["k"]) // 2):
            fractal = stored // 32 * n1 + n // 16
            at = int(row["src1"]) + fractal * 512 + n % 16 * 32 + stored % 32
            index = int(row["src1"]) // 4 + fractal * 128 + n % 16 * 8 + stored % 32 // 4
            found.append((stored, at, index, 2 * (stored % 4)))
        yield n, found


def _a_at(row, m, k):
    k1 = -(-int(row["k"]) // 32)
    return int(row["src0"]) + (m // 16 * k1 + k // 32) * 512 + m % 16 * 32 + k % 32


def _c_at(row, m, n):
    m1 = -(-int(row["m"]) // 16)
    return int(row["dst"]) + 4 * (((n // 16 * m1 + m // 16) * 16 + m % 16) * 16 + n % 16)


def _mmad_sparse(row, machine):
    m_size, k_size = int(row["m"]), int(row["k"])
    if 0 in (m_size, int(row["n"]), k_size):
        return
    for n, stored in _places(row):
        weights = [int(machine.load(Space.L0B, at, 1).view(np.int8)[0]) for _, at, _, _ in stored]
        indices = [int(machine.load(Space.IDX, at, 1)[0]) >> bit & 3 for _, _, at, bit in stored]
        chosen = []
        for pair in range(k_size // 4):
            first, second = PICKS[indices[2 * pair], indices[2 * pair + 1]]
            chosen += [4 * pair + first, 4 * pair + second]
        for m in range(m_size):
            line = machine.load_each(Space.L0A, [_a_at(row, m, k) for k in chosen], 1).view(np.int8).ravel().tolist()
            total = sum(a * b for a, b in zip(line, weights, strict=True))
            where = _c_at(row, m, n)
            if not int(row["mode"]) & Mode.INIT:
                total += int(machine.load(Space.L0C, where, 4).view(np.int32)[0])
            total = min(max(total, -(2**31)), 2**31 - 1)
            machine.store(Space.L0C, where, np.array([total], np.int32).view(np.uint8))


RUN = {Op.LOAD_SPARSE: _load_sparse, Op.MMAD_SPARSE: _mmad_sparse}


def touched(row, out):
    """Note the bytes that a row may touch in a `tests.oracles.footprint.Touched`."""
    if row["op"] == Op.LOAD_SPARSE:
        for i in range(int(row["repeat"])):
            number = int(row["start_index"]) + i
            out.read(Space.L1, int(row["src0"]) + 512 * number, 512)
            out.read(Space.L1, int(row["src1"]) + 128 * number, 128)
            out.write(Space.L0B, int(row["dst"]) + 512 * i, 512)
            out.write(Space.IDX, int(row["dst"]) // 4 + 128 * i, 128)
        return
    if 0 in (int(row["m"]), int(row["n"]), int(row["k"])):
        return
    for n, stored in _places(row):
        for _, at, index, _ in stored:
            out.read(Space.L0B, at, 1)
            out.read(Space.IDX, index, 1)
        for m in range(int(row["m"])):
            for k in range(int(row["k"])):
                out.read(Space.L0A, _a_at(row, m, k), 1)
            if not int(row["mode"]) & Mode.INIT:
                out.read(Space.L0C, _c_at(row, m, n), 4)
            out.write(Space.L0C, _c_at(row, m, n), 4)


def _last(lines, depth, line_bytes, across):
    """Return the end of ``lines`` by ``depth`` bytes in fractals of 16 lines, whose steps ``across`` has."""
    ends = [0]
    for line in range(max(0, lines - 32), lines):
        for byte in {depth - 1, depth // line_bytes * line_bytes - 1} - {-1}:
            fractal = line // 16 * across[0] + byte // line_bytes * across[1]
            ends.append(fractal * 16 * line_bytes + line % 16 * line_bytes + byte % line_bytes + 1)
    return max(ends)


def _load_extent(r):
    """Return the bytes of each operand of LoadDataWithSparse, as `tests.oracles.extent` wants them."""
    r.item()  # a type there is
    first, count = r.start_index, r.repeat
    return {
        "src0": (Space.L1, boxes(r.src0 + 512 * first, 512, (count, 512))),
        "src1": (Space.L1, boxes(r.src1 + 128 * first, 128, (count, 128))),
        "dst": (Space.L0B, boxes(r.dst, 512, (count, 512))),
        "indices": (Space.IDX, boxes(r.dst // 4, 128, (count, 128))),
    }


def _mmad_extent(r):
    """Return the same of MmadWithSparse."""
    r.item()  # a type there is
    if r.m <= 0 or r.n <= 0 or r.k <= 0:
        return {}
    n1, stored = -(-r.n // 16), r.k // 2
    a = _last(r.m, r.k, 32, (-(-r.k // 32), 1))
    b = _last(r.n, stored, 32, (1, n1))
    indices = _last(r.n, -(-stored // 4), 8, (1, n1))
    c = join(
        boxes(r.dst, r.m * 64, (r.n // 16, -(-r.m // 16) * 1024)),
        boxes(r.dst + r.n // 16 * -(-r.m // 16) * 1024, r.n % 16 * 4, (r.m, 64)),
    )
    own = {} if stored == 0 else {
        "src1": (Space.L0B, (r.src1, r.src1 + b)), "indices": (Space.IDX, (r.src1 // 4, r.src1 // 4 + indices)),
    }  # fmt: skip
    return own | {"src0": (Space.L0A, (r.src0, r.src0 + a)), "dst": (Space.L0C, c)}


EXTENTS = {Op.LOAD_SPARSE: _load_extent, Op.MMAD_SPARSE: _mmad_extent}

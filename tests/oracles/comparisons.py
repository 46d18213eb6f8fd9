"""Compare, CompareScalar and Select by their definitions, lane by lane, and the bytes they touch.

Written from the pages of asc-devkit ``docs/zh/api/SIMD-API`` with Python's own numbers. `RUN` are members of
`tests.oracles.semantics`, `EXTENTS` of `tests.oracles.extent`.
"""

from __future__ import annotations

import operator
import struct
from itertools import groupby
from operator import itemgetter

import numpy as np

from npu_sim.isa.op import Data, Mode, Op, Space
from tests.oracles.masked import address_of, repeats_of

UB = Space.UB
_ITEM = {Data.FP16: 2, Data.FP32: 4, Data.INT32: 4}
_FORMATS = {Data.FP16: "e", Data.FP32: "f", Data.INT32: "i"}
_RELATIONS = (operator.lt, operator.gt, operator.eq, operator.le, operator.ge, operator.ne)
COMPARISONS = (Op.COMPARE, Op.COMPARE_SCALAR)
SELECTIONS = (Op.SELECT, Op.SELECT_SCALAR)


def _element_places(row, name):
    """Return the address of every element of a vector that is compared, one list for each repeat."""
    item = _ITEM[Data(row["dtype"])]
    blk, rep = {"src0": ("src_blk_stride", "src_rep_stride"), "src1": ("src1_blk_stride", "src1_rep_stride")}[name]
    return [
        [
            int(row[name]) + 32 * (r * int(row[rep]) + block * int(row[blk])) + within
            for block in range(8)
            for within in range(0, 32, item)
        ]
        for r in range(int(row["repeat"]))
    ]


def _numbers(machine, row, places):
    dtype = Data(row["dtype"])
    data = machine.load_each(UB, places, _ITEM[dtype]).tobytes()
    return struct.unpack(f"<{len(places)}{_FORMATS[dtype]}", data)


def _scalar(row):
    dtype = Data(row["dtype"])
    data = (int(row["value"]) % 2**32).to_bytes(4, "little")
    return struct.unpack(f"<{_FORMATS[dtype]}", data[: _ITEM[dtype]])[0]


def compare(row, machine):
    """Carry out a comparison on a `tests.oracles.semantics.Machine`."""
    relation, stored = _RELATIONS[int(row["comparison"])], []
    others = _element_places(row, "src1") if row["op"] == Op.COMPARE else None
    for r, places in enumerate(_element_places(row, "src0")):
        left = _numbers(machine, row, places)
        right = [_scalar(row)] * len(left) if others is None else _numbers(machine, row, others[r])
        bits = [x == x and y == y and relation(x, y) for x, y in zip(left, right, strict=True)]
        stored.append(np.packbits(bits, bitorder="little"))
    for r, data in enumerate(stored):
        machine.store(UB, int(row["dst"]) + r * len(data), data)


def _lanes(row):
    """Yield (repeat, byte and bit of the selection, lane by operand name) of every active lane."""
    item = _ITEM[Data(row["dtype"])]
    for repeat, lanes in enumerate(repeats_of(row)):
        names = ("dst", "src0", "src1") if row["op"] == Op.SELECT else ("dst", "src0")
        places = [address_of(row, name, item, repeat, np.array(lanes, np.int64)).tolist() for name in names]
        first = int(row["src2"]) + repeat * int(row["src2_rep_stride"]) * (32 // item)
        for lane, *at in zip(lanes, *places, strict=True):
            yield repeat, first + lane // 8, lane % 8, dict(zip(names, at, strict=True))


def select(row, machine):
    """Carry out a selection: a repeat is read before it is written."""
    item = _ITEM[Data(row["dtype"])]
    scalar = np.frombuffer((int(row["value"]) % 2**32).to_bytes(4, "little")[:item], np.uint8)
    for _, lanes in groupby(_lanes(row), key=itemgetter(0)):
        chosen = []
        for _, byte, bit, at in lanes:
            source = "src0" if machine.load(UB, byte, 1)[0] >> bit & 1 else "src1"
            chosen.append((at["dst"], machine.load(UB, at[source], item) if source in at else scalar))
        for place, data in chosen:
            machine.store(UB, place, data)


RUN = {**dict.fromkeys(COMPARISONS, compare), **dict.fromkeys(SELECTIONS, select)}


def touched(row, out):
    """Note the bytes of a row in a `tests.oracles.footprint.Touched`."""
    item = _ITEM[Data(row["dtype"])]
    if row["op"] in SELECTIONS:
        for _, byte, _, at in _lanes(row):
            out.read(UB, byte, 1)
            for name, address in at.items():
                (out.write if name == "dst" else out.read)(UB, address, item)
        return
    for name in ("src0", "src1") if row["op"] == Op.COMPARE else ("src0",):
        for r, places in enumerate(_element_places(row, name)):
            for at in places:
                out.read(UB, at, item)
            out.write(UB, int(row["dst"]) + r * (32 // item), 32 // item)


def _hull(start, length, *dimensions):
    if length <= 0 or any(count <= 0 for count, _ in dimensions):
        return None
    corners = [(count - 1) * stride for count, stride in dimensions]
    return start + sum(min(0, one) for one in corners), start + length + sum(max(0, one) for one in corners)


def extent_of_comparison(r):
    """Return {operand: (space, ends)}."""
    repeats = r.repeat
    found = {"dst": (UB, _hull(r.dst, repeats * (32 // r.item())))}
    found["src0"] = UB, _hull(r.src0, 32, (8, 32 * r.src_blk_stride), (repeats, 32 * r.src_rep_stride))
    if r.op == Op.COMPARE:
        found["src1"] = UB, _hull(r.src1, 32, (8, 32 * r.src1_blk_stride), (repeats, 32 * r.src1_rep_stride))
    return found


def extent_of_bits(r):
    """Return (space, ends) of the bits of a selection."""
    lanes = min(256 // r.item(), 128)
    step = r.src2_rep_stride * (lanes // 8)
    mask = r.mask_low % 2**64 + r.mask_high % 2**64 * 2**64
    ends = []
    if r.mode & Mode.COUNTER:
        full, tail = divmod(r.mask_low % 2**32, lanes)
        ends = [_hull(r.src2, lanes // 8, (full, step)), _hull(r.src2 + full * step, -(-tail // 8))]
    else:
        used = [at for at in range(lanes // 8) if mask >> 8 * at & 0xFF]
        ends = [_hull(r.src2 + at, 1, (r.repeat, step)) for at in used]
    present = [one for one in ends if one is not None]
    return UB, (min(low for low, _ in present), max(high for _, high in present)) if present else None


EXTENTS = dict.fromkeys(COMPARISONS, extent_of_comparison)

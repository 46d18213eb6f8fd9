"""Reductions under the vector mask by their definition, lane by lane, and the bytes they touch.

Written from the reduction pages of asc-devkit ``docs/zh/api/SIMD-API`` with NumPy scalars of the element type: each sum
of a tree is one addition of them.
"""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import Data, Op, Space
from tests.oracles.masked import address_of, like_repeats, repeats_of

UB = Space.UB
_KINDS = {Data.FP16: np.float16, Data.FP32: np.float32}
SUMS = {Op.REDUCE_REPEAT_MASKED: "repeat", Op.BLOCK_REDUCE_SUM: "block", Op.PAIR_REDUCE_SUM: "pair"}
EXTREMES = {
    Op.WHOLE_REDUCE_MAX_MASKED: ("repeat", max), Op.WHOLE_REDUCE_MIN: ("repeat", min),
    Op.BLOCK_REDUCE_MAX: ("block", max), Op.BLOCK_REDUCE_MIN: ("block", min),
}  # fmt: skip
OPS = (*SUMS, *EXTREMES)
SMALLEST = (Op.WHOLE_REDUCE_MIN, Op.BLOCK_REDUCE_MIN)


def _unit_of(op, item):
    """Return (lanes of a unit, bytes of the unit of the repeat stride) of a reduction of one kind."""
    kind = SUMS[op] if op in SUMS else EXTREMES[op][0]
    return {"repeat": (256 // item, item), "block": (32 // item, 8 * item), "pair": (2, 128)}[kind]


def _result_bytes(row, op, item):
    if op not in (Op.WHOLE_REDUCE_MAX_MASKED, Op.WHOLE_REDUCE_MIN):
        return item
    return (2 * item, 2 * item, item, 4)[int(row["order"])]


def units_of(row):
    """Yield (repeat, active lanes of a unit, address of its result, bytes of the result)."""
    op = Op(row["op"])
    item = np.dtype(_KINDS[Data(row["dtype"])]).itemsize
    unit, step = _unit_of(op, item)
    length = _result_bytes(row, op, item)
    step = length if unit == 256 // item else step
    for repeat, lanes in enumerate(repeats_of(row)):
        for number in range(256 // item // unit):
            active = [lane for lane in lanes if lane // unit == number]
            if active:
                yield (
                    repeat,
                    active,
                    int(row["dst"]) + repeat * int(row["dst_rep_stride"]) * step + number * item,
                    length,
                )


def _fitted(value, saturate):
    """Return a result as its type holds it: of half, saturation mode has no infinities and no NaN."""
    if not saturate or value.dtype == np.float32 or np.isfinite(value):
        return value
    return np.float16(0) if np.isnan(value) else np.copysign(np.float16(65504), value)


def _sum(values, saturate):
    while len(values) > 1:
        values = [_fitted(a + b, saturate) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _extreme(values, rule):
    """Return the place of the extreme: of the first NaN, else of the first of the best, +0 above -0."""
    if any(np.isnan(value) for value in values):
        return [bool(np.isnan(value)) for value in values].index(True)
    keys = [(float(value), not np.signbit(value)) for value in values]
    return keys.index(rule(keys))


@np.errstate(all="ignore")
def run(row, machine, saturate):
    """Carry out one reduction on a `tests.oracles.semantics.Machine`."""
    op, kind = Op(row["op"]), _KINDS[Data(row["dtype"])]
    item = np.dtype(kind).itemsize
    unit, _ = _unit_of(op, item)
    results = []
    for repeat, active, at, length in units_of(row):
        places = address_of(row, "src0", item, repeat, np.array(active))
        loaded = dict(zip(active, machine.load_each(UB, places, item).view(kind)[:, 0], strict=True))
        if op in SUMS:
            first = active[0] // unit * unit
            value = _sum([loaded.get(lane, kind(0)) for lane in range(first, first + unit)], saturate)
            results.append((at, np.array([value], kind).view(np.uint8)))
            continue
        place = _extreme(list(loaded.values()), EXTREMES[op][1])
        value = np.array([_fitted(loaded[active[place]], saturate)], kind).view(np.uint8).tobytes()
        if op in (Op.BLOCK_REDUCE_MAX, Op.BLOCK_REDUCE_MIN):
            data = value
        else:
            index = active[place].to_bytes(item, "little")
            data = (value + index, index + value, value, active[place].to_bytes(4, "little"))[int(row["order"])]
        assert len(data) == length
        results.append((at, np.frombuffer(data, np.uint8)))
    for at, data in results:
        machine.store(UB, at, data)


def touched(row, out):
    """Note the bytes of a row in a `tests.oracles.footprint.Touched`."""
    item = np.dtype(_KINDS[Data(row["dtype"])]).itemsize
    for repeat, active, at, length in units_of(row):
        for start in address_of(row, "src0", item, repeat, np.array(active)).tolist():
            out.read(UB, start, item)
        out.write(UB, at, length)


def extent(r):
    """Return the extents of a `tests.oracles.extent` row, any row at all."""
    op, item = Op(r.op), r.item()
    whole = op in (Op.WHOLE_REDUCE_MAX_MASKED, Op.WHOLE_REDUCE_MIN)
    if not 0 <= r.src_blk_stride | r.src_rep_stride < 2**16 or (whole and r.order not in range(4)):
        raise r.undefined("order" if whole else "src_blk_stride")
    lanes = min(256 // item, 128)
    unit, step = {"repeat": (lanes, item), "block": (min(32 // item, lanes), 8 * item), "pair": (2, 128)}[
        SUMS[op] if op in SUMS else EXTREMES[op][0]
    ]
    length = item
    if whole:
        length = step = (2 * item, 2 * item, item, 4)[r.order]
    patterns = like_repeats(r, lanes)
    read, written = [], []
    for first, repeats, active in patterns:
        if repeats <= 0:
            continue
        for lane in active:
            block, offset = divmod(lane * item, 32)
            for repeat in (first, first + repeats - 1):
                at = r.src0 + 32 * (repeat * r.src_rep_stride + block * r.src_blk_stride) + offset
                read += [at, at + item]
                at = r.dst + repeat * r.dst_rep_stride * step + lane // unit * item
                written += [at, at + length]
    return {name: (UB, (min(ends), max(ends)) if ends else None) for name, ends in (("src0", read), ("dst", written))}

"""Instructions that gather, scatter, sort and transpose elements of UB, by their definitions: bytes and extents.

Written from the instruction descriptions (asc-devkit ``docs/zh/api/SIMD-API``) with Python's own sort and loops over
elements. `RUN` are members of `tests.oracles.semantics`, `EXTENTS` of `tests.oracles.extent`; `touched` gives the bytes
of `tests.oracles.footprint`.
"""

from __future__ import annotations

import struct

import numpy as np

from npu_sim.isa.op import Data, Mode, Op, Space
from tests.oracles.byte_ranges import boxes, join
from tests.oracles.masked import address_of, repeats_of

_BYTES = {Data.FP16: 2, Data.BF16: 2, Data.FP32: 4, Data.INT32: 4, Data.INT16: 2}
UB = Space.UB


def _get(row):
    return lambda name: int(row[name])


def _transpose(row, machine):
    square = machine.load(UB, int(row["src0"]), 512).view(np.uint16).reshape(16, 16)
    machine.store(UB, int(row["dst"]), np.ascontiguousarray(square.T).ravel().view(np.uint8))


def _offsets(machine, at, count):
    return machine.load(UB, at, 4 * count).view(np.uint32).tolist()


def _gather(row, machine):
    get, item = _get(row), _BYTES[Data(row["dtype"])]
    offsets = _offsets(machine, get("src1"), get("count"))
    for first in range(0, len(offsets), 256 // item):
        found = []
        for offset in offsets[first : first + 256 // item]:
            assert offset % item == 0
            assert offset + item <= get("src_bytes")
            found.append(machine.load(UB, get("src0") + offset, item))
        machine.store(UB, get("dst") + first * item, np.concatenate(found))


def _scatter(row, machine):
    get, item = _get(row), _BYTES[Data(row["dtype"])]
    for i, offset in enumerate(_offsets(machine, get("src1"), get("count"))):
        assert offset % item == 0
        assert offset + item <= get("dst_bytes")
        machine.store(UB, get("dst") + offset, machine.load(UB, get("src0") + i * item, item))


def _gatherb(row, machine):
    get = _get(row)
    for i, offset in enumerate(_offsets(machine, get("src1"), 8 * get("repeat"))):
        assert offset % 32 == 0
        assert offset + 32 <= get("src_bytes")
        block = i // 8 * get("dst_rep_stride") + i % 8 * get("dst_blk_stride")
        machine.store(UB, get("dst") + 32 * block, machine.load(UB, get("src0") + offset, 32))


def score_key(data, dtype):
    """Return what Python sorts by, ascending: NaN first, then falling numbers, zeros alike."""
    value = struct.unpack("<e" if dtype == Data.FP16 else "<f", data)[0]
    return (0, 0.0) if value != value else (1, -value)


def _sort32(row, machine):
    get, dtype = _get(row), Data(row["dtype"])
    item = _BYTES[dtype]
    for r in range(get("repeat")):
        pairs = []
        for i in range(32 * r, 32 * r + 32):
            score = machine.load(UB, get("src0") + i * item, item).tobytes()
            pairs.append((score, machine.load(UB, get("src1") + 4 * i, 4).tobytes()))
        pairs.sort(key=lambda pair: score_key(pair[0], dtype))
        data = b"".join(score.ljust(4, b"\0") + index for score, index in pairs)
        machine.store(UB, get("dst") + 256 * r, np.frombuffer(data, np.uint8))


def _mrg_sort(row, machine):
    """Merge as a stable sort of all lists, which is the same where each list is sorted, and by heads where not."""
    get, dtype = _get(row), Data(row["dtype"])
    lengths = [get(f"length{i}") for i in range(4)]
    for r in range(get("repeat")):
        shift = 8 * r * sum(lengths)
        lists = [
            [machine.load(UB, get(f"src{i}") + shift + 8 * j, 8).tobytes() for j in range(lengths[i])] for i in range(4)
        ]
        for j in range(sum(lengths)):
            heads = [(score_key(one[0][: _BYTES[dtype]], dtype), i) for i, one in enumerate(lists) if one]
            chosen = lists[min(heads)[1]].pop(0)
            machine.store(UB, get("dst") + shift + 8 * j, np.frombuffer(chosen, np.uint8))


_EVERY = {1: (0, 2), 2: (1, 2), 3: (0, 4), 4: (1, 4), 5: (2, 4), 6: (3, 4), 7: (0, 1)}


def _marked(row, machine):
    """Return the elements that GatherMask keeps."""
    get, item = _get(row), _BYTES[Data(row["dtype"])]
    found = []
    elements = get("count") or 256 // item
    for r in range(get("repeat")):
        if get("pattern"):
            chosen = range(elements)[slice(_EVERY[get("pattern")][0], None, _EVERY[get("pattern")][1])]
        else:
            bits = machine.load(UB, get("src1") + 32 * r * get("src1_rep_stride"), -(-elements // 8))
            chosen = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:elements]).tolist()
        for i in chosen:
            block, lane = divmod(i, 32 // item)
            at = get("src0") + 32 * (r * get("src_rep_stride") + block * get("src_blk_stride")) + lane * item
            found.append(machine.load(UB, at, item))
    return found


def _gather_mask(row, machine):
    get, found = _get(row), _marked(row, machine)
    if found:
        kept = np.concatenate(found)
        assert not get("dst_bytes") or len(kept) <= get("dst_bytes")
        machine.store(UB, get("dst"), kept)


def _copy(row, machine):
    item = _BYTES[Data(row["dtype"])]
    for repeat, lanes in enumerate(repeats_of(row)):
        source, target = (
            address_of(row, name, item, repeat, np.array(lanes, np.int64)).tolist() for name in ("src0", "dst")
        )
        for first, at in zip(source, target, strict=True):
            machine.store(UB, at, machine.load(UB, first, item))


def _offset_lanes(row):
    """Yield, by repeat, (address of the offset, address of the result) of the active lanes of a masked Gather."""
    get, item = _get(row), _BYTES[Data(row["dtype"])]
    for repeat, lanes in enumerate(repeats_of(row)):
        at = get("dst") + 32 * repeat * get("dst_rep_stride")
        yield [(get("src1") + 4 * (repeat * (256 // item) + lane), at + lane * item) for lane in lanes]


def _gather_masked(row, machine):
    item = _BYTES[Data(row["dtype"])]
    for lanes in _offset_lanes(row):
        found = []
        for offset_at, at in lanes:
            [offset] = _offsets(machine, offset_at, 1)
            assert offset % item == 0
            assert offset + item <= int(row["src_bytes"])
            found.append((at, machine.load(UB, int(row["src0"]) + offset, item)))
        for at, element in found:
            machine.store(UB, at, element)


RUN = {
    Op.COPY: _copy,
    Op.GATHER_MASKED: _gather_masked,
    Op.TRANSPOSE: _transpose,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.GATHERB: _gatherb,
    Op.SORT32: _sort32,
    Op.MRG_SORT: _mrg_sort,
    Op.GATHER_MASK: _gather_mask,
}
BY_DATA = frozenset({Op.GATHER, Op.GATHER_MASKED, Op.SCATTER, Op.GATHERB, Op.GATHER_MASK})
"""Those whose addresses follow from data: what is touched is part of the footprint, which says what may be."""


# Bytes and extents ----------------------------------------------------------------------------------------------------


class _Recorder:
    """A `Machine` of ones that notes what is touched: bits of a pattern choose everything."""

    def __init__(self, touched):
        self._touched = touched

    def load(self, space, at, count):
        self._touched.read(space, at, count)
        return np.full(count, 0xFF, np.uint8)

    def store(self, space, at, data):
        self._touched.write(space, at, len(data))


def touched(row, out):
    """Note the bytes that a row may touch in ``out``, a `tests.oracles.footprint.Touched`."""
    op, get = Op(row["op"]), _get(row)
    if op in (Op.GATHER, Op.SCATTER, Op.GATHERB):
        count = 8 * get("repeat") if op == Op.GATHERB else get("count")
        if count <= 0:
            return
        out.read(UB, get("src1"), 4 * count)
        item = _BYTES[Data(row["dtype"])]
        if op == Op.SCATTER:
            out.read(UB, get("src0"), count * item)
            out.write(UB, get("dst"), get("dst_bytes"))
            return
        out.read(UB, get("src0"), get("src_bytes"))
        for i in range(count):
            if op == Op.GATHER:
                out.write(UB, get("dst") + i * item, item)
            else:
                out.write(UB, get("dst") + 32 * (i // 8 * get("dst_rep_stride") + i % 8 * get("dst_blk_stride")), 32)
        return
    if op == Op.GATHER_MASKED:
        item = _BYTES[Data(row["dtype"])]
        for offset_at, at in (lane for lanes in _offset_lanes(row) for lane in lanes):
            out.read(UB, offset_at, 4)
            out.write(UB, at, item)
            out.read(UB, get("src0"), get("src_bytes"))
        return
    if op == Op.GATHER_MASK:
        item = _BYTES[Data(row["dtype"])]
        kept = item * len(_marked(row, _Recorder(out)))
        kept = min(kept, get("dst_bytes") // item * item) if get("dst_bytes") else kept
        if kept:
            out.write(UB, get("dst"), kept)
        return
    RUN[op](row, _Recorder(out))


def _line(first, length):
    return (UB, (first, first + length) if length > 0 else None)


def _extent_of_transpose(r):
    return {"src0": _line(r.src0, 512), "dst": _line(r.dst, 512)}


def _extent_of_gather(r):
    if r.count <= 0:
        return {}
    return {
        "src0": _line(r.src0, r.src_bytes), "src1": _line(r.src1, 4 * r.count), "dst": _line(r.dst, r.count * r.item()),
    }  # fmt: skip


def _extent_of_scatter(r):
    if r.count <= 0:
        return {}
    return {
        "src0": _line(r.src0, r.count * r.item()), "src1": _line(r.src1, 4 * r.count), "dst": _line(r.dst, r.dst_bytes),
    }  # fmt: skip


def _extent_of_gatherb(r):
    if r.repeat <= 0:
        return {}
    target = boxes(r.dst, 32, (8, r.dst_blk_stride * 32), (r.repeat, r.dst_rep_stride * 32))
    return {"src0": _line(r.src0, r.src_bytes), "src1": _line(r.src1, 32 * r.repeat), "dst": (UB, target)}


def _extent_of_sort32(r):
    n = 32 * r.repeat
    return {"src0": _line(r.src0, n * r.item()), "src1": _line(r.src1, 4 * n), "dst": _line(r.dst, 8 * n)}


def _extent_of_mrg_sort(r):
    lengths = [max(0, getattr(r, f"length{i}")) for i in range(4)]
    repeats = (r.repeat, 8 * sum(lengths))
    found = {f"src{i}": (UB, boxes(getattr(r, f"src{i}"), 8 * lengths[i], repeats)) for i in range(4)}
    return found | {"dst": (UB, boxes(r.dst, 8 * sum(lengths), repeats))}


def _extent_of_gather_mask(r):
    item = r.item()
    elements = r.count if r.count > 0 else 256 // item
    repeats, blk = (r.repeat, r.src_rep_stride * 32), r.src_blk_stride * 32
    if r.pattern != 0 and r.pattern not in _EVERY:
        raise r.undefined("pattern")
    first, step = _EVERY.get(r.pattern, (0, 1))
    numbers = range(first, elements, step)
    per_block = 32 // item
    source = None
    # the hull of the elements of the first and of the last blocks
    for i in {*numbers[:per_block], *numbers[-2 * per_block :]}:
        at = r.src0 + i // per_block * blk + i % per_block * item
        source = join(source, boxes(at, item, repeats))
    kept = len(numbers) * item * max(0, r.repeat)
    if r.dst_bytes > 0:
        kept = min(kept, r.dst_bytes // item * item)
    found = {"src0": (UB, source), "dst": _line(r.dst, kept)}
    if r.pattern == 0:
        found["src1"] = UB, boxes(r.src1, -(-elements // 8), (r.repeat, r.src1_rep_stride * 32))
    return found


def _extent_of_gather_masked(r):
    item = r.item()
    lanes = min(256 // item, 128)
    if r.mode & Mode.COUNTER:
        raise r.undefined("mode")
    if not 0 <= r.dst_rep_stride < 2**16:
        raise r.undefined("dst_rep_stride")
    mask = r.mask_low % 2**64 + r.mask_high % 2**64 * 2**64
    active = [lane for lane in range(lanes) if mask >> lane & 1]
    if not active or r.repeat <= 0:
        return {}
    first, last = active[0], active[-1]
    steps = (r.repeat, 4 * lanes), (r.repeat, 32 * r.dst_rep_stride)
    return {
        "src0": _line(r.src0, r.src_bytes),
        "src1": (UB, boxes(r.src1 + 4 * first, 4 * (last - first + 1), steps[0])),
        "dst": (UB, boxes(r.dst + item * first, item * (last - first + 1), steps[1])),
    }


EXTENTS = {
    Op.GATHER_MASKED: _extent_of_gather_masked,
    Op.TRANSPOSE: _extent_of_transpose,
    Op.GATHER: _extent_of_gather,
    Op.SCATTER: _extent_of_scatter,
    Op.GATHERB: _extent_of_gatherb,
    Op.SORT32: _extent_of_sort32,
    Op.MRG_SORT: _extent_of_mrg_sort,
    Op.GATHER_MASK: _extent_of_gather_mask,
}

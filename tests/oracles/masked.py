"""Masks, repeats and strides of vector instructions by their definition, lane by lane.

Written from the general description of vector computation (asc-devkit ``docs/zh/api/SIMD-API``).
"""

from __future__ import annotations

import numpy as np

from npu_sim.isa import emit
from npu_sim.isa.op import SPEC_OF_OP, Data, Mode, Op

ITEM = {
    Data.FP16: 2, Data.BF16: 2, Data.FP32: 4, Data.INT32: 4, Data.INT16: 2, Data.INT8: 1, Data.UINT8: 1, Data.INT64: 8,
}  # fmt: skip
_REPLACED = frozenset({"AXPY", "MUL_ADD_DST", "FUSED_MUL_ADD", "MUL_ADD_RELU", "AXPY_MIXED", "MUL_ADD_DST_MIXED"})
"""Count forms whose result replaces an operand."""
_STRIDES = {
    "dst": ("dst_blk_stride", "dst_rep_stride"),
    "src0": ("src_blk_stride", "src_rep_stride"),
    "src1": ("src1_blk_stride", "src1_rep_stride"),
}


def items_of(row):
    """Return {operand: bytes of its elements} of the operands a row has, the result last."""
    fields = SPEC_OF_OP[int(row["op"])].fields
    items = {name: ITEM[Data(row["dtype"])] for name in ("src0", "src1", "dst") if name in fields}
    if "dst_dtype" in fields:
        items["dst"] = ITEM[Data(row["dst_dtype"])]
    return items


def reads_result(row):
    """Return whether what the result replaces is an operand."""
    spec = SPEC_OF_OP[int(row["op"])]
    count_form = SPEC_OF_OP[spec.general_form_of] if spec.general_form_of else spec
    return Op(count_form.op).name in _REPLACED


def repeats_of(row):
    """Return the active lanes of every repeat, as lists."""
    if row["op"] == Op.COPY and int(row["mode"]) & Mode.COUNTER:
        return [list(range(int(row["mask_low"]) % 2**32))] * int(row["repeat"])
    return active_lanes(row, 256 // max(items_of(row).values()))


def active_lanes(row, lanes):
    """Return which of ``lanes`` lanes are active in every repeat, as lists."""
    if int(row["mode"]) & Mode.COUNTER:
        elements = int(row["mask_low"]) % 2**32
        return [list(range(min(lanes, elements - first))) for first in range(0, elements, lanes)]
    mask = int(row["mask_low"]) % 2**64 + int(row["mask_high"]) % 2**64 * 2**64
    return [[lane for lane in range(lanes) if mask >> lane & 1] for _ in range(int(row["repeat"]))]


def like_repeats(r, lanes):
    """Return (first repeat, repeats, active lanes) of the repeats that are alike, for `tests.oracles.extent`."""
    if r.mode & Mode.COUNTER:
        full, tail = divmod(r.mask_low % 2**32, lanes)
        return [(0, full, range(lanes)), (full, 1, range(tail))]
    mask = r.mask_low % 2**64 + r.mask_high % 2**64 * 2**64
    return [(0, r.repeat, [lane for lane in range(lanes) if mask >> lane & 1])]


def address_of(row, name, item, repeat, lane):
    """Return the first byte of a lane of an operand, or of an array of lanes."""
    blk, rep = (int(row[field]) for field in _STRIDES[name])
    block, offset = divmod(lane * item, 32)
    return int(row[name]) + 32 * (repeat * rep + block * blk) + offset


def touched_lanes(row):
    """Yield (operand, first byte, bytes) of every active lane of every operand."""
    for repeat, lanes in enumerate(repeats_of(row)):
        for name, item in items_of(row).items():
            for at in address_of(row, name, item, repeat, np.array(lanes, np.int64)).tolist():
                yield name, at, item


def random_mask(rng):
    """Return two signed halves of a mask of one of the usual kinds."""
    kind = int(rng.integers(7))
    if kind == 0:
        bits = (1 << int(rng.integers(1, 129))) - 1
    elif kind == 1:
        bits = sum(1 << lane for lane in range(int(rng.integers(3)), 128, int(rng.integers(1, 5))))
    elif kind == 2:
        bits = int(rng.integers(2**64, dtype=np.uint64)) << int(rng.integers(65))
    elif kind == 3:
        bits = sum(1 << int(lane) for lane in rng.integers(0, 64, 3))
    elif kind == 4:
        # the first lanes of both halves
        low, high = (int(lanes) for lanes in rng.integers(1, 65, 2))
        bits = (1 << low) - 1 | ((1 << high) - 1) << 64
    else:
        bits = 2**128 - 1
    return tuple((bits >> shift) % 2**64 - (2**64 if bits >> shift + 63 & 1 else 0) for shift in (0, 64))


def emit_masked(rows, op, *, dtype, value, addresses, blk, rep, repeat, casts=None):
    """Write row 0 of ``rows`` through the emitter of a general form; strides are {operand: number}."""
    spec = SPEC_OF_OP[op]
    operands = [name for name in ("dst", "src0", "src1") if name in spec.fields]
    given = {"value_bits": value, "repeat": repeat, "dtype": dtype, "site": 0, "tile": 0}
    given |= dict(zip(("src_dtype", "dst_dtype", "round_mode"), casts or (), strict=False))
    for name in operands:
        short = "src" if name == "src0" and "src1" not in spec.fields else name
        given |= {short: addresses[name], f"{short}_blk_stride": blk[name], f"{short}_rep_stride": rep[name]}
    emitter = getattr(emit, f"emit_{Op(op).name.lower()}")
    names = emitter.py_func.__code__.co_varnames if hasattr(emitter, "py_func") else emitter.__code__.co_varnames
    count = (emitter.py_func if hasattr(emitter, "py_func") else emitter).__code__.co_argcount
    emitter(rows, 0, *(int(given[name]) for name in names[2:count]))

"""Digests of programs: all that counts of every row, in program order, in 16 lanes of 64 bits.

Of a row count its opcode, pipe, mode and operands; the names for reports (site, tile), the tensor, and bytes that are
no operand of its instruction do not. Of an address in GM only those bits count that the caller asks for. Programs with
equal lanes are taken for equal: others would have to collide in every lane in which they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import Space
from npu_sim.isa.gm_extent import space_of
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.op import by_opcode
from npu_sim.isa.row import INSTR, ROW_BYTES

LANES = ROW_BYTES // 8
_OFFSETS: Any = INSTR.fields
DST_LANE, SRC_LANE = (_OFFSETS[name][1] // 8 for name in ("dst", "src0"))


def mask_of(instruction: Instruction, without: frozenset[str] = frozenset()) -> npt.NDArray[np.uint64]:
    """Return the bits of a row that count, those of ``without`` left out; addresses in GM are treated row by row."""
    mask = np.zeros(ROW_BYTES, np.uint8)
    for name in {"op", "pipe", "mode", *instruction.fields} - {"tensor", "site", "tile"} - without:
        dtype, offset, *_ = _OFFSETS[name]
        mask[offset : offset + dtype.itemsize] = 0xFF
    return mask.view(np.uint64)


UNKNOWN_MASK = np.full(LANES, np.uint64(0xFF))
MASKS = by_opcode(mask_of, default=UNKNOWN_MASK, dtype=np.uint64)
"""uint64[256, LANES]: what counts of a row; of numbers that are no opcode the number."""


def lanes_in_use(masks: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return, by opcode, how many lanes its mask has anything in, and which these are."""
    table = np.zeros((len(masks), LANES + 1), np.uint8)
    for op, mask in enumerate(masks):
        used = np.flatnonzero(mask)
        table[op, 0], table[op, 1 : 1 + len(used)] = len(used), used
    return table


IN_USE = lanes_in_use(MASKS)
"""uint8[256, 1 + LANES]. Lane 0 of every row has the opcode: equal there, programs agree in which rows others have."""


@jit
def mixed(lane: Any, word: Any) -> Any:
    """Return a lane with one more word in it; all are uint64."""
    mixed = lane ^ word
    mixed = (mixed << np.uint64(25)) | (mixed >> np.uint64(39))
    return mixed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0xD1B54A32D192ED03)


@jit
def mix_operands(
    words: np.ndarray,
    i: Int,
    op: Int,
    to_gm: Flag,
    from_gm: Flag,
    masks: np.ndarray,
    in_use: np.ndarray,
    gm_bits: Any,
    lanes: np.ndarray,
) -> None:
    """Mix row ``i`` into all lanes but lane 0; ``gm_bits``, uint64: what counts of an address in GM."""
    for at in range(2, 1 + np.int64(in_use[op, 0])):
        lane = np.int64(in_use[op, at])
        word = words[i * LANES + lane] & masks[op, lane]
        if (to_gm and lane == DST_LANE) or (from_gm and lane == SRC_LANE):
            word &= gm_bits
            if word == 0:
                continue
        lanes[lane] = mixed(lanes[lane], word)


@jit
def digest(rows: np.ndarray, words: np.ndarray, n: Int, gm_bits: Any, lanes: np.ndarray) -> None:
    """Mix rows ``[0, n)``, which ``words`` are as uint64[16 * n], into ``lanes``, uint64[16]."""
    for i in range(n):
        row = rows[i]
        op = np.int64(row["op"])
        lanes[0] = mixed(lanes[0], words[i * LANES] & MASKS[op, 0])
        to_gm, from_gm = space_of(row, 0) == Space.GM, space_of(row, 1) == Space.GM
        mix_operands(words, i, op, to_gm, from_gm, MASKS, IN_USE, gm_bits, lanes)


@dataclass(frozen=True, slots=True)
class Programs:
    """What the cores of a launch run.

    Attributes
    ----------
    digests : tuple of tuple of bytes
        ``digests[phase][core]``: equal for programs that the checks treat alike wherever their tensors are.
    row_counts : int64[phases, cores]
    """

    digests: tuple[tuple[bytes, ...], ...]
    row_counts: npt.NDArray[np.int64]

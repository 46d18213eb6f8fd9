"""Which cores of a launch run the same program, so that one of them need be timed for all, and what the cores touch.

Two cores take the same time if their rows agree in all that the cost rules and the clocks read: opcode, pipe, mode and
operands, without addresses (`npu_sim.program.row_digest`) but those of vector instructions, whose operands may meet in
the banks of UB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim._jit import Flag, jit
from npu_sim.engines.timeline_memory import READ, STORED, no_extents
from npu_sim.isa.codes import Space
from npu_sim.isa.gm_extent import gm_extent, space_of
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import by_opcode
from npu_sim.program.launch import Launch
from npu_sim.program.row_digest import LANES, UNKNOWN_MASK, lanes_in_use, mask_of, mix_operands, mixed

_NO_GM_BITS = np.uint64(0)
_ADDRESSES = frozenset({"dst", "src0", "src1"})


def _timed(instruction: Instruction) -> npt.NDArray[np.uint64]:
    """Return what of a row its cost and the clocks may read."""
    is_apart_from_banks = instruction.extent is not None or instruction.unit == "cube"
    return mask_of(instruction, _ADDRESSES if is_apart_from_banks else frozenset())


TIMED = by_opcode(_timed, default=UNKNOWN_MASK, dtype=np.uint64)
"""uint64[256, LANES], as `row_digest.MASKS`."""
IN_USE = lanes_in_use(TIMED)


@jit
def _widen(row: Any, is_read: Flag, gm_extents: np.ndarray) -> None:
    """Widen the extent of the tensor that ``row`` names by the bytes it touches in GM."""
    low, high = gm_extent(row)
    if low >= high:
        return
    tensor, last = np.int64(row["tensor"]), gm_extents.shape[0] - 1
    if tensor < 0 or tensor > last:
        tensor = last
    column = READ if is_read else STORED
    gm_extents[tensor, column] = min(gm_extents[tensor, column], low)
    gm_extents[tensor, column + 1] = max(gm_extents[tensor, column + 1], high)


@jit
def _note(
    rows: np.ndarray,
    words: np.ndarray,
    n: int,
    masks: np.ndarray,
    in_use: np.ndarray,
    lanes: np.ndarray,
    gm_extents: np.ndarray,
) -> None:
    """Mix rows ``[0, n)`` into ``lanes`` and widen the extents of the tensors they name."""
    with_extents = gm_extents.shape[0] > 0
    # every row has lane 0: in memory, each would wait for the one before
    first = lanes[0]
    for i in range(n):
        row = rows[i]
        op = np.int64(row["op"])
        to_gm, from_gm = space_of(row, 0) == Space.GM, space_of(row, 1) == Space.GM
        first = mixed(first, words[i * LANES] & masks[op, 0])
        mix_operands(words, i, op, to_gm, from_gm, masks, in_use, _NO_GM_BITS, lanes)
        if with_extents and (to_gm or from_gm):
            _widen(row, from_gm, gm_extents)
    lanes[0] = first


@jit
def _take(
    rows: np.ndarray,
    words: np.ndarray,
    n: int,
    core_state: np.ndarray,
    masks: np.ndarray,
    in_use: np.ndarray,
    lanes: np.ndarray,
    gm_extents: np.ndarray,
) -> None:
    """Issue rows ``[0, n)`` of a core and note them."""
    issue(rows, n, core_state)
    _note(rows, words, n, masks, in_use, lanes, gm_extents)


@dataclass(frozen=True, slots=True, eq=False)
class CoreClasses:
    """The cores of a launch by what they run.

    Attributes
    ----------
    first_of : tuple of int64[core_count]
        By phase: for each core the first one that runs the same.
    gm_extents : int64[tensors + 1, 4] or int64[0, 4]
        First byte read in GM, the one behind the last, and the same of stores (`timeline_memory`), by the tensor that
        the rows name; the last line is for rows that name none. Without lines if nobody asked for it.
    """

    first_of: tuple[npt.NDArray[np.int64], ...]
    gm_extents: npt.NDArray[np.int64]


def classify(launch: Launch, rows: np.ndarray, with_extents: bool) -> CoreClasses:
    """Emit the rows of every core and phase once, and tell which cores are equal.

    Parameters
    ----------
    launch : Launch
        Kernel launch.
    rows : INSTR[:]
        Buffer, overwritten.
    with_extents : bool
        Whether to find out what the rows touch in GM.
    """
    extents = no_extents(len(launch.gm.tensors) + 1 if with_extents else 0)
    cores = launch.core_count
    if cores == 1 and not with_extents:
        return CoreClasses((np.zeros(1, np.int64),) * launch.phase_count, extents)
    words = rows.view(np.uint8).reshape(-1).view(np.uint64)
    first_of = []
    states = np.zeros((cores, CORE_STATE_LENGTH), np.int64)
    for phase in range(launch.phase_count):
        lanes = np.zeros((cores, LANES), np.uint64)
        if not launch.keeps_cores:
            states[:] = 0
        with np.errstate(over="ignore"):
            for core, own, state in zip(range(cores), lanes, states, strict=True):
                for count in launch.rows(core, phase, rows):
                    _take(rows, words, count, state, TIMED, IN_USE, own, extents)
        firsts: dict[bytes, int] = {}
        first_of.append(np.array([firsts.setdefault(line.tobytes(), core) for core, line in enumerate(lanes)]))
    return CoreClasses(tuple(first_of), extents)

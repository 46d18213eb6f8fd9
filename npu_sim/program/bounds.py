"""Hold every GM access of a stretch of rows inside its tensor.

`verify` checks what a row alone tells; this needs the launch's tensors. Engines run it before they execute rows that
nobody vouches for, because jitted code has no bounds checks of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import empty_runs, reach
from npu_sim.memory.gm import spare_words
from npu_sim.program.disassemble import disassemble
from npu_sim.program.violation import Kind, Violation


def gm_violations(rows: np.ndarray, table: npt.NDArray[np.int64], *, core: int = 0, first: int = 0) -> list[Violation]:
    """Return a violation for each row that leaves the allocation of its GM tensor, or may: one without a footprint.

    Parameters
    ----------
    rows : INSTR[n]
        Rows, issued or not.
    table : int64[tensors, 4]
        `GlobalMemory.table`: address, bytes, allocated bytes, initialised.
    core, first : int
        Emulated core, and the number of ``rows[0]`` in its program, for the report.
    """
    ends = np.zeros((len(rows), len(Space), 2), np.int64)
    reach(rows, empty_runs(), ends)
    low, high = ends[:, Space.GM, 0], ends[:, Space.GM, 1]
    touches = high != low
    tensor = rows["tensor"].astype(np.int64)
    known = (tensor >= 0) & (tensor < len(table))
    safe = np.where(known, tensor, 0)
    start = table[safe, 0] if len(table) else np.zeros(len(rows), np.int64)
    end = start + (table[safe, 2] if len(table) else 0)
    outside = touches & (~known | (low < start) | (high > end)) | (ends[:, 0, 0] < 0)
    violations = []
    for i in np.flatnonzero(outside):
        writes = rows["dst_space"][i] == Space.GM
        where = f"a tensor of the launch, not {tensor[i]}"
        if known[i]:
            data_end = int(start[i] + table[tensor[i], 1])
            where = f"tensor {tensor[i]} [{start[i]}:{data_end}]{spare_words(data_end, int(end[i]))}"
        violations.append(
            Violation(
                kind=Kind.WRITE_OUT_OF_BOUNDS if writes else Kind.READ_OUT_OF_BOUNDS,
                row=first + int(i),
                core=core,
                tile=int(rows["tile"][i]),
                site=int(rows["site"][i]),
                space=Space.GM,
                start=int(low[i]),
                length=int(high[i] - low[i]),
                detail=f"{disassemble(rows[i])} must stay inside {where}",
            )
        )
    return violations

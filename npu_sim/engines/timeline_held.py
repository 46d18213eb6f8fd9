"""The timeline from a wait on whose flag no row before it has set (`issue_order`).

ASSUMED: rows are handed over in the order in which they start, not in that of the program, which differs by the few
cycles in which the scalar unit hands over what lies between.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from npu_sim.engines.issue_order import deadlock_words, starts_of
from npu_sim.engines.reorder import new_flags
from npu_sim.engines.timeline_jit import EVENTS, FLAG_TIMES, OK, WAIT_WITHOUT_SET, advance
from npu_sim.errors import ProgramError
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind, Violation


def advance_held(
    rows: np.ndarray,
    cost: np.ndarray,
    clocks: npt.NDArray[np.int64],
    launch: Launch,
    first: tuple[int, int],
    violation: Callable[[int, np.void, int, int], Violation],
) -> npt.NDArray[np.int64]:
    """Advance the clocks of a core over the rest of its rows, the first of which is the wait.

    Parameters
    ----------
    rows : INSTR[n]
        As issued.
    cost, clocks
        As for `timeline_jit.advance`.
    launch : Launch
        For messages.
    first : (int, int)
        Core, and number of the first row.
    violation : callable
        From code, row, number and core to what is wrong.

    Returns
    -------
    int64[n, 2]
        Start and end of each row.

    Raises
    ------
    ProgramError
        If the rows wait for each other, or for a flag that none sets, or as `run_timeline`.
    """
    core, number = first
    flags = new_flags()
    flags.reshape(64, 256)[:, :EVENTS] = (clocks[FLAG_TIMES] >= 0).reshape(64, EVENTS)
    starts = starts_of(rows, flags, int(cost["queue_depth_rows"][0]))
    if starts.is_cycle:
        at, other = starts.waits[0], starts.waits[-1]
        raise ProgramError(
            [
                Violation(
                    kind=Kind.SYNC_UNPAIRED,
                    row=number + at,
                    other_row=number + other,
                    core=core,
                    tile=int(rows["tile"][at]),
                    site=int(rows["site"][at]),
                    other_site=int(rows["site"][other]),
                    detail=f"{deadlock_words(rows, starts, number, launch.place_of)} ({launch.name})",
                )
            ]
        )
    if starts.waits:
        raise ProgramError([violation(WAIT_WITHOUT_SET, rows[0], number, core)])
    ordered, spans = rows[starts.order], np.zeros((len(rows), 2), np.int64)
    code, bad = advance(ordered, len(ordered), cost, clocks, spans)
    if code != OK:
        raise ProgramError([violation(code, ordered[bad], number + int(starts.order[bad]), core)])
    result = np.empty_like(spans)
    result[starts.order] = spans
    return result

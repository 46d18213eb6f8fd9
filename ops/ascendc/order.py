"""When Iterate may be called."""

from __future__ import annotations

from collections.abc import Mapping

from npu_sim.errors import StateError
from ops.ascendc.checks import NAME


def check_iterate(
    given: Mapping[str, object],
    tiling: Mapping[str, int],
    *,
    block_waits: bool,
    is_first: bool,
    held_l1: int,
    behind: str,
) -> None:
    """Refuse an Iterate that comes at the wrong time.

    Parameters
    ----------
    given : mapping of str to object
        What the calls that must come first have set, None for those that did not come.
    tiling : mapping of str to int
        Members of the tiling.
    block_waits : bool
        GetTensorC has not taken the last block.
    is_first : bool
        ``ctx.isFirstIter_``: a new single shape begins.
    held_l1 : int
        L1 buffers that still hold something.
    behind : str
        What came since the last Iterate that makes a new single shape necessary; empty: nothing.

    Raises
    ------
    StateError
        A call is missing, or ``ctx.isFirstIter_`` does not fit.
    """
    for call, value in given.items():
        if value is None:
            raise StateError(f"Iterate must come after {call}, not before it ({NAME})")
    if block_waits:
        limit = "one block may wait in L0C, whatever cl0Pbuffer"
        raise StateError(f"Iterate must follow GetTensorC of the last block, not a second Iterate ({limit}; {NAME})")
    if is_first and held_l1:
        raise StateError(
            "ctx.isFirstIter_ must be set when all blocks of the single shape are done, not with "
            f"{held_l1} L1 buffers in use (al1Pbuffer {tiling['al1Pbuffer']}, bl1Pbuffer "
            f"{tiling['bl1Pbuffer']}): their next load would wait for ever ({NAME}.Iterate)"
        )
    if not is_first and behind:
        raise StateError(f"ctx.isFirstIter_ must be True behind {behind}, not False ({NAME}.Iterate)")

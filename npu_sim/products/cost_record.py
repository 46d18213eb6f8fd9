"""Parameters of the timing model (`products.cost`) as jitted code reads them: one record for a launch."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from npu_sim.errors import ProductError
from npu_sim.products.cost import NUMBERS, CostParams

IMG2COL_ROWS = 17
"""Entries per line of the img2col table: a fractal has 16 outputs, so it touches 1 to 16 image rows; 0 is unused."""

COST = np.dtype(
    [(name, "i8") for name in NUMBERS]
    + [
        ("store_share_millibytes_per_cycle", "i8"),
        ("gm_miss_latency_cycles", "i8"),
        ("img2col_pieces", "i8"),
        ("img2col_millicycles", "i8", (2, 5, IMG2COL_ROWS)),
    ]
)
"""`CostParams` for jitted code, all int64, with the rates a core gets beside the others. Beside the numbers:

``store_share_millibytes_per_cycle``: what one core gets of the memory system; ``gm_miss_latency_cycles``: mean latency
added by L2 misses; ``img2col_pieces``: 1 under the rule "pieces"; ``img2col_millicycles[b, s, r]``: one 512-byte
fractal to L0A (b = 0) or L0B (1), stride class s (strideW 1, 2, 4, 8, other), r image rows touched.
"""

_SHARED_READS = (
    "gm_to_l1_millibytes_per_cycle",
    "gm_to_l1_isolated_millibytes_per_cycle",
    "gm_to_ub_millibytes_per_cycle",
    "gm_to_ub_isolated_millibytes_per_cycle",
    "gm_to_l0_millibytes_per_cycle",
    "gm_to_l0_isolated_millibytes_per_cycle",
    "nd2nz_isolated_millibytes_per_cycle",
)
_UB_READS = ("gm_to_ub_millibytes_per_cycle", "gm_to_ub_isolated_millibytes_per_cycle")
_SHARED_STORES = ("ub_to_gm_millibytes_per_cycle", "l1_to_gm_millibytes_per_cycle")
_L1_READS = (
    "l1_to_l0a_millibytes_per_cycle",
    "l1_to_l0b_millibytes_per_cycle",
    "transpose_to_l0a_millibytes_per_cycle",
    "transpose_to_l0b_millibytes_per_cycle",
)


def img2col_bytes_per_cycle(*, to_l0b: bool, stride_w: int, image_rows: int) -> int:
    """Return the documented img2col rate of dav-c220.

    Parameters
    ----------
    to_l0b : bool
        Destination L0B instead of L0A.
    stride_w : int
        Stride of the window in W.
    image_rows : int
        Image rows touched inside the 16 outputs of one fractal.

    Notes
    -----
    Source: asc-devkit ``docs/zh/api`` appendix, theoretical performance of Cube instructions (documented; a stride
    that is none of 1, 2, 4, 8 runs at the least rate).
    """
    floor = 28 if to_l0b else 32
    extra = 2 if to_l0b else 0
    if stride_w == 1:
        if image_rows == 1:
            return 128 if to_l0b else 256
        return max(floor, 512 // (image_rows + 2 + extra))
    if stride_w in (2, 4, 8):
        return max(floor, 512 // (2 * stride_w + extra + (image_rows if image_rows > 1 else 0)))
    return floor


def share_millibytes_per_cycle(params: CostParams, *, active_cores: int, clock_hz: int, l2_hit_permille: int) -> int:
    """Return what one of ``active_cores`` gets of L2 and memory, in thousandths of bytes per cycle.

    The time of a byte is the mean over hits and misses: ``h / L2 + (1 - h) / HBM``.
    """
    l2, hbm = params.l2_total_bytes_per_microsecond, params.hbm_total_bytes_per_microsecond
    total = 1000 * l2 * hbm // (l2_hit_permille * hbm + (1000 - l2_hit_permille) * l2)
    return max(1, total * 1_000_000_000 // (active_cores * clock_hz))


def cost_record(
    params: CostParams,
    active_cores: int,
    clock_hz: int,
    *,
    l2_hit_permille: int = 1000,
    read_miss_permille: int = 0,
    mte1_contended: bool = False,
    list_commands: int = 0,
) -> np.ndarray:
    """Return ``params`` as jitted code reads them, for a launch on ``active_cores`` cores.

    Parameters
    ----------
    params : CostParams
        Table of the architecture.
    active_cores : int
        Cores that share L2 and memory.
    clock_hz : int
        Clock of the cores.
    l2_hit_permille : int
        Part of the GM traffic that hits L2, in thousandths.
    read_miss_permille : int
        Part of what is read that is not in L2 when the launch begins, in thousandths.
    mte1_contended : bool
        MTE2 keeps writing L1 meanwhile: MTE1 runs slower by ``mte1_contention_permille``.
    list_commands : int
        Commands for each TransDataTo5HD, in thousandths; 0: the instruction itself.

    Returns
    -------
    COST[1]

    Raises
    ------
    ProductError
        If an argument is out of range.
    """
    if active_cores < 1:
        raise ProductError(f"active_cores must be at least 1, not {active_cores} ({params.name})")
    if clock_hz < 1:
        raise ProductError(f"clock_hz must be at least 1, not {clock_hz} ({params.name})")
    if not 0 <= l2_hit_permille <= 1000:
        raise ProductError(f"l2_hit_permille must be in [0, 1000], not {l2_hit_permille} ({params.name})")
    share = share_millibytes_per_cycle(
        params, active_cores=active_cores, clock_hz=clock_hz, l2_hit_permille=l2_hit_permille
    )
    values = {name: getattr(params, name) for name in NUMBERS}
    for name in _SHARED_READS + _SHARED_STORES:
        values[name] = min(values[name], share)
    # what L2 has no room for is in the share
    first_misses = max(read_miss_permille - (1000 - l2_hit_permille), 0)
    if params.gm_to_ub_miss_millibytes_per_cycle and first_misses:
        for name in _UB_READS:
            slower = 1000 * params.gm_to_ub_miss_millibytes_per_cycle
            values[name] = values[name] * slower // (slower + values[name] * first_misses)
    if mte1_contended:
        for name in _L1_READS:
            values[name] = values[name] * 1000 // params.mte1_contention_permille
    if list_commands:
        values["address_list_issue_cycles"] = params.computed_command_cycles * list_commands // 1000
    misses = params.l2_miss_cycles * (1000 - l2_hit_permille) // 1000
    table = _img2col_millicycles(params.mte1_contention_permille if mte1_contended else 1000)
    # as one tuple: a store to each of a hundred fields takes four times as long
    return np.array([(*values.values(), share, misses, int(params.img2col_rule == "pieces"), table)], COST)


@cache
def _img2col_millicycles(slowdown_permille: int) -> npt.NDArray[np.int64]:
    """Return the table of the record: ``img2col_bytes_per_cycle`` turned round; every launch needs it anew."""
    table = np.zeros((2, 5, IMG2COL_ROWS), np.int64)
    for to_l0b in (0, 1):
        for index, stride_w in enumerate((1, 2, 4, 8, 3)):
            for image_rows in range(1, IMG2COL_ROWS):
                rate = img2col_bytes_per_cycle(to_l0b=bool(to_l0b), stride_w=stride_w, image_rows=image_rows)
                table[to_l0b, index, image_rows] = -(-512 * slowdown_permille // rate)
    return table

"""What TransData between one group and merged groups leaves in GM, without its rows: the kernels' shortcuts.

Tensors are words of an element each: [depth][block][tap][row][C0] as of one group, and [merged group] of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit


@jit
def _whole_line(p: Any, depth: Int, block: Int, tap: Int, row: Int) -> Int:
    """Return where a row is as of one group."""
    return (((depth * p.blocks + block) * p.taps + tap) * p.rows + row) * p.c0


@jit
def _merged_line(p: Any, group: Int, depth: Int, block: Int, tap: Int, row: Int) -> Int:
    """Return where a row of small group ``group`` is in its merged group."""
    column = ((group // p.mag * p.kd + depth) * p.merged_blocks + block) * p.taps + tap
    return (column * p.merged_rows + group % p.mag * p.count + row) * p.c0


@jit
def to_groups(src: np.ndarray, dst: np.ndarray, params: np.ndarray, groups: Int) -> None:
    """Move the rows of each small group into its merged group, their channels behind those of the groups before it.

    Blocks of C0 channels are written as wholes: what is beside the channels of the small group becomes 0.

    Parameters
    ----------
    src, dst : uint16[:] or uint32[:]
        As of one group, with merged groups.
    params : `trans_data_groups.PARAMS`[1]
    groups : int
        Small ones.
    """
    p = params[0]
    for group in range(groups):
        first = group % p.mag * p.c
        gap, at = first % p.c0, first // p.c0
        # what a shift leaves of the last block is in the next one, if there is one
        stored = p.blocks + 1 if gap > 0 and at + p.blocks < p.merged_blocks else p.blocks
        for depth in range(p.kd):
            for block in range(stored):
                for tap in range(p.taps):
                    for row in range(p.count):
                        target = _merged_line(p, group, depth, at + block, tap, row)
                        before = _whole_line(p, depth, block - 1, tap, group * p.count + row) + p.c0 - gap
                        for j in range(gap):
                            dst[target + j] = src[before + j] if block > 0 else 0
                        source = _whole_line(p, depth, block, tap, group * p.count + row) - gap
                        for j in range(gap, p.c0):
                            dst[target + j] = src[source + j] if block < p.blocks else 0


@jit
def from_groups(src: np.ndarray, dst: np.ndarray, params: np.ndarray, groups: Int) -> None:
    """Move the rows of each small group back, their channels to the front; parameters as of `to_groups`.

    What a merged group has behind the channels of a small group comes along as far as the last block of these goes.
    """
    p = params[0]
    for group in range(groups):
        first = group % p.mag * p.c
        gap, at = first % p.c0, first // p.c0
        for depth in range(p.kd):
            for block in range(p.blocks):
                here = min(p.c - block * p.c0, p.c0)
                for tap in range(p.taps):
                    for row in range(p.count):
                        target = _whole_line(p, depth, block, tap, group * p.count + row)
                        source = _merged_line(p, group, depth, at + block, tap, row) + gap
                        for j in range(p.c0 - gap):
                            dst[target + j] = src[source + j]
                        behind = _merged_line(p, group, depth, at + block + 1, tap, row)
                        for j in range(gap):
                            dst[target + p.c0 - gap + j] = src[behind + j] if gap + here > p.c0 else 0

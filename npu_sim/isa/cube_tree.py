"""The tree model of Mmad: products rounded to float32, summed by a float32 tree over neighbours.

Called by `cube`, which has the layouts and says where the matrices lie.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.accumulation import AccumulatorRound
from npu_sim.reinterpret import reinterpret

LARGEST = 3.4028234663852886e38
_STACK_LEVELS = 12  # a group of 4095 products has 12 binary digits


@jit
def saturated(value, largest):
    """Return a number as saturation mode takes it: at most ``largest``, NaN as a zero; the sign stays."""
    if value != value:
        return np.copysign(0.0, value)
    return np.copysign(min(abs(value), largest), value)


@jit
def settled(word, flushes, saturates):
    """Return the bits of a float32 as L0C has them: saturated or with one NaN, with or without subnormal numbers."""
    sign, magnitude = np.uint32(word & np.uint32(0x80000000)), np.uint32(word & np.uint32(0x7FFFFFFF))
    if flushes and magnitude < np.uint32(0x00800000):
        return sign
    if saturates and magnitude >= np.uint32(0x7F800000):
        return sign if magnitude > np.uint32(0x7F800000) else np.uint32(sign | np.uint32(0x7F7FFFFF))
    return np.uint32(0x7FFFFFFF) if magnitude > np.uint32(0x7F800000) else word


@jit
def _add(acc, value, round, to_max):
    """Return the float32 sum; toward zero, or if ``to_max``, a finite sum never becomes Inf."""
    total = np.float32(acc + value)
    toward_zero = round == AccumulatorRound.RZ
    if not np.isfinite(total):
        if (toward_zero or to_max) and np.isfinite(acc) and np.isfinite(value):
            return np.float32(np.copysign(np.float32(LARGEST), total))
        return total
    back = np.float32(total - acc)
    error = np.float32(np.float32(acc - np.float32(total - back)) + np.float32(value - back))
    if toward_zero and error != 0 and (error > 0) != (total > 0):
        return np.int32(total.view(np.int32) - 1).view(np.float32)
    return total


@jit
def tree(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, stack, at):
    """Add neighbour trees in float32, 16 columns at a time.

    ``add`` are the codes of the model, ``largest`` the largest operand of a mode that saturates operands, else 0.
    """
    group, _, round, flushes, to_max = add
    to_max = to_max or largest != 0
    n1 = (n + 15) // 16
    c_column = 256 * ((m + 15) // 16)
    words = reinterpret(l0c, np.uint32)
    for j in range(n1):
        lanes = min(16, n - 16 * j)
        for r in range(m):
            row = c_at + c_column * j + 16 * r
            if init:
                for lane in range(lanes):
                    l0c[row + lane] = np.float32(0)
            ar = a_at + (r >> 4) * a_row + (r & 15)
            for first in range(0, k, group):
                count = min(group, k - first)
                _sum(a, ar, a_step, b, b_at + 256 * j, 256 * n1, first, count, k0, lanes, largest, stack, at)
                for i in range(row, row + lanes):
                    words[i] = settled(words[i], flushes, largest != 0)
                    l0c[i] = _add(l0c[i], stack[at + i - row], round, to_max)
                    words[i] = settled(words[i], flushes, False)


@jit
def _sum(a, a_at, a_step, b, b_at, b_step, first, count, k0, lanes, largest, stack, at):
    """Sum ``count`` rounded products from k = ``first`` on as a tree over neighbours; result in stack[at:at + 16].

    Level i of the stack, at ``at + 16 (i + 1)``, holds a finished subtree of 2^i products. Subtrees of equal size merge
    as soon as the second is complete, like the carries of a binary counter; that is the tree over neighbours in which
    an odd one out waits for the next level.
    """
    for i in range(count):
        outer, inner = (first + i) // k0, (first + i) % k0
        x = a[a_at + outer * a_step + 16 * inner]
        column = b_at + outer * b_step + 16 * inner
        for lane in range(lanes):
            y = b[column + lane]
            if largest != 0:
                stack[at + lane] = np.float32(saturated(x, largest)) * np.float32(saturated(y, largest))
            else:
                stack[at + lane] = np.float32(x * y)
        level = 1
        while (i >> (level - 1)) & 1:
            for lane in range(lanes):
                stack[at + lane] = np.float32(stack[at + 16 * level + lane] + stack[at + lane])
            level += 1
        for lane in range(lanes):
            stack[at + 16 * level + lane] = stack[at + lane]
    merged = False
    for level in range(1, _STACK_LEVELS + 1):
        if (count >> (level - 1)) & 1:
            for lane in range(lanes):
                older = stack[at + 16 * level + lane]
                stack[at + lane] = np.float32(older + stack[at + lane]) if merged else older
            merged = True

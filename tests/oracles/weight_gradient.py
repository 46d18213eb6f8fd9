"""The rounding of a weight gradient, step by step: what a tiling's order of work makes of real numbers.

One float32 sum per element and work item, in Mmads of ``base_k`` output pixels under an accumulation model; the sums of
the items are added to dw or to a slot in float32, in the order of `work_items`, and the slots in that of `reductions`.
Operands are whole matrices built with NumPy slices, and Mmad is the naive one of `tests.oracles.mmad`. Nothing of the
kernels, the layouts or the engines is used; the order of the items is taken from `tests.oracles.work_items`, which has
tests of its own.
"""

from __future__ import annotations

import functools
import itertools
import operator

import ml_dtypes
import numpy as np

from ops.conv3d_backprop_filter.tiling_unified import UnifiedTiling
from tests.oracles.mmad import hf32_matrix, mmad, mmad_by_planes
from tests.oracles.work_items import ALL_TAPS, NO_SLOT, pixels_of, reductions, work_items

TYPES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
LARGEST_FP32 = np.float32(float.fromhex("0x1.fffffep127"))
LARGEST = {
    "fp16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "hf32": float.fromhex("0x1.ffep127"), "fp32": LARGEST_FP32
}  # fmt: skip


def rounded_operand(values, compute_dtype, *, saturate=False, hf32_drop=12):
    """The float32 values the Cube multiplies: rounded once to nearest even; in saturation mode Inf is clamped."""
    wide = np.asarray(values).astype(np.float32)
    if compute_dtype == "hf32":
        return hf32_matrix(wide.reshape(1, -1), hf32_drop).reshape(wide.shape)
    if compute_dtype == "fp32":
        return wide
    if np.asarray(values).dtype == TYPES[compute_dtype]:
        return wide  # stored as it is, nothing is converted
    with np.errstate(over="ignore"):
        narrow = wide.astype(TYPES[compute_dtype]).astype(np.float32)
    if saturate:
        narrow = np.where(
            np.isnan(wide), np.float32(0), np.clip(narrow, -LARGEST[compute_dtype], LARGEST[compute_dtype])
        )
    return narrow.astype(np.float32)


def saturated(values, largest):
    """Operands or accumulators as saturation mode takes them; NaN becomes a zero of its sign."""
    limited = np.where(np.isnan(values), np.copysign(np.float32(0), values), np.clip(values, -largest, largest))
    return limited.astype(np.float32)


def clamped(values):
    """Float32 as saturation mode leaves it in L0C."""
    return np.where(np.isnan(values), np.float32(0), np.clip(values, -LARGEST_FP32, LARGEST_FP32)).astype(np.float32)


def gradient(tiling, geometry, x, dy, accumulation, *, saturate=None, exact_products=True):
    """Return dw, float32 (cout, cin / groups, kd, kh, kw), for float32 operands (n, c, d, h, w).

    ``saturate``: the largest operand, in saturation mode.
    ``exact_products``: float32 holds every product (16-bit and HF32 operands away from underflow), which lets the
    serial model use the faster of the two naive Mmads.
    """
    return _gradient(tiling, geometry, x, dy, accumulation, np.float32, saturate, exact_products)


def left_by_cubes(tiling, geometry, x, dy, accumulation):
    """Return the sums that leave the Cubes, added in memory that holds float64; parameters as of `gradient`."""
    return _gradient(tiling, geometry, x, dy, accumulation, np.float64, None, True)


def _gradient(tiling, geometry, x, dy, accumulation, memory, saturate, exact_products):
    unified = isinstance(tiling, UnifiedTiling)
    limited = {}
    parts = {"flush": accumulation.flushes, "to_max": accumulation.overflow_to == "max"}
    if saturate and accumulation.saturates == "operands":
        x, dy = saturated(x, saturate), saturated(dy, saturate)
        parts["to_max"] = True
        limited = {"largest": saturate}
    stage = _Stage(tiling, geometry, x, dy)
    group, inner, rounding = accumulation.group, accumulation.inner, accumulation.round
    planes_will_do = rounding == "rne" and (inner == "exact" or (inner == "serial" and exact_products))
    result = np.zeros((tiling.group, tiling.m_extent, geometry.kd * stage.tap_n), memory)
    slots = {}
    fields = ("core", "block") if unified else ("core", "block", "n", "do", "part")
    for _, items in itertools.groupby(work_items(tiling, geometry), operator.attrgetter(*fields)):
        acc = None
        for item in items:
            a, b = stage.operands(item)
            for k in range(0, item.k_len, tiling.base_k):
                part_a, part_b = a[:, k : k + tiling.base_k], b[k : k + tiling.base_k]
                with np.errstate(all="ignore"):
                    if planes_will_do:
                        acc = mmad_by_planes(part_a, part_b, acc, group, inner, **parts)
                    else:
                        acc = mmad(part_a, part_b, acc, group, inner, rounding, **parts, **limited)
                if saturate:
                    acc = clamped(acc)
        rows = result[item.group, item.m0 : item.m0 + item.m_len]
        if item.slot != NO_SLOT:
            with np.errstate(all="ignore"):
                slots[item.slot] = slots[item.slot] + acc if item.slot in slots else acc
        elif unified and tiling.batch_parts == 1:
            rows[:, stage.columns(item)] = acc  # one writer: stored, not added
        else:
            with np.errstate(all="ignore"):
                rows[:, stage.columns(item)] += acc
    for sums in () if unified else reductions(tiling, geometry):
        # slot 0, 1, 2 ..., those that nothing was summed into being zeros; the result is stored, not added
        parts = [slots.get(slot, np.zeros((sums.m_len, sums.n_len), np.float32)) for slot in sums.slots]
        with np.errstate(all="ignore"):
            total = functools.reduce(np.add, parts)
        result[sums.group, sums.m0 : sums.m0 + sums.m_len][:, stage.columns(sums)] = total
    return _gather(result, geometry, stage.c0)


class _Stage:
    """Operands with channels, groups and padding as the blocked layouts have them."""

    def __init__(self, tiling, geometry, x, dy):
        unified = isinstance(tiling, UnifiedTiling)
        self.tiling, self.geometry = tiling, geometry
        self.c0 = 16 if unified else tiling.channel_size
        self.window = geometry.kh * geometry.kw * self.c0
        self.tap_n = tiling.cin1_g * self.window
        self.stride_w = tiling.stride_w if unified else geometry.stride[2]
        self.wo = tiling.wo if unified else geometry.wo
        pad_right = tiling.pad_right if unified else geometry.pad[5]
        channels = tiling.group * tiling.cin1_g * self.c0
        padded = np.zeros((x.shape[0], channels, *x.shape[2:]), np.float32)
        padded[:, : x.shape[1]] = x
        self.x = np.pad(padded, ((0, 0), (0, 0), (0, 0), geometry.pad[2:4], (geometry.pad[4], pad_right)))
        self.dy = np.zeros((dy.shape[0], tiling.group * tiling.m_extent, *dy.shape[2:]), np.float32)
        self.dy[:, : dy.shape[1]] = dy
        if unified and tiling.two_column:
            self.dy = np.repeat(self.dy, 2, axis=4)

    def blocks(self, item):
        """The blocks of C0 columns of N that an item computes, counted over taps, channel blocks and the window."""
        window = self.geometry.kh * self.geometry.kw
        first, count = item.n0 // self.c0, item.n_len // self.c0
        if item.position == ALL_TAPS:
            return [item.kd * (self.tap_n // self.c0) + first + i for i in range(count)]
        return [(item.kd * self.tiling.cin1_g + first + i) * window + item.position for i in range(count)]

    def columns(self, item):
        """The columns of N that an item computes."""
        return np.concatenate([block * self.c0 + np.arange(self.c0) for block in self.blocks(item)])

    def operands(self, item):
        """A (m_len, k_len) and B (k_len, n_len) of a work item."""
        g, t = self.geometry, self.tiling
        pixels = np.array(pixels_of(t, g, item.part, item.position))[item.k0 : item.k0 + item.k_len]
        first = item.group * t.m_extent + item.m0
        a = self.dy[item.n, first : first + item.m_len, item.do].reshape(item.m_len, -1)
        columns = []
        for block in self.blocks(item):
            tap, rest = divmod(block - item.kd * (self.tap_n // self.c0), self.tap_n // self.c0)
            c1, position = divmod(rest, g.kh * g.kw)
            row, column = position // g.kw * g.dilation[1], position % g.kw * g.dilation[2]
            channel = (item.group * t.cin1_g + c1) * self.c0
            plane = self.x[item.n, channel : channel + self.c0, item.di + tap]
            rows, places = pixels // self.wo * g.stride[1] + row, pixels % self.wo * self.stride_w + column
            columns.append(plane[:, rows, places].T)
        return a[:, pixels], np.concatenate(columns, axis=1)


def _gather(result, geometry, c0):
    """Take the diagonal blocks of the merged groups, element by element."""
    cin_g, cout_g = geometry.cin // geometry.groups, geometry.cout // geometry.groups
    merged = geometry.merged_groups(c0)
    window = geometry.kh * geometry.kw
    dw = np.empty(geometry.weight_shape, result.dtype)
    for co, ci, tap in np.ndindex(geometry.cout, cin_g, geometry.kd):
        group, lane = divmod(co // cout_g, merged.mag)
        m = lane * cout_g + co % cout_g
        channel = lane * cin_g + ci
        first = (tap * merged.cin1_g + channel // c0) * window * c0 + channel % c0
        dw[co, ci, tap] = result[group, m, first : first + window * c0 : c0].reshape(geometry.kh, geometry.kw)
    return dw


def same_bits(got, want):
    """Whether two float arrays agree bit by bit, any NaN being as good as another."""
    words = np.dtype(f"u{got.dtype.itemsize}")
    both_nan = np.isnan(got) & np.isnan(want)
    return bool(np.all(both_nan | (got.view(words) == want.view(words))))

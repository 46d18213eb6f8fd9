"""Random weight gradients whose result every correct machine must reproduce exactly, and random legal tilings.

A case runs as a call of `ops.convolution_backward` (`gradient_of`), or its kernel alone on tensors of its own
(`plan_of`, `run_plan`), whose tiling may then be another.

Operands are small integers: their products and sums are exact in fp16, bf16, HF32, fp32 and in any order, so the
float64 oracle's result is the only right one. `tests/differential` runs a few hundred of these,
`tests.long.weight_gradient` thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import ml_dtypes
import numpy as np

from npu_sim.accumulation import default_accumulation
from npu_sim.dtypes.convert import cast
from npu_sim.dtypes.formats import FP32, get_dtype
from npu_sim.engines.execute import ExecuteOptions, Overflow, execute
from npu_sim.fenv import default_fenv
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.layouts.transform import blocked_from_activation, weight_from_fractal
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product, get_product
from npu_sim.program.launch import Launch
from npu_sim.units import align_up, ceil_div
from ops.common.definition import weight_gradient as oracle_weight_gradient
from ops.common.geometry import ConvGeometry
from ops.common.tensor_desc import described
from ops.conv3d_backprop_filter.params import split_params, unified_params
from ops.conv3d_backprop_filter.plan import (
    WeightGradientLayouts,
    split_launches,
    unified_launches,
    weight_gradient_kernel,
)
from ops.conv3d_backprop_filter.tiling_data import DwTiling, Split, StreamK
from ops.conv3d_backprop_filter.tiling_unified import UnifiedTiling, single_writer
from ops.conv_backward.api import ConvolutionBackward, convolution_backward, plan_convolution_backward
from tests.oracles.series import SERIES

DTYPES: dict[str, np.dtype] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
}
Memory = Literal["c", "fortran", "reversed", "strided"]
MEMORIES: tuple[Memory, ...] = ("c", "c", "fortran", "reversed", "strided")
CASE_KINDS = ("any", "any", "groups", "depthwise", "pads", "one_column", "large_kernel", "channels", "line", "volume")
_LARGEST_SUM = 2**23
_NAN_WORD = 0x7FC12345


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of the operator.

    Attributes
    ----------
    series, dtype : str
        Product alias; type of both tensors.
    cube_math_type : int
        0 to 3.
    x_shape, dy_shape, weight_shape : tuple of int
        N C spatial.
    stride, dilation, padding : tuple of int
        Per axis; 2D padding of length 2 or 4.
    groups : int
        Groups.
    memory : str
        How the tensors lie in memory.
    seed : int
        Of the values.
    """

    series: str
    dtype: str
    cube_math_type: int
    x_shape: tuple[int, ...]
    dy_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    memory: Memory
    seed: int

    @property
    def attributes(self) -> dict[str, Any]:
        """Stride, padding, dilation and groups as keyword arguments."""
        return {
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups,
        }  # fmt: skip

    @property
    def geometry(self) -> ConvGeometry:
        """The convolution."""
        return ConvGeometry.from_shapes(self.x_shape, self.dy_shape, self.weight_shape, **self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGradientPlan:
    """The kernel of one weight gradient on tensors of its own.

    Attributes
    ----------
    geometry, product, compute_dtype
        As of `weight_gradient_kernel`.
    tiling : DwTiling or UnifiedTiling
        Split cores resp. unified cores.
    x_layout, dy_layout, dw_layout : ActivationLayout, ActivationLayout, WeightLayout
        Images of the operands, and of the result in float32.
    gm : GlobalMemory
        The launches' tensors.
    x, dy, dw : GmTensor
        Where they lie.
    launches : tuple of Launch
        In stream order.
    """

    geometry: ConvGeometry
    product: Product
    compute_dtype: str
    tiling: DwTiling | UnifiedTiling
    x_layout: ActivationLayout
    dy_layout: ActivationLayout
    dw_layout: WeightLayout
    gm: GlobalMemory
    x: GmTensor
    dy: GmTensor
    dw: GmTensor
    launches: tuple[Launch, ...]


_MOST_FAR_ELEMENTS, _MOST_FAR_TAPS = 2**22, 4000


def _pick(rng: np.random.Generator, values: Any) -> int:
    return int(values[int(rng.integers(len(values)))])


def _spatial(rng: np.random.Generator, rank: int, kind: str) -> tuple[list[int], ...] | None:
    """Return input extents, kernel, stride, dilation and pads (before, after); None if there is no output."""
    tall = 40 if rank == 1 else (17 if rank == 2 else 8)
    size = [int(rng.integers(1, tall)) for _ in range(rank)]
    kernel = [_pick(rng, (1, 1, 2, 3, 3, 4, 5)) for _ in range(rank)]
    stride = [_pick(rng, (1, 1, 2, 3, 4)) for _ in range(rank)]
    dilation = [_pick(rng, (1, 1, 1, 2, 3)) for _ in range(rank)]
    most_pad = 8 if kind == "pads" else 3
    if kind == "large_kernel":
        kernel = [int(rng.integers(5, 12 if rank < 3 else 6)) for _ in range(rank)]
        size = [extent + int(rng.integers(0, 9)) for extent in kernel]
    pads = []
    for _ in range(rank):
        before = int(rng.integers(0, most_pad + 1))
        pads += [before, before if rank != 2 else int(rng.integers(0, most_pad + 1))]
    if kind == "one_column":
        # the output has one column: the kernel covers the padded row, or the stride is longer than what is left
        reach = size[-1] + pads[-1] + pads[-2]
        kernel[-1] = min(reach, 9)
        dilation[-1] = 1
        stride[-1] = max(reach - kernel[-1] + 1, 1)
    out = []
    for axis in range(rank):
        room = size[axis] + pads[2 * axis] + pads[2 * axis + 1] - dilation[axis] * (kernel[axis] - 1) - 1
        if room < 0:
            return None
        out.append(room // stride[axis] + 1)
    return size, kernel, stride, dilation, pads, out


def random_case(rng: np.random.Generator, *, series: str | None = None, most_macs: int = 4_000_000) -> Case:
    """Draw a case that is cheap enough to run (``most_macs`` multiply-adds)."""
    while True:
        case = _draw(rng, series or SERIES[int(rng.integers(len(SERIES)))])
        if case is not None and case.geometry.macs <= most_macs:
            return case


def far_case(rng: np.random.Generator, *, series: str | None = None, most_macs: int = 8_000_000) -> Case:
    """Draw a case from the whole range of the page: extents to 2**20, kernels to 255, strides to 10**5, pads to 255.

    Few channels, because such maps fill the memory; where the page has no limits (310P, 910), beyond them.
    """
    while True:
        name = series or SERIES[int(rng.integers(len(SERIES)))]
        product = get_product(name)
        rank = _pick(rng, (1, 1, 2, 2, 3) if product.supports_conv3d else (1, 2))
        most = 255 if product.core.is_split else 700
        most_stride = 63 if rank == 3 else 100_000
        axes = [_far_axis(rng, most, most_stride) for _ in range(rank)]
        size, kernel, stride, dilation, pads, out = (tuple(entries) for entries in zip(*axes, strict=True))
        groups = _pick(rng, (1, 1, 1, 2, 3)) if rank < 3 else 1
        cin, cout, batch = _pick(rng, (1, 1, 2, 3, 17)), _pick(rng, (1, 2, 8, 20)), _pick(rng, (1, 1, 2))
        case = Case(
            series=name, dtype=("fp16", "fp32")[int(rng.integers(2))], cube_math_type=_pick(rng, (1, 2)),
            x_shape=(batch, cin * groups, *size), dy_shape=(batch, cout * groups, *out),
            weight_shape=(cout * groups, cin, *kernel), stride=stride, padding=pads, dilation=dilation, groups=groups,
            memory="c", seed=int(rng.integers(2**31)),
        )  # fmt: skip
        elements = max(prod(shape) for shape in (case.x_shape, case.dy_shape))
        if elements <= _MOST_FAR_ELEMENTS and prod(kernel) <= _MOST_FAR_TAPS and case.geometry.macs <= most_macs:
            return case


def _far_axis(rng: np.random.Generator, most: int, most_stride: int) -> tuple[int, ...]:
    """Return extent, kernel, stride, dilation, pad and output extent of one axis, each of any order of magnitude."""

    def upto(*highs: int) -> int:
        return int(_pick(rng, highs) ** float(rng.random()))

    while True:
        kernel, dilation = upto(3, 16, most), upto(1, 4, most)
        stride, pad = upto(1, 5, 60, most_stride), upto(1, 5, most + 1) - 1
        reach = (kernel - 1) * dilation + 1
        least = max(reach - 2 * pad, 1)
        if least > 2**20:
            continue
        size = min(least + upto(10, 1000, 2**20) - 1, 2**20)
        return size, kernel, stride, dilation, pad, (size + 2 * pad - reach) // stride + 1


def _draw(rng: np.random.Generator, series: str) -> Case | None:
    kind = CASE_KINDS[int(rng.integers(len(CASE_KINDS)))]
    product = get_product(series)
    split = product.core.is_split
    rank = {"line": 1, "volume": 3}.get(kind, _pick(rng, (2, 2, 2, 1, 3)))
    if rank == 3 and not product.supports_conv3d:
        rank = 2
    drawn = _spatial(rng, rank, kind)
    if drawn is None:
        return None
    size, kernel, stride, dilation, pads, out = drawn
    groups, cin, cout = _channels(rng, kind)
    dtype = ("fp16", "bf16", "fp32")[int(rng.integers(3))] if split else ("fp16", "fp32")[int(rng.integers(2))]
    wish = int(rng.integers(4)) if split or dtype == "fp16" else _pick(rng, (1, 2))
    batch = _pick(rng, (1, 1, 2, 3, 5, 9))
    padding = tuple(pads[0::2]) if rank != 2 or pads[0::2] == pads[1::2] else tuple(pads)
    return Case(
        series=series,
        dtype=dtype,
        cube_math_type=wish,
        x_shape=(batch, cin * groups, *size),
        dy_shape=(batch, cout * groups, *out),
        weight_shape=(cout * groups, cin, *kernel),
        stride=tuple(stride),
        padding=padding,
        dilation=tuple(dilation),
        groups=groups,
        memory=MEMORIES[int(rng.integers(len(MEMORIES)))],
        seed=int(rng.integers(2**31)),
    )


def _channels(rng: np.random.Generator, kind: str) -> tuple[int, int, int]:
    """Return groups, input and output channels of one group."""
    if kind == "depthwise":
        return _pick(rng, (2, 5, 16, 17, 33, 40)), 1, _pick(rng, (1, 1, 2, 3))
    if kind == "groups":
        return _pick(rng, (2, 3, 5, 6, 7, 12)), _pick(rng, (1, 2, 3, 5, 8, 16, 24)), _pick(rng, (1, 2, 4, 6, 16, 20))
    if kind == "channels":
        return 1, _pick(rng, (31, 64, 100, 144)), _pick(rng, (17, 48, 130, 200))
    groups = _pick(rng, (1, 1, 1, 2))
    return groups, _pick(rng, (1, 3, 8, 15, 16, 17, 24, 33)), _pick(rng, (1, 4, 8, 15, 16, 18, 40))


def operands(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return x and dy with integer values whose sums are exact; smaller values where more are summed."""
    rng = np.random.default_rng(case.seed)
    depth = int(np.prod(case.dy_shape[2:])) * case.dy_shape[0]
    bound = max(min(int((_LARGEST_SUM / depth) ** 0.5), 16), 1)
    arrays = []
    for shape in (case.x_shape, case.dy_shape):
        values = rng.integers(-bound, bound + 1, shape).astype(DTYPES[case.dtype])
        arrays.append(in_memory(values, case.memory))
    return arrays[0], arrays[1]


def in_memory(values: np.ndarray, memory: Memory) -> np.ndarray:
    """Return the same values with another arrangement of the elements in memory."""
    if memory == "fortran":
        return np.asfortranarray(values)
    if memory == "reversed":
        back = tuple(slice(None, None, -1) for _ in values.shape)
        return np.ascontiguousarray(values[back])[back]
    if memory == "strided":
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), values.dtype)
        wide[..., 1::2] = values
        return wide[..., 1::2]
    return values


def expected(case: Case, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the exact gradient, float64."""
    return oracle_weight_gradient(x, dy, case.weight_shape, case.stride, case.padding, case.dilation, case.groups)


def legal_split_tiling(rng: np.random.Generator, tiling: DwTiling, product: Product) -> DwTiling:
    """Return a random tiling for the same convolution that fits the buffers of ``product``.

    Base blocks, L1 steps, buffer counts, iteration order, core blocks and the number of cores all change, so that every
    branch of the emitter runs: K streamed through L1 or held there, one buffer or two, ragged ends everywhere. One in
    four tilings of a convolution that CANN's base template tiles has its grid of cores.
    """
    c0, core = tiling.channel_size, product.core
    is_base = tiling.tiling_key == Split.BASE and not tiling.tap_by_tap and tiling.w_parts == 1
    if is_base:
        tiling = replace(tiling, dk_merged=int(tiling.dk_merged and rng.integers(2)))
    window, wo = tiling.khw * c0, tiling.load_wo
    base_grid = is_base and not rng.integers(4)
    while True:
        key = _pick(rng, (Split.MK, Split.NK, Split.MN)) if not tiling.dk_merged else tiling.tiling_key or Split.MK
        planes = tiling.n_extent // window
        single_m, single_n, single_k = tiling.m_extent, tiling.n_extent, align_up(tiling.load_pixels, c0)
        if key in (Split.MK, Split.MN):
            single_m = 16 * int(rng.integers(1, tiling.m_extent // 16 + 1))
        if key in (Split.NK, Split.MN) and not tiling.dk_merged:
            single_n = window * int(rng.integers(1, planes + 1))
        if key in (Split.MK, Split.NK):
            single_k = wo * int(rng.integers(1, tiling.load_pixels // wo + 1))
        base_m = 16 * int(rng.integers(1, ceil_div(single_m, 16) + 1))
        base_n = 16 * int(rng.integers(1, ceil_div(single_n, 16) + 1))
        base_k = c0 * int(rng.integers(1, min(ceil_div(single_k, c0), 12) + 1))
        k_iterations = ceil_div(single_k, base_k)
        step_m = int(rng.integers(1, ceil_div(single_m, base_m) + 1))
        step_n = int(rng.integers(1, ceil_div(single_n, base_n) + 1))
        step_a, step_b = _steps(rng, k_iterations)
        made = replace(
            tiling,
            tiling_key=int(key),
            single_core_m=single_m,
            single_core_n=single_n,
            single_core_k=single_k,
            base_m=base_m,
            base_n=base_n,
            base_k=base_k,
            step_m=step_m,
            step_n=step_n,
            step_ka=step_a,
            step_kb=step_b,
            al1_pbuffer=_pick(rng, (1, 2)),
            bl1_pbuffer=_pick(rng, (1, 2)),
            cl0_pbuffer=_pick(rng, (1, 2)),
            iterate_order=_pick(rng, (0, 1)),
        )
        made = replace(made, bl1_bound=_x_elements(made))
        if base_grid:
            made = _base_grid(rng, made, product.cube_core_count)
            if _split_fits(made, core) and made.block_dim <= product.cube_core_count:
                return made
            continue
        blocks = made.m_count * made.n_count * made.k_count * made.batch_items * made.group * made.dk_count
        blocks *= made.taps_apart
        made = replace(made, used_core_num=int(rng.integers(1, min(blocks, product.cube_core_count) + 1)))
        if _split_fits(made, core):
            return made


def legal_stream_k_tiling(rng: np.random.Generator, tiling: DwTiling, product: Product) -> DwTiling:
    """Return a random tiling whose additions have one order (key 4); cores share blocks of the last round if they can.

    More cores may share one than there are batch items or rows of y.
    """
    while True:
        made = legal_split_tiling(rng, replace(tiling, dk_merged=0), product)
        if made.tiling_key != Split.MN:
            continue
        blocks = made.group * made.dk_count * made.taps_apart * made.m_count * made.n_count
        used = int(rng.integers(1, product.cube_core_count + 1))
        kind, sharers, tail = int(StreamK.NONE), 0, blocks % used
        if tail and used // tail > 1:
            kind = int(_pick(rng, tuple(StreamK)))
            sharers = int(rng.integers(2, used // tail + 1)) if kind else 0
        elif used > blocks:
            used = blocks
        return replace(
            made, tiling_key=int(Split.MN_STREAM_K), used_core_num=used, block_dim=used, stream_k_type=kind,
            core_stream_k=sharers,
        )  # fmt: skip


def _base_grid(rng: np.random.Generator, tiling: DwTiling, cores: int) -> DwTiling:
    """Return the tiling with its block as that of a core of key 0, and random shares of the groups, items and taps."""
    t = tiling
    group, items, taps = (int(rng.integers(1, count + 1)) for count in (t.group, t.batch * t.dout, t.dk_count))
    if ceil_div(t.group, group) * ceil_div(t.batch * t.dout, items) * ceil_div(t.dk_count, taps) > cores // 2:
        group, items, taps = t.group, t.batch * t.dout, t.dk_count
    dims: dict[str, Any] = {
        "group_dim": ceil_div(t.group, group), "batch_dim": ceil_div(t.batch * t.dout, items),
        "dk_dim": ceil_div(t.dk_count, taps), "m_dim": t.m_count, "n_dim": t.n_count, "k_dim": t.k_count,
    }  # fmt: skip
    return replace(
        t, **dims, tiling_key=int(Split.BASE), block_dim=prod(dims.values()), single_core_group=group,
        single_core_batch=items, single_core_dk=taps, single_core_cout=t.single_core_m,
        single_core_cin=t.single_core_n // t.khw, single_core_ho=ceil_div(t.single_core_k, t.wo),
        used_core_num=0, single_core_m=0, single_core_n=0, single_core_k=0,
    )  # fmt: skip


def _steps(rng: np.random.Generator, k_iterations: int) -> tuple[int, int]:
    """Return step_ka and step_kb: one is a multiple of the other, as the published tilings have it."""
    small = int(rng.integers(1, k_iterations + 1))
    large = small * int(rng.integers(1, ceil_div(k_iterations, small) + 1))
    return (small, large) if rng.integers(2) else (large, small)


def _x_elements(tiling: DwTiling) -> int:
    """Return the elements of x that the largest L1 block of ``tiling`` holds: every K step is looked at."""
    step_pixels = tiling.step_kb * tiling.base_k
    blocks = tiling.step_n * tiling.base_n // tiling.channel_size
    planes = min(ceil_div(blocks, tiling.khw) + 1, tiling.n_extent // (tiling.khw * tiling.channel_size))
    if tiling.tap_by_tap:
        return planes * min(step_pixels, tiling.load_pixels) * tiling.channel_size
    most = 0
    for wo in {tiling.load_wo, tiling.wo // tiling.w_parts}:
        pixels = min(ceil_div(tiling.single_core_k, tiling.load_wo), tiling.ho) * wo
        for first in range(0, pixels, step_pixels):
            last = min(first + step_pixels, pixels) - 1
            rows = last // wo - first // wo + 1
            most = max(most, rows)
    most += 1  # the published rule counts one row more at times
    rows = min((most - 1) * tiling.stride_h + (tiling.hk - 1) * tiling.dilation_h + 1, tiling.hi)
    columns = (tiling.load_wo - 1) * tiling.stride_w + (tiling.wk - 1) * tiling.dilation_w + 1
    return planes * rows * (min(columns, tiling.wi) if tiling.w_parts > 1 else tiling.wi) * tiling.channel_size


def _split_fits(tiling: DwTiling, core: Any) -> bool:
    item = tiling.element_bytes
    padded_k = align_up(tiling.base_k, 16)
    l1 = tiling.al1_pbuffer * tiling.step_m * tiling.base_m * tiling.step_ka * tiling.base_k
    l1 += tiling.bl1_pbuffer * tiling.bl1_bound
    return bool(
        2 * tiling.base_m * padded_k * item <= core.l0a_bytes
        and 2 * tiling.base_n * padded_k * item <= core.l0b_bytes
        and tiling.cl0_pbuffer * tiling.base_m * tiling.base_n * 4 <= core.l0c_bytes
        and l1 * item <= core.l1_bytes
    )


def legal_unified_tiling(
    rng: np.random.Generator, tiling: UnifiedTiling, geometry: ConvGeometry, product: Product
) -> UnifiedTiling:
    """Return a random tiling for the same convolution that fits the buffers of ``product`` (910, 310P)."""
    core = product.core
    window = 1 if tiling.tap_by_tap else geometry.kh * geometry.kw
    pixels = tiling.pixels
    if tiling.w_parts > 1:
        pixels = geometry.ho * ceil_div(geometry.wo, tiling.w_parts)
    while True:
        base_m = 16 * int(rng.integers(1, min(tiling.m_extent // 16, 12) + 1))
        base_n = 16 * int(rng.integers(1, min(tiling.n_extent // 16, 24) + 1))
        base_k = 16 * int(rng.integers(1, min(ceil_div(pixels, 16), 8) + 1))
        step_k = int(rng.integers(1, ceil_div(pixels, base_k) + 1))
        buffers_a, buffers_b = _pick(rng, (1, 2)), _pick(rng, (1, 2))
        rows, columns = _unified_rows(geometry, tiling, step_k * base_k)
        planes = min(tiling.cin1_g, ceil_div(base_n // 16, window) + 1)
        a_bytes, b_bytes = step_k * base_k * base_m * 2, rows * columns * planes * 32
        m_count, n_count = ceil_div(tiling.m_extent, base_m), ceil_div(tiling.n_extent, base_n)
        parts = int(rng.integers(1, tiling.batch_dout + 1))
        taps = geometry.kh * geometry.kw // window
        tasks = parts * tiling.group * tiling.kd * taps * m_count * n_count
        fits = (
            2 * base_m * base_k * 2 <= core.l0a_bytes
            and 2 * base_n * base_k * 2 <= core.l0b_bytes
            and 2 * base_m * base_n * 4 <= core.l0c_bytes
            and 2 * base_m * 64 <= core.ub_bytes
            and buffers_a * a_bytes + buffers_b * b_bytes <= core.l1_bytes
        )
        if fits:
            return replace(
                tiling,
                base_m=base_m,
                base_n=base_n,
                base_k=base_k,
                step_k=step_k,
                al1_pbuffer=buffers_a,
                bl1_pbuffer=buffers_b,
                a1_bytes=a_bytes,
                b1_bytes=b_bytes,
                b1_rows=rows,
                b1_channels=planes,
                m_count=m_count,
                n_count=n_count,
                batch_parts=parts,
                task_count=tasks,
                block_dim=int(rng.integers(1, min(tasks, product.cube_core_count) + 1)),
            )


def _unified_rows(geometry: ConvGeometry, tiling: UnifiedTiling, step_pixels: int) -> tuple[int, int]:
    """Return the most rows of x that pixels of one L1 buffer read, and the columns of x."""
    if tiling.tap_by_tap:
        return min(step_pixels, geometry.pixels), 1
    most, columns = 1, geometry.wi
    for wo in {ceil_div(tiling.wo, tiling.w_parts), tiling.wo // tiling.w_parts}:
        for first in range(0, geometry.ho * wo, step_pixels):
            last = min(first + step_pixels, geometry.ho * wo) - 1
            most = max(most, (last // wo - first // wo) * geometry.stride[1] + geometry.kernel_height)
    if tiling.w_parts > 1:
        columns = min((ceil_div(tiling.wo, tiling.w_parts) - 1) * geometry.stride[2] + geometry.kernel_width, columns)
    return min(most, geometry.hi), columns


def with_tiling(plan: WeightGradientPlan, tiling: DwTiling | UnifiedTiling) -> WeightGradientPlan:
    """Return ``plan`` with other launches, for ``tiling``, on the same global memory."""
    tensors = (plan.x, plan.dy, plan.dw)
    if isinstance(tiling, DwTiling):
        gm, slots = plan.gm, None
        if tiling.slots_bytes:
            gm = GlobalMemory()
            for one in tensors:
                gm.add(one.name, one.byte_count, initialised=one.initialised, data=one.data, address=one.address)
            slots = gm.add("slots", tiling.slots_bytes, initialised=False, data=FP32.data)
        params = split_params(tiling, plan.product, *tensors, plan.compute_dtype, slots)
        launches = split_launches(params, gm, plan.product, stream_k=tiling.tiling_key == Split.MN_STREAM_K)
        return replace(plan, gm=gm, tiling=tiling, launches=launches)
    params = unified_params(tiling, plan.geometry, plan.product, *tensors)
    launches = unified_launches(params, plan.gm, plan.dw, plan.product)
    return replace(plan, tiling=tiling, launches=launches)


def random_deterministic_tiling(rng: np.random.Generator, plan: WeightGradientPlan) -> WeightGradientPlan:
    """Return ``plan`` with a random legal tiling whose additions have one order, perhaps of cut maps."""
    tiling = _cut_at_random(rng, plan)
    if isinstance(tiling, DwTiling):
        return with_tiling(plan, legal_stream_k_tiling(rng, tiling, plan.product))
    return with_tiling(plan, single_writer(legal_unified_tiling(rng, tiling, plan.geometry, plan.product)))


def random_tiling(rng: np.random.Generator, plan: WeightGradientPlan, *, cut: bool = False) -> WeightGradientPlan:
    """Return ``plan`` with a random legal tiling; ``cut``: perhaps in parts of the columns, or tap by tap."""
    tiling = plan.tiling
    if cut:
        tiling = _cut_at_random(rng, plan)
    if isinstance(tiling, DwTiling):
        return with_tiling(plan, legal_split_tiling(rng, tiling, plan.product))
    return with_tiling(plan, legal_unified_tiling(rng, tiling, plan.geometry, plan.product))


def _cut_at_random(rng: np.random.Generator, plan: WeightGradientPlan) -> DwTiling | UnifiedTiling:
    """Return the tiling as it is, in parts of the columns, or tap by tap; only what a legal tiling keeps is right."""
    tiling, g = plan.tiling, plan.geometry
    kind = int(rng.integers(3))
    if kind == 0 or tiling.w_parts > 1 or tiling.tap_by_tap:
        return tiling
    # image-to-column of 310P and 910 makes no single column of several rows
    least = 2 if plan.product.core.load3d_cannot_make_width_one and g.ho > 1 else 1
    parts = int(rng.integers(1, max(g.wo // least, 1) + 1)) if kind == 1 else 1
    if isinstance(tiling, DwTiling):
        return replace(tiling, w_parts=parts, tap_by_tap=kind - 1, dk_merged=0, tiling_key=int(Split.MK))
    if kind == 1:
        return replace(tiling, w_parts=parts, batch_dout=g.n * g.do * parts)
    window = g.kh * g.kw
    return replace(
        tiling, tap_by_tap=1, two_column=0, wo=g.wo, stride_w=g.stride[2], pad_right=g.pad[5], pixels=g.pixels,
        n_extent=tiling.n_extent // window, tail_n=tiling.tail_n // window,
    )  # fmt: skip


def run_plan(plan: WeightGradientPlan, x: np.ndarray, dy: np.ndarray, options: ExecuteOptions) -> np.ndarray:
    """Execute ``plan`` and return the gradient, float32[weight shape], before any rounding to 16 bits.

    Parameters
    ----------
    plan : WeightGradientPlan
        Tensors and launches.
    x, dy : array
        Operands in N C spatial order.
    options : ExecuteOptions
        How.

    Notes
    -----
    The memory of dw is filled with NaN first: what the launches do not clear shows.
    """
    plan.gm.view(plan.dw, np.uint32, (plan.dw_layout.storage_elems,)).fill(_NAN_WORD)
    is_saturating = (options.overflow or plan.product.overflow_mode) == "saturate"
    overflow: Overflow = "saturate" if is_saturating else "inf_nan"
    stored_as = get_dtype(plan.compute_dtype).stored_as
    for values, layout, tensor in ((x, plan.x_layout, plan.x), (dy, plan.dy_layout, plan.dy)):
        stored = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(layout.logical_shape)
        if stored.dtype != DTYPES[stored_as]:
            stored = cast(cast(stored, "fp32"), stored_as, overflow=overflow)
        words = np.uint32 if stored_as == "fp32" else np.uint16
        blocked_from_activation(stored, layout, plan.gm.view(tensor, words, (layout.storage_elems,)))
    for launch in plan.launches:
        execute(launch, plan.product, options)
    storage = plan.gm.view(plan.dw, np.float32, (plan.dw_layout.storage_elems,))
    return weight_from_fractal(storage, plan.dw_layout)


@default_fenv
def plan_weight_gradient(
    geometry: ConvGeometry, product: Product, compute_dtype: str, deterministic: bool = False
) -> WeightGradientPlan:
    """Return the kernel of a weight gradient that multiplies ``compute_dtype``, on tensors of its own.

    Raises
    ------
    OperatorError
        161002 if the product's Cube does not multiply ``compute_dtype``.
    """
    layouts = WeightGradientLayouts.of(geometry, compute_dtype)
    gm, item, data = GlobalMemory(), get_dtype(compute_dtype).item_bytes, get_dtype(compute_dtype).data
    x = gm.add("x", layouts.x.storage_bytes(item), initialised=True, data=data)
    dy = gm.add("dy", layouts.dy.storage_bytes(item), initialised=True, data=data)
    dw = gm.add("dw", layouts.dw.storage_elems * 4, initialised=False, data=FP32.data)
    kernel = weight_gradient_kernel(geometry, product, compute_dtype, gm, x, dy, dw, deterministic)
    return WeightGradientPlan(
        geometry=geometry, product=product, compute_dtype=compute_dtype, tiling=kernel.tiling, x_layout=layouts.x,
        dy_layout=layouts.dy, dw_layout=layouts.dw, gm=gm, x=x, dy=dy, dw=dw, launches=kernel.launches,
    )  # fmt: skip


def plan_of(case: Case, deterministic: bool = False) -> WeightGradientPlan:
    """Return the kernel of ``case`` on tensors of its own, in the type that the operator multiplies.

    Raises
    ------
    OperatorError
        If the operator refuses the call.
    """
    dy, x, weight = (described(shape, case.dtype) for shape in (case.dy_shape, case.x_shape, case.weight_shape))
    resolved = plan_convolution_backward(
        dy, x, weight, output_mask=(False, True, False), cube_math_type=case.cube_math_type, product=case.series,
        **case.attributes,
    ).resolved  # fmt: skip
    return plan_weight_gradient(case.geometry, resolved.product, resolved.compute_dtype, deterministic)


def gradient_of(x: np.ndarray, dy: np.ndarray, weight_shape: Sequence[int], **more: Any) -> ConvolutionBackward:
    """Return the result of `ops.convolution_backward` with the gradient of the weight alone.

    Parameters
    ----------
    x, dy, weight_shape
        Input, gradient of the output, shape of the weight, which has the dtype of ``x``.
    **more
        Of the call; stride and dilation are 1 and padding is 0 where not given.
    """
    given = {"stride": 1, "padding": 0, "dilation": 1, "output_mask": (False, True, False), **more}
    return convolution_backward(dy, x, np.zeros(weight_shape, x.dtype), **given)


def random_options(rng: np.random.Generator, plan: WeightGradientPlan) -> ExecuteOptions:
    """Draw threads, chunk size, order of the rows and poisoning: none of them may change a bit."""
    orders: tuple[Literal["program", "late"] | int, ...] = ("program", "program", "late", int(rng.integers(1000)))
    return ExecuteOptions(
        accumulation=default_accumulation(plan.product, plan.compute_dtype),
        threads=_pick(rng, (1, 1, 2, 3)),
        chunk_rows=_pick(rng, (1, 64, 4096)),
        order=orders[int(rng.integers(4))],
        poison=bool(rng.integers(2)),
    )

"""Random input gradients and forward convolutions for unified cores, random legal tilings of them, and running them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.isa.footprint import empty_runs, reach
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input import tiling_unified as unified
from ops.conv3d_backprop_input.operands import Operands
from ops.conv3d_backprop_input.plan_unified import kernel_of, unified_forward, unified_input_gradient
from ops.conv3d_backprop_input.problem_unified import WindowProblem, forward_problem, input_gradient_problem
from tests.oracles import window_kernels
from tests.oracles.series import UNIFIED

SERIES = UNIFIED
_GARBAGE = 0x7F77  # a NaN that no kernel makes


@dataclass(frozen=True)
class Planned:
    """A convolution in a global memory of its own."""

    geometry: ConvGeometry
    forward: bool
    product: object
    problem: WindowProblem
    tiling: unified.UnifiedTiling
    launches: tuple
    gm: GlobalMemory
    tensors: tuple

    def with_tiling(self, tiling):
        launches = kernel_of(self.problem, tiling, self.product, Operands(self.gm, *self.tensors)).launches
        return replace(self, tiling=tiling, launches=launches)

    @property
    def x_shape(self):
        g = self.geometry
        return g.n, g.cin, g.hi, g.wi

    @property
    def y_shape(self):
        g = self.geometry
        return g.n, g.cout, g.ho, g.wo

    @property
    def weight_shape(self):
        g = self.geometry
        return g.cout, g.cin // g.groups, g.kh, g.kw

    @property
    def shapes(self):
        """Of the source and of the result."""
        return (self.x_shape, self.y_shape) if self.forward else (self.y_shape, self.x_shape)

    @property
    def attributes(self):
        """Stride, padding (up, down, left, right), dilation and groups, in the order of the oracles."""
        g = self.geometry
        return g.stride[1:], g.pad[2:], g.dilation[1:], g.groups


def with_l1(series, l1_bytes):
    """A product with another L1: what fits must not depend on anything else of it."""
    product = get_product(series)
    return replace(product, core=replace(product.core, l1_bytes=l1_bytes))


def assert_inside(rows, plan):
    """Hold every access to global memory to the tensor it names."""
    ends = np.zeros((len(rows), len(Space), 2), np.int64)
    reach(rows, empty_runs(), ends)
    first, end = ends[:, Space.GM].T
    table = plan.gm.table()
    at = np.clip(rows["tensor"].astype(np.int64), 0, len(table) - 1)
    low, size = table[at, 0], table[at, 1]
    inside = (end == 0) | ((rows["tensor"] == at) & (first >= low) & (end <= low + size))
    assert inside.all(), (plan.geometry, plan.tiling, rows[~inside][:1])


def made(size, kernel, *, n=1, cin=1, cout=1, groups=1, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1)):
    """Return the 2D geometry with the output extents these give."""
    out = [
        (size[a] + pad[2 * a] + pad[2 * a + 1] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(2)
    ]
    return ConvGeometry(
        n=n, cin=cin, cout=cout, groups=groups, hi=size[0], wi=size[1], ho=out[0], wo=out[1], kh=kernel[0],
        kw=kernel[1], stride=(1, *stride), pad=(0, 0, *pad), dilation=(1, *dilation), spatial_rank=2,
    )  # fmt: skip


def random_geometry(rng):
    """Draw a small convolution: every feature alone and together with others."""
    while True:
        size = [int(extent) for extent in rng.integers(1, 14, 2)]
        kernel = [int(extent) for extent in rng.choice((1, 1, 2, 3, 3, 5), 2)]
        stride = [int(step) for step in rng.choice((1, 1, 2, 3, 4), 2)]
        dilation = [int(step) for step in rng.choice((1, 1, 2, 3), 2)]
        pad = [int(extent) for extent in rng.integers(0, 4, 4)]
        kind = int(rng.integers(12))
        if kind == 0:
            kernel, pad = [1, 1], [0] * 4
        elif kind == 1:
            size[1] = 1
        elif kind == 2:
            size, kernel[0], pad[:2] = [1, int(rng.integers(1, 60))], 1, [0, 0]
        elif kind == 3:
            pad = [int(extent) for extent in rng.integers(0, 9, 4)]
        elif kind == 4:
            pad = [0] * 4
        elif kind == 5:
            # more dilation, padding behind it or stride than the image-to-column load has
            axis = int(rng.integers(2))
            kernel[axis], dilation[axis] = 2, int(rng.integers(200, 400))
            pad[2 * axis : 2 * axis + 2] = [int(extent) for extent in rng.integers(150, 400, 2)]
        elif kind == 6:
            axis = int(rng.integers(2))
            size[axis], stride[axis] = int(rng.integers(60, 160)), int(rng.integers(40, 90))
        if any(size[a] + pad[2 * a] + pad[2 * a + 1] <= dilation[a] * (kernel[a] - 1) for a in range(2)):
            continue
        groups = int(rng.choice((1, 1, 1, 2, 3, 5)))
        cin, cout = int(rng.choice((1, 3, 8, 16, 17, 33))), int(rng.choice((1, 4, 16, 18, 40)))
        if kind == 7:
            groups, cin, cout = int(rng.choice((17, 33, 40))), int(rng.integers(1, 3)), int(rng.integers(1, 3))
        return made(
            size, kernel, n=int(rng.integers(1, 4)), cin=cin * groups, cout=cout * groups, groups=groups,
            stride=stride, pad=pad, dilation=dilation,
        )  # fmt: skip


def planned(geometry, series, *, forward, product=None):
    """Plan on a new global memory."""
    product = product or get_product(series)
    g = geometry
    make = forward_problem if forward else input_gradient_problem
    problem = make(g, product)
    gm = GlobalMemory()
    tensors = []
    result_pixels = problem.result[0] * problem.result[1]
    weight_elems = problem.groups * problem.weight_rows * problem.taps * 16
    weight_elems *= problem.k_planes if forward else problem.n_planes
    for name, elems in (
        ("source", g.n * problem.source_planes * problem.source[0] * problem.source[1] * 16),
        ("weight", weight_elems),
        ("result", g.n * problem.result_planes * result_pixels * 16),
    ):
        tensors.append(gm.add(name, elems * 2, initialised=name != "result", data=Data.FP16))
    plan = unified_forward if forward else unified_input_gradient
    kernel = plan(g, product, Operands(gm, *tensors))
    assert kernel.private_bytes == 0
    return Planned(
        geometry=g, forward=forward, product=product, problem=problem, tiling=kernel.tiling,
        launches=kernel.launches, gm=gm, tensors=tuple(tensors),
    )  # fmt: skip


def _random_step(rng, plane, units):
    """Draw the L0 steps of an L1 step: whole channel blocks, or a part of one, even or not."""
    if plane > 1 and rng.integers(2):
        return int(rng.integers(1, plane))
    return plane * int(rng.integers(1, units + 1))


def random_tiling(rng, plan):
    """Return ``plan`` with a random tiling that its buffers hold: other blocks, steps, ways, buffers, cores, slices."""
    q, core = plan.problem, plan.product.core
    source, by_row, two_column = unified._way(q, core)
    kinds = [(source, by_row, two_column)]
    if source in (unified.Source.MAP, unified.Source.DILATED):
        kinds += [(source, True, False), (unified.Source.GATHERED, False, False)]
    elif source is unified.Source.PIXELS:
        kinds.append((unified.Source.GATHERED, False, False))
    source, by_row, two_column = kinds[int(rng.integers(len(kinds)))]
    while True:
        blocks = unified._Blocks(q=q, source=source, by_row=by_row, two_column=two_column, base_m=16, base_n=16)
        most_m = -(-(q.result[1] if by_row else blocks.m_total) // 16)
        blocks.base_m = 16 * int(rng.integers(1, min(most_m, 16) + 1))
        blocks.base_n = 16 * int(rng.integers(1, min(q.n_planes, 16) + 1))
        blocks.base_k = int(rng.choice(blocks.base_ks(core)))
        units = -(-q.k_planes // blocks.planes_per_step)
        blocks.ka, blocks.kb = (_random_step(rng, blocks.steps_per_plane, units) for _ in range(2))
        blocks.al1, blocks.bl1 = (int(rng.integers(1, 3)) for _ in range(2))
        most_ka = blocks.most_ka if blocks.ka >= blocks.steps_per_plane else blocks.most_cut_ka
        if blocks.l1_bytes <= core.l1_bytes and (source >= 2 or blocks.ka <= most_ka):
            break
    tiling = unified._finished(q, plan.product, blocks)
    loops = (q.batch, tiling.m_count, q.groups, tiling.n_count)
    dims = [1, 1, 1, 1]
    for axis in rng.permutation(4).tolist():
        free = plan.product.cube_core_count // (dims[0] * dims[1] * dims[2] * dims[3])
        dims[axis] = int(rng.integers(1, min(loops[axis], free) + 1))
    tiling = replace(
        tiling, cl0_pbuffer=int(rng.integers(1, tiling.cl0_pbuffer + 1)), batch_dim=dims[0], m_dim=dims[1],
        group_dim=dims[2], n_dim=dims[3], block_dim=dims[0] * dims[1] * dims[2] * dims[3],
        slice_m=16 * int(rng.integers(1, tiling.slice_m // 16 + 1)), slice_n=int(rng.integers(1, tiling.slice_n + 1)),
        ub_rows=int(rng.integers(min(tiling.ub_rows, 1), tiling.ub_rows + 1)),
        ub_columns=int(rng.integers(min(tiling.ub_columns, 1), tiling.ub_columns + 1)),
    )  # fmt: skip
    if tiling.ub_columns < tiling.a1_columns:
        tiling = replace(tiling, ub_rows=min(tiling.ub_rows, 1))
    return plan.with_tiling(tiling)


def integers(rng, plan):
    """Return source and weight with small integers: every sum is exact in float16."""
    bound = 3 if plan.problem.k_planes * plan.problem.taps < 12 else 1
    return tuple(
        rng.integers(-bound, bound + 1, shape).astype(np.float16) for shape in (plan.shapes[0], plan.weight_shape)
    )


def run(plan, source, weight, options=None):
    """Execute over memory filled with NaN; return the result (n, c, h, w) and its padding lanes."""
    groups = plan.geometry.groups
    packed = window_kernels.pack_activation(source), window_kernels.pack_weight(weight, groups)
    for tensor, values in zip(plan.tensors, packed, strict=False):
        plan.gm.view(tensor, np.float16, values.shape)[...] = values
    n, channels, height, width = plan.shapes[1]
    storage = plan.gm.view(plan.tensors[2], np.float16, (n, -(-channels // 16), height, width, 16))
    storage.view(np.uint16).fill(_GARBAGE)
    accumulation = default_accumulation(plan.product, "fp16")
    for launch in plan.launches:
        execute(launch, plan.product, options or ExecuteOptions(accumulation=accumulation, poison=True))
    lanes = window_kernels.unpack_activation(storage, storage.shape[1] * 16)[:, channels:]
    return window_kernels.unpack_activation(storage, channels), lanes

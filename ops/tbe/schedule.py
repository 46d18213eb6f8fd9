"""The schedule stage: from checked parameters to tiling and launches, with the limit of L1.

Source: canndev ``auto_schedule/python/tbe/dsl/static_schedule/conv3d_backprop_filter_schedule.py`` (2022) for the L1
minimum and the loop order; the tiling is our own, because the vendor's comes from a repository of tuned shapes and a
closed cost model (`ops.conv3d_backprop_filter.tiling_unified`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import OperatorError, ShapeError
from npu_sim.isa.op import Data
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.report.explain import Explanation, ExplanationTable, current_recorder
from npu_sim.report.record import counted
from npu_sim.units import KIB, ceil_div
from ops.common.geometry import ConvGeometry, MergedGroups
from ops.common.records import check_addressable
from ops.conv3d_backprop_filter.params import unified_params
from ops.conv3d_backprop_filter.plan import unified_launches
from ops.conv3d_backprop_filter.tiling_unified import (
    UnifiedTiling,
    needs_two_columns,
    unified_tiling,
    whole_map_tiling,
)
from ops.tbe.errors import STATUS_SCHEDULE, TbeError
from ops.tbe.rules import C0, Parameters

Case = Literal["load2d", "two-column", "load3d", "tap by tap"]

_PIXEL_BYTES = C0 * 2
_FRACTAL_BYTES = C0 * _PIXEL_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One tensor of the compute graph.

    Attributes
    ----------
    name : str
        As the vendor's compute graph names it.
    buffer : str
        Where it lives; "view" is the image-to-column view of L1 that is never stored.
    shape : tuple of int
        Of the whole tensor, before tiling.
    """

    name: str
    buffer: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TbePlan:
    """What a result tensor runs; ``print(plan)`` shows it.

    Attributes
    ----------
    parameters : Parameters
        The checked call.
    product : Product
        Where it runs.
    case : {"load2d", "two-column", "load3d", "tap by tap"}
        How L0B is filled: by fractal loads (everything is one pixel), by image-to-column over a widened output (one
        column and several rows), by image-to-column, or by image-to-column over the pixels of one tap of the window.
    geometry : ConvGeometry
        The convolution with whole channel blocks and no groups; ``tiling`` has the groups.
    tiling : UnifiedTiling
        Blocks, buffers and cores.
    stages : tuple of Stage
        The tensors of the compute graph.
    gm : GlobalMemory
        The launches' tensors.
    x, dy, dw : GmTensor
        Where they lie.
    launches : tuple of Launch
        MemSet of the result, then the kernel; for the engines timeline and hazards too.
    """

    parameters: Parameters
    product: Product
    case: Case
    geometry: ConvGeometry
    tiling: UnifiedTiling
    stages: tuple[Stage, ...]
    gm: GlobalMemory
    x: GmTensor
    dy: GmTensor
    dw: GmTensor
    launches: tuple[Launch, ...]

    def execute(
        self, x: npt.NDArray[np.float16], dy: npt.NDArray[np.float16], options: ExecuteOptions
    ) -> npt.NDArray[np.float32]:
        """Run the launches on tensors.

        Parameters
        ----------
        x, dy : float16, the shapes of the call, any strides
            Operands; not modified.
        options : ExecuteOptions
            How.

        Returns
        -------
        float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
            A new array.
        """
        p = self.parameters
        for tensor, source, shape in ((self.x, x, p.x_shape), (self.dy, dy, p.dy_shape)):
            np.copyto(self.gm.view(tensor, np.float16, shape), source)
        for launch in self.launches:
            execute(launch, self.product, options)
        recorder = current_recorder()
        if recorder is not None:
            recorder.add(self.explain)
        return self.gm.view(self.dw, np.float32, p.result_shape).copy()

    def explain(self) -> Explanation:
        """Return what runs: the tensors of the compute graph, and the launches."""
        p = self.parameters
        shapes = {"x": p.x_shape, "out_backprop": p.dy_shape, "result": p.result_shape}
        return Explanation(
            title="conv3d_backprop_filter",
            call=", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items()),
            product=self.product,
            facts={"schedule": {"L0B filled by": self.case}},
            tables=(
                ExplanationTable(
                    title="compute graph",
                    columns=("tensor", "buffer", "shape"),
                    rows=tuple((stage.name, stage.buffer, str(stage.shape)) for stage in self.stages),
                ),
            ),
            launches=self.launches,
            launch_works=("dw", "x, out_backprop -> dw"),
        )

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def l1_minimum_bytes(p: Parameters, product: Product) -> int:
    """Return the bytes of L1 that the static schedule of 2022 asks for at least.

    One fractal of dy, and the rows of x that 16 pixels of y can need, of one channel block. The dilation of the kernel
    is not counted there, nor that x may have fewer rows.
    """
    _, kernel_h, _ = p.kernel
    stride_h = p.strides[1]
    wo = 2 if needs_two_columns(_geometry(p), product) else p.dy_shape[4]
    if wo >= C0:
        rows = kernel_h if wo % C0 == 0 else kernel_h + stride_h
    else:
        lines = ceil_div(C0, wo)
        rows = kernel_h + (lines - 1 if C0 % wo == 0 else lines) * stride_h
    return _FRACTAL_BYTES + rows * p.x_shape[4] * _PIXEL_BYTES


def schedule(p: Parameters, product: Product) -> TbePlan:
    """Choose the tiling and build the launches; touches no tensor data.

    Parameters
    ----------
    p : Parameters
        Of `rules.Checks`.
    product : Product
        One with unified cores.

    Returns
    -------
    TbePlan
        Ready to run.

    Raises
    ------
    TbeError
        E60011 if L1 cannot hold the least the schedule needs (not in CANN 8.1.RC1), if a pad is negative, or if an
        extent is more than the tiling counts; E60108 if ``cout_g`` is not a multiple of 16.

    Notes
    -----
    Only the first of these is the vendor schedule's own check. What else L1 or load3d do not hold is computed in parts,
    or tap by tap (`unified_tiling`); the vendor's schedule lets it through to the hardware.
    """
    try:
        return _plan(p, product)
    except (OperatorError, ShapeError) as error:
        raise TbeError("E60011", str(error), {"attr_name": "shape"}, STATUS_SCHEDULE) from error


def _plan(p: Parameters, product: Product) -> TbePlan:
    _check_pads(p, product)
    geometry = _geometry(p)
    if p.filter_layout == "NDCHW":
        _check_at_most(p, product, "al1_and_bl1_byte", l1_minimum_bytes(p, product), product.core.l1_bytes)
    if p.cout_g % C0:
        raise _refusal(p, product, "E60108", f"cout_g of group_dict must be a multiple of {C0}, not {p.cout_g}")
    merged = MergedGroups(mag=1, real_g=p.real_g, cin1_g=p.cin1_g, cout_g=p.cout_g)
    if p.load_2d:
        tiling = whole_map_tiling(geometry, product, merged, load_2d=True)
    else:
        tiling = unified_tiling(geometry, product, merged=merged)
    gm = GlobalMemory()
    x = gm.add("x", math.prod(p.x_shape) * 2, initialised=True, data=Data.FP16)
    dy = gm.add("dy", math.prod(p.dy_shape) * 2, initialised=True, data=Data.FP16)
    dw = gm.add("dw", math.prod(p.result_shape) * 4, initialised=False, data=Data.FP32, is_output=True)
    check_addressable(gm)
    params = unified_params(tiling, geometry, product, x, dy, dw)
    return TbePlan(
        parameters=p, product=product, case=_case(tiling), geometry=geometry, tiling=tiling, stages=_stages(p, tiling),
        gm=gm, x=x, dy=dy, dw=dw, launches=unified_launches(params, gm, dw, product),
    )  # fmt: skip


def _refusal(p: Parameters, product: Product, code: str, message: str, **fields: str) -> TbeError:
    where = f"schedule of {p.kernel_name}, {product.name}"
    return TbeError(code, f"{message} ({where})", fields, STATUS_SCHEDULE)


def _check_at_most(p: Parameters, product: Product, name: str, value: int, most: int) -> None:
    if value > most:
        message = f"{name} must be at most {most}, not {value}"
        raise _refusal(p, product, "E60011", message, attr_name=name, range=f"(,{most}]", value=str(value))


def _check_pads(p: Parameters, product: Product) -> None:
    """Refuse what no padding is."""
    for name, pad in zip(("front", "back", "top", "bottom", "left", "right"), p.pads, strict=True):
        if pad < 0:
            message = f"pad {name} must be at least 0, not {pad}"
            raise _refusal(p, product, "E60011", message, attr_name="pad", range="[0,255]", value=str(pad))


def _case(tiling: UnifiedTiling) -> Case:
    if tiling.tap_by_tap:
        return "tap by tap"
    return "load2d" if tiling.load_2d else "two-column" if tiling.two_column else "load3d"


def _geometry(p: Parameters) -> ConvGeometry:
    n, di, c1, hi, wi, _ = p.x_shape
    _, do, c1_dy, ho, wo, _ = p.dy_shape
    kd, kh, kw = p.kernel
    return ConvGeometry(
        n=n, cin=c1 * C0, cout=c1_dy * C0, di=di, hi=hi, wi=wi, do=do, ho=ho, wo=wo, kd=kd, kh=kh, kw=kw,
        stride=p.strides, pad=p.pads, dilation=p.dilations,
    )  # fmt: skip


def _stages(p: Parameters, tiling: UnifiedTiling) -> tuple[Stage, ...]:
    """Return the tensors of the compute graph, in the order of the data."""
    n, _, c1, hi, wi, _ = p.x_shape
    do, c1_dy = p.dy_shape[1:3]
    kd, kh, kw = p.kernel
    items, pixels, k1 = n * do, tiling.pixels, ceil_div(tiling.pixels, C0)
    columns = kd * p.cin1_g * kh * kw
    stages = [
        Stage(name="grads_2_matrix", buffer="L1", shape=(items, c1_dy, pixels, C0)),
        Stage(name="grads_2_fractal", buffer="L0A", shape=(p.real_g, items, p.cout_g // C0, k1, C0, C0)),
    ]
    if p.load_2d:
        stages.append(Stage(name="fmap_2_matrix", buffer="L1", shape=(items, kd * c1, hi * wi, C0)))
    else:
        planes = kd * p.cin1_g
        stages.append(Stage(name="fmap_l1", buffer="L1", shape=(items, p.real_g * planes, hi, wi, C0)))
        view = (p.real_g, items, pixels, planes, kh, kw, C0)
        stages.append(Stage(name="fmap_2_col_matrix", buffer="view", shape=view))
    stages += [
        Stage(name="fmap_2_col_fractal", buffer="L0B", shape=(p.real_g, items, k1, columns, C0, C0)),
        Stage(name="dw", buffer="L0C", shape=p.result_shape),
        Stage(name="dw_ubuf", buffer="UB", shape=p.result_shape),
        Stage(name="dw_ddr", buffer="GM", shape=p.result_shape),
    ]
    return tuple(stages)


def _lines(plan: TbePlan) -> list[str]:
    """Return the plan as text: the call, the graph, the blocks, the buffers and the launches."""
    p, t, core = plan.parameters, plan.tiling, plan.product.core
    a0, b0 = (2 * edge * t.base_k * 2 for edge in (t.base_m, t.base_n))
    c0 = 2 * t.base_m * t.base_n * 4
    l1 = t.al1_pbuffer * t.a1_bytes + t.bl1_pbuffer * t.b1_bytes
    used = (("L0A", a0, core.l0a_bytes), ("L0B", b0, core.l0b_bytes), ("L0C", c0, core.l0c_bytes))
    parts = "plain stores" if t.batch_parts == 1 else f"{t.batch_parts} parts of the batch, atomic adds"
    steps = ceil_div(t.pixels, t.step_k * t.base_k)
    taps = counted(t.kd, "depth tap") + (f" x {counted(t.taps_apart, 'window tap')}" if t.tap_by_tap else "")
    columns = f" in {t.w_parts} parts of the columns" if t.w_parts > 1 else ""
    return [
        f"{p.kernel_name} on {plan.product.name}: {plan.case}, {t.origin}",
        f"  x {p.x_shape}, out_backprop {p.dy_shape}, kernel {p.kernel}, strides {p.strides}, pads {p.pads}, "
        f"dilations {p.dilations}",
        *(f"  {stage.name:<18} {stage.buffer:<4} {stage.shape}" for stage in plan.stages),
        f"  block m {t.base_m}, n {t.base_n}, k {t.base_k}; {counted(t.step_k, 'k block')} per L1 buffer, "
        f"{counted(t.al1_pbuffer, 'buffer')} of dy, {t.bl1_pbuffer} of x ({counted(t.b1_rows, 'row')}, "
        f"{counted(t.b1_channels, 'channel block')})",
        "  bytes " + ", ".join(f"{name} {need} of {there}" for name, need, there in (("L1", l1, core.l1_bytes), *used)),
        f"  {counted(t.task_count, 'task')}: {counted(t.group, 'group')} x {taps} x "
        f"{t.m_count} m x {counted(t.n_count, 'n block')}, {parts}; {counted(t.batch_dout, 'batch item')}{columns} of "
        f"{counted(steps, 'L1 step')} ({counted(t.pixels, 'pixel')})",
        *(
            f"  launch {launch.name}: {counted(launch.core_count, 'core')}, at most "
            f"{counted(launch.step_rows, 'row')} a step"
            for launch in plan.launches
        ),
        f"  GM {ceil_div(plan.gm.total_bytes, KIB)} KiB",
    ]

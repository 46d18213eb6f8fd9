"""Weight gradients by the Ascend C class Conv3DBackpropFilter, as studies call it.

The class has one core's work on one group without padding between groups; the loops around it are a driver's. Here one
core does all of it in ascending order: merged groups, batch, output depth, depth taps, blocks of M, N and K.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ops.studies.kinds import Asked, Call, Run, Tensors
from ops.studies.layers import Layer
from ops.studies.tbe_gradient import in_five_axes, in_three_axes, paired

_C0 = 16


def _widened(tensor: np.ndarray, channels: int) -> np.ndarray:
    """Return NCDHW with zeros in channels behind the last."""
    n, c, *spatial = tensor.shape
    return np.concatenate([tensor, np.zeros((n, channels - c, *spatial), tensor.dtype)], axis=1)


def _blocked(tensor: np.ndarray) -> np.ndarray:
    """Return NCDHW elements in the order of NDC1HWC0, flat."""
    from npu_sim.layouts.formats import ActivationLayout
    from npu_sim.layouts.transform import blocked_from_activation

    n, c, d, h, w = tensor.shape
    layout = ActivationLayout(n=n, c=c, d=d, h=h, w=w, c0=_C0)
    return blocked_from_activation(tensor, layout).reshape(-1).view(tensor.dtype)


def _blocks(extent: int, single: int) -> Iterator[tuple[int, int]]:
    for first in range(0, extent, single):
        yield first, min(single, extent - first)


def _drive(made: Any, data: Any, groups: int, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> None:
    """Run every single shape through an initialised object."""
    t, b = data.dwTiling, data.basicBlockTiling
    window, rows, columns = t.hk * t.wk, t.cout1G * _C0, t.cin1G * _C0
    outputs, inputs = t.ho * t.wo, t.hi * t.wi
    # whole rows of the output, at least one
    single_k = max(min(b.singleCoreK, outputs) // t.wo, 1) * t.wo
    for group, batch, plane, tap in np.ndindex(groups, t.batch, t.dout, t.dk):
        depth = plane * t.strideD - t.padFront + tap * t.dilationD
        if not 0 <= depth < t.di:
            continue  # the whole plane lies in the padding
        dy_at = ((batch * t.dout + plane) * groups + group) * rows * outputs
        x_at = ((batch * t.di + depth) * groups + group) * columns * inputs
        dw_at = (group * t.dk + tap) * columns * window * rows
        for m, m_count in _blocks(rows, b.singleCoreM):
            for n, n_count in _blocks(columns * window, b.singleCoreN):
                for k, k_count in _blocks(outputs, single_k):
                    row = k // t.wo
                    first = max(0, row * t.strideH - t.padUp)
                    made.SetGradOutput(dy[dy_at + m * outputs + k * _C0 :])
                    made.SetInput(x[x_at + n // window * inputs + first * t.wi * _C0 :])
                    made.SetSingleShape(m_count, n_count, k_count)
                    made.SetStartPosition(row)
                    while made.Iterate():
                        made.GetTensorC(dw[dw_at + n * rows + m * _C0 :])
                    made.ctx.isFirstIter_ = True
    made.End()


def _run(layer: Layer, tensors: Tensors, asked: Asked) -> Run:
    # imported here: they load the compiler, which reading a file does not need
    from npu_sim.accumulation import default_accumulation
    from npu_sim.dtypes.formats import dtype_name
    from npu_sim.errors import OperatorError
    from npu_sim.layouts.formats import WeightLayout
    from npu_sim.layouts.transform import weight_from_fractal
    from npu_sim.products import use_product
    from ops import ascendc
    from ops.common.status import PARAM_INVALID

    x, dy = (in_five_axes(tensors[name]) for name in (("dy", "x") if layer.transposed else ("x", "dy")))
    cout, cin_group, *taps = layer.weight_shape
    kd, kh, kw = in_three_axes(tuple(taps), 1)
    layout = WeightLayout(cout=cout, cin_per_group=cin_group, groups=layer.groups, kd=kd, kh=kh, kw=kw, c0=_C0)
    groups, columns, rows = layout.real_g, layout.cin1_g * _C0, layout.cout_g
    position, activation = ascendc.TPosition.GM, ascendc.ConvFormat.NDC1HWC0
    formats = (activation, ascendc.ConvFormat.ND, activation, ascendc.ConvFormat.FRACTAL_Z_3D)
    elements: tuple[Any, ...] = (x.dtype, np.int32, dy.dtype, np.float32)
    types = [ascendc.ConvType(position, form, kind) for form, kind in zip(formats, elements, strict=True)]
    with use_product(asked.product):
        made = ascendc.Conv3DBackpropFilter(*types, accumulation=asked.accumulation)
        tiling = ascendc.Conv3dBpFilterTiling(asked.chip)
        tiling.SetWeightType(position, formats[3], np.float32)
        tiling.SetInputType(position, activation, x.dtype)
        tiling.SetGradOutputType(position, activation, dy.dtype)
        tiling.SetWeightShape(rows, columns, kd, kh, kw)
        tiling.SetInputShape(x.shape[0], columns, *x.shape[2:])
        tiling.SetGradOutputShape(dy.shape[0], rows, *dy.shape[2:])
        tiling.SetPadding(*paired(layer.padding, len(layer.stride)))
        tiling.SetStride(*in_three_axes(layer.stride, 1))
        tiling.SetDilation(*in_three_axes(layer.dilation, 1))
        status, data = tiling.GetTiling()
        if data is None:
            message = f"GetTiling must return 0, not {status}: {tiling.errorMessage} ({asked.chip.name})"
            raise OperatorError(message, PARAM_INVALID)
        made.Init(data.dwTiling)
        dw = np.zeros(layout.storage_elems, np.float32)  # blocks of K and planes are added to it
        _drive(made, data, groups, _blocked(_widened(x, groups * columns)), _blocked(_widened(dy, groups * rows)), dw)
    compute = dtype_name(x.dtype)
    return Run(
        gradient=weight_from_fractal(dw, layout).reshape(layer.weight_shape),
        compute_dtype=compute,
        accumulation=asked.accumulation or default_accumulation(asked.chip, compute).name,
        tiling="Conv3dBpFilterTiling",
    )


ASCENDC_WEIGHT_GRADIENT = Call(words="driver of the Ascend C class Conv3DBackpropFilter", has_modes=False, run=_run)

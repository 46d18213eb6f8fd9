"""Small calls that between them compile all code the commands and the public calls use, each a task for one process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from itertools import product
from types import MappingProxyType
from typing import Any, cast

import ml_dtypes
import numpy as np

import ops
from npu_sim import use_product
from npu_sim.dtypes.convert import cast as convert
from npu_sim.dtypes.convert import round_hf32, round_to_integral
from npu_sim.dtypes.formats import RoundMode
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import NpuSimError
from npu_sim.layouts.formats import ActivationLayout
from npu_sim.layouts.transform import blocked_from_activation
from npu_sim.products import get_product
from npu_sim.program.launch import Launch
from ops import ascendc
from ops.ascendc.tiling import tiling_data
from ops.common.capability import SPLIT, UNIFIED, series_of_calls
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_public import ConvArguments, DefaultBuffers, public_tiling
from ops.studies.capture import load_example
from ops.studies.checking import check_launches
from ops.studies.launch_trace import TracedLaunch, trace_launches
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions
from ops.tbe import calculate_group, conv3d_backprop_filter, gradient_from_result, result_from_gradient, to_6hd

_SPLIT, *_OTHER_SPLIT = series_of_calls(SPLIT)
_UNIFIED, *_OTHER_UNIFIED = series_of_calls(UNIFIED)
_NUMPY: Mapping[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
_THREADS = 2


def _look(launches: tuple[Launch, ...], series: str) -> None:
    """Time, trace and check launches."""
    chip = get_product(series)
    trace_launches([TracedLaunch(launch=one, product=chip, timed=run_timeline(one, chip)) for one in launches], (0,))
    check_launches(launches, chip)


def _gradients(series: str) -> None:
    """Run weight gradients in every type and model of additions; the product may refuse some."""
    x_shape, dy_shape, weight_shape = (1, 20, 9, 9), (1, 17, 9, 9), (17, 20, 3, 3)
    for array, mode, accumulation in product(_NUMPY.values(), range(4), (None, "serial", "tree4-rz")):
        arrays = [np.ones(shape, array) for shape in (dy_shape, x_shape, weight_shape)]
        with suppress(NpuSimError):
            result = ops.convolution_backward(
                *arrays, stride=1, padding=1, dilation=1, output_mask=(False, True, False), cube_math_type=mode,
                product=series, accumulation=accumulation, threads=_THREADS,
            )  # fmt: skip
            if accumulation is None:
                _look(result.plan.calls.launches, series)
    arrays = [np.ones(shape, np.float16) for shape in (dy_shape, x_shape, weight_shape)]
    with suppress(NpuSimError):
        result = ops.convolution_backward(
            *arrays, stride=1, padding=1, dilation=1, output_mask=(False, True, False), deterministic=True,
            product=series, threads=_THREADS,
        )  # fmt: skip
        _look(result.plan.calls.launches, series)


_CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 24, 9, 9), (2, 20, 9, 9), (24, 20, 3, 3), {"padding": 1}),
    ((2, 24, 5, 5), (2, 20, 9, 9), (24, 20, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 24, 9, 9), (2, 20, 9, 9), (24, 20, 1, 1), {}),
    ((1, 8, 9, 9), (1, 12, 9, 9), (8, 3, 3, 3), {"padding": 1, "groups": 4}),
    ((2, 16, 10), (2, 8, 10), (16, 8, 3), {"padding": 1}),
    ((1, 16, 3, 5, 5), (1, 8, 3, 5, 5), (16, 8, 3, 3, 3), {"padding": 1}),
    ((1, 8, 9, 9), (1, 12, 9, 9), (12, 8, 3, 3), {"padding": 1, "transposed": True}),
    ((1, 16, 65, 65), (1, 16, 130, 130), (16, 16, 2, 2), {"stride": 2}),
)
"""Shapes of grad_output, input and weight, and what differs from stride 1 without padding."""


def _convolutions(series: str) -> None:
    """Run whole backward calls of every rank, type and route; the product may refuse some."""
    for (g, x, w, given), dtype, mode in product(_CONVOLUTIONS, _NUMPY.values(), range(3)):
        arrays = [np.ones(shape, dtype) for shape in (g, x, w)]
        arguments: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1, **given}
        with suppress(NpuSimError), use_product(series):
            result = ops.convolution_backward(
                *arrays, output_mask=(True, True, True), cube_math_type=mode, threads=_THREADS, **arguments
            )
            _look(result.plan.calls.launches, series)


_POOLINGS = (
    ((2, 40, 4, 4), (2, 40, 8, 8), 2, 2),
    ((2, 40, 3, 3), (2, 40, 9, 9), 5, 2),
    ((2, 40, 6, 6), (2, 40, 90, 90), 16, 14),
    ((2, 7, 1, 1), (2, 7, 5, 5), 5, 5),
)
"""Shapes of grad_output and input, kernel, stride."""


def _poolings(series: str) -> None:
    """Run pooling gradients by every route; the product may refuse some."""
    for (out, x, kernel, stride), dtype in product(_POOLINGS, _NUMPY.values()):
        with suppress(NpuSimError), use_product(series):
            result = ops.avg_pool2d_backward(
                np.ones(out, dtype), np.ones(x, dtype), kernel_size=kernel, stride=stride, cube_math_type=1,
                threads=_THREADS,
            )  # fmt: skip
            _look(result.plan.calls.launches, series)


def _forward(series: str) -> None:
    """Run forward convolutions with a bias, and forward poolings by every route; the product may refuse some."""
    for (_, x, w, given), dtype, mode in product(_CONVOLUTIONS, _NUMPY.values(), (0, 2)):
        channels = w[1] * given.get("groups", 1) if given.get("transposed", False) else w[0]
        arrays = [np.ones(shape, dtype) for shape in (x, w, (channels,))]
        with suppress(NpuSimError), use_product(series):
            result = ops.convolution(*arrays, cube_math_type=mode, threads=_THREADS, **given)
            _look(result.plan.calls.launches, series)
    for (_, x, kernel, stride), dtype, whole in product(_POOLINGS, _NUMPY.values(), (False, True)):
        pad = kernel // 4 if kernel < x[3] else 0
        for mode in (0, 2):
            with suppress(NpuSimError), use_product(series):
                pooled = ops.avg_pool2d(
                    np.ones(x, dtype), kernel_size=kernel, stride=stride, padding=pad, count_include_pad=whole,
                    cube_math_type=mode, threads=_THREADS,
                )  # fmt: skip
                _look(pooled.plan.calls.launches, series)


def _conversions(_: str) -> None:
    """Cast arrays between all formats."""
    values = np.ones(64, np.float32)
    for source in (*_NUMPY.values(), np.float64, np.int32):
        for target in ("fp16", "bf16", "fp32", "int32"):
            convert(values.astype(source), target, RoundMode.RINT)
    round_hf32(values)
    round_to_integral(values)


def ascendc_gradient(dtype: str, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return a weight gradient of 2 x 2 windows by the Ascend C class, in FRACTAL_Z_3D, flat.

    Parameters
    ----------
    dtype : {"fp16", "bf16", "fp32"}
        Type of the tensors.
    x, dy : array, (1, Cin, D, H, W) and (1, Cout, D, H - 1, W - 1)
        Small enough for one block of the tiling.
    """
    g = ConvGeometry.from_shapes(x.shape, dy.shape, (dy.shape[1], x.shape[1], 1, 2, 2), 1, 0, 1, 1)
    tiling = public_tiling(
        ConvArguments(
            n=1, cin=g.cin, cout=g.cout, di=g.di, hi=g.hi, wi=g.wi, do=g.do, ho=g.ho, wo=g.wo, kd=1, kh=2, kw=2,
            stride=g.stride, pad=g.pad, dilation=g.dilation, compute_dtype=dtype,
        ),
        DefaultBuffers(),
    )  # fmt: skip
    c0 = tiling.channel_size
    formats = (ascendc.ConvFormat.NDC1HWC0, ascendc.ConvFormat.ND, ascendc.ConvFormat.NDC1HWC0)
    elements: tuple[Any, ...] = (_NUMPY[dtype], np.int32, _NUMPY[dtype], np.float32)
    types = [
        ascendc.ConvType(ascendc.TPosition.GM, form, element)
        for form, element in zip((*formats, ascendc.ConvFormat.FRACTAL_Z_3D), elements, strict=True)
    ]
    x_gm, dy_gm = _blocked(x, c0), _blocked(dy, c0)
    m, n = -(-g.cout // c0) * c0, -(-g.cin // c0) * c0 * 4
    dw_gm = np.zeros(n * -(-g.cout // 16) * 16, np.float32)
    gradient = ascendc.Conv3DBackpropFilter(*types, extended=dtype == "fp32")
    gradient.Init(tiling_data(tiling).dwTiling)
    for plane in range(g.do):
        gradient.SetGradOutput(dy_gm[plane * dy_gm.size // g.do :])
        gradient.SetInput(x_gm[plane * x_gm.size // g.di :])
        gradient.SetSingleShape(m, n, g.ho * g.wo)
        gradient.SetStartPosition(0)
        while gradient.Iterate():
            gradient.GetTensorC(dw_gm)
        gradient.ctx.isFirstIter_ = True
    gradient.End()
    return dw_gm


def _blocked(tensor: np.ndarray, c0: int) -> np.ndarray:
    """Return NCDHW elements in the order of NDC1HWC0, flat."""
    n, c, d, h, w = tensor.shape
    layout = ActivationLayout(n=n, c=c, d=d, h=h, w=w, c0=c0)
    return blocked_from_activation(tensor, layout).reshape(-1).view(tensor.dtype)


def _ascendc(series: str) -> None:
    """Run the Ascend C class in every type, and look at what it has emitted."""
    for dtype, array in _NUMPY.items():
        x, dy = np.ones((1, 17, 2, 7, 6), array), np.ones((1, 20, 2, 6, 5), array)

        def kernel(dtype: str = dtype, x: np.ndarray = x, dy: np.ndarray = dy) -> None:
            ascendc_gradient(dtype, x, dy)

        with use_product(series):
            run = ascendc.launch(kernel, 1, record=True)
        run.check()
        _look((run.launch(),), series)


def _tbe(series: str) -> None:
    """Run the DSL and the conversions around it."""
    x, dy = (to_6hd(np.ones(shape, np.float16)) for shape in ((1, 32, 2, 6, 7), (1, 16, 2, 5, 6)))
    group = calculate_group(32, 16, 1)
    with use_product(series):
        dw = conv3d_backprop_filter(x, dy, [16, 1, 32, 2, 2], {"group_dict": group})
    result_from_gradient(gradient_from_result(dw, group, 1, (1, 2, 2)), group, 1, (1, 2, 2))


def _example(_: str) -> None:
    """Compute what ``npu-sim precision`` does."""
    study(load_example(), StudyOptions(threads=_THREADS))


_KINDS: Mapping[str, Callable[[str], None]] = MappingProxyType(
    {
        "weight gradients": _gradients,
        "pooling": _poolings,
        "convolutions": _convolutions,
        "forward": _forward,
        "conversions": _conversions,
        "Ascend C": _ascendc,
        "DSL": _tbe,
        "example": _example,
    }
)
TASKS: tuple[tuple[str, str], ...] = (
    ("weight gradients", _SPLIT),
    ("pooling", _SPLIT),
    ("convolutions", _UNIFIED),
    ("convolutions", _SPLIT),
    ("weight gradients", _UNIFIED),
    ("forward", _SPLIT),
    ("forward", _UNIFIED),
    *product(("weight gradients", "pooling", "convolutions", "forward"), (*_OTHER_UNIFIED, *_OTHER_SPLIT)),
    ("pooling", _UNIFIED),
    ("Ascend C", _SPLIT),
    ("DSL", _UNIFIED),
    ("conversions", ""),
    ("example", ""),
)
"""Kinds of calls and series: first those that compile least of what the others do."""


def _run(task: tuple[str, str]) -> int:
    """Run a task in this process; return how many functions it compiled."""
    from numba.core import event

    class Counter(event.Listener):
        compiled = 0

        def on_start(self, event: Any) -> None:
            self.compiled += event.data["dispatcher"].py_func.__module__.startswith(("npu_sim.", "ops."))

        def on_end(self, event: Any) -> None:
            pass

    counter, events = Counter(), cast(Any, event)  # Numba declares no types
    events.register("numba:compile", counter)
    try:
        _KINDS[task[0]](task[1])
    finally:
        events.unregister("numba:compile", counter)
    return counter.compiled


def warm(processes: int) -> Iterator[tuple[tuple[str, str], int]]:
    """Run all tasks in processes that fill the same cache of compiled code.

    Parameters
    ----------
    processes : int
        How many at once.

    Yields
    ------
    (str, str), int
        A task that has ended, and the functions it compiled; what another process compiles meanwhile counts in both.
    """
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(_run, task): task for task in TASKS}
        for future in as_completed(running):
            yield running[future], future.result()

"""The precision study: the error of each layer's weight gradient, on each product, in each mode.

For every layer x product x cubeMathType `ops.convolution_backward` is called, which either refuses, as the library
would, or computes the gradient with all its casts and layout conversions. It is compared with two float64 goldens:

``original``
    from the tensors of the file, untouched: the whole price of the mode, casts included;
``rounded``
    from the tensors the Cube multiplied (after the option ``dtype``, after the cast to the compute type, after HF32
    rounding): what the kernel itself adds.

CANN's own reference for these operators rounds the inputs first (hicann/ops-nn
conv/conv3d_backprop_filter_v2/tests/assets/golden.py), so ``rounded`` is the golden whose verdict decides by default;
``original`` answers the user's question whether the mode is fit for the layer. Both verdicts are always reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InputFileError, InternalError, NpuSimError
from npu_sim.fenv import default_fenv
from npu_sim.report.precision import element_errors, measure
from npu_sim.report.standards import mixed_tolerance
from ops.studies.capture import Capture, Layer
from ops.studies.goldens import Goldens
from ops.studies.precision_report import (
    OUTPUT_MASK,
    CaseResult,
    Comparison,
    Golden,
    LayerSummary,
    PrecisionReport,
    PrecisionRow,
    Refusal,
    StudyOptions,
)


class _Gradient(Protocol):
    """What the study reads of the result of a call."""

    @property
    def grad_weight(self) -> Any: ...
    @property
    def compute_dtype(self) -> str: ...
    @property
    def accumulation(self) -> Any: ...
    @property
    def plan(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The three things a study asks for; tests put their own in.

    Attributes
    ----------
    convolution_backward : callable
        ``ops.convolution_backward``.
    golden : callable
        ``ops.common.definition.weight_gradient``.
    get_product : callable
        ``npu_sim.products.registry.get_product``.
    """

    convolution_backward: Callable[..., _Gradient]
    golden: Callable[..., npt.NDArray[np.float64]]
    get_product: Callable[[str], Any]


def emulator() -> Backend:
    """Return the real backend; its modules are imported here, not with this one."""
    from npu_sim.products.registry import get_product
    from ops.common.definition import weight_gradient as golden
    from ops.conv_backward.api import convolution_backward

    return Backend(convolution_backward=convolution_backward, golden=golden, get_product=get_product)


Progress = Callable[[int, int, str], None]


@default_fenv
def study(
    capture: Capture,
    options: StudyOptions | None = None,
    *,
    backend: Backend | None = None,
    progress: Progress | None = None,
) -> PrecisionReport:
    """Run a precision study.

    Parameters
    ----------
    capture : Capture
        Layers, from `ops.studies.capture.load_capture` or `load_example`.
    options : StudyOptions or None
        None runs every layer on the series with aclnn calls, in the four modes.
    backend : Backend or None
        None uses the emulator.
    progress : callable or None
        Called with (cases done, cases in all, what comes next).

    Returns
    -------
    PrecisionReport

    Raises
    ------
    ProductError
        A product is unknown.
    InputFileError
        A layer is not in the file.

    Notes
    -----
    A refused combination is a row of the report, not an error.
    """
    options = options or StudyOptions()
    backend = backend or emulator()
    layers = _selected(capture, options.layers)
    products = {name: backend.get_product(name) for name in options.products}
    total = len(layers) * len(products) * len(options.cube_math_types)
    rows: list[PrecisionRow] = []
    summaries: list[LayerSummary] = []
    for layer in layers:
        goldens = Goldens(layer, options.dtype, backend.golden)
        summaries.append(_summarise(layer, goldens))
        for name, product in products.items():
            for cube_math_type in options.cube_math_types:
                if progress:
                    progress(len(rows), total, f"{layer.name} {name} cubeMathType {cube_math_type}")
                rows.append(_case(layer, goldens, name, product, cube_math_type, options, backend))
    if progress:
        progress(total, total, "done")
    return PrecisionReport(
        program=f"npu-sim {_own_version()}",
        source=capture.source,
        metadata=capture.metadata,
        options=options,
        layers=tuple(summaries),
        rows=tuple(rows),
    )


def _selected(capture: Capture, names: tuple[str, ...] | None) -> tuple[Layer, ...]:
    """Return the layers to run, in the order of the file."""
    known = [layer.name for layer in capture.layers]
    for name in names or ():
        if name not in known:
            raise InputFileError(f"Layer must be one of {', '.join(known)}, not {name} ({capture.source})")
    return tuple(layer for layer in capture.layers if names is None or layer.name in names)


def _case(
    layer: Layer,
    goldens: Goldens,
    name: str,
    product: Any,
    cube_math_type: int,
    options: StudyOptions,
    backend: Backend,
) -> PrecisionRow:
    """Run one combination."""
    row = {
        "layer": layer.name,
        "product": name,
        "soc": product.name,
        "cube_math_type": cube_math_type,
        "input_dtype": dtype_name(goldens.x.dtype),
    }
    try:
        gradient = backend.convolution_backward(
            goldens.dy,
            goldens.x,
            np.zeros(layer.weight_shape, goldens.x.dtype),
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
            output_mask=OUTPUT_MASK,
            product=name,
            cube_math_type=cube_math_type,
            accumulation=options.accumulation,
            threads=options.threads,
        )
    except InternalError:
        raise
    except NpuSimError as error:
        return PrecisionRow(**row, refusal=Refusal.of(error))
    compute_dtype = gradient.compute_dtype
    rounded = goldens.rounded(compute_dtype, product)
    inputs_lost = bool(rounded.lost_tensors)
    return PrecisionRow(
        **row,
        result=CaseResult(
            compute_dtype=compute_dtype,
            output_dtype=dtype_name(gradient.grad_weight.dtype),
            accumulation=str(gradient.accumulation.name),
            k_depth=layer.k_depth,
            tiling=str(gradient.plan.tiling_origin),
            input_underflow=rounded.input_underflow,
            input_overflow=rounded.input_overflow,
            input_specials_lost=rounded.input_specials_lost,
            lost_tensors=rounded.lost_tensors,
            original=_compare(gradient, goldens.original, "original", product, inputs_lost=inputs_lost),
            rounded=_compare(gradient, rounded.golden, "rounded", product, inputs_lost=inputs_lost),
        ),
    )


def _compare(
    gradient: _Gradient, golden: npt.NDArray[np.float64], kind: Golden, product: Any, *, inputs_lost: bool
) -> Comparison:
    """Compare with one golden. A result multiplied in HF32 is judged by the standard's HF32 row."""
    errors = element_errors(gradient.grad_weight, golden, overflow=product.overflow_mode)
    row = "hf32" if gradient.compute_dtype == "hf32" else errors.format.name
    verdict = mixed_tolerance(errors, row=row, golden=kind)
    return Comparison.judge(kind, measure(errors), verdict, inputs_lost=inputs_lost)


def _summarise(layer: Layer, goldens: Goldens) -> LayerSummary:
    reference = None
    if layer.grad_weight is not None:
        reference = measure(element_errors(layer.grad_weight, goldens.original))
    in_file, used = dtype_name(layer.x.dtype), dtype_name(goldens.x.dtype)
    return LayerSummary(
        name=layer.name,
        x_shape=layer.x.shape,
        dy_shape=layer.dy.shape,
        weight_shape=layer.weight_shape,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        dtype=in_file,
        tensors=in_file if used == in_file else f"{in_file} in the file, cast to {used}",
        input_specials=sum(int(np.count_nonzero(~np.isfinite(tensor))) for tensor in (layer.x, layer.dy)),
        k_depth=layer.k_depth,
        reference=reference,
    )


def _own_version() -> str:
    try:
        return version("npu-sim")
    except PackageNotFoundError:
        return "(not installed)"

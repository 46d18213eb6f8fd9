"""The precision study: the error of each layer's gradients, on each product, in each mode.

For every layer x gradient x interface x product x cubeMathType the operator is called, which either refuses, as the
library would, or computes the gradient with all its casts and layout conversions. It is compared with two float64
goldens:

``original``
    from the tensors of the file, untouched: the whole price of the mode, casts included;
``rounded``
    from the tensors the hardware multiplied (after the option ``dtype``, after the cast to the compute type, after HF32
    rounding): what the kernel itself adds.

CANN's own reference for these operators rounds the inputs first (hicann/ops-nn
conv/conv3d_backprop_filter_v2/tests/assets/golden.py), so ``rounded`` is the golden whose verdict decides by default;
``original`` answers the user's question whether the mode is fit for the layer. Both verdicts are always reported.

Standards that compare with a peer get what a CPU makes of the same tensors without the operator: float32 products and
sums one by one, rounded once to the format of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InputFileError, InternalError, NpuSimError
from npu_sim.fenv import default_fenv
from npu_sim.report.precision import element_errors, measure
from npu_sim.report.standards.registry import get_standard
from ops.studies.goldens import Goldens
from ops.studies.judging import compare
from ops.studies.kinds import Asked, Backend, Entry, Kind
from ops.studies.layers import AnyLayer, Capture, Layer, PoolingLayer
from ops.studies.precision_report import (
    CUBE_MATH_TYPES,
    CaseResult,
    LayerSummary,
    PrecisionReport,
    PrecisionRow,
    Refusal,
    StudyOptions,
)
from ops.studies.registry import kinds_of


def emulator() -> Backend:
    """Return the real backend; its modules are imported here, not with this one."""
    from npu_sim.products.registry import get_product
    from ops.common.definition import weight_gradient as golden
    from ops.conv_backward.api import convolution_backward

    return Backend(convolution_backward=convolution_backward, golden=golden, get_product=get_product)


Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One call of a study.

    Attributes
    ----------
    layer : Layer or PoolingLayer
        Of which.
    kind : Kind
        Which gradient.
    entry : {"aclnn", "tbe", "ascendc"}
        By which interface.
    product : str
        As it was asked for.
    cube_math_type : int or None
        0..3; None where the interface has none.
    """

    layer: AnyLayer
    kind: Kind
    entry: Entry
    product: str
    cube_math_type: int | None

    def __str__(self) -> str:
        mode = "" if self.cube_math_type is None else f" cubeMathType {self.cube_math_type}"
        entry = "" if self.entry == "aclnn" else f" {self.entry}"
        return f"{self.layer.name} {self.kind.gradient} {self.product}{entry}{mode}"


def combinations_of(capture: Capture, options: StudyOptions) -> tuple[Combination, ...]:
    """Return every call of a study: layer by layer, gradient, interface, product, mode.

    Raises
    ------
    InputFileError
        A layer is not in the file, or no layer has such a gradient.
    """
    found = tuple(_combinations(capture, options))
    if not found:
        gradients = " or ".join(options.gradients or ("dx, dw, db",))
        rule = f"at least one layer with the tensors of {gradients} by {' or '.join(options.entries)}"
        raise InputFileError(f"Layers must hold {rule}, not none ({capture.source})")
    return found


def _combinations(capture: Capture, options: StudyOptions) -> Iterator[Combination]:
    for layer in _selected(capture, options.layers):
        for kind in kinds_of(layer, options.gradients):
            for entry in options.entries:
                if entry not in kind.calls:
                    continue
                modes: tuple[int | None, ...] = (None,)
                if kind.calls[entry].has_modes:
                    modes = options.cube_math_types or layer.cube_math_types or CUBE_MATH_TYPES
                for product in options.products:
                    for mode in modes:
                        yield Combination(layer=layer, kind=kind, entry=entry, product=product, cube_math_type=mode)


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
        None runs the gradients that every layer names on the series with aclnn calls, in the four modes.
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
        A layer is not in the file, or no layer has such a gradient.

    Notes
    -----
    A refused combination is a row of the report, not an error.
    """
    options = options or StudyOptions()
    backend = backend or emulator()
    every = combinations_of(capture, options)
    chips = {name: backend.get_product(name) for name in options.products}
    rows: list[PrecisionRow] = []
    summaries: list[LayerSummary] = []
    goldens: Goldens | None = None
    seen: tuple[AnyLayer, Kind] | None = None
    for done, one in enumerate(every):
        if progress:
            progress(done, len(every), str(one))
        if seen is None or seen[0] is not one.layer:
            layer = one.layer.filled()
        if goldens is None or seen != (one.layer, one.kind):
            seen = one.layer, one.kind
            goldens = Goldens(layer, one.kind, options.dtype, backend)
            summaries.append(_summarise(layer, one.kind, goldens))
        rows.append(_case(one, layer, goldens, chips[one.product], options, backend))
    if progress:
        progress(len(every), len(every), "done")
    calls = dict.fromkeys(one.kind.calls[one.entry].words for one in every)
    return PrecisionReport(
        program=f"npu-sim {_own_version()}",
        source=capture.source,
        metadata=capture.metadata,
        options=options,
        standards=tuple(get_standard(name).summary() for name in options.standards),
        gradient=f"result of a {'; of a '.join(calls)}",
        layers=tuple(summaries),
        rows=tuple(rows),
    )


def _selected(capture: Capture, names: tuple[str, ...] | None) -> tuple[AnyLayer, ...]:
    """Return the layers to run, in the order of the file."""
    known = [layer.name for layer in capture.layers]
    for name in names or ():
        if name not in known:
            raise InputFileError(f"Layer must be one of {', '.join(known)}, not {name} ({capture.source})")
    return tuple(layer for layer in capture.layers if names is None or layer.name in names)


def _case(
    one: Combination, layer: AnyLayer, goldens: Goldens, chip: Any, options: StudyOptions, backend: Backend
) -> PrecisionRow:
    """Run one combination."""
    call = one.kind.calls[one.entry]
    row: dict[str, Any] = {
        "layer": one.layer.name,
        "gradient": one.kind.gradient,
        "entry": one.entry,
        "product": one.product,
        "soc": chip.name,
        "cube_math_type": one.cube_math_type,
        "input_dtype": dtype_name(goldens.tensors["dy"].dtype),
    }
    asked = Asked(
        product=one.product,
        chip=chip,
        cube_math_type=one.cube_math_type,
        accumulation=options.accumulation,
        threads=options.threads,
        backend=backend,
    )
    try:
        run = call.run(layer, goldens.tensors, asked)
    except InternalError:
        raise
    except NpuSimError as error:
        return PrecisionRow(**row, refusal=Refusal.of(error))
    rounded = goldens.rounded(run, chip)
    judge = partial(
        compare, run=run, goldens=goldens, options=options, layer=one.layer, kind=one.kind, call=call, asked=asked
    )
    return PrecisionRow(
        **row,
        result=CaseResult(
            compute_dtype=run.compute_dtype,
            output_dtype=dtype_name(run.gradient.dtype),
            accumulation=run.accumulation,
            k_depth=one.kind.k_depth(one.layer),
            tiling=run.tiling,
            route=run.route,
            input_underflow=rounded.input_underflow,
            input_overflow=rounded.input_overflow,
            input_specials_lost=rounded.input_specials_lost,
            lost_tensors=rounded.lost_tensors,
            original=judge("original"),
            rounded=judge("rounded"),
        ),
    )


def _summarise(layer: AnyLayer, kind: Kind, goldens: Goldens) -> LayerSummary:
    reference, own = None, kind.reference(layer)
    if own is not None:
        reference = measure(element_errors(own, goldens.original))
    in_file, used = dtype_name(layer.dy.dtype), dtype_name(goldens.tensors["dy"].dtype)
    specials = sum(int(np.count_nonzero(~np.isfinite(tensor))) for tensor in (kind.tensors(layer) or {}).values())
    return LayerSummary(
        name=layer.name,
        operator=kind.operator,
        gradient=kind.gradient,
        x_shape=layer.x_shape,
        dy_shape=layer.dy.shape,
        stride=layer.stride,
        padding=layer.padding,
        dtype=in_file,
        tensors=in_file if used == in_file else f"{in_file} in the file, cast to {used}",
        input_specials=specials,
        k_depth=kind.k_depth(layer),
        reference=reference,
        **_own_attributes(layer),
    )


def _own_attributes(layer: AnyLayer) -> dict[str, Any]:
    """Return what only convolutions or only poolings have."""
    if isinstance(layer, PoolingLayer):
        return {
            "kernel_size": layer.kernel_size,
            "ceil_mode": layer.ceil_mode,
            "count_include_pad": layer.count_include_pad,
            "divisor_override": layer.divisor_override,
        }
    assert isinstance(layer, Layer)
    return {
        "weight_shape": layer.weight_shape,
        "dilation": layer.dilation,
        "groups": layer.groups,
        "output_padding": layer.output_padding,
    }


def _own_version() -> str:
    try:
        return version("npu-sim")
    except PackageNotFoundError:
        return "(not installed)"

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

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.fenv import default_fenv
from npu_sim.report.precision import element_errors, measure
from ops.studies.fitness import fitness_of
from ops.studies.goldens import Goldens
from ops.studies.judging import compare, standards_of
from ops.studies.kinds import Asked, Backend, Kind
from ops.studies.layers import AnyLayer, Capture, Layer, PoolingLayer
from ops.studies.precision_report import (
    CaseResult,
    LayerSummary,
    PrecisionReport,
    PrecisionRow,
    Refusal,
    StudyOptionError,
    StudyOptions,
)
from ops.studies.results_file import Results
from ops.studies.study_parts import Combination, Known, Part, combinations_of, parts_of
from ops.studies.ulp_maps import with_chosen_maps


def emulator() -> Backend:
    """Return the real backend; its modules are imported here, not with this one."""
    from npu_sim.products.registry import get_product
    from ops.common.definition_by_matrices import weight_gradient as golden
    from ops.conv_backward.api import convolution_backward

    return Backend(convolution_backward=convolution_backward, golden=golden, get_product=get_product)


Progress = Callable[[int, int, str], None]


Done = Callable[[Combination], None]


def run_part(
    part: Part, options: StudyOptions, backend: Backend, before: Done | None = None
) -> tuple[LayerSummary, tuple[PrecisionRow, ...]]:
    """Compute one part of a study; ``before`` is called with what comes next."""
    layer = part.layer.filled()
    goldens = Goldens(layer, part.kind, options.dtype, backend)
    rows = []
    for one in part.calls:
        if before is not None:
            before(one)
        rows.append(_case(one, layer, goldens, backend.get_product(one.product), options, backend))
    return _summarise(layer, part.kind, goldens), tuple(rows)


@default_fenv
def study(
    capture: Capture,
    options: StudyOptions | None = None,
    *,
    backend: Backend | None = None,
    progress: Progress | None = None,
    results: Results | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
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
    results : Results or None
        Where results are looked up and kept, gradient by gradient; what it has is not computed.
    jobs : int
        Processes that compute gradients at once, each with its part of the threads; more than 1 only with the emulator.
    scheduler : str or None
        Address of a Dask scheduler whose workers compute instead (extra ``dask``).

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
    every = combinations_of(capture, options)
    own = backend or emulator()
    chips = {name: own.get_product(name) for name in options.products}
    known = Known(every, options, chips, results)
    if progress and len(known.rows):
        progress(len(known.rows), len(every), "known")
    missing = tuple(replace(part, calls=known.missing(part.calls)) for part in parts_of(every))
    missing = tuple(part for part in missing if part.calls)
    if missing and (scheduler is not None or (jobs > 1 and len(missing) > 1)):
        if backend is not None:
            raise StudyOptionError("jobs must be 1 with a backend of one's own, not more")
        # imported here: they import this module, for the processes that run a part
        from ops.studies.distributed import run_parts_on
        from ops.studies.parallel import run_parts, run_task

        done = len(known.rows)
        if scheduler is not None:
            found = run_parts_on(scheduler, missing, options, run_task)
        else:
            found = run_parts(missing, options, jobs, run_task)
        for part, (summary, rows) in found:
            known.keep(part, summary, rows)
            done += len(rows)
            if progress:
                progress(done, len(every), f"{part.layer.name} {part.kind.gradient}")
    else:
        numbers = {id(one): number for number, one in enumerate(every)}
        before = None if progress is None else lambda one: progress(numbers[id(one)], len(every), str(one))
        for part in missing:
            known.keep(part, *run_part(part, options, own, before))
    if progress:
        progress(len(every), len(every), "done")
    calls = dict.fromkeys(one.kind.calls[one.entry].words for one in every)
    rows = tuple(known.rows[id(one)] for one in every)
    return PrecisionReport(
        program=f"npu-sim {_own_version()}",
        source=capture.source,
        metadata=capture.metadata,
        options=options,
        standards=_standards(every, options),
        gradient=f"result of a {'; of a '.join(calls)}",
        fitness=fitness_of(rows, options.golden),
        layers=tuple(known.summary(part) for part in parts_of(every)),
        rows=with_chosen_maps(rows, options.golden),
    )


def _standards(every: tuple[Combination, ...], options: StudyOptions) -> tuple[dict[str, str], ...]:
    """Return a summary of each standard behind the verdicts, those of the study first."""
    own = (standard for one in every for standard in standards_of(one.layer, options))
    return tuple({standard.name: standard.summary() for standard in own}.values())


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
        "input_dtype": goldens.dtype,
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
        compare, run=run, goldens=goldens, options=options, layer=layer, kind=one.kind, call=call, asked=asked
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
    in_file, used = dtype_name(layer.dy.dtype), goldens.dtype
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

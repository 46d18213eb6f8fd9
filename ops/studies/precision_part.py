"""One part of a precision study: a gradient of a layer in every combination, computed and judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.report.precision import element_errors, measure
from ops.studies.goldens import Goldens
from ops.studies.judging import compare
from ops.studies.kinds import Asked, Backend, Kind
from ops.studies.layers import AnyLayer, Layer, PoolingLayer
from ops.studies.precision_results import CaseResult, LayerSummary, PrecisionRow, StudyOptions
from ops.studies.scope import Refusal
from ops.studies.study_parts import Combination, Part

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

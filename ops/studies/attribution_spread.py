"""The spread of a gradient over orders of the cores and over tilings, as runs of the call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.products import Product
from ops.conv_backward.api import convolution_backward, described, plan_convolution_backward
from ops.studies.attribution_parts import relative_error
from ops.studies.attribution_report import Range, Spread
from ops.studies.convolution_kinds import RESULTS, call_attributes, call_tensors, output_mask
from ops.studies.goldens import Rounded
from ops.studies.kinds import Asked, Tensors
from ops.studies.layers import Layer, ResultName


def spread_of(
    layer: Layer, gradient: ResultName, tensors: Tensors, asked: Asked, rounded: Rounded, runs: int
) -> Spread:
    """Return the spread of a call of aclnnConvolutionBackward.

    Parameters
    ----------
    layer, gradient, tensors, asked
        The call, which is not refused.
    rounded : Rounded
        Golden of what it multiplies.
    runs : int
        Orders of the cores, by seeds from 0; and numbers of cores, spread evenly from all of them down to one, each of
        which may give two tilings.
    """
    dy, x, weight = call_tensors(layer, tensors)
    keywords: dict[str, Any] = {
        **call_attributes(layer), "output_mask": output_mask(gradient), "cube_math_type": asked.cube_math_type,
    }  # fmt: skip
    how: dict[str, Any] = {"accumulation": asked.accumulation, "threads": asked.threads}

    def run(product: Product, core_order: int | None = None, **changes: Any) -> np.ndarray:
        result = convolution_backward(
            dy, x, weight, product=product, core_order=core_order, **keywords, **how, **changes
        )
        return np.asarray(getattr(result, RESULTS[gradient]))

    def tilings() -> Iterator[np.ndarray]:
        seen: list[Any] = []
        descs = [described(tensor.shape, dtype_name(tensor.dtype)) for tensor in (dy, x, weight)]
        for chip in _fewer_cores(asked.chip, runs):
            for deterministic in (False, True):
                try:
                    plan = plan_convolution_backward(*descs, product=chip, deterministic=deterministic, **keywords)
                except InternalError:
                    raise
                except NpuSimError:
                    continue  # a deterministic call may be refused
                tiling = [planned.kernel.tiling for planned in plan.multiplying_steps]
                if tiling not in seen:
                    seen.append(tiling)
                    yield run(chip, deterministic=deterministic)

    return Spread(
        core_orders=_range((run(asked.chip, core_order=seed) for seed in range(runs)), rounded),
        tilings=_range(tilings(), rounded),
    )


def _fewer_cores(chip: Product, count: int) -> Iterator[Product]:
    """Yield the product with all its cores, and with fewer, ``count`` numbers at most."""
    most = chip.cube_core_count
    for cores in dict.fromkeys(np.linspace(most, 1, min(count, most)).round().astype(int).tolist()):
        yield replace(chip, cube_core_count=cores, vector_core_count=chip.vector_core_count * cores // most)


def _range(results: Iterable[np.ndarray], rounded: Rounded) -> Range:
    errors: list[float | None] = []
    distinct = set()
    for result in results:
        errors.append(relative_error(result, rounded.golden))
        distinct.add(result.tobytes())
    known = [error for error in errors if error is not None]
    return Range(
        runs=len(errors),
        distinct=len(distinct),
        min=min(known, default=None),
        median=median(known) if known else None,
        max=max(known, default=None),
    )

"""The spread of a gradient over orders of the cores and over tilings, as runs of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.products import Product
from ops.conv_backward.api import convolution_backward, described, plan_convolution_backward
from ops.conv_forward.api import convolution, plan_convolution
from ops.studies.attribution_parts import relative_error
from ops.studies.attribution_report import Range, Spread
from ops.studies.convolution_kinds import RESULTS, call_attributes, call_tensors, output_mask
from ops.studies.goldens import Rounded
from ops.studies.kinds import Asked, Tensors
from ops.studies.layers import Layer, ResultName

_PARTS_OF_L1 = (2, 4)


def spread_of(
    layer: Layer, gradient: ResultName, tensors: Tensors, asked: Asked, rounded: Rounded, runs: int
) -> Spread:
    """Return the spread of a call of aclnnConvolutionBackward or aclnnConvolution.

    Parameters
    ----------
    layer, gradient, tensors, asked
        The call, which is not refused.
    rounded : Rounded
        Golden of what it multiplies.
    runs : int
        Orders of the cores, by seeds from 0; and numbers of cores, spread evenly from all of them down to one, each of
        which may give two tilings, as may a half and a quarter of L1.
    """
    call = _of_output(layer, tensors, asked) if gradient == "y" else _of_gradient(layer, gradient, tensors, asked)

    def tilings() -> Iterator[np.ndarray]:
        seen: list[Any] = []
        for chip in _other_planners(asked.chip, runs):
            for changes in call.ways:
                try:
                    tiling = call.tiling(chip, **changes)
                except InternalError:
                    raise
                except NpuSimError:
                    continue  # a deterministic call may be refused, and what does not fit a smaller L1
                if tiling not in seen:
                    seen.append(tiling)
                    yield call.run(chip, **changes)

    # forward calls add nothing in memory, and take no order
    orders = range(runs) if gradient != "y" else ()
    return Spread(
        core_orders=_range((call.run(asked.chip, core_order=seed) for seed in orders), rounded),
        tilings=_range(tilings(), rounded),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call as it is planned and run on products that plan otherwise.

    Attributes
    ----------
    ways : tuple of dict
        Options that may give other tilings.
    tiling : callable
        (product, options) to the tilings of what multiplies.
    run : callable
        (product, options) to the result.
    """

    ways: tuple[dict[str, Any], ...]
    tiling: Callable[..., list[Any]]
    run: Callable[..., np.ndarray]


def _of_gradient(layer: Layer, gradient: ResultName, tensors: Tensors, asked: Asked) -> _Call:
    given: dict[str, Any] = dict(zip(("grad_output", "input", "weight"), call_tensors(layer, tensors), strict=True))
    descs = _described(given)
    keywords: dict[str, Any] = {
        **call_attributes(layer), "output_mask": output_mask(gradient), "cube_math_type": asked.cube_math_type,
    }  # fmt: skip
    how: dict[str, Any] = {"accumulation": asked.accumulation, "threads": asked.threads}

    def tiling(product: Product, **changes: Any) -> list[Any]:
        plan = plan_convolution_backward(**descs, product=product, **keywords, **changes)
        return [planned.kernel.tiling for planned in plan.multiplying_steps]

    def run(product: Product, **changes: Any) -> np.ndarray:
        result = convolution_backward(**given, product=product, **keywords, **how, **changes)
        return np.asarray(getattr(result, RESULTS[gradient]))

    return _Call(ways=({"deterministic": False}, {"deterministic": True}), tiling=tiling, run=run)


def _of_output(layer: Layer, tensors: Tensors, asked: Asked) -> _Call:
    names = {"x": "input", "weight": "weight", "bias": "bias"}
    given: dict[str, Any] = {name: tensors[key] for key, name in names.items() if key in tensors}
    descs = _described(given)
    keywords: dict[str, Any] = {**call_attributes(layer), "cube_math_type": asked.cube_math_type or 0}
    how: dict[str, Any] = {"accumulation": asked.accumulation, "threads": asked.threads}

    def tiling(product: Product) -> list[Any]:
        plan = plan_convolution(**descs, product=product, **keywords)
        return [planned.kernel.tiling for planned in plan.multiplying_steps]

    def run(product: Product) -> np.ndarray:
        return convolution(**given, product=product, **keywords, **how).output

    return _Call(ways=({},), tiling=tiling, run=run)


def _described(given: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: described(tensor.shape, dtype_name(tensor.dtype)) for name, tensor in given.items()}


def _other_planners(chip: Product, count: int) -> Iterator[Product]:
    """Yield the product with all its cores, with fewer, ``count`` numbers at most, and with less of L1.

    What is planned for less fits the product itself.
    """
    most = chip.cube_core_count
    for cores in dict.fromkeys(np.linspace(most, 1, min(count, most)).round().astype(int).tolist()):
        yield replace(chip, cube_core_count=cores, vector_core_count=chip.vector_core_count * cores // most)
    for part in _PARTS_OF_L1:
        yield replace(chip, core=replace(chip.core, l1_bytes=chip.core.l1_bytes // part))


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

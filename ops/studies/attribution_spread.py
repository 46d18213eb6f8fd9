"""The spread of a gradient over orders of the cores and over tilings, as runs of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.products import Product
from ops.common.tensor_desc import described
from ops.conv3d_backprop_filter.tiling_data import DwTiling
from ops.conv3d_backprop_filter.tiling_space import WeightGradientTilingSpace
from ops.conv_backward.api import plan_convolution_backward, run_convolution_backward
from ops.conv_backward.plan import geometry_of
from ops.conv_forward.api import convolution, plan_convolution
from ops.studies.attribution_parts import relative_error
from ops.studies.attribution_report import Range, Spread
from ops.studies.convolution_kinds import RESULTS, call_attributes, call_tensors, output_mask
from ops.studies.goldens import Rounded
from ops.studies.kinds import Asked, Tensors
from ops.studies.layers import Layer, ResultName

_PARTS_OF_L1 = (2, 4)
_Change = tuple[Product, dict[str, Any]]
"""Where and with which options a call is planned."""


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
        Orders of the cores, by seeds from 0; and tilings at most, spread evenly over all of them.
    """
    call = _of_output(layer, tensors, asked) if gradient == "y" else _of_gradient(layer, gradient, tensors, asked)
    changes, possible = call.tilings(asked.chip, runs)
    # forward calls add nothing in memory, and take no order
    orders = range(runs) if gradient != "y" else ()
    return Spread(
        core_orders=_range((call.run(asked.chip, core_order=seed) for seed in orders), rounded),
        tilings=_range((call.run(chip, **change) for chip, change in changes), rounded),
        possible_tilings=possible,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call as it is planned and run on products that plan otherwise.

    Attributes
    ----------
    ways : tuple of dict
        Options that may give other tilings.
    plan : callable
        (product, options) to the plan.
    run : callable
        (product, options) to the result.
    """

    ways: tuple[dict[str, Any], ...]
    plan: Callable[..., Any]
    run: Callable[..., np.ndarray]

    def tilings(self, chip: Product, count: int) -> tuple[list[_Change], int | None]:
        """Return what to run for other tilings, and how many there are where all of them are known."""
        own = self._different((chip,))
        space = _space_of(self.plan(chip), chip)
        if space is None:
            return self._different(_other_planners(chip, count)), None
        cuts = [cut for cut in space.cuts_of_k if cut.k_count != space.default.k_count]
        chosen = sorted(set(np.linspace(0, len(cuts) - 1, min(count, len(cuts))).round().astype(int).tolist()))
        return own + [(chip, {"dw_tiling": cuts[i]}) for i in chosen], len(own) + len(cuts)

    def _different(self, planners: Iterable[Product]) -> list[_Change]:
        """Return the changes that give tilings of their own."""
        seen: list[Any] = []
        found: list[_Change] = []
        for chip in planners:
            for changes in self.ways:
                try:
                    tilings = [planned.kernel.tiling for planned in self.plan(chip, **changes).multiplying_steps]
                except InternalError:
                    raise
                except NpuSimError:
                    continue  # a deterministic call may be refused, and what does not fit a smaller L1
                if tilings not in seen:
                    seen.append(tilings)
                    found.append((chip, changes))
        return found


def _space_of(plan: Any, chip: Product) -> WeightGradientTilingSpace | None:
    """Return all tilings of a plan whose one multiplying step is the published kernel, whole rows at a time."""
    tilings = [planned.kernel.tiling for planned in plan.multiplying_steps]
    if len(tilings) != 1 or not isinstance(tilings[0], DwTiling) or tilings[0].w_parts > 1 or tilings[0].tap_by_tap:
        return None
    resolved = plan.resolved
    return WeightGradientTilingSpace(
        geometry=geometry_of(resolved.call), product=chip, compute_dtype=resolved.compute_dtype
    )


def _of_gradient(layer: Layer, gradient: ResultName, tensors: Tensors, asked: Asked) -> _Call:
    names = ("grad_output", "input", "weight")
    given: dict[str, Any] = dict(zip(names, map(np.ascontiguousarray, call_tensors(layer, tensors)), strict=True))
    descs = _described(given)
    keywords: dict[str, Any] = {
        **call_attributes(layer), "output_mask": output_mask(gradient), "cube_math_type": asked.cube_math_type,
    }  # fmt: skip
    how: dict[str, Any] = {"accumulation": asked.accumulation, "threads": asked.threads}

    plan = partial(plan_convolution_backward, **descs, **keywords)

    def run(product: Product, core_order: int | None = None, **changes: Any) -> np.ndarray:
        made = plan(product=product, **changes)
        result = run_convolution_backward(made, **given, **how, core_order=core_order)
        return np.asarray(getattr(result, RESULTS[gradient]))

    return _Call(ways=({"deterministic": False}, {"deterministic": True}), plan=_by_product(plan), run=run)


def _of_output(layer: Layer, tensors: Tensors, asked: Asked) -> _Call:
    names = {"x": "input", "weight": "weight", "bias": "bias"}
    given: dict[str, Any] = {name: tensors[key] for key, name in names.items() if key in tensors}
    descs = _described(given)
    keywords: dict[str, Any] = {**call_attributes(layer), "cube_math_type": asked.cube_math_type or 0}
    how: dict[str, Any] = {"accumulation": asked.accumulation, "threads": asked.threads}

    def run(product: Product) -> np.ndarray:
        return convolution(**given, product=product, **keywords, **how).output

    return _Call(ways=({},), plan=_by_product(partial(plan_convolution, **descs, **keywords)), run=run)


def _by_product(plan: Callable[..., Any]) -> Callable[..., Any]:
    return lambda product, **changes: plan(product=product, **changes)


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

"""What the plans of a convolution and of its gradients have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from npu_sim.errors import OperatorError, ShapeError
from npu_sim.products import Product
from npu_sim.report.explain import Value
from ops.common.geometry import ConvGeometry
from ops.common.plan import OperatorPlan
from ops.common.status import NO_KERNEL


def geometry_on(
    product: Product,
    x: Sequence[int],
    y: Sequence[int],
    weight: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> ConvGeometry:
    """Return `ConvGeometry.from_shapes` as the library counts it: no limit applies to the dilation of a single tap.

    Raises
    ------
    OperatorError
        561103 if the extents do not fit each other.
    """
    try:
        geometry = ConvGeometry.from_shapes(x, y, weight, stride, padding, dilation, groups)
    except ShapeError as error:
        raise OperatorError(f"{error} ({product.name}, {product.series_name})", NO_KERNEL) from error
    return replace(geometry, dilation=geometry.single_tap_dilation)


@contextmanager
def without_kernel() -> Iterator[None]:
    """Give errors of planning the status 561103: no kernel can do the shape."""
    try:
        yield
    except OperatorError as error:
        if error.status == NO_KERNEL:
            raise
        raise OperatorError(str(error), NO_KERNEL) from error


def conv_facts(plan: OperatorPlan, profile: str, **own: Value) -> dict[str, Value]:
    """Return what an explanation says of a call; ``own`` facts of the operator stand behind its groups."""
    resolved: Any = plan.resolved
    call = resolved.call
    return {
        "route": plan.route.name,
        "transposed": call.transposed,
        "groups": call.groups,
        **own,
        "promoted dtype": resolved.promoted_dtype,
        "cubeMathType": call.cube_math_type,
        "the Cube multiplies": resolved.compute_dtype,
        "workspace (bytes)": plan.workspace_bytes,
        "profile": profile,
    }

"""All results that a study knows."""

from __future__ import annotations

from collections.abc import Sequence

from ops.studies.convolution_kinds import CONVOLUTION_KINDS
from ops.studies.forward_kinds import FORWARD_KINDS
from ops.studies.kinds import Kind
from ops.studies.layers import AnyLayer, ResultName
from ops.studies.pooling_kinds import POOLING_KINDS

KINDS: tuple[Kind, ...] = (*CONVOLUTION_KINDS, *POOLING_KINDS, *FORWARD_KINDS)


def kinds_of(layer: AnyLayer, gradients: Sequence[ResultName] | None) -> tuple[Kind, ...]:
    """Return the results of a layer that are wanted and whose operands it has.

    Parameters
    ----------
    layer : Layer or PoolingLayer
        The layer.
    gradients : sequence of {"dx", "dw", "db", "y"} or None
        Which; None: those the layer names.
    """
    wanted = layer.gradients if gradients is None else gradients
    return tuple(
        kind
        for kind in KINDS
        if kind.operator == layer.operator and kind.gradient in wanted and kind.tensors(layer) is not None
    )

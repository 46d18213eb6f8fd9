"""Where the layers of a network come from: a table that ships, or a PyTorch model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npu_sim.errors import MissingExtraError
from ops.cli.model_files import guarded, model_and_loss
from ops.cli.shapes import DEFAULT_DTYPE, UsageError
from ops.studies.layers import GradientName
from ops.studies.network.step import (
    Make,
    StepLayer,
    TrainingStep,
    convolution_layer,
    folded,
    pooling_layer,
    step_of_table,
)

if TYPE_CHECKING:
    from ops.torch.layers import SeenConvolution, SeenPooling, SeenStep

DEFAULT_BATCHES = (8,)


def table_source(
    name: str, batches: Sequence[int], dtype: str | None, gradients: tuple[GradientName, ...] | None
) -> tuple[Make, tuple[int, ...]]:
    """Return what makes the steps of a network that ships, and the batches to time."""

    def make(batch: int, mode: int) -> TrainingStep:
        return step_of_table(name, batch, mode, dtype or DEFAULT_DTYPE, gradients)

    return make, tuple(batches) or DEFAULT_BATCHES


def model_source(
    source: str,
    inputs: Sequence[tuple[int, ...]],
    batches: Sequence[int],
    dtype: str | None,
    gradients: tuple[GradientName, ...] | None,
) -> tuple[Make, tuple[int, ...]]:
    """Return what makes the steps of a PyTorch model, and the batches to time.

    Parameters
    ----------
    source : str
        ``FILE.py:FUNCTION``.
    inputs : sequence of tuple of int
        Shapes of the model's inputs; () where the function returns them or a loss.
    batches : sequence of int
        Take the place of the first extent of every input.
    dtype : {"fp16", "bf16", "fp32"} or None
        Format of the tensors; None: as the model has them.
    gradients : tuple of {"dx", "dw", "db"} or None
        Of every convolution; None: those that the backward pass wants.

    Raises
    ------
    UsageError, ShapeError, MissingExtraError
        The file, the function or the model is none, or PyTorch is missing.
    """
    if batches and not inputs:
        raise UsageError("--batch must be given together with --model or --input")
    seen = {batch: _seen(source, [(batch, *shape[1:]) for shape in inputs]) for batch in batches}
    if not batches:
        own = _seen(source, inputs)
        seen = {_batch(own): own}

    def make(batch: int, mode: int) -> TrainingStep:
        step = seen[batch]
        layers = folded(_layer(layer, mode, dtype, gradients) for layer in step.layers)
        return TrainingStep(
            title=source,
            source="the layers that a forward and a backward pass call",
            batch=batch,
            layers=layers,
            untimed=step.others,
        )

    return make, tuple(seen)


def _seen(source: str, inputs: Sequence[tuple[int, ...]]) -> SeenStep:
    try:
        from ops.torch.layers import seen_layers
    except ImportError as error:
        raise MissingExtraError(
            "A PyTorch model must have PyTorch, which is not installed; run: pip install torch (the extra torch)"
        ) from error
    seen: SeenStep = guarded(source, lambda: seen_layers(lambda: model_and_loss(source, inputs)))
    return seen


def _batch(step: SeenStep) -> int:
    """Return the images of the first layer."""
    return step.layers[0].x_shape[0]


def _layer(
    layer: SeenConvolution | SeenPooling, mode: int, dtype: str | None, gradients: tuple[GradientName, ...] | None
) -> StepLayer:
    from ops.torch.layers import SeenPooling

    if isinstance(layer, SeenPooling):
        request = replace(layer.gradient, cube_math_type=mode, dtype=dtype or layer.gradient.dtype)
        return pooling_layer(layer.name, request, wants_gradient=layer.wants_gradient or gradients is not None)
    case = replace(layer.case, dtype=dtype or layer.case.dtype)
    return convolution_layer(
        case, layer.gradients if gradients is None else gradients, has_bias=layer.has_bias, cube_math_type=mode
    )

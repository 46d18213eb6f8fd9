"""Where the layers of a network come from: a table that ships, or a PyTorch model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npu_sim.errors import MissingExtraError
from ops.cli.model_files import guarded, model_and_loss, model_file
from ops.cli.shapes import DEFAULT_DTYPE
from ops.cli.usage import UsageError
from ops.studies.calls.linears import LinearRequest
from ops.studies.layers import GradientName
from ops.studies.network.step import (
    Make,
    StepLayer,
    TrainingStep,
    convolution_layer,
    folded,
    linear_layer,
    pooling_layer,
    step_of_table,
)

if TYPE_CHECKING:
    from ops.torch.layers import Seen, SeenStep

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
        Of every convolution and linear layer; None: those that the backward pass wants.

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
        seen = {inputs[0][0] if inputs else own.layers[0].x_shape[0]: own}

    def make(batch: int, mode: int) -> TrainingStep:
        step = seen[batch]
        layers = folded(step_layer(layer, batch, mode, dtype, gradients) for layer in step.layers)
        return TrainingStep(
            title=source,
            source="the layers that a forward and a backward pass call",
            batch=batch,
            layers=layers,
            untimed=step.others,
        )

    return make, tuple(seen)


def _seen(source: str, inputs: Sequence[tuple[int, ...]]) -> SeenStep:
    model_file(source)
    try:
        from ops.torch.layers import seen_layers
    except ImportError as error:
        raise MissingExtraError(
            "A PyTorch model must have PyTorch, which is not installed; run: pip install torch (the extra torch)"
        ) from error
    seen: SeenStep = guarded(source, lambda: seen_layers(lambda: model_and_loss(source, inputs)))
    return seen


def step_layer(
    layer: Seen, batch: int, mode: int, dtype: str | None, gradients: tuple[GradientName, ...] | None
) -> StepLayer:
    """Return a layer of a model as a step calls it, in ``dtype`` and for ``gradients`` if they are given."""
    from ops.torch.layers import SeenLinear, SeenPooling

    if isinstance(layer, SeenPooling):
        request = replace(layer.gradient, cube_math_type=mode, dtype=dtype or layer.gradient.dtype)
        return pooling_layer(layer.name, request, wants_gradient=layer.wants_gradient or gradients is not None)
    wanted = layer.gradients if gradients is None else gradients
    if isinstance(layer, SeenLinear):
        rows, features = layer.x_shape
        linear = LinearRequest(
            # of an image several rows: positions of a sequence
            x_shape=(rows, features) if rows % batch or rows == batch else (batch, rows // batch, features),
            out_features=layer.out_features,
            has_bias=layer.has_bias,
            dtype=dtype or layer.dtype,
            cube_math_type=mode,
        )
        return linear_layer(layer.name, linear, wanted)
    case = replace(layer.case, dtype=dtype or layer.case.dtype)
    return convolution_layer(case, wanted, has_bias=layer.has_bias, cube_math_type=mode)

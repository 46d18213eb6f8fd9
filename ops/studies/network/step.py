"""The calls that a training step of a network makes of the machine, layer by layer, equal ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from npu_sim.arguments import whole
from npu_sim.errors import InputFileError
from ops.studies.calls.convolutions import ConvolutionRequest, GradientRequest
from ops.studies.calls.linears import LinearGradientRequest, LinearRequest
from ops.studies.calls.planned import Request
from ops.studies.calls.poolings import PoolingGradientRequest, PoolingRequest
from ops.studies.cases import ConvCase, case_of_table
from ops.studies.layers import GRADIENTS, GradientName
from ops.studies.models.layers import ConvLayer, LinearLayer, PoolLayer
from ops.studies.models.tables import network


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayer:
    """A layer, and all layers of the step whose calls are the same.

    Attributes
    ----------
    names : tuple of str
        Of the layers, in forward order.
    forward : Request
        The call of the forward pass.
    backward : Request or None
        That of the backward pass; None where nobody wants a gradient.
    """

    names: tuple[str, ...]
    forward: Request
    backward: Request | None

    @property
    def count(self) -> int:
        """How often the step makes these calls."""
        return len(self.names)

    @property
    def label(self) -> str:
        """The first name, and how many more there are."""
        return self.names[0] if self.count == 1 else f"{self.names[0]} x{self.count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """The layers of one step.

    Attributes
    ----------
    title : str
        Name of the network.
    source : str
        Where its layers come from.
    batch : int
        Images.
    layers : tuple of StepLayer
        In forward order.
    untimed : mapping of str to int
        What else the step runs and the machine has no kernel for, by its name, with how often; empty where not known.
    """

    title: str
    source: str
    batch: int
    layers: tuple[StepLayer, ...]
    untimed: Mapping[str, int] = field(default_factory=dict)

    @property
    def layer_count(self) -> int:
        """Layers, equal ones counted each."""
        return sum(layer.count for layer in self.layers)

    def select(self, names: Sequence[str] | None) -> TrainingStep:
        """Return the step with these layers alone; None keeps all.

        Raises
        ------
        InputFileError
            If there is no such layer.
        """
        if names is None:
            return self
        known = [name for layer in self.layers for name in layer.names]
        for name in names:
            if name not in known:
                raise InputFileError(f"Layer must be one of {', '.join(known)}, not {name} ({self.title})")
        kept = [(layer, tuple(name for name in layer.names if name in names)) for layer in self.layers]
        return replace(self, layers=tuple(replace(layer, names=own) for layer, own in kept if own))


def folded(layers: Iterable[StepLayer]) -> tuple[StepLayer, ...]:
    """Return the layers with those that make the same calls as one, at the place of the first."""
    found: dict[str, StepLayer] = {}
    for layer in layers:
        key = f"{_key(layer.forward)} {_key(layer.backward)}"
        first = found.get(key)
        found[key] = layer if first is None else replace(first, names=(*first.names, *layer.names))
    return tuple(found.values())


def _key(request: Request | None) -> str:
    """Return what makes two calls the same, which their names do not."""
    return "" if request is None else f"{request.words} {dict(request.facts())}"


def convolution_layer(
    case: ConvCase, gradients: tuple[GradientName, ...], *, has_bias: bool, cube_math_type: int
) -> StepLayer:
    """Return the layer of a convolution of which a step wants these gradients."""
    backward = GradientRequest(case=case, gradients=gradients, cube_math_type=cube_math_type)
    return StepLayer(
        names=(case.name,),
        forward=ConvolutionRequest(case=case, has_bias=has_bias, cube_math_type=cube_math_type),
        backward=backward if gradients else None,
    )


def pooling_layer(name: str, gradient: PoolingGradientRequest, *, wants_gradient: bool) -> StepLayer:
    """Return the layer of an average pooling; ``gradient`` has its shapes and attributes."""
    own = {attribute.name: getattr(gradient, attribute.name) for attribute in fields(PoolingRequest)}
    return StepLayer(names=(name,), forward=PoolingRequest(**own), backward=gradient if wants_gradient else None)


def linear_layer(name: str, forward: LinearRequest, gradients: tuple[GradientName, ...]) -> StepLayer:
    """Return the layer of a linear one of which a step wants these gradients."""
    backward = LinearGradientRequest(
        x_shape=forward.x_shape,
        out_features=forward.out_features,
        dtype=forward.dtype,
        cube_math_type=forward.cube_math_type,
        gradients=gradients,
    )
    return StepLayer(names=(name,), forward=forward, backward=backward if gradients else None)


Make = Callable[[int, int], TrainingStep]
"""``make(batch, cube_math_type)``: a step of a network."""


def step_of_table(
    name: str, batch: int, cube_math_type: int, dtype: str, gradients: tuple[GradientName, ...] | None = None
) -> TrainingStep:
    """Return the step of a network that comes with the package.

    Parameters
    ----------
    name : str
        One of `ops.studies.models.tables.MODELS`.
    batch : int
        Images.
    cube_math_type : int
        0..3.
    dtype : {"fp16", "bf16", "fp32"}
        Format of the tensors.
    gradients : tuple of {"dx", "dw", "db"} or None
        Of every convolution and linear layer; None: those a step needs: dw, dx but of the first layer, db where there
        is a bias.

    Raises
    ------
    InputFileError, ShapeError, OperatorError
        There is no such network, batch or format.
    """
    table, images = network(name), whole("batch", batch)
    layers = []
    for number, layer in enumerate(table.layers):
        if isinstance(layer, PoolLayer):
            layers.append(_pooling(layer, images, cube_math_type, dtype))
            continue
        wanted = gradients or _needed(layer, is_first=number == 0)
        if isinstance(layer, LinearLayer):
            inputs, outputs = layer.features
            request = LinearRequest(
                x_shape=(images, inputs),
                out_features=outputs,
                has_bias=layer.bias,
                dtype=dtype,
                cube_math_type=cube_math_type,
            )
            layers.append(linear_layer(layer.name, request, wanted))
            continue
        case = case_of_table(layer, images, dtype)
        layers.append(convolution_layer(case, wanted, has_bias=layer.bias, cube_math_type=cube_math_type))
    return TrainingStep(title=table.title, source=table.source, batch=images, layers=folded(layers))


def _needed(layer: ConvLayer | LinearLayer, *, is_first: bool) -> tuple[GradientName, ...]:
    needed = {"dx": not is_first, "dw": True, "db": layer.bias}
    return tuple(gradient for gradient in GRADIENTS if needed[gradient])


def _pooling(layer: PoolLayer, batch: int, cube_math_type: int, dtype: str) -> StepLayer:
    channels, *extents = layer.x
    gradient = PoolingGradientRequest(
        x_shape=(batch, *layer.x),
        dy_shape=(batch, channels, *(extent // layer.kernel_size for extent in extents)),
        kernel_size=(layer.kernel_size,) * 2,
        stride=(layer.kernel_size,) * 2,
        padding=(0, 0),
        dtype=dtype,
        cube_math_type=cube_math_type,
    )
    return pooling_layer(layer.name, gradient, wants_gradient=True)

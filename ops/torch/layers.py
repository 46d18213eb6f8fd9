"""The layers of a model by their shapes: a forward and a backward pass of which no number is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils._pytree import tree_leaves, tree_map

from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import ShapeError, shown
from ops.studies.calls.poolings import PoolingGradientRequest
from ops.studies.cases import ConvCase
from ops.studies.layers import GRADIENTS, GradientName
from ops.torch.calls import convolution_attributes
from ops.torch.naming import ModuleNames, is_second_derivative

# PyTorch's types leave these out.
_aten: Any = torch.ops.aten
_modes: Any = _python_dispatch


@dataclass(slots=True, kw_only=True)
class SeenConvolution:
    """A convolution of a forward pass.

    Attributes
    ----------
    case : ConvCase
        Shapes, format and attributes; named after its module.
    has_bias : bool
        It adds a bias.
    gradients : tuple of {"dx", "dw", "db"}
        What the backward pass wanted of it.
    """

    case: ConvCase
    has_bias: bool
    gradients: tuple[GradientName, ...] = ()

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of the input."""
        return self.case.x_shape


@dataclass(slots=True, kw_only=True)
class SeenPooling:
    """A 2D average pooling of a forward pass.

    Attributes
    ----------
    name : str
        Of its module.
    gradient : PoolingGradientRequest
        Shapes, format and attributes, as the call of the backward pass has them.
    wants_gradient : bool
        The backward pass wanted the gradient of its input.
    """

    name: str
    gradient: PoolingGradientRequest
    wants_gradient: bool = False

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of the input."""
        return self.gradient.x_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLinear:
    """A product of two matrices of a forward pass, as linear layers are: rows of features, and a weight.

    Attributes
    ----------
    name : str
        Of its module.
    x_shape : tuple of int
        Rows and features that are multiplied.
    out_features : int
        Features of the output.
    dtype : str
        Format of the rows.
    has_bias : bool
        It adds a bias.
    gradients : tuple of {"dx", "dw", "db"}
        What of it requires a gradient.
    """

    name: str
    x_shape: tuple[int, ...]
    out_features: int
    dtype: str
    has_bias: bool
    gradients: tuple[GradientName, ...]


Seen = SeenConvolution | SeenPooling | SeenLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """What one training step of a model calls.

    Attributes
    ----------
    layers : tuple of SeenConvolution, SeenPooling or SeenLinear
        In forward order. A module that runs several times is there several times: ``conv``, ``conv#2``.
    others : dict of str to int
        What else its forward pass runs: modules by their class, operators outside of them by PyTorch's name.
    """

    layers: tuple[Seen, ...]
    others: dict[str, int]


Build = Callable[[], tuple[torch.nn.Module, Callable[[], torch.Tensor]]]
"""Makes a model, and a function that runs its forward pass and returns a scalar."""


def seen_layers(build: Build) -> SeenStep:
    """Return the convolutions, average poolings and linear layers of a model.

    Parameters
    ----------
    build : callable
        ``build() -> (model, loss)``. It and both passes run with tensors that have shapes and no elements, so that
        neither the model nor its activations take memory or time; what decides by an element's value cannot run so.

    Raises
    ------
    ShapeError
        The loss is no function, or returns no scalar that requires a gradient; there is no such layer.
    """
    mode = _Seeing()
    with torch.device("meta"), mode:
        model, loss = build()
        if not callable(loss):
            raise ShapeError(f"loss must be a function that runs the forward pass, not {type(loss).__name__}")
        with mode.following(model):
            value = loss()
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise ShapeError(f"loss must be a scalar that requires a gradient, not {shown(value)}")
            torch.autograd.backward(value)
    if not mode.layers:
        raise ShapeError("The model must run a convolution, a 2D average pooling or a linear layer, but has none")
    return SeenStep(layers=tuple(mode.layers), others=dict(mode.others.most_common()))


class _Seeing(_modes.TorchDispatchMode):  # type: ignore[misc]
    """Notes convolutions, average poolings and linear layers of a forward pass, and which gradients are wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.names: ModuleNames | None = None
        self.layers: list[Seen] = []
        self.others: Counter[str] = Counter()
        self._times: Counter[str] = Counter()
        # layers whose gradients are not asked for yet, by their modules; the last one's are asked for first
        self._pending: dict[str, list[SeenConvolution | SeenPooling]] = {}
        self._working: set[torch.nn.Module] = set()

    @contextmanager
    def following(self, model: torch.nn.Module) -> Iterator[None]:
        """Note what is called inside, by the modules of the model."""
        self.names = ModuleNames(model)
        hook = torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True)
        try:
            with self.names.follow():
                yield
        finally:
            hook.remove()
            self.names = None

    def _leave(self, module: torch.nn.Module, _inputs: object, _output: object) -> None:
        if module in self._working:
            self._working.discard(module)
            self.others[type(module).__name__] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let PyTorch find the shapes, of what has no elements and of what comes with some."""
        args, kwargs = _without_elements(args, kwargs or {})
        result = func(*args, **kwargs)
        if self.names is not None:
            self._see(self.names, func, args, result)
        return result

    def _see(self, names: ModuleNames, func: Any, args: Sequence[Any], result: Any) -> None:
        if func in (_aten.convolution.default, _aten.avg_pool2d.default):
            names.note(args)
            see = self._convolution if func is _aten.convolution.default else self._pooling
            layer = see(self._named(names.here), result, *args)
            self._pending.setdefault(names.here, []).append(layer)
            self.layers.append(layer)
        elif func in (_aten.addmm.default, _aten.mm.default) and names.is_forward:
            self.layers.append(self._linear(self._named(names.here), args[-2], args[-1], *args[:-2]))
        elif func is _aten.convolution_backward.default and not is_second_derivative():
            self._gradients(names.of_backward(args[2]), args[10])
        elif func is _aten.avg_pool2d_backward.default and not is_second_derivative():
            self._gradients(names.of_backward(None), ())
        elif names.is_forward and func.namespace == "aten" and not _is_view(func):
            self._other(func, names.running)

    def _other(self, func: Any, module: torch.nn.Module | None) -> None:
        if module is not None and not any(module.children()):
            self._working.add(module)
        elif module is not None:
            self.others[func.overloadpacket.__name__] += 1

    def _named(self, name: str) -> str:
        self._times[name] += 1
        return name if self._times[name] == 1 else f"{name}#{self._times[name]}"

    def _convolution(
        self,
        name: str,
        output: torch.Tensor,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *rest: Any,
    ) -> SeenConvolution:
        given = convolution_attributes(*rest)
        if not given["transposed"]:
            given["output_padding"] = ()
        case = ConvCase(
            name=name,
            x_shape=tuple(input.shape),
            dy_shape=tuple(output.shape),
            weight_shape=tuple(weight.shape),
            dtype=_format(input),
            **given,
        )
        return SeenConvolution(case=case, has_bias=bias is not None)

    def _pooling(
        self,
        name: str,
        output: torch.Tensor,
        input: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> SeenPooling:
        gradient = PoolingGradientRequest(
            x_shape=tuple(input.shape),
            dy_shape=tuple(output.shape),
            kernel_size=tuple(kernel_size),
            stride=tuple(stride or kernel_size),
            padding=tuple(padding),
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override or 0,
            dtype=_format(input),
        )
        return SeenPooling(name=name, gradient=gradient)

    def _linear(
        self, name: str, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> SeenLinear:
        parts = {"dx": input, "dw": weight, "db": bias}
        wanted = (name for name in GRADIENTS if (part := parts[name]) is not None and part.requires_grad)
        return SeenLinear(
            name=name,
            x_shape=tuple(input.shape),
            out_features=weight.shape[1],
            dtype=_format(input),
            has_bias=bias is not None,
            gradients=tuple(wanted) if torch.is_grad_enabled() else (),
        )

    def _gradients(self, name: str, mask: Sequence[bool]) -> None:
        """Note what the backward pass wants of the layer whose turn it is."""
        waiting = self._pending.get(name)
        if not waiting:
            return
        layer = waiting.pop()
        if isinstance(layer, SeenConvolution):
            layer.gradients = tuple(name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted)
        else:
            layer.wants_gradient = True


def _without_elements(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the arguments with tensors of a host as ones without elements, where others of them have none.

    A copy to another device stays where it is, so that models may name the device they run on.
    """
    leaves = tree_leaves((args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in leaves):
        return args, kwargs
    if kwargs.get("device") is not None:
        kwargs = kwargs | {"device": torch.device("meta")}
    args, kwargs = tree_map(
        lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) and leaf.dim() and not leaf.is_meta else leaf,
        (args, kwargs),
    )
    return args, kwargs


def _is_view(func: Any) -> bool:
    """Return whether an operator moves nothing; how rows of images are laid side by side is not marked as a view."""
    return func.is_view or func is _aten._unsafe_view.default


def _format(tensor: torch.Tensor) -> str:
    return get_dtype(tensor.dtype).name

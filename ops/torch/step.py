"""What a training step of a model gave its convolutions and poolings, kept in a file for ``npu-sim precision``."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _python_dispatch

from npu_sim.errors import ShapeError, shown
from npu_sim.report.files import check_writable, write_files
from npu_sim.report.record import counted, to_plain
from ops.common.arrays import shared_array
from ops.studies.layers import GRADIENTS, NOT_MEASURED
from ops.torch.calls import convolution_attributes
from ops.torch.naming import ModuleNames, is_second_derivative

# PyTorch's types leave these out.
_aten: Any = torch.ops.aten
_modes: Any = _python_dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What `capture` wrote.

    Attributes
    ----------
    path : Path
        File.
    layers : tuple of str
        Names in it, in the order of the backward pass.
    left_out : mapping of str to int
        Calls that the file has no place for, by kind.
    """

    path: Path
    layers: tuple[str, ...]
    left_out: Mapping[str, int]

    def __str__(self) -> str:
        text = f"{self.path}: {counted(len(self.layers), 'layer')}"
        if self.left_out:
            text += f"; not in it: {', '.join(f'{kind} {calls}' for kind, calls in self.left_out.items())}"
        return f"{text}. See: npu-sim precision {self.path}"


def capture(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor] | torch.Tensor,
    path: str | PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
) -> Captured:
    """Run a backward pass and write what it gave convolutions and average poolings, for ``npu-sim precision``.

    Parameters
    ----------
    model : torch.nn.Module
        Names the layers. Its gradients are left as they were, whatever they were.
    loss : callable or tensor
        A function without arguments that runs the forward pass and returns a scalar, such as
        ``lambda: cross_entropy(model(x), y)``, or the scalar itself, whose graph is used up.
    path : str or path
        The .npz file, see `ops.studies.capture`; it appears whole or not at all.
    metadata : mapping or None
        What the file shall say about itself: plain data.

    Returns
    -------
    Captured
        ``print`` it to see what to run next.

    Raises
    ------
    ShapeError
        The loss is no scalar that requires a gradient, or no convolution or average pooling needs a gradient.
    OutputFileError
        The file cannot be written.

    Notes
    -----
    Its metadata names the modules whose parameters got gradients that are not in it (`NOT_MEASURED`). It holds operands
    and gradients of convolutions, transposed convolutions and average poolings in float32,
    float16 or bfloat16, and which gradients the step wanted; calls in other types are counted in ``left_out``. Biases
    are in it where ``loss`` is a function. A module that runs several times has several layers: ``conv``, ``conv#2``.
    """
    return _captured(_Capture(ModuleNames(model)), lambda _mode: (model, loss), path, metadata)


def capture_built(
    build: Callable[[], tuple[torch.nn.Module, Callable[[], torch.Tensor] | torch.Tensor]], path: str | PathLike[str]
) -> Captured:
    """Call ``build``, which returns what `capture` takes, and do the same.

    A loss that ``build`` returns as a scalar has been made by then: its forward pass is followed, too, so that poolings
    have names and biases are in the file.
    """
    return _captured(_Capture(ModuleNames(None)), lambda mode: _followed(mode, build), path, None)


def _followed(mode: _Capture, build: Callable[[], Any]) -> Any:
    """Return the model and the loss, with the names of the model for what ran on the way."""
    mode.is_backward_kept = False  # of a training on the way
    model, loss = build()
    mode.is_backward_kept = True
    mode.names.adopt(model)
    return model, loss


def _captured(
    mode: _Capture,
    build: Callable[[_Capture], tuple[torch.nn.Module, Any]],
    path: str | PathLike[str],
    metadata: Mapping[str, Any] | None,
) -> Captured:
    target = Path(path)
    check_writable(target)
    with mode, mode.names.follow():
        model, loss = build(mode)
        kept = [parameter.grad for parameter in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = None
        try:
            value = loss() if callable(loss) else loss
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise ShapeError(f"loss must be a scalar that requires a gradient, not {_loss_words(value)}")
            torch.autograd.backward(value)
            left = _trained(model, mode.layers)
        finally:
            for parameter, gradient in zip(model.parameters(), kept, strict=True):
                parameter.grad = gradient
    if not mode.layers:
        rule = "The backward pass must need a gradient of a convolution or average pooling"
        raise ShapeError(f"{rule}, but {mode.left_out_text()}")
    about = {"loss": float(value.detach()), "torch": torch.__version__, NOT_MEASURED: left, **(metadata or {})}
    file = io.BytesIO()
    arrays: dict[str, Any] = {"metadata": np.array(json.dumps(to_plain(about)))}
    arrays |= {f"{name}.{role}": array for name, roles in mode.layers.items() for role, array in roles.items()}
    np.savez_compressed(file, **arrays)
    write_files({target: file.getvalue()})
    return Captured(path=target, layers=tuple(mode.layers), left_out=dict(mode.left_out))


def _loss_words(value: object) -> str:
    """Return what a loss is instead of a scalar, and what makes one of it."""
    if not isinstance(value, torch.Tensor):
        return shown(value)
    if value.numel() != 1:
        return f"a tensor of shape {tuple(value.shape)}; return its mean() or sum()"
    return "one without a gradient (made of no parameter, detached, or under torch.no_grad)"


def _trained(model: torch.nn.Module, layers: Iterable[str]) -> dict[str, list[str]]:
    """Return by class the modules whose own parameters got gradients that are not among ``layers``."""
    known = {name.partition("#")[0] for name in layers}
    found: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        has_gradient = any(parameter.grad is not None for parameter in module.parameters(recurse=False))
        if has_gradient and (name or "model") not in known:
            found.setdefault(type(module).__name__, []).append(name or "model")
    return found


class _Capture(_modes.TorchDispatchMode):  # type: ignore[misc]
    """Keeps the operands and the gradients of every backward call of a convolution or average pooling."""

    def __init__(self, names: ModuleNames) -> None:
        super().__init__()
        self.names = names
        self.is_backward_kept = True
        self.layers: dict[str, dict[str, np.ndarray]] = {}
        self.left_out: Counter[str] = Counter()
        self._times: Counter[str] = Counter()
        self._biases: dict[int, torch.Tensor | None] = {}

    def left_out_text(self) -> str:
        parts = ", ".join(f"{kind} {calls}" for kind, calls in self.left_out.items())
        return f"has only {parts}" if parts else "has none"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute everything with PyTorch."""
        result = func(*args, **(kwargs or {}))
        is_kept = self.is_backward_kept and not is_second_derivative()
        if func in (_aten.convolution.default, _aten.avg_pool2d.default):
            self.names.note(args)
            if func is _aten.convolution.default:
                # by its memory: a weight is kept for the backward pass, which is not told of the bias
                self._biases[args[1].data_ptr()] = args[2]
        elif func is _aten.convolution_backward.default and is_kept:
            self._keep_convolution(result, *args)
        elif func is _aten.avg_pool2d_backward.default and is_kept:
            self._keep_pooling(result, *args)
        return result

    def _keep_convolution(
        self,
        gradients: Sequence[torch.Tensor | None],
        grad_output: torch.Tensor,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias_sizes: object,
        *rest: Any,
    ) -> None:
        *attributes, output_mask = rest
        wanted = [name for name, is_wanted in zip(GRADIENTS, output_mask, strict=True) if is_wanted]
        if not wanted or self._has_other_type("convolutions", input):
            return
        made = dict(zip(("grad_input", "grad_weight", "grad_bias"), gradients, strict=True))
        bias = self._biases.get(weight.data_ptr())
        if bias is not None and bias.dtype != input.dtype:
            bias = None
        tensors = {"x": input, "dy": grad_output, "weight": weight, "bias": bias, **made}
        numbers = convolution_attributes(*attributes)
        self._keep(
            self.names.of_backward(weight),
            tensors,
            {role: np.array(value, np.int64) for role, value in numbers.items()} | {"gradients": np.array(wanted)},
        )

    def _keep_pooling(
        self,
        grad_input: torch.Tensor,
        grad_output: torch.Tensor,
        input: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> None:
        if self._has_other_type("average poolings", input):
            return
        numbers = {"x_shape": input.shape, "kernel_size": kernel_size, "padding": padding}
        numbers |= {"stride": tuple(stride) or kernel_size}
        flags = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        self._keep(
            self.names.of_backward(None),
            {"x": input, "dy": grad_output, "grad_input": grad_input},
            {role: np.array(tuple(value), np.int64) for role, value in numbers.items()}
            | {role: np.array(int(value)) for role, value in flags.items()}
            | {"divisor_override": np.array(divisor_override or 0)},
        )

    def _has_other_type(self, kind: str, tensor: torch.Tensor) -> bool:
        """Count a call in a type that a file has no place for."""
        if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16):
            return False
        self.left_out[f"{kind} in {str(tensor.dtype).removeprefix('torch.')}"] += 1
        return True

    def _keep(
        self, name: str, tensors: Mapping[str, torch.Tensor | None], attributes: Mapping[str, np.ndarray]
    ) -> None:
        self._times[name] += 1
        if self._times[name] > 1:
            name = f"{name}#{self._times[name]}"
        # what follows in the backward pass may use their memory again
        arrays = {
            role: np.array(shared_array(tensor, role), order="C")
            for role, tensor in tensors.items()
            if tensor is not None
        }
        self.layers[name] = arrays | dict(attributes)

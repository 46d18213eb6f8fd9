"""What a training step of a model gave its convolutions, kept in a file for ``npu-sim precision``."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    """Run a backward pass and write what it gave every convolution to a file for ``npu-sim precision``.

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
        The loss is no scalar that requires a gradient, or no convolution needs a weight gradient.
    OutputFileError
        The file cannot be written.

    Notes
    -----
    The file holds weight gradients of ordinary convolutions in float32, float16 or bfloat16. Transposed convolutions,
    other types, and layers whose weight is frozen are counted in ``left_out``. A module that runs several times has
    several layers: ``conv``, ``conv#2``.
    """
    target = Path(path)
    check_writable(target)
    mode = _Capture(ModuleNames(model))
    kept = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    try:
        with mode, mode.names.follow():
            value = loss() if callable(loss) else loss
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise ShapeError(f"loss must be a scalar that requires a gradient, not {shown(value)}")
            torch.autograd.backward(value)
    finally:
        for parameter, gradient in zip(model.parameters(), kept, strict=True):
            parameter.grad = gradient
    if not mode.layers:
        raise ShapeError(f"The backward pass must need a weight gradient of a convolution, but {mode.left_out_text()}")
    about = {"loss": float(value.detach()), "torch": torch.__version__, **(metadata or {})}
    file = io.BytesIO()
    arrays: dict[str, Any] = {"metadata": np.array(json.dumps(to_plain(about)))}
    arrays |= {f"{name}.{role}": array for name, roles in mode.layers.items() for role, array in roles.items()}
    np.savez_compressed(file, **arrays)
    write_files({target: file.getvalue()})
    return Captured(path=target, layers=tuple(mode.layers), left_out=dict(mode.left_out))


class _Capture(_modes.TorchDispatchMode):  # type: ignore[misc]
    """Keeps the operands and the weight gradient of every convolution's backward call."""

    def __init__(self, names: ModuleNames) -> None:
        super().__init__()
        self.names = names
        self.layers: dict[str, dict[str, np.ndarray]] = {}
        self.left_out: Counter[str] = Counter()
        self._times: Counter[str] = Counter()

    def left_out_text(self) -> str:
        parts = ", ".join(f"{kind} {calls}" for kind, calls in self.left_out.items())
        return f"has only {parts}" if parts else "has no convolution"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute everything with PyTorch."""
        result = func(*args, **(kwargs or {}))
        if func is _aten.convolution.default:
            self.names.note_forward()
        elif func is _aten.convolution_backward.default and not is_second_derivative():
            self._keep(result[1], *args)
        return result

    def _keep(
        self,
        grad_weight: torch.Tensor | None,
        grad_output: torch.Tensor,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias_sizes: object,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: object,
        groups: int,
        output_mask: Sequence[bool],
    ) -> None:
        if not output_mask[1] or grad_weight is None:
            self.left_out["frozen weights"] += 1
        elif transposed:
            self.left_out["transposed convolutions"] += 1
        elif input.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            self.left_out[f"convolutions in {str(input.dtype).removeprefix('torch.')}"] += 1
        else:
            name = self.names.of_backward(weight)
            self._times[name] += 1
            if self._times[name] > 1:
                name = f"{name}#{self._times[name]}"
            tensors = {"x": input, "dy": grad_output, "grad_weight": grad_weight}
            # what follows in the backward pass may use their memory again
            arrays = {role: np.array(shared_array(tensor, role), order="C") for role, tensor in tensors.items()}
            numbers = {"weight_shape": weight.shape, "stride": stride, "padding": padding, "dilation": dilation}
            integers = {role: np.array(tuple(value), np.int64) for role, value in numbers.items()}
            self.layers[name] = arrays | integers | {"groups": np.array(groups)}

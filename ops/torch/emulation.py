"""The backward pass of an unmodified model with its convolutions and average poolings on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal

import ml_dtypes
import numpy as np
import torch
from torch.utils import _python_dispatch

import ops
from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.cube_math import CubeMathType, cube_math_number
from npu_sim.dtypes.formats import dtype_name
from npu_sim.engines.execute import Overflow
from npu_sim.errors import InternalError, NpuSimError, OperatorError, ShapeError, shown
from npu_sim.products import Product, current_product, get_product
from ops.common.arrays import shared_array
from ops.common.rule import Profile
from ops.studies.rounding import multiplied
from ops.torch.naming import ModuleNames, is_second_derivative
from ops.torch.record import Record

# PyTorch's types leave these out.
_aten: Any = torch.ops.aten
_modes: Any = _python_dispatch
Choice = Literal["raise", "torch"]
Tensors = tuple["torch.Tensor | None", ...]

_FORWARD = (_aten.convolution.default, _aten.avg_pool2d.default)
"""Operators of a forward pass whose gradients are emulated."""
_OTHER = ("conv", "pool", "mm", "addmv", "dot")
"""Operators with one of these in their name compute what the Cube or a pooling kernel would."""
_GRADIENTS = ("input", "weight", "bias")
_READ_BY = ((0, 2), (0, 1), (0,))
"""Which of grad_output, input and weight each gradient of a convolution is computed from."""


def emulate(
    *,
    product: str | Product | None = None,
    cube_math_type: int | str | CubeMathType = 0,
    model: torch.nn.Module | None = None,
    compare: bool = False,
    refused: Choice = "raise",
    uncovered: Choice = "torch",
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
    profile: Profile = "page",
) -> Emulation:
    """Return a context in which gradients of convolutions and average poolings are computed on the emulated machine.

    Inside, ``aten.convolution_backward`` (1D, 2D, 3D, transposed, grouped; what ``loss.backward()`` calls for any
    convolution, in float32, float16 or bfloat16, under autocast, with frozen parameters, in every memory format) is
    `ops.convolution_backward` and ``aten.avg_pool2d_backward`` is `ops.avg_pool2d_backward`, with the same bits. All
    else is PyTorch's: forward passes, other layers, second derivatives; what of it a device would compute on the Cube
    or in a pooling kernel is counted in `Emulation.record`.

    Parameters
    ----------
    product : str, Product or None
        SoC name, series alias or generation ("A2"); None: the product of `npu_sim.use_product`, else Ascend910B2.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16 (also "fp16"), 3 USE_HF32 (also "hf32").
    model : torch.nn.Module or None
        Names the modules; None: names below the outermost module that is called inside.
    compare : bool
        Compute every gradient also with PyTorch, in its own type and in float64, and measure the errors. That takes
        PyTorch's time for both, and the gradients that are returned stay the emulated ones.
    refused : {"raise", "torch"}
        What becomes of a call that the operator refuses on this product: its error, or PyTorch's gradient and a line
        in the record.
    uncovered : {"raise", "torch"}
        Likewise for gradients of convolutions and poolings that are not emulated: other poolings, second derivatives.
    accumulation, overflow, threads, profile
        As of `ops.convolution_backward`.

    Raises
    ------
    ProductError, ShapeError
        A name or number is none.

    Examples
    --------
    >>> import torch, ops.torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.AvgPool2d(2))
    >>> with ops.torch.emulate(product="910b", cube_math_type=1, model=model, compare=True) as run:
    ...     model(torch.ones(1, 1, 8, 8)).sum().backward()
    >>> [(row.module, row.gradient, row.compute_dtype) for row in run.record.rows.values()]
    [('1', 'input', 'hf32'), ('0', 'weight', 'hf32'), ('0', 'bias', 'hf32')]
    """
    for name, choice in (("refused", refused), ("uncovered", uncovered)):
        if choice not in ("raise", "torch"):
            raise ShapeError(f"{name} must be 'raise' or 'torch', not {shown(choice)}")
    chip = current_product() if product is None else get_product(product)
    number = cube_math_number("cube_math_type", cube_math_type)
    if number not in list(CubeMathType):
        raise ShapeError(f"cube_math_type must be in [0, {max(CubeMathType)}], not {number}")
    options = {"product": chip, "cube_math_type": number, "accumulation": accumulation, "overflow": overflow}
    options |= {"threads": threads, "profile": profile}
    return Emulation(options, ModuleNames(model), compare=compare, refused=refused, uncovered=uncovered)


class Emulation(_modes.TorchDispatchMode):  # type: ignore[misc]
    """What `emulate` returns; may be entered again, and then goes on with its record.

    Attributes
    ----------
    record : Record
        Errors by module, refusals, and what PyTorch computed; ``print(run.record)``, ``run.record.to_json()``.
    emulator_seconds, reference_seconds : float
        Host time of the emulated operators, and of PyTorch's for the comparison.
    """

    def __init__(
        self, options: Mapping[str, Any], names: ModuleNames, *, compare: bool, refused: Choice, uncovered: Choice
    ) -> None:
        super().__init__()
        self._options = dict(options)
        self._names = names
        self._compare, self._refused, self._uncovered = compare, refused, uncovered
        self._following: list[ExitStack] = []
        self.clear()

    def clear(self) -> None:
        """Begin a new record."""
        chip, accumulation = self._options["product"], self._options["accumulation"]
        self.record = Record(
            product=chip.name,
            cube_math_type=CubeMathType(self._options["cube_math_type"]).name,
            accumulation="" if accumulation is None else str(getattr(accumulation, "name", accumulation)),
        )
        self.emulator_seconds = self.reference_seconds = 0.0

    def __enter__(self) -> Emulation:
        stack = ExitStack()
        stack.enter_context(self._names.follow())
        self._following.append(stack)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._following.pop().close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute what is covered on the machine and hand all else to PyTorch."""
        given = kwargs or {}
        if func in _FORWARD:
            self._names.note_forward()
        elif func is _aten.convolution_backward.default and not is_second_derivative():
            return self._convolution(func, *args, **given)
        elif func is _aten.avg_pool2d_backward.default and not is_second_derivative():
            return self._pooling(func, *args, **given)
        name = func.overloadpacket.__name__
        if any(part in name for part in _OTHER):
            self._pass_by(name, func)
        return func(*args, **given)

    def _pass_by(self, name: str, func: Any) -> None:
        """Note what PyTorch computes, or refuse it if it is a gradient."""
        second = is_second_derivative()
        module = self._names.of_backward() if "backward" in name or second else self._names.here
        if self._uncovered == "raise" and ("backward" in name or (second and func in _FORWARD)):
            what = f"the second derivative ({name})" if second else name
            raise OperatorError(
                f"Gradients under ops.torch.emulate must be of convolution or avg_pool2d, not {what} of {module}; "
                "uncovered='torch' leaves others to PyTorch",
                161002,
            )
        self.record.native[module, f"{name} (second derivative)" if second else name] += 1

    def _convolution(
        self,
        func: Any,
        grad_output: torch.Tensor,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias_sizes: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
        output_mask: Sequence[bool],
    ) -> Tensors:
        rest = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
        tensors = (grad_output, input, weight)

        def run() -> tuple[Sequence[np.ndarray | None], str]:
            result = ops.convolution_backward(
                *tensors,
                stride=tuple(stride),
                padding=tuple(padding),
                dilation=tuple(dilation),
                transposed=transposed,
                output_padding=tuple(output_padding),
                groups=groups,
                output_mask=tuple(output_mask),
                bias_sizes=bias_sizes or None,
                **self._options,
            )
            return (result.grad_input, result.grad_weight, result.grad_bias), result.compute_dtype

        def native(double: bool) -> Tensors:
            return tuple(func(*(_doubled(tensors) if double else tensors), *rest))

        return self._emulated("convolution_backward", tensors, _READ_BY, run, native)

    def _pooling(
        self,
        func: Any,
        grad_output: torch.Tensor,
        input: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> torch.Tensor | None:
        rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        tensors = (grad_output, input)

        def run() -> tuple[Sequence[np.ndarray | None], str]:
            result = ops.avg_pool2d_backward(
                *tensors,
                kernel_size=tuple(kernel_size),
                stride=tuple(stride),
                padding=tuple(padding),
                ceil_mode=ceil_mode,
                count_include_pad=count_include_pad,
                divisor_override=divisor_override,
                **self._options,
            )
            return (result.grad_input,), result.compute_dtype

        def native(double: bool) -> Tensors:
            return (func(*(_doubled(tensors) if double else tensors), *rest),)

        return self._emulated("avg_pool2d_backward", tensors, _READ_BY[2:], run, native)[0]

    def _emulated(
        self,
        operator: str,
        tensors: tuple[torch.Tensor, ...],
        read_by: Sequence[tuple[int, ...]],
        run: Callable[[], tuple[Sequence[np.ndarray | None], str]],
        native: Callable[[bool], Tensors],
    ) -> Tensors:
        """Run an operator and note it; ``native`` is PyTorch's, in float64 if it is given True."""
        module = self._names.of_backward(tensors[2] if len(tensors) > 2 else None)
        begin = time.perf_counter()
        try:
            gradients, compute_dtype = run()
        except InternalError:
            raise
        except NpuSimError as error:
            if self._refused == "raise":
                raise
            self.record.refuse(module, operator, error.status, str(error))
            return native(False)
        seconds = time.perf_counter() - begin
        self.emulator_seconds += seconds
        rows = [
            None
            if gradient is None
            else self.record.row(module, operator, name, dtype_name(gradient.dtype), compute_dtype)
            for name, gradient in zip(_GRADIENTS, gradients, strict=False)
        ]
        for row, gradient in zip(rows, gradients, strict=True):
            if row is not None and gradient is not None:
                row.calls += 1
                row.elements += gradient.size
                row.seconds += seconds
        if self._compare:
            begin = time.perf_counter()
            own, golden = native(False), native(True)
            self.reference_seconds += time.perf_counter() - begin
            operands = [shared_array(tensor, "a tensor") for tensor in tensors]
            chip = self._options["product"]
            cast = [multiplied(operand, compute_dtype, chip) for operand in operands]
            for row, gradient, mine, exact, read in zip(rows, gradients, own, golden, read_by, strict=False):
                if row is None or gradient is None or mine is None or exact is None:
                    continue
                row.compare(*(_wide(shared_array(value, "a gradient")) for value in (gradient, mine, exact)))
                if row.gradient != "bias":
                    for index in read:
                        row.count_lost(operands[index], cast[index])
        return tuple(None if gradient is None else _tensor(gradient) for gradient in gradients)


def _doubled(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().double() for tensor in tensors]


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor that shares the memory of a result."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)

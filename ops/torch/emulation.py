"""An unmodified model with its convolutions and average poolings, or their gradients alone, on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
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
from ops.torch.record import Record, ResultRow

# PyTorch's types leave these out.
_aten: Any = torch.ops.aten
_modes: Any = _python_dispatch
Choice = Literal["raise", "torch"]
Tensors = tuple["torch.Tensor | None", ...]

_FORWARD = (_aten.convolution.default, _aten.avg_pool2d.default)
"""Operators of a forward pass whose gradients are emulated."""
_BACKWARD = (_aten.convolution_backward.default, _aten.avg_pool2d_backward.default)
_OTHER = ("conv", "pool", "mm", "addmv", "dot")
"""Operators with one of these in their name compute what the Cube or a pooling kernel would."""
_MULTIPLIED = {"output": (0, 1), "grad_input": (0, 2), "grad_weight": (0, 1), "grad_bias": ()}
"""Which tensors of a call the Cube multiplies for a result: of (input, weight), or of (grad_output, input, weight)."""


def emulate(
    *,
    product: str | Product | None = None,
    cube_math_type: int | str | CubeMathType = 0,
    model: torch.nn.Module | None = None,
    forward: bool = False,
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
    `ops.convolution_backward` and ``aten.avg_pool2d_backward`` is `ops.avg_pool2d_backward`, with the same bits; with
    ``forward`` so are ``aten.convolution`` and ``aten.avg_pool2d``. All else is PyTorch's: other layers, second
    derivatives; what of it a device would compute on the Cube or in a pooling kernel is counted in `Emulation.record`.
    After ``torch.use_deterministic_algorithms(True)`` gradients are those of the deterministic mode.

    Parameters
    ----------
    product : str, Product or None
        SoC name, series alias or generation ("A2"); None: the product of `npu_sim.use_product`, else Ascend910B2.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16 (also "fp16"), 3 USE_HF32 (also "hf32").
    model : torch.nn.Module or None
        Names the modules; None: names below the outermost module that is called inside.
    forward : bool
        Emulate the forward pass of convolutions and average poolings too.
    compare : bool
        Compute every result also with PyTorch, in its own type and in float64, and measure the errors. That takes
        PyTorch's time for both, and what the model gets stays the emulated one.
    refused : {"raise", "torch"}
        What becomes of a call that the operator refuses on this product: its error, or PyTorch's result and a line
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
    >>> [(row.module, row.result, row.compute_dtype) for row in run.record.rows.values()]
    [('1', 'grad_input', 'hf32'), ('0', 'grad_weight', 'hf32'), ('0', 'grad_bias', 'hf32')]
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
    return Emulation(
        options, ModuleNames(model), forward=forward, compare=compare, refused=refused, uncovered=uncovered
    )


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
        self,
        options: Mapping[str, Any],
        names: ModuleNames,
        *,
        forward: bool,
        compare: bool,
        refused: Choice,
        uncovered: Choice,
    ) -> None:
        super().__init__()
        self._options = dict(options)
        self._names = names
        self._compare, self._refused, self._uncovered = compare, refused, uncovered
        self._covered: dict[Any, Callable[..., Any]] = {
            _aten.convolution_backward.default: self._convolution_backward,
            _aten.avg_pool2d_backward.default: self._pooling_backward,
        }
        if forward:
            self._covered |= {_aten.convolution.default: self._convolution, _aten.avg_pool2d.default: self._pooling}
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
        if func in self._covered and not is_second_derivative():
            return self._covered[func](func, *args, **given)
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
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
    ) -> torch.Tensor | None:
        def run() -> Any:
            return ops.convolution(
                input,
                weight,
                bias,
                stride=tuple(stride),
                padding=tuple(padding),
                dilation=tuple(dilation),
                transposed=transposed,
                output_padding=tuple(output_padding),
                groups=groups,
                **self._options,
            )

        rest = (stride, padding, dilation, transposed, output_padding, groups)
        return self._emulated(func, (input, weight, bias), rest, ("output",), run)[0]

    def _convolution_backward(
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
        tensors = (grad_output, input, weight)

        def run() -> Any:
            return ops.convolution_backward(
                *tensors,
                stride=tuple(stride),
                padding=tuple(padding),
                dilation=tuple(dilation),
                transposed=transposed,
                output_padding=tuple(output_padding),
                groups=groups,
                output_mask=tuple(output_mask),
                bias_sizes=bias_sizes or None,
                deterministic=torch.are_deterministic_algorithms_enabled(),
                **self._options,
            )

        rest = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
        return self._emulated(func, tensors, rest, ("grad_input", "grad_weight", "grad_bias"), run)

    def _pooling(
        self,
        func: Any,
        input: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> torch.Tensor | None:
        rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return self._emulated(func, (input,), rest, ("output",), self._pool(ops.avg_pool2d, (input,), rest))[0]

    def _pooling_backward(
        self, func: Any, grad_output: torch.Tensor, input: torch.Tensor, *rest: Any
    ) -> torch.Tensor | None:
        tensors = (grad_output, input)
        operator = partial(ops.avg_pool2d_backward, deterministic=torch.are_deterministic_algorithms_enabled())
        run = self._pool(operator, tensors, rest)
        return self._emulated(func, tensors, rest, ("grad_input",), run)[0]

    def _pool(self, operator: Callable[..., Any], tensors: Tensors, rest: Sequence[Any]) -> Callable[[], Any]:
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override = rest
        return lambda: operator(
            *tensors,
            kernel_size=tuple(kernel_size),
            stride=tuple(stride),
            padding=tuple(padding),
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
            **self._options,
        )

    def _emulated(
        self, func: Any, tensors: Tensors, rest: Sequence[Any], names: Sequence[str], run: Callable[[], Any]
    ) -> Tensors:
        """Return what ``run`` computes and note it; PyTorch computes the same by ``func(*tensors, *rest)``."""
        operator = func.overloadpacket.__name__
        if func in _BACKWARD:
            module = self._names.of_backward(tensors[2] if len(tensors) > 2 else None)
        else:
            module = self._names.here
        begin = time.perf_counter()
        try:
            result = run()
        except InternalError:
            raise
        except NpuSimError as error:
            if self._refused == "raise":
                raise
            self.record.refuse(module, operator, error.status, str(error))
            return _several(func(*tensors, *rest))
        seconds = time.perf_counter() - begin
        self.emulator_seconds += seconds
        arrays = [getattr(result, name) for name in names]
        rows: list[tuple[int, ResultRow]] = []
        for index, (name, array) in enumerate(zip(names, arrays, strict=True)):
            if array is not None:
                row = self.record.row(module, operator, name, dtype_name(array.dtype), result.compute_dtype)
                row.calls += 1
                row.elements += array.size
                row.seconds += seconds
                rows.append((index, row))
        if self._compare:
            begin = time.perf_counter()
            own = _several(func(*tensors, *rest))
            golden = _several(func(*map(_doubled, tensors), *rest))
            self.reference_seconds += time.perf_counter() - begin
            for index, row in rows:
                row.compare(*(_wide(values[index]) for values in (arrays, own, golden)))
                for operand in _MULTIPLIED[row.result]:
                    if operand < len(tensors):
                        original = shared_array(tensors[operand], "an operand")
                        row.count_lost(original, multiplied(original, row.compute_dtype, self._options["product"]))
        return tuple(None if array is None else _tensor(array) for array in arrays)


def _several(result: Any) -> Tensors:
    """Return the results of an operator, also of one that has only one."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _doubled(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().double()


def _wide(values: Any) -> np.ndarray:
    return np.asarray(shared_array(values, "a result")).astype(np.float64)


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor that shares the memory of a result."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)

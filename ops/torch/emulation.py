"""An unmodified model with its convolutions and average poolings, or their gradients alone, on the machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal

import ml_dtypes
import numpy as np
import torch
from torch.utils import _python_dispatch

from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.cube_math import CubeMathType, cube_math_number
from npu_sim.dtypes.formats import dtype_name
from npu_sim.engines.execute import Overflow
from npu_sim.errors import InternalError, NpuSimError, OperatorError, ShapeError, shown
from npu_sim.products import Product, current_product, get_product
from ops.common.arrays import shared_array
from ops.common.rule import Profile
from ops.studies.rounding import multiplied
from ops.torch.calls import BACKWARD, FORWARD, PRODUCTS, Call, Tensors, matrix_product
from ops.torch.naming import ModuleNames
from ops.torch.record import Record, ResultRow

# PyTorch's types leave it out.
_modes: Any = _python_dispatch
Choice = Literal["raise", "torch"]

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_OTHER = ("conv", "pool", "mm", "addmv", "dot")
"""Operators with one of these in their name compute what the Cube or a pooling kernel would."""


def emulate(
    *,
    product: str | Product | None = None,
    cube_math_type: int | str | CubeMathType = 0,
    model: torch.nn.Module | None = None,
    forward: bool = False,
    linear: bool = False,
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
    ``forward`` so are ``aten.convolution`` and ``aten.avg_pool2d``, with ``linear`` matrix products are
    `ops.matrix_product`: ``aten.mm``, ``addmm`` and ``bmm``, what linear layers and attention are made of, in both
    passes. All else is PyTorch's: other layers, second derivatives; what of it a device would compute on the Cube or in
    a pooling kernel is counted in `Emulation.record`. After ``torch.use_deterministic_algorithms(True)`` gradients are
    those of the deterministic mode. It holds for the thread that enters it; compiled models run uncompiled in it.

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
    linear : bool
        Emulate matrix products: linear layers, their gradients, attention. The kernel is that of A2 and A3; other
        products refuse it. The bias's gradient and products with more than a bias added are PyTorch's.
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
        options,
        ModuleNames(model),
        forward=forward,
        linear=linear,
        compare=compare,
        refused=refused,
        uncovered=uncovered,
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
        linear: bool,
        compare: bool,
        refused: Choice,
        uncovered: Choice,
    ) -> None:
        super().__init__()
        self._options = dict(options)
        self._names = names
        self._compare, self._refused, self._uncovered = compare, refused, uncovered
        self._covered = {**BACKWARD, **FORWARD} if forward else BACKWARD
        self._products = PRODUCTS if linear else ()
        # by operators of a step, each of which takes a while to hash
        self._roles: dict[Any, tuple[Any, bool, bool, bool]] = {}
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
        if torch.is_inference_mode_enabled() and (parts := self._parts(func, args, given)) is not NotImplemented:
            return parts
        if (role := self._roles.get(func)) is None:
            role = self._roles[func] = self._role_of(func)
        made, is_product, is_noted, is_computed = role
        call = None
        if (made is not None or is_product) and not self._names.is_second_derivative:
            if made is not None:
                call = made(*args, **given)
            else:
                call = matrix_product(self._names.product_result(*args[-2:]), *args, **given)
        if is_noted:
            self._names.note(args, is_product=is_product)
        if call is not None:
            return self._emulated(func, call)
        if is_computed:
            self._pass_by(func.overloadpacket.__name__, func)
        return func(*args, **given)

    def _role_of(self, func: Any) -> tuple[Any, bool, bool, bool]:
        """Return what makes the call of an operator, whether it is a product, is noted, and runs on Cube or pools."""
        is_product = func in self._products
        is_computed = any(part in func.overloadpacket.__name__ for part in _OTHER)
        return self._covered.get(func), is_product, is_product or func in FORWARD, is_computed

    def _parts(self, func: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Return what the operators compute that ``func`` is made of, which PyTorch leaves whole in inference mode."""
        super().__enter__()
        try:
            return func.decompose(*args, **given)
        finally:
            super().__exit__(None, None, None)

    def _pass_by(self, name: str, func: Any) -> None:
        """Note what PyTorch computes, or refuse it if it is a gradient."""
        second = self._names.is_second_derivative
        module = self._names.of_backward() if "backward" in name or second else self._names.here
        if self._uncovered == "raise" and (
            "backward" in name or (second and (func in FORWARD or func in self._products))
        ):
            what = f"the second derivative ({name})" if second else name
            raise OperatorError(
                f"Gradients under ops.torch.emulate must be of convolution or avg_pool2d, not {what} of {module}; "
                "uncovered='torch' leaves others to PyTorch",
                161002,
            )
        self.record.native[module, f"{name} (second derivative)" if second else name] += 1

    def _emulated(self, func: Any, call: Call) -> Any:
        """Return what the machine computes and note it."""
        operator = func.overloadpacket.__name__
        if func in BACKWARD:
            module = self._names.of_backward(call.tensors[2] if len(call.tensors) > 2 else None)
        elif func in PRODUCTS and not self._names.is_forward:
            module = self._names.of_backward()
        else:
            module = self._names.here
        begin = time.perf_counter()
        try:
            arrays, compute_dtype = call.run(self._options)
        except InternalError:
            raise
        except NpuSimError as error:
            if self._refused == "raise":
                # of which call of a model the rule speaks, only this place knows
                error.args = (f"{operator} of {module}: {error}", *error.args[1:])
                raise
            self.record.refuse(module, operator, error.status, str(error))
            return func(*call.tensors, *call.rest)
        seconds = time.perf_counter() - begin
        self.emulator_seconds += seconds
        rows: list[tuple[int, ResultRow]] = []
        for index, (name, array) in enumerate(zip(call.results, arrays, strict=True)):
            if array is not None:
                row = self.record.row(module, operator, name, dtype_name(array.dtype), compute_dtype)
                row.calls += 1
                row.elements += array.size
                row.seconds += seconds
                rows.append((index, row))
        if self._compare:
            begin = time.perf_counter()
            own = _several(func(*call.tensors, *call.rest))
            golden = _several(func(*map(_doubled, call.tensors), *call.rest))
            self.reference_seconds += time.perf_counter() - begin
            for index, row in rows:
                row.compare(*(_wide(values[index]) for values in (arrays, own, golden)))
                for operand in call.multiplied[row.result]:
                    original = shared_array(call.tensors[operand], "an operand")
                    row.count_lost(original, multiplied(original, compute_dtype, self._options["product"]))
        kept = _memory_format(call.tensors[1:] if func in BACKWARD else call.tensors)
        results = [None if array is None else _in_format(_tensor(array), kept) for array in arrays]
        return results[0] if len(results) == 1 else tuple(results)


def _several(result: Any) -> Tensors:
    """Return the results of an operator, also of one that has only one."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _doubled(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().double()


def _wide(values: Any) -> np.ndarray:
    return np.asarray(shared_array(values, "a result")).astype(np.float64)


def _memory_format(tensors: Tensors) -> torch.memory_format | None:
    """Return the channels-last format that PyTorch's results have, because an operand has it; None for none."""
    for tensor in tensors:
        if tensor is None or (kept := _CHANNELS_LAST.get(tensor.dim())) is None:
            continue
        if not tensor.is_contiguous() and tensor.is_contiguous(memory_format=kept):
            return kept
    return None


def _in_format(tensor: torch.Tensor, kept: torch.memory_format | None) -> torch.Tensor:
    return tensor if kept is None or _CHANNELS_LAST.get(tensor.dim()) != kept else tensor.contiguous(memory_format=kept)


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor that shares the memory of a result."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)

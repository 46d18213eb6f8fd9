"""Which of PyTorch's operators are emulated, and how their arguments become those of the machine's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import ops

# PyTorch's types leave it out.
_aten: Any = torch.ops.aten
Tensors = tuple["torch.Tensor | None", ...]
Computed = tuple[Sequence[Any], str]
"""Results of an operator, None for those that nobody wants, and what the Cube multiplied."""

PRODUCTS = (_aten.mm.default, _aten.addmm.default, _aten.bmm.default)
"""Matrix products, whose gradients are matrix products."""
_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of an operator of PyTorch that the machine computes.

    Attributes
    ----------
    tensors, rest : tuple
        Arguments: PyTorch computes the same by ``func(*tensors, *rest)``.
    results : tuple of str
        Their names, in the order of ``run``.
    multiplied : mapping of str to tuple of int
        Which of ``tensors`` the Cube multiplies for a result.
    run : callable
        ``run(options)`` computes it on the machine.
    """

    tensors: Tensors
    rest: tuple[Any, ...]
    results: tuple[str, ...]
    multiplied: Mapping[str, tuple[int, ...]]
    run: Callable[[Mapping[str, Any]], Computed]


def convolution(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> Call:
    """Return ``aten.convolution`` as `ops.convolution`."""

    def run(options: Mapping[str, Any]) -> Computed:
        result = ops.convolution(input, weight, bias, **convolution_attributes(*rest), **options)
        return (result.output,), result.compute_dtype

    return Call(tensors=(input, weight, bias), rest=rest, results=("output",), multiplied={"output": (0, 1)}, run=run)


def convolution_backward(
    grad_output: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, bias_sizes: Sequence[int] | None, *rest: Any
) -> Call:
    """Return ``aten.convolution_backward`` as `ops.convolution_backward`."""
    tensors = (grad_output, input, weight)
    *attributes, output_mask = rest

    def run(options: Mapping[str, Any]) -> Computed:
        result = ops.convolution_backward(
            *tensors,
            **convolution_attributes(*attributes),
            output_mask=tuple(output_mask),
            bias_sizes=bias_sizes or None,
            deterministic=torch.are_deterministic_algorithms_enabled(),
            **options,
        )
        return [getattr(result, name) for name in _GRADIENTS], result.compute_dtype

    return Call(
        tensors=tensors,
        rest=(bias_sizes, *rest),
        results=_GRADIENTS,
        multiplied={"grad_input": (0, 2), "grad_weight": (0, 1), "grad_bias": ()},
        run=run,
    )


def convolution_attributes(
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> dict[str, Any]:
    """Return what follows the tensors in PyTorch's calls of a convolution, by the names of our operators."""
    return {
        "stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "transposed": transposed,
        "output_padding": tuple(output_padding), "groups": groups,
    }  # fmt: skip


def avg_pool2d(
    input: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Call:
    """Return ``aten.avg_pool2d`` as `ops.avg_pool2d`."""
    rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def run(options: Mapping[str, Any]) -> Computed:
        result = ops.avg_pool2d(input, **_window(*rest), **options)
        return (result.output,), result.compute_dtype

    return Call(tensors=(input,), rest=rest, results=("output",), multiplied={"output": (0,)}, run=run)


def avg_pool2d_backward(grad_output: torch.Tensor, input: torch.Tensor, *rest: Any) -> Call:
    """Return ``aten.avg_pool2d_backward`` as `ops.avg_pool2d_backward`."""

    def run(options: Mapping[str, Any]) -> Computed:
        deterministic = torch.are_deterministic_algorithms_enabled()
        result = ops.avg_pool2d_backward(grad_output, input, **_window(*rest), deterministic=deterministic, **options)
        return (result.grad_input,), result.compute_dtype

    return Call(
        tensors=(grad_output, input), rest=rest, results=("grad_input",), multiplied={"grad_input": (0,)}, run=run
    )


def _window(
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> dict[str, Any]:
    return {
        "kernel_size": tuple(kernel_size),
        "stride": tuple(stride),
        "padding": tuple(padding),
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "divisor_override": divisor_override,
    }


def matrix_product(result: str, *tensors: torch.Tensor, beta: float = 1, alpha: float = 1) -> Call | None:
    """Return ``aten.mm``, ``aten.bmm`` or ``aten.addmm`` of a vector as `ops.matrix_product`; None for other sums.

    Parameters
    ----------
    result : str
        What the product is: "output", or the gradient of a factor.
    *tensors : Tensor
        The factors; before them what is added.
    beta, alpha : float
        Of ``aten.addmm``.
    """
    *added, a, b = tensors
    if added and (added[0].shape != b.shape[1:] or beta != 1 or alpha != 1):
        return None

    def run(options: Mapping[str, Any]) -> Computed:
        # the profile is one of rules that matrix products do not have
        taken = {name: value for name, value in options.items() if name != "profile"}
        product = ops.matrix_product(a, b, *added, **taken)
        return (product.output,), product.compute_dtype

    first = len(added)
    return Call(tensors=tensors, rest=(), results=(result,), multiplied={result: (first, first + 1)}, run=run)


BACKWARD: Mapping[Any, Callable[..., Call]] = {
    _aten.convolution_backward.default: convolution_backward,
    _aten.avg_pool2d_backward.default: avg_pool2d_backward,
}
FORWARD: Mapping[Any, Callable[..., Call]] = {
    _aten.convolution.default: convolution,
    _aten.avg_pool2d.default: avg_pool2d,
}
"""Operators of a forward pass whose gradients are operators of their own."""

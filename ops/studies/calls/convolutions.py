"""Requests of aclnnConvolutionBackward and aclnnConvolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from npu_sim.products import Product
from ops.common.generation import Generation
from ops.common.tensor_desc import described
from ops.conv_forward.api import plan_convolution
from ops.studies.calls.planned import PlannedCall
from ops.studies.cases import ConvCase, plan_case
from ops.studies.convolution_kinds import call_words
from ops.studies.layers import GRADIENTS, GradientName

_TENSOR_OF = {"dx": "input", "dw": "weight"}
"""Gradients that are multiplied, and the tensor each is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A call about a convolution.

    Attributes
    ----------
    case : ConvCase
        The convolution; its ``dy_shape`` is that of the output.
    cube_math_type : int
        0..3.
    block_dim : int or None
        Cube cores that kernels may have; None: those of the product.
    """

    case: ConvCase
    cube_math_type: int = 0
    block_dim: int | None = None

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.case.name

    @property
    def batch(self) -> int:
        """Images."""
        return self.case.x_shape[0]

    def with_batch(self, batch: int) -> Self:
        """Return the request for another batch."""
        return replace(self, case=self.case.with_batch(batch))

    def _facts(self) -> dict[str, Any]:
        return {"cube_math_type": self.cube_math_type, **self.case.facts(), "transposed": self.case.transposed}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRequest(_Request):
    """A call of aclnnConvolutionBackward; the rest as of `_Request`.

    Attributes
    ----------
    gradients : tuple of {"dx", "dw", "db"}
        What its outputMask wants.
    generation : {"closed", "published"}
        Of the kernels of A2 and A3 that exist twice. The closed ones are those that were measured.
    """

    gradients: tuple[GradientName, ...] = GRADIENTS
    generation: Generation = "closed"

    @property
    def words(self) -> str:
        """What is called."""
        return call_words(*self.gradients)

    @property
    def kernel_words(self) -> str:
        """What a scope of "kernel" means of it."""
        tensors = [_TENSOR_OF[gradient] for gradient in self.gradients if gradient in _TENSOR_OF]
        if not tensors:
            return "no kernel that multiplies"
        return f"the kernel of the {tensors[0]} gradient" if len(tensors) == 1 else "the kernels of both gradients"

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return self._facts() | {"gradients": self.gradients}

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""
        plan = plan_case(
            self.case, product, self.cube_math_type, self.gradients,
            generation=self.generation, block_dim=self.block_dim,
        )  # fmt: skip
        return PlannedCall(
            calls=plan.calls,
            kernels=plan.multiplying_steps,
            compute_dtype=plan.resolved.compute_dtype,
            route=plan.route.name,
            macs=self.case.macs * sum(gradient in _TENSOR_OF for gradient in self.gradients),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionRequest(_Request):
    """A call of aclnnConvolution; the rest as of `_Request`.

    Attributes
    ----------
    has_bias : bool
        With a bias of the tensors' type.
    stays_blocked : bool
        The result is left in NC1HWC0, as PyTorch keeps some: the last conversion is left out.
    """

    has_bias: bool = False
    stays_blocked: bool = False
    kernel_words: ClassVar[str] = "the kernel of the convolution"

    @property
    def words(self) -> str:
        """What is called."""
        name = "Conv2D whose result stays in NC1HWC0" if self.stays_blocked else "aclnnConvolution"
        return f"call of {name}" + (" with a bias" if self.has_bias else "")

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return self._facts() | {"has_bias": self.has_bias, "stays_blocked": self.stays_blocked}

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""
        case = self.case
        bias = described((case.dy_shape[1],), case.dtype) if self.has_bias else None
        plan = plan_convolution(
            described(case.x_shape, case.dtype), described(case.weight_shape, case.dtype), bias, stride=case.stride,
            padding=case.padding, dilation=case.dilation, groups=case.groups, transposed=case.transposed,
            output_padding=case.output_padding or 0, cube_math_type=self.cube_math_type, product=product,
            block_dim=self.block_dim,
        )  # fmt: skip
        calls, kernels = plan.calls, plan.multiplying_steps
        if self.stays_blocked and kernels:
            # what follows the kernel only moves the result to where the caller wants it
            calls = replace(calls, steps=calls.steps[: calls.steps.index(kernels[-1]) + 1])
        return PlannedCall(
            calls=calls,
            kernels=kernels,
            compute_dtype=plan.resolved.compute_dtype,
            route=plan.route.name,
            macs=case.macs,
        )


def gradient_requests(
    cases: Sequence[ConvCase], cube_math_types: Sequence[int], gradients: tuple[GradientName, ...] = ("dw",)
) -> tuple[GradientRequest, ...]:
    """Return a request for each case in each mode, mode by mode."""
    return tuple(
        GradientRequest(case=case, gradients=gradients, cube_math_type=mode)
        for mode in cube_math_types
        for case in cases
    )

"""Requests of linear layers: the forward call, and the calls that a backward pass makes for its gradients.

PyTorch computes a linear layer as aclnnAddmm or aclnnMm of the rows and the weight, which is stored [Cout][Cin], the
gradients of both as one aclnnMm each and that of the bias as a sum over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from npu_sim.products import Product
from ops.common.arguments import argument_of
from ops.common.pipeline import Step, plan_steps
from ops.common.tensor_desc import TensorDesc
from ops.matmul.tiling import MatmulShape
from ops.mm.plan import compute_dtype_of, matrix_product_steps
from ops.studies.calls.planned import PlannedCall
from ops.studies.calls.products import MatrixProductRequest
from ops.studies.layers import GradientName
from ops.vector.steps import StepList


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linear:
    """A linear layer.

    Attributes
    ----------
    x_shape : tuple of int
        Of the input: images first, features last, at least these two.
    out_features : int
        Features of the output.
    dtype : {"fp16", "bf16", "fp32"}
        Of all tensors.
    cube_math_type : int
        0..3.
    """

    x_shape: tuple[int, ...]
    out_features: int
    dtype: str = "fp16"
    cube_math_type: int = 0

    @property
    def rows(self) -> int:
        """Vectors that are multiplied by the weight."""
        return prod(self.x_shape[:-1])

    @property
    def in_features(self) -> int:
        """Features of the input."""
        return self.x_shape[-1]

    @property
    def name(self) -> str:
        """Name in reports: shape of the input and features of the output."""
        return f"{'x'.join(map(str, self.x_shape))}->{self.out_features}"

    @property
    def batch(self) -> int:
        """Images."""
        return self.x_shape[0]

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return {
            "cube_math_type": self.cube_math_type,
            "input_dtype": self.dtype,
            "x_shape": self.x_shape,
            "weight_shape": (self.out_features, self.in_features),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRequest(_Linear):
    """The forward call of a linear layer.

    Attributes
    ----------
    has_bias : bool
        It adds a bias.
    """

    has_bias: bool = False
    kernel_words: ClassVar[str] = "the kernel of the product"

    @property
    def words(self) -> str:
        """What is called."""
        return self._product.words

    def with_batch(self, batch: int) -> LinearRequest:
        """Return the request for another batch."""
        return replace(self, x_shape=(batch, *self.x_shape[1:]))

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return {**_Linear.facts(self), "has_bias": self.has_bias}

    @property
    def _product(self) -> MatrixProductRequest:
        shape = MatmulShape(m=self.rows, n=self.out_features, k=self.in_features, b_transposed=True)
        return MatrixProductRequest(
            shape=shape, dtype=self.dtype, has_bias=self.has_bias, cube_math_type=self.cube_math_type
        )

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""
        return self._product.plan(product)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearGradientRequest(_Linear):
    """The calls of a backward pass through a linear layer.

    Attributes
    ----------
    gradients : tuple of {"dx", "dw", "db"}
        What is wanted, at least one.
    """

    gradients: tuple[GradientName, ...]
    words: ClassVar[str] = "calls of a linear layer's backward pass"
    kernel_words: ClassVar[str] = "the kernels of the products"

    def with_batch(self, batch: int) -> LinearGradientRequest:
        """Return the request for another batch."""
        return replace(self, x_shape=(batch, *self.x_shape[1:]))

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return {**_Linear.facts(self), "gradients": self.gradients}

    def plan(self, product: Product) -> PlannedCall:
        """Plan the calls, one after the other; an `NpuSimError` says why they are refused."""
        make: Mapping[GradientName, Callable[[Product], tuple[Step, ...]]] = {
            "dx": self._input_steps, "dw": self._weight_steps, "db": self._bias_steps,
        }  # fmt: skip
        steps = [step for gradient in self.gradients for step in make[gradient](product)]
        calls = plan_steps(product, steps)
        multiplying = tuple(step for step in calls.steps if step.kernel.tiling is not None)
        products = len([gradient for gradient in self.gradients if gradient != "db"])
        return PlannedCall(
            calls=calls,
            kernels=multiplying or calls.steps,
            compute_dtype=compute_dtype_of(self.dtype, self.cube_math_type, product) if products else "",
            macs=products * self.rows * self.in_features * self.out_features,
        )

    def _input_steps(self, product: Product) -> tuple[Step, ...]:
        shape = MatmulShape(m=self.rows, n=self.in_features, k=self.out_features)
        return self._steps(shape, ("grad_output", "weight", "grad_input"), product)

    def _weight_steps(self, product: Product) -> tuple[Step, ...]:
        shape = MatmulShape(m=self.out_features, n=self.in_features, k=self.rows, a_transposed=True)
        return self._steps(shape, ("grad_output", "input", "grad_weight"), product)

    def _steps(self, shape: MatmulShape, names: tuple[str, str, str], product: Product) -> tuple[Step, ...]:
        shapes = {
            "input": (self.rows, self.in_features),
            "grad_output": (self.rows, self.out_features),
            "weight": (self.out_features, self.in_features),
        }
        shapes |= {"grad_input": shapes["input"], "grad_weight": shapes["weight"]}
        arguments = {
            role: argument_of(
                name, TensorDesc(shape=shapes[name], dtype=self.dtype, format="ND"), is_output=role == "output"
            )
            for role, name in zip(("a", "b", "output"), names, strict=True)
        }
        return matrix_product_steps(shape, arguments, self.cube_math_type, product)

    def _bias_steps(self, product: Product) -> tuple[Step, ...]:
        columns = self.out_features
        source = TensorDesc(shape=(self.rows, columns), dtype=self.dtype, format="ND")
        target = TensorDesc(shape=(columns,), dtype=self.dtype, format="ND")
        steps = StepList(product)
        steps.deliver_channel_sums(
            argument_of("grad_output", source, is_output=False).buffer,
            self.rows,
            columns,
            1,
            argument_of("grad_bias", target, is_output=True),
        )
        return steps.steps

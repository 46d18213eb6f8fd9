"""From a matrix product to its launches: casts, the kernel, the bias, the cast of the sum.

Sources: the aclnnMm, aclnnAddmm and aclnnBatchMatMul pages (types, cubeMathType); ops-nn
``matmul/mat_mul_v3/op_host/op_api/aclnn_mm.cpp`` (checks, empty tensors). ASSUMED, because the library's kernels are
closed: the Cube's sum leaves in float32 where there is a bias, which a launch of its own adds, and is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from npu_sim.dtypes.cube_math import promote, resolve_compute_dtype
from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from ops.common.arguments import Argument, argument_of
from ops.common.pipeline import Buffer, CallPlan, Kernel, Step, plan_steps
from ops.common.status import NO_KERNEL
from ops.common.tensor_desc import TensorDesc
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape, MatmulTiling
from ops.mm.padding import Padding
from ops.vector.elementwise import add_launch
from ops.vector.steps import StepList


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProductPlan:
    """What one call runs.

    Attributes
    ----------
    shape : MatmulShape
        Extents, and how the factors are stored.
    product : Product
        Where it runs.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies.
    calls : CallPlan
        Steps, launches and workspace.
    descs : dict of str to TensorDesc
        "a", "b", perhaps "bias", and "output", as they are stored.
    arguments : dict of str to Argument
        Those that the call reads or writes; none if the result has no element.
    """

    shape: MatmulShape
    product: Product
    compute_dtype: str
    calls: CallPlan
    descs: Mapping[str, TensorDesc]
    arguments: Mapping[str, Argument]

    @property
    def workspace_bytes(self) -> int:
        """What phase 1 asks for."""
        return self.calls.workspace_bytes


def compute_dtype_of(promoted_dtype: str, cube_math_type: int, product: Product) -> str:
    """Return what the Cube multiplies: as for convolutions, but bfloat16 stays what it is.

    The pages call USE_FP16 with bfloat16 and USE_HF32 with other types than float32 unsupported; the library keeps the
    type.

    Raises
    ------
    OperatorError
        161002: the product's Cube cannot compute this.
    """
    keeps = promoted_dtype == "bf16"
    return resolve_compute_dtype(promoted_dtype, 0 if keeps else cube_math_type, product)


def plan_matrix_product(
    shape: MatmulShape,
    descs: Mapping[str, TensorDesc],
    cube_math_type: int,
    product: Product,
    *,
    tiling: MatmulTiling | None = None,
    block_dim: int | None = None,
) -> MatrixProductPlan:
    """Plan a product of tensors that fit each other; touches no tensor data.

    Parameters
    ----------
    shape : MatmulShape
        Extents, and how the factors are stored.
    descs : dict of str to TensorDesc
        "a", "b", perhaps "bias", and "output", with the shapes they are stored in (FRACTAL_NZ too).
    cube_math_type : int
        0..3.
    product : Product
        Where it runs.
    tiling, block_dim : MatmulTiling, int or None
        As of `ops.matmul.plan.matmul_launches`.

    Raises
    ------
    OperatorError
        161002: the Cube cannot compute the type. 561103: the product has no such kernel, or there is nothing to sum.
    """
    output = descs["output"]
    # with K = 0 the factors have no elements
    arguments = {
        name: argument_of(name, desc, is_output=name == "output")
        for name, desc in descs.items()
        if output.elems and desc.elems
    }
    compute = compute_dtype_of(promote(descs["a"].dtype, descs["b"].dtype), cube_math_type, product)
    planner = _Planner(shape, compute, product, arguments, tiling, block_dim)
    if output.elems:
        planner.plan()
    return MatrixProductPlan(
        shape=shape,
        product=product,
        compute_dtype=compute,
        calls=plan_steps(product, planner.steps.steps),
        descs=descs,
        arguments=arguments,
    )


def matrix_product_steps(
    shape: MatmulShape, arguments: Mapping[str, Argument], cube_math_type: int, product: Product
) -> tuple[Step, ...]:
    """Return the steps of a product of tensors that fit each other and have elements, for a call that has others.

    Parameters
    ----------
    shape : MatmulShape
        Extents, and how the factors are stored.
    arguments : mapping of str to Argument
        "a", "b", perhaps "bias", and "output".
    cube_math_type : int
        0..3.
    product : Product
        Where it runs.

    Raises
    ------
    OperatorError
        161002: the Cube cannot compute the type.
    """
    dtypes = (arguments[name].buffer.dtype for name in ("a", "b"))
    planner = _Planner(
        shape, compute_dtype_of(promote(*dtypes), cube_math_type, product), product, arguments, None, None
    )
    planner.plan()
    return planner.steps.steps


class _Planner:
    """The steps of one call in the making."""

    def __init__(
        self,
        shape: MatmulShape,
        compute: str,
        product: Product,
        arguments: Mapping[str, Argument],
        tiling: MatmulTiling | None,
        block_dim: int | None,
    ) -> None:
        self._shape, self._compute, self._product, self._arguments = shape, compute, product, arguments
        self._tiling, self._block_dim = tiling, block_dim
        self.steps = StepList(product)

    def plan(self) -> None:
        """Add all steps."""
        target = self._arguments["output"]
        if self._shape.k == 0:
            if "bias" in self._arguments:
                raise OperatorError(
                    f"K of a matrix product with a bias must be at least 1, not 0 ({self._product.name})", NO_KERNEL
                )
            self.steps.clear(target)
            return
        if "bias" not in self._arguments:
            self._multiply(target.buffer)
            return
        total = Buffer(name="output.MatMul", shape=target.shape, dtype="fp32", format="ND")
        self._multiply(total)
        self._add_bias(total, target)

    def _multiply(self, result: Buffer) -> None:
        shape, compute, product = self._shape, self._compute, self._product
        tiling, block_dim = self._tiling, self._block_dim
        padding = Padding(steps=self.steps)
        a, b = (
            padding.widened(self.steps.cast(self._arguments[name].buffer, DTYPES[compute].stored_as))
            for name in ("a", "b")
        )
        made = padding.wide(result, "output.MatMul.Pad") if padding.needs(result) else result

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            places = (gm, at(a), at(b), at(made))
            return matmul_launches(shape, product, compute, result.dtype, *places, tiling, block_dim)

        name = "BatchMatMulV2" if shape.b_batched else "MatMulV2"
        self.steps.add(Step(name=name, reads=(a, b), writes=(made,), build=build))
        if made is not result:
            padding.cut(made, result)

    def _add_bias(self, total: Buffer, target: Argument) -> None:
        product, (rows, columns) = self._product, target.shape
        bias = self.steps.cast(self._arguments["bias"].buffer, "fp32")
        made = self.steps.plain_result("Add", target, "fp32")
        self.steps.launch(
            "Add",
            (total, bias),
            made,
            lambda gm, src, matrix, dst: add_launch(gm, src, matrix, dst, rows, columns, "fp32", product),
        )
        self.steps.deliver_plain(made, target)

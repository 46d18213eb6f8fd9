"""A matrix product as one NumPy call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.cube_math import CubeMathType, parse_cube_math_type, promote
from npu_sim.dtypes.formats import dtype_name
from npu_sim.engines.execute import Overflow
from npu_sim.errors import ShapeError
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product, get_product
from npu_sim.report.explain import Explanation, record_call
from ops.common.arrays import as_array, contiguous
from ops.common.explain import call_words, kernel_facts, launch_works, steps_tables
from ops.common.options import run_options
from ops.common.plan_cache import planned_once
from ops.common.result import MultipliedResult
from ops.common.run import empty_results, run_planned
from ops.common.tensor_desc import TensorDesc
from ops.matmul.tiling import MatmulShape
from ops.mm.plan import MatrixProductPlan, plan_matrix_product


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MatrixProduct(MultipliedResult):
    """Result of `matrix_product`; two results are equal only if they are the same object.

    Attributes
    ----------
    output : array
        (M, N) or (batch, M, N), of the common type of the factors.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplied.
    accumulation : Accumulation
        Model of the Cube's additions.
    plan : MatrixProductPlan
        Steps, tiling and workspace.
    """

    output: np.ndarray
    compute_dtype: str
    accumulation: Accumulation
    plan: MatrixProductPlan


@default_fenv
def matrix_product(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
) -> MatrixProduct:
    """Compute ``a @ b + bias`` on the emulated machine, as aclnnMm, aclnnAddmm and aclnnBatchMatMul do.

    Parameters
    ----------
    a : array, (M, K) or (batch, M, K)
        float32, float16 or bfloat16, any strides and byte order, or a torch tensor in host memory; not modified. The
        transpose of an array in C order is read where it lies, by the kernel's transposing loads, with the same bits.
    b : array, (K, N) or (batch, K, N)
        Likewise; as many axes as ``a``.
    bias : array (N,) or None
        Added to every row, in float32 before the one rounding of the sum; for two axes only.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16 (also "fp16"), 3 USE_HF32 (also "hf32"); bfloat16 stays.
    product : str, Product or None
        SoC name, series alias or generation ("A2"); None: the product of `npu_sim.use_product`, else Ascend910B2.
        310P and 910 multiply float16 alone, rows of no whole blocks by way of wider ones.
    accumulation, overflow, threads
        As of `ops.convolution`.

    Returns
    -------
    MatrixProduct
        Output, compute dtype and plan.

    Raises
    ------
    OperatorError
        161002: the product's Cube cannot compute the types so. 561103: the product has no such kernel, or a bias is
        added to sums of nothing.
    ShapeError, DTypeError, ProductError
        An argument is no tensor, number or name at all, or shapes do not fit; ``.status`` is 161002.
    BudgetError
        It needs more memory than the budget (`npu_sim.budget`) has.

    Examples
    --------
    >>> import numpy as np
    >>> matrix_product(np.ones((2, 3), np.float16), np.ones((3, 2), np.float16), np.array([0.5, 1], np.float16)).output
    array([[3.5, 4. ],
           [3.5, 4. ]], dtype=float16)
    """
    chip = current_product() if product is None else get_product(product)
    number = int(parse_cube_math_type(cube_math_type))
    given = {"a": a, "b": b} | ({} if bias is None else {"bias": bias})
    arrays = {name: as_array(value, name) for name, value in given.items()}
    words = {name: _described(array.shape, dtype_name(array.dtype)) for name, array in arrays.items()}
    output = _described(_output_shape(arrays, chip), _common_dtype(words))
    stored = {name: _stored(array, name) for name, array in arrays.items()}
    batched = len(output.shape) == 3
    shape = MatmulShape(
        m=output.shape[-2],
        n=output.shape[-1],
        k=arrays["a"].shape[-1],
        a_transposed=stored["a"][1],
        b_transposed=stored["b"][1],
        batch=output.shape[0] if batched else 1,
        b_batched=batched,
    )
    descs = {name: _described(array.shape, words[name].dtype) for name, (array, _) in stored.items()}
    tensors = descs | {"output": output}
    plan = planned_once(
        shape, chip, lambda: plan_matrix_product(shape, tensors, number, chip), *tensors.items(), number
    )
    record_call(lambda: _explained(plan, words))
    options = run_options(chip, plan.compute_dtype, accumulation, overflow, threads)
    result = empty_results(plan.calls, {"output": output})["output"]
    flat = {name: array.reshape(-1) for name, (array, _) in stored.items()}
    run_planned(plan.calls, plan.arguments, plan.descs, flat, options, results={"output": result.reshape(-1)})
    return MatrixProduct(
        output=result, compute_dtype=plan.compute_dtype, accumulation=options.accumulation, plan=plan
    )  # fmt: skip


def _described(shape: tuple[int, ...], dtype: str) -> TensorDesc:
    return TensorDesc(shape=shape, dtype=dtype, format="ND")


def _common_dtype(words: Mapping[str, TensorDesc]) -> str:
    """Return the type of the result; refuse a bias whose type the others do not have either."""
    for desc in words.values():
        promote(desc.dtype)
    return promote(words["a"].dtype, words["b"].dtype)


def _output_shape(arrays: Mapping[str, np.ndarray], product: Product) -> tuple[int, ...]:
    a, b = arrays["a"].shape, arrays["b"].shape
    if len(a) not in (2, 3) or len(a) != len(b):
        raise ShapeError(f"a and b must both have 2 axes or both 3, not {list(a)} and {list(b)} ({product.name})")
    if a[-1] != b[-2] or a[:-2] != b[:-2]:
        wanted = [*a[:-2], a[-1], b[-1]]
        raise ShapeError(f"b must have the shape {wanted} for a of {list(a)}, not {list(b)} ({product.name})")
    bias = arrays.get("bias")
    if bias is not None and (len(a) == 3 or bias.shape != b[-1:]):
        found = f"{list(bias.shape)} and {len(a)} ({product.name})"
        raise ShapeError(f"bias must have the shape {list(b[-1:])} and a 2 axes, not {found}")
    return (*a[:-1], b[-1])


def _stored(array: np.ndarray, name: str) -> tuple[np.ndarray, bool]:
    """Return an array in C order, and whether it is the transpose of ``array``."""
    turned = array.swapaxes(-1, -2) if array.ndim > 1 else array
    if turned.flags.c_contiguous and not array.flags.c_contiguous:
        return turned, True
    return contiguous(array, name), False


def _explained(plan: MatrixProductPlan, words: Mapping[str, TensorDesc]) -> Explanation:
    """Return what ``plan`` runs."""
    return Explanation(
        title="aclnnAddmm" if "bias" in words else "aclnnBatchMatMul" if plan.shape.b_batched else "aclnnMm",
        call=call_words(words, {}),
        product=plan.product,
        facts={
            "call": {"the Cube multiplies": plan.compute_dtype, "workspace (bytes)": plan.workspace_bytes},
            **kernel_facts(plan.calls),
        },
        tables=steps_tables(plan.calls),
        launches=plan.calls.launches,
        launch_works=launch_works(plan.calls.steps),
    )

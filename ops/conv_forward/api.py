"""A convolution as one NumPy call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.arguments import flag, per_axis, whole
from npu_sim.dtypes.cube_math import CubeMathType, cube_math_number
from npu_sim.dtypes.formats import dtype_name, get_dtype
from npu_sim.engines.execute import Overflow
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product, get_product
from npu_sim.report.explain import record_call
from ops.common.arrays import as_array, contiguous
from ops.common.options import run_options
from ops.common.padding import named_padding
from ops.common.plan_cache import planned_again, planned_once
from ops.common.result import MultipliedResult
from ops.common.rule import Profile
from ops.common.run import empty_results
from ops.common.tensor_desc import TensorDesc, described
from ops.conv_forward.call import ConvolutionCall
from ops.conv_forward.explain import explain_call
from ops.conv_forward.plan import ConvolutionPlan, plan_call
from ops.conv_forward.resolve import promoted_dtype
from ops.conv_forward.rules import check


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Convolution(MultipliedResult):
    """Result of `convolution`; two results are equal only if they are the same object.

    Attributes
    ----------
    output : array
        (N, Cout, spatial...).
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplied.
    accumulation : Accumulation
        Model of the Cube's additions.
    plan : ConvolutionPlan
        Route, steps, layouts, tilings and workspace.
    """

    output: np.ndarray
    compute_dtype: str
    accumulation: Accumulation
    plan: ConvolutionPlan


@default_fenv
def plan_convolution(
    input: TensorDesc,
    weight: TensorDesc,
    bias: TensorDesc | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    output_dtype: npt.DTypeLike | str | None = None,
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    profile: Profile | None = None,
    strict_output_dtype: bool = False,
    block_dim: int | None = None,
) -> ConvolutionPlan:
    """Check and plan the call that `convolution` makes of such tensors; no tensor data exists.

    Parameters
    ----------
    input, weight, bias : TensorDesc
        The tensors, see `described`. The others are those of `convolution`.
    block_dim : int or None
        Cube cores that kernels may have; None: those of the product.

    Raises
    ------
    OperatorError, ShapeError, DTypeError, ProductError
        As `convolution`.
    """
    call = _call_of(
        input, weight, bias, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups, output_dtype=output_dtype, cube_math_type=cube_math_type,
        product=product, profile=profile, strict_output_dtype=strict_output_dtype,
    )  # fmt: skip
    return plan_call(check(call), block_dim)


def _call_of(
    input: TensorDesc,
    weight: TensorDesc,
    bias: TensorDesc | None,
    *,
    output_dtype: npt.DTypeLike | str | None,
    product: str | Product | None,
    profile: Profile | None,
    stride: Any, padding: Any, dilation: Any, transposed: Any, output_padding: Any, groups: Any, cube_math_type: Any,
    strict_output_dtype: Any,
) -> ConvolutionCall:  # fmt: skip
    """Return the call with arguments as `convolution` takes them."""
    axes = max(input.rank - 2, 1)
    strides, dilations = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    is_transposed = flag("transposed", transposed)
    pads = named_padding(
        padding, weight.shape[2:], strides, dilations, transposed=is_transposed, paired_axes=(1, 2)
    )  # fmt: skip
    call = ConvolutionCall(
        product=current_product() if product is None else get_product(product),
        input=input,
        weight=weight,
        bias=bias,
        stride=strides,
        padding=per_axis("padding", pads, axes),
        dilation=dilations,
        transposed=is_transposed,
        output_padding=per_axis("output_padding", output_padding, axes),
        groups=whole("groups", groups),
        output=None,
        cube_math_type=cube_math_number("cube_math_type", cube_math_type),
        profile=profile,
        strict_output_dtype=flag("strict_output_dtype", strict_output_dtype),
    )
    return _with_output(call, None if output_dtype is None else get_dtype(output_dtype).name)


def _with_output(call: ConvolutionCall, dtype: str | None) -> ConvolutionCall:
    """Return the call with the output its other arguments give; a shape of its own where they give none."""
    assert call.input is not None
    shape = call.output_shape or call.input.shape
    # what cannot be the shape of a tensor is no output, and refused by the rules before
    extents = tuple(max(extent, 0) for extent in shape)
    made = described(extents, dtype or promoted_dtype(call) or call.input.dtype)
    return replace(call, output=made)


@default_fenv
def convolution(
    input: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    output_dtype: npt.DTypeLike | str | None = None,
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
    profile: Profile | None = None,
    strict_output_dtype: bool = False,
) -> Convolution:
    """Compute a 1D, 2D or 3D convolution on the emulated machine, as aclnnConvolution does.

    Parameters
    ----------
    input : array, (N, Cin, [[D,] H,] W)
        float32, float16 or bfloat16, any strides and byte order, or a torch tensor in host memory; not modified.
    weight : array, (Cout, Cin / groups, [[KD,] KH,] KW), with ``transposed`` (Cin, Cout / groups, ...)
        Likewise.
    bias : array (Cout,) or None
        Likewise.
    stride, padding, dilation, output_padding : int or sequence of int
        Per spatial axis; padding also (left, right) in 1D and (up, down, left, right) in 2D, or as of PyTorch "valid"
        or "same". ``output_padding`` counts with ``transposed`` only.
    transposed : bool
        Transposed convolution.
    groups : int
        Channel groups.
    output_dtype : dtype or None
        Type of the output; None: the common type of input and weight.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16 (also "fp16"), 3 USE_HF32 (also "hf32").
    product : str, Product or None
        SoC name, series alias or generation ("A2"); None: the product of `npu_sim.use_product`, else Ascend910B2.
    accumulation : Accumulation, str or None
        Model of the Cube's additions, or its name (``"serial"``, ``"exact16-rne"``); None: the product's default for
        the compute dtype.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    threads : int or None
        Host threads; None: all. The result does not depend on it.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ, see ``ops/conv_forward/RULES.md``.
    strict_output_dtype : bool
        Refuse an ``output_dtype`` that is not the one the page names.

    Returns
    -------
    Convolution
        Output, compute dtype and plan.

    Raises
    ------
    OperatorError
        The operator refuses the call; ``.status`` is its code (161001, 161002, 361001, 561103).
    ShapeError, DTypeError, ProductError
        An argument is no tensor, number or name at all; ``.status`` is 161002.
    BudgetError
        It needs more memory than the budget (`npu_sim.budget`) has.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.ones((1, 1, 3, 3), np.float16)
    >>> w = np.ones((1, 1, 2, 2), np.float16)
    >>> convolution(x, w, np.array([0.5], np.float16), stride=1).output[0, 0]
    array([[4.5, 4.5],
           [4.5, 4.5]], dtype=float16)
    """
    given = {"input": input, "weight": weight} | ({} if bias is None else {"bias": bias})
    arrays = {name: contiguous(as_array(value, name), name) for name, value in given.items()}
    chip = current_product() if product is None else get_product(product)

    def planned() -> ConvolutionPlan:
        descs = {name: described(array.shape, dtype_name(array.dtype)) for name, array in arrays.items()}
        call = _call_of(
            descs["input"], descs["weight"], descs.get("bias"), stride=stride, padding=padding, dilation=dilation,
            transposed=transposed, output_padding=output_padding, groups=groups, output_dtype=output_dtype,
            cube_math_type=cube_math_type, product=chip, profile=profile, strict_output_dtype=strict_output_dtype,
        )  # fmt: skip
        return planned_once(call, chip, lambda: plan_call(check(call)))

    plan = planned_again(
        tuple(arrays.values()), chip, planned, "convolution", stride, padding, dilation, transposed, output_padding,
        groups, output_dtype, cube_math_type, profile, strict_output_dtype,
    )  # fmt: skip
    resolved = plan.resolved
    record_call(lambda: explain_call(plan))
    options = run_options(resolved.product, resolved.compute_dtype, accumulation, overflow, threads)
    output = empty_results(plan.calls, {"output": resolved.output})["output"]
    tensors = {name: array.reshape(-1) for name, array in arrays.items()}
    plan.run(tensors, options, {"output": output.reshape(-1)})
    return Convolution(
        output=output, compute_dtype=resolved.compute_dtype, accumulation=options.accumulation, plan=plan
    )  # fmt: skip

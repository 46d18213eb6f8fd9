"""The gradient of 2D average pooling as one NumPy call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.arguments import flag, per_axis, whole
from npu_sim.dtypes.cube_math import CubeMathType, cube_math_number
from npu_sim.dtypes.formats import dtype_name
from npu_sim.engines.execute import Overflow
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product, get_product
from npu_sim.report.explain import record_call
from ops.avg_pool.call import DEVIATIONS, AvgPoolCall
from ops.avg_pool.explain import explain_call
from ops.avg_pool.plan import AvgPoolPlan, plan_call
from ops.avg_pool.rules import check
from ops.common.arrays import as_array, contiguous
from ops.common.options import run_options
from ops.common.plan_cache import planned_again, planned_once
from ops.common.quirks import parse_quirks
from ops.common.result import PooledResult
from ops.common.rule import Profile
from ops.common.run import empty_results
from ops.common.tensor_desc import TensorDesc

_FORMATS = {3: "NCL", 4: "NCHW"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AvgPool2dBackward(PooledResult):
    """Result of `avg_pool2d_backward`; two results are equal only if they are the same object.

    Attributes
    ----------
    grad_input : array
        Shape of input, dtype of grad_output.
    path : {"global", "cube", "cube+mul", "AvgPool3DGrad", "empty"}
        Which of the library's routes was taken.
    compute_dtype : {"fp32", "fp16", "hf32"}
        What was multiplied or divided.
    plan : AvgPoolPlan
        Route, steps, tilings and workspace.
    """

    ARRAYS: ClassVar[tuple[str, ...]] = ("grad_input",)
    grad_input: np.ndarray
    path: str
    compute_dtype: str
    plan: AvgPoolPlan


def described(shape: tuple[int, ...], dtype: str, rank: int | None = None) -> TensorDesc:
    """Return the descriptor of a contiguous tensor in the format of its rank, or of another one."""
    name = _FORMATS.get(len(shape) if rank is None else rank, "NCHW")
    return TensorDesc(shape=shape, dtype=dtype, format=name, offset=0)


@default_fenv
def plan_avg_pool2d_backward(
    grad_output: TensorDesc,
    input: TensorDesc,
    *,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = (),
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = 0,
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    profile: Profile | None = None,
    quirks: bool | Iterable[str] = False,
    strict_shape: bool = True,
    deterministic: bool = False,
) -> AvgPoolPlan:
    """Check and plan the call that `avg_pool2d_backward` makes of such tensors; no tensor data exists.

    Parameters
    ----------
    grad_output, input : TensorDesc
        The tensors, see `described`. The others are those of `avg_pool2d_backward`.

    Raises
    ------
    OperatorError, ShapeError, DTypeError, ProductError
        As `avg_pool2d_backward`.
    """
    call = _call_of(
        grad_output, input, kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor_override, cube_math_type=cube_math_type,
        product=product, profile=profile, quirks=quirks, strict_shape=strict_shape,
        deterministic=deterministic,
    )  # fmt: skip
    return plan_call(check(call))


def _call_of(
    grad_output: TensorDesc,
    input: TensorDesc,
    *,
    product: str | Product | None,
    profile: Profile | None,
    quirks: bool | Iterable[str],
    kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any, divisor_override: Any,
    cube_math_type: Any, strict_shape: Any, deterministic: Any,
) -> AvgPoolCall:  # fmt: skip
    """Return the call with arguments as `avg_pool2d_backward` takes them."""
    return AvgPoolCall(
        product=current_product() if product is None else get_product(product),
        grad_output=grad_output,
        input=input,
        kernel_size=per_axis("kernel_size", kernel_size, 1),
        stride=None if stride is None else per_axis("stride", stride, 1),
        padding=per_axis("padding", padding, 1),
        ceil_mode=flag("ceil_mode", ceil_mode),
        count_include_pad=flag("count_include_pad", count_include_pad),
        divisor_override=0 if divisor_override is None else whole("divisor_override", divisor_override),
        cube_math_type=cube_math_number("cube_math_type", cube_math_type),
        grad_input=input,
        profile=profile,
        quirks=parse_quirks(quirks, DEVIATIONS),
        strict_shape=flag("strict_shape", strict_shape),
        deterministic=flag("deterministic", deterministic),
    )


@default_fenv
def avg_pool2d_backward(
    grad_output: npt.ArrayLike,
    input: npt.ArrayLike,
    *,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = (),
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = 0,
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
    profile: Profile | None = None,
    quirks: bool | Iterable[str] = False,
    strict_shape: bool = True,
    deterministic: bool = False,
) -> AvgPool2dBackward:
    """Compute the gradient of 2D average pooling on the emulated machine, as aclnnAvgPool2dBackward does.

    Parameters
    ----------
    grad_output : array, (N, C, Ho, Wo) or (C, Ho, Wo)
        float32, float16 or bfloat16, any strides and byte order, or a torch tensor in host memory; not modified. What
        an infinity or NaN does to other channels on the Cube route is in ``ops/avg_pool/RULES.md``, Types.
    input : array, (N, C, H, W) or (C, H, W)
        Of the type of grad_output; only its shape matters.
    kernel_size, stride, padding : int or sequence of int
        One for both axes or one for each; an empty stride, or None, is the kernel size.
    ceil_mode : bool
        A last window may reach over the end of the padded input.
    count_include_pad : bool
        Positions in the padding count for the mean.
    divisor_override : int or None
        What sums are divided by instead; 0 or None: no override.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32 (or a name, also "fp16", "hf32"); only
        the global and Cube routes look at it.
    product : str, Product or None
        SoC name, series alias or generation ("A2"); None: the current product (`npu_sim.use_product`), else
        Ascend910B2.
    accumulation : Accumulation, str or None
        Model of the Cube's additions, or its name; None: the product's default for the compute dtype.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    threads : int or None
        Host threads; None: all. The result does not depend on it.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ. None: the page where it names the
        series (but split cores compute more than 65535 channels), the library on 910_93, which it does not name.
    quirks : bool, str, or list, tuple or set of str
        Deviations of the library to reproduce, see `ops.avg_pool.call.DEVIATIONS`: all, none, or these.
    strict_shape : bool
        grad_output must have the shape of the forward output. False: what the library computes is computed.
    deterministic : bool
        One core adds where windows overlap.

    Returns
    -------
    AvgPool2dBackward
        Gradient, route and plan. If a tensor has no element nothing is computed and the gradient is zero.

    Raises
    ------
    OperatorError
        The operator refuses the call; ``.status`` is its code (161002, 561103).
    ShapeError, DTypeError, ProductError
        An argument is no tensor, number of 64 bits, bool or name at all, or the product has no such overflow mode;
        ``.status`` is 161002.
    BudgetError
        The call needs more memory than the budget (`npu_sim.budget`) has.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.ones((1, 1, 4, 4), np.float32)
    >>> r = avg_pool2d_backward(np.ones((1, 1, 2, 2), np.float32), x, kernel_size=2)
    >>> r.grad_input[0, 0, 0], r.path
    (array([0.25, 0.25, 0.25, 0.25], dtype=float32), 'cube')
    """
    chip = current_product() if product is None else get_product(product)
    g, x = as_array(grad_output, "grad_output"), as_array(input, "input")
    g = contiguous(g, "grad_output")
    # one format for all, so that a wrong rank is refused as a rank: NumPy arrays have no format of their own
    own = described(x.shape, dtype_name(x.dtype), g.ndim)

    def planned() -> AvgPoolPlan:
        call = _call_of(
            described(g.shape, dtype_name(g.dtype)), own, kernel_size=kernel_size, stride=stride, padding=padding,
            ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor_override=divisor_override,
            cube_math_type=cube_math_type, product=chip, profile=profile, quirks=quirks,
            strict_shape=strict_shape, deterministic=deterministic,
        )  # fmt: skip
        return planned_once(call, chip, lambda: plan_call(check(call)))

    plan = planned_again(
        (g, x), chip, planned, "avg_pool2d_backward", kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override, cube_math_type, profile, quirks, strict_shape, deterministic,
    )  # fmt: skip
    record_call(lambda: explain_call(plan))
    options = run_options(chip, plan.resolved.cube_dtype, accumulation, overflow, threads)
    result = empty_results(plan.calls, {"grad_input": own})["grad_input"]
    if plan.route.name == "empty":
        result[...] = 0
    else:
        plan.run({"grad_output": g.reshape(-1)}, options, {"grad_input": result.reshape(-1)})
    return AvgPool2dBackward(grad_input=result, path=plan.route.name, compute_dtype=plan.route.compute_dtype, plan=plan)

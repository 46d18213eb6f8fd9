"""2D average pooling as one NumPy call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from ops.avg_pool_forward.call import DEVIATIONS, AvgPool2dCall
from ops.avg_pool_forward.explain import explain_call
from ops.avg_pool_forward.plan import AvgPool2dPlan, plan_call
from ops.avg_pool_forward.rules import check
from ops.common.arrays import as_array, contiguous
from ops.common.options import run_options
from ops.common.plan_cache import planned_once
from ops.common.quirks import parse_quirks
from ops.common.result import PooledResult
from ops.common.rule import Profile
from ops.common.run import empty_results
from ops.common.tensor_desc import TensorDesc

_FORMATS = {3: "NCL", 4: "NCHW"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AvgPool2d(PooledResult):
    """Result of `avg_pool2d`; two results are equal only if they are the same object.

    Attributes
    ----------
    output : array
        (N, C, Ho, Wo) or (C, Ho, Wo), dtype of the input.
    path : {"global", "cube", "cube+mul", "AvgPool3D", "empty"}
        Which of the library's routes was taken.
    compute_dtype : {"fp32", "fp16"}
        What was multiplied, added or divided.
    plan : AvgPool2dPlan
        Route, steps, tilings and workspace.
    """

    output: np.ndarray
    path: str
    compute_dtype: str
    plan: AvgPool2dPlan


def described(shape: tuple[int, ...], dtype: str) -> TensorDesc:
    """Return the descriptor of a contiguous tensor in the format of its rank."""
    return TensorDesc(shape=shape, dtype=dtype, format=_FORMATS.get(len(shape), "NCHW"))


@default_fenv
def plan_avg_pool2d(
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
) -> AvgPool2dPlan:
    """Check and plan the call that `avg_pool2d` makes of such a tensor; no tensor data exists.

    Parameters
    ----------
    input : TensorDesc
        The tensor, see `described`. The others are those of `avg_pool2d`.

    Raises
    ------
    OperatorError, ShapeError, DTypeError, ProductError
        As `avg_pool2d`.
    """
    call = _call_of(
        input, kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor_override, cube_math_type=cube_math_type,
        product=product, profile=profile, quirks=quirks,
    )  # fmt: skip
    return plan_call(check(call))


def _call_of(
    input: TensorDesc,
    *,
    product: str | Product | None,
    profile: Profile | None,
    quirks: bool | Iterable[str],
    kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any, divisor_override: Any,
    cube_math_type: Any,
) -> AvgPool2dCall:  # fmt: skip
    """Return the call with arguments as `avg_pool2d` takes them."""
    call = AvgPool2dCall(
        product=current_product() if product is None else get_product(product),
        input=input,
        kernel_size=per_axis("kernel_size", kernel_size, 1),
        strides=() if stride is None else per_axis("stride", stride, 1),
        paddings=per_axis("padding", padding, 1),
        ceil_mode=flag("ceil_mode", ceil_mode),
        count_include_pad=flag("count_include_pad", count_include_pad),
        divisor_override=0 if divisor_override is None else whole("divisor_override", divisor_override),
        cube_math_type=cube_math_number("cube_math_type", cube_math_type),
        output=input,
        profile=profile,
        quirks=parse_quirks(quirks, DEVIATIONS),
    )
    # no tensor has a negative extent: a call without a window is refused by its rule
    shape = tuple(max(extent, 0) for extent in call.output_shape or input.shape)
    return replace(call, output=TensorDesc(shape=shape, dtype=input.dtype, format=input.format))


@default_fenv
def avg_pool2d(
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
) -> AvgPool2d:
    """Compute 2D average pooling on the emulated machine, as aclnnAvgPool2d does.

    Parameters
    ----------
    input : array, (N, C, H, W) or (C, H, W)
        float32, float16 or bfloat16, any strides and byte order, or a torch tensor in host memory; not modified.
    kernel_size, stride, padding : int or sequence of int
        One for both axes or one for each; an empty stride, or None, is the kernel size.
    ceil_mode : bool
        A last window may reach over the end of the padded input.
    count_include_pad : bool
        Positions in the padding count for the mean.
    divisor_override : int or None
        What sums are divided by instead; 0 or None: no override.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32 (or a name, also "fp16", "hf32"); only the
        global and Cube routes look at it.
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
        What wins where the operator's page and newer library source differ, see ``ops/avg_pool_forward/RULES.md``.
    quirks : bool, str, or list, tuple or set of str
        Deviations of the library to reproduce, see `ops.avg_pool_forward.call.DEVIATIONS`: all, none, or these.

    Returns
    -------
    AvgPool2d
        Output, route and plan.

    Raises
    ------
    OperatorError
        The operator refuses the call; ``.status`` is its code (161002, 561000).
    ShapeError, DTypeError, ProductError
        An argument is no tensor, number of 64 bits, bool or name at all, or the product has no such overflow mode;
        ``.status`` is 161002.
    BudgetError
        The call needs more memory than the budget (`npu_sim.budget`) has.

    Examples
    --------
    >>> import numpy as np
    >>> r = avg_pool2d(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), kernel_size=2)
    >>> r.output[0, 0], r.path
    (array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32), 'cube')
    """
    chip = current_product() if product is None else get_product(product)
    x = contiguous(as_array(input, "input"), "input")
    call = _call_of(
        described(x.shape, dtype_name(x.dtype)), kernel_size=kernel_size, stride=stride, padding=padding,
        ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor_override=divisor_override,
        cube_math_type=cube_math_type, product=chip, profile=profile, quirks=quirks,
    )  # fmt: skip
    plan = planned_once(call, chip, lambda: plan_call(check(call)))
    record_call(lambda: explain_call(plan))
    options = run_options(chip, plan.route.compute_dtype, accumulation, overflow, threads)
    output = empty_results(plan.calls, {"output": plan.resolved.output})["output"]
    plan.run({"input": x.reshape(-1)}, options, {"output": output.reshape(-1)})
    return AvgPool2d(output=output, path=plan.route.name, compute_dtype=plan.route.compute_dtype, plan=plan)

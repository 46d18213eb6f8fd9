"""The gradient of 2D average pooling as one NumPy call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.dtypes.cube_math import CubeMathType, parse_cube_math_type
from npu_sim.engines.execute import ExecuteOptions, Overflow, configuration
from npu_sim.errors import ShapeError
from npu_sim.products import Product, current_product, get_product
from npu_sim.report.explain import current_recorder
from ops.avg_pool.call import AvgPoolCall, parse_quirks
from ops.avg_pool.explain import explain_call
from ops.avg_pool.plan import AvgPoolPlan, plan_call
from ops.avg_pool.rules import check
from ops.avg_pool.run import run_call
from ops.common.arguments import NUMPY
from ops.common.arrays import as_array, available_threads, flag
from ops.common.geometry import whole
from ops.common.rule import Profile
from ops.common.tensor_desc import TensorDesc

_FORMATS = {3: "NCL", 4: "NCHW"}
_NAMES = {dtype: name for name, dtype in NUMPY.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AvgPool2dBackward:
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

    grad_input: np.ndarray
    path: str
    compute_dtype: str
    plan: AvgPoolPlan

    def __repr__(self) -> str:
        result = f"grad_input={self.grad_input.dtype}{list(self.grad_input.shape)}, path={self.path!r}"
        active = f", library_quirks={list(self.plan.route.active)}" if self.plan.route.active else ""
        product = f"product={self.product.name!r}{active}"
        return f"AvgPool2dBackward({result}, compute_dtype={self.compute_dtype!r}, {product})"

    @property
    def product(self) -> Product:
        """The product it ran on."""
        return self.plan.resolved.product

    @property
    def workspace_bytes(self) -> int:
        """What phase 1 of the two-phase call asks for."""
        return self.plan.workspace_bytes


def _int64(name: str, value: Any) -> int:
    """Return ``value`` as an int that the interface can take."""
    number = whole(name, value)
    if not -(2**63) <= number < 2**63:
        raise ShapeError(f"{name} must be an int of 64 bits, not {number}")
    return number


def _entries(name: str, value: Any) -> tuple[int, ...]:
    """Return an array argument as the interface takes it; one int is an array of one."""
    if hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0:
        return tuple(_int64(f"{name} entry", entry) for entry in value)
    return (_int64(name, value),)


def _desc(array: np.ndarray, storage_format: str) -> TensorDesc:
    dtype = _NAMES.get(array.dtype, str(array.dtype))
    return TensorDesc(shape=array.shape, dtype=dtype, format=storage_format, offset=0)


def _math_type(value: int | str | CubeMathType) -> int:
    """Return the number; one that does not exist is left to the rules."""
    return int(parse_cube_math_type(value)) if isinstance(value, str) else whole("cube_math_type", value)


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
    library_quirks: bool | Iterable[str] = False,
    strict_shape: bool = True,
    deterministic: bool = False,
) -> AvgPool2dBackward:
    """Compute the gradient of 2D average pooling on the emulated machine, as aclnnAvgPool2dBackward does.

    Parameters
    ----------
    grad_output : array, (N, C, Ho, Wo) or (C, Ho, Wo)
        float32, float16 or bfloat16, any strides and byte order; not modified. What an infinity or NaN does to other
        channels on the Cube route is in ``ops/avg_pool/RULES.md``, Types.
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
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32; only the global and Cube routes look at it.
    product : str, Product or None
        SoC name or series alias; None: the current product (`npu_sim.use_product`), else Ascend910B2.
    accumulation : Accumulation, str or None
        Model of the Cube's additions, or its name; None: the product's default for the compute dtype.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    threads : int or None
        Host threads; None: all. The result does not depend on it.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ. None: the page on 310P, 910 and 910B (but
        910B computes more than 65535 channels), the library on 910_93.
    library_quirks : bool, str, or list, tuple or set of str
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
    g = np.ascontiguousarray(g) if g.ndim else g
    # one format for all, so that a wrong rank is refused as a rank: NumPy arrays have no format of their own
    storage_format = _FORMATS.get(g.ndim, "NCHW")
    own = _desc(x, storage_format)
    call = AvgPoolCall(
        product=chip,
        grad_output=_desc(g, storage_format),
        input=own,
        kernel_size=_entries("kernel_size", kernel_size),
        stride=None if stride is None else _entries("stride", stride),
        padding=_entries("padding", padding),
        ceil_mode=flag("ceil_mode", ceil_mode),
        count_include_pad=flag("count_include_pad", count_include_pad),
        divisor_override=0 if divisor_override is None else _int64("divisor_override", divisor_override),
        cube_math_type=_math_type(cube_math_type),
        grad_input=own,
        profile=profile,
        library_quirks=parse_quirks(library_quirks),
        strict_shape=flag("strict_shape", strict_shape),
        deterministic=flag("deterministic", deterministic),
    )
    resolved = check(call)
    plan = plan_call(resolved)
    recorder = current_recorder()
    if recorder is not None:
        recorder.add(lambda: explain_call(plan))
    model = Accumulation.parse(accumulation, default_accumulation(chip, resolved.cube_dtype))
    workers = available_threads() if threads is None else whole("threads", threads)
    options = ExecuteOptions(accumulation=model, overflow=overflow, threads=workers)
    configuration(chip, options)  # refuses an overflow mode the product lacks, even if nothing is computed
    if plan.route.name == "empty":
        result = np.zeros(own.shape, NUMPY[own.dtype])
    else:
        result = np.empty(own.shape, NUMPY[own.dtype])
        run_call(plan, {"grad_output": g.reshape(-1), "grad_input": result.reshape(-1)}, options)
    return AvgPool2dBackward(grad_input=result, path=plan.route.name, compute_dtype=plan.route.compute_dtype, plan=plan)

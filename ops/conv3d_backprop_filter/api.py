"""The weight gradient of a convolution as a NumPy call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.arguments import ints
from npu_sim.budget import reserve
from npu_sim.dtypes import formats
from npu_sim.dtypes.convert import cast
from npu_sim.dtypes.cube_math import CubeMathType, parse_cube_math_type, promote, resolve_compute_dtype
from npu_sim.dtypes.formats import get_dtype
from npu_sim.engines.execute import ExecuteOptions, Overflow, execute
from npu_sim.errors import DTypeError, OperatorError, shown
from npu_sim.fenv import default_fenv
from npu_sim.layouts.formats import ActivationLayout
from npu_sim.layouts.transform import blocked_from_activation, weight_from_fractal
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product, current_product, get_product
from ops.common.arrays import as_array
from ops.common.geometry import ConvGeometry
from ops.common.options import run_options
from ops.conv3d_backprop_filter.plan import WeightGradientPlan, plan_weight_gradient
from ops.conv3d_backprop_filter.tiling_data import ELEMENT_BYTES

_NAMES = {np.dtype(np.float32): "fp32", np.dtype(np.float16): "fp16", np.dtype(ml_dtypes.bfloat16): "bf16"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WeightGradient:
    """Result of `weight_gradient`; two results are equal only if they are the same object.

    Attributes
    ----------
    grad_weight : array, shape of the weight
        The gradient, in the promoted dtype of the inputs (or ``weight_dtype``).
    compute_dtype : str
        What the Cube multiplied: "fp16", "bf16", "hf32" or "fp32".
    accumulation : Accumulation
        Model of the Cube's additions.
    plan : WeightGradientPlan
        Tiling and launches that ran.
    """

    grad_weight: np.ndarray
    compute_dtype: str
    accumulation: Accumulation
    plan: WeightGradientPlan

    def __repr__(self) -> str:
        shape = list(self.grad_weight.shape)
        return (
            f"WeightGradient(grad_weight={self.grad_weight.dtype}{shape}, compute_dtype={self.compute_dtype!r}, "
            f"accumulation={self.accumulation.name!r}, product={self.product.name!r}, tiling={self.tiling_label!r})"
        )

    @property
    def product(self) -> Product:
        """The product it ran on."""
        return self.plan.product

    @property
    def k_depth(self) -> int:
        """Products summed into one element."""
        return self.plan.k_depth

    @property
    def tiling_label(self) -> str:
        """Where the tiling comes from."""
        return self.plan.tiling.origin


def dtype_name(array: np.ndarray, what: str) -> str:
    """Return "fp32", "fp16" or "bf16".

    Raises
    ------
    DTypeError
        If the array has another dtype.
    """
    name = _NAMES.get(array.dtype)
    if name is None:
        raise DTypeError(f"dtype of {what} must be float32, float16 or bfloat16, not {array.dtype}")
    return name


def store_activation(
    array: np.ndarray,
    layout: ActivationLayout,
    plan: WeightGradientPlan,
    tensor: GmTensor,
    saturate: bool,
    threads: int,
) -> None:
    """Write ``array`` to global memory in ``layout`` and the compute dtype, rounding once to nearest even.

    A 16-bit array that the Cube multiplies in another type is widened exactly first.
    """
    target = plan.compute_dtype
    source = np.asarray(array).reshape(layout.logical_shape)
    name = dtype_name(source, "input")
    out = plan.gm.view(tensor, np.uint16 if ELEMENT_BYTES[target] == 2 else np.uint32, (layout.storage_elems,))
    if name == target or (name == "fp32" and target == "hf32"):
        blocked_from_activation(source, layout, out, threads=threads)
        return
    wide = source if name == "fp32" else cast(source, "fp32")
    if ELEMENT_BYTES[target] == 4:
        blocked_from_activation(wide, layout, out, threads=threads)
    else:
        rounded = formats.FP16 if target == "fp16" else formats.BF16
        blocked_from_activation(wide, layout, out, cast=rounded, saturate=saturate, threads=threads)


def run_plan(
    plan: WeightGradientPlan, x: np.ndarray, dy: np.ndarray, options: ExecuteOptions
) -> npt.NDArray[np.float32]:
    """Run the launches of ``plan`` on tensors.

    Parameters
    ----------
    plan : WeightGradientPlan
        What to run.
    x, dy : array
        Feature map and gradient of the output, in the shapes of the plan's layouts up to axes of length 1.
    options : ExecuteOptions
        How; its threads also convert the layouts.

    Returns
    -------
    float32[Cout, Cin / groups, KD, KH, KW]
        The gradient as the Cube summed it.
    """
    threads = options.threads
    saturate = (options.overflow or plan.product.overflow_mode) == "saturate"
    store_activation(x, plan.x_layout, plan, plan.x, saturate, threads)
    store_activation(dy, plan.dy_layout, plan, plan.dy, saturate, threads)
    for launch in plan.launches:
        execute(launch, plan.product, options)
    storage = plan.gm.view(plan.dw, np.float32, (plan.dw_layout.storage_elems,))
    return weight_from_fractal(storage, plan.dw_layout, threads=threads)


def check_supported(geometry: ConvGeometry, product: Product, compute_dtype: str, weight_dtype: str) -> None:
    """Refuse what the operator refuses.

    Raises
    ------
    OperatorError
        161002: 3D on a product without it; grouped 3D with a float32 gradient from 16-bit operands.
    """
    if geometry.spatial_rank == 3 and not product.supports_conv3d:
        raise OperatorError(
            f"Rank of the tensors must be 3 or 4 (1D, 2D), not 5 (3D convolution is not supported on {product.name}, "
            f"{product.series_name})",
            161002,
        )
    if (
        geometry.spatial_rank == 3
        and geometry.groups > 1
        and weight_dtype == "fp32"
        and ELEMENT_BYTES[compute_dtype] == 2
    ):
        raise OperatorError(
            f"groups must be 1 for a 3D float32 weight gradient computed in {compute_dtype}, not {geometry.groups} "
            f"({product.name}, {product.series_name})",
            161002,
        )


def _result_dtype(weight_dtype: object) -> str:
    try:
        name = get_dtype(weight_dtype).name
    except DTypeError:
        name = ""
    if name not in _DTYPES:
        raise DTypeError(f"weight_dtype must be one of {', '.join(_DTYPES)} or None, not {shown(weight_dtype)}")
    return name


@default_fenv
def weight_gradient(
    x: npt.ArrayLike,
    dy: npt.ArrayLike,
    weight_shape: Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    product: str | Product | None = None,
    cube_math_type: int | str | CubeMathType = 0,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    weight_dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
) -> WeightGradient:
    """Compute the gradient of a convolution's weight on the emulated machine.

    Parameters
    ----------
    x : array, (N, Cin, [[D,] H,] W)
        Feature map: float32, float16 or bfloat16, any strides and byte order, or a torch tensor in host memory; not
        modified.
    dy : array, (N, Cout, [[Do,] Ho,] Wo)
        Gradient of the output; same ranks and dtypes.
    weight_shape : sequence of int
        (Cout, Cin / groups, [[KD,] KH,] KW).
    stride, padding, dilation : int or sequence
        Per spatial axis; 2D padding also of length 4 (up, down, left, right), or as of PyTorch "valid" or "same".
    groups : int
        Channel groups.
    product : str, Product or None
        SoC name, series alias or generation ("A2"); None: the product of `npu_sim.use_product`, else Ascend910B2.
    cube_math_type : int, str or CubeMathType
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16 (also "fp16"), 3 USE_HF32 (also "hf32").
    accumulation : Accumulation, str or None
        Model of the Cube's additions, or its name (``"serial"``, ``"exact16-rne"``, ``"tree4-rz"``); None: the
        product's default for the compute dtype.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    weight_dtype : str, dtype or None
        Type of the result, fp32, fp16 or bf16 (or another name of theirs, or a dtype of NumPy or torch); the float32
        sum is rounded to it at the end. None: the promoted type of the inputs.
    threads : int or None
        Host threads; None: all. The result does not depend on it.

    Raises
    ------
    ShapeError, DTypeError, ProductError, OperatorError
        If an argument breaks a rule; ``.status`` is the aclnn code.
    BudgetError
        If it needs more memory than the budget (`npu_sim.budget`) has.

    Examples
    --------
    >>> import numpy as np
    >>> x, dy = np.ones((1, 1, 3, 3), np.float16), np.ones((1, 1, 2, 2), np.float16)
    >>> weight_gradient(x, dy, (1, 1, 2, 2)).grad_weight[0, 0]
    array([[4., 4.],
           [4., 4.]], dtype=float16)
    """
    chip = current_product() if product is None else get_product(product)
    fmap, grad = as_array(x, "x"), as_array(dy, "dy")
    promoted = promote(dtype_name(grad, "dy"), dtype_name(fmap, "x"))
    geometry = ConvGeometry.from_shapes(fmap.shape, grad.shape, weight_shape, stride, padding, dilation, groups)
    compute = resolve_compute_dtype(promoted, parse_cube_math_type(cube_math_type), chip)
    result_dtype = promoted if weight_dtype is None else _result_dtype(weight_dtype)
    check_supported(geometry, chip, compute, result_dtype)
    plan = plan_weight_gradient(geometry, chip, compute)
    options = run_options(chip, compute, accumulation, overflow, threads)
    reserve("Global memory and results of a call", plan.gm.total_bytes + 2 * 4 * prod(geometry.weight_shape))
    gradient = run_plan(plan, fmap, grad, options).reshape(ints("weight_shape", weight_shape))
    if result_dtype != "fp32":
        saturate = (overflow or chip.overflow_mode) == "saturate"
        gradient = cast(gradient, result_dtype, overflow="saturate" if saturate else "inf_nan")
    return WeightGradient(grad_weight=gradient, compute_dtype=compute, accumulation=options.accumulation, plan=plan)

"""The gradients of a convolution as one NumPy call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.arguments import flag, items, per_axis, whole
from npu_sim.dtypes.cube_math import CubeMathType, cube_math_number
from npu_sim.dtypes.formats import dtype_name
from npu_sim.engines.execute import Overflow
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product, get_product
from npu_sim.report.explain import record_call
from ops.common.arrays import as_array, contiguous
from ops.common.generation import Generation
from ops.common.options import run_options
from ops.common.padding import named_padding
from ops.common.plan_cache import planned_again, planned_once
from ops.common.quirks import parse_quirks
from ops.common.result import MultipliedResult
from ops.common.rule import Profile
from ops.common.run import empty_results
from ops.common.tensor_desc import TensorDesc, described
from ops.conv3d_backprop_filter.tiling_data import DwTiling
from ops.conv_backward.call import QUIRKS, ConvBackwardCall
from ops.conv_backward.explain import explain_call
from ops.conv_backward.plan import ConvBackwardPlan, plan_call
from ops.conv_backward.rules import check


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ConvolutionBackward(MultipliedResult):
    """Result of `convolution_backward`; two results are equal only if they are the same object.

    Attributes
    ----------
    grad_input, grad_weight, grad_bias : array or None
        Shape and dtype of input and of weight; [Cout] in the dtype of grad_output. None where masked off.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplied.
    accumulation : Accumulation
        Model of the Cube's additions.
    plan : ConvBackwardPlan
        Route, steps, layouts, tilings and workspace; calls that differ in their data alone may share it.
    """

    ARRAYS: ClassVar[tuple[str, ...]] = ("grad_input", "grad_weight", "grad_bias")
    grad_input: np.ndarray | None
    grad_weight: np.ndarray | None
    grad_bias: np.ndarray | None
    compute_dtype: str
    accumulation: Accumulation
    plan: ConvBackwardPlan


def _desc(array: np.ndarray) -> TensorDesc:
    """Return the descriptor of an array; a type the interface lacks keeps NumPy's name and is refused."""
    return described(array.shape, dtype_name(array.dtype))


@default_fenv
def plan_convolution_backward(
    grad_output: TensorDesc,
    input: TensorDesc,
    weight: TensorDesc,
    *,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    bias_sizes: Sequence[int] | None = None,
    profile: Profile | None = None,
    quirks: bool | Iterable[str] = False,
    deterministic: bool = False,
    strict_output_dtype: bool = False,
    generation: Generation = "published",
    block_dim: int | None = None,
    dw_tiling: DwTiling | None = None,
) -> ConvBackwardPlan:
    """Check and plan the call that `convolution_backward` makes of such tensors; no tensor data exists.

    Parameters
    ----------
    grad_output, input, weight : TensorDesc
        The tensors, see `described`. The others are those of `convolution_backward`.
    generation : {"published", "closed"}
        Of the kernels of A2 and A3 that exist twice (`ops.common.generation`).
    block_dim : int or None
        Cube cores that kernels may have; None: those of the product.
    dw_tiling : DwTiling or None
        Of the weight gradient's published kernel, one of `conv3d_backprop_filter.tiling_space`; None: what it chooses.

    Raises
    ------
    OperatorError, ShapeError, DTypeError, ProductError
        As `convolution_backward`.
    """
    call = _call_of(
        grad_output, input, weight, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups, output_mask=output_mask, cube_math_type=cube_math_type,
        product=product, bias_sizes=bias_sizes, profile=profile, quirks=quirks, deterministic=deterministic,
        strict_output_dtype=strict_output_dtype,
    )  # fmt: skip
    return plan_call(check(call), generation=generation, block_dim=block_dim, dw_tiling=dw_tiling)


def _call_of(
    grad_output: TensorDesc,
    input: TensorDesc,
    weight: TensorDesc,
    *,
    product: str | Product | None,
    bias_sizes: Sequence[int] | None,
    profile: Profile | None,
    stride: Any, padding: Any, dilation: Any, transposed: Any, output_padding: Any, groups: Any, output_mask: Any,
    cube_math_type: Any, quirks: Any, deterministic: Any, strict_output_dtype: Any,
) -> ConvBackwardCall:  # fmt: skip
    """Return the call with arguments as `convolution_backward` takes them."""
    axes = max(input.rank - 2, 1)
    strides, dilations = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    is_transposed = flag("transposed", transposed)
    pads = named_padding(padding, weight.shape[2:], strides, dilations, transposed=is_transposed)
    bias_length = grad_output.shape[1] if grad_output.rank > 1 else 0
    return ConvBackwardCall(
        product=current_product() if product is None else get_product(product),
        grad_output=grad_output,
        input=input,
        weight=weight,
        bias_sizes=(bias_length,) if bias_sizes is None else per_axis("bias_sizes", bias_sizes, 1),
        stride=strides,
        padding=per_axis("padding", pads, axes),
        dilation=dilations,
        transposed=is_transposed,
        output_padding=per_axis("output_padding", output_padding, axes),
        groups=whole("groups", groups),
        output_mask=tuple(
            flag("output_mask entry", entry) for entry in items("output_mask", output_mask, "three bools")
        ),
        cube_math_type=cube_math_number("cube_math_type", cube_math_type),
        grad_input=input,
        grad_weight=weight,
        grad_bias=TensorDesc(shape=(bias_length,), dtype=grad_output.dtype, format="ND"),
        profile="page" if profile is None else profile,
        quirks=parse_quirks(quirks, QUIRKS),
        deterministic=flag("deterministic", deterministic),
        strict_output_dtype=flag("strict_output_dtype", strict_output_dtype),
    )


@default_fenv
def convolution_backward(
    grad_output: npt.ArrayLike,
    input: npt.ArrayLike,
    weight: npt.ArrayLike,
    *,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    cube_math_type: int | str | CubeMathType = 0,
    product: str | Product | None = None,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
    core_order: int | None = None,
    bias_sizes: Sequence[int] | None = None,
    profile: Profile | None = None,
    quirks: bool | Iterable[str] = False,
    deterministic: bool = False,
    strict_output_dtype: bool = False,
) -> ConvolutionBackward:
    """Compute the gradients of a 1D, 2D or 3D convolution on the emulated machine, as aclnnConvolutionBackward does.

    Parameters
    ----------
    grad_output : array, (N, Cout, [[Do,] Ho,] Wo)
        float32, float16 or bfloat16, any strides and byte order, or a torch tensor in host memory; not modified.
    input : array, (N, Cin, [[D,] H,] W)
        Likewise.
    weight : array, (Cout, Cin / groups, [[KD,] KH,] KW), with ``transposed`` (Cin, Cout / groups, ...)
        Likewise.
    stride, padding, dilation, output_padding : int or sequence of int
        Per spatial axis; 2D padding also of length 4 (up, down, left, right), or as of PyTorch "valid" or "same".
    transposed : bool
        Gradients of the transposed convolution.
    groups : int
        Channel groups.
    output_mask : sequence of three bools
        Whether the gradients of input, weight and bias are wanted.
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
    core_order : int or None
        Whose partial sums of a weight gradient come first: the order of the cores, or by seed (0 or more) one of those
        that a device may take. Nothing else depends on it.
    bias_sizes : sequence of int or None
        Looked at only if a tensor is empty; None: Cout.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ; None: the page.
    quirks : bool, str, or list, tuple or set of str
        Faults of the library to reproduce, see `ops.conv_backward.call.QUIRKS`: all, none, or these.
    deterministic : bool
        The context's deterministic mode: a weight gradient whose additions have one order, by another route with other
        workspace. The other gradients have one anyway.
    strict_output_dtype : bool
        Refuse a gradient whose type, that of its tensor, is not the one the page names; off: it is cast to.

    Returns
    -------
    ConvolutionBackward
        Gradients, compute dtype and plan.

    Raises
    ------
    OperatorError
        The operator refuses the call; ``.status`` is its code (161001, 161002, 561103).
    ShapeError, DTypeError, ProductError
        An argument is no tensor, number or name at all; ``.status`` is 161002.
    BudgetError
        It needs more memory than the budget (`npu_sim.budget`) has.

    Examples
    --------
    >>> import numpy as np
    >>> g = w = np.ones((1, 1, 2, 2), np.float16)
    >>> x = np.ones((1, 1, 3, 3), np.float16)
    >>> convolution_backward(g, x, w, stride=1, padding=0, dilation=1).grad_input[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]], dtype=float16)

    How far apart may the results of a device be? Between orders in which cores may add, and between the deterministic
    results for the same:

    >>> rng = np.random.default_rng(0)
    >>> x, g = (rng.standard_normal((8, 16, 12, 12)).astype(np.float32) for _ in range(2))
    >>> w, mask = np.zeros((16, 16, 3, 3), np.float32), (False, True, False)
    >>> for deterministic in (False, True):
    ...     call = dict(stride=1, padding=1, dilation=1, output_mask=mask, deterministic=deterministic)
    ...     runs = [convolution_backward(g, x, w, core_order=seed, **call).grad_weight for seed in range(4)]
    ...     print(f"{np.ptp(runs, axis=0).max():.1e}")
    3.1e-05
    0.0e+00
    """
    tensors = {
        "grad_output": as_array(grad_output, "grad_output"),
        "input": as_array(input, "input"),
        "weight": as_array(weight, "weight"),
    }
    g, x, w = (contiguous(tensor, name) for name, tensor in tensors.items())
    chip = current_product() if product is None else get_product(product)

    def planned() -> ConvBackwardPlan:
        call = _call_of(
            _desc(g), _desc(x), _desc(w), stride=stride, padding=padding, dilation=dilation, transposed=transposed,
            output_padding=output_padding, groups=groups, output_mask=output_mask, cube_math_type=cube_math_type,
            product=chip, bias_sizes=bias_sizes, profile=profile, quirks=quirks,
            deterministic=deterministic, strict_output_dtype=strict_output_dtype,
        )  # fmt: skip
        return planned_once(call, chip, lambda: plan_call(check(call)))

    plan = planned_again(
        (g, x, w), chip, planned, "convolution_backward", stride, padding, dilation, transposed, output_padding, groups,
        output_mask, cube_math_type, bias_sizes, profile, quirks, deterministic, strict_output_dtype,
    )  # fmt: skip
    return run_convolution_backward(
        plan, g, x, w, accumulation=accumulation, overflow=overflow, threads=threads, core_order=core_order
    )


def _flat(storages: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: storage.reshape(-1) for name, storage in storages.items()}


@default_fenv
def run_convolution_backward(
    plan: ConvBackwardPlan,
    grad_output: np.ndarray,
    input: np.ndarray,
    weight: np.ndarray,
    *,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
    core_order: int | None = None,
) -> ConvolutionBackward:
    """Compute what `plan_convolution_backward` planned.

    Parameters
    ----------
    plan : ConvBackwardPlan
        For tensors of such shapes and types.
    grad_output, input, weight : array
        The tensors, contiguous; not modified. The others are those of `convolution_backward`.
    """
    resolved = plan.resolved
    record_call(lambda: explain_call(plan))
    options = run_options(resolved.product, resolved.compute_dtype, accumulation, overflow, threads, core_order)
    outputs = empty_results(plan.calls, resolved.wanted_outputs)
    tensors = {"grad_output": grad_output, "input": input, "weight": weight}
    plan.run(_flat(tensors), options, _flat(outputs))
    return ConvolutionBackward(
        grad_input=outputs.get("grad_input"),
        grad_weight=outputs.get("grad_weight"),
        grad_bias=outputs.get("grad_bias"),
        compute_dtype=resolved.compute_dtype,
        accumulation=options.accumulation,
        plan=plan,
    )

"""Weight gradients by shape: the calls of the studies, and where the shapes come from.

A case is what the user named; what is refused, cast and launched is the operator's business: `plan_case` plans the call
of `ops.convolution_backward` that wants the gradient of the weight alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any

from npu_sim.arguments import ints, whole
from npu_sim.dtypes.formats import dtype_name, get_dtype
from npu_sim.errors import DTypeError, InputFileError, OperatorError, ShapeError, shown
from npu_sim.products import Product, get_product
from ops.common.generation import Generation
from ops.common.padding import named_padding
from ops.common.pipeline import PlannedStep
from ops.common.status import PARAM_INVALID
from ops.common.tensor_desc import described
from ops.conv_backward.api import plan_convolution_backward
from ops.conv_backward.plan import ConvBackwardPlan
from ops.studies.convolution_kinds import output_mask
from ops.studies.layers import Capture, GradientName, Layer
from ops.studies.models.layers import ConvLayer
from ops.studies.models.tables import network
from ops.studies.rounding import STORAGE
from ops.studies.scope import Progress, Refusal, Scope


def storage_name(dtype: object) -> str:
    """Return "fp16", "bf16" or "fp32" for any name of theirs.

    Raises
    ------
    OperatorError
        161002: another one.
    """
    with contextlib.suppress(DTypeError):
        name = get_dtype(dtype).name
        if name in STORAGE:
            return name
    given = dtype if isinstance(dtype, str) and len(dtype) < 40 else shown(dtype)
    raise OperatorError(f"dtype must be one of {', '.join(STORAGE)}, not {given}", PARAM_INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvCase:
    """A convolution whose gradients are wanted; whether there is such a call, the operator decides.

    Attributes
    ----------
    name : str
        Name in reports.
    x_shape, dy_shape, weight_shape : tuple of int
        NC and the spatial axes of the input and of the gradient at the output; (Cout, Cin / groups, kernel...).
    stride, padding, dilation : tuple of int
        One entry per spatial axis; a padding of 4 entries is up, down, left, right.
    groups : int
        Channel groups.
    dtype : {"fp16", "bf16", "fp32"}
        Format of the tensors.

    Raises
    ------
    OperatorError
        161002: ``dtype`` is not a tensor format.
    """

    name: str
    x_shape: tuple[int, ...]
    dy_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: str
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", storage_name(self.dtype))

    @property
    def macs(self) -> int:
        """Multiply-adds of one gradient or of the convolution, padding included."""
        return prod(self.x_shape if self.transposed else self.dy_shape) * prod(self.weight_shape[1:])

    def facts(self) -> dict[str, Any]:
        """Return type, shapes and attributes as plain data."""
        names = ("x_shape", "dy_shape", "weight_shape", "stride", "padding", "dilation", "groups")
        return {"input_dtype": self.dtype} | {name: getattr(self, name) for name in names}

    def with_batch(self, batch: int) -> ConvCase:
        """Return the case with ``batch`` images."""
        return replace(self, x_shape=(batch, *self.x_shape[1:]), dy_shape=(batch, *self.dy_shape[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One layer on one product in one mode.

    Attributes
    ----------
    case : ConvCase
        The layer.
    product : str
        As it was asked for.
    chip : Product
        What that name stands for.
    cube_math_type : int
        0..3.
    refusal : Refusal or None
        Why it does not run.
    """

    case: ConvCase
    product: str
    chip: Product
    cube_math_type: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSet:
    """Cases of one source.

    Attributes
    ----------
    source : str
        File or network, for reports.
    cases : tuple of ConvCase
        In the order of the source.
    """

    source: str
    cases: tuple[ConvCase, ...]

    def select(self, names: Sequence[str] | None) -> CaseSet:
        """Return the cases with these names, in the order of the source; None keeps all.

        Raises
        ------
        InputFileError
            If there is no such case.
        """
        if names is None:
            return self
        known = [case.name for case in self.cases]
        for name in names:
            if name not in known:
                raise InputFileError(f"Layer must be one of {', '.join(known)}, not {name} ({self.source})")
        return CaseSet(source=self.source, cases=tuple(case for case in self.cases if case.name in names))


def case_of_layer(layer: Layer, dtype: str | None = None) -> ConvCase:
    """Return the shapes of a captured convolution; ``dtype`` replaces the format of its tensors."""
    return ConvCase(
        name=layer.name,
        x_shape=layer.x.shape,
        dy_shape=layer.dy.shape,
        weight_shape=layer.weight_shape,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        dtype=dtype or dtype_name(layer.x.dtype),
        transposed=layer.transposed,
        output_padding=layer.output_padding,
    )


def cases_of_capture(capture: Capture, dtype: str | None = None) -> CaseSet:
    """Return the shapes of the captured convolutions; ``dtype`` replaces the format of their tensors.

    Raises
    ------
    InputFileError
        There is none.
    """
    cases = tuple(case_of_layer(layer, dtype) for layer in capture.layers if isinstance(layer, Layer))
    if not cases:
        raise InputFileError(f"Layers must hold at least one convolution, not poolings alone ({capture.source})")
    return CaseSet(source=capture.source, cases=cases)


def cases_of_model(name: str, batch: int, dtype: str = "fp16") -> CaseSet:
    """Return the convolutions of a network for ``batch`` images.

    Raises
    ------
    InputFileError
        If there is no such network.
    ShapeError
        If ``batch`` is out of range.
    """
    table, images = network(name), whole("batch", batch)
    cases = tuple(case_of_table(layer, images, dtype) for layer in table.convolutions)
    return CaseSet(source=f"{name}, batch {images}", cases=cases)


def case_of_table(layer: ConvLayer, batch: int, dtype: str) -> ConvCase:
    """Return the shapes of a convolution of a layer table for ``batch`` images."""
    return ConvCase(
        name=layer.name,
        x_shape=layer.x_shape(batch),
        dy_shape=layer.dy_shape(batch),
        weight_shape=layer.weight_shape,
        stride=layer.stride,
        padding=layer.padding,
        dilation=(1,) * len(layer.stride),
        groups=layer.groups,
        dtype=dtype,
        transposed=layer.transposed,
    )


def case_of_shape(
    x_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] | str = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
    dtype: str = "fp16",
) -> ConvCase:
    """Return one convolution; the shape of the output follows from the others.

    Parameters
    ----------
    x_shape : sequence of int
        (N, Cin, spatial axes), rank 3 to 5.
    weight_shape : sequence of int
        (Cout, Cin / groups, kernel), same rank.
    stride, padding, dilation : sequence of int
        One value for all axes or one for each; 2D padding also of length 4 (up, down, left, right), any also "same" or
        "valid" (`ops.common.padding`).
    groups, dtype
        As of `ConvCase`.

    Raises
    ------
    ShapeError, OperatorError
        If they are no convolution.
    """
    x_shape, weight_shape = ints("x", x_shape), ints("weight", weight_shape)
    stride, dilation = ints("stride", stride), ints("dilation", dilation)
    if len(x_shape) not in (3, 4, 5):
        raise ShapeError(f"x must have rank 3 (NCL), 4 (NCHW) or 5 (NCDHW), not {len(x_shape)}")
    if len(weight_shape) != len(x_shape):
        raise ShapeError(f"weight must have the rank of x ({len(x_shape)}), not {len(weight_shape)}")
    axes = len(x_shape) - 2
    strides, dilations = _per_axis("stride", stride, axes), _per_axis("dilation", dilation, axes)
    if min(strides) < 1:
        raise ShapeError(f"stride must be at least 1, not {min(strides)}")
    pads = ints("padding", named_padding(padding, weight_shape[2:], strides, dilations))
    if axes != 2 or len(pads) != 4:
        pads = _per_axis("padding", pads, axes)
    around = (pads[0] + pads[1], pads[2] + pads[3]) if len(pads) > axes else tuple(2 * pad for pad in pads)
    output = []
    for axis in range(axes):
        extent, kernel = x_shape[2 + axis] + around[axis], (weight_shape[2 + axis] - 1) * dilations[axis] + 1
        if kernel > extent:
            raise ShapeError(
                f"Kernel must fit into the padded input, but axis {axis} has {extent} elements and the dilated kernel "
                f"{kernel}"
            )
        output.append((extent - kernel) // strides[axis] + 1)
    return ConvCase(
        name="x".join(str(extent) for extent in x_shape),
        x_shape=x_shape,
        dy_shape=(x_shape[0], weight_shape[0], *output),
        weight_shape=weight_shape,
        stride=strides,
        padding=pads,
        dilation=dilations,
        groups=groups,
        dtype=dtype,
    )


def _per_axis(name: str, values: Sequence[int], axes: int) -> tuple[int, ...]:
    if len(values) not in (1, axes):
        raise ShapeError(f"{name} must have 1 or {axes} entries, not {len(values)}")
    return tuple(values) if len(values) == axes else (values[0],) * axes


def plan_case(
    case: ConvCase,
    product: Product,
    cube_math_type: int,
    gradients: Sequence[GradientName] = ("dw",),
    *,
    generation: Generation = "published",
    block_dim: int | None = None,
) -> ConvBackwardPlan:
    """Return the plan of the call that computes some gradients of ``case``; no tensor data exists.

    ``generation`` and ``block_dim``: as of `plan_convolution_backward`.

    Raises
    ------
    NpuSimError
        The operator refuses the call; with the status the library would return.
    """
    dy, x, weight = (described(shape, case.dtype) for shape in (case.dy_shape, case.x_shape, case.weight_shape))
    return plan_convolution_backward(
        dy, x, weight, stride=case.stride, padding=case.padding, dilation=case.dilation, groups=case.groups,
        transposed=case.transposed, output_padding=case.output_padding or 0, output_mask=output_mask(*gradients),
        cube_math_type=cube_math_type, product=product, generation=generation, block_dim=block_dim,
    )  # fmt: skip


def steps_of(plan: ConvBackwardPlan, scope: Scope) -> tuple[PlannedStep, ...]:
    """Return the steps of a call, in stream order: all of them, or the kernel that multiplies."""
    return plan.calls.steps if scope == "call" else plan.multiplying_steps


def program_name() -> str:
    """Return this program's name and version, for reports."""
    try:
        return f"npu-sim {version('npu-sim')}"
    except PackageNotFoundError:
        return "npu-sim (not installed)"


def combinations(
    cases: CaseSet, products: Sequence[str], cube_math_types: Sequence[int], progress: Progress | None
) -> Iterator[tuple[str, Product, int, ConvCase]]:
    """Yield (product as named, product, mode, case): every case in every mode on every product.

    Raises
    ------
    ProductError
        If a product is unknown; nothing has been yielded then.
    """
    chips = {name: get_product(name) for name in products}
    every = [
        (name, chip, mode, case) for name, chip in chips.items() for mode in cube_math_types for case in cases.cases
    ]
    for done, (name, chip, mode, case) in enumerate(every):
        if progress:
            progress(done, len(every), f"{name} cubeMathType {mode} {case.name}")
        yield name, chip, mode, case
    if progress:
        progress(len(every), len(every), "done")

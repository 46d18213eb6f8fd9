"""Weight gradients by shape: what the studies without tensor data run, and where the shapes come from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from npu_sim.arguments import ints, items, whole
from npu_sim.dtypes.cube_math import resolve_compute_dtype
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import DTypeError, InputFileError, OperatorError, ShapeError, shown
from npu_sim.products import Product, get_product
from ops.common.geometry import ConvGeometry
from ops.common.padding import named_padding
from ops.conv3d_backprop_filter.api import check_supported
from ops.conv3d_backprop_filter.plan import WeightGradientPlan, plan_weight_gradient
from ops.studies.capture import Capture
from ops.studies.models import MODELS
from ops.studies.precision import Progress
from ops.studies.rounding import STORAGE, dtype_name

PARAM_INVALID = 161002


_ATTRIBUTES = ("stride", "padding", "dilation")


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


def _named(names: tuple[str, ...], values: object) -> Iterator[tuple[str, Any]]:
    """Yield each of three values with its name."""
    found = items(" and ".join(names), values, f"{len(names)} sequences of ints")
    if len(found) != len(names):
        raise ShapeError(f"{', '.join(names)} must be {len(names)} sequences of ints, not {len(found)}")
    yield from zip(names, found, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvCase:
    """A convolution whose weight gradient is wanted.

    Attributes
    ----------
    name : str
        Name in reports.
    x_shape, dy_shape, weight_shape : tuple of int
        NC and the spatial axes of the input and of the gradient at the output; (Cout, Cin / groups, kernel...).
    stride, padding, dilation : tuple of int
        One entry per spatial axis, or one for all; a padding of 4 entries is up, down, left, right.
    groups : int
        Channel groups.
    dtype : {"fp16", "bf16", "fp32"}
        Format of the tensors.
    geometry : ConvGeometry
        The same, validated.
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
    geometry: ConvGeometry

    @classmethod
    def build(
        cls,
        name: str,
        shapes: tuple[Sequence[int], Sequence[int], Sequence[int]],
        attributes: tuple[Sequence[int], Sequence[int], Sequence[int]],
        *,
        groups: int,
        dtype: str,
    ) -> ConvCase:
        """Return the case of ``shapes`` (x, dy, weight) and ``attributes`` (stride, padding, dilation).

        Raises
        ------
        ShapeError
            If no convolution connects them.
        OperatorError
            161002 if ``dtype`` is not a tensor format.
        """
        x, dy, weight = (ints(what, shape) for what, shape in _named(("x", "dy", "weight"), shapes))
        stride, padding, dilation = (ints(what, given) for what, given in _named(_ATTRIBUTES, attributes))
        return cls(
            name=name,
            x_shape=x,
            dy_shape=dy,
            weight_shape=weight,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            dtype=storage_name(dtype),
            geometry=ConvGeometry.from_shapes(x, dy, weight, stride, padding, dilation, groups),
        )


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


def cases_of_capture(capture: Capture, dtype: str | None = None) -> CaseSet:
    """Return the shapes of captured layers; ``dtype`` replaces the format of their tensors."""
    cases = tuple(
        ConvCase.build(
            layer.name,
            (layer.x.shape, layer.dy.shape, layer.weight_shape),
            (layer.stride, layer.padding, layer.dilation),
            groups=layer.groups,
            dtype=dtype or dtype_name(layer.x.dtype),
        )
        for layer in capture.layers
    )
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
    if not isinstance(name, str) or name not in MODELS:
        given = name if isinstance(name, str) and len(name) < 40 else shown(name)
        raise InputFileError(f"Model must be one of {', '.join(MODELS)}, not {given}")
    images = whole("batch", batch)
    cases = tuple(
        ConvCase.build(
            layer.name,
            (layer.x_shape(images), layer.dy_shape(images), layer.weight_shape),
            ((layer.stride, layer.stride), (layer.pad, layer.pad), (1, 1)),
            groups=layer.groups,
            dtype=dtype,
        )
        for layer in MODELS[name]()
    )
    return CaseSet(source=f"{name}, batch {images}", cases=cases)


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
    groups : int
        Channel groups.
    dtype : {"fp16", "bf16", "fp32"}
        Format of the tensors.

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
    strides, dilations = _per_axis("stride", stride, axes, 1), _per_axis("dilation", dilation, axes, 1)
    padding = ints("padding", named_padding(padding, weight_shape[2:], strides, dilations))
    if axes == 2 and len(padding) == 4:
        pads: tuple[int, ...] = (padding[0] + padding[1], padding[2] + padding[3])
    else:
        pads = tuple(2 * value for value in _per_axis("padding", padding, axes, 0))
    output = []
    for axis in range(axes):
        extent, kernel = x_shape[2 + axis] + pads[axis], (weight_shape[2 + axis] - 1) * dilations[axis] + 1
        if kernel > extent:
            raise ShapeError(
                f"Kernel must fit into the padded input, but axis {axis} has {extent} elements and the dilated kernel "
                f"{kernel}"
            )
        output.append((extent - kernel) // strides[axis] + 1)
    per_axis = padding if len(padding) > 1 else tuple(padding) * axes
    return ConvCase.build(
        "x".join(str(extent) for extent in x_shape),
        (x_shape, (x_shape[0], weight_shape[0], *output), weight_shape),
        (strides, per_axis, dilations),
        groups=groups,
        dtype=dtype,
    )


def _per_axis(name: str, values: Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    if len(values) not in (1, axes):
        raise ShapeError(f"{name} must have 1 or {axes} entries, not {len(values)}")
    if min(values) < least:
        raise ShapeError(f"{name} must be at least {least}, not {min(values)}")
    return tuple(values) if len(values) == axes else (values[0],) * axes


def plan_case(case: ConvCase, product: Product, cube_math_type: int) -> WeightGradientPlan:
    """Return tiling and launches of ``case``, refusing what the operator refuses; no tensor data exists.

    Raises
    ------
    NpuSimError
        With the status the library would return.
    """
    compute_dtype = resolve_compute_dtype(case.dtype, cube_math_type, product)
    check_supported(case.geometry, product, compute_dtype, case.dtype)
    return plan_weight_gradient(case.geometry, product, compute_dtype)


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

"""Random small backward calls of every rank, product, mode and mask, and what they must give."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ops.conv_backward.api import ConvolutionBackward
from tests.cases.page_range import page_geometry
from tests.oracles.convolution import Attributes, gradients, output_extent
from tests.oracles.series import SERIES, SPLIT

NUMPY: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
_UNIT = {"fp32": 2.0**-24, "hf32": 2.0**-12, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Unit roundoff of each type."""
_TINY = {"fp32": 2.0**-149, "hf32": 2.0**-137, "fp16": 2.0**-24, "bf16": 2.0**-133}
"""Smallest subnormal of each type."""
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyCall:
    """What calls with extents that fit have in either direction."""

    series: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    cube_math_type: int
    dtypes: tuple[str, str, str]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(AnyCall):
    """One call, in the words of `ops.convolution_backward`."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    output_mask: tuple[bool, bool, bool]

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(before, after) of each axis; whole strides of output padding are so much less padding behind."""
        four = len(self.padding) > len(self.stride)
        before, after = (self.padding[::2], self.padding[1::2]) if four else (self.padding, self.padding)
        axes = zip(before, after, self.output_padding, self.stride, strict=True)
        return tuple((first, last - extra // step * step) for first, last, extra, step in axes)

    @property
    def attributes(self) -> Attributes:
        """What the oracle needs."""
        return Attributes(
            stride=self.stride, pads=self.pads, dilation=self.dilation, groups=self.groups, transposed=self.transposed
        )

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of `ops.convolution_backward`."""
        names = (
            "stride", "padding", "dilation", "groups", "transposed", "output_padding", "output_mask", "cube_math_type",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"product": self.series}

    def record(self) -> dict[str, Any]:
        """Return the call as plain data."""
        return asdict(self)


def _dtypes(rng: np.random.Generator, series: str) -> tuple[tuple[str, str, str], int]:
    """Return types of grad_output, input and weight, and a cubeMathType the product takes for them."""
    kinds = ["fp16", "fp32"] + (["bf16"] if series in SPLIT else [])
    one = str(rng.choice(kinds))
    types = (one, one, one) if rng.random() < 0.7 else tuple(str(kind) for kind in rng.choice(kinds, 3))
    promoted = types[0] if len(set(types)) == 1 else "fp32"
    modes = [0, 1, 2, 3] if series in SPLIT or promoted == "fp16" else [1, 2]
    return types, int(rng.choice(modes))  # type: ignore[return-value]


def _axis(rng: np.random.Generator, transposed: bool, symmetric: bool) -> dict[str, Any]:
    """Return extents and attributes of one axis that fit."""
    while True:
        kernel, stride, dilation = (
            int(value) for value in (rng.integers(1, 5), rng.integers(1, 4), rng.integers(1, 4))
        )
        before = int(rng.integers(0, 4))
        after = before if symmetric else int(rng.integers(0, 4))
        extent = int(rng.integers(1, 12))
        if transposed:
            extra = int(rng.integers(0, stride))
            out = (extent - 1) * stride - before - after + dilation * (kernel - 1) + extra + 1
            if out < 1 or output_extent(out, kernel, stride, (before, after), dilation) != extent:
                continue
        else:
            extra = 0
            out = output_extent(extent, kernel, stride, (before, after), dilation)
            if extent + before + after < dilation * (kernel - 1) + 1 or out < 1:
                continue
        return {
            "extent": extent, "out": out, "kernel": kernel, "stride": stride, "dilation": dilation, "before": before,
            "after": after, "extra": extra,
        }  # fmt: skip


def _tiled_axis(rng: np.random.Generator, out: int) -> dict[str, Any]:
    """Return an axis whose windows lie side by side."""
    kernel = int(rng.integers(1, 5))
    return {
        "extent": out * kernel, "out": out, "kernel": kernel, "stride": kernel, "dilation": 1, "before": 0, "after": 0,
        "extra": 0,
    }  # fmt: skip


def random_call(rng: np.random.Generator, series: str | None = None) -> Call:
    """Return a small call that the library accepts."""
    product = series or str(rng.choice(SERIES))
    ranks = (1, 2, 2, 3) if product in SPLIT else (1, 2, 2)
    spatial = int(rng.choice(ranks))
    transposed = bool(rng.random() < 0.35)
    four_pads = spatial == 2 and rng.random() < 0.4
    axes = [_axis(rng, transposed, not four_pads) for _ in range(spatial)]
    groups = int(rng.choice((1, 1, 1, 2, 3, 4, 17)))
    if not transposed and rng.random() < 0.1:
        # windows side by side, or one that covers the map: the library multiplies matrices
        groups, four_pads = 1, False
        axes = [_tiled_axis(rng, int(rng.choice((1, 1, 2, 3)))) for _ in range(spatial)]
    depthwise = groups > 1 and rng.random() < 0.4
    per_group_in = 1 if depthwise else int(rng.integers(1, 20 if groups == 1 else 7))
    per_group_out = int(rng.integers(1, 20 if groups == 1 else 5))
    cin, cout, batch = groups * per_group_in, groups * per_group_out, int(rng.integers(1, 4))
    if transposed and depthwise:
        cin, cout = cout, cin
    kernel = tuple(axis["kernel"] for axis in axes)
    weight = (cin, cout // groups, *kernel) if transposed else (cout, cin // groups, *kernel)
    types, mode = _dtypes(rng, product)
    mask = tuple(bool(value) for value in rng.random(3) < 0.75)
    if spatial == 3 and groups > 1 and types[2] == "fp32" and mode == 2:
        # the library refuses a float32 grouped 3D weight gradient of a 16-bit computation
        mask = (mask[0], False, mask[2])
    padding = [axis["before"] for axis in axes]
    if four_pads:
        padding = [value for axis in axes for value in (axis["before"], axis["after"])]
    return Call(
        series=product,
        input_shape=(batch, cin, *(axis["extent"] for axis in axes)),
        weight_shape=weight,
        output_shape=(batch, cout, *(axis["out"] for axis in axes)),
        stride=tuple(axis["stride"] for axis in axes),
        padding=tuple(padding),
        dilation=tuple(axis["dilation"] for axis in axes),
        groups=groups,
        transposed=transposed,
        output_padding=tuple(axis["extra"] for axis in axes),
        output_mask=mask,  # type: ignore[arg-type]
        cube_math_type=mode,
        dtypes=types,
        seed=int(rng.integers(2**31)),
    )


def page_call(rng: np.random.Generator, series: str | None = None, *, most_macs: int = 20_000_000) -> Call:
    """Return a call over the whole range of the operator's page, see `page_geometry`."""
    product = series or str(rng.choice(SERIES))
    g = page_geometry(rng, most_macs=most_macs, allow_depth=product in SPLIT)
    rank, transposed = g.spatial_rank, bool(rng.random() < 0.35)
    sizes = ((g.di, g.hi, g.wi)[3 - rank :], (g.do, g.ho, g.wo)[3 - rank :], (g.kd, g.kh, g.kw)[3 - rank :])
    x, y = (g.n, g.cin, *sizes[0]), (g.n, g.cout, *sizes[1])
    pads = tuple(zip(g.pad[::2], g.pad[1::2], strict=True))[3 - rank :]
    types, mode = _dtypes(rng, product)
    mask = tuple(bool(value) for value in rng.random(3) < 0.75)
    if rank == 3 and g.groups > 1 and types[2] == "fp32" and mode == 2:
        mask = (mask[0], False, mask[2])
    return Call(
        series=product,
        input_shape=y if transposed else x,
        weight_shape=(g.cout, g.cin // g.groups, *sizes[2]),
        output_shape=x if transposed else y,
        stride=g.stride[3 - rank :],
        padding=tuple(pad for pair in pads for pad in pair) if rank == 2 else tuple(pad for pad, _ in pads),
        dilation=g.dilation[3 - rank :],
        groups=g.groups,
        transposed=transposed,
        output_padding=(0,) * rank,
        output_mask=mask,  # type: ignore[arg-type]
        cube_math_type=mode,
        dtypes=types,
        seed=int(rng.integers(2**31)),
    )


def operands(call: Call, *, integers: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return grad_output, input and weight: small integers, whose sums every type holds, or normal deviates."""
    rng = np.random.default_rng(call.seed)
    shapes = (call.output_shape, call.input_shape, call.weight_shape)
    arrays = []
    for shape, dtype in zip(shapes, call.dtypes, strict=True):
        values = rng.integers(-1, 2, shape) if integers else rng.standard_normal(shape)
        arrays.append(values.astype(np.float32).astype(NUMPY[dtype]))
    return arrays[0], arrays[1], arrays[2]


def exact_gradients(
    call: Call, arrays: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the three gradients in float64."""
    g, x, w = (array.astype(np.float64) for array in arrays)
    return gradients(g, x, w, call.attributes)


def bounds(
    call: Call, arrays: tuple[np.ndarray, np.ndarray, np.ndarray], exact: tuple[np.ndarray, ...], compute_dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `bounds_of` the outputs of ``call``."""
    types = (call.dtypes[1], call.dtypes[2], call.dtypes[0])
    return bounds_of(arrays, call.attributes, exact, compute_dtype, call.dtypes[0], types)


def magnitudes(array: np.ndarray, compute_dtype: str) -> np.ndarray:
    """Return the magnitudes that the roundoff of the type is relative to: no less than its smallest normal number."""
    values = np.abs(array.astype(np.float64))
    return np.where(values == 0, 0.0, np.maximum(values, _TINY[compute_dtype] / (2 * _UNIT[compute_dtype])))


def bounds_of(
    arrays: tuple[np.ndarray, ...],
    attributes: Attributes,
    exact: tuple[np.ndarray, ...],
    compute_dtype: str,
    bias_dtype: str,
    output_dtypes: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how far each element of each gradient may be from the exact one.

    With u the roundoff of the operands in the Cube, K the number of products and S the sum of their `magnitudes`:
    both operands are rounded (2u + u^2), K additions in float32 of relative error 2^-23 each (rounding toward zero
    included), then one rounding to the kernel's type and one to the output's, each with its smallest subnormal.
    """
    g, x, w = (magnitudes(array, compute_dtype) for array in arrays)
    sizes = gradients(g, x, w, attributes)
    unit = _UNIT[compute_dtype]
    stored = "fp32" if compute_dtype == "hf32" else compute_dtype
    taps = int(np.prod(w.shape[2:]))
    additions = (
        taps * (w.shape[1] if attributes.transposed else w.shape[0] // attributes.groups),
        g.shape[0] * max(int(np.prod(g.shape[2:])), int(np.prod(x.shape[2:]))),
        g.shape[0] * int(np.prod(g.shape[2:])),
    )
    kernel_types = (stored, "fp32", bias_dtype)
    result = []
    for i in range(3):
        operand_error = 0.0 if i == 2 else 2 * unit + unit * unit
        total = sizes[i] * (operand_error + (additions[i] + 2) * 2.0**-23)
        for kind in (kernel_types[i], output_dtypes[i]):
            total = total + (np.abs(exact[i]) + total) * _UNIT[kind] + _TINY[kind]
        result.append(total)
    return result[0], result[1], result[2]


def is_exact(call: Call, result: ConvolutionBackward, exact: tuple[np.ndarray, ...]) -> bool:
    """Return whether all gradients are the exact ones, rounded once."""
    dtypes = (call.dtypes[1], call.dtypes[2], call.dtypes[0])
    for name, want, dtype in zip(OUTPUTS, exact, dtypes, strict=True):
        got = getattr(result, name)
        if got is not None and not np.array_equal(got, want.astype(np.float32).astype(NUMPY[dtype])):
            return False
    return True


def share_of_bound(call: Call, result: ConvolutionBackward, arrays: Any, exact: tuple[np.ndarray, ...]) -> float:
    """Return the largest error of any element as a share of what it may be."""
    shares = [0.0]
    for name, want, allowed in zip(OUTPUTS, exact, bounds(call, arrays, exact, result.compute_dtype), strict=True):
        got = getattr(result, name)
        if got is not None and got.size:
            shares.append(float((np.abs(got.astype(np.float64) - want) / allowed).max()))
    return max(shares)

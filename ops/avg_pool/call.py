"""A call of aclnnAvgPool2dBackward as data: tensors as descriptors, no tensor data, nothing checked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from npu_sim.budget import reserve
from npu_sim.products import Product
from ops.common.quirks import check_quirks
from ops.common.rule import Profile, check_profile
from ops.common.tensor_desc import TensorDesc

DEVIATIONS = {
    "A1": "unified cores, with countIncludePad and no divisorOverride: a last window that ceilMode lets reach over the "
    "padded input is divided by kH * kW",
    "A2": "unified cores: without countIncludePad a divisorOverride of 255 or -255 is ignored",
    "A3": "unified cores, FP16, without countIncludePad and divisorOverride: windows of more than 2048 elements are "
    "divided by 2048",
    "A4": "split cores: cubeMathType 1 on the Cube computes FP32 and BF16 tensors in FP16 (off: HF32 resp. FP32)",
    "A5": "a global pooling with padding fills the whole plane with gradOutput / (kH * kW)",
}
"""Where the library differs from the gradient's definition or its page; all off by default. Source: ops-nn
``pooling/avg_pool3_d_grad/op_api``."""

AXIS_NAMES = ("H", "W")
_COPIES = 5
"""Arrays of int64 that the counting of windows makes at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAxis:
    """One spatial axis.

    Attributes
    ----------
    name : str
        "H" or "W".
    x, y : int
        Extents of the input and of gradOutput.
    kernel, stride, pad : int
        Of the pooling; ``pad`` on both sides.
    """

    name: str
    x: int
    y: int
    kernel: int
    stride: int
    pad: int

    def expected_y(self, ceil_mode: bool) -> int:
        """Return the forward output's extent (PyTorch's rule; the page's formula is garbled)."""
        room = self.x + 2 * self.pad - self.kernel + (self.stride - 1 if ceil_mode else 0)
        windows = room // self.stride + 1
        if ceil_mode and (windows - 1) * self.stride >= self.x + self.pad:
            windows -= 1
        return windows

    @property
    def covered(self) -> np.ndarray:
        """Elements of the input under each window, int64[y]."""
        start = self._starts()
        return np.maximum(np.minimum(start + self.kernel, self.x) - np.maximum(start, 0), 0)

    @property
    def padded(self) -> np.ndarray:
        """Positions of the padded input under each window, int64[y]."""
        start = self._starts()
        return np.maximum(np.minimum(start + self.kernel, self.x + self.pad) - start, 0)

    def _starts(self) -> np.ndarray:
        reserve(f"Windows along {self.name}", self.y * 8 * _COPIES)
        return np.arange(self.y) * self.stride - self.pad

    @property
    def is_clipped(self) -> bool:
        """Whether a window reaches over the padded input."""
        return self.y > 0 and (self.y - 1) * self.stride + self.kernel > self.x + 2 * self.pad

    @property
    def end_pad(self) -> int:
        """Padding behind the axis in the convolution that does the same; negative: the end is under no window."""
        return max(0, (self.y - 1) * self.stride + self.kernel - self.x) - self.pad


def expanded(values: tuple[int, ...] | None, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return one entry per axis: one stands for both, none (or a null pointer) for ``default``."""
    if not values:
        return default
    return values * 2 if len(values) == 1 else values


def pool_axes(
    x: TensorDesc | None,
    y: TensorDesc | None,
    kernel_size: tuple[int, ...] | None,
    stride: tuple[int, ...] | None,
    padding: tuple[int, ...] | None,
) -> tuple[PoolAxis, ...]:
    """Return height and width of a pooling from ``x`` to ``y``, or () if ranks, lengths or values make none."""
    if x is None or y is None or x.rank != y.rank or x.rank not in (3, 4):
        return ()
    kernel, pad = expanded(kernel_size), expanded(padding)
    steps = expanded(stride, kernel)
    if not len(kernel) == len(steps) == len(pad) == 2 or min(*kernel, *steps) < 1:
        return ()
    return tuple(
        PoolAxis(name=name, x=x.shape[i - 2], y=y.shape[i - 2], kernel=kernel[i], stride=steps[i], pad=pad[i])
        for i, name in enumerate(AXIS_NAMES)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingCall:
    """What the calls of both passes have; None stands for a null pointer.

    Attributes
    ----------
    product : Product
        Where it runs.
    input : TensorDesc or None
        (N, C, H, W) or (C, H, W).
    kernel_size : tuple of int or None
        As given.
    ceil_mode, count_include_pad : bool
        Of the pooling.
    divisor_override : int
        0: none.
    cube_math_type : int
        What the Cube may do with the precision.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ; None as the operator says.
    quirks : frozenset of str
        Deviations that are on, of those that the operator has.

    Raises
    ------
    OperatorError
        161002: no such profile or quirk. Everything else is the business of the rules.
    """

    KNOWN: ClassVar[Mapping[str, str]]
    product: Product
    input: TensorDesc | None
    kernel_size: tuple[int, ...] | None
    ceil_mode: bool
    count_include_pad: bool
    divisor_override: int
    cube_math_type: int
    profile: Profile | None = None
    quirks: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.profile is not None:
            check_profile(self.profile, "None or one of")
        check_quirks(self.quirks, self.KNOWN)

    @property
    def channels(self) -> int:
        """C of the input; 0 if there is none."""
        return 0 if self.input is None or self.input.rank < 3 else self.input.shape[-3]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgPoolCall(PoolingCall):
    """The arguments of aclnnAvgPool2dBackward; the rest as of `PoolingCall`, of input only the shape matters.

    Without a profile the page wins where it names the series; then more than 65535 channels are computed where a route
    can. The page's rule on the type and format of self holds wherever the profile is not "library".

    Attributes
    ----------
    grad_output, grad_input : TensorDesc or None
        (N, C, H, W) or (C, H, W).
    stride, padding : tuple of int or None
        As given.
    strict_shape : bool
        gradOutput must have the forward output's shape; otherwise what the library computes is computed.
    deterministic : bool
        The context's deterministic mode.
    """

    KNOWN: ClassVar[Mapping[str, str]] = DEVIATIONS
    grad_output: TensorDesc | None
    stride: tuple[int, ...] | None
    padding: tuple[int, ...] | None
    grad_input: TensorDesc | None
    strict_shape: bool = False
    deterministic: bool = False

    @property
    def column(self) -> Profile:
        """The profile in force."""
        return self.profile or ("page" if self.product.on_operator_pages else "library")

    @property
    def is_empty(self) -> bool:
        """Whether a tensor has no element, so that nothing is computed."""
        return any(desc is not None and desc.elems == 0 for desc in (self.grad_output, self.input, self.grad_input))

    @property
    def kernel(self) -> tuple[int, ...]:
        """Kernel per axis."""
        return expanded(self.kernel_size)

    @property
    def axes(self) -> tuple[PoolAxis, ...]:
        """Height and width, or () if ranks, lengths or values make none (another rule says so)."""
        return pool_axes(self.input, self.grad_output, self.kernel_size, self.stride, self.padding)

    @property
    def planes(self) -> int:
        """Planes of gradOutput, N * C."""
        count = 1
        for extent in () if self.grad_output is None else self.grad_output.shape[:-2]:
            count *= extent
        return count


def covered_counts(axes: tuple[PoolAxis, ...]) -> np.ndarray:
    """Return the elements of the input under each window, int64[Ho, Wo]."""
    h, w = axes
    reserve("Divisors of the windows", h.y * w.y * 8 * _COPIES)
    return np.multiply.outer(h.covered, w.covered)


class Averaging(Protocol):
    """What decides the divisors of windows."""

    @property
    def divisor_override(self) -> int:
        """What sums are divided by instead; 0: no override."""

    @property
    def count_include_pad(self) -> bool:
        """Whether positions in the padding count."""


def divisors(call: Averaging, axes: tuple[PoolAxis, ...]) -> np.ndarray:
    """Return what each window's sum is divided by, int64[Ho, Wo]; 0 for a window without any element under it."""
    covered = covered_counts(axes)
    h, w = axes
    if call.divisor_override:
        return np.where(covered > 0, call.divisor_override, 0)
    if call.count_include_pad:
        return np.where(covered > 0, np.multiply.outer(h.padded, w.padded), 0)
    return covered

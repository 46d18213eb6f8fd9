"""A call of aclnnConvolutionBackward as data: tensors as descriptors, no tensor data, nothing checked yet."""

from __future__ import annotations

from dataclasses import dataclass

from ops.common.conv_axes import ConvAxis, ConvCall, spatial_axes, split_padding
from ops.common.quirks import check_quirks
from ops.common.rule import Profile, check_profile
from ops.common.tensor_desc import TensorDesc

QUIRKS = ("Q1", "Q2", "Q3")
"""Faults of the library that can be switched on; all are off by default.

Q1: with groups, a float32 weight gradient of a 16-bit computation is cast to the 16-bit type and back (1D and 2D).
Q2: the window check of empty calls reads a padding of length 4 as if its first two entries were those of H and W.
Q3: a deterministic 3D weight gradient with groups is refused, as in the operator's first published version.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvBackwardCall(ConvCall):
    """The arguments of one call, in the words of the C interface; the rest as of `ConvCall`.

    Attributes
    ----------
    grad_output : TensorDesc or None
        N, C, spatial axes.
    bias_sizes : tuple of int or None
        As given.
    output_mask : tuple of bool or None
        Whether the gradients of input, weight and bias are wanted.
    grad_input, grad_weight, grad_bias : TensorDesc or None
        Where the results go.
    profile : {"page", "library"}
        What wins where the operator's page and newer library source differ. "page" refuses what is outside the page's
        ranges; "library" leaves ranges to the kernels.
    quirks : frozenset of str
        Members of `QUIRKS` that are on.
    deterministic : bool
        The context's deterministic mode.

    Raises
    ------
    OperatorError
        161002: no such profile or quirk. Everything else is the business of the rules.
    """

    grad_output: TensorDesc | None
    bias_sizes: tuple[int, ...] | None
    output_mask: tuple[bool, ...] | None
    grad_input: TensorDesc | None
    grad_weight: TensorDesc | None
    grad_bias: TensorDesc | None
    profile: Profile = "page"
    quirks: frozenset[str] = frozenset()
    deterministic: bool = False

    def __post_init__(self) -> None:
        check_profile(self.profile)
        check_quirks(self.quirks, QUIRKS)

    @property
    def column(self) -> Profile:
        """The profile in force."""
        return self.profile

    @property
    def x(self) -> TensorDesc | None:
        """The feature map of the convolution y = conv(x, w): input, or gradOutput with ``transposed``."""
        return self.grad_output if self.transposed else self.input

    @property
    def y(self) -> TensorDesc | None:
        """The result of the convolution y = conv(x, w): gradOutput, or input with ``transposed``."""
        return self.input if self.transposed else self.grad_output

    def wants(self, output: int) -> bool:
        """Return whether output 0 (gradInput), 1 (gradWeight) or 2 (gradBias) is wanted."""
        return self.output_mask is not None and output < len(self.output_mask) and self.output_mask[output]

    @property
    def wants_convolution(self) -> bool:
        """Whether a convolution kernel runs: the gradient of input or of weight is wanted."""
        return self.wants(0) or self.wants(1)

    @property
    def is_empty(self) -> bool:
        """Whether gradOutput, input or weight has no element, so that no kernel but a fill runs."""
        return any(desc is not None and desc.elems == 0 for desc in (self.grad_output, self.input, self.weight))

    @property
    def spatial_axes(self) -> tuple[ConvAxis, ...]:
        """The spatial axes, or () if ranks, lengths or values do not make a convolution (another rule says so)."""
        x, y = self.x, self.y
        pads = () if x is None else split_padding(self.padding, x.rank)
        return spatial_axes(x, self.weight, y, self.stride, self.dilation, pads)

    @property
    def has_unread_end(self) -> bool:
        """Whether outputPadding is so large that x has more windows than y: what they would read counts for nothing."""
        return any(axis.room // axis.stride + 1 > axis.y for axis in self.spatial_axes)

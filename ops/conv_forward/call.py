"""A call of aclnnConvolution as data: tensors as descriptors, no tensor data, nothing checked yet."""

from __future__ import annotations

from dataclasses import dataclass

from ops.common.conv_axes import ConvAxis, ConvCall, Pads, spatial_axes, split_padding
from ops.common.rule import Profile, check_profile
from ops.common.tensor_desc import TensorDesc

PAIRED_RANKS = {False: (3, 4), True: (4,)}
"""Ranks whose padding may have two entries for each axis, by ``transposed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionCall(ConvCall):
    """The arguments of one call, in the words of the C interface; the rest as of `ConvCall`.

    Attributes
    ----------
    bias, output : TensorDesc or None
        (Cout,), or none; N, C, spatial axes.
    padding : tuple of int or None
        Also (left, right) in 1D, not transposed.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ. None: the page, but what it calls
        unsupported and the library's own published tests compute is computed.

    Raises
    ------
    OperatorError
        161002: no such profile. Everything else is the business of the rules.
    """

    bias: TensorDesc | None
    output: TensorDesc | None
    profile: Profile | None = None

    def __post_init__(self) -> None:
        if self.profile is not None:
            check_profile(self.profile, "None or one of")

    @property
    def column(self) -> Profile:
        """The profile in force."""
        return self.profile or "page"

    @property
    def is_empty(self) -> bool:
        """Whether a tensor has no element, so that nothing is computed."""
        return any(desc is not None and desc.elems == 0 for desc in (self.input, self.weight, self.output))

    @property
    def pads(self) -> Pads:
        """(before, after) of each spatial axis; () for a null pointer or a wrong length."""
        return split_padding(self.padding, self.rank, PAIRED_RANKS[self.transposed])

    @property
    def spatial_axes(self) -> tuple[ConvAxis, ...]:
        """The axes of the convolution y = conv(x, w), in which x is the output of a transposed one."""
        x, y = (self.output, self.input) if self.transposed else (self.input, self.output)
        return spatial_axes(x, self.weight, y, self.stride, self.dilation, self.pads)

    @property
    def output_shape(self) -> tuple[int, ...] | None:
        """The output's shape that the other arguments give; None if their ranks, lengths or values give none."""
        x, w, arrays = self.input, self.weight, (self.stride, self.dilation, self.pads)
        if x is None or w is None or x.rank != w.rank or x.rank < 3 or any(len(a or ()) != x.rank - 2 for a in arrays):
            return None
        stride, dilation, pads = self.stride or (), self.dilation or (), self.pads
        if min(stride) < 1 or self.groups < 1:
            return None
        reaches = [step * (kernel - 1) + 1 for step, kernel in zip(dilation, w.shape[2:], strict=True)]
        axes = zip(x.shape[2:], stride, pads, reaches, strict=True)
        if not self.transposed:
            extents = [(extent + sum(pad) - reach) // step + 1 for extent, step, pad, reach in axes]
            return (x.shape[0], w.shape[0], *extents)
        if self.output_padding is None or len(self.output_padding) != x.rank - 2:
            return None
        base = [(extent - 1) * step - sum(pad) + reach for extent, step, pad, reach in axes]
        spatial = (extent + more for extent, more in zip(base, self.output_padding, strict=True))
        return (x.shape[0], w.shape[1] * self.groups, *spatial)

"""What the rules of the check look for: each function returns the sentence for the first breach, or None.

A function that needs what an earlier rule guarantees returns None where that is missing, so that any rule can be asked
about any call.
"""

from __future__ import annotations

from ops.common import conv_rules
from ops.common.conv_axes import ConvAxis
from ops.common.conv_rules import array, cube_math_violation, empty_violation, entry_name, rank_violation
from ops.common.rule import first, sentence, shape_text
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.resolve import promoted_dtype
from ops.conv_backward.rule import Violation, tensor


def mask_length(call: ConvBackwardCall) -> str | None:
    """outputMask: three entries."""
    mask = call.output_mask
    if mask is None or len(mask) == 3:
        return None
    return sentence("outputMask", "of length 3", f"of length {len(mask)}")


def bias_format(call: ConvBackwardCall) -> str | None:
    """gradBias: ND."""
    desc = call.grad_bias
    return None if desc is None or desc.format == "ND" else sentence("gradBias format", "ND", desc.format)


def output_padding_zero(call: ConvBackwardCall) -> str | None:
    """outputPadding: zeros."""
    return first(
        sentence(entry_name(call, "outputPadding", index), "0 with transposed = false", value)
        for index, value in enumerate(array(call, "outputPadding"))
        if value != 0
    )


def output_padding_below_stride(call: ConvBackwardCall) -> str | None:
    """outputPadding: entries less than the stride of their axis."""
    # A length that differs is refused later; until then entries without a partner have no bound.
    pairs = zip(array(call, "outputPadding"), array(call, "stride"), strict=False)
    return first(
        sentence(entry_name(call, "outputPadding", index), f"less than the stride {stride} of its axis", value)
        for index, (value, stride) in enumerate(pairs)
        if value >= max(stride, 0)
    )


def cube_math_available(call: ConvBackwardCall) -> str | None:
    """cubeMathType: one the Cube can do with the common type of the inputs."""
    return cube_math_violation(call, promoted_dtype(call))


def same_rank(parameter: str, other: str) -> Violation:
    """Return the check that two tensors have the same rank."""

    def violation(call: ConvBackwardCall) -> str | None:
        return rank_violation(parameter, tensor(call, parameter), other, tensor(call, other))

    return violation


def not_empty(parameter: str) -> Violation:
    """Return the check that a tensor has elements."""

    def violation(call: ConvBackwardCall) -> str | None:
        return empty_violation(parameter, tensor(call, parameter))

    return violation


def same_shape(parameter: str, other: str) -> Violation:
    """Return the check that two tensors have the same shape."""

    def violation(call: ConvBackwardCall) -> str | None:
        one, two = tensor(call, parameter), tensor(call, other)
        if one is None or two is None or one.shape == two.shape:
            return None
        return sentence(f"{parameter} shape", f"{shape_text(two.shape)}, as of {other}", shape_text(one.shape))

    return violation


def bias_rank(call: ConvBackwardCall) -> str | None:
    """gradBias: rank 1."""
    desc = call.grad_bias
    return None if desc is None or desc.rank == 1 else sentence("gradBias rank", "1", desc.rank)


def bias_extent(call: ConvBackwardCall) -> str | None:
    """gradBias: one element per channel of gradOutput."""
    desc, grad = call.grad_bias, call.grad_output
    if desc is None or grad is None or desc.rank != 1 or grad.rank < 2 or desc.shape[0] == grad.shape[1]:
        return None
    return sentence("gradBias length", f"{grad.shape[1]}, the channels of gradOutput", desc.shape[0])


def length_violation(call: ConvBackwardCall, parameter: str) -> str | None:
    """Return the sentence for an array whose length is neither rank - 2 nor, for 2D paddings, 4."""
    has_four = call.rank == 4 and parameter in ("padding", "outputPadding")
    return conv_rules.length_violation(call, parameter, (call.rank - 2, 4) if has_four else (call.rank - 2,))


def channels_of(call: ConvBackwardCall) -> tuple[int, int, int, int] | None:
    """Return (channels of x, channels of y, weight.shape[0], weight.shape[1])."""
    x, y, w = call.x, call.y, call.weight
    if x is None or y is None or w is None or min(x.rank, y.rank, w.rank) < 2:
        return None
    return x.shape[1], y.shape[1], w.shape[0], w.shape[1]


def y_name(call: ConvBackwardCall) -> str:
    """Return which argument is the result of the convolution."""
    return "input" if call.transposed else "gradOutput"


def x_name(call: ConvBackwardCall) -> str:
    """Return which argument is the feature map of the convolution."""
    return "gradOutput" if call.transposed else "input"


def weight_rows(call: ConvBackwardCall) -> str | None:
    """weight.shape[0]: the channels of y."""
    channels = channels_of(call)
    if channels is None or channels[1] == channels[2]:
        return None
    return sentence("weight.shape[0]", f"{channels[1]}, the channels of {y_name(call)}", channels[2])


def weight_columns_divide(call: ConvBackwardCall) -> str | None:
    """weight.shape[1]: a divisor of the channels of x."""
    channels = channels_of(call)
    if channels is None or channels[3] == 0 or channels[0] % channels[3] == 0:
        return None
    return sentence("weight.shape[1]", f"a divisor of {channels[0]}, the channels of {x_name(call)}", channels[3])


def groups_match(call: ConvBackwardCall) -> str | None:
    """Look for groups other than the channels of x over weight.shape[1]."""
    channels = channels_of(call)
    if channels is None or channels[3] == 0 or channels[0] % channels[3] or call.groups < 1:
        return None
    quotient = channels[0] // channels[3]
    rule = f"{quotient}, the channels of {x_name(call)} over weight.shape[1] ({channels[0]} / {channels[3]})"
    return None if quotient == call.groups else sentence("groups", rule, call.groups)


def depthwise(call: ConvBackwardCall) -> str | None:
    """Look for a depthwise call (groups = channels of x) whose groups do not divide the channels of y."""
    channels = channels_of(call)
    if channels is None or call.groups < 1 or channels[0] != call.groups or channels[1] % call.groups == 0:
        return None
    return sentence(f"{y_name(call)} channels", f"a multiple of groups = {call.groups} (depthwise)", channels[1])


def extent_violation(axis: ConvAxis, y_name: str) -> str | None:
    """Return the sentence for an extent that does not follow from the others."""
    if axis.room < 0 or axis.room // axis.stride + 1 == axis.y:
        return None
    rule = f"{axis.room // axis.stride + 1}, as the other extents, stride, padding and dilation give"
    return sentence(f"{y_name} extent on axis {axis.name}", rule, axis.y)


def extents_violation(call: ConvBackwardCall) -> str | None:
    """Return the sentence for the first axis whose extents do not fit each other."""
    axes = call.spatial_axes
    more = array(call, "outputPadding") if call.transposed and call.profile == "page" else ()
    behind = more if len(more) == len(axes) else (0,) * len(axes)
    return first(
        extent_violation(axis, y_name(call))
        for axis, extra in zip(axes, behind, strict=True)
        # the page has no upper bound of outputPadding: what it adds beyond a stride, no window reads
        if extra < axis.stride or axis.room != (axis.y - 1) * axis.stride + extra
    )

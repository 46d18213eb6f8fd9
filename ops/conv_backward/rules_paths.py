"""Rules behind the arguments': those of empty calls, of the compute path, the documented ranges, and the kernels'."""

from __future__ import annotations

from functools import partial

from ops.common.capability import SPLIT
from ops.common.conv_axes import AXES_OF_RANK, split_padding
from ops.common.conv_rules import (
    MAX_GROUPS,
    MAX_SMALL,
    MAX_STRIDE_3D,
    at_most,
    extents_range,
    group_rows_violation,
    groups_range,
    kernel_range,
    windows_violation,
)
from ops.common.geometry import MAX_EXTENT
from ops.common.rule import first, sentence, shape_text
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.predicates import (
    channels_of,
    depthwise,
    extents_violation,
    x_name,
)
from ops.conv_backward.resolve import promoted_dtype
from ops.conv_backward.rule import (
    STATUS_KERNEL,
    TENSORS,
    Rule,
    tensor,
)
from ops.conv_backward.rules_arguments import API, CHECKER, PAGE, length_rule

DX_TILING = "ops-nn conv/conv3d_backprop_input_v2/op_host/op_tiling"
DW_TILING = "ops-nn conv/conv3d_backprop_filter_v2/op_host/op_tiling"
KERNELS = f"{DX_TILING}; {DW_TILING}"

_kernel = partial(Rule, status=STATUS_KERNEL)
_empty = partial(Rule, path="empty", source=API)
_range = partial(_kernel, path="range", needs=SPLIT, transposed=False)


def _bias_sizes_null(call: ConvBackwardCall) -> str | None:
    if not call.wants(2) or call.bias_sizes is not None:
        return None
    return sentence("biasSizes", "an aclIntArray where outputMask[2] is true and a tensor is empty", "a null pointer")


def _bias_sizes_length(call: ConvBackwardCall) -> str | None:
    if not call.wants(2) or call.bias_sizes is None or len(call.bias_sizes) == 1:
        return None
    return sentence("biasSizes", "of length 1", f"of length {len(call.bias_sizes)}")


def _bias_sizes_value(call: ConvBackwardCall) -> str | None:
    grad, weight, sizes = call.grad_output, call.weight, call.bias_sizes
    if not call.wants(2) or sizes is None or len(sizes) != 1:
        return None
    if grad is None or weight is None or min(grad.rank, weight.rank) < 2:
        return None
    wanted = weight.shape[1] * call.groups if call.transposed else grad.shape[1]
    what = "weight.shape[1] * groups" if call.transposed else "the channels of gradOutput"
    return None if sizes[0] == wanted else sentence("biasSizes[0]", f"{wanted}, {what}", sizes[0])


def _empty_batch_or_channels(call: ConvBackwardCall) -> str | None:
    desc = call.input
    if not call.wants(0) or desc is None or 0 in desc.shape[:2]:
        return None
    rule = "empty in N or C where a tensor is empty and outputMask[0] is true"
    return sentence("input", rule, f"of shape {shape_text(desc.shape)}")


def _empty_channels(call: ConvBackwardCall) -> str | None:
    found = channels_of(call)
    if found is None or call.input is None or call.groups < 1:
        return None
    channels, columns = found[0], found[3]
    if (call.transposed and call.input.shape[0] == 0) or channels == columns == 0:
        return None
    if columns and channels == columns * call.groups:
        return None
    rule = f"{channels} / {call.groups}, the channels of {x_name(call)} over groups"
    return sentence("weight.shape[1]", rule, columns)


def _empty_weight_rows(call: ConvBackwardCall) -> str | None:
    weight, desc = call.weight, call.input
    if weight is None or desc is None or min(weight.rank, desc.rank) < 2:
        return None
    if weight.shape[0] > 0 and weight.shape[0] == desc.shape[1]:
        return None
    return sentence("weight.shape[0]", f"{desc.shape[1]}, the channels of input, and not 0", weight.shape[0])


def _empty_window(call: ConvBackwardCall) -> str | None:
    weight, desc, padding = call.weight, call.input, call.padding
    if weight is None or desc is None or padding is None:
        return None
    pads = split_padding(padding, desc.rank)
    if "Q2" in call.quirks and len(padding) == 4:
        pads = tuple((pad, pad) for pad in padding[:2])
    axes = zip(
        AXES_OF_RANK.get(desc.rank, ()), desc.shape[2:], weight.shape[2:], pads, call.dilation or (), strict=False
    )
    return first(
        sentence(f"Dilated kernel extent on axis {name}", f"at most {extent + sum(pad)}, the padded extent", reach)
        for name, extent, kernel, pad, dilation in axes
        if (reach := (kernel - 1) * dilation + 1) > extent + sum(pad)
    )


def _no_conv3d(call: ConvBackwardCall) -> str | None:
    if call.product.supports_conv3d or call.rank != 5:
        return None
    return sentence("input rank", "3 or 4", "5, which has no kernels here")


def _is_depthwise_of_page(call: ConvBackwardCall) -> bool:
    """Return whether the page supports a 3D call with groups whose gradWeight is FP32."""
    grad, x, weight = call.grad_output, call.input, call.weight
    if grad is None or x is None or weight is None or call.transposed or x.dtype != "bf16":
        return False
    # its gradWeight has the higher type of weight and gradOutput
    return x.shape[1] == grad.shape[1] == call.groups and "fp32" in (weight.dtype, grad.dtype)


def _grouped_fp32_weight(call: ConvBackwardCall) -> str | None:
    promoted = promoted_dtype(call)
    if not call.wants(1) or call.groups <= 1 or call.grad_weight is None or call.grad_weight.dtype != "fp32":
        return None
    if promoted is None or (call.cube_math_type != 2 and promoted == "fp32"):
        return None
    if call.profile == "page" and _is_depthwise_of_page(call):
        return None
    return sentence(
        "gradWeight dtype", "FP16 or BF16 for a 3D call with groups that the Cube computes in 16 bits", "FP32"
    )


def _deterministic_groups(call: ConvBackwardCall) -> str | None:
    if not (call.deterministic and call.wants(1) and call.groups > 1):
        return None
    return sentence("groups", "1 for a deterministic 3D weight gradient", call.groups)


def _dims_range(parameter: str) -> Rule:
    name = {"gradOutput": "grad-output"}.get(parameter, parameter)
    return _range(
        step="13",
        name=f"{name}-extent-range",
        parameter=parameter,
        requirement=f"in [1, {MAX_EXTENT}] in every extent",
        violation=lambda call: extents_range(parameter, tensor(call, parameter), MAX_EXTENT),
        source=PAGE,
    )


def _moving_dilation_range(call: ConvBackwardCall) -> str | None:
    return first(
        sentence(f"dilation{axis.name}", f"in [1, {MAX_SMALL}] where the kernel extent is not 1", axis.dilation)
        for axis in call.spatial_axes
        if axis.kernel > 1 and axis.dilation > MAX_SMALL
    )


def _batch(call: ConvBackwardCall) -> str | None:
    one, two = call.input, call.grad_output
    if one is None or two is None or one.shape[:1] == two.shape[:1]:
        return None
    return sentence("gradOutput batch", f"{one.shape[0]}, as of input", two.shape[0])


def _kernel_group_rows(call: ConvBackwardCall) -> str | None:
    # Depthwise calls have a rule of their own, with another status.
    return group_rows_violation(call) if depthwise(call) is None else None


EMPTY_RULES: tuple[Rule, ...] = (
    _empty(
        step="12.1",
        name="empty-bias-sizes-null",
        parameter="biasSizes",
        requirement="an aclIntArray where outputMask[2] is true (elsewhere it is not looked at)",
        violation=_bias_sizes_null,
        source=f"{PAGE}; {API}",
    ),
    _empty(
        step="12.1",
        name="empty-bias-sizes-length",
        parameter="biasSizes",
        requirement="of length 1 where outputMask[2] is true",
        violation=_bias_sizes_length,
        source=f"{PAGE}; {API}",
    ),
    _empty(
        step="12.1",
        name="empty-bias-sizes-value",
        parameter="biasSizes",
        requirement="the channels of gradOutput (transposed: weight.shape[1] * groups) where outputMask[2] is true",
        violation=_bias_sizes_value,
        source=f"{PAGE}; {API}",
    ),
    _empty(
        step="12.2",
        name="empty-input-extents",
        parameter="input",
        requirement="empty in N or C where outputMask[0] is true",
        violation=_empty_batch_or_channels,
        source=f"{PAGE}; {API}",
    ),
    *(
        length_rule(parameter, step="12.3", name=f"empty-{name}-length", path="empty", needs=SPLIT)
        for parameter, name in (
            ("stride", "stride"),
            ("dilation", "dilation"),
            ("padding", "padding"),
            ("outputPadding", "output-padding"),
        )
    ),
    _empty(
        step="12.3",
        name="empty-group-rows",
        parameter="groups",
        requirement="a divisor of weight.shape[0]",
        violation=group_rows_violation,
        needs=SPLIT,
    ),
    _empty(
        step="12.3",
        name="empty-channels",
        parameter="weight",
        requirement="with weight.shape[1] * groups = the channels of input (transposed: of gradOutput, not looked at "
        "where N is 0), and not 0 unless both are",
        violation=_empty_channels,
        needs=SPLIT,
    ),
    _empty(
        step="12.3",
        name="empty-weight-rows",
        parameter="weight",
        requirement="with weight.shape[0] = the channels of input, and not 0",
        violation=_empty_weight_rows,
        needs=SPLIT,
        transposed=True,
    ),
    _empty(
        step="12.3",
        name="empty-window",
        parameter="weight",
        requirement="a kernel that, dilated, fits the padded input on every axis (quirk Q2: a padding of length 4 is "
        "read as that of H and W)",
        violation=_empty_window,
        needs=SPLIT,
        transposed=False,
    ),
)
"""Step 12 for calls with an empty tensor."""

COMPUTE_RULES: tuple[Rule, ...] = (
    Rule(
        step="12",
        name="no-conv3d",
        parameter="input",
        requirement="of rank 3 or 4 on products without 3D convolutions ({no conv3d})",
        violation=_no_conv3d,
        path="compute",
        source=f"{PAGE}; {CHECKER}",
    ),
    Rule(
        step="12",
        name="grouped-fp32-weight-3d",
        parameter="gradWeight",
        requirement="not FP32 where it is wanted, groups > 1, and cubeMathType is 2 or the inputs are of 16 bits "
        "(page: but for a BF16 input beside an FP32 weight or gradOutput, not transposed, with groups = channels "
        "of input = channels of gradOutput)",
        violation=_grouped_fp32_weight,
        path="compute",
        needs=SPLIT,
        ranks=(5,),
        source=f"{PAGE} (supports groups > 1 in 3D for depthwise convolutions of a BF16 input, not transposed); {API}",
    ),
)
"""Step 12 for calls without an empty tensor."""

DETERMINISTIC_RULES: tuple[Rule, ...] = (
    Rule(
        step="11",
        name="deterministic-groups",
        parameter="groups",
        requirement="1 where gradWeight is wanted in the deterministic mode",
        violation=_deterministic_groups,
        needs=SPLIT,
        ranks=(5,),
        switch="Q3",
        source=f"{CHECKER} (first published version; newer ones keep it for other architectures only)",
    ),
)
"""Step 11."""

RANGE_RULES: tuple[Rule, ...] = (
    *(_dims_range(parameter) for parameter in list(TENSORS)[:3]),
    _range(
        step="13",
        name="kernel-range",
        parameter="weight",
        requirement=f"in [1, {MAX_SMALL}] in H and W (1D: L)",
        violation=kernel_range,
        profiles=("page",),
        source=PAGE,
    ),
    _range(
        step="13",
        name="stride-range",
        parameter="stride",
        requirement=f"in [1, {MAX_EXTENT}] in every entry",
        violation=at_most("stride", 1, dict.fromkeys("LDHW", MAX_EXTENT)),
        ranks=(3, 4),
        source=PAGE,
    ),
    _range(
        step="13",
        name="stride-range-3d",
        parameter="stride",
        requirement=f"in [1, {MAX_EXTENT}] in D, in [1, {MAX_STRIDE_3D}] in H and W",
        violation=at_most("stride", 1, {"D": MAX_EXTENT, "H": MAX_STRIDE_3D, "W": MAX_STRIDE_3D}),
        ranks=(5,),
        source=f"{PAGE}; {KERNELS}",
    ),
    _range(
        step="13",
        name="padding-range",
        parameter="padding",
        requirement=f"in [0, {MAX_SMALL}] in every entry",
        violation=at_most("padding", 0, dict.fromkeys("LHW", MAX_SMALL)),
        ranks=(3, 4),
        source=f"{PAGE}; {KERNELS}",
    ),
    _range(
        step="13",
        name="padding-range-3d",
        parameter="padding",
        requirement=f"in [0, {MAX_EXTENT}] in D, in [0, {MAX_SMALL}] in H and W",
        violation=at_most("padding", 0, {"D": MAX_EXTENT, "H": MAX_SMALL, "W": MAX_SMALL}),
        ranks=(5,),
        source=f"{PAGE}; {KERNELS}",
    ),
    _range(
        step="13",
        name="dilation-range",
        parameter="dilation",
        requirement=f"in [1, {MAX_SMALL}] in every entry",
        violation=at_most("dilation", 1, dict.fromkeys("LDHW", MAX_SMALL)),
        profiles=("page",),
        source=PAGE,
    ),
    _range(
        step="13",
        name="dilation-range-library",
        parameter="dilation",
        requirement=f"in [1, {MAX_SMALL}] on axes whose kernel extent is not 1",
        violation=_moving_dilation_range,
        profiles=("library",),
        source=KERNELS,
    ),
    _range(
        step="13",
        name="groups-range",
        parameter="groups",
        requirement=f"in [1, {MAX_GROUPS}]",
        violation=groups_range,
        source=f"{PAGE}; {KERNELS}",
    ),
)
"""Step 13: ranges the page documents for A2 with transposed = false; the kernels' tilings enforce them there."""

KERNEL_RULES: tuple[Rule, ...] = (
    _kernel(
        step="13",
        name="batch",
        parameter="gradOutput",
        requirement="with the batch of input",
        violation=_batch,
        path="kernel",
        source=KERNELS,
    ),
    _kernel(
        step="13",
        name="group-rows",
        parameter="groups",
        requirement="a divisor of weight.shape[0]",
        violation=_kernel_group_rows,
        path="kernel",
        source=KERNELS,
    ),
    _kernel(
        step="13",
        name="window",
        parameter="weight",
        requirement="a kernel that, dilated, fits the padded input on every axis (transposed: gradOutput)",
        violation=windows_violation,
        path="kernel",
        ranks=(3, 4),
        source=KERNELS,
    ),
    _kernel(
        step="13",
        name="extents",
        parameter="gradOutput",
        requirement="of the extents that input, weight and the attributes give (transposed: input of those of "
        "gradOutput)",
        violation=extents_violation,
        path="kernel",
        ranks=(3, 4),
        source=f"{PAGE}; {KERNELS}",
    ),
)
"""Step 13: what every kernel needs and no earlier step looks at. What one kernel cannot do is refused by its plan."""

"""What a rule of this operator knows besides: path, ranks and direction of the calls it looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ops.common.conv_rules import ConvRule
from ops.common.status import AclnnStatus
from ops.common.tensor_desc import TensorDesc
from ops.conv_backward.call import ConvBackwardCall

Path = Literal["any", "shapes", "empty", "compute", "range", "kernel"]
"""Which calls a rule looks at.

any: all. shapes: all, but on products of split cores not those whose input or weight is empty. empty, compute: those
with resp. without an empty tensor. range: compute, and under the profile "library" only if a convolution kernel runs.
kernel: compute, if a convolution kernel runs.
"""

Violation = Callable[[ConvBackwardCall], str | None]
"""A check, see `ops.common.rule.Rule`."""

STATUS_KERNEL = AclnnStatus.ACLNN_ERR_INNER_NULLPTR
"""No kernel takes the call: 561103, whatever the reason (page, section on limits; ops-nn op_api)."""

TENSORS = {
    "gradOutput": "grad_output",
    "input": "input",
    "weight": "weight",
    "gradInput": "grad_input",
    "gradWeight": "grad_weight",
    "gradBias": "grad_bias",
}
"""Names of the interface and of the fields of `ConvBackwardCall`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ConvRule[ConvBackwardCall]):
    """One rule; ``switch`` names a quirk or an option.

    Attributes
    ----------
    path : str
        Which calls it looks at, see `Path`.
    """

    path: Path = "any"

    def concerns(self, call: ConvBackwardCall) -> bool:
        """Return whether the rule looks at ``call`` at all."""
        return ConvRule.concerns(self, call) and _is_on(self.switch, call) and _is_on_path(self.path, call)


def _is_on(switch: str, call: ConvBackwardCall) -> bool:
    if switch == "strict_output_dtype":
        return call.strict_output_dtype
    return not switch or switch in call.quirks


def _is_on_path(path: Path, call: ConvBackwardCall) -> bool:
    if path == "shapes":
        skips = any(desc is not None and desc.elems == 0 for desc in (call.input, call.weight))
        return not (skips and call.product.core.is_split)
    if path == "empty":
        return call.is_empty
    if path == "compute":
        return not call.is_empty
    if path == "range":
        return not call.is_empty and (call.profile == "page" or call.wants_convolution)
    if path == "kernel":
        return not call.is_empty and call.wants_convolution
    return True


def tensor(call: ConvBackwardCall, parameter: str) -> TensorDesc | None:
    """Return a tensor by its name in the interface."""
    desc: TensorDesc | None = getattr(call, TENSORS[parameter])
    return desc

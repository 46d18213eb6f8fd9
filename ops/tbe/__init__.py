"""The TBE DSL's weight gradient of 3D convolutions (310, 310P and 910).

A program written for the vendor's package runs with its imports replaced: ``from ops.tbe import dsl, tvm``.
"""

from ops.tbe import dsl, tvm
from ops.tbe.dsl import ResultTensor, auto_schedule, conv3d_backprop_filter
from ops.tbe.errors import TbeError
from ops.tbe.groups import (
    calculate_group,
    from_6hd,
    gradient_from_result,
    group_mask,
    mask_groups,
    result_from_gradient,
    to_6hd,
)
from ops.tbe.schedule import TbePlan
from ops.tbe.tvm import Placeholder, placeholder

__all__ = [
    "Placeholder",
    "ResultTensor",
    "TbeError",
    "TbePlan",
    "auto_schedule",
    "calculate_group",
    "conv3d_backprop_filter",
    "dsl",
    "from_6hd",
    "gradient_from_result",
    "group_mask",
    "mask_groups",
    "placeholder",
    "result_from_gradient",
    "to_6hd",
    "tvm",
]

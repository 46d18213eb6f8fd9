"""Running a planned call: tensors into the arena, launches, results out. Nothing is written unless all is computed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.engines.execute import ExecuteOptions
from ops.common.run import run_planned
from ops.conv_backward.plan import ConvBackwardPlan

_IN_ORDER = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")


def run_call(plan: ConvBackwardPlan, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> None:
    """Execute ``plan`` on the caller's storages.

    Parameters
    ----------
    plan : ConvBackwardPlan
        What to run.
    tensors : mapping of str to array
        Flat storage of every tensor the plan has an argument for, in the element type of its descriptor. Outputs are
        changed at the end, through their views; inputs never.
    options : ExecuteOptions
        How.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product; nothing is written then.
    """
    call = plan.resolved.call
    # the steps meet the bias gradient first, but outputs that share memory are written in the order of the interface
    arguments = {name: plan.arguments[name] for name in _IN_ORDER if name in plan.arguments}
    descs = {name: getattr(call, name) for name in arguments}
    run_planned(plan.calls, arguments, descs, tensors, options)

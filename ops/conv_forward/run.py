"""Running a planned call: tensors into the arena, launches, result out. Nothing is written unless all is computed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.engines.execute import ExecuteOptions
from ops.common.run import run_planned
from ops.conv_forward.plan import ConvolutionPlan


def run_call(plan: ConvolutionPlan, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> None:
    """Execute ``plan`` on the caller's storages.

    Parameters
    ----------
    plan : ConvolutionPlan
        What to run.
    tensors : mapping of str to array
        Flat storage of every tensor the plan has an argument for, in the element type of its descriptor. The output is
        changed at the end, through its view; inputs never.
    options : ExecuteOptions
        How.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product; nothing is written then.
    """
    descs = {name: getattr(plan.resolved.call, name) for name in plan.arguments}
    run_planned(plan.calls, plan.arguments, descs, tensors, options)

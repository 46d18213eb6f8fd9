"""Running a planned call: tensors into the arena, launches, result out. Nothing is written unless all is computed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.engines.execute import ExecuteOptions
from ops.avg_pool_forward.plan import AvgPool2dPlan
from ops.common.run import run_planned


def run_call(plan: AvgPool2dPlan, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> None:
    """Execute ``plan`` on the caller's storages.

    Parameters
    ----------
    plan : AvgPool2dPlan
        What to run.
    tensors : mapping of str to array
        Flat storages of ``input`` and ``output``. The latter is changed at the end, through its view.
    options : ExecuteOptions
        How.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product; nothing is written then.
    """
    descs = {name: getattr(plan.resolved, name) for name in plan.arguments}
    run_planned(plan.calls, plan.arguments, descs, tensors, options, plan.constants)

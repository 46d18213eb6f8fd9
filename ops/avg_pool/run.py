"""Running a planned call: tensors and constants into the arena, launches, the result out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.engines.execute import ExecuteOptions
from ops.avg_pool.bulk import run_in_bulk
from ops.avg_pool.plan import AvgPoolPlan
from ops.common.run import run_planned


def run_call(plan: AvgPoolPlan, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> None:
    """Execute ``plan`` on the caller's storages.

    Parameters
    ----------
    plan : AvgPoolPlan
        What to run.
    tensors : mapping of str to array
        Flat storages of ``grad_output`` and ``grad_input``. The latter is changed at the end, through its view.
    options : ExecuteOptions
        How.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product; nothing is written then.
    """
    if run_in_bulk(plan, tensors, options):
        return
    descs = {name: plan.resolved.desc(name) for name in plan.arguments}
    run_planned(plan.calls, plan.arguments, descs, tensors, options, plan.constants)

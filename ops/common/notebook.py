"""What a notebook shows of the result of a call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.report.notebook import html_table
from ops.common.pipeline import CallPlan


def result_html(title: str, arrays: Mapping[str, np.ndarray | None], calls: CallPlan) -> str:
    """Return type and shape of the arrays of a result, which may be None, and the steps that made them."""
    rows = [
        (name, "masked off" if value is None else str(value.dtype), "" if value is None else _times(value.shape))
        for name, value in arrays.items()
    ]
    return html_table(title, ("result", "type", "shape"), rows) + calls.to_html("Steps")


def _times(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents)) or "scalar"

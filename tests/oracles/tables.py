"""What the records of the instructions say, by opcode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npu_sim.isa.instructions.cast import CASTS
from npu_sim.isa.op import OPS

__all__ = ["CASTS", "DST_DTYPES", "DTYPES", "ELEMENTWISE", "MASKED", "PATHS", "RANGES", "named_handlers"]

RANGES = {spec.op: spec.ranges for spec in OPS if spec.ranges}
PATHS = {spec.op: spec.paths for spec in OPS if "src0_space" in spec.fields}
DTYPES = {spec.op: spec.dtypes for spec in OPS if spec.dtypes}
DST_DTYPES = {spec.op: spec.dst_dtypes for spec in OPS if spec.dst_dtypes}
MASKED = {spec.op: spec for spec in OPS if spec.general_form_of}
"""General forms."""
ELEMENTWISE = {spec.op: spec for spec in OPS if spec.elementwise is not None}


def named_handlers(namespace: Mapping[str, Any]) -> dict[int, Callable[..., Any]]:
    """Return the function of each instruction that a module has one of, by opcode: ``_fill`` is that of Fill."""
    names = {spec.op: f"_{spec.name.lower()}" for spec in OPS}
    return {op: namespace[name] for op, name in names.items() if name in namespace}

"""What a rule of this operator knows besides: which routes it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from npu_sim.dtypes.cube_math import CubeMathType
from ops.avg_pool.call import AXIS_NAMES, AvgPoolCall, expanded
from ops.avg_pool.route import choose_route
from ops.common import rule
from ops.common.rule import first, sentence, shape_text
from ops.common.tensor_desc import TensorDesc

Path = Literal["any", "compute", "global", "cube", "vector"]
"""Which calls a rule looks at: all; those without an empty tensor; those of one route (`route.RouteName`)."""

_ROUTES = {"global": ("global",), "cube": ("cube", "cube+mul"), "vector": ("AvgPool3DGrad",)}

TENSORS = {"gradOutput": "grad_output", "self": "input", "gradInput": "grad_input"}
"""Names of the interface and of the fields of `AvgPoolCall`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(rule.Rule[AvgPoolCall]):
    """One rule.

    Attributes
    ----------
    path : str
        Which calls it looks at, see `Path`.
    """

    path: Path = "any"

    def concerns(self, call: AvgPoolCall) -> bool:
        """Return whether the rule looks at ``call`` at all."""
        if not rule.Rule.concerns(self, call) or (self.path != "any" and call.is_empty):
            return False
        return self.path not in _ROUTES or choose_route(call).name in _ROUTES[self.path]


def tensor(call: AvgPoolCall, parameter: str) -> TensorDesc | None:
    """Return a tensor by its name in the interface."""
    desc: TensorDesc | None = getattr(call, TENSORS[parameter])
    return desc


def half_kernel_violation(
    kernel_size: tuple[int, ...] | None, padding: tuple[int, ...] | None, name: str
) -> str | None:
    """Return the sentence for an axis that is padded by more than half of the kernel; ``name``: of the padding."""
    return first(
        sentence(f"{name}{axis}", f"at most half of kernelSize{axis} = {k}", p)
        for axis, k, p in zip(AXIS_NAMES, expanded(kernel_size), expanded(padding), strict=False)
        if 2 * p > k
    )


def rank_violation(desc: TensorDesc | None, name: str) -> str | None:
    """Return the sentence for a tensor of another rank than 3 and 4; a null pointer is none."""
    if desc is None or desc.rank in (3, 4):
        return None
    return sentence(f"{name} rank", "3 or 4", f"{desc.rank} (shape {shape_text(desc.shape)})")


class _Wishing(Protocol):
    """What names a cubeMathType."""

    @property
    def cube_math_type(self) -> int:
        """What the Cube may do with the precision."""


def cube_math_violation(call: _Wishing) -> str | None:
    """Return the sentence for an unknown cubeMathType."""
    if call.cube_math_type in CubeMathType.__members__.values():
        return None
    known = ", ".join(f"{member.value} ({member.name})" for member in CubeMathType)
    return sentence("cubeMathType", f"one of {known}", call.cube_math_type)

"""What a rule of this operator knows besides: which routes it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ops.avg_pool.call import AvgPoolCall
from ops.avg_pool.route import choose_route
from ops.common import rule
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

"""A rule of the check as a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from npu_sim.products import SERIES
from ops.avg_pool.call import PROFILES, AvgPoolCall, Profile
from ops.avg_pool.route import choose_route
from ops.common.status import AclnnStatus
from ops.common.tensor_desc import TensorDesc

Path = Literal["any", "compute", "cube", "vector"]
"""Which calls a rule looks at: all; those without an empty tensor; those whose route is the Cube or AvgPool3DGrad."""

Violation = Callable[[AvgPoolCall], str | None]
"""Return "<Thing> must be <rule>, not <value>", or None where the rule holds."""

TENSORS = {"gradOutput": "grad_output", "self": "input", "gradInput": "grad_input"}
"""Names of the interface and of the fields of `AvgPoolCall`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: the check, the message, the tests and the page of rules are made from it.

    Attributes
    ----------
    step : str
        Where the check stands in the library's order.
    name : str
        Unique name.
    parameter : str
        Argument it is about, as the interface calls it.
    requirement : str
        What must hold, in words, for the page of rules.
    violation : callable
        The check.
    source : str
        Public source.
    status : AclnnStatus
        What the call returns if it does not hold.
    series : tuple of str
        Products it applies to.
    profiles : tuple of str
        Profiles it applies under.
    path : str
        Which calls it looks at, see `Path`.
    switch : str
        Option that turns it on, for the page; empty: always on.
    """

    step: str
    name: str
    parameter: str
    requirement: str
    violation: Violation
    source: str
    status: AclnnStatus = AclnnStatus.ACLNN_ERR_PARAM_INVALID
    series: tuple[str, ...] = SERIES
    profiles: tuple[Profile, ...] = PROFILES
    path: Path = "any"
    switch: str = ""

    def find(self, call: AvgPoolCall) -> str | None:
        """Return the sentence for the first breach, None where the rule holds or does not concern the call."""
        if call.product.series not in self.series or call.column not in self.profiles:
            return None
        if self.path != "any" and call.is_empty:
            return None
        if self.path in ("cube", "vector"):
            name = choose_route(call).name
            if name not in (("cube", "cube+mul") if self.path == "cube" else ("AvgPool3DGrad",)):
                return None
        return self.violation(call)


def tensor(call: AvgPoolCall, parameter: str) -> TensorDesc | None:
    """Return a tensor by its name in the interface."""
    desc: TensorDesc | None = getattr(call, TENSORS[parameter])
    return desc

"""The steps of a call of a pooling, either pass: which of them a route takes, and what its errors say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from npu_sim.errors import OperatorError
from ops.common.arguments import Argument, argument_of
from ops.common.pipeline import Buffer, CallPlan, plan_steps
from ops.common.rule import product_text
from ops.common.status import AclnnStatus
from ops.vector.steps import StepList


class PoolingPlanner(ABC):
    """The steps of one call in the making.

    Parameters
    ----------
    resolved : ResolvedCall
        The checked call, with its route.
    source, target : str
        Names of the tensors that are read and written.
    """

    def __init__(self, resolved: Any, source: str, target: str) -> None:
        self._resolved, self._route, self._call = resolved, resolved.route, resolved.call
        self._product = resolved.product
        self._source, self._target = source, target
        self.steps = StepList(resolved.product)
        self.arguments: dict[str, Argument] = {}

    def plan(self) -> CallPlan:
        """Return the whole call."""
        if self._route.name != "empty":
            for name in (self._source, self._target):
                desc = self._resolved.desc(name)
                self.arguments[name] = argument_of(name, desc, is_output=name == self._target)
            ways = {"global": self._global, "cube": self._cube, "cube+mul": self._cube}
            ways.get(self._route.name, self._vector)(self.steps.contiguous(self.arguments[self._source]))
        return plan_steps(self._product, self.steps.steps)

    def refusal(self, error: OperatorError, status: AclnnStatus) -> OperatorError:
        """Return an error of a kernel as one of the call, with ``status`` and the product."""
        known = self._product.name in str(error)
        return OperatorError(str(error) if known else f"{error} ({product_text(self._call)})", int(status))

    @abstractmethod
    def _global(self, source: Buffer) -> None:
        """Plan the route of one window over the plane."""

    @abstractmethod
    def _cube(self, source: Buffer) -> None:
        """Plan the routes over the Cube."""

    @abstractmethod
    def _vector(self, source: Buffer) -> None:
        """Plan the route over the vector cores."""

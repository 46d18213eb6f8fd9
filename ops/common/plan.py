"""What the plan of one call of an operator has, whatever the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from npu_sim.engines.execute import ExecuteOptions
from ops.common.arguments import Argument
from ops.common.pipeline import Buffer, CallPlan, PlannedStep
from ops.common.resolved import ResolvedCall
from ops.common.run import run_planned


class NamedRoute(Protocol):
    """One of the library's ways of a call."""

    @property
    def name(self) -> str:
        """What it is called."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OperatorPlan:
    """What one call runs.

    Attributes
    ----------
    resolved : ResolvedCall
        The checked call.
    route : Route
        Which of the library's ways it takes, and why.
    calls : CallPlan
        Steps, launches and workspace.
    arguments : mapping of str to Argument
        The caller's tensors that the call reads or writes, by the names of the API; outputs are written in this order.
    constants : mapping of Buffer to array
        What the host computes and puts into global memory.
    """

    resolved: ResolvedCall
    route: NamedRoute
    calls: CallPlan
    arguments: Mapping[str, Argument]
    constants: Mapping[Buffer, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.route.name} on {self.calls.summary})"

    def _repr_html_(self) -> str:
        return self.calls.to_html(f"{type(self).__name__}: {self.route.name}")

    def run(
        self,
        tensors: Mapping[str, np.ndarray],
        options: ExecuteOptions,
        results: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Execute the call on the caller's storages. Nothing of theirs is written unless all is computed.

        Parameters
        ----------
        tensors : mapping of str to array
            Flat storage of every tensor of ``arguments``, in the element type of its descriptor. Outputs are changed at
            the end, through their views; inputs never.
        options : ExecuteOptions
            How.
        results : mapping of str to array, or None
            Those outputs instead whose storages nobody has yet: steps write them as they go.

        Raises
        ------
        ProductError
            If the overflow mode does not exist on the product; nothing is written then.
        """
        if self.run_at_once({**tensors, **(results or {})}, options):
            return
        descs = {name: self.resolved.desc(name) for name in self.arguments}
        run_planned(self.calls, self.arguments, descs, tensors, options, self.constants, results)

    def run_at_once(self, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> bool:
        """Execute the call without its steps, if that gives the same; return whether it has."""
        return False

    @property
    def workspace_bytes(self) -> int:
        """What phase 1 asks for."""
        return self.calls.workspace_bytes

    @property
    def multiplying_steps(self) -> tuple[PlannedStep, ...]:
        """The steps that multiply in the Cube: one for each result; the others convert, sum or clear."""
        return tuple(planned for planned in self.calls.steps if planned.kernel.tiling is not None)

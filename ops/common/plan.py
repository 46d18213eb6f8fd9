"""What the plan of one call of an operator has, whatever the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ops.common.arguments import Argument
from ops.common.pipeline import CallPlan, PlannedStep


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
    route : Route
        Which of the library's ways it takes, and why.
    calls : CallPlan
        Steps, launches and workspace.
    arguments : mapping of str to Argument
        The caller's tensors that the call reads or writes, by the names of the API.
    """

    route: NamedRoute
    calls: CallPlan
    arguments: Mapping[str, Argument]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.route.name} on {self.calls.summary})"

    def _repr_html_(self) -> str:
        return self.calls.to_html(f"{type(self).__name__}: {self.route.name}")

    @property
    def workspace_bytes(self) -> int:
        """What phase 1 asks for."""
        return self.calls.workspace_bytes

    @property
    def multiplying_steps(self) -> tuple[PlannedStep, ...]:
        """The steps that multiply in the Cube: one for each result; the others convert, sum or clear."""
        return tuple(planned for planned in self.calls.steps if planned.kernel.tiling is not None)

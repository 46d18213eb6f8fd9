"""What every study of calls shares: what a figure is of, what was refused, and who is told how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from npu_sim.errors import NpuSimError

Progress = Callable[[int, int, str], None]
"""Told parts done, parts in all, and what comes next."""

Scope = Literal["call", "kernel"]
"""What a figure is of: a whole call of the operator, or its kernel that multiplies."""
SCOPES: tuple[Scope, ...] = ("call", "kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a combination was not computed: the library's status code and the rule."""

    status: int
    error: str
    message: str

    @classmethod
    def of(cls, error: NpuSimError) -> Refusal:
        """Return what ``error`` says."""
        return cls(status=error.status, error=type(error).__name__, message=str(error))

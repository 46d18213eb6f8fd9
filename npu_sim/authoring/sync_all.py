"""SyncAll, which every core of a launch calls as often as the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npu_sim.errors import Refusal, StateError
from npu_sim.products import Product
from npu_sim.program.launch import CoreKind, SourceLine
from npu_sim.program.violation import Kind


class Syncs(NamedTuple):
    """Where a core called SyncAll."""

    kind: CoreKind
    core: int
    lines: list[SourceLine]


def refuse_unpaired(cores: Sequence[Syncs], product: Product) -> None:
    """Refuse a kernel some of whose cores call SyncAll more often than others, at the first call that these lack."""
    most = max(cores, key=lambda one: len(one.lines))
    least = min(cores, key=lambda one: len(one.lines))
    if len(most.lines) == len(least.lines):
        return
    line = most.lines[len(least.lines)]
    error = StateError(
        f"SyncAll must be called by every core of the launch: {most.kind} core {most.core} calls it "
        f"{len(most.lines)} times, {least.kind} core {least.core} {len(least.lines)} times ({product.name}, {line})"
    )
    error.refusal = Refusal(*line, most.core, Kind.SYNC_ALL_UNPAIRED)
    raise error

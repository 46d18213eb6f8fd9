"""How to see that a race changes the result: the option of ``npu-sim run`` that runs its later row first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from npu_sim.engines.races import core_order_of, race_of
from npu_sim.program.launch import Launch
from ops.studies.findings import Finding

_ORDERS = 64
"""Findings whose order is looked for, which takes a pass over the rows of a core each."""


def with_orders(findings: Iterable[Finding], launches: Sequence[Launch]) -> tuple[Finding, ...]:
    """Return findings of launches, of which those of a race have `Finding.order` where there is one."""
    return tuple(
        replace(finding, order=_order(finding, launches)) if number < _ORDERS else finding
        for number, finding in enumerate(findings)
    )


def _order(finding: Finding, launches: Sequence[Launch]) -> str:
    race = race_of(finding.violation, launches)
    if race is not None:
        return f"--order {shlex.quote(str(race))}"
    seed = core_order_of(finding.violation, launches)
    return "" if seed is None else f"--core-order {seed}"

"""How often a race that is found changes a result when its later row runs first: two executions, one of them in order.

``python -m tests.long.race_bites [--faults 1200] [--seed 0] [--json FILE]``

Waits are dropped or late, sets early, in one row or in every tile (`tests.cases.program_faults`). Of the first race
between pipes of a core that the checks find, `engines.reorder.order_that_bites` makes an order; the result is compared
with that in program order. A race whose bytes are the same whoever comes first changes nothing in any order: it counts
as missed only if the order of another race found, data movement late or a random order changes the result. Programs
that no order runs to its end, as flags of theirs are never set, have none.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from npu_sim.debug.execution import Execution
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.reorder import order_that_bites
from npu_sim.errors import NpuSimError
from npu_sim.program.violation import Kind, Violation
from tests.cases.fault_subjects import Subject, subjects
from tests.cases.program_faults import CLASSES, program_fault
from tests.long.fault_harness import ORDERS, results_of
from tests.long.recording import parser_of, publish

RACES = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)
_KINDS = tuple(kind for kind in CLASSES if kind.startswith(("wait dropped", "wait late", "set early")))
"""Faults that leave no wait without its set."""
_OTHERS = 6
"""Further races of a fault whose orders are tried where the first changes nothing."""


def result_of(execution: Execution) -> bytes | None:
    """Return the bytes of the outputs in program order; None where it does not get there."""
    return results_of(execution, orders=ORDERS[:1])[0]


def bites(subject: Subject, programs: list[np.ndarray], race: Violation, right: bytes | None) -> bool | None:
    """Return whether the order of a race changes the result, None if there is no such order."""
    rows = programs[race.core]
    try:
        order = order_that_bites(rows, race.other_row, race.row)
    except NpuSimError:
        return None
    if order is None:
        return None
    made = [rows[order] if core == race.core else own for core, own in enumerate(programs)]
    return result_of(subject.with_programs(made)) != right


def run(seed: int, faults: int, chosen: tuple[Subject, ...] | None = None) -> dict[str, Any]:
    """Put in that many faults, as many of each kernel, and run the orders of the races that are found."""
    counts: Counter[str] = Counter()
    missed = []
    every = subjects() if chosen is None else chosen
    for number, subject in enumerate(every):
        original, rng = subject.programs(), np.random.default_rng([seed, number])
        for draw in range(faults // len(every)):
            fault = program_fault(_KINDS[(draw + number * 7) % len(_KINDS)], original, rng)
            if fault is None:
                continue
            counts["faults"] += 1
            execution = subject.with_programs(fault.programs)
            found = run_hazards(execution.launches, execution.product)
            races = [
                race for race in found
                if race.kind in RACES and race.other_core < 0 and race.other_row >= 0 and race.launch == subject.number
            ]  # fmt: skip
            if not races:
                continue
            right = result_of(execution)
            first = bites(subject, fault.programs, races[0], right)
            counts["with races"] += 1
            if first:
                counts["first order changes the result"] += 1
                continue
            results = results_of(execution)
            others = [bites(subject, fault.programs, race, right) for race in races[1 : 1 + _OTHERS]]
            if first is None and None in results:
                counts["waits for ever"] += 1
            elif any(others) or any(one != right for one in results):
                counts["another order changes it"] += 1
                missed.append({"kernel": subject.name, "kind": fault.kind, "race": str(races[0]), "order": first})
            else:
                counts["no order changes it"] += 1
    differing = counts["first order changes the result"] + counts["another order changes it"]
    share = round(counts["first order changes the result"] / max(differing, 1), 4)
    return {**dict(sorted(counts.items())), "kernels": len(every), "in_two_executions": share, "missed": missed}


def main() -> int:
    """Run, print and record."""
    parser = parser_of("tests.long.race_bites", __doc__)
    parser.add_argument("--faults", type=int, default=1200)
    arguments = parser.parse_args()
    found = run(arguments.seed, arguments.faults)
    command = f"python -m tests.long.race_bites --faults {arguments.faults} --seed {arguments.seed}"
    publish(command, found, arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

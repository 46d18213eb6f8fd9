"""What the checkers say of kernels with a fault: a flag, barrier, copy, computation or buffer gone, moved or another.

``python -m tests.long.fault_harness [--faults 1600] [--seed 0] [--json FILE]``

One fault at a time (`tests.cases.program_faults`) in kernels of users and of operators (`tests.cases.fault_subjects`).
Whether one that is not reported changes a result is found by running it in program order, with data movement late and
in two random orders; a program that deadlocks in an order, or that is refused, changes it too. A reported fault is
named exactly if the first finding blames the line it is in, and nearly if the row it blames is at most 16 rows away; a
fault in every tile is as near as its nearest row. A line that is dropped in every tile is in no program: named is there
the line before or behind it, what takes and gives back buffers left out. Exit code 1 if a fault of order that changes a
result is not reported, or a kernel without a fault is. What changes values in program order alone is for `diverge`.
Of faults with an effect of `tests.long.fault_families` the share that is reported is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npu_sim.debug.execution import Execution
from npu_sim.engines.reorder import Order
from npu_sim.errors import NpuSimError
from npu_sim.isa.op import Op
from ops.studies.checking import check_launches
from ops.studies.findings import Finding
from tests.cases.fault_subjects import Subject, subjects
from tests.cases.program_faults import CLASSES, EVERYWHERE, OF_ORDER, ProgramFault, program_fault
from tests.long.fault_families import FAMILIES, family_of
from tests.long.recording import parser_of, publish

ORDERS: tuple[Order, ...] = ("program", "late", 1, 2)
NEAR_ROWS = 16


def results_of(execution: Execution, orders: Sequence[Order] = ORDERS) -> list[bytes | None]:
    """Return the bytes of the outputs behind each order; None where the program does not get there."""
    names = [tensor.name for tensor in execution.launches[0].gm.tensors if tensor.is_output]
    found: list[bytes | None] = []
    for order in orders:
        try:
            machine = replace(execution, options=replace(execution.options, order=order)).machine()
            machine.run()
            found.append(b"".join(machine.tensor(name).tobytes() for name in names))
        except NpuSimError:
            found.append(None)
    return found


def errors_of(execution: Execution) -> list[Finding]:
    """Return what the checkers say of a call, without advice."""
    _, findings = check_launches(execution.launches, execution.product)
    return [finding for finding in findings if finding.code.severity != "advice"]


def blamed(fault: ProgramFault, first: Finding, subject: Subject, rows: list[np.ndarray]) -> tuple[bool, bool]:
    """Return whether a finding names the line of a fault, and whether a row near it."""
    at, sites = first.blamed, subject.launch.sites
    launch = first.violation.launch if first.cause is None else first.cause.launch
    if at is None or launch != subject.number:
        return False, False
    if fault.kind.endswith(EVERYWHERE):
        places = np.flatnonzero(rows[at.core]["site"] == fault.site)
    else:
        places = np.array([fault.row] if at.core == fault.core else [], np.int64)
    is_near = bool(len(places)) and int(abs(places - at.row).min()) <= NEAR_ROWS
    return is_near and at.site == sites.get(fault.site, str(fault.site)), is_near


def stands_beside(fault: ProgramFault, first: Finding, subject: Subject, rows: list[np.ndarray]) -> bool:
    """Return whether a finding names the line before or behind one that is in no tile."""
    at = first.blamed
    if at is None or not blamed(fault, first, subject, rows)[1]:
        return False
    own, op = rows[at.core], rows[fault.core]["op"][fault.row]
    gone = (own["site"] == fault.site) & (own["op"] == op)
    kept = np.flatnonzero(~gone & ~np.isin(own["op"], (Op.ALLOC_TENSOR, Op.FREE_TENSOR)))
    behind = np.searchsorted(kept, np.flatnonzero(gone))
    places = kept[np.unique(np.concatenate([behind - 1, behind]).clip(0, len(kept) - 1))]
    return at.site in {subject.launch.sites.get(site, str(site)) for site in own["site"][places].tolist()}


def run(seed: int, faults: int, chosen: tuple[Subject, ...] | None = None) -> dict[str, Any]:
    """Put in that many faults, as many of each kernel, and hold what is reported to what is so."""
    by_class: dict[str, Counter[str]] = {kind: Counter() for kind in CLASSES}
    total: Counter[str] = Counter()
    families = {family: Counter({"faults": 0, "reported": 0}) for family in FAMILIES}
    silent: list[dict[str, Any]] = []
    missed: list[dict[str, Any]] = []
    far: list[dict[str, Any]] = []
    alarms = []
    every = subjects() if chosen is None else chosen
    for number, subject in enumerate(every):
        programs = subject.programs()
        right = results_of(subject.execution)
        alarms += [f"{subject.name}: {finding.violation}" for finding in errors_of(subject.execution)]
        rng = np.random.default_rng([seed, number])
        for draw in range(faults // len(every)):
            # kernels begin at other classes, so that few faults are of all of them
            kind = CLASSES[(draw + number * 7) % len(CLASSES)]
            fault = program_fault(kind, programs, rng)
            if fault is None:
                continue
            execution = subject.with_programs(fault.programs)
            errors = errors_of(execution)
            counts = by_class[kind]
            counts["faults"] += 1
            counts["reported"] += bool(errors)
            place = {"kernel": subject.name, "kind": kind, "core": fault.core, "row": fault.row}
            family = family_of(fault, subject, execution)
            if family is not None:
                families[family].update({"faults": 1, "reported": int(bool(errors))})
                silent += [] if errors else [place | {"family": family}]
            if not errors and results_of(execution) != right:
                counts["change a result unreported"] += 1
                missed += [place] if kind.startswith(OF_ORDER) else []
            if errors:
                exact, near = blamed(fault, errors[0], subject, programs)
                where = "in every tile" if kind.endswith(EVERYWHERE) else "in one row"
                if kind.endswith("dropped" + EVERYWHERE):
                    where = "gone from every tile"
                    exact = exact or stands_beside(fault, errors[0], subject, programs)
                counts["named exactly"] += exact
                total.update({f"reported {where}": 1, f"exact {where}": exact, f"near {where}": near})
                total["one finding"] += len(errors) == 1
                if not near:
                    far.append(place | {"said": str(errors[0].violation)})
    ends = ("in one row", "in every tile", "gone from every tile")
    reported = sum(total[f"reported {end}"] for end in ends)

    def share(what: str) -> dict[str, float]:
        return {end: round(total[f"{what} {end}"] / max(total[f"reported {end}"], 1), 4) for end in ends}

    return {
        "kernels": len(every),
        "classes": len(CLASSES),
        "faults": sum(counts["faults"] for counts in by_class.values()),
        "reported": reported,
        "first_finding_names_the_line": share("exact"),
        "first_finding_within_16_rows": share("near"),
        "one_finding": round(total["one finding"] / max(reported, 1), 4),
        "false_alarms": alarms,
        "missed_effects_of_order": missed,
        "families": {family: dict(counts) for family, counts in families.items()},
        "silent_of_families": silent,
        "named_elsewhere": far,
        "by_class": {kind: dict(sorted(counts.items())) for kind, counts in by_class.items()},
    }


def main() -> int:
    """Run, print and record; exit code 1 if a fault is missed or a right kernel reported."""
    parser = parser_of("tests.long.fault_harness", __doc__)
    parser.add_argument("--faults", type=int, default=1600)
    arguments = parser.parse_args()
    found = run(arguments.seed, arguments.faults)
    publish(
        f"python -m tests.long.fault_harness --faults {arguments.faults} --seed {arguments.seed}", found, arguments.json
    )
    return 1 if found["missed_effects_of_order"] or found["false_alarms"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

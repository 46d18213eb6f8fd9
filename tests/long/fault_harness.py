"""What the checkers say of kernels with one synchronising or moving row gone, late, or with another event.

``python -m tests.long.fault_harness [--faults 600] [--seed 0] [--json FILE]``

Kernels of `tests.cases.python_kernels`, one fault each. Whether a fault changes a result is found by running it in
program order, with data movement late and in two random orders; a program that deadlocks in an order changes it too.
Exit code 1 if a fault of order that does is not reported, or a kernel without one is. A dropped load or store can also
leave a legal program with other values (sums into a tensor that was there before): `diverge` is for those.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from npu_sim.debug.execution import Execution
from npu_sim.engines.reorder import Order
from npu_sim.errors import ProgramError
from npu_sim.isa.codes import Space
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from ops.studies.checking import check_launches
from ops.studies.findings import Finding
from tests.cases.python_kernels import CALLS, KernelCall
from tests.long.recording import parser_of, publish

ORDERS: tuple[Order, ...] = ("program", "late", 1, 2)
OF_VALUES = ("load dropped", "store dropped")
NEAR_ROWS = 16
_MOVES = (Op.DATA_COPY, Op.ND2NZ, Op.LOAD_2D, Op.LOAD_3D)
CLASSES = (
    "wait dropped", "set dropped", "barrier dropped", "load dropped", "store dropped", "wait late", "set early",
    "event exchanged", "state left on",
)  # fmt: skip


def mutated(kind: str, rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int] | None:
    """Return rows with a fault and the number of the first row that is not as it was, None if they cannot have it."""
    ops, stores = rows["op"], rows["dst_space"] == Space.GM
    of_class = {
        "wait dropped": ops == Op.WAIT_FLAG,
        "set dropped": ops == Op.SET_FLAG,
        "barrier dropped": ops == Op.PIPE_BARRIER,
        "load dropped": np.isin(ops, _MOVES) & (rows["src0_space"] == Space.GM),
        "store dropped": stores,
        "wait late": ops == Op.WAIT_FLAG,
        "set early": ops == Op.SET_FLAG,
        "event exchanged": ops == Op.WAIT_FLAG,
        "state left on": (ops == Op.SET_ATOMIC) & (rows["dtype"] == 0),
    }
    candidates = np.flatnonzero(of_class[kind])
    if not len(candidates):
        return None
    at = int(rng.choice(candidates))
    if kind == "event exchanged":
        changed = rows.copy()
        changed["event"][at] ^= 1
        return changed, at
    gone = join_rows([rows[:at], rows[at + 1 :]])
    if kind not in ("wait late", "set early"):
        return gone, at
    to = min(at + 3, len(gone)) if kind == "wait late" else max(at - 3, 0)
    return join_rows([gone[:to], rows[at : at + 1], gone[to:]]), min(at, to)


def results_of(execution: Execution, name: str) -> list[bytes | None]:
    """Return the bytes of a tensor behind each order; None where the program does not get there."""
    found: list[bytes | None] = []
    for order in ORDERS:
        try:
            machine = replace(execution, options=replace(execution.options, order=order)).machine()
            machine.run()
            found.append(machine.tensor(name).tobytes())
        except ProgramError:
            found.append(None)
    return found


def judged(call: KernelCall, programs: list[np.ndarray]) -> tuple[list[bytes | None], tuple[Finding, ...]]:
    """Return the results of programs and what the checkers say of them."""
    execution = call.execution(programs)
    _, findings = check_launches(execution.launches, execution.product)
    return results_of(execution, call.result), findings


def run(seed: int, faults: int) -> dict[str, Any]:
    """Put in that many faults, as many of each kernel, and hold what is reported to what is so."""
    by_class: dict[str, Counter[str]] = {kind: Counter() for kind in CLASSES}
    total: Counter[str] = Counter()
    missed: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    alarms = []
    for number, (name, make) in enumerate(CALLS.items()):
        call = make()
        made = call.record()
        programs = [made.rows(core) for core in range(made.launches[0].core_count)]
        right, said = judged(call, programs)
        alarms += [f"{name}: {finding.violation}" for finding in said]
        rng = np.random.default_rng([seed, number])
        for fault in range(faults // len(CALLS)):
            kind, core = CLASSES[fault % len(CLASSES)], int(rng.integers(len(programs)))
            changed = mutated(kind, programs[core], rng)
            if changed is None:
                continue
            rows, at = changed
            seen, findings = judged(call, [rows if n == core else own for n, own in enumerate(programs)])
            errors = [finding for finding in findings if finding.code.severity != "advice"]
            counts = by_class[kind]
            counts["faults"] += 1
            counts["reported"] += bool(errors)
            if seen != right:
                counts["change a result"] += 1
                counts["of these reported"] += bool(errors)
                if not errors:
                    missed[kind in OF_VALUES].append({"kernel": name, "kind": kind, "core": core, "row": at})
            if errors and errors[0].violation.row >= 0:
                total["located"] += 1
                total["near"] += abs(errors[0].violation.row - at) <= NEAR_ROWS
            total["one finding"] += len(errors) == 1
            total["with findings"] += bool(errors)
    return {
        "kernels": len(CALLS),
        "faults": sum(counts["faults"] for counts in by_class.values()),
        "by_class": {kind: dict(sorted(counts.items())) for kind, counts in by_class.items()},
        "first_finding_within_16_rows": round(total["near"] / max(total["located"], 1), 4),
        "one_finding": round(total["one finding"] / max(total["with findings"], 1), 4),
        "false_alarms": alarms,
        "missed_effects_of_order": missed[False],
        "other_values_not_reported": missed[True],
    }


def main() -> int:
    """Run, print and record; exit code 1 if a fault is missed or a right kernel reported."""
    parser = parser_of("tests.long.fault_harness", __doc__)
    parser.add_argument("--faults", type=int, default=600)
    arguments = parser.parse_args()
    found = run(arguments.seed, arguments.faults)
    publish(
        f"python -m tests.long.fault_harness --faults {arguments.faults} --seed {arguments.seed}", found, arguments.json
    )
    return 1 if found["missed_effects_of_order"] or found["false_alarms"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

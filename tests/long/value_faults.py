"""Where `diverge` ends for faults that make values wrong and leave the order right.

``python -m tests.long.value_faults [--faults 600] [--seed 0] [--json FILE]``

One row of a kernel of `tests.cases.python_kernels` is changed, dropped or taken from another tile; faults that change
no element beyond its budget are drawn again. `diverge` ends well at the row itself, or at a row of its tile. Exit code
1 if it does so for less than 95 % of the faults, or needs more than 30 executions.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from npu_sim.debug.divergence import Divergence, diverge_from_golden
from npu_sim.debug.good import diverge_from_good
from npu_sim.isa.op import Op
from tests.cases.python_kernels import CALLS, KernelCall
from tests.cases.value_faults import KINDS, Fault, fault_of
from tests.long.recording import parser_of, publish

BAR, MOST_EXECUTIONS = 0.95, 30


def labelled(programs: list[np.ndarray]) -> list[np.ndarray]:
    """Return programs whose rows have tiles: those that a kernel does not label count the results it begins."""
    found = []
    for rows in programs:
        rows = rows.copy()
        if (rows["tile"] < 0).all():
            begins = rows["op"] == Op.ALLOC_TENSOR
            begins &= rows["site"] == rows["site"][begins & (rows["dst_space"] == 5)][0]
            rows["tile"] = np.cumsum(begins) - 1
        found.append(rows)
    return found


def verdict(found: Divergence, fault: Fault) -> str:
    """Return where the search ended: "row", "tile", "elsewhere" or "nowhere"."""
    place = found.place
    if place is None:
        return "nowhere"
    if place.core != fault.core:
        return "elsewhere"
    if place.row == fault.row:
        return "row"
    return "tile" if place.tile == fault.tile and fault.tile >= 0 else "elsewhere"


def faults_of(call: KernelCall, seed: list[int], count: int) -> Any:
    """Yield faults that change a result beyond its budget, with the execution and what `diverge` finds."""
    rng = np.random.default_rng(seed)
    run = call.record()
    (launch,) = run.launches
    programs = labelled([run.rows(core) for core in range(launch.core_count)])
    made = drawn = 0
    while made < count:
        kind = KINDS[drawn % len(KINDS)]
        drawn += 1
        if drawn > 60 * count:
            return
        fault = fault_of(kind, programs, launch, run.product, rng)
        if fault is None:
            continue
        execution = call.execution(fault.programs)
        found = diverge_from_golden(execution, {call.result: call.golden})
        if not any(tensor.wrong_count for tensor in found.tensors):
            continue
        made += 1
        yield fault, execution, found, call.execution(programs)


def described(name: str, fault: Fault, found: Divergence) -> dict[str, Any]:
    """Return a fault that was not found, and what was."""
    where = {"kernel": name, "kind": fault.kind, "core": fault.core, "row": fault.row, "tile": fault.tile}
    return where | {"said": str(found.place), "reason": found.reason}


def run(seed: int, faults: int) -> dict[str, Any]:
    """Seed that many faults, as many in each kernel."""
    ends: dict[str, Counter[str]] = {}
    twins: Counter[str] = Counter()
    missed = []
    most = 0
    for number, (name, make) in enumerate(CALLS.items()):
        ends[name] = Counter()
        for fault, execution, found, good in faults_of(make(), [seed, number], faults // len(CALLS)):
            said = verdict(found, fault)
            ends[name][said] += 1
            most = max(most, found.executions)
            if said in ("elsewhere", "nowhere"):
                missed.append(described(name, fault, found))
            twin = diverge_from_good(execution, good)
            twins["nowhere" if twin is None else verdict(twin, fault)] += 1
    total: Counter[str] = sum(ends.values(), Counter())
    count = sum(total.values())
    return {
        "faults": count,
        "kernels": len(ends),
        "row_or_tile": round((total["row"] + total["tile"]) / count, 4),
        "row": round(total["row"] / count, 4),
        "beside_a_good_program": {end: round(n / count, 4) for end, n in sorted(twins.items())},
        "most_executions": most,
        "by_kernel": {name: dict(sorted(counts.items())) for name, counts in ends.items()},
        "missed": missed[:20],
    }


def main() -> int:
    """Run, print and record; exit code 1 if a bar is missed."""
    parser = parser_of("tests.long.value_faults", __doc__)
    parser.add_argument("--faults", type=int, default=600)
    arguments = parser.parse_args()
    found = run(arguments.seed, arguments.faults)
    publish(
        f"python -m tests.long.value_faults --faults {arguments.faults} --seed {arguments.seed}", found, arguments.json
    )
    return 0 if found["row_or_tile"] >= BAR and found["most_executions"] <= MOST_EXECUTIONS else 1


if __name__ == "__main__":
    raise SystemExit(main())

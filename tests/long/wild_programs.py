"""Programs that nobody verified, through everything that reads rows, with bounds checks compiled in.

``python -m tests.long.wild_programs [--programs 200000] [--seed 0] [--json FILE]``

Wild rows, and legal programs with rows changed, dropped, doubled and exchanged, of fewer than 40 rows and for every
series: timeline with its trace, hazards, two orders, listing. Each may refuse a program with a `ProgramError` that
names its rows, and nothing else; none may take a second. Bounds checks need compiled code of their own, so the work is
done by a child process with a cache directory of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

from npu_sim.isa.footprint import empty_runs, footprint_at
from npu_sim.isa.row import empty_rows
from tests.long.recording import parser_of, publish
from tests.oracles.series import SERIES
from tests.oracles.wild_programs import WildPrograms, read_by_all

SECONDS = 1.0
"""What no reader may take for one program."""
WARM_PROGRAMS = 50
"""Programs read before time counts: the first ones compile. A slow one behind them is read again, and that counts."""


def has_bounds_checks() -> bool:
    """Return whether jitted code of this process notices an index behind an array."""
    try:
        footprint_at(empty_rows(1), 1, empty_runs(64))
    except IndexError:
        return True
    return False


def run(seed: int, programs: int) -> dict[str, Any]:
    """Read ``programs`` programs, as many of each series."""
    failed: list[dict[str, Any]] = []
    slow: list[dict[str, Any]] = []
    longest: dict[str, float] = {}
    kinds: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    findings = again = 0
    for number, series in enumerate(SERIES):
        source = WildPrograms([seed, number], series)
        for at in range(-WARM_PROGRAMS, programs // len(SERIES)):
            kind, rows = source.program()
            try:
                seconds, found, refusals = read_by_all(rows, source.product, source.gm, at + WARM_PROGRAMS)
                if max(seconds.values()) >= SECONDS:
                    # the first of its kind compiles, however late it comes
                    again += at >= 0
                    seconds = read_by_all(rows, source.product, source.gm, at + WARM_PROGRAMS)[0]
            except Exception as error:  # whatever it is, it is what this run is after
                failed.append({"series": series, "program": at, "kind": kind, "error": repr(error)})
                continue
            if at < 0:
                continue
            kinds[kind] += 1
            findings += found
            refused.update(refusals)
            for reader, taken in seconds.items():
                longest[reader] = max(longest.get(reader, 0.0), taken)
                if taken >= SECONDS:
                    slow.append({"series": series, "program": at, "reader": reader, "seconds": taken})
    return {
        "programs": sum(kinds.values()),
        "kinds": dict(sorted(kinds.items())),
        "bounds_checks": has_bounds_checks(),
        "findings": findings,
        "refused": dict(sorted(refused.items())),
        "longest_cpu_seconds": {reader: round(taken, 4) for reader, taken in longest.items()},
        "read_again": again,
        "slow": slow,
        "failed": failed,
    }


def main() -> int:
    """Run, print and record; exit code 1 if a program failed or was slow, or bounds checks were off."""
    parser = parser_of("tests.long.wild_programs", __doc__)
    parser.add_argument("--programs", type=int, default=200_000)
    parser.add_argument("--child", action="store_true", help="work in this process")
    arguments = parser.parse_args()
    if not arguments.child:
        with tempfile.TemporaryDirectory() as directory:
            environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": directory}
            command = [sys.executable, "-m", "tests.long.wild_programs", *sys.argv[1:], "--child"]
            return subprocess.run(command, env=environment, check=False).returncode
    start = time.perf_counter()
    found = run(arguments.seed, arguments.programs)
    found["seconds"] = round(time.perf_counter() - start, 1)
    publish(f"{parser.prog} --seed {arguments.seed}", found, arguments.json)
    return 1 if found["failed"] or found["slow"] or not found["bounds_checks"] else 0


if __name__ == "__main__":
    sys.exit(main())

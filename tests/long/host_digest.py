"""One digest of public calls on several host CPUs, with one and many threads, in every state of the caller.

``python -m tests.long.host_digest [--cpu NAME ...] [--json FILE]``

Every CPU (LLVM's name, or "host": this machine as it is) compiles all code anew in a process and a cache of its own,
a minute of CPU time each. A CPU whose instructions this machine lacks ends its process and is recorded as such.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cases.host_calls import CALLER_STATES, CALLS, HAS_MXCSR, caller_state, digest
from tests.long.recording import parser_of, publish

CPUS = ("host", "x86-64", "nehalem", "sandybridge", "haswell", "skylake-avx512", "znver4")
THREADS = (1, 2, 5)
_ROOT = Path(__file__).parents[2]


def digests(names: Sequence[str], states: Sequence[str], threads: Sequence[int]) -> dict[str, list[str]]:
    """Return the different digests of each call over all states and threads: one each, if all is well."""
    found: dict[str, list[str]] = {}
    for name in names:
        seen: set[str] = set()
        for state in states:
            with caller_state(state):
                seen.update(digest(name, count) for count in threads)
        found[name] = sorted(seen)
    return found


def on_cpu(
    cpu: str, directory: Path, names: Sequence[str], states: Sequence[str], threads: Sequence[int]
) -> dict[str, list[str]] | str:
    """Return `digests` of a process that compiles for ``cpu``, or why it ended without."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(directory / cpu)}
    if cpu != "host":
        environment |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
    arguments = json.dumps([list(names), list(states), list(threads)])
    child = subprocess.run(
        [sys.executable, "-m", "tests.long.host_digest", "--child", arguments],
        cwd=_ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode != 0:
        return f"ended with {child.returncode}: {child.stderr.strip().rpartition(chr(10))[2]}"
    return json.loads(child.stdout)


def run(cpus: Sequence[str]) -> dict[str, Any]:
    """Compare all CPUs."""
    states = list(CALLER_STATES) if HAS_MXCSR else ["default"]
    with tempfile.TemporaryDirectory() as directory:
        found = {cpu: on_cpu(cpu, Path(directory), list(CALLS), states, THREADS) for cpu in cpus}
    ran = {cpu: result for cpu, result in found.items() if isinstance(result, dict)}
    different = {name for name in CALLS if len({d for result in ran.values() for d in result[name]}) > 1}
    return {
        "calls": len(CALLS),
        "threads": list(THREADS),
        "caller_states": states,
        "digest_by_cpu": {
            cpu: hashlib.sha256(json.dumps(result).encode()).hexdigest()[:16] for cpu, result in ran.items()
        },
        "not_run": {cpu: result for cpu, result in found.items() if isinstance(result, str)},
        "different": sorted(different),
    }


def main() -> int:
    """Run, print and record; exit code 1 if anything differed or nothing ran."""
    parser = parser_of("tests.long.host_digest", __doc__)
    parser.add_argument("--cpu", nargs="+", default=list(CPUS), metavar="NAME")
    parser.add_argument("--child", default=None, help="JSON of what a process of one CPU computes")
    options = parser.parse_args()
    if options.child is not None:
        json.dump(digests(*json.loads(options.child)), sys.stdout)
        return 0
    found = run(options.cpu)
    publish(parser.prog, found, options.json)
    return int(bool(found["different"]) or not found["digest_by_cpu"])


if __name__ == "__main__":
    sys.exit(main())

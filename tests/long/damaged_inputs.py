"""Case files, results, self-tests and captures whose values are wrong: each is read or refused on one line.

``python -m tests.long.damaged_inputs [--files 10000] [--seed 0] [--json FILE]``

So many files for each reader, with a memory budget of 16 MiB; what is read is used: layers are drawn, the ends of a
self-test read. The peak of what Python and NumPy allocated is measured on every `TRACED_EVERY`-th file.
"""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim import budget
from ops.studies.capture import load_capture
from ops.studies.case_file import load_cases
from ops.studies.layers import Capture
from ops.studies.registry import kinds_of
from ops.studies.results_file import Results
from ops.studies.selftest.vectors import load_results
from tests.cases.damaged_inputs import INPUTS
from tests.long.damaged_files import BUDGET_BYTES, read_one, run_in_little_room

TRACED_EVERY = 16


def _use(capture: Capture) -> None:
    """Draw the tensors of what was read, and ask what it is."""
    for layer in capture.layers:
        filled = layer.filled()
        for kind in kinds_of(filled, None):
            kind.k_depth(filled), kind.macs(filled), kind.shape(filled)


READERS: dict[str, Callable[[Path], Any]] = {
    "capture": lambda path: _use(load_capture(path)),
    "ATK cases": lambda path: _use(load_cases(path).capture),
    "TTK cases": lambda path: _use(load_cases(path).capture),
    "results": Results,
    "self-test": load_results,
}


def run(seed: int, files: int) -> dict[str, Any]:
    """Read ``files`` files with each reader, with the limits set."""
    warnings.simplefilter("error")
    rng = np.random.default_rng(seed)
    by_reader: Counter[str] = Counter()
    foreign: set[str] = set()
    most = 0
    with tempfile.TemporaryDirectory() as folder, budget.use_budget(BUDGET_BYTES):
        for reader, (suffix, make) in INPUTS.items():
            path = Path(folder) / f"a{suffix}"
            for number in range(files):
                path.write_bytes(make(rng))
                traced = number % TRACED_EVERY == 0
                if traced:
                    tracemalloc.start(1)
                end, text = read_one(READERS[reader], path)
                if traced:
                    most = max(most, tracemalloc.get_traced_memory()[1])
                    tracemalloc.stop()
                by_reader[f"{reader}: {end}"] += 1
                if text and len(foreign) < 20:
                    foreign.add(f"{reader} {number}: {text}")
    return {
        "files": files * len(INPUTS),
        "by_reader": dict(sorted(by_reader.items())),
        "most_mib_of_a_file": round(most / 2**20, 1),
        "budget_mib": BUDGET_BYTES >> 20,
        "foreign_at": sorted(foreign),
    }


if __name__ == "__main__":
    sys.exit(run_in_little_room("tests.long.damaged_inputs", __doc__, run, files=10_000, first=20))

"""Damaged files of captured layers: each is read or refused on one line, and nothing is allocated beyond the budget.

``python -m tests.long.damaged_files [--files 100000] [--seed 0] [--json FILE]``

Runs with a memory budget of 16 MiB in an address space that holds `ROOM_BYTES` more than the process has; the peak of
what Python and NumPy allocated is measured on every `TRACED_EVERY`-th file and on every bomb.
"""

from __future__ import annotations

import os
import resource
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
from npu_sim.errors import BudgetError, InputFileError
from ops.studies.capture import load_capture
from ops.studies.cases import cases_of_capture
from tests.cases.damaged_captures import damaged
from tests.long.recording import parser_of, publish

BUDGET_BYTES = 16 << 20
ROOM_BYTES = 96 << 20
TRACED_EVERY = 16


def read_capture(path: Path) -> object:
    """Read the file as what was captured of a network."""
    return cases_of_capture(load_capture(path))


def read_one(read: Callable[[Path], object], path: Path) -> tuple[str, str]:
    """Return how the reading of a file ended (read, refused, budget, foreign), and what is wrong with that."""
    try:
        read(path)
    except BudgetError:
        return "budget", ""
    except InputFileError as error:
        text = str(error)
        return ("refused", "") if text.isprintable() and len(text) <= 500 else ("foreign", f"text {text[:200]!r}")
    except Exception as error:
        return "foreign", f"{type(error).__name__}: {str(error)[:200]}"
    return "read", ""


def run(seed: int, files: int) -> dict[str, Any]:
    """Read ``files`` damaged files with the limits set."""
    warnings.simplefilter("error")
    rng = np.random.default_rng(seed)
    ends: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    foreign: set[str] = set()
    most = 0
    with tempfile.TemporaryDirectory() as folder, budget.use_budget(BUDGET_BYTES):
        path = Path(folder) / "a.npz"
        for number in range(files):
            kind, data = damaged(rng)
            path.write_bytes(data)
            traced = number % TRACED_EVERY == 0 or kind == "bombs"
            if traced:
                tracemalloc.start(1)
            end, text = read_one(read_capture, path)
            if traced:
                most = max(most, tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
            ends[end] += 1
            by_kind[f"{kind}: {end}"] += 1
            if text and len(foreign) < 20:
                foreign.add(f"file {number}: {text}")
    return {
        "files": files,
        **dict(sorted(ends.items())),
        "by_kind": dict(sorted(by_kind.items())),
        "most_mib_of_a_file": round(most / 2**20, 1),
        "budget_mib": BUDGET_BYTES >> 20,
        "foreign_at": sorted(foreign),
    }


def limit_address_space() -> None:
    """Let this process have no more than `ROOM_BYTES` beyond what it has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        limit = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE") + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def run_in_little_room(
    name: str, documentation: str | None, run: Callable[[int, int], dict[str, Any]], *, files: int, first: int
) -> int:
    """Read files with little memory, print and record what came of it; exit code 1 if anything else than a refusal did.

    Parameters
    ----------
    name, documentation : str
        Of the module.
    run : callable
        (seed, how many files) to what is recorded.
    files, first : int
        How many unless the command line says, and before memory is limited: what these import and compile stays.
    """
    parser = parser_of(name, documentation)
    parser.add_argument("--files", type=int, default=files)
    arguments = parser.parse_args()
    run(arguments.seed, first)
    limit_address_space()
    found = run(arguments.seed, arguments.files)
    publish(f"{parser.prog} --files {arguments.files} --seed {arguments.seed}", found, arguments.json)
    return 1 if found["foreign_at"] else 0


if __name__ == "__main__":
    sys.exit(run_in_little_room("tests.long.damaged_files", __doc__, run, files=100_000, first=200))

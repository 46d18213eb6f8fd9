"""Speed of emission and timeline in rows per second, one thread.

    python -m perf.bench.rows [--json FILE] [--rows N] [--repeat R]

The program is what a tiled Cube kernel emits: per k step two waits, two GM copies, a set, then a wait, load2d and
img2col loads, flags, an Mmad, and per tile an atomic Fixpipe; about half of the rows are flags. Measurements are short
(about a millisecond) and many, so that some of them fall between the turns of other processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from npu_sim.engines.timeline_jit import CLOCK_WORDS, OK, advance, finish, reset_clocks
from npu_sim.errors import InternalError
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.products.cost_record import cost_record
from perf.bench.kernel_rows import emit_tiled, prime_flags

CHUNK_SIZES = (1024, 2048, 4096, 8192)


class Program:
    """Rows of a tiled Cube kernel, at least ``row_target`` of them in chunks of ``chunk``, emitted and timed."""

    def __init__(self, row_target: int, chunk: int) -> None:
        self._target, self._rows = row_target, empty_rows(chunk)
        self._cost = cost_record(get_product("910b").cost, 24, 1_800_000_000)
        self._clocks = np.zeros(CLOCK_WORDS, np.int64)
        self._spans = np.zeros((0, 2), np.int64)
        self._state = np.zeros(8, np.int64)

    def emission(self) -> int:
        """Emit the rows; return how many there are."""
        self._state[:] = 0
        total = 0
        while total < self._target:
            total += emit_tiled(self._rows, self._state)
        return total

    def both(self) -> int:
        """Emit and time the rows; return how many there are."""
        total = self._primed()
        while total < self._target:
            total += self._advance(emit_tiled(self._rows, self._state))
        return total

    def timeline(self) -> int:
        """Time the rows of one chunk again and again, whose flags balance; return how many."""
        total = self._primed()
        count = emit_tiled(self._rows, self._state)
        while total < self._target:
            total += self._advance(count)
        return total

    def check(self) -> None:
        """Refuse a timeline whose parts of the critical path do not add up."""
        parts = np.zeros(8, np.int64)
        if finish(self._clocks, parts) != parts.sum():
            raise InternalError("Parts of the critical path must add up to the total")

    def _primed(self) -> int:
        reset_clocks(self._clocks)
        self._state[:] = 0
        return self._advance(prime_flags(self._rows))

    def _advance(self, count: int) -> int:
        code, row = advance(self._rows, count, self._cost, self._clocks, self._spans)
        if code != OK:
            raise InternalError(f"Benchmark program must be legal, not error {code} in row {row}")
        return count


def measure(row_target: int, chunk: int, repeats: int) -> dict[str, float]:
    """Return rows per second of emission, timeline and both, best of ``repeats``, for chunks of ``chunk`` rows.

    Parameters
    ----------
    row_target : int
        Rows per measurement, at least.
    chunk : int
        Rows per chunk.
    repeats : int
        Measurements; the fastest counts.
    """
    program = Program(row_target, chunk)
    works = {"emit": program.emission, "timeline": program.timeline, "both": program.both}
    result = {name: _best(work, repeats) for name, work in works.items()}
    program.check()
    return result


def _best(work: Callable[[], int], repeats: int) -> float:
    work()
    best = 0.0
    for _ in range(repeats):
        began = time.perf_counter()
        count = work()
        best = max(best, count / (time.perf_counter() - began))
    return best


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description="rows per second of emission and timeline")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE, - for standard output")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeat", type=int, default=150)
    options = parser.parse_args(arguments)
    results = {chunk: measure(options.rows, chunk, options.repeat) for chunk in CHUNK_SIZES}
    report = {
        "unit": "rows per second, one thread, best of repeats",
        "rows": options.rows,
        "repeat": options.repeat,
        "chunks": {str(chunk): {name: round(value) for name, value in r.items()} for chunk, r in results.items()},
    }
    if options.json == "-":
        json.dump(report, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
    sys.stdout.write("chunk rows   emit M/s   timeline M/s   both M/s\n")
    for chunk, r in results.items():
        sys.stdout.write(f"{chunk:10d} {r['emit'] / 1e6:10.1f} {r['timeline'] / 1e6:14.1f} {r['both'] / 1e6:10.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

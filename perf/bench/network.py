"""Speed of the timeline on a whole network: ResNet-50's 53 kernels of weight gradients, no tensor data.

    python -m perf.bench.network [--product Ascend910B2] [--batch 8 256] [--dtype fp16] [--repeat R] [--json FILE]

Seconds are those of planning (tiling, parameters), emission and timeline together, best of the repeats, after one run
that compiles; one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

from ops.studies.calls.convolutions import gradient_requests
from ops.studies.cases import CaseSet, cases_of_model
from ops.studies.timing import TimingReport, run_timing

MODEL = "resnet50"
BAR_SECONDS = 2.0
"""A network has to be timed in less, so that a tiling can be tried while one waits for it."""


def measure(cases: CaseSet, product: str, cube_math_type: int, repeats: int) -> tuple[float, TimingReport]:
    """Return the best time of a whole study in seconds, and its report.

    Parameters
    ----------
    cases : CaseSet
        The network.
    product : str
        SoC version or series alias.
    cube_math_type : int
        0..3.
    repeats : int
        Runs after the first; the fastest counts.
    """
    requests = gradient_requests(cases.cases, (cube_math_type,))
    report = run_timing(cases.source, requests, (product,), "kernel")
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        report = run_timing(cases.source, requests, (product,), "kernel")
        best = min(best, time.perf_counter() - began)
    return best, report


def document(seconds: float, report: TimingReport, product: str, batch: int) -> dict[str, Any]:
    """Return the figures of one measurement as plain data."""
    results = [(row.request.name, row.result) for row in report.rows if row.result is not None]
    rows = sum(result.row_count for _, result in results)
    return {
        "product": product,
        "batch": batch,
        "seconds": seconds,
        "bar_seconds": BAR_SECONDS,
        "rows": rows,
        "rows_per_second": rows / seconds,
        "refused": len(report.rows) - len(results),
        "simulated_seconds": sum(result.task_seconds for _, result in results),
        "layers": [
            {"layer": name, "cycles": result.total_cycles, "task_us": result.task_seconds * 1e6}
            for name, result in results
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit code: 1 if a network takes longer than the bar."""
    parser = argparse.ArgumentParser(description="time to time a network")
    parser.add_argument("--product", nargs="+", default=["Ascend910B2"])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 256])
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--cube-math-type", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--layers", action="store_true", help="print the simulated time of every layer")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE, - for standard output")
    options = parser.parse_args(arguments)
    documents = []
    for product in options.product:
        for batch in options.batch:
            cases = cases_of_model(MODEL, batch, options.dtype)
            seconds, report = measure(cases, product, options.cube_math_type, options.repeat)
            documents.append(document(seconds, report, product, batch))
            if options.json != "-":
                _print(documents[-1], options.layers)
    if options.json == "-":
        json.dump(documents, sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(documents, file, indent=2)
    return 0 if all(entry["seconds"] < BAR_SECONDS for entry in documents) else 1


def _print(figures: dict[str, Any], with_layers: bool) -> None:
    if with_layers:
        for layer in figures["layers"]:
            sys.stdout.write(f"{layer['layer']:10} {layer['cycles']:10d} cycles {layer['task_us']:10.1f} us\n")
    sys.stdout.write(
        f"{figures['product']}, batch {figures['batch']}: {figures['seconds']:.3f} s for {MODEL} (bar {BAR_SECONDS}), "
        f"{figures['rows']} rows, {figures['rows_per_second'] / 1e6:.1f} M rows/s, "
        f"{figures['simulated_seconds'] * 1e3:.3f} ms simulated, {figures['refused']} refused\n"
    )


if __name__ == "__main__":
    sys.exit(main())

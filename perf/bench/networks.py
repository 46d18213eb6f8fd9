"""Time and memory that the training steps of five networks take to be timed, start-up included.

    python -m perf.bench.networks [--product 910b] [--batch 32] [--repeat R] [--json FILE]

Each repeat is a process of its own, after one that compiles, Python's modules too (also where
PYTHONDONTWRITEBYTECODE is set): ResNet-50, AlexNet, VGG-16, MobileNetV1 and V2, whole backward calls that want dx, dw
and db of every convolution, with low and high times. The fastest counts: of processes that time every launch, and of
processes that find the times of an earlier one (`ops.studies.calls.kept_bounds`) and plan the calls only. CPU seconds
are those of all threads; on a machine that does something else beside, they say more than the others.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

from ops.cli import GARBAGE_THRESHOLDS

NETWORKS = ("resnet50", "alexnet", "vgg16", "mobilenet_v1", "mobilenet_v2")
BAR_SECONDS, BAR_MEGABYTES = 1.5, 300


def run_all(product: str, batch: int) -> dict[str, Any]:
    """Time the networks in this process, as a command would; return rows and memory."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    from ops.studies.layers import GRADIENTS
    from ops.studies.network.report import run_network
    from ops.studies.network.step import TrainingStep, step_of_table

    rows = 0
    for name in NETWORKS:

        def make(batch: int, mode: int, name: str = name) -> TrainingStep:
            return step_of_table(name, batch, mode, "fp16", GRADIENTS)

        report = run_network(make, (product,), (0,), (batch,))
        rows += sum(times.every.row_count for times in report.steps)
    return {"rows": rows, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(product: str, batch: int, *, keeps: bool) -> dict[str, Any]:
    """Time a process that times the networks, with what earlier ones have kept or without."""
    command = [sys.executable, "-m", __spec__.name, "--product", product, "--batch", str(batch), "--here"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own["NPU_SIM_KEEP_TIMES"] = str(int(keeps))
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=own).stdout
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, **json.loads(printed)}


def main() -> None:
    """Print the fastest of the repeats beside the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--product", default="910b", help="SoC version or series alias (default: 910b)")
    parser.add_argument("--batch", type=int, default=32, help="images per step (default: 32)")
    parser.add_argument("--repeat", type=int, default=3, help="processes to time (default: 3)")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(run_all(given.product, given.batch)))
        return
    found: dict[str, Any] = {"product": given.product, "batch": given.batch}
    found |= {"bar_seconds": BAR_SECONDS, "bar_megabytes": BAR_MEGABYTES}
    print(f"five networks, batch {given.batch}, {given.product}: bars {BAR_SECONDS} s, {BAR_MEGABYTES} MB")
    for name, keeps in (("every launch timed", False), ("times kept", True)):
        measure(given.product, given.batch, keeps=keeps)
        best = min(
            (measure(given.product, given.batch, keeps=keeps) for _ in range(given.repeat)),
            key=lambda one: float(one["seconds"]),
        )
        found[name] = best
        print(
            f"{name}: {best['seconds']:.2f} s, CPU {best['cpu_seconds']:.2f} s, {best['megabytes']:.0f} MB, "
            f"{best['rows'] / 1e6:.0f} M instructions"
        )
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()

"""All benchmarks against their peers in one run, and what got slower since the recorded one.

    python -m perf.bench [--only GROUP ...] [--seconds S] [--threads N] [--json FILE] [--picture FILE]
                         [--against FILE | --record]

Each race runs both sides in turn, in the other order every round, and takes the ratio of each round: the peer's time
over ours, so above 1 is faster than the peer. Shown are the median and the quartiles. Times are those of the processor
where one thread runs, so that a busy machine disturbs them little; with two threads they are wall time. Races with
PyTorch need the extra ``capture``. `perf/bench/record.json` is the recorded run (``--record`` writes it).
"""

from __future__ import annotations

import os

# read when NumPy and PyTorch are imported: one thread each, and none that spins for work that does not come
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import importlib.metadata
import json
import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from perf.bench.race import Outcome, from_plain, geometric_mean, run, slower, to_plain
from perf.bench.races import GROUPS, NEED_TORCH

SCHEMA_VERSION = 1
RECORD = Path(__file__).with_name("record.json")


def host() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ("numpy", "numba", "torch")
    return {
        "processor": names[0] if names else platform.machine(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages if find_spec(name)},
    }


def measure(groups: Sequence[str], threads: int, seconds: float, console: Console) -> list[Outcome]:
    """Run the races of ``groups``, one after the other."""
    found = []
    for group in groups:
        if group in NEED_TORCH and find_spec("torch") is None:
            console.print(f"{group}: not measured, torch is not installed (extra capture)")
            continue
        with console.status(group) as status:
            for race in GROUPS[group](threads):
                status.update(f"{race.group}: {race.name}")
                found.append(run(race, seconds))
    return found


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """Return the outcomes as a table for people."""
    table = Table(title="The peer's time over ours: above 1 is faster than the peer")
    for title in ("group", "race", "peer"):
        table.add_column(title)
    for title in ("ours ms", "peer ms", "ratio", "quartiles", "rounds"):
        table.add_column(title, justify="right")
    for _, members in groupby(outcomes, key=lambda one: one.group):
        for one in members:
            table.add_row(
                one.group, one.name, one.peer_name, f"{one.ours * 1e3:.3g}", f"{one.peer * 1e3:.3g}",
                f"{one.ratio:.2f}", f"{one.low:.2f} to {one.high:.2f}", str(one.rounds),
            )  # fmt: skip
        table.add_section()
    return table


def means(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the geometric mean of each group, and of the gradients that of each model and number of threads."""
    keys: dict[str, list[float]] = {}
    for one in outcomes:
        parts = one.name.split(", ")
        key = f"gradients {', '.join(parts[2:])}" if one.group == "gradients" else one.group
        keys.setdefault(key, []).append(one.ratio)
    return [f"{key}: {geometric_mean(ratios):.2f}x" for key, ratios in keys.items()]


def draw(outcomes: Sequence[Outcome], path: str) -> None:
    """Write a picture: a mark for each race on a line of ratios, with its quartiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.19 * len(outcomes)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(outcomes))
    ratios = np.array([one.ratio for one in outcomes])
    spread = np.array([[one.ratio - one.low for one in outcomes], [one.high - one.ratio for one in outcomes]])
    groups = list(dict.fromkeys(one.group for one in outcomes))
    for number, group in enumerate(groups):
        own = [i for i, one in enumerate(outcomes) if one.group == group]
        color = f"C{number}"
        axes.errorbar(ratios[own], places[own], xerr=spread[:, own], fmt="o", ms=4, lw=1, color=color, label=group)
    axes.axvline(1, color="gray", lw=0.8)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30) if ratios.min() / 3 < tick < ratios.max() * 3]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks(places, [f"{one.name} ({one.peer_name})" for one in outcomes], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("the peer's time over ours: right of 1 is faster than the peer; lines are quartiles")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def _compared(outcomes: Sequence[Outcome], here: dict[str, Any], path: Path, console: Console) -> bool:
    """Say what got slower than in the run recorded at ``path``; return whether something did."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["host"]["processor"] != here["processor"]:
        console.print(f"The record {path.name} is of another processor, {record['host']['processor']}.")
    if record["host"]["load"] > record["host"]["processors"]:
        console.print(f"The record {path.name} was made beside other work, at a load of {record['host']['load']}.")
    before = from_plain(record["races"])
    known = sum(one.key in before for one in outcomes)
    changes = slower(outcomes, before)
    console.print(f"{len(changes)} of {known} recorded races are slower by more than noise")
    for change in changes:
        console.print(f"  {change.words}")
    return bool(changes)


def main(arguments: list[str] | None = None) -> int:
    """Run the races; exit code 1 if one is slower than recorded by more than noise."""
    parser = argparse.ArgumentParser(prog="python -m perf.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="groups (default: all)")
    parser.add_argument("--seconds", type=float, default=1.0, help="wall time of each race at least (default: 1)")
    parser.add_argument("--threads", type=int, default=2, help="threads of gradients besides one (default: 2)")
    parser.add_argument("--json", metavar="FILE", help="write the figures ('-': standard output)")
    parser.add_argument("--picture", metavar="FILE", help="draw the ratios (PNG or SVG)")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--against", metavar="FILE", type=Path, default=RECORD, help="recorded run to compare with")
    group.add_argument("--record", action="store_true", help=f"write {RECORD.name} instead of comparing with it")
    options = parser.parse_args(arguments)
    if options.seconds <= 0 or options.threads < 1:
        parser.error("--seconds must be above 0 and --threads at least 1")
    if options.record and set(options.only) != set(GROUPS):
        parser.error("--record must be of all groups, not of some")
    console = Console(width=140, stderr=options.json == "-")
    here = host()
    outcomes = measure(options.only, options.threads, options.seconds, console)
    if not outcomes:
        return 1
    console.print(table_of(outcomes))
    console.print("geometric means: " + "; ".join(means(outcomes)))
    document = {"schema_version": SCHEMA_VERSION, "host": here, "races": to_plain(outcomes)}
    text = json.dumps(document, indent=1) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
    elif options.json:
        Path(options.json).write_text(text, encoding="utf-8")
    if options.picture:
        draw(outcomes, options.picture)
    if options.record:
        RECORD.write_text(text, encoding="utf-8")
        return 0
    if not options.against.exists():
        console.print(f"no recorded run to compare with ({options.against})")
        return 0
    return int(_compared(outcomes, here, options.against, console))


if __name__ == "__main__":
    raise SystemExit(main())

"""Wild calls of every public front: what is refused is an NpuSimError, and nothing is allocated beyond the budget.

``python -m tests.long.wild_calls [--calls 100000] [--seconds 300] [--jobs 1] [--fronts NAME ...] [--json FILE]``

Every front runs in a process of its own with a memory budget of 64 MiB and, once it is warm, an address space that
holds `ROOM_BYTES` more than it has: an allocation that the budget does not know ends in a MemoryError, which is counted
as foreign. ``most_mib_of_a_call`` is the peak of what Python and NumPy allocated in one of every `TRACED_EVERY` calls.
A call that takes longer than `SLOW_SECONDS` of CPU is listed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from npu_sim import budget
from npu_sim.errors import BudgetError, InternalError, NpuSimError, UndefinedOnHardware
from tests.cases.wild_fronts import FRONTS
from tests.long.recording import parser_of, publish

BUDGET_BYTES = 64 << 20
ROOM_BYTES = 320 << 20
"""The budget, twice for what a result is made beside, and what code and its compilation take."""
SLOW_SECONDS = 60
"""The compilation of a kernel that a call is the first to use is part of it."""
WARM_CALLS = 300
TRACED_EVERY = 16
"""Tracing makes a call some four times slower."""


class SlowCallError(BaseException):
    """A call took too long."""


def _too_slow(*_: object) -> None:
    raise SlowCallError


def _place(error: BaseException) -> str:
    """Return where an error comes from: the last frame of this project's packages."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" not in frame.filename]
    own = [frame for frame in frames if "/npu_sim/" in frame.filename or "/ops/" in frame.filename] or frames
    where = f"{os.path.relpath(own[-1].filename)}:{own[-1].lineno}" if own else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:120]}"


def one_call(front: str, seed: int) -> tuple[str, str]:
    """Make the call of ``seed``; return how it ended (accepted, refused, budget, foreign, slow) and where."""
    rng = np.random.default_rng([seed, *front.encode()])
    try:
        result = FRONTS[front](rng)
    except InternalError as error:
        return "foreign", _place(error)
    except BudgetError:
        return "budget", ""
    except NpuSimError:
        return "refused", ""
    except SlowCallError as error:
        return "slow", f"seed {seed}: {_place(error)}"
    except Exception as error:
        return "foreign", f"{_place(error)} (seed {seed})"
    is_status = isinstance(result, int) and not isinstance(result, bool)
    return ("refused" if is_status and result else "accepted"), ""


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def run_front(front: str, seed: int, calls: int, seconds: float) -> dict[str, Any]:
    """Make calls of one front in this process, which is spoilt for others afterwards."""
    os.environ[budget.ENVIRONMENT] = str(BUDGET_BYTES)
    signal.signal(signal.SIGVTALRM, _too_slow)
    warnings.simplefilter("error")
    for category, module in ((UndefinedOnHardware, ""), (Warning, "torch"), (DeprecationWarning, "")):
        warnings.filterwarnings("ignore", category=category, module=module)
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  # tensors are among the arguments if it is there
    ends: Counter[str] = Counter()
    places: dict[str, set[str]] = {"foreign": set(), "slow": set()}
    start, cpu, most = time.perf_counter(), time.process_time(), 0
    for number in range(calls):
        if number == min(WARM_CALLS, calls // 2):
            limit = _address_space_bytes() + ROOM_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        if number % TRACED_EVERY == 0:
            tracemalloc.start(1)
        signal.setitimer(signal.ITIMER_VIRTUAL, SLOW_SECONDS)
        end, place = one_call(front, seed * 10**6 + number)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if number % TRACED_EVERY == 0:
            most = max(most, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        ends[end] += 1
        if end in places and len(places[end]) < 20:
            places[end].add(place)
        if time.perf_counter() - start > seconds:
            break
    return {
        "calls": sum(ends.values()),
        **dict(sorted(ends.items())),
        "most_mib_of_a_call": round(most / 2**20, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        **{
            name: sorted(found)
            for name, found in (("foreign_at", places["foreign"]), ("slow_at", places["slow"]))
            if found
        },
    }


def main() -> int:
    """Run, print and record; exit code 1 if a front raised anything else or was slow."""
    parser = parser_of("tests.long.wild_calls", __doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="of each front, at most")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each front, at most")
    parser.add_argument("--jobs", type=int, default=1, help="fronts at a time")
    parser.add_argument("--fronts", nargs="*", default=list(FRONTS))
    arguments = parser.parse_args()
    found: dict[str, Any] = {"budget_mib": BUDGET_BYTES >> 20, "fronts": {}}
    limits = arguments.seed, arguments.calls, arguments.seconds
    # a process is spoilt for other fronts by its limits
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        runs = {front: pool.submit(run_front, front, *limits) for front in arguments.fronts}
        for front, run in runs.items():
            found["fronts"][front] = run.result()
            print(front, found["fronts"][front], file=sys.stderr, flush=True)
    limits_text = f"--calls {arguments.calls} --seconds {arguments.seconds:g} --seed {arguments.seed}"
    publish(f"{parser.prog} {limits_text}", found, arguments.json)
    return int(any(result.get("foreign") or result.get("slow") for result in found["fronts"].values()))


if __name__ == "__main__":
    sys.exit(main())

"""Kernels in C++ whose tiling structs are wrong: each ends by itself, in an error, or with findings.

``python -m tests.long.wild_tilings [--tilings 10000] [--seed 0] [--json FILE]``

The kernels of `examples/ascendc` that take a tiling, each with so many structs of which one to all fields are
something else, or which are longer or shorter. A call may end as it should, with findings, in a `KernelError`, or in
another error of the package; what else is raised, and a program that is still there behind a call, is lost. The memory
budget is `BUDGET_BYTES`: a kernel that never ends its rows meets it. Exit code 1 if one is lost.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim import ascendc, budget
from npu_sim.errors import BudgetError, NpuSimError, shown
from tests.long.recording import parser_of, publish

BUDGET_BYTES = 96 << 20
PATIENCE = 1.0
EXAMPLES = Path(__file__).parents[2] / "examples" / "ascendc"
_WORDS = (0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 48, 64, 255, 4096, 65535, 2**20, 2**31 - 1, 2**31, 2**32 - 16, 2**32 - 1)


def _matmul() -> tuple[list[Any], bytes]:
    a, b = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)
    return [a, b, np.empty((64, 64), np.float32), None], np.array([64, 64, 64, 32, 16, 32], np.uint32).tobytes()


def _matmul_relu() -> tuple[list[Any], bytes]:
    a, b = np.ones((64, 32), np.float16), np.ones((32, 64), np.float16)
    bias, c = np.zeros(64, np.float32), np.empty((64, 64), np.float32)
    return [a, b, bias, c, None], bytes(ascendc.matmul_tiling(64, 64, 32, bias=True, base=(32, 32, 16)))


CALLS: dict[str, Callable[[], tuple[list[Any], bytes]]] = {"matmul": _matmul, "matmul_relu": _matmul_relu}


def wild_tiling(rng: np.random.Generator, right: bytes) -> bytes:
    """Return a struct in which something is wrong; all its fields are words of 32 bits."""
    words = np.frombuffer(right, np.uint32).copy()
    kind = rng.integers(10)
    if kind == 0:
        words[:] = rng.integers(0, 2**32, len(words), np.uint32)
    else:
        for at in rng.choice(len(words), min(int(rng.integers(1, 4)), len(words)), replace=False).tolist():
            near = int(words[at]) + int(rng.integers(-17, 18))
            words[at] = np.uint32((near if rng.integers(2) else _WORDS[rng.integers(len(_WORDS))]) % 2**32)
    data = words.tobytes()
    if kind == 1:
        return data[: int(rng.integers(len(data)))]
    return data + bytes(int(rng.integers(1, 65))) if kind == 2 else data


def _programs() -> set[str]:
    """Return the processes that this one started and that are there, waited for or not."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may just have ended
            parent = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(process.name)
    return found


def try_one(kernel: ascendc.SourceKernel, given: list[Any], tiling: bytes) -> str:
    """Return how a call ended; "lost" begins what must not be."""
    before = _programs()
    try:
        run = kernel.check(*given, tiling=tiling, blocks=2, silence=PATIENCE)
        how = "stopped" if run.stopped_by is not None else "findings" if run.findings else "right"
    except BudgetError:
        how = "budget"
    except NpuSimError:
        how = "refused"
    except Exception as error:  # what is looked for
        return f"lost: {type(error).__name__} {shown(str(error))}"
    return "lost: a program that is still there" if _programs() - before else how


def wild_calls(name: str, count: int, seed: int) -> Iterator[tuple[bytes, str]]:
    """Yield tilings of a kernel and how it ended with them."""
    kernel, (_, right) = ascendc.compile(EXAMPLES / f"{name}.cpp"), CALLS[name]()
    rng = np.random.default_rng([seed, len(right)])
    for _ in range(count):
        tiling = wild_tiling(rng, right)
        yield tiling, try_one(kernel, CALLS[name]()[0], tiling)


def main() -> int:
    parser = parser_of("tests.long.wild_tilings", __doc__)
    parser.add_argument("--tilings", type=int, default=10_000, help="of all kernels together")
    arguments = parser.parse_args()
    ends: dict[str, Counter[str]] = {}
    lost: list[dict[str, str]] = []
    for name in CALLS:
        ends[name] = Counter()
        with budget.use_budget(BUDGET_BYTES):
            for tiling, how in wild_calls(name, arguments.tilings // len(CALLS), arguments.seed):
                ends[name][how.partition(":")[0]] += 1
                if how.startswith("lost"):
                    lost.append({"kernel": name, "tiling": tiling.hex(), "end": how})
    command = f"python -m tests.long.wild_tilings --tilings {arguments.tilings} --seed {arguments.seed}"
    publish(command, {"ends": {name: dict(count) for name, count in ends.items()}, "lost": lost}, arguments.json)
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main())

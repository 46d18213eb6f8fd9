"""Wild calls of what carries other people's kernels: stored programs, the machine under a debugger, kernels in C++."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim import ascendc
from npu_sim.debug import Machine
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import NpuSimError
from npu_sim.isa.codes import Space
from npu_sim.isa.row import ROW_BYTES
from npu_sim.report.program_file import MAGIC, program_bytes, program_of
from tests.cases.damaged_inputs import changed_document
from tests.cases.small_kernel import shifted
from tests.cases.wild_arguments import changed, near, wild
from tests.oracles.series import SERIES

_EXAMPLES = Path(__file__).parents[2] / "examples/ascendc"


@cache
def _stored() -> tuple[dict[str, Any], bytes]:
    """Return head and rows of a program file."""
    run = shifted.record(np.ones(64, np.float16), np.empty(64, np.float16), blocks=2)
    head, _, rows = program_bytes(run.launches, run.product)[len(MAGIC) :].partition(b"\n")
    return json.loads(head), rows


def program_file(rng: np.random.Generator) -> object:
    """Read a program file with damaged head or rows, and hold what is read to every engine that needs no tensors."""
    plain, good = _stored()
    head, rows = json.dumps(plain).encode(), bytearray(good)
    kind = int(rng.integers(5))
    if kind == 0:
        head = json.dumps(changed_document(plain, rng)).encode()
    if kind in (1, 4):
        damaged = bytearray(head)
        for at in rng.integers(0, len(damaged), 1 + int(rng.integers(3))).tolist():
            damaged[at] = int(rng.integers(256))
        head = bytes(damaged)
    if kind in (2, 4):
        for at in rng.integers(0, len(rows), int(rng.choice((1, 2, 8, 200)))).tolist():
            rows[at] = int(rng.integers(256))
    if kind == 3:
        start = int(rng.integers(len(rows) // ROW_BYTES)) * ROW_BYTES
        rows[start:] = rng.integers(0, 256, len(rows) - start).astype(np.uint8).tobytes()
    data = MAGIC + head + b"\n" + bytes(rows)
    stored = program_of(data[: len(data) - int(rng.choice((0, 0, 0, 0, 1, ROW_BYTES)))])
    run_hazards(stored.launches, stored.product)
    refused = []
    for launch in stored.launches:
        try:
            run_timeline(launch, stored.product)
        except NpuSimError as error:
            refused.append(error)
    machine = Machine(stored.launches, stored.product, {})
    machine.run()
    if refused:
        raise refused[0]
    return repr(stored)


def debugger(rng: np.random.Generator) -> object:
    """Step, watch and look at a machine with wild arguments."""
    given = {"x": np.ones(64, np.float16), "y": np.empty(64, np.float16)}
    options: dict[str, Any] = {"blocks": 2 if rng.random() < 0.9 else wild(rng), "product": str(rng.choice(SERIES))}
    arguments = changed(rng, given) if rng.random() < 0.05 else given
    machine = shifted.machine(*arguments.values(), **options)
    if rng.random() < 0.1:
        tensors = changed(rng, {"x": np.ones(64, np.float16)}, ("y", "z"))
        machine = Machine(machine.launches, machine.product, wild(rng) if rng.random() < 0.2 else tensors)
    spaces = tuple(Space)

    def some(good: Any) -> Any:
        return good if rng.random() < 0.6 else near(rng, good) if rng.random() < 0.7 else wild(rng)

    def view() -> Any:
        seen = machine.view(some(spaces[int(rng.integers(len(spaces)))]), some(0))
        looks: tuple[Callable[[], Any], ...] = (
            lambda: seen.nd(some("fp16"), some((4, 16)), some(0)),
            lambda: seen.fractals(some("fp16"), some(1), some(0)),
            lambda: seen.matrix(some("fp16"), some(16), some(16), some(0)), lambda: seen.byte_count,
        )  # fmt: skip
        return looks[int(rng.integers(len(looks)))]()

    steps: tuple[Callable[[], Any], ...] = (
        lambda: machine.step(some(1)),
        lambda: machine.run_to(**changed(rng, {"row": 3}, ("line", "tile", "core", "launch"))),
        machine.run, machine.unwatch, machine.dump, view, view, view,
        lambda: machine.watch(*(some(value) for value in ("UB", 0, 64)), core=some(0)),
        lambda: machine.tensor(some("y")), lambda: machine.extent(some("y")),
        lambda: machine.memory(some(0)), lambda: machine.operands(written=some(False)), lambda: str(machine.place),
        lambda: machine.row,
    )  # fmt: skip
    for _ in range(int(rng.integers(1, 8))):
        steps[int(rng.integers(len(steps)))]()
    return repr(machine.last)


@cache
def _compiled() -> ascendc.SourceKernel:
    return ascendc.compile(_EXAMPLES / "softmax.cpp")


def kernel_in_cpp(rng: np.random.Generator) -> object:
    """Call a kernel in C++ with wild arguments, blocks and options."""
    made = _compiled()
    given: dict[str, Any] = {
        "x": np.ones((4, 64), np.float32), "y": np.empty((4, 64), np.float32), "rows": 4, "width": 64,
    }  # fmt: skip
    options: dict[str, Any] = {"blocks": 2, "product": "910b"}
    if rng.random() < 0.6:
        given = changed(rng, given)
        if isinstance(given["rows"], int | np.integer) and not isinstance(given["width"], int):
            given["rows"] = int(given["rows"]) % 5000  # each a loop of a kernel whose rows may leave nothing
    else:
        options = changed(rng, options, ("tiling", "tiling_key", "outputs", "accumulation", "auto_sync", "silence"))
    ways = (made, made.check) if "accumulation" in options else (made, made.check, made.record)
    run = ways[int(rng.integers(len(ways)))](*given.values(), **options)
    return repr(run.findings)

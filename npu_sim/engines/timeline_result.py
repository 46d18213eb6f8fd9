"""What the timeline engine takes and gives: options, spans, the result of a launch, its time alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_sim.arguments import whole
from npu_sim.engines.timeline_jit import AT_BUSY, AT_STALL, CAUSES, PIPES
from npu_sim.engines.timeline_turns import Crossing
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import SPACES, Pipe
from npu_sim.isa.names import space_name
from npu_sim.products.cost import CostParams

CHUNK_ROWS = 4096
PIPE_NAMES = tuple(Pipe(pipe).name for pipe in range(PIPES))
PART_NAMES = (*PIPE_NAMES, "latency", "phase_barrier", "tiling", "memory", "kernel_fixed")
"""Parts of the critical path: occupancy of each pipe (S: issue), latency, barriers between phases, what the
tiling of a tuning record is worse than the one that stands for it, what L2 and memory
take longer than the slowest cores (`timeline_memory`), fixed cost."""
STALL_NAMES = (
    *(f"flag_{Pipe(pipe).name}" for pipe in range(PIPES)), "barrier", "issue", "queue_full", "cross_core", "end"
)  # fmt: skip
"""Causes of a stall: a flag from that pipe, PipeBarrier, the scalar unit has not issued yet, (scalar unit) the queue of
a pipe is full, (scalar unit) a flag of another core, nothing left to do until the end of the phase."""

_NOT_PLAIN = ("spans", "crossings", "stall_cycles")


class TimedProduct(Protocol):
    """What the engine needs of a `products.Product`."""

    @property
    def name(self) -> str:
        """SoC version."""

    @property
    def timing_clock_hz(self) -> int:
        """Clock of the cores."""

    @property
    def l2_bytes(self) -> int:
        """L2 capacity."""

    @property
    def cost(self) -> CostParams:
        """Timing parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOptions:
    """What the timing of a launch assumes beside the rows.

    Attributes
    ----------
    l2_hit_permille : int or None
        Part of the GM traffic that hits L2, in thousandths. None: all of it if what the launch touches fits in L2,
        otherwise L2 capacity over the bytes it touches: those from the first to the last byte in each tensor.
    inputs_in_l2 : bool
        Tensors that were initialised before the launch are in L2 when it begins, as far as they fit. By default they
        are where `Launch.inputs` says.
    mte1_contended : bool or None
        MTE2 keeps writing L1, so that MTE1 is slower by ``mte1_contention_permille``. None: decided for each phase by
        its first busy core: when MTE2 would be busy for more than half of its time.
    chunk_rows : int
        Rows emitted at a time (at least the launch's ``step_rows``); never changes the result.
    span_cores : tuple of int or None
        Cores whose spans are kept when spans are asked for; None: all.
    """

    l2_hit_permille: int | None = None
    inputs_in_l2: bool = False
    mte1_contended: bool | None = None
    chunk_rows: int = CHUNK_ROWS
    span_cores: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if whole("chunk_rows", self.chunk_rows) < 1:
            raise ShapeError(f"chunk_rows must be at least 1, not {self.chunk_rows}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoreSpans:
    """When each row of one core and phase ran.

    Attributes
    ----------
    core, phase : int
        Whose rows.
    phase_start_cycles : int
        Start of the phase in the launch, fixed cost excluded.
    rows : INSTR[n]
        The rows, as issued.
    start_cycles, end_cycles : int64[n]
        Occupancy of the pipe, from the start of the phase. A WaitFlag's span contains its waiting.
    busy_cycles, stall_cycles : mapping of str to int
        By pipe: cycles it is occupied, and cycles it waits between its rows.
    bytes_by_path : mapping of str to int
        As of `TimelineResult`, of this core and phase.
    """

    core: int
    phase: int
    phase_start_cycles: int
    rows: np.ndarray
    start_cycles: npt.NDArray[np.int64]
    end_cycles: npt.NDArray[np.int64]
    busy_cycles: Mapping[str, int]
    stall_cycles: Mapping[str, int]
    bytes_by_path: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineResult:
    """Cycles of a launch.

    Attributes
    ----------
    launch, product, parameter_set : str
        Names; the parameter set with its revision.
    clock_hz, core_count, row_count : int
        Clock of the cores, emulated cores, rows of all cores.
    l2_hit_permille : int
        Assumed part of GM traffic that hits L2.
    mte1_contended : tuple of bool
        By phase: whether MTE1 ran at the contended rates.
    total_cycles : int
        Core time of the launch: fixed cost, the slowest core of every phase, the barriers between phases, and what L2
        and memory take longer than these cores.
    phase_cycles : tuple of int
        Slowest core of each phase.
    core_cycles : tuple of int
        By core: its own time in all phases, without fixed cost and barriers.
    busy_cycles : mapping of str to int
        By pipe: occupancy in the slowest core of each phase, flags and barriers included.
    busy_cycles_all_cores : mapping of str to int
        By pipe: occupancy, sum over the cores.
    stall_cycles : mapping of str to mapping of str to int
        By pipe and cause (`STALL_NAMES`), in the slowest core of each phase. Busy and stall cycles of a pipe add up to
        the sum of ``phase_cycles``.
    critical_parts : mapping of str to int
        By `PART_NAMES`: what the critical path consists of; adds up to ``total_cycles``.
    bytes_by_path : mapping of str to int
        By path, for example ``"GM->L1"``, all cores.
    instruction_counts : mapping of str to int
        By opcode, all cores.
    launch_nanoseconds : int
        Task duration minus core time, not part of ``total_cycles``.
    spans : tuple of CoreSpans
        Empty unless asked for.
    crossings : tuple of Crossing
        Flags between cores whose spans are kept.
    """

    launch: str
    product: str
    parameter_set: str
    clock_hz: int
    core_count: int
    row_count: int
    l2_hit_permille: int
    mte1_contended: tuple[bool, ...]
    total_cycles: int
    phase_cycles: tuple[int, ...]
    core_cycles: tuple[int, ...]
    busy_cycles: Mapping[str, int]
    busy_cycles_all_cores: Mapping[str, int]
    stall_cycles: Mapping[str, Mapping[str, int]]
    critical_parts: Mapping[str, int]
    bytes_by_path: Mapping[str, int]
    instruction_counts: Mapping[str, int]
    launch_nanoseconds: int
    spans: tuple[CoreSpans, ...] = field(default=(), compare=False, repr=False)
    crossings: tuple[Crossing, ...] = field(default=(), compare=False, repr=False)

    def seconds(self, clock_hz: int | None = None) -> float:
        """Return the core time in seconds, at ``clock_hz`` or the clock of the product."""
        return self.total_cycles / (self.clock_hz if clock_hz is None else clock_hz)

    def task_seconds(self) -> float:
        """Return the task duration in seconds: core time and launch overhead."""
        return self.seconds() + self.launch_nanoseconds * 1e-9

    def to_json(self) -> str:
        """Return everything but the spans as JSON text."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _NOT_PLAIN
        }
        for name in ("busy_cycles", "busy_cycles_all_cores", "critical_parts", "bytes_by_path", "instruction_counts"):
            plain[name] = dict(plain[name])
        plain["stall_cycles"] = {pipe: dict(causes) for pipe, causes in self.stall_cycles.items()}
        plain["seconds"] = self.seconds()
        plain["task_seconds"] = self.task_seconds()
        return json.dumps(plain, indent=2, allow_nan=False)


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """The time of a launch alone, as `TimelineResult` has it.

    Attributes
    ----------
    total_cycles, clock_hz, launch_nanoseconds : int
        As of `TimelineResult`.
    """

    total_cycles: int
    clock_hz: int
    launch_nanoseconds: int

    def seconds(self) -> float:
        """Return the core time in seconds."""
        return self.total_cycles / self.clock_hz

    def task_seconds(self) -> float:
        """Return the task duration in seconds: core time and launch overhead."""
        return self.seconds() + self.launch_nanoseconds * 1e-9


def by_pipe(values: npt.NDArray[np.int64]) -> dict[str, int]:
    """Return numbers of pipes by their names."""
    return dict(zip(PIPE_NAMES, values[:PIPES].tolist(), strict=True))


def by_path(values: npt.NDArray[np.int64]) -> dict[str, int]:
    """Return the bytes of each path that has any."""
    paths = ((divmod(int(at), SPACES), int(values[at])) for at in np.flatnonzero(values[: SPACES * SPACES]))
    return {f"{space_name(source)}->{space_name(target)}": count for (source, target), count in paths}


def stalls_of(sums: npt.NDArray[np.int64], phases: int) -> dict[str, dict[str, int]]:
    """Return stall cycles by pipe and cause; what is neither busy nor waiting is the end of the phase."""
    table = sums[AT_STALL - AT_BUSY :][: 8 * CAUSES].reshape(8, CAUSES)
    stalls = {}
    for name, busy, causes in zip(PIPE_NAMES, sums[:PIPES].tolist(), table[:PIPES].tolist(), strict=True):
        causes.append(phases - busy - sum(causes))
        stalls[name] = dict(zip(STALL_NAMES, causes, strict=True))
    return stalls

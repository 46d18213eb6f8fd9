"""Where the time and the bytes of calls go: by kind of step, by gradient, by launch, by path, against the roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npu_sim.engines.timeline_result import TimelineResult
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.common.explain import launch_works
from ops.common.pipeline import Buffer, PlannedStep
from ops.studies.calls.planned import TimedCall
from ops.studies.network.times import StepTimes

MULTIPLY, LAYOUT, CAST, REST = "multiply", "layout", "cast", "rest"
KINDS = (MULTIPLY, LAYOUT, CAST, REST)
"""What a step is for: it multiplies or pools, converts layouts, converts types, or is something else (sums, fills)."""
_KIND_OF_NAME = {"TransData": LAYOUT, "Transpose": LAYOUT, "Contiguous": LAYOUT, "Cast": CAST}
_GRADIENT_OF = {"grad_input": "dx", "grad_weight": "dw", "grad_bias": "db"}
SHARED = "shared"
"""Stands for a step that more than one gradient needs."""


def kind_of(call: TimedCall, planned: PlannedStep) -> str:
    """Return which of `KINDS` a step is."""
    if planned in call.planned.kernels:
        return MULTIPLY
    return _KIND_OF_NAME.get(planned.step.name, REST)


def seconds_by_kind(times: StepTimes) -> dict[str, float]:
    """Return the task time of a step by what its launches are for; adds up to that of the step."""
    found = dict.fromkeys(KINDS, 0.0)
    for layer, call in times.calls:
        for planned, own in call.by_step:
            found[kind_of(call, planned)] += layer.layer.count * own.task_seconds
    return found


def seconds_by_result(call: TimedCall) -> dict[str, float]:
    """Return the task time of a call by the gradient it is for (dx, dw, db, `SHARED`), or "y" of a forward call."""
    results = _results_of(call.steps)
    found: dict[str, float] = {}
    for (_, own), names in zip(call.by_step, results, strict=True):
        name = names[0] if len(names) == 1 else SHARED
        found[name] = found.get(name, 0.0) + own.task_seconds
    return found


def _results_of(steps: Sequence[PlannedStep]) -> list[tuple[str, ...]]:
    """Return for each step which outputs of the call come of it."""
    behind: dict[Buffer, frozenset[str]] = {}
    found: list[tuple[str, ...]] = []
    for planned in reversed(steps):
        names: frozenset[str] = frozenset()
        for buffer in planned.step.writes:
            own = {_GRADIENT_OF.get(buffer.name.split(".")[0], "y")} if buffer.role == "output" else set()
            names |= behind.get(buffer, frozenset()) | own
        for buffer in planned.step.reads:
            behind[buffer] = behind.get(buffer, frozenset()) | names
        found.append(tuple(sorted(names)))
    return found[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLaunch:
    """Launches of a step that are the same.

    Attributes
    ----------
    layer : str
        Label of the layer.
    launch : Launch
        One of them.
    result : TimelineResult
        Its times, of one of them.
    works_on : str
        Which tensors.
    kind : str
        One of `KINDS`.
    count : int
        How many there are.
    """

    layer: str
    launch: Launch
    result: TimelineResult
    works_on: str
    kind: str
    count: int

    @property
    def task_seconds(self) -> float:
        """Of all of them."""
        return self.count * self.result.task_seconds()


def ranked_launches(times: StepTimes) -> list[RankedLaunch]:
    """Return the launches of a step, the one that takes most of it first."""
    found = [
        RankedLaunch(
            layer=layer.layer.label, launch=launch, result=result, works_on=works_on, kind=kind_of(call, planned),
            count=layer.layer.count,
        )
        for layer, call in times.calls
        for planned, own in call.by_step
        for launch, result, works_on in zip(
            planned.kernel.launches, own.launches, launch_works((planned,)), strict=True
        )
    ]  # fmt: skip
    return sorted(found, key=lambda one: -one.task_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathBytes:
    """What crosses a path.

    Attributes
    ----------
    path : str
        For example "GM->L1".
    moved : int
        Bytes.
    once : int
        To and from GM the bytes of the tensors that cross it, from L1 into the Cube's buffers those that came from GM
        into L1; else 0.
    """

    path: str
    moved: int
    once: int

    @property
    def reuse(self) -> float | None:
        """How often each byte crosses the path."""
        return self.moved / self.once if self.once else None


def paths_of(calls: Iterable[tuple[int, TimedCall]]) -> list[PathBytes]:
    """Return the bytes by path of calls, each with how often it is made; the most first."""
    moved: Counter[str] = Counter()
    tensors: Counter[str] = Counter()
    for count, call in calls:
        for planned, own in call.by_step:
            paths: Counter[str] = Counter()
            for launch in own.launches:
                paths.update(launch.bytes_by_path)
            for path, byte_count in paths.items():
                moved[path] += count * byte_count
                source, _, target = path.partition("->")
                sides = planned.step.reads if source == "GM" else planned.step.writes if target == "GM" else ()
                tensors[path] += count * sum(buffer.byte_count for buffer in sides)
    return [
        PathBytes(path=path, moved=byte_count, once=moved["GM->L1"] if path.startswith("L1->L0") else tensors[path])
        for path, byte_count in moved.most_common()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Where calls stand against what a product can do at most.

    Attributes
    ----------
    operations : int
        Of the definition, a multiply-add counted as two.
    gm_bytes : int
        Read from and written to global memory, through L2.
    l2_hits : float
        Part of them that hits L2.
    peak : float
        Operations per second of all Cubes, at the clock of the times.
    l2_bandwidth, hbm_bandwidth : float
        Bytes per second of all cores together.
    seconds : float
        Core time.
    """

    operations: int
    gm_bytes: int
    l2_hits: float
    peak: float
    l2_bandwidth: float
    hbm_bandwidth: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.gm_bytes if self.gm_bytes else 0.0

    @property
    def bandwidth(self) -> float:
        """Bytes per second at this part of hits."""
        return 1 / (self.l2_hits / self.l2_bandwidth + (1 - self.l2_hits) / self.hbm_bandwidth)

    @property
    def ridge(self) -> float:
        """Operations per byte from which on the Cube is the limit."""
        return self.peak / self.bandwidth

    @property
    def bound(self) -> str:
        """What is the limit, "compute" or "memory"."""
        return "compute" if self.intensity >= self.ridge else "memory"

    @property
    def roof(self) -> float:
        """Operations per second at most."""
        return min(self.peak, self.intensity * self.bandwidth)

    @property
    def reached(self) -> float:
        """Operations per second over `roof`."""
        return self.operations / self.seconds / self.roof if self.seconds and self.roof else 0.0


def roofline(calls: Sequence[tuple[int, TimedCall]], chip: Product) -> Roofline | None:
    """Return where calls, each with how often it is made, stand; None where nothing is multiplied."""
    operations = sum(2 * count * call.planned.macs for count, call in calls)
    peaks = {call.planned.compute_dtype for _, call in calls if call.planned.macs}
    if not operations or not peaks:
        return None
    launches = [(count, launch) for count, call in calls for launch in call.launches]
    gm_bytes = sum(count * gm_bytes_of(launch) for count, launch in launches)
    hits = sum(count * gm_bytes_of(launch) * launch.l2_hit_permille for count, launch in launches)
    per_cycle = min(chip.macs_per_cycle(dtype) for dtype in peaks) * chip.cube_core_count
    return Roofline(
        operations=operations,
        gm_bytes=gm_bytes,
        l2_hits=hits / (1000 * gm_bytes) if gm_bytes else 1.0,
        peak=2.0 * per_cycle * chip.timing_clock_hz,
        l2_bandwidth=chip.cost.l2_total_bytes_per_microsecond * 1e6,
        hbm_bandwidth=chip.cost.hbm_total_bytes_per_microsecond * 1e6,
        seconds=sum(count * launch.seconds() for count, launch in launches),
    )


def gm_bytes_of(launch: TimelineResult) -> int:
    """Return the bytes that a launch reads from and writes to global memory."""
    return sum(count for path, count in launch.bytes_by_path.items() if "GM" in path.split("->"))

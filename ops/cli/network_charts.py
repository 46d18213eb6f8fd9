"""Where the marks of a network's charts stand: bars of time, the step along its launches, pipes, roofline; pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npu_sim.engines.intervals import TimeInterval
from npu_sim.engines.timeline_result import CoreSpans
from npu_sim.isa.op import Op, Pipe
from ops.cli.bars import Bar, Bars
from ops.cli.precision_charts import Label
from ops.cli.timing_text import PIPES, refused_mark
from ops.studies.launch_times import seconds_words
from ops.studies.network.report import NetworkReport
from ops.studies.network.sums import KINDS, Roofline, kind_of, roofline, seconds_by_kind
from ops.studies.network.times import LayerTimes, StepTimes

KIND_WORDS = {
    "multiply": "kernels that multiply or pool",
    "layout": "layout conversions",
    "cast": "casts",
    "rest": "sums and fills",
}

# Pixels. Of bars: names left of them, the longest one, a line. Of the picture along time: left, width, a lane.
_NAME, _BAR, _LINE = 190, 640, 20
_PIECE = 20
_LEFT, _WIDTH, _LANE, _GAP = 130, 860, 26, 6
_FOOT = 24
# Of the roofline: left of the field, its extents, above and below it; how many layers have a label.
_FIELD_LEFT, _FIELD_WIDTH, _FIELD_TOP, _FIELD_HEIGHT, _FIELD_FOOT = 64, 720, 14, 330, 40
_LABELS = 6
_LEAST_LABEL = 46
_BINS = 430


@dataclass(frozen=True, slots=True, kw_only=True)
class BarLine:
    """A line of bars with its name and, behind it, its sum, which is expected between two places."""

    y: float
    name: str
    full: str
    bars: tuple[Bar, ...]
    low: float
    high: float
    sum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A lane of a picture along time: its name, and what is in it as one path or as bars."""

    y: float
    name: str
    bars: tuple[Bar, ...] = ()
    path: str = ""
    share: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Lanes along one axis of time."""

    width: int
    height: int
    lane: int
    left: int
    lanes: tuple[Lane, ...]
    ticks: tuple[Label, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A layer on a roofline: place, radius, number of its limit, words, and the label beside it."""

    x: float
    y: float
    radius: float
    number: int
    words: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineChart:
    """Operations per second over operations per byte, both logarithmic."""

    width: int
    height: int
    roofs: tuple[tuple[str, str, Label], ...]
    marks: tuple[Mark, ...]
    across: tuple[Label, ...]
    up: tuple[Label, ...]


def setting_bars(report: NetworkReport) -> tuple[Bars[BarLine], ...]:
    """Return the time of an image in each setting, by what it is spent on."""
    return _bars(
        [
            (
                f"{report.label(times)}{refused_mark(times.refused_count)}",
                seconds_by_kind(times),
                times.task,
                times.setting.batch,
            )
            for times in report.comparable
        ]
    )


def layer_bars(times: StepTimes) -> tuple[Bars[BarLine], ...]:
    """Return the time of each layer, equal ones together, by what it is spent on."""
    return _bars(
        [
            (f"{layer.layer.label}{refused_mark(layer.refused_count)}", _kinds_of(layer), layer.task, 1)
            for layer in times.layers
            if layer.calls
        ]
    )


def _kinds_of(layer: LayerTimes) -> dict[str, float]:
    found = dict.fromkeys(KINDS, 0.0)
    for call in layer.calls:
        for planned, own in call.by_step:
            found[kind_of(call, planned)] += layer.layer.count * own.task_seconds
    return found


def _bars(lines: Sequence[tuple[str, dict[str, float], TimeInterval, int]]) -> tuple[Bars[BarLine], ...]:
    """Return lines of (name, seconds by kind, bounds of their sum, divisor) in pieces for a page, on one scale."""
    most = max((task.high_seconds / divisor for _, _, task, divisor in lines), default=0.0) or 1.0
    made: list[BarLine] = []
    for number, (name, kinds, task, divisor) in enumerate(lines):
        total, x, bars = sum(kinds.values()) / divisor, float(_NAME), []
        low, high = (_NAME + _BAR * end / divisor / most for end in (task.low_seconds, task.high_seconds))
        for kind, whole in kinds.items():
            seconds = whole / divisor
            width = _BAR * seconds / most
            if seconds:
                words = f"{name}: {KIND_WORDS[kind]} {seconds_words(seconds)}, {seconds / total:.0%}"
                is_free = width >= _LEAST_LABEL and x + _LEAST_LABEL < low
                label = f"{seconds / total:.0%}" if is_free else ""
                bars.append(Bar(x=x, width=width, number=KINDS.index(kind), words=words, label=label))
            x += width
        shown = name if len(name) <= 27 else f"{name[:26]}…"
        y, words = number % _PIECE * _LINE, seconds_words(total)
        made.append(BarLine(y=y, name=shown, full=name, bars=tuple(bars), low=low, high=high, sum=words))
    pieces = [tuple(made[start : start + _PIECE]) for start in range(0, len(made), _PIECE)]
    return tuple(
        Bars(width=_NAME + _BAR + 80, height=len(piece) * _LINE, name_end=_NAME - 8, lines=piece) for piece in pieces
    )


def step_timeline(times: StepTimes) -> Timeline:
    """Return the launches of a step one after the other, in a lane by what they are for; equal layers stand together.

    Forward calls come in forward order, then backward calls in the opposite one.
    """
    forward = [(layer, call) for layer, call in times.calls if call.request is layer.layer.forward]
    backward = [(layer, call) for layer, call in times.calls if call.request is layer.layer.backward]
    total = times.every.task_seconds or 1.0
    bars: dict[str, list[Bar]] = {kind: [] for kind in KINDS}
    start = 0.0
    for layer, call in (*forward, *reversed(backward)):
        for planned, own in call.by_step:
            seconds = layer.layer.count * own.task_seconds
            kind = kind_of(call, planned)
            words = f"{layer.layer.label}: {planned.label}, {seconds_words(seconds)} from {seconds_words(start)} on"
            width = max(_WIDTH * seconds / total - 0.3, 0.3)
            bars[kind].append(Bar(x=_LEFT + _WIDTH * start / total, width=width, number=KINDS.index(kind), words=words))
            start += seconds
    shares = seconds_by_kind(times)
    lanes = [
        Lane(y=number * (_LANE + _GAP), name=kind, bars=tuple(bars[kind]), share=f"{shares[kind] / total:.0%}")
        for number, kind in enumerate(kind for kind in KINDS if bars[kind])
    ]
    return _timeline(lanes, total)


def pipe_timeline(spans: Sequence[CoreSpans], clock_hz: int) -> Timeline:
    """Return which part of the time each pipe of one core is occupied, along a launch; without the scalar unit.

    What the scalar unit does is to hand instructions out, which is no part of their spans.

    Parameters
    ----------
    spans : sequence of CoreSpans
        Of one core, a phase each.
    clock_hz : int
        Cycles per second.
    """
    cycles = max((one.phase_start_cycles + int(one.end_cycles.max(initial=0)) for one in spans), default=1) or 1
    edges = np.linspace(0, cycles, _BINS + 1)
    lanes: list[Lane] = []
    for name in PIPES[1:]:
        busy = np.zeros(_BINS)
        for one in spans:
            # the span of a wait is the time it waits
            own = (one.rows["pipe"] == int(Pipe[name])) & (one.rows["op"] != int(Op.WAIT_FLAG))
            if not own.any():
                continue
            begin, end = (one.phase_start_cycles + cycle[own] for cycle in (one.start_cycles, one.end_cycles))
            before = np.concatenate(([0], np.cumsum(end - begin)))
            last = np.searchsorted(begin, edges, side="right") - 1
            inside = np.where(last >= 0, np.clip(edges - begin[last], 0, (end - begin)[last]), 0)
            busy += np.diff(before[np.maximum(last, 0)] + inside)
        if busy.any():
            share = busy.sum() / cycles
            y = len(lanes) * (_LANE + _GAP)
            lanes.append(Lane(y=y, name=name, path=_area(busy / (cycles / _BINS), y + _LANE), share=f"{share:.0%}"))
    return _timeline(lanes, cycles / clock_hz)


def _area(shares: np.ndarray, base: float) -> str:
    step = _WIDTH / len(shares)
    parts = [f"M{_LEFT} {base:.0f}"]
    for number, share in enumerate(np.minimum(shares, 1.0)):
        parts.append(f"V{base - _LANE * share:.1f}H{_LEFT + (number + 1) * step:.1f}")
    return "".join([*parts, f"V{base:.0f}Z"])


def _timeline(lanes: Sequence[Lane], seconds: float) -> Timeline:
    bottom = len(lanes) * (_LANE + _GAP)
    ticks = tuple(
        Label(x=_LEFT + _WIDTH * tick / seconds, y=bottom + 12, text=seconds_words(tick)) for tick in _ticks(seconds)
    )
    return Timeline(
        width=_LEFT + _WIDTH + 50, height=bottom + _FOOT, lane=_LANE, left=_LEFT, lanes=tuple(lanes), ticks=ticks
    )


def _ticks(most: float) -> Iterator[float]:
    """Yield round numbers from 0 to ``most``, about six."""
    step = 10.0 ** math.floor(math.log10(most / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (factor * step) <= 7)
    yield from (number * step for number in range(int(most / step) + 1))


def roofline_chart(times: StepTimes) -> RooflineChart | None:
    """Return where the layers of a step stand; None where nothing is multiplied."""
    chip = times.setting.chip
    found = [(layer, roofline([(1, call) for call in layer.calls], chip)) for layer in times.layers]
    shown = [(layer, one) for layer, one in found if one is not None and one.seconds and one.intensity]
    if not shown:
        return None
    whole = shown[0][1]
    intensities = [one.intensity for _, one in shown]
    field = _Field(
        left=math.floor(math.log10(min(intensities)) - 0.1),
        right=math.log10(2 * max(whole.peak / whole.hbm_bandwidth, *intensities)),
        bottom=math.floor(math.log10(min(one.operations / one.seconds for _, one in shown)) - 0.1),
        top=math.log10(1.5 * whole.peak),
    )
    roofs = []
    for name, bandwidth in (("L2", whole.l2_bandwidth), ("HBM", whole.hbm_bandwidth)):
        begin = max(10.0**field.left, 10.0**field.bottom / bandwidth)
        points = [begin, whole.peak / bandwidth, 10.0**field.right]
        places = [field.place(one, min(whole.peak, one * bandwidth)) for one in points]
        path = "".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(places))
        # left of where the upper roof bends, and below the lower one, there is room
        x, y = (places[1][0] - 10, places[1][1] + 4) if name == "L2" else (places[2][0] - 4, places[1][1] + 28)
        roofs.append((name.lower(), path, Label(x=x, y=y, text=f"{name} {bandwidth / 1e12:.2g} TB/s")))
    x, y = field.place(10.0**field.right, whole.peak)
    roofs.append(("peak", "", Label(x=x - 4, y=y - 5, text=f"{whole.peak / 1e12:.0f} TFLOPS")))
    return RooflineChart(
        width=_FIELD_LEFT + _FIELD_WIDTH + 20,
        height=_FIELD_TOP + _FIELD_HEIGHT + _FIELD_FOOT,
        roofs=tuple(roofs),
        marks=_marks(times, shown, field),
        across=tuple(
            Label(x=field.place(10.0**exponent, 1)[0], y=_FIELD_TOP + _FIELD_HEIGHT + 14, text=f"{10.0**exponent:g}")
            for exponent in range(math.ceil(field.left), math.floor(field.right) + 1)
        ),
        up=tuple(
            Label(x=_FIELD_LEFT - 6, y=field.place(1, 10.0**exponent)[1] + 4, text=f"{10.0 ** (exponent - 12):g}")
            for exponent in range(math.ceil(field.bottom), math.floor(field.top) + 1)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """The logarithms that a roofline's field begins and ends with."""

    left: float
    right: float
    bottom: float
    top: float

    def place(self, intensity: float, speed: float) -> tuple[float, float]:
        """Return the pixel of a point, at the edge if it is outside."""
        across = (math.log10(intensity) - self.left) / (self.right - self.left)
        up = (math.log10(speed) - self.bottom) / (self.top - self.bottom)
        return (
            _FIELD_LEFT + _FIELD_WIDTH * min(max(across, 0.0), 1.0),
            _FIELD_TOP + _FIELD_HEIGHT * (1 - min(max(up, 0.0), 1.0)),
        )


def _marks(times: StepTimes, shown: Sequence[tuple[LayerTimes, Roofline]], field: _Field) -> tuple[Mark, ...]:
    """Return the layers, the one that takes most first; a label is left out where it would cover another one."""
    total = times.every.task_seconds
    marks: list[Mark] = []
    taken: list[tuple[float, float]] = []
    for layer, found in sorted(shown, key=lambda pair: -pair[0].task_seconds):
        speed = found.operations / found.seconds
        x, y = field.place(found.intensity, speed)
        share = layer.task_seconds / total
        radius = 3 + 30 * math.sqrt(share)
        words = (
            f"{layer.layer.label}: {found.intensity:.1f} operations per byte, {speed / 1e12:.1f} TFLOPS, "
            f"{found.reached:.0%} of the roof ({found.bound}-bound), {share:.1%} of the time"
        )
        at = (x + radius, y)
        is_free = all(abs(y - other) > 13 or abs(at[0] - place) > 90 for place, other in taken)
        label = layer.layer.label if len(taken) < _LABELS and is_free else ""
        taken += [at] if label else []
        number = 0 if found.bound == "compute" else 1
        marks.append(Mark(x=x, y=y, radius=radius, number=number, words=words, label=label))
    return tuple(marks)

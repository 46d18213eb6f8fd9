"""The tables of ``npu-sim perf`` for a network."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from npu_sim.engines.intervals import TimeInterval
from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli.output import console, print_prose
from ops.cli.shapes import refusal_lines
from ops.cli.timing_text import (
    BOUNDS,
    advice_words,
    bounds_words,
    calibration,
    critical_path,
    parameters,
    percent,
    refused_mark,
    waits,
    without_refused,
)
from ops.studies.launch_times import APPROXIMATE, ONE_AFTER_THE_OTHER, LaunchTimes, seconds_words
from ops.studies.network import sums
from ops.studies.network.report import NetworkReport, conclusion
from ops.studies.network.times import LayerTimes, StepTimes

_LAUNCHES_SHOWN = 10
_RESULTS = ("y", "dx", "dw", "db", sums.SHARED)

LAYER_HEADINGS = (
    "layer", "us each", "us", "low", "high", "share", *_RESULTS, "layouts", "of peak", "FLOP/B", "of roof", "L2 hits",
    "busiest",
)  # fmt: skip
LAUNCH_HEADINGS = ("launch", "works on", "layer", "us each", "us", "share", "busiest", "critical path")
PIPE_HEADINGS = ("pipe", "busy", "waits for")
PATH_HEADINGS = ("path", "MB", "per byte")


def print_network(report: NetworkReport, *, details: bool) -> None:
    """Print the report of a command: the conclusion, a comparison of settings, and of one setting the parts."""
    screen = console()
    print_prose(screen, " ".join(conclusion(report)), "bold")
    screen.print()
    if len(report.steps) > 1:
        headings, lines = comparison_lines(report)
        for table in fitted_tables(headings, lines, width=screen.width, left=("layer",), styles=_bold(lines, 4)):
            screen.print(table)
        screen.print()
    shows_parts = details or len(report.steps) == 1
    for times in report.steps if shows_parts else ():
        setting = times.setting
        name = setting.chip.name if setting.product == setting.chip.name else f"{setting.product} = {setting.chip.name}"
        words = f"{name}, cubeMathType {setting.cube_math_type}, batch {setting.batch}: {parameters(setting.chip)}"
        screen.print(Text(words, style="bold"))
        for table in _step_tables(times, screen.width):
            screen.print(table)
            screen.print()
        print_prose(screen, kinds_words(times))
        if words := roofline_words(times):
            print_prose(screen, words)
        screen.print()
    for times in report.steps:
        for line in advice_lines(report, times):
            print_prose(screen, line)
    if any(times.advice is not None for times in report.steps):
        screen.print()
    for times in report.steps:
        refused = [(layer.layer.label, refusal) for layer in times.layers for refusal in layer.refusals]
        for line in refusal_lines(refused):
            print_prose(screen, f"{report.label(times)}: {line}")
    for line in legend(report, shows_parts=shows_parts):
        print_prose(screen, line)


def _bold(lines: list[tuple[str, ...]], last: int) -> dict[int, str]:
    return {len(lines) - 1 - number: "bold" for number in range(last)}


def _step_tables(times: StepTimes, width: int) -> Iterator[Table]:
    if not times.call_count:
        return
    lines = layer_lines(times)
    shown = [i for i, _ in enumerate(LAYER_HEADINGS) if any(line[i] not in ("", "-") for line in lines)]
    yield from fitted_tables(
        [LAYER_HEADINGS[i] for i in shown],
        [[line[i] for i in shown] for line in lines],
        width=width,
        left=("layer", "busiest"),
        breaks=("of peak",),
        styles=_bold(lines, 1),
    )
    launches = launch_lines(times)
    yield from fitted_tables(
        LAUNCH_HEADINGS,
        launches[:_LAUNCHES_SHOWN],
        width=width,
        left=("launch", "works on", "layer", "busiest", "critical path"),
        title=f"launches that take most of the step, {min(len(launches), _LAUNCHES_SHOWN)} of {len(launches)}",
    )
    yield from fitted_tables(PIPE_HEADINGS, pipe_lines(times), width=width, left=("pipe", "waits for"))
    yield from fitted_tables(PATH_HEADINGS, path_lines(times), width=width, left=("path",))


def layer_lines(times: StepTimes) -> list[tuple[str, ...]]:
    """Return a line for each layer that runs, and one for the step, under `LAYER_HEADINGS`."""
    total = times.every.task_seconds
    lines = [_layer_line(times, layer, total) for layer in times.layers if layer.calls]
    every = _layer_cells(times, list(times.layers), total, times.task)
    return [*lines, (f"{counted(times.call_count, 'call')}{refused_mark(times.refused_count)}", "", *every)]


def _layer_line(times: StepTimes, layer: LayerTimes, total: float) -> tuple[str, ...]:
    name = f"{layer.layer.label}{refused_mark(layer.refused_count)}"
    return (name, _us(layer.one.task_seconds), *_layer_cells(times, [layer], total, layer.task))


def _layer_cells(times: StepTimes, layers: list[LayerTimes], total: float, task: TimeInterval) -> tuple[str, ...]:
    """Return the cells from "us" on, of all the layers together."""
    weighted = [(layer.layer.count, call) for layer in layers for call in layer.calls]
    results = dict.fromkeys(_RESULTS, 0.0)
    layouts = seconds = 0.0
    pipes: dict[str, float] = {}
    for count, call in weighted:
        for name, part in sums.seconds_by_result(call).items():
            results[name] += count * part
        layouts += sum(
            count * own.task_seconds for step, own in call.by_step if sums.kind_of(call, step) == sums.LAYOUT
        )
        seconds += count * call.task_seconds
        for pipe, share in call.pipe_shares.items():
            pipes[pipe] = pipes.get(pipe, 0.0) + count * share * call.total_cycles
    cycles = sum(count * call.total_cycles for count, call in weighted)
    peak = sum(count * call.cube_utilisation * call.total_cycles for count, call in weighted) / max(cycles, 1)
    place = sums.roofline(weighted, times.setting.chip)
    busiest = max(pipes, key=lambda pipe: pipes[pipe], default="")
    return (
        _us(seconds),
        *bounds_words(task),
        percent(seconds / total, 1),
        *(_us(part) if part else "" for part in results.values()),
        _us(layouts) if layouts else "",
        percent(peak, 1),
        f"{place.intensity:.1f}" if place else "-",
        percent(place.reached) if place else "-",
        percent(place.l2_hits) if place else "-",
        f"{busiest} {percent(pipes[busiest] / max(cycles, 1))}" if busiest else "",
    )


def launch_lines(times: StepTimes) -> list[tuple[str, ...]]:
    """Return a line for each launch of the step, the longest first, under `LAUNCH_HEADINGS`."""
    total = times.every.task_seconds
    lines: list[tuple[str, ...]] = []
    for one in sums.ranked_launches(times):
        busy = one.result.busy_cycles
        pipe = max(busy, key=lambda name, busy=busy: busy[name])  # type: ignore[misc]
        limit = f"{pipe} {percent(busy[pipe] / max(one.result.total_cycles, 1))}"
        lines.append(
            (
                one.result.launch,
                one.works_on,
                one.layer,
                _us(one.result.task_seconds()),
                _us(one.task_seconds),
                percent(one.task_seconds / total, 1),
                limit,
                critical_path(LaunchTimes(launches=(one.result,)).critical_shares),
            )
        )
    return lines


def pipe_lines(times: StepTimes) -> list[tuple[str, ...]]:
    """Return a line for each pipe that the step uses, under `PIPE_HEADINGS`."""
    every = times.every
    return [
        (pipe, percent(share), waits(every.wait_shares(pipe))) for pipe, share in every.pipe_shares.items() if share
    ]


def path_lines(times: StepTimes) -> list[tuple[str, ...]]:
    """Return a line for each path, under `PATH_HEADINGS`."""
    weighted = [(layer.layer.count, call) for layer, call in times.calls]
    return [
        (
            one.path.replace("NONE", "fill"),
            f"{one.moved / 1e6:.1f}",
            "-" if one.reuse is None else f"{one.reuse:.2f}",
        )
        for one in sums.paths_of(weighted)
    ]


def comparison_lines(report: NetworkReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and lines of all settings side by side: layers, the step, and an image of it."""
    labels = [report.label(times) for times in report.steps]
    lines: list[tuple[str, ...]] = []
    for number, layer in enumerate(report.step.layers):
        own = [times.layers[number] for times in report.steps]
        lines.append((layer.label, *map(_layer_cell, own)))
    whole = {id(times) for times in report.comparable}
    sums = [_sums(times) if id(times) in whole else ("-",) * len(_SUMS) for times in report.steps]
    lines += [(name, *own) for name, *own in zip(_SUMS, *sums, strict=True)]
    return ("layer", *labels), lines


def _layer_cell(layer: LayerTimes) -> str:
    words = refused_words(layer)
    return words or f"{_limited(layer.one, layer.task_seconds)}{refused_mark(layer.refused_count)}"


_SUMS = ("step", "low", "high", "image")


def _sums(times: StepTimes) -> tuple[str, ...]:
    seconds = times.every.task_seconds
    mark = refused_mark(times.refused_count)
    image = f"{_us(seconds / times.setting.batch)}{mark}"
    return (f"{_limited(times.every, seconds)}{mark}", *bounds_words(times.task), image)


def refused_words(layer: LayerTimes) -> str:
    """Return why a layer has no time; "" where it has one."""
    return "" if layer.calls else "refused" if layer.refusals else "-"


def _limited(times: LaunchTimes, seconds: float) -> str:
    """Return the pipe that is busy longest, and the time."""
    return f"{times.busiest_pipe} {_us(seconds)}" if times.launches else "-"


def kinds_words(times: StepTimes) -> str:
    """Return what the time of a step goes to."""
    kinds, total = sums.seconds_by_kind(times), times.every.task_seconds
    names = {sums.MULTIPLY: "kernels", sums.LAYOUT: "layout conversions", sums.CAST: "casts"}
    parts = (
        f"{names.get(kind, 'sums and fills')} {seconds_words(part)} ({percent(part / total)})"
        for kind, part in kinds.items()
        if part
    )
    critical = critical_path(times.every.critical_shares)
    return (
        f"Of {seconds_words(total)}{without_refused(times.refused_count)}: {', '.join(parts)}. Critical path of the "
        f"core time: {critical}."
        if total
        else ""
    )


def advice_lines(report: NetworkReport, times: StepTimes) -> list[str]:
    """Return what to change in a setting, a line each; [] where nobody asked."""
    if times.advice is None:
        return []
    where = report.label(times) if len(report.steps) > 1 else ""
    return advice_words(times.advice, where, times.refused_count)


def roofline_words(times: StepTimes) -> str:
    """Return where a step stands on the roofline; "" where nothing is multiplied."""
    found = sums.roofline([(layer.layer.count, call) for layer, call in times.calls], times.setting.chip)
    if found is None:
        return ""
    return (
        f"Roofline: {found.intensity:.1f} operations per byte of GM traffic ({percent(found.l2_hits)} of it hits L2), "
        f"where the Cube is the limit from {found.ridge:.0f} on: {found.bound}-bound, {percent(found.reached)} of "
        f"{found.roof / 1e12:.1f} TFLOPS."
    )


def legend(report: NetworkReport, *, shows_parts: bool) -> Iterator[str]:
    """Yield what the tables mean and what they leave out."""
    step = report.step
    yield f"{step.title}: {' '.join(step.source.split())}"
    yield (
        f"Timed are {report.timed}. us: with launch overhead; x4 behind a name: four layers with the same calls, all "
        f"together unless it says each; {BOUNDS} busiest: the pipe "
        "that is busy longest, its share of the core time."
    )
    if shows_parts:
        yield (
            "shared: what more than one gradient needs. of peak: multiply-adds over what all Cubes could do. FLOP/B: "
            "operations per byte of GM traffic; of roof: how much is reached of what Cube or memory allow. per byte: "
            "how often each byte of the tensors crosses, from L1 each that came."
        )
    if any(times.call_count and times.refused_count for times in report.steps):
        yield "refused, behind a name or a time: without so many calls that are refused; low and high are of the rest."
    if step.untimed:
        yield f"Not timed: {', '.join(f'{name} {count}' for name, count in step.untimed.items())}."
    yield f"{APPROXIMATE} {ONE_AFTER_THE_OTHER}"
    yield from dict.fromkeys(calibration(times.setting.chip) for times in report.steps)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"

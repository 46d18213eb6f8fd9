"""The report of a network as one HTML file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.report.record import counted
from ops.cli import network_charts as charts
from ops.cli.html_page import render_page
from ops.cli.network_table import (
    LAUNCH_HEADINGS,
    LAYER_HEADINGS,
    PATH_HEADINGS,
    PIPE_HEADINGS,
    advice_lines,
    kinds_words,
    launch_lines,
    layer_lines,
    legend,
    path_lines,
    pipe_lines,
    refused_words,
    roofline_words,
)
from ops.cli.output import merged_messages
from ops.cli.timing_text import critical_path, parameters, refused_mark, without_refused
from ops.studies.launch_times import seconds_words
from ops.studies.network.report import NetworkReport, conclusion
from ops.studies.network.sums import KINDS, RankedLaunch, ranked_launches
from ops.studies.network.times import StepTimes

_TEXT = frozenset({"layer", "launch", "works on", "path", "busiest", "critical path", "pipe", "waits for"})
_DRAWN_ROWS = 300_000
"""Instructions of a core of which a picture is drawn."""


def render(report: NetworkReport) -> bytes:
    """Return the page: every setting with its layers, launches, paths and pictures, and the JSON.

    Raises
    ------
    MissingExtraError
        jinja2 is not installed.
    """
    title, *rest = conclusion(report)
    headings, lines = _comparison(report)
    contents = {
        "title": title,
        "lead": rest,
        "report": report,
        "program": json.loads(report.to_json())["program"],
        "extent": f"{counted(report.step.layer_count, 'layer')} and {counted(len(report.steps), 'setting')}",
        "words": _TEXT | {heading for heading in headings if heading.endswith("busiest")},
        "kinds": [(KINDS.index(kind), words) for kind, words in charts.KIND_WORDS.items()],
        "comparison_headings": headings,
        "comparison": lines,
        "setting_bars": charts.setting_bars(report),
        "steps": [_setting(report, times) for times in report.steps if times.call_count],
        "launch_headings": LAUNCH_HEADINGS,
        "path_headings": PATH_HEADINGS,
        "pipe_headings": PIPE_HEADINGS,
        "refusals": [
            (report.label(times), refusal.status, message)
            for times in report.steps
            for refusal in dict.fromkeys(refusal for layer in times.layers for refusal in layer.refusals)
            for message in merged_messages([refusal.message])
        ],
        "untimed": ", ".join(f"{name} {count}" for name, count in report.step.untimed.items()),
        "legend": list(legend(report, shows_parts=True)),
    }
    return render_page("network", contents, json.loads(report.to_json()))


def _comparison(report: NetworkReport) -> tuple[list[str], list[list[str]]]:
    """Return microseconds by layer and setting, with the pipe that is busy longest in a column of its own."""
    headings = ["layer"]
    for times in report.steps:
        headings += [f"{report.label(times)} us", f"{report.label(times)} busiest"]
    lines = []
    for number, layer in enumerate(report.step.layers):
        line = [layer.label]
        for times in report.steps:
            own = times.layers[number]
            busiest = refused_words(own) or f"{own.one.busiest_pipe}{refused_mark(own.refused_count)}"
            line += [f"{own.task_seconds * 1e6:.1f}" if own.calls else "-", busiest]
        lines.append(line)
    return headings, lines


def _setting(report: NetworkReport, times: StepTimes) -> dict[str, Any]:
    """Return what the section of one setting shows."""
    setting = times.setting
    launches = ranked_launches(times)
    first = launches[0]
    *layers, total = layer_lines(times)
    used = [i for i, _ in enumerate(LAYER_HEADINGS) if any(line[i] for line in layers)]
    return {
        "label": report.label(times),
        "title": f"{setting.chip.name}, batch {setting.batch}, cubeMathType {setting.cube_math_type}",
        "parameters": parameters(setting.chip),
        "total": f"{seconds_words(times.every.task_seconds)}{without_refused(times.refused_count)}",
        "words": [kinds_words(times), roofline_words(times), *advice_lines(report, times)],
        "bars": charts.layer_bars(times),
        "timeline": charts.step_timeline(times),
        "roofline": charts.roofline_chart(times),
        "layer_headings": [LAYER_HEADINGS[i] for i in used],
        "layers": [[line[i] for i in used] for line in layers],
        "sum": f"All together, {total[0]}: "
        + ", ".join(f"{LAYER_HEADINGS[i]} {total[i]}" for i in used[1:] if total[i]),
        "launches": launch_lines(times),
        "paths": path_lines(times),
        "pipes": pipe_lines(times),
        "first": _drawn(first, times),
    }


def _drawn(first: RankedLaunch, times: StepTimes) -> dict[str, Any] | None:
    """Return the picture of the slowest core of a launch; None where it has too many instructions for one."""
    core = int(np.argmax(first.result.core_cycles))
    if first.result.row_count // first.result.core_count > _DRAWN_ROWS:
        return None
    timed = run_timeline(first.launch, times.setting.chip, spans=True, options=TimelineOptions(span_cores=(core,)))
    return {
        "title": f"{first.result.launch} of {first.layer} ({first.works_on}), core {core}",
        "critical": critical_path({name: cycles / timed.total_cycles for name, cycles in timed.critical_parts.items()}),
        "picture": charts.pipe_timeline([one for one in timed.spans if one.core == core], timed.clock_hz),
    }

"""``npu-sim perf --html``: structure, figures, pictures against the times they show, escaping, and a real browser."""

import itertools
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from test_cli_precision_html import EVIL, Page

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from ops.cli import network_charts as charts
from ops.cli.main import main
from ops.cli.network_html import render
from ops.studies.launch_times import seconds_words
from ops.studies.network.report import run_network
from ops.studies.network.step import step_of_table
from ops.studies.network.sums import KINDS, ranked_launches, roofline, seconds_by_kind
from tests.cases.browser import pages, saved_document


def small(batch, mode):
    step = step_of_table("resnet50", batch, mode, "fp16").select(["conv4_1c", "conv4_2c", "conv5_2b", "pool5"])
    return replace(step, untimed={"BatchNorm2d": 3})


@pytest.fixture(scope="module")
def report():
    return run_network(small, ["910b", "310p"], [0], [2], forward=True)


@pytest.fixture(scope="module")
def page(report):
    return Page(render(report).decode())


def test_page_is_one_file_that_loads_nothing(report, page):
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object"} == set()
    assert not any(name == "style" or name.startswith("on") for _, own in page.tags for name in own)
    assert all(table["caption"] for table in page.tables)
    assert "".join(page.texts["title"]).startswith("ResNet-50, batch 2, takes ")
    assert json.loads("".join(page.texts["report"])) == json.loads(report.to_json())
    assert any("Not timed: BatchNorm2d 3." in text for text in page.texts["warning"])


def test_tables_have_the_figures_of_the_report(report, page):
    headings, *lines = page.table(
        "Time of each layer in microseconds, equal layers together, and the pipe that is busy longest"
    )
    assert headings == ["layer", "910b us", "910b busiest", "310p us", "310p busiest"]
    for number, line in enumerate(lines):
        own = [times.layers[number] for times in report.steps]
        expected = [cell for one in own for cell in (f"{one.task_seconds * 1e6:.1f}", one.one.busiest_pipe)]
        assert line == [own[0].layer.label, *expected]
    for times in report.steps:
        label = report.label(times)
        headings, *lines = page.table(f"Layers of {label}")
        column = headings.index("us")
        assert [line[column] for line in lines] == [f"{layer.task_seconds * 1e6:.1f}" for layer in times.layers]
        _, *pipes = page.table(f"Pipes over the step, {label}: busy, and what they wait for")
        shares = times.every.pipe_shares
        assert [line[:2] for line in pipes] == [
            [pipe, f"{100 * share:.0f}%"] for pipe, share in shares.items() if share
        ]
        _, *launches = page.table(f"Launches of {label}, the one that takes most first")
        assert [line[0] for line in launches] == [one.result.launch for one in ranked_launches(times)]


def test_bars_are_as_long_as_the_times(report):
    times = report.steps[0]
    (bars,) = charts.layer_bars(times)
    longest = max(layer.task.high_seconds for layer in times.layers)
    for line, layer in zip(bars.lines, times.layers, strict=True):
        assert sum(bar.width for bar in line.bars) == pytest.approx(640 * layer.task_seconds / longest)
        assert line.sum == seconds_words(layer.task_seconds)
        ends = [640 * end / longest + 190 for end in (layer.task.low_seconds, layer.task.high_seconds)]
        assert [line.low, line.high] == pytest.approx(ends)
        x = [(bar.x, bar.x + bar.width) for bar in line.bars]
        assert all(end == pytest.approx(begin) for (_, end), (begin, _) in itertools.pairwise(x))
    (settings,) = charts.setting_bars(report)
    widths = [sum(bar.width for bar in line.bars) for line in settings.lines]
    times_of = [one.every.task_seconds for one in report.steps]
    assert widths[0] / widths[1] == pytest.approx(times_of[0] / times_of[1])


def test_many_layers_are_several_pieces_on_one_scale():
    report = run_network(lambda batch, mode: step_of_table("mobilenet_v2", batch, mode, "fp16"), ["910b"], [0], [1])
    pieces = charts.layer_bars(report.steps[0])
    assert [len(piece.lines) for piece in pieces] == [20, 12]
    assert all(piece.height == 20 * len(piece.lines) for piece in pieces)


def test_the_step_is_drawn_without_gaps_in_its_lanes(report):
    times = report.steps[0]
    picture = charts.step_timeline(times)
    drawn = sorted((bar.x, bar.x + bar.width) for lane in picture.lanes for bar in lane.bars)
    assert drawn[0][0] == picture.left
    assert drawn[-1][1] == pytest.approx(picture.left + 860, abs=0.5)
    assert all(begin - end < 0.7 for (_, end), (begin, _) in itertools.pairwise(drawn))
    shares = seconds_by_kind(times)
    total = times.every.task_seconds
    assert [lane.share for lane in picture.lanes] == [f"{shares[kind] / total:.0%}" for kind in KINDS if shares[kind]]


@pytest.mark.parametrize("number", [0, 1])
def test_pipes_are_drawn_as_busy_as_the_engine_says(report, number):
    times = report.steps[number]
    for first in ranked_launches(times)[:4]:
        core = int(np.argmax(first.result.core_cycles))
        timed = run_timeline(first.launch, times.setting.chip, spans=True, options=TimelineOptions(span_cores=(core,)))
        picture = charts.pipe_timeline(timed.spans, timed.clock_hz)
        busy = timed.busy_cycles
        cycles = sum(timed.phase_cycles)
        for lane in picture.lanes:
            heights = [(float(y), float(x)) for y, x in re.findall(r"V([-\d.]+)H([\d.]+)", lane.path)]
            assert len(heights) == 430
            drawn = sum(lane.y + picture.lane - y for y, _ in heights) / (430 * picture.lane)
            # heights have one decimal, and of the spans of flags and barriers not all is occupied
            assert drawn == pytest.approx(busy[lane.name] / cycles, abs=0.03)
        used = {name for name, one in busy.items() if one > 0.05 * cycles}
        assert {lane.name for lane in picture.lanes} >= used - {"S"}


def test_roofline_marks_stand_at_their_figures(report):
    times = report.steps[0]
    picture = charts.roofline_chart(times)
    places = {
        layer.layer.label: roofline([(1, call) for call in layer.calls], times.setting.chip) for layer in times.layers
    }
    ranked = sorted(times.layers, key=lambda layer: -layer.task_seconds)
    shown = [layer.layer.label for layer in ranked if places[layer.layer.label] is not None]
    assert [mark.words.split(":")[0] for mark in picture.marks] == shown
    assert len(shown) == 2

    def scale(labels, axis):
        """Return the powers of ten at two ticks, as a line through them."""
        first, second = labels[:2]
        ends = [(getattr(one, axis), np.log10(float(one.text))) for one in (first, second)]
        return np.polyfit([at for at, _ in ends], [power for _, power in ends], 1)

    across, up = scale(picture.across, "x"), scale(picture.up, "y")
    for mark, label in zip(picture.marks, shown, strict=True):
        found = places[label]
        assert 10 ** np.polyval(across, mark.x) == pytest.approx(found.intensity, rel=1e-6)
        # the texts of this axis stand 4 pixels below what they name
        teraflops = found.operations / found.seconds / 1e12
        assert 10 ** np.polyval(up, mark.y + 4) == pytest.approx(teraflops, rel=1e-6)
    assert picture.marks[0].radius > picture.marks[1].radius


def test_names_are_text_wherever_they_stand(report):
    steps = []
    for times in report.steps:
        first, *others = times.layers
        spoiled = replace(first, layer=replace(first.layer, names=(EVIL,)))
        step = replace(times.step, title=EVIL, untimed={EVIL: 1}, layers=(spoiled.layer, *times.step.layers[1:]))
        steps.append(replace(times, step=step, layers=(spoiled, *others)))
    text = render(replace(report, steps=tuple(steps))).decode()
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert [tag for tag, _ in page.tags].count("img") == 0
    assert "49" not in "".join(page.texts["h1"])
    assert any(EVIL in "".join(line) for table in page.tables for line in table["rows"])
    assert json.loads("".join(page.texts["report"]))["title"] == EVIL


def test_refused_calls_are_listed(report):
    refused = run_network(
        lambda batch, mode: step_of_table("r2plus1d_18", batch, mode, "fp16").select(["stem_s"]), ["310p"], [0], [1]
    )
    page = Page(render(refused).decode())
    assert "".join(page.texts["h1"]) == "Every call is refused."
    headings, line = page.table("Why calls are not timed")
    assert (headings, line[:2]) == (["setting", "status", "rule"], ["310p", "161002"])


def test_sums_without_refused_calls_say_so():
    """A2 has no forward pooling of float32 with cubeMathType 1; A1 does: its figures are whole."""
    found = run_network(
        lambda batch, mode: step_of_table("resnet50", batch, mode, "fp32").select(["pool5", "conv5_2b"]),
        ["910b", "910"], [1], [1], forward=True, advice=True,
    )  # fmt: skip
    partial, whole = found.steps
    assert (partial.refused_count, whole.refused_count) == (1, 0)
    page = Page(render(found).decode())
    heads = page.texts["h2"]
    total = seconds_words(partial.every.task_seconds)
    assert any(text.endswith(f"{total} without 1 refused call") for text in heads)
    assert not any(f"{seconds_words(whole.every.task_seconds)} without" in text for text in heads)
    _, *lines = page.table(
        "Time of each layer in microseconds, equal layers together, and the pipe that is busy longest"
    )
    (pool,) = (line for line in lines if line[0] == "pool5")
    assert pool[2].endswith(" (1 refused)")
    assert "refused" not in pool[4]
    own = page.table("Layers of 910b")
    assert [line[0] for line in own[1:]] == ["conv5_2b", "pool5 (1 refused)"]
    text = " ".join(render(found).decode().split())
    assert "All together, 3 calls (1 refused): us " in text
    assert "for 910b without 1 refused call:" in text
    assert "for 910 without" not in text


def test_command_writes_the_page_and_refuses_other_files(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ops.cli.perf_network.note_compilation", lambda: None)
    options = ["perf", "--model", "alexnet", "--batch", "1", "--layer", "conv5", "--product", "910b"]
    assert main([*options, "--html", "r.html", "--json", "r.json"]) == 0
    assert "written: r.json\nwritten: r.html\n" in capsys.readouterr().out
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert json.loads("".join(page.texts["report"])) == json.loads((tmp_path / "r.json").read_text())
    assert main([*options, "--html", "r.txt"]) == 2
    assert "HTML report must be a .html, .htm file, not r.txt" in capsys.readouterr().err
    assert main([*options, "--html", "t.html", "--json", "t.html"]) == 2
    assert "--html must be another file than t.html" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main([*options, "--html", "s.html"]) == 2
    assert "pip install jinja2" in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.json"]


def test_browser_sorts_saves_the_json_and_shows_both_schemes(report, tmp_path):
    """What no parser sees."""
    for page in pages(render(report), tmp_path):
        # no text of a picture is cut off or covers another one of its lane
        outside = page.evaluate(
            "[...document.querySelectorAll('svg text')].filter(t => {const b = t.getBBox(), s = t.ownerSVGElement;"
            "return b.x < 0 || b.x + b.width > s.viewBox.baseVal.width}).map(t => t.textContent)"
        )
        assert outside == []
        page.locator("#layers0 thead button", has_text=re.compile("^us each")).focus()
        for order in (1, -1):
            page.keyboard.press("Enter")
            figures = page.evaluate(
                "[...document.querySelectorAll('#layers0 tbody tr')].map(r => Number(r.cells[1].textContent))"
            )
            assert figures == sorted(figures, reverse=order < 0)
        assert saved_document(page) == ("npu-sim-network.json", json.loads(report.to_json()))

"""``npu-sim precision --html`` on the stand-in for the emulator: structure, figures, escaping, and a real browser."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from precision_backend import backend

from ops.cli.main import main
from ops.cli.precision_html import render
from ops.cli.precision_table import short
from ops.studies import precision as precision_study
from ops.studies.attribution_report import AttributionRow, ErrorPart, ErrorParts, Range, Spread
from ops.studies.capture import load_example
from ops.studies.precision import study
from ops.studies.precision_results import GOLDENS, StudyOptions
from tests.cases.browser import pages, saved_document

VOID = {"meta", "br", "rect", "path", "link", "img", "input", "hr"}
EVIL = "</script><script>alert('x')</script>&amp;\"><img src=x onerror=alert(1)>{{7*7}}"


class Page(HTMLParser):
    """What is on a page: tags, ids, links, tables as cells, texts by class; tags must nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.tables, self.texts, self.open = [], [], [], [], {}, []
        self.cells, self.levels = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.tags.append((tag, own))
        self.ids += [own["id"]] if "id" in own else []
        self.links += [own[name] for name in ("href", "src", "xlink:href") if name in own]
        if tag == "table":
            self.tables.append({"caption": "", "rows": []})
        elif tag == "tr":
            self.tables[-1]["rows"].append([])
        elif tag in ("td", "th"):
            self.tables[-1]["rows"][-1].append("")
        if tag not in VOID:
            self.open.append((tag, own))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if not self.open:
            return
        tag, own = self.open[-1]
        key = own.get("id") or own.get("class") or tag
        self.texts.setdefault(key, []).append(data)
        inside = [name for name, _ in self.open]
        if tag == "caption":
            self.tables[-1]["caption"] += data
        elif "td" in inside or "th" in inside:
            self.tables[-1]["rows"][-1][-1] += data

    def table(self, caption):
        (found,) = (one for one in self.tables if one["caption"] == caption)
        return found["rows"]


@pytest.fixture(scope="module")
def report():
    return study(load_example(), StudyOptions(), backend=backend())


@pytest.fixture(scope="module")
def page(report):
    return Page(render(report).decode())


def test_page_is_one_file_that_loads_nothing(page):
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object"} == set()
    (policy,) = (own["content"] for _, own in page.tags if own.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not any(name == "style" or name.startswith("on") for _, own in page.tags for name in own)
    assert "".join(page.texts["title"]).startswith("72 of 72 gradients pass")
    style = "".join(page.texts["style"])
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style


def test_page_holds_the_json_and_its_figures(report, page):
    document = json.loads("".join(page.texts["report"]))
    assert document == json.loads(report.to_json())
    wanted = set()
    for row in document["rows"]:
        for golden in GOLDENS:
            if row["result"]:
                error = row["result"][golden]["error"]
                figures = [short(error[name]) for name in ("relative_l2", "max_abs", "mean_rel", "max_rel")]
                wanted.add((f"{row['layer']} {row['gradient']}", row["result"]["compute_dtype"], golden, *figures))
    found = set()
    for layer in report.layers:
        headings, *lines = page.table(f"Errors of {layer.title}")
        assert headings[4:8] == ["rel L2", "max abs", "MERE", "max rel"]
        found |= {(layer.title, line[2], line[3].rstrip("*"), *line[4:8]) for line in lines if line[0] != "in the file"}
    assert found == wanted


def test_heat_maps_show_every_row_against_both_goldens(report, page):
    cells = [own for tag, own in page.tags if tag == "g"]
    assert len(cells) == 2 * len(report.rows)
    assert sum(own["class"] == "refused" for own in cells) == 2 * (len(report.rows) - len(report.computed))
    shown = [text.strip() for level in range(-1, 9) for text in page.texts.get(f"end t{level}", [])]
    for row in report.computed:
        for golden in GOLDENS:
            assert short(row.result.against(golden).error.relative_l2) in shown


def test_every_result_has_a_histogram_and_every_map_is_drawn(report, page):
    words = [own["aria-label"] for tag, own in page.tags if tag == "svg" and own.get("class") == "bars"]
    ulps = {row.result.rounded.ulp_histogram for row in report.computed}
    for one in ulps:
        count = one.exact + one.infinite + one.special + sum(one.counts)
        assert any(text.startswith(f"{one.exact} of {count} elements exact") for text in words)
    maps = [own for tag, own in page.tags if tag == "svg" and own.get("class") == "ulps"]
    assert len(maps) == sum(row.result.rounded.ulp_map is not None for row in report.computed) == 6


def test_tables_have_captions_and_scopes(page):
    assert all(table["caption"] for table in page.tables)
    assert all(own.get("scope") in ("col", "row") for tag, own in page.tags if tag == "th")


def spoiled(report):
    """The report with a name that means harm, a failure and a void verdict."""
    first, second, *others = report.layers
    rows = []
    for row in report.rows:
        if row.layer == first.name:
            row = replace(row, layer=EVIL)
            if row.result:
                bad = replace(row.result.rounded.verdicts[0], outcome="fail", label="MARE")
                judged = replace(row.result.rounded, outcome="fail", verdicts=(bad,))
                row = replace(row, result=replace(row.result, rounded=judged))
        elif row.layer == second.name and row.result:
            judged = replace(row.result.rounded, outcome="void", void_cause="zeros")
            row = replace(row, result=replace(row.result, rounded=judged))
        rows.append(row)
    return replace(report, layers=(replace(first, name=EVIL), second, *others), rows=tuple(rows), source=EVIL)


def test_names_are_text_wherever_they_stand(report):
    text = render(spoiled(report)).decode()
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert [tag for tag, _ in page.tags].count("img") == 0
    assert "49" not in "".join(page.texts["h1"] + page.texts["h3"])
    assert json.loads("".join(page.texts["report"]))["layers"][0]["name"] == EVIL
    assert any(EVIL in "".join(line) for table in page.tables for line in table["rows"])


def test_verdicts_are_marks_and_words_too(report):
    text = render(spoiled(report)).decode()
    page = Page(text)
    outcomes = [own["class"] for tag, own in page.tags if tag == "g"]
    assert (outcomes.count("fail"), outcomes.count("void")) == (12, 12)
    assert text.count("✕</text>") == text.count("○</text>") == 12
    assert "FAIL MARE" in text
    assert "void zeros" in text


def test_one_refused_row_and_many_rows_make_a_page(report):
    refused = next(row for row in report.rows if row.refusal)
    page = Page(render(replace(report, layers=report.layers[:1], rows=(refused,))).decode())
    assert "".join(page.texts["h1"]) == "Every call is refused"
    layers = [replace(report.layers[0], name=f"{'long.' * 20}{i}") for i in range(90)]
    own = [row for row in report.rows if row.layer == report.layers[0].name]
    rows = [replace(row, layer=layer.name, product=product) for layer in layers for product in "abc" for row in own]
    page = Page(render(replace(report, layers=tuple(layers), rows=tuple(rows))).decode())
    heats = [own for tag, own in page.tags if tag == "svg" and own.get("class") == "heat"]
    assert len(heats) == 2 * 3
    assert all(int(own["width"]) <= 1200 and int(own["height"]) <= 900 for own in heats)


def command(capsys, *arguments):
    code = main(["precision", *arguments])
    return code, *capsys.readouterr()


@pytest.fixture
def _stand_in(monkeypatch, tmp_path):
    monkeypatch.setattr(precision_study, "emulator", backend)
    monkeypatch.setattr("ops.cli.precision.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_stand_in")
def test_command_writes_the_page_beside_the_json(capsys, tmp_path):
    code, out, err = command(capsys, "--layer", "stem", "--no-picture", "--html", "r.html", "--json", "r.json")
    assert (code, err) == (0, "")
    assert "written: r.json\nwritten: r.html\n" in out
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert json.loads("".join(page.texts["report"])) == json.loads((tmp_path / "r.json").read_text())


@pytest.mark.usefixtures("_stand_in")
def test_command_refuses_other_files_and_a_missing_library(capsys, tmp_path, monkeypatch):
    code, _, err = command(capsys, "--html", "r.txt")
    assert code == 2
    assert "HTML report must be a .html, .htm file, not r.txt" in " ".join(err.split())
    monkeypatch.setitem(sys.modules, "jinja2", None)
    code, _, err = command(capsys, "--html", "r.html")
    assert code == 2
    assert "pip install jinja2" in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_browser_sorts_by_keyboard_saves_the_json_and_shows_both_schemes(report, tmp_path):
    """What no parser sees."""
    for page in pages(render(spoiled(report)), tmp_path):
        page.locator("#ranking thead button", has_text=re.compile("^original")).focus()
        for order in (1, -1):
            page.keyboard.press("Enter")
            column = page.evaluate(
                "[...document.querySelectorAll('#ranking tbody tr')].map(r => r.cells[4].textContent)"
            )
            figures = [float(text) for text in column]
            assert figures == sorted(figures, reverse=order < 0)
        assert saved_document(page)[1] == json.loads(spoiled(report).to_json())


def taken_apart(layer, product, shares, spread=None):
    parts = tuple(ErrorPart(cause=cause, share=share, relative_l2=None) for cause, share in shares.items())
    cross = 1 - sum(shares.values())
    error = ErrorParts(count=9, lost=0, lost_by={}, relative_l2=1e-3, parts=parts, cross=cross, crossing=None)
    return AttributionRow(
        layer=layer, gradient="dw", entry="aclnn", product=product, cube_math_type=0, compute_dtype="fp16",
        output_dtype="fp32", error=error, additions={}, spread=spread,
    )  # fmt: skip


def test_bars_are_as_long_as_the_shares_of_the_causes(report):
    same = Range(runs=4, distinct=2, min=1e-8, median=2e-8, max=3e-8)
    spread = Spread(core_orders=same, tilings=same, possible_tilings=None)
    rows = (
        taken_apart(EVIL, "910b", {"input": 0.75, "sums": 0.2, "output": 0.0}),
        taken_apart(EVIL, "910_93", {"input": 0.75, "sums": 0.2, "output": 0.0}),
        taken_apart("b", "910b", {"input": 0.9, "sums": 0.9, "output": 0.2}, spread),
    )
    text = render(replace(report, attribution=rows)).decode()
    page = Page(text)
    assert "causes" in page.ids
    own = text[text.index('<svg class="causes"') : text.index("Shares of the squared error")]
    drawn = [
        (own["class"], float(own["x"]), float(own["width"]))
        for tag, own in Page(own[: own.index("</svg>") + 6]).tags
        if tag == "rect"
    ]
    # rows with equal figures are one bar; what causes leave of it is the cross term, what they exceed it is not drawn
    full = 640.0
    assert drawn == [
        ("c1", 300.0, pytest.approx(0.75 * full)), ("c2", pytest.approx(300 + 0.75 * full), pytest.approx(0.2 * full)),
        ("c1", 300.0, pytest.approx(0.45 * full)), ("c2", pytest.approx(300 + 0.45 * full), pytest.approx(0.45 * full)),
        ("c4", pytest.approx(300 + 0.9 * full), pytest.approx(0.1 * full)),
    ]  # fmt: skip
    _, first, second = page.table("Shares of the squared error; lines with equal figures are one")
    assert first[:3] == [f"{EVIL} dw", "910b 910_93", "0"]
    assert first[5:9] == ["75.0%", "20.0%", "0", "5.0%"]
    assert second[5:9] == ["90.0%", "90.0%", "20.0%", "-100.0%"]
    _, orders, tilings = page.table("Spread over what the machine allows")
    assert (orders[3:], tilings[3]) == (["core orders", "4", "2", "1.0e-08", "2.0e-08", "3.0e-08"], "tilings")


def test_page_without_attribution_has_no_such_section(page):
    assert "causes" not in page.ids

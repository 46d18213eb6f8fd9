"""Tables on narrow screens: nothing is lost, nothing is cut, and nothing is wider than the screen."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from npu_sim.products import list_products
from npu_sim.report import tables
from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli import output, products
from ops.cli.main import main
from ops.cli.output import LEAST_WIDTH, PIPE_WIDTH, console
from ops.studies.precision_results import GOLDENS

SCRIPT = """
import numpy as np, ops
ops.avg_pool2d_backward(
    np.ones((2, 16, 8, 8), np.float32), np.ones((2, 16, 16, 16), np.float32), kernel_size=3, stride=2, padding=1
)
"""


def lines_of(table, width):
    screen = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    screen.print(table)
    return [line.ljust(width) for line in screen.file.getvalue().splitlines()]


def squeezed(texts):
    return "".join("".join(text.split()) for text in texts)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 150, 400])
def test_fitted_tables_show_every_cell_in_whole_words_within_the_width(width):
    rng = np.random.default_rng(width)
    for _ in range(20):
        count = int(rng.integers(2, 12))
        words = [["w" * int(n) for n in rng.integers(1, 12, size)] for size in rng.integers(1, 6, count * 6)]
        cells = [" ".join(word) for word in words]
        headings = [f"h{i}" for i in range(count)]
        rows = [cells[i * count : (i + 1) * count] for i in range(5)]
        left = [heading for heading in headings if rng.random() < 0.5]
        tables = fitted_tables(headings, rows, width=width, left=left)
        shown = set()
        for table in tables:
            lines = lines_of(table, width)
            assert max(map(len, lines)) == width
            at = 0
            for column in table.columns:
                number = headings.index(column.header)
                parts = [line[at : at + column.width] for line in lines]
                assert squeezed(parts) == squeezed([headings[number], *(row[number] for row in rows)])
                longest = max(len(word) for row in rows for word in row[number].split())
                keys = sum(one.width + 1 for one in table.columns) - column.width
                assert column.width >= longest or keys + longest > width
                at += column.width + 1
                shown.add(number)
        assert shown == set(range(count))


def test_fitted_tables_wide_screen_gives_one_table_of_natural_widths():
    (table,) = fitted_tables(("a", "words"), [("1", "one two three four five six seven")], width=100, left=("words",))
    assert [column.width for column in table.columns] == [1, 33]
    assert [column.justify for column in table.columns] == ["right", "left"]


def test_fitted_tables_stacked_ones_repeat_the_keys_and_begin_at_the_breaks():
    headings = ("step", "kernel", "a", "b", "c", "d")
    rows = [("1", "k" * 20, "x" * 10, "x" * 10, "x" * 10, "x" * 10)]
    tables = fitted_tables(headings, rows, width=60, left=("kernel",), breaks=("b",), title="T")
    shown = [[column.header for column in table.columns] for table in tables]
    assert shown == [["step", "kernel", "a"], ["step", "kernel", "b", "c", "d"]]
    assert [table.title for table in tables] == ["T", None]
    tables = fitted_tables(headings, rows, width=40, left=("step", "kernel"), names=3)
    shown = [[column.header for column in table.columns] for table in tables]
    assert shown == [["step", "kernel", "a", "b"], ["step", "kernel", "a", "c"], ["step", "kernel", "a", "d"]]


@pytest.mark.parametrize(
    ("columns", "is_terminal", "expected"),
    [
        *((None, False, 100), ("80", False, 80), ("132", False, 132), ("40", False, 80), ("wide", False, 100)),
        *(("80", True, 80), ("120", True, 120), ("60", True, 80)),
    ],
)
def test_console_is_as_wide_as_its_terminal_says(monkeypatch, columns, is_terminal, expected):
    assert (LEAST_WIDTH, PIPE_WIDTH) == (80, 100)
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    assert console().width == expected


def test_prose_wraps_between_words_on_a_terminal_and_in_a_pipe():
    text = "some words of a legend " * 8
    for is_terminal, count in ((True, 3), (False, 3)):
        screen = Console(file=io.StringIO(), width=80, force_terminal=is_terminal, color_system=None)
        output.print_prose(screen, text)
        lines = screen.file.getvalue().splitlines()
        assert len(lines) == count
        assert " ".join(line.strip() for line in lines) == text.strip()


def test_break_paths_breaks_behind_slashes_and_only_where_a_word_does_not_fit():
    text = "see docs/zh/guide/SIMD.md (short/one)\nnext one/two"
    assert tables.break_paths(text, 12) == "see docs/zh/\nguide/\nSIMD.md (short/one)\nnext one/two"
    assert tables.break_paths(text, 21) == text
    assert tables.break_paths("no_slash_in_it/or_here", 6) == "no_slash_in_it/\nor_here"


@pytest.mark.parametrize("columns", [80, 99, 100])
@pytest.mark.parametrize("arguments", [("--sources",), ("--assumptions",)])
def test_products_with_sources_cuts_no_name_of_a_fact(capsys, monkeypatch, columns, arguments):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["products", *arguments]) == 0
    text = capsys.readouterr().out
    assert max(map(cell_len, text.splitlines())) <= columns
    starts = [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]
    names = {entry.field for product in list_products() for entry in products.entries_of(product)}
    assert {start for start in starts if start.startswith("cost.")} <= names
    assert "cost.transpose_to_l0a_millibytes_per_cycle" in starts


def test_counts_of_one_are_singular(capsys):
    assert [counted(1, "launch"), counted(0, "finding"), counted(2, "n block"), counted(3, "launch")] == [
        "1 launch", "0 findings", "2 n blocks", "3 launches",
    ]  # fmt: skip
    assert main(["products", "--sources"]) == 0
    lines = [" ".join(line.split()[:2]) for line in capsys.readouterr().out.splitlines()]
    assert "1 cycle" in lines
    assert "1 cycles" not in lines


@pytest.mark.parametrize("arguments", [(), ("--sources",), ("--assumptions",), ("--product", "910b")])
def test_products_on_80_columns_lose_nothing(capsys, monkeypatch, arguments):
    texts = {}
    for width in (80, 300):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["products", *arguments]) == 0
        texts[width] = capsys.readouterr().out
    assert max(cell_len(line.rstrip()) for line in texts[80].splitlines()) <= 80
    narrow = squeezed(texts[80].splitlines())
    for word in {word for word in texts[300].split() if word.isascii() and len(word) <= 24}:
        assert word in narrow, word


def test_run_explain_on_80_columns_cuts_no_kernel_name(capsys, monkeypatch, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", str(path), "--explain"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    starts = [line for line in text.splitlines() if re.match(r" +\d Conv2DBackpropInput ", line)]
    assert len(starts) == 2, text
    assert "not CANN's tiling (our fallback)" in starts[1]


def test_precision_on_80_columns_has_the_figures_of_the_wide_table(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = {}
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["precision", "--details", "--product", "910b", "--product", "310p"]) == 0
        text = capsys.readouterr().out
        text = text[text.index("stem dw  x ") :]
        tables = [line for line in text.splitlines() if any(f" {golden}" in line for golden in GOLDENS)]
        figures = [line.replace("*", " ").split() for line in tables]
        goldens = [next(i for i, word in enumerate(words) if word in GOLDENS) for words in figures]
        found[width] = [words[at:] for words, at in zip(figures, goldens, strict=True) if len(words) > at + 6]
        assert max(len(line.rstrip()) for line in tables) <= width
        assert ("\n910b, mode 1 3, hf32\n  original " in text) == (width == 80)
    assert found[80] == found[100]
    assert len(found[80]) > 40


def test_precision_of_products_with_long_names_cuts_none(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    names = ("Ascend910PremiumA", "Ascend910ProB")
    options = [option for name in names for option in ("--product", name)]
    assert main(["precision", "--details", *options, "--layer", "stem", "--no-picture"]) == 0
    assert f"\n{' '.join(names)}, mode 1 2, fp16\n  original " in capsys.readouterr().out

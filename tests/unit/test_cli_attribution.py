"""``npu-sim precision --attribute`` on the emulator, and the text of rows whose figures are known."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from ops.cli.attribution_chart import attribution_bars
from ops.cli.attribution_table import print_attribution
from ops.cli.main import main
from ops.studies.attribution_parts import split_error
from ops.studies.attribution_report import AttributionRow, Range, Spread
from ops.studies.effort import Effort

RNG = np.random.default_rng(0)
GOLDEN, INPUT, OUTPUT = RNG.normal(size=(3, 4000))


@pytest.fixture(autouse=True)
def _folder(monkeypatch, tmp_path):
    monkeypatch.setattr("ops.cli.precision.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def row(product="910b", mode=0, spread=None, tilt=0.0, scale=1e-3, **changes):
    stages = [
        ("input", GOLDEN + scale * INPUT),
        ("output", GOLDEN + scale * INPUT + scale / 3 * (OUTPUT + tilt * INPUT)),
    ]
    fields = dict(
        layer="a", gradient="dw", entry="aclnn", product=product, cube_math_type=mode, compute_dtype="fp16",
        output_dtype="fp16", error=split_error(GOLDEN, stages), additions={"exact16-rne": 2e-8, "serial": 5e-8},
        spread=spread,
    )  # fmt: skip
    return AttributionRow(**(fields | changes))


def text_of(*rows, width=100):
    stream = io.StringIO()
    print_attribution(rows, Console(file=stream, width=width, highlight=False, markup=False))
    return stream.getvalue()


def test_table_has_shares_that_add_up_and_one_line_for_equal_figures():
    text = text_of(row(), row(mode=1), row("910_93"), row("910_93", 1), row("310p", mode=1, scale=2e-3))
    lines = [line.split() for line in text.splitlines() if line.startswith("a dw")]
    assert [line[2:-4] for line in lines] == [["910b", "910_93", "0", "1", "fp16"], ["310p", "1", "fp16"]]
    assert "lost" not in text.split("error:")[0]
    shares = [float(cell.rstrip("%")) for cell in lines[0][-3:]]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    flat = " ".join(text.split())
    assert "the largest part of the error of 5 gradients is rounding the inputs in 5 (fp16)" in flat
    assert "cross terms are at most 5% of the squared error in 5 of 5" in flat
    assert "2.0e-08 exact16-rne, 5.0e-08 serial" in flat
    assert "above 5% by chance" not in flat


def test_cross_terms_are_explained():
    text = " ".join(text_of(row(tilt=0.5), row(product="910")).split())
    assert "a dw on 910b mode 0: input and output are correlated, cosine 0.4" in text
    assert "at most 5% of the squared error in 1 of 2" in text
    short = GOLDEN[:2]
    few = split_error(short, [("input", short + 1), ("output", short + np.array([2.0, 1.5]))])
    flat = " ".join(text_of(row(error=few)).split())
    assert "above 5% by chance, within 3 standard deviations of random signs: 1 of 1 gradient, of 2 elements" in flat


def test_spread_has_a_table_of_its_own():
    some, none = (
        Range(runs=4, distinct=3, min=1e-8, median=2e-8, max=3e-8),
        Range(runs=0, distinct=0, min=None, median=None, max=None),
    )
    text = text_of(row(spread=Spread(core_orders=none, tilings=some, possible_tilings=12)))
    assert "tilings 4 of 12 3 1.0e-08 2.0e-08 3.0e-08" in " ".join(text.split())
    assert "core orders 0 0 - - -" in " ".join(text.split())
    assert "up to as many as --spread says, of tilings besides those of the call" in " ".join(text.split())


def test_lost_elements_have_a_column():
    lost = split_error(GOLDEN, [("input", np.where(GOLDEN > 0, GOLDEN + INPUT, np.inf))])
    text = text_of(row(error=lost))
    assert text.split("\n\n")[1].splitlines()[1].split()[-2:] == [str(int((GOLDEN <= 0).sum())), "input"]
    assert "is rounding the inputs (NaN/Inf) in 1 (fp16)" in " ".join(text.split())
    special = np.where(GOLDEN > 1, np.inf, GOLDEN)
    replaced = split_error(special, [("input", special + 1e-3 * INPUT), ("input specials", GOLDEN + 1e-3 * INPUT)])
    text = " ".join(text_of(row(error=replaced)).split())
    assert "is replacing NaN/Inf of the inputs by numbers in 1 (fp16)" in text
    assert f" {(GOLDEN > 1).sum()} input specials " in text
    both = split_error(special, [("input", special + 1e-3 * INPUT)])
    assert f" {(GOLDEN > 1).sum()} golden\n" in text_of(row(error=both))
    (bars,) = attribution_bars([row(error=both)])
    assert bars.lines[0].error.endswith(f", {(GOLDEN > 1).sum()} lost")


def test_gradients_without_a_figure_are_said_apart():
    exact = split_error(GOLDEN, [("input", GOLDEN)])
    empty = split_error(GOLDEN * np.nan, [("input", GOLDEN * np.nan)])
    text = " ".join(text_of(row(error=exact), row(error=empty)).split())
    assert "error of 2 gradients is none; 1 without error; 1 without a finite element" in text


def test_nothing_computed_prints_nothing():
    assert text_of() == ""


def test_precision_attributes_the_bundled_step(capsys):
    arguments = ["precision", "--product", "910b", "--cube-math-type", "2", "--layer", "down", "--no-picture"]
    assert main([*arguments, "--attribute", "--spread", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "is rounding the inputs in 1 (fp16)" in out
    assert "core orders 2 2" in out
    assert main([*arguments, "--attribute", "--json", "-"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["attribution"]
    assert (found["layer"], found["error"]["lost"], found["spread"]) == ("down", 0, None)
    assert sum(part["share"] for part in found["error"]["parts"]) + found["error"]["cross"] == pytest.approx(1)
    assert main([*arguments, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["attribution"] is None


def test_spread_without_attribution_is_refused(capsys):
    assert main(["precision", "--spread", "3"]) == 2
    assert "--spread must be given together with --attribute" in capsys.readouterr().err


def test_effort_of_runs_one_after_the_other():
    once = Effort(instructions=10, is_bound=True, seconds=1.5, bytes=7)
    assert once.times(3) == Effort(instructions=30, is_bound=True, seconds=4.5, bytes=7)

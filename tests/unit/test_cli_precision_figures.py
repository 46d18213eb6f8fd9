"""Charts as pictures of their own: which there are, that both forms hold the figures, and where they may go."""

from __future__ import annotations

import io
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from npu_sim.report.ulps import UlpHistogram
from ops.cli.main import main
from ops.cli.precision_charts import MARK_LABELS, histogram
from ops.cli.precision_table import short
from ops.studies.attribution import attribute
from ops.studies.default_shapes import default_shapes
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def pictures():
    from ops.cli.precision_figures import figures

    capture = default_shapes("outliers")
    options = StudyOptions(products=("910b", "310p"), layers=("conv1d fp32",), gradients=("dw", "y"))
    report = study(capture, options)
    return report, figures(replace(report, attribution=attribute(capture, options)))


def texts(content):
    root = ElementTree.fromstring(content)
    return {"".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")}


def test_every_chart_is_there_in_both_forms(pictures):
    report, found = pictures
    names = {name.rpartition(".")[0] for name in found}
    assert {f"{name}{suffix}" for name in names for suffix in (".png", ".svg")} == set(found)
    assert {"heat-original", "heat-rounded", "causes", "001-histograms", "002-histograms"} <= names
    maps = sum(row.result.rounded.ulp_map is not None for row in report.computed)
    assert sum("ulp-map" in name for name in names) <= maps


def test_pictures_show_the_figures_of_the_report(pictures):
    report, found = pictures
    words = texts(found["heat-original.svg"])
    for row in report.computed:
        assert short(row.result.original.error.relative_l2) in words
    assert {"910b", "310p", "conv1d fp32 dw", "conv1d fp32 y", *MARK_LABELS} <= words
    assert any(text.startswith("input ") for text in texts(found["causes.svg"]))
    assert "0" in texts(found["001-histograms.svg"])


@pytest.mark.parametrize("bins", [1, 8, 64])
@pytest.mark.parametrize("special", [0, 40])
def test_nan_and_inf_of_the_golden_have_a_bar_of_their_own(bins, special):
    found = UlpHistogram(exact=5, lowest_exponent=-16, counts=(3,) * bins, infinite=7, special=special)
    drawn = histogram(found, -16, bins - 17)
    assert bool(drawn.special) == (special > 0) == ("NaN/Inf" in [label.text for label in drawn.across])
    assert drawn.words.endswith("; 40 NaN or Inf in both" if special else "; 7 differ in NaN or Inf")
    if special:
        (x, wide), (last, other) = (
            (float(path[1:].split(" ")[0]), float(path.split("h")[1].split("v")[0]))
            for path in (drawn.special, drawn.infinite)
        )
        assert last + other < x
        assert x + wide < drawn.width
        (label,) = (one.x for one in drawn.across if one.text == "NaN/Inf")
        assert x < label < x + wide + 1


def test_png_is_as_large_as_the_svg_and_not_empty(pictures):
    from matplotlib.image import imread

    _, found = pictures
    for name in ("heat-original", "causes", "001-histograms"):
        image = imread(io.BytesIO(found[f"{name}.png"]))
        box = ElementTree.fromstring(found[f"{name}.svg"]).get("viewBox").split()
        assert image.shape[1] / image.shape[0] == pytest.approx(float(box[2]) / float(box[3]), rel=0.02)
        assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 5


def test_command_writes_a_new_folder(tmp_path, capsys):
    folder = tmp_path / "charts"
    command = ["precision", "--default-shapes", "--layer", "global pooling fp16", "--product", "910b", "--no-picture"]
    assert main([*command, "--no-progress", "--charts", str(folder)]) == 0
    assert f"written: {folder}, " in capsys.readouterr().out
    assert (folder / "heat-original.svg").read_bytes().startswith(b"<?xml")
    assert main([*command, "--charts", str(folder)]) == 2
    assert "--charts must be a folder that does not exist yet" in " ".join(capsys.readouterr().err.split())

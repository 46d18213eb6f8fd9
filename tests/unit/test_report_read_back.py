"""A precision report read back from its JSON form: the same records, and the same pages and tables made of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from npu_sim.errors import InputFileError
from ops.cli.precision_html import render
from ops.studies.attribution import attribute
from ops.studies.default_shapes import default_shapes
from ops.studies.precision import study
from ops.studies.precision_report import SCHEMA_VERSION, PrecisionReport
from ops.studies.precision_results import StudyOptions
from ops.studies.precision_rows import csv_bytes


@pytest.fixture(scope="module")
def report():
    capture = default_shapes("special")
    options = StudyOptions(
        products=("910b", "310p"), layers=("conv1d fp16", "pooling fp32"), cube_math_types=(0, 2),
        standards=("mixed-tolerance", "msprobe-ulp"),
    )  # fmt: skip
    made = study(capture, options)
    return replace(made, attribution=attribute(capture, options, spread=1))


def test_report_is_read_back_to_the_last_figure(report):
    text = report.to_json()
    back = PrecisionReport.from_json(text)
    assert back.to_json() == text
    assert back.options == report.options
    assert [row.title for row in back.computed] == [row.title for row in report.computed]
    assert any(row.error.lost_by for row in back.attribution)
    assert (back.passed, csv_bytes(back)) == (report.passed, csv_bytes(report))
    pytest.importorskip("jinja2")
    assert render(back) == render(report)


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain | {"schema_version": SCHEMA_VERSION - 1},
        lambda plain: plain | {"rows": 3},
        lambda plain: plain | {"more": 1},
        lambda plain: plain | {"options": plain["options"] | {"golden": "third"}},
        lambda plain: plain | {"rows": [plain["rows"][0] | {"gradient": "dz"}]},
        lambda plain: {key: value for key, value in plain.items() if key != "layers"},
        lambda plain: [plain],
    ],
)
def test_other_documents_are_refused_on_one_line(report, change):
    rule = f"^A precision report must be JSON of schema_version {SCHEMA_VERSION}, not "
    with pytest.raises(InputFileError, match=rule) as caught:
        PrecisionReport.from_json(json.dumps(change(json.loads(report.to_json()))))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputFileError):
        PrecisionReport.from_json("{")

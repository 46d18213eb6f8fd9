"""Results of a study: kept and found again, computed by several processes, written as tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from precision_backend import backend, convolution_backward
from test_precision_study import capture

from npu_sim.errors import InputFileError, MissingExtraError
from npu_sim.report.from_plain import from_plain
from npu_sim.report.record import to_plain
from ops.cli.main import main
from ops.studies import results_file
from ops.studies.generate import regenerated
from ops.studies.kinds import Backend
from ops.studies.layers import Capture
from ops.studies.precision import study
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import PrecisionRow, StudyOptionError, StudyOptions
from ops.studies.precision_rows import csv_bytes, flat_rows, markdown_bytes, parquet_bytes
from ops.studies.results_file import Results


class Counting:
    """A stand-in for the emulator that notes what it is asked for."""

    def __init__(self, fails_at=None):
        self.calls, self._fails_at = [], fails_at

    def backend(self):
        return Backend(
            convolution_backward=self._run, golden=backend().golden, get_product=backend().get_product
        )  # fmt: skip

    def _run(self, *arguments, **options):
        self.calls.append((options["product"], options["cube_math_type"], options["groups"]))
        if len(self.calls) == self._fails_at:
            raise KeyboardInterrupt
        return convolution_backward(*arguments, **options)


def run(tensors, path, fails_at=None, **options):
    """Return the report and the calls that were made."""
    counting = Counting(fails_at)
    report = study(tensors, StudyOptions(**options), backend=counting.backend(), results=Results(path))
    return report, counting.calls


def test_second_study_computes_nothing_and_reports_the_same(tmp_path):
    path = tmp_path / "r.json"
    tensors = capture(grad_weight=np.zeros((6, 4, 3, 3), np.float32))
    tensors = dataclasses.replace(tensors, layers=tensors.layers[:1])
    first, calls = run(tensors, path)
    assert len(calls) == len(first.rows) == 16
    again, calls = run(tensors, path)
    assert calls == []
    assert again == first
    assert again.to_json() == first.to_json()
    # what only chooses results changes none
    one, calls = run(tensors, path, products=("910b",), cube_math_types=(3, 0), golden="original", threads=1)
    assert calls == []
    assert [row.cube_math_type for row in one.rows] == [3, 0]


CHANGES = [
    ({"accumulation": "serial"}, None),
    ({"dtype": "fp16"}, None),
    ({"standards": ("single-benchmark",)}, None),
    ({}, "x"),
    ({}, "stride"),
]


@pytest.mark.parametrize(("options", "field"), CHANGES)
def test_what_changes_a_figure_is_computed_anew(tmp_path, options, field):
    path, base = tmp_path / "r.json", {"products": ("910b",), "cube_math_types": (0,)}
    tensors = capture()
    run(tensors, path, **base)
    first, second = tensors.layers
    if field == "x":
        x = first.x.copy()
        x.ravel()[0] = np.nextafter(x.ravel()[0], np.float32(9))
        first = dataclasses.replace(first, x=x)
    elif field == "stride":
        first = dataclasses.replace(first, stride=(2, 2), dy=first.dy[:, :, :3, :3])
    _, calls = run(dataclasses.replace(tensors, layers=(first, second)), path, **base, **options)
    assert len(calls) == (1 if field else 2)


def test_new_sources_and_new_facts_of_a_product_are_computed_anew(tmp_path, monkeypatch):
    path, base = tmp_path / "r.json", {"products": ("910b",), "cube_math_types": (1,)}
    run(capture(), path, **base)
    product = tmp_path / "my.toml"
    product.write_text('base = "910b"\n[facts]\nhf32_mantissa_bits = 10\n')
    _, calls = run(capture(), path, products=(str(product),), cube_math_types=(1,))
    assert len(calls) == 2
    product.write_text('base = "910b"\n[facts]\nhf32_mantissa_bits = 9\n')
    _, calls = run(capture(), path, products=(str(product),), cube_math_types=(1,))
    assert len(calls) == 2
    monkeypatch.setattr(results_file, "_sources", lambda: "other")
    _, calls = run(capture(), path, **base)
    assert len(calls) == 2


def test_interrupted_study_goes_on_behind_the_last_gradient(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(KeyboardInterrupt):
        run(capture(), path, fails_at=20)
    report, calls = run(capture(), path)
    # the first layer's 16 calls are known, the second one's four of the interrupted run are not
    assert {groups for _, _, groups in calls} == {2}
    assert len(calls) == 16
    assert report == run(capture(), tmp_path / "other.json")[0]
    assert [path.name for path in tmp_path.iterdir()].count("r.json") == 1


def test_drawn_tensors_are_known_by_their_seed(tmp_path):
    path, options = tmp_path / "r.json", {"products": ("910b",), "cube_math_types": (0,)}
    assert len(run(regenerated(capture(), "normal", 1), path, **options)[1]) == 2
    assert len(run(regenerated(capture(), "normal", 1), path, **options)[1]) == 0
    assert len(run(regenerated(capture(), "normal", 2), path, **options)[1]) == 2
    assert len(run(regenerated(capture(), "uniform", 1), path, **options)[1]) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "other"}', "[" * 100_000, '{"format": "npu-sim precision results 2"}',
             '{"format": "npu-sim precision results 2", "rows": {"a": {}}, "layers": {}}'],
)  # fmt: skip
def test_file_that_holds_something_else_is_refused_and_stays(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match="The file must hold results") as caught:
        Results(path)
    assert str(caught.value).isprintable()
    assert path.read_text() == text


def test_records_come_back_from_their_plain_form():
    tensors = capture()
    layer = dataclasses.replace(tensors.layers[0], dy=np.full_like(tensors.layers[0].dy, np.nan))
    report = study(Capture(source="", layers=(layer, tensors.layers[1])), StudyOptions(products=("910b", "310p")),
                   backend=backend())  # fmt: skip
    for row in report.rows:
        assert from_plain(PrecisionRow, json.loads(json.dumps(to_plain(row)))) == row
    assert from_plain(StudyOptions, json.loads(json.dumps(to_plain(report.options)))) == report.options
    plain = to_plain(report.rows[0])
    for change in ({"gradient": "dz"}, {"product": 3}, {"result": []}, {"more": 1}):
        with pytest.raises((TypeError, ValueError)):
            from_plain(PrecisionRow, {**plain, **change})
    assert isinstance(report, PrecisionReport)


def test_processes_give_what_one_gives():
    rng = np.random.default_rng(1)
    layers = tuple(
        dataclasses.replace(
            layer, weight=rng.normal(size=layer.weight_shape).astype(np.float32), gradients=("dx", "dw")
        )
        for layer in capture().layers
    )
    tensors = Capture(source="test", layers=layers)
    options = StudyOptions(products=("910b", "310p"), cube_math_types=(1, 2), threads=1)
    seen = []
    together = study(tensors, options, jobs=2, progress=lambda *state: seen.append(state[:2]))
    assert together == study(tensors, options)
    assert seen[-1] == (16, 16)
    with pytest.raises(StudyOptionError, match="jobs must be 1 with a backend of one's own, not more"):
        study(tensors, options, jobs=2, backend=backend())


def test_tables_have_every_row_and_exact_figures():
    report = study(capture(), StudyOptions(products=("310p", "910b")), backend=backend())
    rows = flat_rows(report)
    read = list(csv.DictReader(io.StringIO(csv_bytes(report).decode())))
    assert len(read) == len(rows) == len(report.rows) == 16
    for row, back, one in zip(rows, read, report.rows, strict=True):
        assert list(back) == list(row)
        assert back["layer"] == one.layer
        if one.result is None:
            assert back["refusal_status"] == "161002"
            assert back["original_relative_l2"] == back["compute_dtype"] == ""
        else:
            assert float(back["original_relative_l2"]) == one.result.original.error.relative_l2
            assert back["rounded_outcome"] == one.result.rounded.outcome
    lines = markdown_bytes(report).decode().splitlines()
    assert lines[0].startswith("The rounded golden decides; CANN mixed tolerance")
    assert len([line for line in lines if line.startswith("| a | dw |")]) == 8
    assert {line.count("|") for line in lines if line.startswith("|")} == {12}


def test_parquet_has_the_rows_or_names_what_is_missing():
    report = study(capture(), StudyOptions(products=("910b",)), backend=backend())
    try:
        import pyarrow.parquet
    except ImportError:
        with pytest.raises(MissingExtraError, match="pip install pyarrow"):
            parquet_bytes(report)
        return
    table = pyarrow.parquet.read_table(io.BytesIO(parquet_bytes(report)))
    assert table.to_pylist() == flat_rows(report)
    # what is refused has the same columns
    refused = study(capture(), StudyOptions(products=("310p",), cube_math_types=(0,)), backend=backend())
    assert not refused.computed
    other = pyarrow.parquet.read_table(io.BytesIO(parquet_bytes(refused)))
    assert other.schema == table.schema
    assert str(table.schema.field("rounded_max_ulp").type) == "double"
    assert len(pyarrow.concat_tables([table, other])) == len(report.rows) + len(refused.rows)


def test_command_keeps_results_and_writes_tables(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("ops.cli.precision.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)
    arguments = ("precision", "--no-picture", "--layer", "stem", "--product", "910b", "--results", "r.json")
    assert main([*arguments, "--table", "t.csv", "--table", "t.md"]) == 0
    first = capsys.readouterr().out.split("written:")[0]
    monkeypatch.setattr("ops.studies.precision.run_part", lambda *arguments: pytest.fail("computed"))
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 5
    (first_row, *_) = csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text()))
    assert math.isclose(float(first_row["original_relative_l2"]), 8.7e-8, rel_tol=0.01)
    for options, message in (
        (("--table", "t.xls"), "Table must be a .csv, .md, .parquet file, not t.xls"),
        (
            ("--table", "r.json.csv", "--json", "r.json.csv"),
            "Output files must be different, not r.json.csv, r.json.csv",
        ),
        (("--results", "t.csv"), "The file must hold results"),
        (("--jobs", "0"), "Invalid value for '--jobs'"),
    ):
        assert main(["precision", "--no-picture", *options]) == 2
        assert message in capsys.readouterr().err


def test_digests_are_those_of_other_processes():
    # sets of integers that collide are in the order in which they were filled, sets of texts in one of the process
    assert list({0, 8}) != list({8, 0})
    assert results_file.digest(frozenset((0, 8))) == results_file.digest(frozenset((8, 0)))
    assert results_file.digest(frozenset((0, 8))) != results_file.digest(frozenset((0, 9)))
    assert results_file.digest({"a": {1: 2}}) != results_file.digest({"a": {1: 3}})
    code = (
        "from npu_sim.products import get_product; from ops.studies.results_file import digest, options_digest;"
        "from ops.studies.precision_results import StudyOptions;"
        "print(digest(*(get_product(name) for name in ('310p', '910b'))), options_digest(StudyOptions()))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1

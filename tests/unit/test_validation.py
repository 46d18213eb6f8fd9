"""``npu-sim perf --validate``: figures against a twin, the data that ships, tables, JSON and the picture."""

from __future__ import annotations

import hashlib
import json
import math
import re

import numpy as np
import pytest

from npu_sim.engines.intervals import bound_launch, core_interval, task_interval
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.products import get_product
from ops.cli import validation_picture
from ops.cli.main import main
from ops.studies.calls.request_items import READERS, read_item
from ops.studies.validation import ComparedRow, MeasuredRow, ValidationReport, agreement, measured_rows, validate

CUBE = ("matmul", "conv", "conv_backprop_filter", "conv_backprop_input")


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    monkeypatch.setattr("ops.cli.perf_validate.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    code = main(["perf", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def compared(number, measured, predicted, baseline=1.0, half="validation", **changes):
    row = MeasuredRow(
        id=f"r{number}", op="cast", product="Ascend910B2", scope="kernel", half=half, source="", is_inferred=False,
        measured_us=measured, request={},
    )  # fmt: skip
    given = {
        "predicted_us": predicted,
        "low_us": predicted / 1.25,
        "high_us": predicted * 1.25,
        "baseline_us": baseline,
    }
    return ComparedRow(row=row, name="1", **(given | changes))


def test_figures_are_those_of_a_twin():
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 40):
        measured, predicted, baseline = (np.exp(rng.normal(size=count)) for _ in range(3))
        rows = [compared(i, *values) for i, values in enumerate(zip(measured, predicted, baseline, strict=True))]
        found = agreement([*rows, compared(99, 1.0, 1.0, error="no kernel")])
        logs = np.log(predicted / measured)
        assert found.count == count
        assert found.median == pytest.approx(math.exp(np.median(np.abs(logs))))
        assert found.p90 == pytest.approx(math.exp(np.quantile(np.abs(logs), 0.9, method="inverted_cdf")))
        assert found.bias == pytest.approx(math.exp(np.median(logs)))
        assert found.baseline_median == pytest.approx(math.exp(np.median(np.abs(np.log(baseline / measured)))))
        assert found.coverage == pytest.approx(np.mean(np.abs(logs) <= math.log(1.25)))
        assert found.width == pytest.approx(1.25**2)
    assert agreement([compared(1, 1.0, 1.0, error="no kernel")]) is None


def test_misses_come_worst_first_and_those_without_a_prediction_last():
    rows = (compared(0, 10, 11), compared(1, 10, 20), compared(2, 10, 1), compared(3, 1, 1, error="no kernel"))
    report = ValidationReport(rows=rows)
    assert [one.row.id for one in report.misses] == ["r2", "r1", "r3"]


def test_rows_that_ship_are_requests_with_a_source():
    rows = measured_rows()
    assert len(rows) > 400
    assert len({row.id for row in rows}) == len(rows)
    assert {row.op for row in rows} <= set(READERS)
    for row in rows:
        item = read_item(row.request)
        assert item.product.name == row.product
        assert item.scope == row.scope
        assert row.measured_us > 0
        assert re.match(r"[\w.-]+/[\w.-]+", row.source), row.source
        is_odd = int(hashlib.sha256(row.id.encode()).hexdigest(), 16) % 2 == 1
        assert row.half == ("validation" if is_odd == (row.op in CUBE) else "calibration")


def test_prediction_is_that_of_the_request_and_the_baseline_peak_and_constant():
    report = validate(("reduce_sum", "fill"), 1)
    constants = {}
    for one in report.rows:
        item = read_item(one.row.request)
        planned = item.request.plan(item.product)
        bounds = [bound_launch(launch, item.product) for launch in planned.calls.launches]
        interval = (core_interval if one.row.scope == "core_time" else task_interval)(bounds)
        assert (one.predicted_us, one.low_us, one.high_us) == pytest.approx(
            (interval.seconds * 1e6, interval.low_seconds * 1e6, interval.high_seconds * 1e6)
        )
        chip = get_product(one.row.product)
        moved = sum(place.byte_count for buffer, place in planned.calls.places.items() if buffer.role != "workspace")
        peak = moved / chip.cost.hbm_total_bytes_per_microsecond
        constants.setdefault(one.row.product, set()).add(round(one.baseline_us - peak, 9))
    assert all(len(values) == 1 for values in constants.values())
    assert len(constants) == 3


def test_table_names_every_chip_and_operator_and_details_list_the_misses(capsys):
    code, out, err = call(
        capsys, "--validate", "--operator", "fill", "--operator", "reduce-sum", "--details", "--jobs", 1
    )
    assert (code, err) == (0, "")
    assert out.startswith("Half of ")
    for name in ("910B1 fill kernel", "910B2 fill kernel", "910B4 reduce_sum kernel", "all"):
        assert re.search(rf"^{name} ", out, re.MULTILINE), name
    report = validate(("fill", "reduce_sum"), 1)
    for one in report.misses:
        assert re.search(rf"^{one.row.id} ", out, re.MULTILINE)
    assert f"{len(report.rows)} rows: 0 without a prediction; {len(report.misses)} with" in out
    assert max(map(len, out.splitlines())) <= 100


def test_json_has_halves_groups_and_rows(capsys):
    code, out, err = call(capsys, "--validate", "--operator", "fill", "--json", "-", "--jobs", 2)
    assert (code, err) == (0, "")
    document = json.loads(out)
    report = validate(("fill",), 1)
    assert [row["predicted_us"] for row in document["rows"]] == [one.predicted_us for one in report.rows]
    assert document["overall"]["validation"]["count"] == len(report.half("validation"))
    assert sum(group[half]["count"] for group in document["groups"] for half in ("calibration", "validation")
               if group[half]) == len(report.rows)  # fmt: skip


@pytest.mark.parametrize("suffix", validation_picture.SUFFIXES)
def test_picture_shows_every_row(monkeypatch, tmp_path, suffix, capsys):
    axes = pytest.importorskip("matplotlib.axes")
    shown = []
    scatter = axes.Axes.scatter

    def counted(self, x, y, **others):
        shown.extend(zip(x, y, strict=True))
        return scatter(self, x, y, **others)

    monkeypatch.setattr(axes.Axes, "scatter", counted)
    name = f"all{suffix}"
    assert call(capsys, "--validate", "--operator", "fill", "--picture", name, "--jobs", 1)[0] == 0
    rows = validate(("fill",), 1).rows
    assert sorted(shown) == sorted((one.row.measured_us, one.predicted_us) for one in rows)
    assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operator", "nonsense"), "op must be one of"),
        (("--operator", "abs"), "--operator must be one with published times, not abs"),
        (("--picture", "x.gif"), "--picture must end in .png, .svg, .pdf, not x.gif"),
        (("--picture", "-"), "--picture must be a file"),
    ],
)
def test_bad_input_is_exit_2(capsys, tmp_path, arguments, message):
    code, out, err = call(capsys, "--validate", *arguments, "--jobs", 1)
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


# Ascend/msinsight kernel_details.csv: core time in us, and busy part of it on the mean core, by pipe
PROFILED = {
    "mk00002": (310.734, {"M": 0.523, "S": 0.757, "MTE1": 0.888, "MTE2": 0.917, "FIX": 0.085}),
    "mk00074": (76.403, {"M": 0.643, "S": 0.561, "MTE1": 0.827, "MTE2": 0.249, "FIX": 0.074}),
    "mk00081": (96.869, {"M": 0.697, "S": 0.593, "MTE1": 0.88, "MTE2": 0.264, "FIX": 0.075}),
    "mk00087": (107.484, {"M": 0.518, "S": 0.768, "MTE1": 0.857, "MTE2": 0.249, "FIX": 0.044}),
    "mk00102": (101.325, {"M": 0.834, "S": 0.451, "MTE1": 0.677, "MTE2": 0.464, "FIX": 0.17}),
    "mk00113": (311.283, {"M": 0.284, "S": 0.267, "MTE1": 0.629, "MTE2": 0.373, "FIX": 0.074}),
}
MOST_OFF = {"M": 1.15, "MTE1": 1.3, "MTE2": 1.5, "FIX": 1.5, "S": 2.0}


def test_pipes_of_profiled_convolutions_are_as_busy_as_measured():
    requests = {row.id: row.request for row in measured_rows(CUBE)}
    off = {pipe: [] for pipe in MOST_OFF}
    for name, (core_us, busy) in PROFILED.items():
        item = read_item(requests[name])
        (launch,) = item.request.plan(item.product).launches("kernel")
        timed = run_timeline(launch, item.product, options=TimelineOptions(inputs_in_l2=True))
        for pipe, share in busy.items():
            cycles = timed.busy_cycles_all_cores[pipe] / timed.core_count
            off[pipe].append(abs(math.log(cycles / timed.clock_hz * 1e6 / (share * core_us))))
    found = {pipe: math.exp(np.median(values)) for pipe, values in off.items()}
    assert {pipe for pipe, value in found.items() if value > MOST_OFF[pipe]} == set(), found


@pytest.mark.parametrize(
    ("op", "scopes", "median", "p90"),
    [
        ("conv", ("call",), 1.20, 1.60),
        ("conv_backprop_filter", ("call",), 1.15, 1.35),
        ("transdata", ("kernel",), 1.20, 1.55),
        (None, ("kernel",), 1.12, 1.60),
    ],
)
def test_published_convolutions_and_transdata_on_a2_are_near(op, scopes, median, p90):
    """None: the kernels of convolutions and gradients."""
    report = validate(CUBE[1:] if op is None else (op,), 1)
    rows = [one for one in report.rows if one.row.scope in scopes and one.row.product == "Ascend910B2"]
    found = agreement(rows)
    assert len(rows) > 5
    assert (found.median <= median, found.p90 <= p90) == (True, True), found

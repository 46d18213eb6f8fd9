"""The search for tilings: against all tilings of small kernels, in any number of processes, and its command."""

import itertools
import json

import pytest

from npu_sim.errors import NpuSimError
from npu_sim.products import get_product
from ops.cli.main import main
from ops.matmul.tiling import MatmulShape
from ops.studies.calls.products import MatrixProductRequest
from ops.studies.effort import Effort, count_rows
from ops.studies.tuning import cycles_of, read_tunable, tunable_product, tune, tuning_effort

CHIP = get_product("910b")
GRADIENT = {"x": [2, 16, 4, 4], "weight": [16, 16, 1, 1]}


def kernels():
    shape = MatmulShape(m=32, n=32, k=32)
    return [
        tunable_product(MatrixProductRequest(shape=shape), CHIP),
        read_tunable("conv-backprop-filter", GRADIENT, CHIP),
    ]


@pytest.mark.parametrize("tunable", kernels(), ids=lambda tunable: tunable.name)
def test_what_is_found_is_within_three_percent_of_the_fastest_tiling(tunable):
    points = itertools.product(*tunable.space.axes.values())
    every = [cycles for point in points if (cycles := cycles_of(tunable, point)) is not None]
    found = tune(tunable, jobs=1)
    assert found.best_cycles <= 1.03 * min(every)
    assert found.best_cycles <= found.default_cycles
    assert found.timed_count <= len(every)
    assert found.gain == pytest.approx(1 - found.best_cycles / found.default_cycles)


def test_a_search_stops_at_the_tilings_it_may_time_and_reports_progress():
    tunable = kernels()[0]
    seen = []
    found = tune(tunable, most=20, jobs=1, progress=lambda done, most, words: seen.append((done, most, words)))
    assert found.timed_count == 20
    assert seen[-1] == (20, 20, f"best {min(found.best_cycles, seen_best(seen))} cycles")
    assert tune(tunable, most=20, jobs=2) == found


def seen_best(seen):
    return int(seen[-1][2].split()[1])


@pytest.mark.parametrize(
    ("operator", "values", "product", "message"),
    [
        ("cast", {"in_shape": [4]}, "910b", "--tune must be with matmul or conv-backprop-filter, not cast"),
        ("conv-backprop-filter", GRADIENT, "910", "--tune of a weight gradient must be on A2 or A3, not on Ascend910A"),
        ("matmul", {"m": 8, "k": 8, "n": 8, "compute": "fp32", "dtype": "fp32"}, "310p", "compute must be a type that"),
        ("matmul", {"m": 1, "k": 1, "n": 1, "block_dim": 3}, "910b", "--tune must be without --block-dim and"),
    ],
)
def test_what_cannot_be_tuned_is_refused(operator, values, product, message):
    with pytest.raises(NpuSimError, match=message):
        read_tunable(operator, values, get_product(product))


def test_every_product_is_tuned(capsys):
    arguments = ["perf", "matmul", "--m", "16", "--k", "32", "--n", "16", "--tune", "--jobs", "1"]
    assert main([*arguments, "--product", "910b", "--product", "910_93", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["product"] for row in rows] == ["Ascend910B2", "Ascend910_9392"]


def test_command_prints_both_tilings_and_writes_json(capsys):
    arguments = ["perf", "matmul", "--m", "16", "--k", "64", "--n", "16", "--product", "910b", "--tune", "--jobs", "1"]
    assert main([*arguments, "--no-progress"]) == 0
    out = capsys.readouterr().out
    assert "MatMul 16x64x16 fp16 on Ascend910B2" in out
    assert "baseK" in out
    assert main([*arguments, "--no-progress", "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["best"].keys() == row["default"].keys() >= {"usedCoreNum", "baseM", "stepKa", "depthA1", "dbL0C"}


@pytest.mark.parametrize(
    ("more", "message"),
    [(["--scope", "kernel", "--tune"], "--tune must be without --scope"), (["--jobs", "2"], "--jobs must be given")],
)
def test_options_that_do_not_belong_together_are_refused(capsys, more, message):
    arguments = ["perf", "matmul", "--m", "16", "--k", "64", "--n", "16", "--product", "910b", *more]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("matmul", {"m": 128, "k": 128, "n": 128}),
        ("conv-backprop-filter", {"x": [2, 16, 14, 14], "weight": [16, 16, 3, 3], "padding": 1}),
    ],
)
def test_effort_is_that_of_the_tilings_that_are_timed(monkeypatch, operator, values):
    """Counted are the instructions of every tiling that a search times, its own among them."""
    tunable, rows = read_tunable(operator, values, CHIP), []

    def timed(tunable, point):
        tiling = None if point is None else tunable.space.tiling(dict(zip(tunable.space.axes, point, strict=True)))
        rows.append(count_rows(tunable.request(tiling).plan(CHIP).launches("kernel"), 10**9)[0])
        return cycles_of(tunable, point)

    monkeypatch.setattr("ops.studies.tuning.cycles_of", timed)
    tune(tunable, jobs=1)
    estimated = tuning_effort(tunable, jobs=1)
    assert sum(rows) / 3 < estimated.instructions < 3 * sum(rows)
    assert tuning_effort(tunable, jobs=2).seconds == estimated.seconds / 2


def test_a_long_search_asks_first(capsys, monkeypatch):
    started = []
    monkeypatch.setattr("ops.studies.tuning.tune", lambda *_, **__: started.append(1))
    arguments = ["perf", "matmul", "--m", "8192", "--k", "4096", "--n", "8192", "--product", "910b", "--tune"]
    assert main([*arguments, "--jobs", "1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("npu-sim: error: Work must take at most about 2 minutes and 8.0 GiB of memory without --yes,")
    assert not started


def test_a_search_of_some_seconds_is_announced(capsys):
    arguments = ["perf", "matmul", "--m", "16", "--k", "64", "--n", "16", "--product", "910b", "--tune", "--jobs", "1"]
    few = Effort(instructions=1_234_567, seconds=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ops.studies.tuning.tuning_effort", lambda *_: few)
        assert main([*arguments, "--json", "-"]) == 0
    assert "about 1,200,000 instructions, little memory, 30 seconds" in capsys.readouterr().err

"""The benchmark of all parts: what rounds amount to, what counts as slower, what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

# tests stand on no benchmark but these
bench, races, race = (import_module(f"perf.bench.{name}") for name in ("__main__", "races", "race"))
Outcome, Race, outcome, run, slower = race.Outcome, race.Race, race.outcome, race.run, race.slower


class Clock:
    """A clock that only work moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float, calls: list[str] | None = None, name: str = "") -> Callable[[], None]:
        def go_on() -> None:
            self.now += seconds
            if calls is not None:
                calls.append(name)

        return go_on


def _race(ours: float, peer: float, calls: list[str] | None = None) -> Any:
    clock = Clock()
    return Race(
        group="calls", name="small", ours=clock.work(ours, calls, "ours"), peer=clock.work(peer, calls, "peer"),
        peer_name="peer", clock=clock,
    )  # fmt: skip


def test_both_run_in_turn_and_short_ones_several_times_a_round() -> None:
    calls: list[str] = []
    found = run(_race(0.010, 0.0005, calls), 1e-9)
    assert found.rounds == 5
    assert (found.ours, found.peer) == pytest.approx((0.010, 0.0005))
    assert found.ratio == pytest.approx(0.05)
    warm = calls[:4]
    assert warm == ["ours", "ours", "peer", "peer"]
    runs = [name for i, name in enumerate(calls[4:]) if i == 0 or name != calls[4:][i - 1]]
    # the order changes from round to round
    assert runs == ["peer", "ours", "peer", "ours", "peer", "ours"]
    assert (calls[4:].count("ours"), calls[4:].count("peer")) == (5, 5 * 4)


def test_ratio_is_the_median_of_the_rounds_with_quartiles() -> None:
    found = outcome(_race(1, 1), [(1.0, 1.0), (1.0, 2.0), (1.0, 3.0), (2.0, 8.0), (1.0, 50.0)])
    assert (found.low, found.ratio, found.high) == (2.0, 3.0, 4.0)
    assert (found.ours, found.peer) == (1.0, 3.0)


def test_slower_is_what_left_the_quartiles_by_more_than_five_percent() -> None:
    old = Outcome(group="g", name="a", peer_name="p", ours=1, peer=1, ratio=1.0, low=0.9, high=1.1, rounds=5)
    before = {old.key: old}
    assert slower([old], before) == []
    assert slower([replace(old, ratio=0.8, low=0.7, high=0.89)], before)[0].words == "g: a: 0.80x, 1.00x before (-20%)"
    # quartiles overlap; or do not, but the difference is small; or it is new
    assert slower([replace(old, ratio=0.8, low=0.7, high=0.91)], before) == []
    tight = {old.key: replace(old, low=0.999)}
    assert slower([replace(old, ratio=0.96, low=0.955, high=0.97)], tight) == []
    assert slower([replace(old, name="b", ratio=0.1, low=0.1, high=0.1)], before) == []
    assert slower([replace(old, ratio=2.0, low=1.9, high=2.1)], before) == []


def test_slower_ones_come_worst_first() -> None:
    old = [Outcome(group="g", name=n, peer_name="p", ours=1, peer=1, ratio=1, low=1, high=1, rounds=5) for n in "ab"]
    now = [replace(old[0], ratio=0.9, low=0.9, high=0.9), replace(old[1], ratio=0.5, low=0.5, high=0.5)]
    assert [change.key for change in slower(now, {one.key: one for one in old})] == ["g: b", "g: a"]


def test_outcomes_are_read_back_as_they_were() -> None:
    one = outcome(_race(1, 1), [(1.0, 1.0), (1.0, 2.0)])
    assert race.from_plain(json.loads(json.dumps(race.to_plain([one])))) == {"calls: small": one}


def test_geometric_mean() -> None:
    assert race.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Groups of made-up races; the list says how long they take."""
    times = [(0.01, 0.01), (0.02, 0.01)]

    def made(threads: int) -> Iterator[Any]:
        for number, (ours, peer) in enumerate(times):
            yield replace(_race(ours, peer), group="checks", name=f"race {number}")

    def none(threads: int) -> Iterator[Any]:
        yield from ()

    monkeypatch.setattr(bench, "GROUPS", dict.fromkeys(races.GROUPS, none) | {"checks": made})
    return times


def test_run_is_recorded_and_compared(
    small_groups: list[tuple[float, float]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = tmp_path / "record.json"
    monkeypatch.setattr(bench, "RECORD", record)
    assert bench.main(["--record", "--seconds", "1e-9"]) == 0
    assert [row["name"] for row in json.loads(record.read_text())["races"]] == ["race 0", "race 1"]
    arguments = ["--only", "checks", "--seconds", "1e-9", "--against", str(record)]
    assert bench.main(arguments) == 0
    assert "0 of 2 recorded races are slower by more than noise" in capsys.readouterr().out
    busy = json.loads(record.read_text())
    busy["host"] |= {"load": 9.5, "processors": 2, "processor": "another one"}
    record.write_text(json.dumps(busy))
    assert bench.main(arguments) == 0
    out = capsys.readouterr().out
    assert "The record record.json was made beside other work, at a load of 9.5." in out
    assert "The record record.json is of another processor, another one." in out
    small_groups[1] = (0.04, 0.01)
    assert bench.main(arguments) == 1
    out = capsys.readouterr().out
    assert "1 of 2 recorded races are slower by more than noise" in out
    assert "checks: race 1: 0.25x, 0.50x before (-50%)" in out
    assert "geometric means: checks: 0.50x" in out


def test_picture_and_json_are_written(small_groups: list[tuple[float, float]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = tmp_path / "all.json", tmp_path / "all.png"
    arguments = ["--seconds", "1e-9", "--json", str(paths[0]), "--picture", str(paths[1])]
    assert bench.main([*arguments, "--against", str(tmp_path / "none.json")]) == 0
    assert json.loads(paths[0].read_text())["schema_version"] == bench.SCHEMA_VERSION
    assert paths[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments", [["--record", "--only", "checks"], ["--seconds", "0"], ["--threads", "0"], ["--only", "nothing"]]
)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        bench.main(arguments)
    assert end.value.code == 2
    assert "python -m perf.bench: error: " in capsys.readouterr().err


def test_every_group_makes_races_of_its_own_name() -> None:
    torch_free = [name for name in races.GROUPS if name not in races.NEED_TORCH and name != "checks"]
    for name in torch_free:
        one = next(races.GROUPS[name](1))
        assert one.group == name
        if name != "commands":
            one.ours()
            one.peer()

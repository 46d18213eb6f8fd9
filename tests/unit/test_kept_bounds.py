"""Times of launches that a run keeps for the next are those of timing them, and are found in no other state."""

import os
from dataclasses import replace

import pytest

from npu_sim import _code_cache
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.studies.calls import kept_bounds, known_bounds, planned
from ops.studies.calls.kept_bounds import kept
from ops.studies.calls.known_bounds import KnownBounds
from ops.studies.network import times
from ops.studies.network.step import step_of_table
from ops.studies.network.times import Setting, time_step
from ops.vector.memset import memset_launch

A2 = get_product("910b")
OPTIONS = planned.TimelineOptions()
_MEMORY = (_code_cache._note, _code_cache.is_usable, _code_cache.why_not_kept, _code_cache.prune, kept_bounds._state)


@pytest.fixture
def parent(tmp_path, monkeypatch):
    """Keep times in an empty directory, as a new process would."""
    monkeypatch.setattr(kept_bounds, "cache_parent", lambda: str(tmp_path / "cache"))
    monkeypatch.delenv("NPU_SIM_KEEP_TIMES")
    _forget()
    yield tmp_path / "cache"
    _forget()


@pytest.fixture
def timed(monkeypatch):
    """Count what is timed."""
    launches = []
    bound = known_bounds.bound_launch

    def counted(launch, product, *, options):
        launches.append(launch)
        return bound(launch, product, options=options)

    monkeypatch.setattr(known_bounds, "bound_launch", counted)
    return launches


def _forget():
    for cached in _MEMORY:
        cached.cache_clear()


def _launch(byte_count):
    gm = GlobalMemory()
    return memset_launch(gm, gm.add("x", byte_count, initialised=False), A2)


def _run(*sizes, what="these"):
    """Time launches as a process of its own would."""
    known = KnownBounds()
    with kept(known, what):
        return [known.of(_launch(size) if size else None, A2, OPTIONS) for size in sizes]


def _files(parent):
    return sorted(path for path in parent.rglob("*") if path.is_file())


def test_a_second_run_times_only_what_the_first_did_not(parent, timed):
    first = _run(8192, 16384)
    assert len(timed) == 2
    assert _run(8192, 16384) == first
    assert len(timed) == 2
    assert _run(8192, 16384, 32768)[:2] == first
    assert len(timed) == 3
    (path,) = _files(parent)
    assert path.suffix == ".times"


def test_other_names_and_other_products_know_nothing_of_it(parent, timed):
    _run(8192)
    _run(8192, what="those")
    assert len(timed) == 2
    slower = replace(
        A2, cost=replace(A2.cost, l2_total_bytes_per_microsecond=10**4, hbm_total_bytes_per_microsecond=10**4)
    )
    known = KnownBounds()
    with kept(known, "these"):
        assert known.of(_launch(8192), slower, OPTIONS) != _run(8192)[0]
    assert len(timed) == 3


def test_what_was_asked_for_is_kept_where_a_run_fails(parent, timed):
    with pytest.raises(AttributeError):
        _run(8192, None)
    assert len(_run(8192)) == 1
    assert len(timed) == 1


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_a_file_that_is_not_whole_is_made_again(parent, timed, caplog, damage):
    first = _run(8192)
    (path,) = _files(parent)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if damage is None else damage)
    _forget()
    assert _run(8192) == first
    assert len(timed) == 2
    assert [record.getMessage() for record in caplog.records] == [f"npu-sim: made again: {path} is damaged"]
    assert _run(8192) == first
    assert len(timed) == 2


def test_an_edit_of_a_file_is_another_state(parent, timed, tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "inner" / "__pycache__").mkdir(parents=True)
    source, compiled = package / "inner" / "module.py", package / "inner" / "__pycache__" / "module.pyc"
    source.write_text("a = 1\n")
    monkeypatch.setattr(kept_bounds, "_PACKAGES", (str(package),))
    _forget()
    _run(8192)
    compiled.write_text("")
    _forget()
    _run(8192)
    assert len(timed) == 1
    for count, edit in enumerate((lambda: source.write_text("a = 12\n"), lambda: os.utime(source, (1, 1))), 2):
        edit()
        _forget()
        _run(8192)
        assert len(timed) == count


def test_nothing_is_kept_where_the_environment_says_so(parent, timed, monkeypatch):
    monkeypatch.setenv("NPU_SIM_KEEP_TIMES", "0")
    assert _run(8192) == _run(8192)
    assert len(timed) == 2
    assert _files(parent) == []


def test_a_directory_that_is_not_usable_stops_nothing(parent, timed, caplog):
    parent.write_text("")
    assert _run(8192) == _run(8192)
    assert len(timed) == 2
    assert "not kept" in caplog.records[0].getMessage()


def test_a_step_is_timed_once_and_its_times_are_equal(parent, timed, monkeypatch):
    setting = Setting(product="910b", chip=A2, cube_math_type=0, batch=2)
    step = step_of_table("alexnet", 2, 0, "fp16").select(["conv2", "conv3"])
    runs = []
    for _ in range(2):
        monkeypatch.setattr(times, "KNOWN", KnownBounds())
        monkeypatch.setattr(planned, "KNOWN", times.KNOWN)
        runs.append(time_step(setting, step, "call", forward=True))
    monkeypatch.setenv("NPU_SIM_KEEP_TIMES", "0")
    count = len(timed)
    monkeypatch.setattr(planned, "KNOWN", KnownBounds())
    anew = time_step(setting, step, "call", forward=True)
    assert len(timed) == 2 * count > 0
    for run in runs:
        assert [layer.bounds for layer in run.layers] == [layer.bounds for layer in anew.layers]

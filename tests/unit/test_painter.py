"""The process that draws pictures while a study computes."""

import sys
from dataclasses import replace

import pytest
from precision_backend import backend
from test_precision_capture import layer_arrays

from npu_sim.errors import MissingExtraError
from ops.cli import painter
from ops.cli.painter import Painter
from ops.cli.precision_picture import draw
from ops.studies.capture import load_capture
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    import numpy as np

    path = tmp_path_factory.mktemp("painter") / "own.npz"
    np.savez(path, **layer_arrays("conv"))
    return study(load_capture(path), StudyOptions(products=("910b",)), backend=backend())


@pytest.fixture
def processes(monkeypatch):
    """The processes that painters start, as where matplotlib has not been loaded and there are processors."""
    started = []
    start = painter.subprocess.Popen

    def note(*arguments, **keywords):
        started.append(start(*arguments, **keywords))
        return started[-1]

    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    monkeypatch.setattr(painter.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(painter.subprocess, "Popen", note)
    return started


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_painter_draws_elsewhere_what_would_be_drawn_here(report, processes, suffix, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    with Painter(suffix) as one:
        # another report than any the process could have by itself
        mine = replace(report, source="of one's own")
        monkeypatch.setattr(painter, "draw", lambda *_: pytest.fail("drawn here"))
        drawn = one.draw(mine)
    (process,) = processes
    assert process.returncode == 0
    here = draw(mine, suffix)
    if suffix == ".svg":
        # names of clip paths are drawn by lot
        assert [line for line in drawn.splitlines() if b"own" in line] == [
            line for line in here.splitlines() if b"own" in line
        ]
        assert len(drawn.splitlines()) == len(here.splitlines())
    else:
        assert drawn == here


def test_painter_whose_process_fails_draws_here(report, processes, monkeypatch):
    monkeypatch.setattr(painter, "_COMMAND", ("-c", "import sys; sys.stdin.buffer.read(); print('half'); sys.exit(3)"))
    with Painter(".png") as one:
        assert one.draw(report) == draw(report, ".png")
    assert processes[0].returncode == 3


def test_painter_without_a_process_draws_here(report, processes, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(painter.subprocess, "Popen", refuse)
    with Painter(".png") as one:
        assert one.draw(report) == draw(report, ".png")


def test_painter_says_why_nothing_can_be_drawn(report, processes, monkeypatch):
    def refuse(*_):
        raise MissingExtraError("no matplotlib")

    monkeypatch.setattr(painter, "_COMMAND", ("-c", "raise SystemExit(1)"))
    monkeypatch.setattr(painter, "draw", refuse)
    with Painter(".png") as one, pytest.raises(MissingExtraError, match="no matplotlib"):
        one.draw(report)


def test_painter_leaves_no_process_behind_a_study_that_fails(processes):
    with pytest.raises(KeyboardInterrupt), Painter(".png"):
        raise KeyboardInterrupt
    (process,) = processes
    assert process.returncode is not None


@pytest.mark.parametrize("reason", ["matplotlib is loaded", "there is one processor"])
def test_painter_starts_nothing_where_that_gains_nothing(report, processes, monkeypatch, reason):
    if reason == "matplotlib is loaded":
        import matplotlib.figure

        monkeypatch.setitem(sys.modules, "matplotlib.figure", matplotlib.figure)
    else:
        monkeypatch.setattr(painter.os, "cpu_count", lambda: 1)
    with Painter(".png") as one:
        assert one.draw(report).startswith(b"\x89PNG")
    assert processes == []

"""A study on a Dask cluster of separate processes, one of which is killed on the way."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_precision_study import capture

from ops.studies.attribution import attribute
from ops.studies.layers import Capture
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptionError, StudyOptions
from ops.studies.results_file import Results

distributed = pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]


def start(*words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    return subprocess.Popen([sys.executable, "-m", *words], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)


@pytest.fixture
def cluster(tmp_path):
    """Yield the address of a scheduler and the processes of its two workers."""
    file = tmp_path / "scheduler.json"
    where = ("--scheduler-file", str(file))
    processes = [
        start("distributed.cli.dask_scheduler", *where, "--port", "0", "--no-dashboard", "--host", "127.0.0.1")
    ]
    worker = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path))
    processes += [start("distributed.cli.dask_worker", *where, *worker) for _ in range(2)]
    try:
        with distributed.Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(2, timeout=60)
            yield client.scheduler.address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def many_layers(count):
    first, second = capture().layers
    layers = [
        dataclasses.replace((first, second)[i % 2], name=f"l{i}", x=first.x + np.float32(i)) for i in range(count)
    ]
    return Capture(source="test", layers=tuple(layers))


def test_study_survives_a_worker_that_is_killed(cluster, tmp_path):
    address, workers = cluster
    tensors, options = many_layers(12), StudyOptions(products=("910b", "310p"), threads=1)
    states = []

    def progress(done, total, text):
        states.append(done)
        if len(states) == 2:
            os.kill(workers[0].pid, signal.SIGKILL)

    results = Results(tmp_path / "kept.json")
    together = study(tensors, options, scheduler=address, progress=progress, results=results)
    assert together == study(tensors, options)
    assert workers[0].wait(10) == -signal.SIGKILL
    assert states[-1] == len(together.rows) == 96
    # nothing is missing in the file: no scheduler is asked any more
    assert study(tensors, options, scheduler="tcp://127.0.0.1:1", results=Results(tmp_path / "kept.json")) == together


def test_causes_are_found_by_a_cluster(cluster):
    address, _ = cluster
    tensors, options = many_layers(3), StudyOptions(products=("910b",), cube_math_types=(1,), threads=1)
    assert attribute(tensors, options, spread=1, scheduler=address) == attribute(tensors, options, spread=1)


def test_scheduler_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("ops.studies.distributed._CONNECT_SECONDS", 1)
    begin = time.monotonic()
    for ask in (study, attribute):
        with pytest.raises(StudyOptionError, match=r"scheduler must be reachable, not tcp://127\.0\.0\.1:1"):
            ask(capture(), StudyOptions(), scheduler="tcp://127.0.0.1:1")
    assert time.monotonic() - begin < 20

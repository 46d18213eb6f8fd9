"""Programs in files: what comes back, what is refused, where two differ."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npu_sim.authoring import In, Out, TPipe, TPosition, TQueBind, kernel
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import InputFileError, NpuSimError
from npu_sim.report.program_difference import differences
from npu_sim.report.program_file import MAGIC, all_rows, program_bytes, program_of, read_program
from ops.cli.main import main

SCRIPT = Path(__file__).parents[2] / "examples/kernels/vector_add.py"


@kernel
def copied(core, x: In, y: Out, order=0):
    pipe = TPipe(core)
    queue = pipe.init_buffer(TQueBind(TPosition.VECIN, TPosition.VECOUT), 2, 256)
    for i in core.tiles(4):
        t = queue.alloc_tensor("fp32")
        core.data_copy(t, x[64 * i], 64)
        if order == i:
            core.pipe_barrier(5)
        queue.enque(t)
        core.data_copy(y[64 * i], queue.deque("fp32"), 64)
        queue.free_tensor(t)
    core.sync_all()


def _run(order=9):
    x = np.arange(256, dtype=np.float32)
    return copied.record(x, np.empty_like(x), order, blocks=2)


def test_program_comes_back_with_its_rows_names_findings_and_time():
    run = _run()
    stored = program_of(program_bytes(run.launches, run.product))
    assert stored.product == run.product
    [launch], [own] = stored.launches, run.launches
    for name in ("name", "core_kind", "core_count", "phase_count", "sites", "lines", "buffers"):
        assert getattr(launch, name) == getattr(own, name)
    assert launch.gm.tensors == own.gm.tensors
    pairs = zip(all_rows(stored.launches), all_rows(run.launches), strict=True)
    assert all(a[:3] == b[:3] and a[3].tobytes() == b[3].tobytes() for a, b in pairs)
    assert run_hazards(stored.launches, stored.product) == list(run.findings)
    assert run_timeline(launch, stored.product).total_cycles == run.times[0].total_cycles
    assert list(differences(stored.launches, run.launches)) == []


def test_difference_is_the_row_that_was_put_in():
    found = list(differences(_run().launches, _run(2).launches))
    assert [(one.core, one.left, one.right) for one in found] == [
        (core, (), ("MTE3 PipeBarrier<PIPE_MTE3>",)) for core in (0, 1)
    ]


def test_damaged_files_are_refused_or_harmless():
    good = program_bytes(_run().launches, _run().product)
    head, _, rows = good[len(MAGIC) :].partition(b"\n")
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        bad = bytearray(good)
        at = rng.integers(0, len(MAGIC) + len(head) + 1, 1 + trial % 3)
        for i in at.tolist():
            bad[i] = int(rng.integers(256))
        try:
            program_of(bytes(bad[: len(bad) - (trial % 7 == 0)]))
        except InputFileError:
            refused += 1
    assert refused > 150
    plain = json.loads(head)
    for change in (
        {"version": 1}, {"version": None}, {"launches": []}, {"tensors": 3}, {"product": "no such"}, {"product": 1},
        {"launches": [{**plain["launches"][0], "rows": [[10**12]]}]},
        {"launches": [{**plain["launches"][0], "rows": [[-1]]}]},
        {"launches": [{**plain["launches"][0], "lines": {"1": ["a", 2]}}]},
        {"tensors": [{**plain["tensors"][0], "address": 1}]},
    ):  # fmt: skip
        with pytest.raises(InputFileError, match="Program must be a file of npu-sim program"):
            program_of(MAGIC + json.dumps({**plain, **change}).encode() + b"\n" + rows)


def test_random_rows_of_a_file_end_in_findings_or_errors(tmp_path):
    good = program_bytes(_run().launches, _run().product)
    start = len(MAGIC) + good[len(MAGIC) :].find(b"\n") + 1
    rng = np.random.default_rng(1)
    for _ in range(20):
        bad = good[:start] + rng.integers(0, 256, len(good) - start).astype(np.uint8).tobytes()
        stored = program_of(bad)
        assert run_hazards(stored.launches, stored.product)
        with pytest.raises(NpuSimError):
            run_timeline(stored.launches[0], stored.product)


def test_command_saves_lists_and_compares(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    kept, changed = tmp_path / "add.program", tmp_path / "other.py"
    assert main(["program", str(SCRIPT), "--save", str(kept), "--rows", "3"]) == 0
    said = capsys.readouterr().out
    assert "add: 48 vector cores (Ascend910B2)" in said
    assert "AllocTensor<0> UB[0x0:0x1000]" in said
    assert "vector_add.py:2" in said
    assert "more; --rows shows more" in said
    assert read_program(kept).launches[0].core_count == 48
    assert main(["program", str(kept), str(SCRIPT)]) == 0
    changed.write_text(SCRIPT.read_text(encoding="utf-8").replace("core.add(c", "core.sub(c"), encoding="utf-8")
    capsys.readouterr()
    assert main(["program", str(kept), str(changed), "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)["differences"]
    assert found[0]["left"][0].startswith("V    Add ")
    assert found[0]["right"][0].startswith("V    Sub ")
    assert main(["program", str(tmp_path / "none")]) == 2
    assert main(["program", str(SCRIPT), "--call", "3"]) == 2

"""Kernels in C++ that a Python file calls are judged, and followed to the line where they go wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ops.cli.main import main
from tests.ascendc.compiler import require_compiler

require_compiler()

ADD = Path(__file__).parents[2] / "examples" / "ascendc" / "add_custom.cpp"
CALL = """
import numpy as np
from npu_sim import ascendc
x = (np.arange(8 * 2048).reshape(8, 2048) % 64).astype(np.float16)
ascendc.compile({path!r})(x, x, np.empty_like(x), blocks=8, product="Ascend910B2", outputs=[2])
"""


def judged(capsys, *arguments):
    code = main([*map(str, arguments), "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


def test_a_source_is_judged_and_its_wrong_line_found(tmp_path, capsys):
    golden, script = tmp_path / "z.npy", tmp_path / "call.py"
    np.save(golden, 2.0 * (np.arange(8 * 2048).reshape(8, 2048) % 64))
    script.write_text(CALL.format(path=str(ADD)), encoding="utf-8")
    code, said = judged(capsys, "judge", script, "--golden", golden)
    assert (code, said["reasons"], said["calls"][0]["values"][0]["wrong_count"]) == (0, [], 0)
    wrong = tmp_path / "wrong.cpp"
    text = ADD.read_text(encoding="utf-8")
    wrong.write_text(text.replace("Add(z, x, y, TILE)", "Sub(z, x, y, TILE)"), encoding="utf-8")
    script.write_text(CALL.format(path=str(wrong)), encoding="utf-8")
    code, said = judged(capsys, "judge", script, "--golden", golden)
    assert (code, said["reasons"]) == (1, ["values are over budget"])
    code, said = judged(capsys, "diverge", script, "--golden", golden)
    lines = {place["line"] for place in said["chain"]}
    assert code == 1
    assert any("Sub(z, x, y, TILE)" in text.replace("Add(z", "Sub(z").splitlines()[line - 1] for line in lines)


def test_a_golden_of_a_kernel_that_cannot_run_is_said_to_judge_nothing(tmp_path, capsys):
    source, x, golden = tmp_path / "far.cpp", tmp_path / "x.npy", tmp_path / "z.npy"
    source.write_text(ADD.read_text(encoding="utf-8").replace("Add(z, x, y, TILE)", "Add(z, x, y, 1000 * TILE)"))
    np.save(x, np.ones((8, 2048), np.float16))
    np.save(golden, np.full((8, 2048), 2.0))
    for path, how in ((source, "not judged, the kernel was not run to its end"), (ADD, "of z: at most 0 ULP off")):
        tensors = ("--arg", str(x), "--arg", str(x), "--out", "z:8x2048:fp16", "--golden", f"z={golden}")
        code = main(["judge", str(path), "--blocks", "8", *tensors])
        assert code == (path == source)
        assert f"values{':' if path == source else ''} {how}" in capsys.readouterr().out

"""``npu-sim selftest``: the files for the device and what is said about its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.errors import InputFileError
from ops.cli.main import main
from ops.studies.selftest.arithmetic import Arithmetic, emulate
from ops.studies.selftest.vectors import digest, load_results, results_file, vectors_of

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = {
    "torch.py": """
import ml_dtypes, numpy as np, torch_npu
__version__ = "0 (a stand-in)"
bfloat16, int16 = ml_dtypes.bfloat16, np.int16
class Tensor:
    def __init__(self, array): self.array = array
    def view(self, dtype): return Tensor(self.array.view(dtype))
    def to(self, device):
        assert device == "npu:3"
        return self
    def cpu(self): return self
    def numpy(self): return self.array
def from_numpy(array):
    assert array.dtype in (np.float16, np.float32, np.int16), array.dtype  # the types that torch takes
    return Tensor(array)
def matmul(a, b):
    from tests.oracles import cubes
    if a.array.dtype == bfloat16:
        raise RuntimeError("no bfloat16\\non this device")
    left, right = a.array.astype(np.float32), b.array.astype(np.float32)
    group = 16 if a.array.dtype == np.float16 else 4
    if torch_npu.npu.matmul.allow_hf32 and group == 4:
        left, right, group = cubes.hf32(left), cubes.hf32(right), 8
    with np.errstate(over="ignore"):
        return Tensor(cubes.product_of(left, right, group, "exact", "rne", flush=True).astype(a.array.dtype))
""",
    "torch_npu.py": """
__version__ = "0"
class npu:
    class matmul: allow_hf32 = None
    @staticmethod
    def get_device_name(): return "Ascend910B9"
""",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder in which the program for the device has run with modules that stand for torch's."""
    folder = tmp_path_factory.mktemp("device")
    assert main(["selftest", "--write", str(folder / "vectors.npz"), "--script", str(folder / "run.py")]) == 0
    for name, text in STAND_IN.items():
        (folder / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "run.py", "vectors.npz", "results.npz", "npu:3"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=120)
    return folder


def test_results_of_the_program_on_the_device_name_its_models(run, capsys):
    assert main(["selftest", str(run / "results.npz"), "--json", str(run / "report.json")]) == 0
    out = capsys.readouterr().out
    report = json.loads((run / "report.json").read_text())
    assert (report["passed"], report["device"], report["software"]) == (
        True, "Ascend910B9", "torch 0 (a stand-in), torch_npu 0",
    )  # fmt: skip
    found = {part["tensors"]: [fit["model"] for fit in part["fits"]][:1] for part in report["tensors"]}
    assert found == {"fp16": ["exact16-rne"], "bf16": [], "fp32": ["exact4-rne"], "hf32": ["exact8-rne"]}
    text = " ".join(out.split())
    assert "fp16 tensors: exact16-rne (fp16, Inf/NaN mode) fits; nothing here tells +keep, +max, +results apart" in text
    assert "bf16 tensors: refused by the device: no bfloat16 on this device" in text
    assert "HF32 allowed: exact8-rne (hf32 of 11 bits, ties even, Inf/NaN mode) fits" in text
    assert "2^24, 1 at k = 7 and 8" in text


def test_vectors_are_small_and_the_program_needs_nothing_of_ours(run):
    assert (run / "vectors.npz").stat().st_size < 200_000
    text = (run / "run.py").read_text()
    assert "npu_sim" not in text
    assert len(text.splitlines()) < 60


def emulated(name):
    arithmetic = Arithmetic(operands="fp16", accumulation=Accumulation.parse(name, None))
    return {"fp16": emulate(vectors_of("fp16"), arithmetic)}


def test_results_that_no_model_has_are_exit_1_with_the_deciding_probe(tmp_path, capsys):
    products = emulated("exact16-rne")
    row = next(i for i, probe in enumerate(vectors_of("fp16").probes) if probe.name == "round-sticky")
    products["fp16"][row, row] = 0  # as if what is below the half of the last bit were lost
    (tmp_path / "results.npz").write_bytes(results_file(products))
    assert main(["selftest", str(tmp_path / "results.npz")]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "fp16 tensors: no model fits. The nearest, exact16-rne (fp16, Inf/NaN mode), differs in 1 of" in text
    assert "first in round-sticky: 0, the model has 2" in text


@pytest.mark.parametrize("value", [0, 1, np.nan])
def test_device_with_one_result_for_everything_answers_nothing(tmp_path, capsys, value):
    one = np.full((len(vectors_of("fp16").a),) * 2, value, np.float16)
    (tmp_path / "results.npz").write_bytes(results_file({"fp16": one}))
    assert main(["selftest", str(tmp_path / "results.npz"), "--json", str(tmp_path / "r.json")]) == 1
    assert "no model fits" in capsys.readouterr().out
    (part,) = json.loads((tmp_path / "r.json").read_text())["tensors"]
    assert {reading["value"] for reading in part["readings"]} == {"unknown"}
    words = "no result is finite" if np.isnan(value) else f"every finite result is {value}"
    assert {reading["probes"] for reading in part["readings"]} == {words}


def test_report_goes_to_standard_output(tmp_path, capsys):
    (tmp_path / "results.npz").write_bytes(results_file(emulated("tree4-rz")))
    assert main(["selftest", str(tmp_path / "results.npz"), "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tensors"][0]["fits"][0]["model"] == "tree4-rz"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "One of RESULTS.npz, --write and --script must be given"),
        (["r.npz", "--write", "v.npz"], "RESULTS.npz must not be given together with --write or --script"),
        (["--write", "v", "--script", "v"], "--script must be another file than v"),
        (["--write", "no/v.npz"], "Output file must be in an existing directory, not no/v.npz"),
        (["r.npz"], "Input file must exist, but r.npz does not"),
    ],
)
def test_usage_errors_are_exit_2_and_write_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["selftest", *arguments]) == 2
    assert capsys.readouterr().err == f"npu-sim: error: {message}\n"
    assert list(tmp_path.iterdir()) == []


COUNT = len(vectors_of("fp16").a)
WHOLE = np.zeros((COUNT, COUNT), np.float16)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"fp16.c": WHOLE, "digest": np.array("0")}, f"must be '{digest()}', that of this version's vectors, not '0'"),
        ({"fp16.c": WHOLE}, "this version's vectors, not none: write them anew"),
        ({"digest": np.array(digest())}, "must hold at least one matrix product, not none"),
        ({"digest": np.array(digest()), "fp16.c": WHOLE[1:]}, f"must be {COUNT}x{COUNT}, not {COUNT - 1}x{COUNT}"),
        ({"digest": np.array(digest()), "fp16.c": WHOLE.astype(np.float32)}, "'fp16.c' must be float16, not float32"),
        ({"digest": np.array(digest()), "bf16.c": WHOLE}, "'bf16.c' must be int16 (the bits of bfloat16), not float16"),
        ({"digest": np.array(digest()), "fp64.c": WHOLE}, "Key 'fp64.c' must be digest, device, software or one of"),
        ({"digest": np.zeros(3)}, "'digest' must be a text scalar, not float64 (3,)"),
        ({"digest": np.array(digest()), "fp16.error": np.zeros(1)}, "'fp16.error' must be a text scalar"),
    ],
)  # fmt: skip
def test_files_of_something_else_are_refused(tmp_path, arrays, message):
    path = tmp_path / "results.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputFileError, match="results") as caught:
        load_results(path)
    assert message in str(caught.value)


def test_damaged_files_are_refused_or_read_whole(tmp_path, capsys):
    """Whatever a byte becomes: an error of ours, or all of the file."""
    content = bytearray(results_file(emulated("serial"), device="Ascend910B2"))
    path = tmp_path / "results.npz"
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), 3):
            damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged[: int(rng.integers(1, len(content))) if rng.random() < 0.3 else None])
        code = main(["selftest", str(path), "--json", os.devnull])
        lines = capsys.readouterr().err.splitlines()
        assert code in (0, 1) or (code == 2 and len(lines) == 1), lines
        refused += code == 2
    assert refused > 30

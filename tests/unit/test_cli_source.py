"""Commands of ``npu-sim`` with a kernel in C++."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npu_sim.errors import InputFileError
from ops.cli.main import main
from ops.cli.source_kernel import read_tiling
from tests.ascendc.compiler import require_compiler

require_compiler()

ADD = Path(__file__).parents[2] / "examples" / "ascendc" / "add_custom.cpp"


@pytest.fixture(autouse=True)
def _no_note_of_compilation(monkeypatch):
    monkeypatch.setattr("ops.cli.source_kernel.note_compilation", lambda: None)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Arguments of a call in a directory with its inputs."""
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        np.save(f"{name}.npy", np.arange(8 * 2048, dtype=np.float16).reshape(8, 2048) % 7)
    return ["--blocks", "8", "--arg", "x.npy", "--arg", "y.npy", "--out", "z:8x2048:fp16"]


def test_run_writes_what_the_kernel_wrote(call, capsys):
    assert main(["run", str(ADD), "--kernel", "add_custom", *call]) == 0
    assert np.array_equal(np.load("z.npy"), 2 * np.load("x.npy"))
    assert "8 vector cores" in capsys.readouterr().out


def test_check_finds_nothing_in_a_clean_kernel_and_a_bug_at_its_line(call, capsys):
    assert main(["check", str(ADD), *call]) == 0
    assert "auto_sync on" in capsys.readouterr().out
    text = ADD.read_text().replace("DataCopy(z_[i * TILE], z, TILE)", "DataCopy(z_[i * TILE], z, TILE / 2)")
    Path("bug.cpp").write_text(text)
    assert main(["check", "bug.cpp", *call, "--json", "found.json", "--sarif", "found.sarif"]) == 1
    assert "OutputHole" in capsys.readouterr().out
    found = json.loads(Path("found.json").read_text())["launches"][0]["findings"]
    assert found
    assert Path("found.sarif").exists()


def test_check_says_what_ended_a_kernel(call, capsys):
    Path("bug.cpp").write_text(ADD.read_text().replace("    inX_.EnQue(x);\n", ""))
    assert main(["check", "bug.cpp", *call]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "stopped by core 0 DeQue of a VECIN queue must come behind an EnQue" in out
    assert "bug.cpp:41" in out


def test_perf_times_the_kernel_on_a_product(call, capsys):
    assert main(["perf", str(ADD), *call, "--product", "310p", "--json", "times.json"]) == 0
    times = json.loads(Path("times.json").read_text())
    assert times["calls"][0]["product"] == "Ascend310P3"
    assert times["calls"][0]["seconds"] > 0
    assert "add_custom" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "check", "perf", "judge", "diverge"])
def test_two_products_for_a_kernel_are_bad_input(command, call, capsys):
    """A kernel runs once: what was asked of the other product would be left out."""
    assert main([command, str(ADD), *call, "--product", "310p", "--soc-version", "910b"]) == 2
    assert capsys.readouterr().err == "npu-sim: error: --product must be given once for a kernel, not 2 times\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--arg", "missing.npy"], "--arg must be a .npy file that can be read"),
        (["--arg", "word"], "--arg must be a .npy file, zeros:SHAPE:TYPE, a number or none"),
        (["--out", "z:8x:fp16"], "--out must give SHAPE:TYPE"),
        (["--out", "z:8:float99"], "--out must give a type"),
        (["--out", "8:fp16"], "--out must begin with a name"),
        (["--kind", "scalar"], "--kind must be one of vector, cube, mix"),
        (["--tiling", "missing.bin"], "--tiling must be a file that can be read"),
        (["--kernel", "other"], "npu-sim: error: kernel must be one of add_custom.cpp (add_custom), not other"),
        (["--kernel", "Init"], "kernel must be one of add_custom.cpp (add_custom), not Init"),
    ],
)
def test_what_makes_no_sense_is_one_line(given, words, capsys):
    assert main(["run", str(ADD), *given]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["run", "check", "perf"])
@pytest.mark.parametrize("kept", [0, 5, 20, -1])
def test_an_array_cut_short_is_bad_input(command, kept, call, capsys):
    """Of an empty file NumPy says that it has ended, which is no interruption."""
    Path("x.npy").write_bytes(Path("x.npy").read_bytes()[:kept])
    assert main([command, str(ADD), *call]) == 2
    err = capsys.readouterr().err
    assert err.startswith("npu-sim: error: --arg must be a .npy file that can be read, not x.npy (")
    assert err.count("\n") == 1


def test_tiling_in_json_is_laid_out_as_a_struct(tmp_path):
    path = tmp_path / "tiling.json"
    path.write_text('[["uint8", 1], ["uint32_t", [2, 3]], ["int64_t", -1], ["float", 1.5]]')
    layout = np.dtype([("a", "u1"), ("b", "u4", 2), ("c", "i8"), ("d", "f4")], align=True)
    [(first, second, third, fourth)] = np.frombuffer(read_tiling(str(path)), layout).tolist()
    assert (first, list(second), third, fourth) == (1, [2, 3], -1, 1.5)
    for text in ("3", '[["uint8"]]', '[["uint8", 300]]', '[["word", 1]]', "{"):
        path.write_text(text)
        with pytest.raises(InputFileError, match="must hold a list of"):
            read_tiling(str(path))


@pytest.fixture
def goldens(call):
    """Return the arguments of a call with its golden; ``wrong.cpp`` adds half of each tile."""
    np.save("golden.npy", 2 * np.load("x.npy"))
    text = ADD.read_text().replace("Add(z, x, y, TILE);", "Add(z, x, y, TILE / 2);")
    assert text != ADD.read_text()
    Path("wrong.cpp").write_text(text)
    return [*call, "--golden", "z=golden.npy"]


def test_judge_answers_for_a_source_as_for_a_python_file(goldens, capsys):
    assert main(["judge", str(ADD), *goldens, "--json", "right.json"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("written: right.json")
    right = json.loads(Path("right.json").read_text())
    (call,) = right["calls"]
    assert (right["verdict"], right["values_judged"], call["findings"]) == ("pass", True, [])
    assert call["launches"][0]["total_cycles"] > 0
    assert main(["judge", "wrong.cpp", *goldens, "--json", "wrong.json"]) == 1
    wrong = json.loads(Path("wrong.json").read_text())
    assert "values are over budget" in wrong["reasons"]
    assert wrong["calls"][0]["values"][0]["wrong_count"] > 0


def test_judge_of_a_source_that_is_left_judges_no_values(goldens, capsys):
    Path("left.cpp").write_text(ADD.read_text().replace("    inX_.EnQue(x);\n", ""))
    assert main(["judge", "left.cpp", *goldens, "--json", "left.json"]) == 1
    left = json.loads(Path("left.json").read_text())
    assert left["reasons"][0] == "a kernel was left before its end"
    assert not left["values_judged"]


def test_diverge_names_the_line_of_a_source(goldens, call, capsys):
    assert main(["diverge", str(ADD), *goldens]) == 0
    line = next(n for n, text in enumerate(ADD.read_text().splitlines(), 1) if "Add(z, x, y, TILE);" in text)
    for how, of in ((goldens, "chain"), ([*call, "--good", str(ADD)], "suspect")):
        assert main(["diverge", "wrong.cpp", *how, "--json", "found.json"]) == 1
        found = json.loads(Path("found.json").read_text())
        assert found["diverges"]
        named = found[of] if of == "chain" else [found[of]]
        assert (line, "wrong.cpp") in {(place["line"], Path(place["file"]).name) for place in named}
    assert main(["diverge", "wrong.cpp", *call]) == 2
    assert "one of --golden and --good" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "perf"])
def test_refused_instructions_are_said_once_for_each_line(command, call, capsys):
    """Of every tile of every core the same: 310P has no DataCopyPad."""
    text = ADD.read_text().replace("DataCopy(z_[i * TILE], z, TILE)",
                                   "DataCopyPad(z_[i * TILE], z, {1, TILE * 2, 0, 0})")  # fmt: skip
    Path("padded.cpp").write_text(text)
    assert main([command, "padded.cpp", *call, "--product", "310p"]) == 1
    err = capsys.readouterr().err
    assert err.count("DataCopyPad must be on dav-c220, not dav-m200 (Ascend310P3)") == 1
    assert " times)" in err
    assert len(err) < 300


def test_lines_of_refused_instructions_are_told_apart(call, capsys):
    text = ADD.read_text()
    for name in ("z_", "x_"):
        text = text.replace(f"DataCopy({name}[i * TILE], {name[0]}, TILE)",
                            f"DataCopyPad({name}[i * TILE], {name[0]}, {{1, TILE * 2, 0, 0}})")  # fmt: skip
    text = text.replace("DataCopy(x, x_[i * TILE], TILE)",
                        "DataCopyPad(x, x_[i * TILE], {1, TILE * 2, 0, 0}, {false, 0, 0, 0})")  # fmt: skip
    Path("padded.cpp").write_text(text)
    assert main(["perf", "padded.cpp", *call, "--product", "310p"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert len(err.split("; ")) == err.count("DataCopyPad must be on") == 2

"""``npu-sim judge`` and ``npu-sim diverge``: verdicts, documents, exit codes, refusals."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from ops.cli.main import main
from tests.cases.json_documents import KERNEL


@pytest.fixture
def files(tmp_path):
    script, golden = tmp_path / "kernel.py", tmp_path / "golden.npy"
    script.write_text(KERNEL, encoding="utf-8")
    np.save(golden, np.arange(512, dtype=np.float32) * 2)
    return script, golden


def document(capsys, *arguments):
    code = main([*map(str, arguments), "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("how", "reasons"),
    [
        ("right", []),
        ("wrong", ["values are over budget"]),
        ("races", ["the checks found something"]),
        ("refused", ["a kernel is refused"]),
    ],
)
def test_judge_says_what_is_wrong(files, capsys, how, reasons):
    script, golden = files
    code, said = document(capsys, "judge", script, "--golden", golden, how)
    assert (code, said["verdict"], said["reasons"]) == (int(bool(reasons)), "fail" if reasons else "pass", reasons)
    assert said["values_judged"] == (how != "refused")
    again = document(capsys, "judge", script, "--golden", golden, how)
    assert again == (code, said)
    if how == "refused":
        (finding,) = said["refusals"]
        assert (finding["kind"], finding["launch"]) == ("ErrorRead3", "double")
        assert KERNEL.splitlines()[finding["line"] - 1].lstrip().startswith("core.muls")
        return
    (call,) = said["calls"]
    (launch,) = call["launches"]
    assert launch["total_cycles"] >= max(launch["core_cycles"]) > 0
    assert len(launch["core_cycles"]) == launch["core_count"] == 1
    (tensor,) = call["values"]
    assert (tensor["name"], tensor["wrong_count"] > 0) == ("y", how == "wrong")
    if how == "wrong":
        assert (tensor["index"], tensor["actual"], tensor["golden"]) == ([128], 384.0, 256.0)
    assert call["error_count"] == sum(finding["severity"] == "error" for finding in call["findings"])
    assert bool(call["error_count"]) == (how == "races")


def test_judge_prints_the_same_and_writes_sarif(files, capsys, tmp_path):
    script, golden = files
    sarif = tmp_path / "found.sarif"
    assert main(["judge", str(script), "--golden", f"y={golden}", "--sarif", str(sarif), "wrong"]) == 1
    said = capsys.readouterr().out
    assert "values of y: at most" in said
    assert "first at [128]: 384, not 256" in said
    assert "fail: values are over budget" in said
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    assert main(["judge", str(script), "refused"]) == 1
    assert "double: refused" in capsys.readouterr().out
    assert main(["judge", str(script), "right"]) == 0
    assert "not judged, no golden is given" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("last", "why"), [("right", "the golden is for another call"), ("refused", "another kernel is refused")]
)
def test_judge_says_why_a_golden_judges_nothing(files, capsys, last, why):
    script, golden = files
    script.write_text(f"{KERNEL}double(x, np.empty_like(x), sys.argv[2], blocks=1, product='Ascend910B2')\n")
    main(["judge", str(script), "--golden", f"y={golden}", "right", last])
    said = capsys.readouterr().out
    assert said.count("values of y: ") == (last == "right")
    assert said.count(f"values: not judged, {why}") == 1
    main(["judge", str(script), "right", last])
    assert f"values: not judged, {why}" not in capsys.readouterr().out


def test_judge_of_a_file_without_kernels_or_with_an_error_fails(tmp_path, capsys):
    script = tmp_path / "empty.py"
    script.write_text("print('nothing')\n")
    code, said = document(capsys, "judge", script)
    assert (code, said["reasons"]) == (1, ["no kernel was launched"])
    script.write_text("raise ValueError('mine')\n")
    code, said = document(capsys, "judge", script)
    assert (code, said["reasons"], said["error"]) == (
        1,
        ["the file ended with an error", "no kernel was launched"],
        "ValueError: mine",
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--golden", "w={golden}"], "tensor that the call writes (y), not of 'w'"),
        (["--golden", "{golden}", "--golden", "y={golden}"], "y must have one golden, not two"),
        (["--golden", "missing.npy"], "golden must be a .npy or .npz file of numbers, not missing.npy"),
        (["--golden", "{golden}", "--call", "3"], "--call must be a call of a kernel that ended (0), not 3"),
    ],
)
def test_judge_refuses_goldens_that_fit_nothing(files, capsys, given, words):
    script, golden = files
    arguments = [text.format(golden=golden) for text in given]
    assert main(["judge", str(script), *arguments, "right"]) == 2
    assert words in capsys.readouterr().err


def test_judge_takes_goldens_by_name_from_an_archive(files, capsys, tmp_path):
    script, _ = files
    archive = tmp_path / "goldens.npz"
    np.savez(archive, y=np.arange(512) * 2.0)
    code, said = document(capsys, "judge", script, "--golden", archive, "--budget", "0", "right")
    assert code == 0
    assert said["calls"][0]["values"][0]["budget"] == 0


def test_diverge_names_the_line_and_dumps_the_operands(files, capsys, tmp_path):
    script, golden = files
    code, said = document(capsys, "diverge", script, "--golden", golden, "--dump", tmp_path / "seen.npz", "wrong")
    assert code == 1
    assert said["diverges"]
    assert KERNEL.splitlines()[said["suspect"]["line"] - 1].lstrip().startswith("core.muls")
    assert said["suspect"]["tile"] == said["store"]["tile"] == 2
    with np.load(tmp_path / "seen.npz") as seen:
        assert np.array_equal(seen["reads_UB"], np.arange(128, 192))
        assert np.array_equal(seen["writes_UB"], 3.0 * np.arange(128, 192))
    code, said = document(capsys, "diverge", script, "--golden", golden, "right")
    assert (code, said["diverges"], said["suspect"]) == (0, False, None)


def test_diverge_beside_a_good_file(files, capsys, tmp_path):
    script, golden = files
    good = tmp_path / "good.py"
    good.write_text(KERNEL.replace("sys.argv[1]", "'right'"), encoding="utf-8")
    assert main(["diverge", str(script), "--good", str(good), "wrong"]) == 1
    said = capsys.readouterr().out
    assert "it writes other values than its like in the good program" in said
    assert "Muls" in said
    assert main(["diverge", str(script), "--good", str(good), "right"]) == 0
    assert main(["diverge", str(script), "--good", str(good), "--golden", str(golden), "right"]) == 2
    assert "one of --golden and --good must be given" in capsys.readouterr().err


def test_judge_in_another_order_makes_a_race_bite(files, capsys):
    script, golden = files
    code, said = document(capsys, "judge", script, "--golden", golden, "races")
    assert said["calls"][0]["values"][0]["wrong_count"] == 0
    code, said = document(capsys, "judge", script, "--golden", golden, "--order", "late", "races")
    assert (code, "values are over budget" in said["reasons"]) == (1, True)
    code, said = document(capsys, "judge", script, "--golden", golden, "--order", "late", "--seed", "3", "right")
    assert (code, said["reasons"]) == (0, [])
    assert main(["judge", str(script), "--order", "soon", "right"]) == 2
    assert "--order must be program, late, a seed" in capsys.readouterr().err
    assert main(["run", str(script), "--order", "5", "right"]) == 0


def test_stored_programs_are_checked_timed_and_judged(files, capsys, tmp_path):
    golden = files[1]
    stored = {}
    for how in ("right", "races"):
        source, stored[how] = tmp_path / f"{how}.py", tmp_path / f"{how}.npu"
        source.write_text(KERNEL.replace("sys.argv[1]", repr(how)), encoding="utf-8")
        assert main(["program", str(source), "--save", str(stored[how])]) == 0
    capsys.readouterr()
    assert document(capsys, "check", stored["right"])[0] == 0
    code, said = document(capsys, "check", stored["races"])
    (launch,) = said["launches"]
    assert (code, launch["title"], launch["launch"]) == (1, "races.npu", "double")
    assert {finding["kind"] for finding in launch["findings"]} == {"ErrorSync2"}
    assert launch["findings"][0]["line"] > 0
    code, said = document(capsys, "perf", stored["right"])
    assert said["calls"][0]["title"] == "right.npu"
    code, said = document(capsys, "judge", stored["races"])
    assert (code, said["reasons"]) == (1, ["the checks found something"])
    assert main(["check", str(stored["right"]), "--product", "910b"]) == 2
    assert "a stored program, which has its own" in capsys.readouterr().err
    assert main(["judge", str(stored["right"]), "--golden", str(golden)]) == 2
    assert "golden must be of a call of a kernel that ended, but none was run to its end" in capsys.readouterr().err


def test_check_explain_without_a_code_lists_all(capsys):
    from npu_sim.program.finding_codes import CODES

    assert main(["check", "--explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [kind.value for kind in CODES]
    assert main(["check", "--explain", "ErrorBuffer2"]) == 0
    assert "BUFFER_STATE" in capsys.readouterr().out


REFUSED = """
import numpy as np

from npu_sim.authoring import Out, TBuf, TBufPool, TPipe, TPosition, TQue, kernel


@kernel
def misuse(core, y: Out):
    pipe = TPipe(core)
    first = pipe.init_buffer(TQue(TPosition.VECOUT), 1, 256)
    second = pipe.init_buffer(TQue(TPosition.VECOUT), 1, 256)
    t = first.alloc_tensor("float32")
    core.duplicate(t, 0, 64)
    {fault}
    first.enque(t)
    core.data_copy(y, first.deque("float32"), 64)
    first.free_tensor(t)


misuse(np.empty(64, np.float32), blocks=1, product="Ascend910B2")
"""
MISUSES = [
    ("pass", None),
    ("TQue(TPosition.VECIN).alloc_tensor('float32')", "ErrorBuffer0"),
    ("TBufPool(TPosition.VECIN).init_buffer(TBuf(), 32)", "ErrorBuffer4"),
    ("pipe.init_buf_pool(TBufPool(TPosition.VECIN), 256).init_buffer(TBuf(), 32)", None),
    ("second.enque(t)", "ErrorBuffer1"),
    ("first.deque('float32')", "ErrorBuffer2"),
    ("first.enque(t), first.enque(t)", "ErrorBuffer2"),
    ("first.alloc_tensor('float32')", "ErrorBuffer2"),
    ("first.free_tensor(t)", "ErrorBuffer2"),
    ("core.duplicate(t, 0, 128)", "ErrorWrite2"),
    ("core.duplicate(t[1:], 0, 8)", "ErrorWrite4"),
]


@pytest.mark.parametrize(("fault", "kind"), MISUSES)
def test_misuse_of_queues_is_a_finding_with_its_code_and_line(tmp_path, capsys, fault, kind):
    script = tmp_path / "misuse.py"
    script.write_text(REFUSED.format(fault=fault), encoding="utf-8")
    sarif = tmp_path / "found.sarif"
    code, said = document(capsys, "check", script, "--sarif", sarif)
    found = [finding for launch in said["launches"] for finding in launch["findings"]]
    if kind is None:
        assert (code, found) == (0, [])
        return
    assert code == 1
    assert found[0]["kind"] == kind
    at = found[0]["line"]
    line = REFUSED.format(fault=fault).splitlines()[at - 1]
    assert fault in line or fault == "first.free_tensor(t)"
    (result,) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert result["ruleId"] == kind


def test_check_runs_the_file_in_another_order(files, capsys):
    script, golden = files
    text = script.read_text().replace("np.empty_like(x)", "y := np.empty_like(x)")
    text += f"assert np.array_equal(y, np.load({str(golden)!r}))\n"
    script.write_text(text)
    assert main(["check", str(script), "right"]) == 0
    ended = []
    for order in ("program", "late"):
        assert main(["check", str(script), "--order", order, "races"]) == 1  # the checks find the race in any
        ended.append("AssertionError" in capsys.readouterr().err)
    assert ended == [False, True]
    assert main(["check", "--product", "310p", "--order", "late"]) == 2
    assert "--order and --core-order must be given with a Python file" in " ".join(capsys.readouterr().err.split())


def test_check_names_the_order_in_which_a_race_bites(files, capsys):
    """One command, and the values are others; in another process the same. A kernel without the race refuses it."""
    script, golden = files
    script.write_text(script.read_text().replace("np.empty_like(x)", "y := np.empty_like(x)") + "print(y.tolist())\n")
    code, said = document(capsys, "check", script, "races")
    (found,) = said["launches"][0]["findings"]
    option, race = found["order"].split()
    assert (code, option) == (1, "--order")
    assert main(["check", str(script), "races"]) == 1
    assert f"to see it: {found['order']}, with npu-sim run or judge" in capsys.readouterr().out

    values = []
    for order in ("program", race):
        assert main(["run", str(script), "--order", order, "races"]) == 0
        values.append(json.loads(capsys.readouterr().out.splitlines()[0]))
    right, bitten = map(np.array, values)
    assert np.array_equal(right, np.load(golden))
    assert not np.array_equal(bitten[:64], right[:64])
    assert np.array_equal(bitten[64:], right[64:])  # the race is that of the first tile
    command = [sys.executable, "-m", "ops.cli.main", "run", str(script), "--order", race, "races"]
    assert json.loads(subprocess.check_output(command, text=True).splitlines()[0]) == values[1]
    code, said = document(capsys, "judge", script, "--golden", f"y={golden}", "--order", race, "races")
    (tensor,) = said["calls"][0]["values"]
    assert (code, 0 < tensor["wrong_count"] <= 64) == (1, True)
    assert said["calls"][0]["findings"][0]["order"] == f"--order {race}"

    for how, order in (("right", race), ("races", race.replace("double", "triple")), ("races", f"{race}0")):
        for command in ("run", "judge", "check"):
            assert main([command, str(script), "--order", order, how]) == 2
            assert "--order must be a race of a kernel in Python of the file" in capsys.readouterr().err
    script.write_text("raise SystemExit('the file was run')")
    for order in ("race:double:0:1", "race::0:1:2", "race:double:0:1:-2", "race"):
        assert main(["run", str(script), "--order", order, "races"]) == 2
        assert "--order must be program, late, a seed" in " ".join(capsys.readouterr().err.split())


def test_the_order_of_cores_in_which_their_race_bites(files, capsys):
    script, _ = files
    text = script.read_text().replace("else 2.0", "else 2.0 + core.block_idx").replace("blocks=1", "blocks=40")
    script.write_text(text.replace("np.empty_like(x)", "y := np.empty_like(x)") + "print(y[1])\n")
    _, said = document(capsys, "check", script, "right")
    option, seed = said["launches"][0]["findings"][0]["order"].split()
    assert option == "--core-order"
    values = []
    for order in ([], [option, seed]):
        assert main(["run", str(script), *order, "right"]) == 0
        values.append(capsys.readouterr().out.splitlines()[0])
    assert values == ["41.0", "2.0"]


@pytest.mark.parametrize("command", ["run", "check", "judge"])
def test_a_seed_of_more_than_64_bits_is_refused_before_the_file_runs(command, files, capsys):
    script, _ = files
    script.write_text("raise SystemExit('the file was run')")
    assert main([command, str(script), "--core-order", str(2**63)]) == 2
    assert "--core-order" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "judge", "perf", "diverge"])
def test_a_product_that_no_call_runs_on_is_refused(command, files, capsys):
    script, golden = files
    more = ["--golden", f"y={golden}"] if command in ("judge", "diverge") else []
    arguments = [command, str(script), *more, "--product"]
    assert main([*arguments, "910", "right"]) == 2
    assert "1 of 1 call of" in (error := " ".join(capsys.readouterr().err.split()))
    assert "names Ascend910B2" in error
    assert main([*arguments, "910b", "right"]) == 0


@pytest.mark.parametrize("command", ["check", "program"])
def test_a_core_that_no_launch_has_is_refused(command, files, capsys):
    script, _ = files
    script.write_text(KERNEL.replace("sys.argv[1]", "'right'"))
    assert main([command, str(script), "--core", "0"]) == 0
    assert main([command, str(script), "--core", "1"]) == 2
    assert "--core must be in [0, 0], the cores of the launches, not 1" in " ".join(capsys.readouterr().err.split())


def test_a_layer_of_the_step_has_no_core_beyond_those_of_its_product(capsys):
    shape = ["--x", "1,16,6,6", "--weight", "16,16,3,3", "--product", "910b"]
    assert main(["check", *shape, "--core", "48"]) == 2
    assert "--core must be in [0, " in capsys.readouterr().err


def test_a_pass_without_a_golden_says_that_no_value_was_judged(files, capsys):
    script, golden = files
    assert main(["judge", str(script), "right"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "pass: the checks; no value was judged"
    assert main(["judge", str(script), "--golden", f"y={golden}", "right"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "pass"

"""``npu-sim run``, and ``perf`` and ``check`` of a Python file."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from npu_sim.products import get_product
from ops.cli.main import main
from tests.oracles.series import SERIES

DRIVER = """
import sys, warnings
import numpy as np
from npu_sim import current_product
from ops.ascendc import *

warnings.simplefilter("ignore")
tiling = TConv3DBpFilterTiling(
    batch=1, cin=16, cout=16, cin1G=1, cout1G=1, dout=1, ho=4, wo=4, di=1, hi=4, wi=4, dk=1, hk=1, wk=1, group=1,
    padUp={pad}, strideD=1, strideH=1, strideW=1, dilationD=1, dilationH=1, dilationW=1,
    channelSize=16, al0Pbuffer=2, bl0Pbuffer=2,
    cl0Pbuffer=1, al1Pbuffer=1, bl1Pbuffer=1, baseM=16, baseK=16, baseN=16, m0=16, k0=16, n0=16, stepM=1, stepN=1,
    stepKa=1, stepKb=1, bl1Bound=256, singleCoreDk=1, singleCoreGroup=1, singleCoreCout=16, singleCoreHo=4,
    singleCoreBatch=1, singleCoreCin=16,
)
half = ConvType(TPosition.GM, ConvFormat.NDC1HWC0, np.float16)
size = ConvType(TPosition.GM, ConvFormat.ND, np.int32)
result = ConvType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, np.float32)
x = dy = np.ones(256, np.float16)
dw = np.zeros(256, np.float32)

def kernel():
    obj = Conv3DBackpropFilter(half, size, half, result)
    obj.Init(tiling)
    obj.SetGradOutput(dy); obj.SetInput(x); obj.SetSingleShape(16, 16, 16); obj.SetStartPosition(0)
    while obj.Iterate():
        obj.GetTensorC(dw, {atomic})
    obj.End()

launch(kernel, {cores})
print(sys.argv[1:], current_product().name, float(dw[0]), __name__)
{end}
"""


@pytest.fixture(autouse=True)
def _no_note_of_compilation(monkeypatch):
    monkeypatch.setattr("ops.cli.scripts.note_compilation", lambda: None)


@pytest.fixture
def script(tmp_path):
    def write(cores=2, atomic=1, end="", pad=0):
        path = tmp_path / "driver.py"
        path.write_text(DRIVER.format(cores=cores, atomic=atomic, end=end, pad=pad))
        return str(path)

    return write


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_run_file_runs_as_a_program_with_its_arguments_and_the_product(capsys, script):
    before = list(sys.argv), list(sys.path)
    code, out, _ = run(capsys, "run", script(), "--product", "910_93", "--", "a", "--b")
    assert (code, out) == (0, "['a', '--b'] Ascend910_9392 32.0 __main__\n")
    assert (sys.argv, sys.path) == before


def test_run_explain_prints_tiling_walk_and_launch(capsys, script):
    code, out, _ = run(capsys, "run", script(), "--explain")
    assert code == 0
    lines = out.splitlines()
    assert lines[:3] == ["[] Ascend910B2 32.0 __main__", "kernel (Ascend910B2)", "  types: SrcT half, DstT float"]
    text = " ".join(out.split())
    assert "tiling: batch 1, cin 16, cout 16, cin1G 1," in text
    assert "counts: single shapes 2, base blocks 2, loads of gradOutput (A1) 2, loads of input (B1) 2," in text
    table = [line.split() for line in lines[lines.index("  walk (2 base blocks)") :]]
    assert table[1] == [
        "core",
        "shape",
        "M",
        "N",
        "K",
        "ho",
        "m",
        "n",
        "L1",
        "loads",
        "K",
        "steps",
        "L0C",
        "stored",
        "at",
        "how",
    ]
    assert table[2] == ["0", "0", "16", "16", "16", "0", "0", "0", "AB", "1", "0", "0", "atomic"]
    assert table[3] == ["1", "0", "16", "16", "16", "0", "0", "0", "AB", "1", "0", "0", "atomic"]
    assert "  launch: kernel: 2 cores, 1 phase" in lines


def test_run_json_on_standard_output_is_alone_there(capsys, script):
    code, out, err = run(capsys, "run", script(), "--json", "-")
    document = json.loads(out)
    assert (code, document["schema_version"], document["exit_code"]) == (0, 1, 0)
    (made,) = document["explanations"]
    assert made["facts"]["tiling"]["baseM"] == 16
    assert made["launches"] == [{"name": "kernel", "works_on": "", "core_count": 2, "phase_count": 1}]
    assert "32.0 __main__" in err


def test_run_json_file_is_written(capsys, script, tmp_path):
    target = tmp_path / "report.json"
    code, out, _ = run(capsys, "run", script(), "--json", target)
    assert code == 0
    assert out.endswith(f"written: {target}\n")
    assert json.loads(target.read_text())["explanations"][0]["title"] == "kernel"


def test_run_file_without_operators_says_so(capsys, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text("print('hello')\n")
    assert run(capsys, "run", path, "--explain")[:2] == (0, "hello\nno operator was called\n")


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        ("raise SystemExit", 0, None),
        ("raise SystemExit(3)", 1, None),
        ("sys.exit('so not')", 1, "so not"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("dw.no_such", 1, "AttributeError: 'numpy.ndarray' object has no attribute 'no_such'"),
    ],
)
def test_run_file_that_ends_early_gives_its_exit_code_and_its_own_traceback(capsys, script, end, code, last):
    path = script(end=end)
    found, _, err = run(capsys, "run", path)
    assert found == code
    if last:
        assert err.splitlines()[-1] == last
    if "Error" in (last or ""):
        frames = [line for line in err.splitlines() if line.startswith('  File "')]
        assert frames[0].startswith(f'  File "{path}", line ')


def test_run_file_that_python_cannot_read_shows_the_place_and_nothing_of_the_command_line(capsys, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nif x = 1:\n    pass\n")
    code, out, err = run(capsys, "run", path)
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[:2] == [f'  File "{path}", line 2', "    if x = 1:"]
    assert lines[-1].startswith("SyntaxError: invalid syntax")
    assert len(lines) == 4


def test_run_file_that_imports_a_broken_one_shows_its_own_frame_first(capsys, tmp_path):
    (tmp_path / "broken.py").write_text("1 +\n")
    path = tmp_path / "good.py"
    path.write_text("import broken\n")
    code, _, err = run(capsys, "run", path)
    frames = [line for line in err.splitlines() if line.startswith('  File "')]
    assert code == 1
    assert frames == [f'  File "{path}", line 1, in <module>', f'  File "{tmp_path / "broken.py"}", line 1']


def test_run_file_that_is_refused_still_explains_what_ran_before(capsys, script):
    code, out, err = run(capsys, "run", script(end="tiling.baseM = 0\nkernel()"), "--explain")
    assert code == 1
    assert "kernel (Ascend910B2)" in out
    assert "Capacity baseM must be at least 1, not 0 (Conv3DBackpropFilter.Init)" in err
    assert "npu-sim: the script ended with an error; what follows is about what ran before it" in err


@pytest.mark.parametrize("command", ["run", "perf", "check"])
def test_missing_script_is_bad_input(capsys, command):
    code, _, err = run(capsys, command, "no/such.py")
    assert (code, err) == (2, "npu-sim: error: Script must be an existing file, not no/such.py\n")


@pytest.mark.parametrize("command", ["perf", "check"])
@pytest.mark.parametrize(
    "option", [("--model", "resnet50"), ("--layer", "a"), ("--cube-math-type", "1"), ("--x", "1,1,1,1")]
)
def test_script_with_an_option_of_shapes_is_bad_input(capsys, script, command, option):
    code, _, err = run(capsys, command, script(), *option)
    assert (code, err) == (2, f"npu-sim: error: {option[0]} must not be given together with a script\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--trace", "-"), "--trace must be a file, not standard output"),
        (("--trace-core", "0"), "--trace-core must be given together with --trace or --op-prof"),
    ],
)
def test_perf_of_a_script_with_a_trace_to_nowhere_is_bad_input(capsys, script, options, message):
    assert run(capsys, "perf", script(), *options) == (2, "", f"npu-sim: error: {message}\n")


def test_perf_of_a_script_with_a_trace_of_a_core_it_does_not_have_is_bad_input(capsys, script, tmp_path):
    target = tmp_path / "trace.json"
    code, _, err = run(capsys, "perf", script(), "--trace", target, "--trace-core", 2)
    assert (code, err.splitlines()[-1]) == (2, "npu-sim: error: Core must be in [0, 1], not 2")
    assert not target.exists()


@pytest.mark.parametrize(("command", "verb"), [("perf", "time"), ("check", "check")])
def test_script_that_launches_nothing_is_a_failure(capsys, tmp_path, command, verb):
    path = tmp_path / "plain.py"
    path.write_text("")
    code, out, _ = run(capsys, command, path)
    assert (code, out) == (1, f"nothing to {verb}: no operator of the file launched a kernel\n")


def test_check_of_a_script_without_hazards_passes(capsys, script):
    code, out, _ = run(capsys, "check", script(), "--", "a", "--b")
    assert (code, out) == (
        0,
        "['a', '--b'] Ascend910B2 32.0 __main__\nkernel (Ascend910B2)\n  kernel: 0 findings\n"
        "1 call, 1 launch: 0 findings\n",
    )


def test_check_of_a_script_whose_cores_overwrite_each_other_finds_it(capsys, script):
    code, out, _ = run(capsys, "check", script(atomic=0))
    assert code == 1
    assert out.splitlines()[1:3] == ["kernel (Ascend910B2)", "  kernel: 1 finding"]
    assert out.splitlines()[3].startswith("    ErrorSync1 core 1 tile 0 row")
    assert out.splitlines()[-1] == "1 call, 1 launch: 1 finding"
    code, out, _ = run(capsys, "check", script(atomic=0), "--json", "-")
    (launch,) = json.loads(out)["launches"]
    assert (code, [finding["kind"] for finding in launch["findings"]]) == (1, ["ErrorSync1"])


def test_load_all_in_the_padding_is_a_note_and_a_finding(capsys, script):
    text = (
        "Iterate must find a row of input under every K step, not 1 K steps with all rows in the padding; the "
        "published kernel multiplies what an earlier load left in L0B, here they count as zeros"
    )
    code, out, _ = run(capsys, "run", script(cores=1, pad=4), "--explain")
    assert code == 0
    assert f"note: {text}" in " ".join(out.split())
    code, out, _ = run(capsys, "check", script(cores=1, pad=4))
    assert code == 1
    assert "  kernel: 1 finding" in out.splitlines()
    assert f"    UndefinedOnHardware core 0 tile 0 row 6 {text}" in out.splitlines()


CALLS = """
import numpy as np
import ops

x = np.ones((1, 4, 6, 5), np.float16)
w = np.ones((4, 2, 3, 2), np.float16)
g = np.ones((1, 4, 3, 5), np.float16)
r = ops.convolution_backward(g, x, w, stride=[2, 1], padding=[1, 1, 1, 0], dilation=1, groups=2)
print(r.product.name)
"""


@pytest.mark.parametrize("product", SERIES)
def test_check_of_a_whole_backward_call_lets_later_launches_read_what_earlier_ones_wrote(capsys, tmp_path, product):
    path = tmp_path / "calls.py"
    path.write_text(CALLS)
    code, out, _ = run(capsys, "check", path, "--product", product)
    name, *lines = out.splitlines()
    assert name == get_product(product).name
    assert code == 0
    call = "gradOutput fp16 1x4x3x5, input fp16 1x4x6x5, weight fp16 4x2x3x2, stride 2x1, padding 1x1x1x0, groups 2"
    launches = [line for line in lines if line.startswith("  ")]
    heading = " ".join(line for line in lines[:-1] if not line.startswith("  "))
    assert heading.split() == f"aclnnConvolutionBackward ({name}): {call}".split()
    assert len(launches) > 5
    for number, line in enumerate(launches):
        assert re.fullmatch(rf"  {number} (\w+ \(\w.* -> \w+\)|MemSet \((grad_)?weight\)): 0 findings", line)
    assert lines[-1] == f"1 call, {len(launches)} launches: 0 findings"


def test_check_of_a_call_without_its_first_launches_finds_the_reader_of_what_they_write(monkeypatch, capsys, tmp_path):
    path = tmp_path / "calls.py"
    path.write_text(CALLS)
    code, out, _ = run(capsys, "check", path, "--json", "-")
    whole = json.loads(out)["launches"]
    from ops.conv_backward import api

    explain = api.explain_call

    def without_the_layout_of_the_gradient(plan):
        made = explain(plan)
        first = next(i for i, launch in enumerate(made.launches) if launch.name == "TransData")
        launches, works = list(made.launches), list(made.launch_works)
        del launches[first], works[first]
        return replace(made, launches=tuple(launches), launch_works=tuple(works))

    monkeypatch.setattr(api, "explain_call", without_the_layout_of_the_gradient)
    code, out, _ = run(capsys, "check", path, "--json", "-")
    found = {row["launch"] for row in json.loads(out)["launches"] if row["findings"]}
    assert code == 1
    assert found == {"Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"} & {row["launch"] for row in whole}
    assert found


@pytest.mark.parametrize("command", ["run", "perf", "check", "program", "judge"])
def test_two_products_for_a_script_are_bad_input(capsys, script, command):
    code, _, err = run(capsys, command, script(), "--product", "910b", "--product", "910_93")
    assert (code, err) == (2, "npu-sim: error: --product must be given once for a script, not 2 times\n")


def test_two_products_for_a_program_are_bad_input(capsys):
    code, _, err = run(capsys, "cc", "a.cpp", "--product", "910b", "--product", "910_93")
    assert (code, err) == (2, "npu-sim: error: --product must be given once for a program, not 2 times\n")


def test_example_driver_runs_times_and_checks(capsys):
    example = Path(__file__).parents[2] / "examples" / "conv3d_backprop_filter.py"
    code, out, _ = run(capsys, "run", example, "--", "--cores", "7")
    assert (code, out.split(":")[0]) == (0, "dW (96, 16, 3, 3, 3) on 7 cores of Ascend910B2")
    code, out, _ = run(capsys, "check", example)
    assert (code, out.splitlines()[-1]) == (0, "1 call, 1 launch: 0 findings")

"""Programs with kernels of their own: launches by brackets and by name, and what is told when a kernel goes wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim._jit import cache_parent
from npu_sim.errors import ShapeError
from ops.cli import host_program
from ops.cli.main import main

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
IN_KERNEL = r"core 0 {} \(scale<T>, Ascend910B2, \S*launches\.asc:{}\)"
WRONG = {
    "endless": IN_KERNEL.format(r"must not loop without an instruction for 0\.5 seconds", 21),
    "crash": IN_KERNEL.format(
        r"SIGSEGV: it touched memory at 0x1, which is not its own; if that is a place in UB: .*", 21
    ),
    "assertion": IN_KERNEL.format("assertion must hold: length == 1", 27),
    "host": "x must be live device memory, not host memory at 0x[0-9a-f]+",
    "many_blocks": r"blocks must be in \[1, 65535\], not 99999 \(scale<T>, Ascend910B2\)",
    "freed": r"x must be live device memory, not device memory of aclrtMalloc \d+, freed by aclrtFree",
}


@pytest.fixture(scope="module")
def program(sdk, tmp_path_factory):
    made = tmp_path_factory.mktemp("launches") / "program"
    sources = [str(PROGRAMS / name) for name in ("launches_main.cpp", "launches.asc")]
    assert main(["cc", *sources, "-o", str(made), "--", "-Wall", "--npu-arch=dav-2201"]) == 0
    return made


@pytest.fixture(scope="module")
def example(sdk, tmp_path_factory):
    # compiled and linked apart, as the rules of a build do it
    made = tmp_path_factory.mktemp("launches") / "add"
    assert main(["cc", str(ROOT / "examples/acl/add.asc"), "-o", f"{made}.o", "--", "-c"]) == 0
    assert main(["cc", f"{made}.o", "-o", str(made)]) == 0
    return made


@pytest.fixture(scope="module")
def wrong(program, started):
    uses = (*WRONG, "no_stream", "prints", "race", "nothing")
    return started(program, *uses, NPU_SIM_SILENCE="0.5", NPU_SIM_CHECK="1")


def test_example_adds_and_is_checked(example, started):
    done = started(example, NPU_SIM_CHECK="1", NPU_SIM_PERF="1")
    assert (done.returncode, done.stdout) == (0, "Ascend910B2: 32768 sums, 0 wrong\n")
    assert "add<T> (Ascend910B2): x uint8 65536, y uint8 65536, z uint8 65536, lengths 8 bytes" in done.stderr
    assert "2 calls, 2 launches: 0 findings" in done.stderr
    assert "critical path" in done.stderr


def test_kernels_may_have_the_names_of_other_functions(sdk, started, tmp_path):
    source, made = PROGRAMS / "shared_names.asc", tmp_path / "names"
    assert main(["cc", str(source), "-o", str(made)]) == 0
    done = started(made, NPU_SIM_CHECK="1")
    assert (done.returncode, done.stdout) == (0, "7.5 7.5\n")
    assert "more::raise<float, 3> (Ascend910B2): x uint8 256, y uint8 256, step 4 bytes, n 64" in done.stderr
    assert "2 calls, 2 launches: 0 findings" in done.stderr
    x, y = np.full(64, 3, np.float32), np.zeros(64, np.float32)
    for kernel, given, result in (("scale", (), 6), ("more::raise<float>", (np.float32(0.5).tobytes(),), 3.5)):
        run = ascendc.compile(source, kernel)(x, y, *given, 64, outputs=[1], product="910b")
        assert (run.findings, y.tolist()) == ((), [result] * 64)


def test_program_without_an_end_reports_before_its_libraries_are_taken_down(sdk, started, tmp_path):
    made = tmp_path / "unfinished"
    assert main(["cc", str(PROGRAMS / "unfinished.asc"), "-o", str(made)]) == 0
    assert started(made, NPU_SIM_CHECK="1").returncode == 0
    # one function that the report needs is not compiled yet, so the report compiles while the program exits
    missing, cache = "end_core-*.code", tmp_path / "cache"
    left_out = shutil.ignore_patterns(missing, "*.part", "ascendc", "acl*")
    shutil.copytree(cache_parent(), cache, ignore=left_out)
    done = started(made, NPU_SIM_CHECK="1", NUMBA_CACHE_DIR=str(cache))
    assert (done.returncode, done.stdout) == (0, "6\n")
    assert ": 0 findings" in done.stderr
    assert [*cache.glob(f"*/{missing}")]


def test_pointers_of_lists_of_tensors_are_followed(sdk, started, tmp_path):
    made = tmp_path / "lists"
    assert main(["cc", str(PROGRAMS / "lists.asc"), "-o", str(made)]) == 0
    done = started(made, NPU_SIM_CHECK="1")
    status, _, said, *_ = done.stdout.split("\n")
    assert (done.returncode, status) == (0, "0 0 507015")
    assert re.search(
        r"tensor 1 of a list must be live device memory, not device memory of aclrtMalloc \d+, freed", said
    )
    assert "in 2 tensors, out 2 tensors, first uint8" in done.stderr


def test_more_blocks_than_cores_all_run(sdk, started, tmp_path):
    made = tmp_path / "many_blocks"
    assert main(["cc", str(PROGRAMS / "many_blocks.asc"), "-o", str(made)]) == 0
    done = started(made, NPU_SIM_CHECK="1")
    assert (done.returncode, done.stdout) == (0, "0 0\n")
    assert ": 0 findings" in done.stderr


def test_kinds_of_cores_run_their_own_code(sdk, started, tmp_path):
    made = tmp_path / "kinds"
    assert main(["cc", *(str(PROGRAMS / name) for name in ("kinds.asc", "kinds_other.asc")), "-o", str(made)]) == 0
    done = started(made, NPU_SIM_CHECK="1")
    assert (done.returncode, done.stdout) == (0, "0 64 0\n0 0 64\n0 64 64\n154\n")
    assert "argument 0 40 bytes with 2 pointers" in done.stderr
    assert "4 calls, 4 launches: 0 findings" in done.stderr


def test_a_kernel_is_for_the_cores_that_its_own_code_asks_for(sdk, started, tmp_path):
    made = tmp_path / "cores"
    assert main(["cc", str(PROGRAMS / "cores.asc"), "-o", str(made)]) == 0
    done = started(made)
    # one vector core for each block alone, two with a Cube core
    assert (done.returncode, done.stdout) == (0, "010010\n111111\n")


@pytest.mark.parametrize("options", [(), ("-DHAVE_WORKSPACE",), ("-DHAVE_WORKSPACE", "-DHAVE_TILING")])
def test_a_workspace_of_a_kernel_is_behind_that_of_the_system(sdk, started, tmp_path, options):
    made = tmp_path / "workspace"
    assert main(["cc", str(PROGRAMS / "workspace.asc"), "-o", str(made), "--", *options]) == 0
    done = started(made)
    assert (done.returncode, done.stdout) == (0, "0 64 1 0\n")
    if options:
        done = started(made, "without")
        assert done.stdout == "507015 0 0 0\n"
        assert "argument 1 of the kernel must be its workspace, not nullptr (HAVE_WORKSPACE)" in done.stderr


def test_example_is_for_the_product_it_was_compiled_for(example, started):
    done = started(example, NPU_SIM_PRODUCT="310p")
    assert (done.returncode, done.stdout) == (1, "")
    assert "compiled for, __NPU_ARCH__ 2201, not on Ascend310P3 (2002): npu-sim cc --product" in done.stderr


@pytest.mark.parametrize("what", WRONG)
def test_kernel_that_goes_wrong_is_a_status_of_the_stream(wrong, what):
    _, status, first, second = re.split(rf"^{what}: (\d+)\n(.*)\n(.*)$", wrong.stdout, flags=re.MULTILINE)[:4]
    assert status == "507015"
    assert first.startswith("507015 ACL_ERROR_RT_AICORE_EXCEPTION: aclrtSynchronizeStream: ")
    place = r"507015 ACL_ERROR_RT_AICORE_EXCEPTION: scale<T><<<>>> \(\S*launches\.h:13\): "
    assert re.fullmatch(place + WRONG[what], second), second


def test_launch_on_what_is_no_stream_is_reported_where_it_stands(wrong):
    assert re.search(
        r"^no_stream: 0\n107017 ACL_ERROR_RT_INVALID_HANDLE: scale<T><<<>>> \(", wrong.stdout, re.MULTILINE
    )
    assert re.search(r"^npu-sim: scale<T><<<>>> \(\S*launches\.h:13\) gave 107017$", wrong.stderr, re.MULTILINE)


def test_launches_run_in_the_order_of_the_stream_from_all_sources(wrong):
    # behind all that went wrong, in the same process
    assert wrong.returncode == 0
    assert wrong.stdout.endswith("nothing: 0\n\n36 1143 7 7 5 64\n")


def test_kernels_print_and_are_checked(wrong):
    assert "block 0 of 2\nblock 1 of 2\nprints: 0\n\nrace: 0\n\n" in wrong.stdout
    assert re.search(r"launches\.asc:33: ErrorSync1 core 1 .* in the same phase$", wrong.stderr, re.MULTILINE)
    assert "bytes z[256:512]" in wrong.stderr


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "86401"])
def test_silence_is_seconds(monkeypatch, text):
    monkeypatch.setenv("NPU_SIM_SILENCE", text)
    with pytest.raises(ShapeError, match=f"NPU_SIM_SILENCE must be seconds, more than 0 and at most 86400, not {text}"):
        host_program._silence()


def test_errors_are_those_of_the_users_source(sdk, capsys, tmp_path):
    source = tmp_path / "wrong.asc"
    source.write_text(
        '#include "kernel_operator.h"\n__global__ __aicore__ void f(GM_ADDR x) {\n}\n'
        "void g() {\n  f<<<1, nullptr,\n  nullptr>>>(nowhere);\n}\n"
    )
    assert main(["cc", str(source)]) == 2
    said = capsys.readouterr().err
    assert "wrong.asc:6:" in said
    assert "npu-sim-" not in said
    source.write_text(source.read_text().replace("nullptr>>>", "nullptr>>"))
    assert main(["cc", str(source)]) == 2
    assert f"{source}:5: launch must be kernel<<<blocks, l2, stream>>>(arguments)" in capsys.readouterr().err

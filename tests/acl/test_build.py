"""``npu-sim sdk`` and ``npu-sim cc``: what they print and build, and what they say where something is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from npu_sim import _jit, compilers
from ops.acl import build
from ops.cli.main import main

SAMPLE = Path(__file__).parents[2] / "examples" / "acl" / "avg_pool2d_backward.cpp"
HELLO = '#include <cstdio>\n#include "acl/acl.h"\nint main() { std::printf("%d\\n", aclInit(nullptr)); }\n'


def test_sdk_prints_a_folder_like_a_toolkits_and_options(sdk, capsys):
    assert main(["sdk"]) == 0
    root = Path(capsys.readouterr().out.strip())
    assert root == sdk.root
    assert (root / "include/acl/acl.h").is_file()
    assert {path.name for path in (root / "lib64").glob("*.so")} == set(build.LIBRARIES)
    assert main(["sdk", "--cflags", "--libs"]) == 0
    words = capsys.readouterr().out.split()
    assert words[0] == f"-I{root}/include"
    assert words[-3:] == ["-lopapi", "-lnnopbase", "-lascendcl"]


def test_cc_compiles_a_program_that_finds_everything_by_itself(sdk, capsys, tmp_path, started):
    source = tmp_path / "hello.cpp"
    source.write_text(HELLO)
    assert main(["cc", str(source), "-o", str(tmp_path / "hello"), "--", "-O1"]) == 0
    assert capsys.readouterr() == ("", "")
    assert started(tmp_path / "hello").stdout == "0\n"


def test_cc_ends_with_what_the_compiler_says(sdk, capsys, tmp_path):
    source = tmp_path / "wrong.cpp"
    source.write_text("int main() { return nowhere; }\n")
    assert main(["cc", str(source), "-o", str(tmp_path / "wrong")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("npu-sim: error: ")
    assert "wrong.cpp must be C++ that" in said
    assert "nowhere" in said


@pytest.mark.parametrize("option", ["-I", "-O2", "-std=c++20"])
def test_cc_says_where_options_of_the_compiler_stand(capsys, option):
    assert main(["cc", "a.cpp", option, "folder", "-o", "a", "--", "-g"]) == 2
    wanted = f"options of the compiler must stand behind --, as in: npu-sim cc a.cpp -o a -- {option}"
    assert capsys.readouterr().err == f"npu-sim: error: {wanted}\n"


def test_sdk_is_found_by_cmake(sdk, capsys, tmp_path, started):
    if shutil.which("cmake") is None or shutil.which("make") is None:
        pytest.skip("needs cmake and make")
    (tmp_path / "hello.cpp").write_text(HELLO)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(hello CXX)\nfind_package(npu-sim REQUIRED)\n"
        "add_executable(hello hello.cpp)\ntarget_link_libraries(hello npu-sim::acl)\n"
    )
    assert main(["sdk", "--cmake"]) == 0
    option = capsys.readouterr().out.strip()
    for command in (["cmake", option, "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert started(tmp_path / "build/hello").stdout == "0\n"


def test_without_a_compiler_one_line_says_what_brings_one(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    assert main(["cc", str(SAMPLE)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install ziglang (the extra cpp)" in said


def test_python_without_a_shared_library_is_told(monkeypatch):
    monkeypatch.setattr(build.sysconfig, "get_config_var", lambda name: None)
    monkeypatch.setattr(build.sys, "base_prefix", "/nowhere")
    with pytest.raises(build.MissingExtraError, match=r"apt install libpython3\.\d+"):
        build.shared_python()


def test_what_a_program_waits_for_has_no_kernels_in_python():
    code = "import sys, ops.acl.build\nsys.exit('npu_sim.authoring' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0


def test_libraries_need_a_place(monkeypatch, sdk):
    monkeypatch.setattr(_jit, "why_not_kept", lambda: "others can write to /cache")
    with pytest.raises(build.LibraryError, match="others can write to /cache; NUMBA_CACHE_DIR names another"):
        build.build_sdk()


def test_build_that_fails_leaves_nothing(monkeypatch, sdk, tmp_path):
    monkeypatch.setattr(_jit, "cache_parent", lambda: str(tmp_path))
    with pytest.raises(compilers.CompilationError, match=r"libascendcl\.so must be C"):
        build.build_sdk(compilers.Compiler((*compilers.find_compiler().command, "-include", "/nowhere.h")))
    assert list(tmp_path.iterdir()) == []

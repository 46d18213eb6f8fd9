"""The C++ compiler: which one is taken, what is said without one, and what comes of a source that it refuses."""

from __future__ import annotations

import stat
import sys

import pytest

from npu_sim import compilers
from npu_sim.compilers import CompilationError, Compiler, find_compiler
from npu_sim.errors import InputFileError, MissingExtraError


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A machine whose PATH holds only what the test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)

    def add(name: str, text: str = "exit 0") -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return add


def test_own_compiler_stands_before_gxx_before_clang_before_zig(programs, monkeypatch):
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: name == "ziglang" or None)
    assert find_compiler().command == (sys.executable, "-m", "ziglang", "c++")
    clang = programs("clang++")
    assert find_compiler().command == (clang,)
    gxx = programs("g++")
    assert find_compiler().command == (gxx,)
    mine = programs("mine")
    monkeypatch.setenv("CXX", "mine -O0 '-DA=b c'")
    assert find_compiler().command == (mine, "-O0", "-DA=b c")


def test_without_a_compiler_the_packages_that_bring_one_are_named(programs):
    with pytest.raises(MissingExtraError, match=r"apt install g\+\+.* pip install ziglang \(the extra cpp\)"):
        find_compiler()


def test_cxx_that_is_not_there_is_refused(programs, monkeypatch):
    programs("g++")
    monkeypatch.setenv("CXX", "nowhere++")
    with pytest.raises(InputFileError, match="CXX must name a program that exists, not nowhere"):
        find_compiler()


def test_what_the_compiler_says_is_returned_or_told(programs, tmp_path):
    good = Compiler((programs("good", 'echo "warning: $1 in $PWD" >&2'),))
    assert good.run(["a.cpp"], "a.cpp", directory=tmp_path) == f"warning: a.cpp in {tmp_path}"
    bad = Compiler((programs("bad", 'echo "a.cpp:3: error: no"; exit 1'),))
    with pytest.raises(CompilationError, match=r"(?s)a\.cpp must be C\+\+ that .*bad compiles.*a\.cpp:3: error: no"):
        bad.run(["a.cpp"], "a.cpp")
    with pytest.raises(CompilationError, match="does not start"):
        Compiler((str(tmp_path / "gone"),)).run([], "a.cpp")


def test_version_is_the_first_line(programs):
    assert Compiler((programs("spoken", "printf 'g 1.2\\nmore\\n'"),)).version == "g 1.2"
    assert Compiler(("/nowhere/g++",)).version == ""

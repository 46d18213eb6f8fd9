"""Compiled code on disk: whatever lies there or goes wrong, functions compute, and nothing foreign is executed."""

from __future__ import annotations

import errno
import os
import pickle
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest
from llvmlite import binding as llvm

from npu_sim import _code_cache, _jit
from ops.common.kernel_parts import core_share

pytestmark = pytest.mark.skipif(not _jit.JIT_ENABLED, reason="compiles")

ROOT = Path(__file__).parents[2]
_MEMORY = (_code_cache._note, _code_cache.is_usable, _code_cache.why_not_kept, _code_cache.prune)


def plus_one(x):
    return x + 1


def fresh():
    """Compile or load `plus_one` as a new process would; return it and whether it was loaded."""
    for cached in _MEMORY:
        cached.cache_clear()
    function = _jit.jit(plus_one)
    assert function(41) == 42
    return bool(function.stats.cache_hits)


@pytest.fixture
def parent(tmp_path, monkeypatch):
    """Point the cache of this process at an empty directory."""
    path = tmp_path / "cache"
    monkeypatch.setattr(_jit, "_CACHE_PARENT", str(path))
    yield path
    for cached in _MEMORY:
        cached.cache_clear()


@pytest.fixture
def kept_file(parent):
    assert not fresh()
    (path,) = (path for path in parent.rglob("*") if path.is_file())
    return path


def test_second_process_loads_and_says_nothing(kept_file, caplog):
    assert fresh()
    assert not caplog.records
    assert kept_file.suffix == ".code"
    assert {path.stat().st_mode & 0o077 for path in (kept_file, kept_file.parent, kept_file.parent.parent)} == {0}


class Bomb:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def damages(data: bytes, bomb: bytes) -> dict[str, bytes]:
    rng = random.Random(0)
    found = {"empty": b"", "pickle": bomb, "pickle behind the head": data[:56] + bomb, "longer": data + b"\0"}
    for cut in (1, 10, 24, 40, 55, 56, 57, len(data) // 2, len(data) - 1):
        found[f"first {cut} bytes"] = data[:cut]
    for _ in range(20):
        at = rng.randrange(len(data))
        found[f"byte {at} changed"] = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return found


def test_damaged_or_foreign_file_is_a_note_and_compiled_again(kept_file, caplog, tmp_path):
    whole = kept_file.read_bytes()
    for name, data in damages(whole, pickle.dumps(Bomb(tmp_path / "boom"))).items():
        kept_file.write_bytes(data)
        caplog.clear()
        assert not fresh(), name
        assert [r.getMessage() for r in caplog.records] == [f"npu-sim: made again: {kept_file} is damaged"], name
        assert fresh(), "the file has been replaced by a whole one"
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("body", [b"", pickle.dumps(("a", "tuple")), b"cno.such.module\nname\n."])
def test_whole_file_that_does_not_load_is_a_note_and_compiled_again(kept_file, caplog, body):
    _code_cache.write_whole(str(kept_file), body)
    assert not fresh()
    (record,) = caplog.records
    assert re.fullmatch(rf"npu-sim: compiling again: {kept_file} does not load \(\w+\)", record.getMessage())
    assert fresh()


def test_same_source_under_another_module_name_is_compiled_for_itself(kept_file, monkeypatch):
    """What is kept names the module whose globals it needs."""
    monkeypatch.setattr(plus_one, "__module__", "elsewhere")
    monkeypatch.setattr(_jit, "cache_directory", lambda function: str(kept_file.parent))
    assert not fresh()


def test_file_under_another_name_is_not_taken(kept_file, caplog):
    body = _code_cache.read_whole(str(kept_file))
    assert body is not None
    other = kept_file.with_name("plus_one-0000000000000000.code")
    kept_file.rename(other)
    assert _code_cache.read_whole(str(other)) is None
    assert [r.getMessage() for r in caplog.records] == [f"npu-sim: made again: {other} is damaged"]


def test_file_that_others_can_write_is_not_taken(kept_file, caplog):
    kept_file.chmod(0o606)
    assert not fresh()
    assert [r.getMessage() for r in caplog.records] == [
        f"npu-sim: made again: others can write to {kept_file}",
    ]


def assert_unused(parent, caplog, reason):
    """Run twice: the code is right, never kept, and the note says why."""
    for _ in range(2):
        caplog.clear()
        assert not fresh()
        assert [r.getMessage() for r in caplog.records] == [
            f"npu-sim: compiled code is not kept: {reason}; NUMBA_CACHE_DIR names another directory"
        ]
    assert not list(parent.rglob("*.code"))


@pytest.mark.parametrize("mode", [0o777, 0o703, 0o1777])
def test_directory_that_others_can_write_is_not_used(parent, caplog, mode):
    parent.mkdir()
    parent.chmod(mode)
    assert_unused(parent, caplog, f"others can write to {parent}")


def test_directory_of_a_state_that_others_can_write_is_not_used(parent, caplog):
    directory = Path(_jit.cache_directory(plus_one))
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    assert_unused(parent, caplog, f"others can write to {directory}")


def test_directory_below_one_that_others_can_write_is_not_used_without_the_sticky_bit(tmp_path, monkeypatch, caplog):
    open_ = tmp_path / "open"
    open_.mkdir()
    monkeypatch.setattr(_jit, "_CACHE_PARENT", str(open_ / "cache"))
    open_.chmod(0o777)
    assert_unused(open_, caplog, f"others can write to {open_}")
    open_.chmod(0o1777)
    caplog.clear()
    assert [fresh(), fresh()] == [False, True]
    assert not caplog.records


def test_directory_of_another_user_is_not_used(parent, caplog, monkeypatch):
    parent.mkdir()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert_unused(parent, caplog, f"{parent} belongs to another user")


def test_symbolic_link_through_a_directory_that_others_can_write_is_not_followed(tmp_path, monkeypatch, caplog):
    (tmp_path / "real").mkdir(mode=0o700)
    open_ = tmp_path / "open"
    open_.mkdir()
    (open_ / "cache").symlink_to(tmp_path / "real")
    open_.chmod(0o777)
    monkeypatch.setattr(_jit, "_CACHE_PARENT", str(open_ / "cache"))
    assert_unused(tmp_path, caplog, f"others can write to {open_}")


def test_directory_of_the_users_own_group_is_used(parent, monkeypatch, caplog):
    parent.mkdir()
    parent.chmod(0o775)
    monkeypatch.setattr(_code_cache, "_is_private", lambda group: True)
    assert [fresh(), fresh()] == [False, True]
    monkeypatch.setattr(_code_cache, "_is_private", lambda group: False)
    assert not caplog.records
    assert not fresh()
    assert len(caplog.records) == 1


def test_file_in_place_of_the_directory_is_a_note(parent, caplog):
    parent.write_text("a file")
    assert_unused(parent, caplog, f"{parent} is not usable (File exists)")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_full_disk_and_interruption_leave_nothing(parent, caplog, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    if isinstance(error, OSError):
        assert not fresh()
        directory = _jit.cache_directory(plus_one)
        reason = f"{directory} is not usable (No space left on device)"
        assert [r.getMessage() for r in caplog.records] == [f"npu-sim: compiled code is not kept: {reason}"]
    else:
        with pytest.raises(KeyboardInterrupt):
            fresh()
    assert not [path for path in parent.rglob("*") if path.is_file()]


def test_note_is_a_line_on_standard_error_and_no_exception_when_warnings_are_errors(tmp_path):
    (tmp_path / "cache").write_text("a file")
    (tmp_path / "kernel.py").write_text(
        "from npu_sim._jit import jit\n\n\n@jit\ndef f(x):\n    return x + 1\n\n\nf(1)\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(tmp_path / "kernel.py")]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert child.stderr == (
        f"npu-sim: compiled code is not kept: {tmp_path / 'cache'} is not usable (File exists); "
        "NUMBA_CACHE_DIR names another directory\n"
    )


def test_processes_beside_each_other_never_take_each_others_code(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "import sys\nfrom npu_sim._jit import jit\n\n\n@jit\ndef f(x):\n    return x / 2\n\n\n"
        "value = eval(sys.argv[1])\nprint(f(value), sum(f.stats.cache_hits.values()))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    for loaded in (0, 1):
        children = [
            subprocess.Popen(
                [sys.executable, str(tmp_path / "kernel.py"), text],
                env=environment, stdout=subprocess.PIPE, text=True,
            )
            for text in ("7", "7.0", "True")
        ]  # fmt: skip
        assert [child.communicate()[0] for child in children] == [f"{value} {loaded}\n" for value in (3.5, 3.5, 0.5)]


def test_prune_removes_what_was_not_used_for_long_and_nothing_else(tmp_path):
    _code_cache.prune.cache_clear()
    old, young, foreign = (tmp_path / name for name in ("0" * 20, "1" * 20, "not_ours"))
    past = time.time() - 40 * 86400
    for directory in (old, young, foreign):
        directory.mkdir()
        for name in ("f.code", "step.times", "left.part", "other.txt"):
            (directory / name).write_text("")
            os.utime(directory / name, (past, past))
    (young / "now.part").write_text("")
    (old / "other.txt").unlink()
    for directory in (old, foreign):
        os.utime(directory, (past, past))
    _code_cache.prune(str(tmp_path))
    assert not old.exists()
    assert sorted(path.name for path in young.iterdir()) == ["f.code", "now.part", "other.txt", "step.times"]
    assert len(list(foreign.iterdir())) == 4


def overload(function):
    (compiled,) = function.overloads.values()
    return compiled


def test_what_is_kept_is_machine_code_and_its_names(parent):
    """What is loaded defines every name that what was compiled did, and has no LLVM code to be linked."""
    made = _jit.jit(plus_one)
    made(41)
    library = overload(made).library
    defined = {f.name for f in library._final_module.functions if not f.is_declaration and f.linkage.name == "external"}
    assert overload(made).fndesc.llvm_cpython_wrapper_name in defined

    loaded = _jit.jit(plus_one)
    assert loaded(41) == 42
    assert loaded.stats.cache_hits
    compiled = overload(loaded)
    assert all(compiled.library.get_pointer_to_function(name) for name in defined)
    with pytest.raises(RuntimeError, match="unfit for linking"):
        compiled.library._get_module_for_linking()

    (_, _, (_, names)), *_ = _code_cache._kept(overload(made))
    module = llvm.parse_bitcode(names)
    assert {f.name for f in module.functions} == defined
    assert all(len(list(block.instructions)) == 1 for f in module.functions for block in f.blocks)


def test_a_jitted_function_of_a_module_is_kept_by_its_name():
    """So the code of a kernel, whose signature names it, does not hold all that it calls."""
    function = core_share.py_func
    kept = _code_cache._pickled(function)
    assert pickle.loads(kept) is function
    assert len(kept) < 200

    def inner(x):
        return x

    assert pickle.loads(_code_cache._pickled(inner))(5) == 5


def test_loaded_code_is_called_from_jitted_code_of_others(kept_file):
    """A caller links the callee, which is compiled for it, not what was loaded."""
    one = _jit.jit(plus_one)
    assert one(41) == 42
    assert one.stats.cache_hits

    @numba.njit
    def twice(x):
        return one(one(x))

    assert twice(40) == 42

"""Where output goes: files, links, pipes, standard output that fails; and the notes beside it. No device is touched."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from npu_sim.errors import ProgramError
from npu_sim.report.files import OutputFileError, check_writable, write_files
from ops.cli import main as program
from ops.cli import output
from ops.cli.output import merged_messages, note_hints

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = (sys.executable, "-m", "ops.cli.main", "products", "--product", "910b")
HINT = "npu-sim: Ascend910B is a bin of the "


def run(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(arguments, text=True, env=environment, timeout=60, stderr=subprocess.PIPE, **options)


def read_in_thread(path):
    """Start to read a pipe to its end; returns the thread and where the bytes will be."""
    got = []
    thread = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    thread.start()
    return thread, got


def test_write_files_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread, got = read_in_thread(pipe)
    check_writable(pipe)
    write_files({pipe: b"12345", tmp_path / "new": b"6"})
    thread.join(10)
    assert got == [b"12345"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["new", "pipe"]


def test_write_files_link_to_a_pipe_stays_a_link(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    thread, got = read_in_thread(pipe)
    write_files({link: b"12345"})
    thread.join(10)
    assert got == [b"12345"]
    assert link.is_symlink()
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("exists", [True, False])
def test_write_files_link_stays_and_its_file_is_written(tmp_path, exists):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
        target.chmod(0o640)
    link.symlink_to(Path("far") / "target")
    check_writable(link)
    write_files({link: b"new"})
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "far") == ["target"]
    if exists:
        assert target.stat().st_mode & 0o777 == 0o640


def test_check_writable_refuses_what_is_no_file_in_one_line(tmp_path, monkeypatch):
    loop, directory = tmp_path / "loop", tmp_path / "directory"
    loop.symlink_to(loop)
    directory.mkdir()
    with pytest.raises(OutputFileError, match=r"^Output file must be writable, but \S+ is not \(Too many .*\)$"):
        check_writable(loop)
    with pytest.raises(OutputFileError, match=r"^Output file must not be a directory, but .* is one$"):
        check_writable(directory)
    (tmp_path / "dangling").symlink_to(tmp_path / "no" / "file")
    with pytest.raises(OutputFileError, match=r"^Output file must be in an existing directory, not .*dangling$"):
        check_writable(tmp_path / "dangling")
    # a disk, without one
    disk = os.stat_result((stat.S_IFBLK | 0o600, *[0] * 9))
    monkeypatch.setattr(Path, "stat", lambda self: disk)
    with pytest.raises(OutputFileError, match=r"^Output file must be a file, a pipe or a character device, not disk$"):
        check_writable(Path("disk"))


def test_json_to_a_shell_process_substitution_arrives(tmp_path):
    command = f"{' '.join(PRODUCTS)} --json >(cat > {tmp_path}/got) > /dev/null; wait $!"
    done = run("bash", "-c", command)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "got").read_bytes().startswith(b'{\n  "schema_version"')


def test_json_where_standard_output_goes_is_refused(tmp_path):
    with open(tmp_path / "out", "w") as stream:
        done = run(*PRODUCTS, "--json", str(tmp_path / "out"), stdout=stream)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "npu-sim: error: Output file must not be where standard output goes ('-' writes there)"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("--json", "-"), ("--help",)])
def test_standard_output_without_reader_exits_0_silently(arguments):
    read, write = os.pipe()
    os.close(read)
    done = run(*PRODUCTS, *arguments, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", ["", "--json -", "--help"])
def test_standard_output_that_takes_nothing_is_one_line_and_exit_2(tmp_path, arguments):
    # a file that may not grow stands for a full disk
    done = run("bash", "-c", f"ulimit -f 0; exec {' '.join(PRODUCTS)} {arguments} > {tmp_path}/out")
    message = "npu-sim: error: Standard output must be writable, but is not (File too large)\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_standard_output_closed_is_one_line_and_exit_2():
    done = run("bash", "-c", f"{' '.join(PRODUCTS)} >&-")
    assert (done.returncode, done.stderr) == (2, "npu-sim: error: Standard output must be open, not closed\n")


def test_main_interrupted_command_says_so(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ops.cli.products.products_table", interrupted)
    assert program.main(["products"]) == 130
    # the terminal's ^C stands at the beginning of the line
    assert capsys.readouterr().err.strip() == "npu-sim: error: interrupted"


def test_interrupt_at_once_does_not_wait_for_a_call_into_c():
    # sqlite3 counts in C for much longer than the test may take, without the GIL, as the compiler does
    code = (
        "import sqlite3, sys\nfrom ops.cli.output import _interrupt_at_once\n_interrupt_at_once(lambda: True)\n"
        "database = sqlite3.connect(':memory:')\n"
        "database.create_function('ready', 0, lambda: print('ready', flush=True) or 1)\n"
        "database.execute('with recursive c(x) as (select ready() union all select x + 1 from c "
        "limit 1000000000) select max(x) from c').fetchall()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)  # from the callback back into C
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "npu-sim: error: interrupted\n")


def test_main_findings_that_reach_it_exit_1(capsys, monkeypatch):
    def command(**_):
        raise ProgramError(["ub: read before write", "second"])

    monkeypatch.setattr(program.typer.main, "get_command", lambda app: type("C", (), {"main": staticmethod(command)}))
    assert program.main([]) == 1
    assert capsys.readouterr().err == "npu-sim: error: ub: read before write; second\n"


@pytest.mark.parametrize("command", ["precision", "perf", "check"])
def test_product_easily_mistaken_gets_the_hint_of_products(capsys, monkeypatch, command):
    class DoneError(Exception):
        """The command went on to its work."""

    def stop(*_, **__):
        raise DoneError

    monkeypatch.setattr(f"ops.cli.{command}.note_compilation", stop)
    assert program.main([command, "--product", "Ascend910B", "--product", "910b", *PICTURE.get(command, ())]) == 3
    err = capsys.readouterr().err
    assert err.startswith(HINT)
    assert err.count(HINT) == 1
    note_hints(["Ascend910B"])
    assert capsys.readouterr().err == err.partition("\n")[0] + "\n"


PICTURE = {"precision": ("--no-picture",)}


def test_merged_messages_joins_values_then_products_and_nothing_else():
    rule = "Mode must be 1 (see there)"
    messages = [f"{rule}, not 0 (A)", "Other", f"{rule}, not 3 (A)", f"{rule}, not 3 (B)", f"{rule}, not 0 (B)",
                f"{rule}, not 0 (C)", "Other"]  # fmt: skip
    assert merged_messages(messages) == [
        f"{rule}, not 0 or 3 (A)",
        "Other",
        f"{rule}, not 3 or 0 (B)",
        f"{rule}, not 0 (C)",
    ]
    assert merged_messages([f"{rule}, not 0 (A)", f"{rule}, not 0 (B)"]) == [f"{rule}, not 0 (A; B)"]
    # as the emulator says it
    rule = "cubeMathType must be 1 or 2 for FP32 tensors"
    messages = [
        f"{rule}, not {mode} (Ascend{chip}, Atlas series)" for chip in "PA" for mode in ("0 (KEEP)", "3 (HF32)")
    ]
    assert merged_messages(messages) == [
        f"{rule}, not 0 (KEEP) or 3 (HF32) (AscendP, Atlas series; AscendA, Atlas series)"
    ]
    messages = [f"{rule}, not 0 (2D, {chip}, Atlas; rule 5 mode)" for chip in "PA"]
    assert merged_messages(messages) == [f"{rule}, not 0 (2D: P, Atlas; A, Atlas; rule 5 mode)"]
    transposed = [message.replace("(2D, ", "(2D, transposed, ") for message in messages]
    assert merged_messages([*transposed, *messages]) == merged_messages(messages)
    assert merged_messages(transposed) == [f"{rule}, not 0 (2D, transposed: P, Atlas; A, Atlas; rule 5 mode)"]


@pytest.fixture
def _nothing_compiled(monkeypatch):
    monkeypatch.setattr(output, "_compiling", [])
    monkeypatch.setattr(output, "_compiled", [])
    monkeypatch.setattr(output, "_noted", [])


@pytest.mark.usefixtures("_nothing_compiled")
def test_note_of_compilation_is_for_code_of_ours_and_once(capsys):
    output.note_started("of_the_user")
    assert capsys.readouterr().err == ""
    output.note_started("npu_sim.isa.dispatch")
    assert capsys.readouterr().err == "npu-sim: compiling what has not run before (up to half a minute)\n"
    output.note_started("ops.vector.trans_data")
    assert capsys.readouterr().err == ""


PROGRAM = """
import sys
import numpy as np
from npu_sim.dtypes.convert_jit import fp16_to_fp32
from ops.cli.output import compiled_so_far, note_compilation, stop_noting

note_compilation()
print("before", file=sys.stderr)
fp16_to_fp32(0)
fp16_to_fp32(1)
print("between", compiled_so_far() > 0, file=sys.stderr)
fp16_to_fp32(True)
stop_noting()
fp16_to_fp32(np.uint16(3))
"""


def test_note_of_compilation_comes_when_the_compiler_starts_and_not_for_kept_code(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("NUMBA_DISABLE_JIT", None)
    errors = [
        subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment, timeout=60).stderr
        for _ in range(2)
    ]
    message = "npu-sim: compiling what has not run before (up to half a minute)"
    assert [error.splitlines() for error in errors] == [
        ["before", message, "between True"],
        ["before", "between False"],
    ]

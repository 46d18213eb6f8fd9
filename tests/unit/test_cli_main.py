"""The program around its commands: light imports, one line per usage error, both ways to start it."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ops.cli.main import app, main

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120, **options
    )


def test_import_ops_and_npu_sim_load_nothing_of_the_command_line():
    code = (
        "import sys, ops, npu_sim, ops.cli, ops.studies\n"
        "heavy = {'typer', 'rich', 'matplotlib', 'sklearn', 'torch'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "assert 'CubeMathType' in dir(ops)\n"
        "from npu_sim.dtypes.cube_math import CubeMathType\n"
        "assert ops.CubeMathType is CubeMathType\n"
        "try:\n    ops.nothing\nexcept AttributeError as error:\n"
        "    assert str(error) == \"module 'ops' has no attribute 'nothing'\"\n"
        "else:\n    raise SystemExit('no error')\n"
    )
    done = start("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_command_line_starts_without_matplotlib():
    code = "import sys, ops.cli.main\nassert not {'matplotlib', 'torch', 'sklearn'} & sys.modules.keys()\n"
    done = start("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_module_is_the_program_npu_sim():
    done = start("-m", "ops.cli.main", "--help")
    assert done.returncode == 0
    assert "Usage: npu-sim" in done.stdout
    for command in app.registered_commands:
        assert command.name in done.stdout


def test_python_m_module_bad_file_is_one_line_exit_2_and_nothing_written(tmp_path):
    (tmp_path / "own.npz").write_bytes(b"PK\x03\x04 not quite")
    done = start("-m", "ops.cli.main", "precision", "own.npz", "--json", "r.json", cwd=tmp_path)
    message = "npu-sim: error: own.npz: The file must be a complete .npz archive, not a damaged or different one\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["own.npz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'."),
        (["--frobnicate"], "No such option: --frobnicate"),
    ],
)
def test_main_usage_error_is_one_line_and_exit_2(capsys, arguments, message):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"npu-sim: error: {message}")
    assert err.count("\n") == 1


def test_main_without_arguments_prints_the_help():
    alone, asked = start("-m", "ops.cli.main"), start("-m", "ops.cli.main", "--help")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout.strip() == asked.stdout.strip()
    text = " ".join(asked.stdout.split())
    assert "which error has an operator (precision), how long does it take (perf), is its kernel correctly" in text


def test_main_version_and_help_exit_0(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("npu-sim ")
    for command in app.registered_commands:
        assert main([command.name, "--help"]) == 0
        own = {"warm": "--processes", "sdk": "--cflags", "cc": "--output"}
        assert own.get(command.name, "--json") in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], [], ["warm", "--help"]])
def test_help_of_the_program_loads_neither_numpy_nor_the_compiler(arguments):
    assert start("-c", HELP, "numpy numba llvmlite", *arguments).stderr == ""


@pytest.mark.parametrize("command", [str(command.name) for command in app.registered_commands])
def test_help_of_a_command_does_not_load_the_compiler(command):
    assert start("-c", HELP, "numba llvmlite", command, "--help").stderr == ""


HELP = """
import sys
import ops.cli.main
assert ops.cli.main.main(sys.argv[2:]) == 0
assert not set(sys.argv[1].split()) & sys.modules.keys()
"""


def test_list_of_commands_has_the_first_paragraph_of_their_help(capsys):
    assert main(["--help"]) == 0
    listed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for command in app.registered_commands:
        function = getattr(import_module(f"ops.cli.{command.name}"), f"{command.name}_command")
        assert " ".join(function.__doc__.partition("\n\n")[0].split()) in listed


def test_main_reader_that_left_is_no_error():
    command = f"{sys.executable} -m ops.cli.main products --sources | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert done.stderr == ""


def test_main_terminal_without_unicode_is_no_error():
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", "products"],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_program_ends_without_freeing_but_waits_calls_and_writes_what_python_does(tmp_path):
    script = tmp_path / "left.py"
    script.write_text(
        "import atexit, sys, threading, time\n"
        "class Last:\n"
        "    def __del__(self):\n"
        "        print('freed')\n"
        "last = sys.modules['kept'] = Last()\n"
        "atexit.register(print, 'registered')\n"
        "def late():\n"
        "    time.sleep(0.5)\n"
        "    print('waited for')\n"
        "threading.Thread(target=late).start()\n"
        "sys.exit(5)\n"
    )
    done = start("-m", "ops.cli.main", "run", str(script))
    assert done.stdout.splitlines()[-2:] == ["waited for", "registered"]
    # of a script that ends with another code than 0
    assert done.returncode == 1


@pytest.mark.parametrize("wish", [None, "20"])
def test_program_lets_threads_of_numpy_sleep_unless_the_user_says_how_long(tmp_path, monkeypatch, wish):
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if wish:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", wish)
    place = tmp_path / "numpy"
    place.mkdir()
    # NumPy's place, to see what it would find when it is imported
    (place / "__init__.py").write_text("import os\nprint(os.environ['OPENBLAS_THREAD_TIMEOUT'])\nos._exit(7)\n")
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", "compare", "a.npy", "b.npy"], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (f"{wish or 4}\n", 7)


@pytest.mark.parametrize("command", ["check", "judge", "run", "program", "precision", "perf", "cc", "selftest"])
@pytest.mark.parametrize(
    ("name", "rule"),
    [("é\ud800", "must be text that a file name can hold, not '\\xe9"), ("x" * 5000, "")],
    ids=["unencodable", "too long"],
)
def test_file_name_that_no_file_can_have_is_bad_input(capsys, tmp_path, monkeypatch, command, name, rule):
    monkeypatch.chdir(tmp_path)
    assert main([command, name]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("npu-sim: error: ") == 1
    assert rule in said

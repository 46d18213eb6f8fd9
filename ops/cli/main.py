"""``npu-sim``: the program. ``python -m ops.cli.main`` is the same one.

Exit codes: 0 ok, 1 findings or a failed standard, 2 usage or bad input, 3 internal error, 130 interrupted. Bad input
ends in one line on standard error.
"""

from __future__ import annotations

import ast
import atexit
import errno
import gc
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, cast

try:
    import typer
    from typer.core import TyperGroup

    from npu_sim.errors import InternalError, NpuSimError, ProgramError
    from npu_sim.report.files import OutputFileError
    from ops.cli import GARBAGE_THRESHOLDS
    from ops.cli.output import EXIT_INTERRUPTED, GuardedOutput, ReaderGoneError, stop_noting
    from ops.cli.usage import UsageError
except KeyboardInterrupt:
    # A user may well change their mind while these are imported.
    sys.stderr.write("npu-sim: error: interrupted\n")
    raise SystemExit(130) from None

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3

_SETTINGS = {"help_option_names": ["-h", "--help"]}
_COMMANDS = (
    "products", "precision", "perf", "check", "judge", "diverge", "compare", "selftest", "run", "program", "sdk", "cc",
    "warm",
)  # fmt: skip
"""Each is the function ``<name>_command`` of the module of its name."""
_CASE_FILES = (".json", ".csv")
_SOURCES = (".cpp", ".cc", ".cxx", ".asc")
"""How the names of kernel sources in C++ end."""
_OF_SOURCES = ("run", "check", "perf", "judge", "diverge")
"""Commands that take one, with options of their own: modules ``<name>_source``."""
_OF_CC = ("-o", "--output", "--product", "-h", "--help")
_SWITCHES = frozenset(
    {
        "--yes", "--no-progress", "--advice", "--forward", "--details", "--bias", "--ceil-mode", "--count-include-pad",
        "--no-count-include-pad", "--trans-a", "--trans-b", "--tune", "--help",
    }
)  # fmt: skip
"""Options of ``perf`` that no value follows."""


class _Commands(TyperGroup):
    """Commands whose modules are imported when they run: they load the compiler, which no list of them needs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return name, command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in _OF_SOURCES and any(word.endswith(_SOURCES) for word in rest):
            return name, command and _load(name, f"{name}_source"), rest
        if name == "cc":
            _refuse_options_of_the_compiler(rest)
        if name == "check" and rest[-1:] == ["--explain"]:
            rest = [*rest, "all"]
        if name == "perf":
            module, rest = _form_of_perf(rest)
            return name, command and _load(name, module), rest
        return name, command and _load(name or "", name or ""), rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, with a line for each command."""
        for name, command in self.commands.items():
            command.help = _summary(name)
        super().format_help(ctx, formatter)


def _load(name: str, module: str) -> Any:
    """Return a command with its options."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=_SETTINGS)
    single.command(name)(getattr(import_module(f"ops.cli.{module}"), f"{module}_command"))
    return typer.main.get_command(single)


def _form_of_perf(args: list[str]) -> tuple[str, list[str]]:
    """Return the module of ``perf`` for what its first argument is, and the arguments; without any, its help.

    A file of requests or cases and an operator have options of their own.
    """
    if not args:
        return "perf", ["--help"]
    if "--validate" in args:
        return "perf_validate", args
    words, is_value = [], False
    for arg in args:
        if not is_value and not arg.startswith("-"):
            words.append(arg)
        is_value = not is_value and arg.startswith("--") and "=" not in arg and arg not in _SWITCHES
    first = words[0] if words else "."
    if first.endswith(_CASE_FILES):
        return "perf_cases", args
    return "perf" if "." in first or "/" in first else "perf_call", args


def _refuse_options_of_the_compiler(args: list[str]) -> None:
    """Say where they stand instead of that there are none of these."""
    for word in args[: args.index("--")] if "--" in args else args:
        if word.startswith("-") and not word.startswith(_OF_CC):
            raise UsageError(f"options of the compiler must stand behind --, as in: npu-sim cc a.cpp -o a -- {word}")


def _summary(name: str) -> str:
    """Return the first paragraph of a command's help without importing its module."""
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_bytes())
    (function,) = (node for node in tree.body if getattr(node, "name", None) == f"{name}_command")
    return (ast.get_docstring(cast(ast.FunctionDef, function)) or "").partition("\n\n")[0]


app = typer.Typer(
    name="npu-sim",
    help="Emulator of the Ascend AI Core for the CPU. Without a device it answers: which error has an operator "
    "(precision), how long does it take (perf), is its kernel correctly synchronised (check)?",
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)
for _name in _COMMANDS:
    # for the list only: `_Commands` puts the command itself in its place
    app.command(_name)(lambda: None)


def _print_version(wanted: bool) -> None:
    if wanted:
        # imported here: it takes longer than the rest of the program's start
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"npu-sim {version('npu-sim')}")
        except PackageNotFoundError:
            typer.echo("npu-sim (not installed)")
        raise typer.Exit(EXIT_OK)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Parameters
    ----------
    arguments : sequence of str or None
        Command line without the program's name; None takes the process's own.

    Returns
    -------
    int
        Exit code.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        # A name from a user's file must not end the program on a terminal that cannot show it.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    real = sys.stdout
    if real is None:
        return _fail("Standard output must be open, not closed", EXIT_USAGE)
    guarded = GuardedOutput(real)
    sys.stdout = cast(TextIO, guarded)
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments), guarded)
    finally:
        stop_noting()
        sys.stdout = real


def _run(arguments: list[str], output: GuardedOutput) -> int:
    """Run the command and return the exit code for however it ended."""
    try:
        for word in arguments:
            # A system's own arguments always are; those of a caller of `main` may name files that cannot be.
            os.fsencode(word)
    except UnicodeEncodeError:
        return _fail(f"a word of the command line must be text that a file name can hold, not {word!a:.60}", EXIT_USAGE)
    try:
        command = typer.main.get_command(app)
        code = command.main(args=arguments, prog_name="npu-sim", standalone_mode=False)
        output.flush()
        if code == EXIT_INTERRUPTED:
            # typer has caught the exception below.
            raise KeyboardInterrupt
        return code if isinstance(code, int) else EXIT_OK
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", EXIT_INTERRUPTED)
    except ReaderGoneError:
        # What the reader of standard output read is all it wanted.
        output.discard()
        return EXIT_OK
    except NpuSimError as error:
        if isinstance(error, InternalError):
            return _report(error)
        if isinstance(error, OutputFileError):
            output.discard()
        if isinstance(error, ProgramError):
            return _fail("; ".join(str(error).splitlines()), EXIT_FINDINGS)
        return _fail(str(error), EXIT_USAGE)
    except MemoryError:
        return _fail("not enough memory", EXIT_INTERNAL)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return _report(error)
        return _fail(
            f"a file name must be one that the file system takes, not {error.filename!s:.60}... (too long)", EXIT_USAGE
        )
    except Exception as error:
        # Errors of the command line itself; their class lives in click or, in newer versions, inside typer.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _fail(error.format_message(), EXIT_USAGE)
        return _report(error)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"npu-sim: error: {' '.join(message.split())}\n")
    return code


def _report(error: Exception) -> int:
    """Say that the program itself is wrong, with what a bug report needs."""
    traceback.print_exception(error, file=sys.stderr)
    return _fail(f"internal error, please report it with the lines above: {error}", EXIT_INTERNAL)


def program() -> NoReturn:
    """Run the program in a process of its own and end that.

    Python would free each of millions of objects before the system takes all memory back: a twelfth of a first run.
    """
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    # NumPy's OpenBLAS lets its threads ask for work in a loop for 2^26 cycles from the start and behind each product: a
    # tenth of the processor time of a command. 2^4 is the least that it takes.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    code = main()
    try:
        # what Python does first: waits for threads, calls what was registered, writes what is buffered
        cast(Any, threading)._shutdown()
        cast(Any, atexit)._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except Exception:
        # Python knows how to say it
        raise SystemExit(code) from None
    os._exit(code)


if __name__ == "__main__":
    program()

"""Python files of the user, run with the emulator: what they did, and what is wrong in it."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from npu_sim.errors import NpuSimError
from npu_sim.products import Product, get_product, product_hint, use_product
from npu_sim.report.explain import Explanation, Recorder, Value, recording
from npu_sim.report.files import write_files
from npu_sim.report.record import counted, to_json_text, to_plain
from npu_sim.report.tables import fitted_tables
from ops.cli.output import console, note, note_compilation, print_prose
from ops.cli.usage import UsageError, one_product_name, output_path

SCHEMA_VERSION = 1


def is_script(file: str | None) -> bool:
    """Return whether the file argument of a command names a Python file."""
    return file is not None and file.endswith(".py")


def is_program(file: str | None) -> bool:
    """Return whether the file argument of a command names what ``npu-sim program --save`` wrote."""
    from npu_sim.report.program_file import MAGIC

    if file is None or not Path(file).is_file():
        return False
    with Path(file).open("rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


def stored_call(file: str, product: Product | None) -> Outcome:
    """Return the call that a stored program holds.

    Raises
    ------
    UsageError
        A product is given: the program has its own.
    InputFileError
        It cannot be read.
    """
    from npu_sim.report.program_file import read_program

    if product is not None:
        raise UsageError("--product must not be given together with a stored program, which has its own")
    stored = read_program(Path(file))
    made = Explanation(title=Path(file).name, product=stored.product, launches=stored.launches)
    return Outcome(code=0, error="", explanations=(made,))


def one_product(products: Sequence[str] | None) -> Product | None:
    """Return the product given for a script; None leaves every call its own default, as when Python runs the file.

    Raises
    ------
    UsageError
        If several are given.
    ProductError
        If it is unknown.
    """
    name = one_product_name(products, "a script")
    if name is None:
        return None
    hint = product_hint(name)
    if hint is not None:
        note(hint)
    return get_product(name)


def refuse_options(given: Mapping[str, object]) -> None:
    """Refuse options that say which shapes to run, which a script says itself.

    Raises
    ------
    UsageError
        If one is given.
    """
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name} must not be given together with a script")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a script did.

    Attributes
    ----------
    code : int
        0, or 1 if it ended with an error.
    error : str
        The exception it ended with; "" without one.
    explanations : tuple of Explanation
        Without those of operators unless they were asked for.
    refused : NpuSimError or None
        The error it ended with, where a kernel of the user was refused at a line.
    """

    code: int
    error: str
    explanations: tuple[Explanation, ...]
    refused: NpuSimError | None = None


def run_script(
    file: str,
    arguments: Sequence[str],
    product: Product | None,
    *,
    explain: bool,
    quiet: bool = False,
    keeps_tensors: bool = False,
    shows_refusals: bool = True,
) -> Outcome:
    """Run a Python file as ``python file arguments...`` would, with ``product`` as the current one.

    A stored program is one call that has run.

    Parameters
    ----------
    file : str
        Path.
    arguments : sequence of str
        Its command line.
    product : Product or None
        Current product; the script may choose another. None: none is set.
    explain : bool
        Record what its operators do, not only its own kernels.
    quiet : bool
        What it prints goes to standard error.
    keeps_tensors : bool
        Its kernels keep what they take to run once more.
    shows_refusals : bool
        A kernel that is refused at a line ends in a traceback; False: the caller shows `Outcome.refused`.

    Raises
    ------
    UsageError
        If there is no such file.
    """
    if is_program(file):
        return stored_call(file, product)
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"Script must be an existing file, not {file}")
    note_compilation()
    recorder = Recorder(own_only=not explain, keeps_tensors=keeps_tensors)
    before = sys.argv, sys.path[:]
    sys.argv = [file, *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    with contextlib.ExitStack() as stack:
        if product is not None:
            stack.enter_context(use_product(product))
        stack.enter_context(recording(recorder))
        if quiet:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            code, error, refused = _run(path, shows_refusals)
        finally:
            sys.argv, sys.path[:] = before
    if code and explain and refused is None:
        note("the script ended with an error; what follows is about what ran before it")
    return Outcome(code=code, error=error, explanations=recorder.explanations(), refused=refused)


def hold_to_product(outcome: Outcome, file: str, product: Product | None) -> None:
    """Say that calls of a script name a product of their own, on which they ran whatever ``--product`` is.

    Raises
    ------
    UsageError
        No call ran on it: nothing would be said of the product that was asked for.
    """
    calls = outcome.explanations
    others = [made.product.name for made in calls if product is not None and made.product.name != product.name]
    if not others or product is None:
        return
    verb = "names" if len(others) == 1 else "name"
    words = f"{len(others)} of {counted(len(calls), 'call')} of {file} {verb} {', '.join(dict.fromkeys(others))}"
    if len(others) == len(calls):
        raise UsageError(f"--product must be that of a call, not {product.name}: {words}")
    note(f"{words}, not {product.name}")


def _run(path: Path, shows_refusals: bool) -> tuple[int, str, NpuSimError | None]:
    """Run the file and return its exit code, the exception that ended it, and again if it refuses a kernel.

    An error of its own ends in its traceback on standard error, from its first line on.
    """
    from npu_sim.report.files import OutputFileError
    from ops.cli.output import ReaderGoneError

    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return (0, "", None) if end.code in (None, 0) else (1, f"SystemExit: {end.code}", None)
    except (ReaderGoneError, OutputFileError):
        raise
    except Exception as error:
        refused = error if isinstance(error, NpuSimError) and error.refusal is not None else None
        if refused is not None and not shows_refusals:
            return 1, f"{type(error).__name__}: {error}", refused
        found = traceback.TracebackException.from_exception(error)
        frames = [i for i, frame in enumerate(found.stack) if frame.filename == str(path)]
        if frames:
            found.stack = traceback.StackSummary.from_list(list(found.stack)[frames[0] :])
        # without a frame of its own nothing of it ran: Python could not read it
        sys.stderr.write("".join(found.format() if frames else found.format_exception_only()))
        return 1, f"{type(error).__name__}: {error}", refused
    return 0, "", None


def write_report(document: dict[str, Any], json_path: str | None, file: str, more: Mapping[Path, bytes]) -> None:
    """Write the JSON report (and other files), or put it on standard output."""
    text = to_json_text(document) + "\n"
    target = output_path("--json", json_path, file)
    write_files({**more, **({} if target is None else {target: text.encode()})})
    if json_path == "-":
        sys.stdout.write(text)
    else:
        for path in (*more, *([] if target is None else [target])):
            console().print(f"written: {path}", soft_wrap=True)


def print_explanation(explanation: Explanation, screen: Console) -> None:
    """Print title, groups of values, tables, notes and launches."""
    print_prose(screen, explanation.heading, "bold")
    for group, values in explanation.facts.items():
        screen.print(Text(f"  {group}: ") + Text(", ".join(f"{name} {_text(value)}" for name, value in values.items())))
    for table in explanation.tables:
        screen.print(Text(f"  {table.title}"))
        left = [
            heading for i, heading in enumerate(table.columns) if any(isinstance(row[i], str) for row in table.rows)
        ]
        cells = [[_text(value) for value in row] for row in table.rows]
        for shown in fitted_tables(table.columns, cells, width=screen.width, left=left):
            screen.print(shown)
    for text in explanation.notes:
        print_prose(screen, f"  note: {text}", "yellow")
    for launch, works_on in zip(explanation.launches, explanation.works_of_launches(), strict=True):
        size = f"{counted(launch.core_count, 'core')}, {counted(launch.phase_count, 'phase')}"
        words = f"{launch.name} ({works_on})" if works_on else launch.name
        screen.print(Text(f"  launch: {words}: {size}"))
    screen.print()


def _text(value: Value) -> str:
    return "" if value is None else str(value)


def explanations_document(file: str, outcome: Outcome) -> dict[str, Any]:
    """Return what ``run --json`` writes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": file,
        "exit_code": outcome.code,
        "explanations": to_plain([made.to_plain() for made in outcome.explanations]),
    }

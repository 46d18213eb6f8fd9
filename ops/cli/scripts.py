"""Python files of the user, run with the emulator: what they did, how long it takes, what is wrong in it."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import TimelineOptions, TimelineResult, run_timeline
from npu_sim.errors import OperatorError
from npu_sim.products import Product, current_product, get_product, product_hint, use_product
from npu_sim.program.violation import Violation
from npu_sim.report.explain import Explanation, Recorder, Value, recording
from npu_sim.report.record import to_json_text, to_plain
from npu_sim.report.trace import chrome_trace
from ops.cli.output import console, note, note_compilation, print_prose, write_files
from ops.cli.shapes import UsageError, counted, output_path
from ops.cli.tables import fitted_tables

SCHEMA_VERSION = 1
TRACE_ROW_LIMIT = 300_000
"""Rows of a trace; viewers stop working beyond a few hundred thousand events."""
_FINDINGS_SHOWN = 20
_PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
_SHORT = {"kernel_fixed": "fixed", "phase_barrier": "barrier"}
_TIMES_LEGEND = (
    "us: core time of the launch; task us: with launch overhead. Pipes: occupied share of the core time on the slowest "
    "core. Critical path: fixed is the kernel's prologue and epilogue, barrier the one between phases. "
    "Cycle-approximate, not measured."
)


def is_script(file: str | None) -> bool:
    """Return whether the file argument of a command names a Python file."""
    return file is not None and file.endswith(".py")


def one_product(products: Sequence[str] | None) -> Product:
    """Return the product a script runs on: the one given, or the current one.

    Raises
    ------
    UsageError
        If several are given.
    ProductError
        If it is unknown.
    """
    names = tuple(dict.fromkeys(products or ()))
    if len(names) > 1:
        raise UsageError(f"--product must be given once for a script, not {len(names)} times")
    if not names:
        return current_product()
    hint = product_hint(names[0])
    if hint is not None:
        note(hint)
    return get_product(names[0])


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
    explanations : tuple of Explanation
        Empty unless they were asked for.
    """

    code: int
    explanations: tuple[Explanation, ...]


def run_script(file: str, arguments: Sequence[str], product: Product, *, explain: bool, quiet: bool = False) -> Outcome:
    """Run a Python file as ``python file arguments...`` would, with ``product`` as the current one.

    Parameters
    ----------
    file : str
        Path.
    arguments : sequence of str
        Its command line.
    product : Product
        Current product; the script may choose another.
    explain : bool
        Record what its operators do.
    quiet : bool
        What it prints goes to standard error.

    Raises
    ------
    UsageError
        If there is no such file.
    """
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"Script must be an existing file, not {file}")
    note_compilation()
    recorder = Recorder()
    before = sys.argv, sys.path[:]
    sys.argv = [file, *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    with contextlib.ExitStack() as stack:
        stack.enter_context(use_product(product))
        if explain:
            stack.enter_context(recording(recorder))
        if quiet:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            code = _run(path)
        finally:
            sys.argv, sys.path[:] = before
    if code and explain:
        note("the script ended with an error; what follows is about what ran before it")
    return Outcome(code=code, explanations=recorder.explanations())


def _run(path: Path) -> int:
    """Run the file; an error of its own ends in its traceback on standard error, from its first line on."""
    from ops.cli.output import OutputFileError, ReaderGoneError

    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return 0 if end.code in (None, 0) else 1
    except (ReaderGoneError, OutputFileError):
        raise
    except Exception as error:
        found = traceback.TracebackException.from_exception(error)
        frames = [i for i, frame in enumerate(found.stack) if frame.filename == str(path)]
        if frames:
            found.stack = traceback.StackSummary.from_list(list(found.stack)[frames[0] :])
        sys.stderr.write("".join(found.format()))
        return 1
    return 0


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
    screen.print(Text(f"{explanation.title} ({explanation.product.name})", style="bold"))
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
    for launch in explanation.launches:
        size = f"{counted(launch.core_count, 'core')}, {counted(launch.phase_count, 'phase')}"
        screen.print(Text(f"  launch: {launch.name}: {size}"))
    screen.print()


def _text(value: Value) -> str:
    return "" if value is None else str(value)


def time_script(
    file: str,
    products: Sequence[str] | None,
    json_path: str | None,
    trace: str | None,
    trace_cores: Sequence[int] | None,
) -> int:
    """Run a script and time what its operators launched; return the exit code."""
    product = one_product(products)
    if trace == "-":
        raise UsageError("--trace must be a file, not standard output")
    target = output_path("--trace", trace, file, (output_path("--json", json_path, file),))
    if trace_cores and target is None:
        raise UsageError("--trace-core must be given together with --trace")
    outcome = run_script(file, (), product, explain=True, quiet=json_path == "-")
    launches = [(made, launch) for made in outcome.explanations for launch in made.launches]
    timed = [(made, launch, run_timeline(launch, made.product)) for made, launch in launches]
    more: dict[Path, bytes] = {}
    if target is not None:
        if len(launches) != 1:
            raise UsageError(f"--trace must come with a script of one launch, not {len(launches)}")
        made, launch, result = timed[0]
        more[target] = json.dumps(_trace(made, launch, result, trace_cores), allow_nan=False).encode()
    if json_path != "-":
        _print_times(timed)
    rows = [{"title": made.title, **json.loads(result.to_json())} for made, _, result in timed]
    write_report({"schema_version": SCHEMA_VERSION, "source": file, "launches": rows}, json_path, file, more)
    return 1 if outcome.code or not timed else 0


def _trace(made: Explanation, launch: Any, result: TimelineResult, cores: Sequence[int] | None) -> dict[str, Any]:
    for core in cores or ():
        if not 0 <= core < launch.core_count:
            raise OperatorError(f"Core must be in [0, {launch.core_count - 1}], not {core}", 161002)
    rows = result.row_count * (len(cores) if cores else launch.core_count) // launch.core_count
    if rows > TRACE_ROW_LIMIT:
        raise OperatorError(f"Trace must hold at most {TRACE_ROW_LIMIT} rows, not about {rows}", 161002)
    options = TimelineOptions(span_cores=tuple(cores) if cores else None)
    return chrome_trace(run_timeline(launch, made.product, spans=True, options=options), launch.sites)


def _print_times(timed: Sequence[tuple[Explanation, Any, TimelineResult]]) -> None:
    screen = console()
    if not timed:
        screen.print("nothing was launched by an operator that explains itself")
        return
    headings = ("launch", "product", "cores", "cycles", "us", "task us", *_PIPES)
    rows = []
    for made, launch, result in timed:
        shares = (f"{100 * result.busy_cycles[pipe] / result.total_cycles:.0f}%" for pipe in _PIPES)
        times = (f"{seconds * 1e6:.1f}" for seconds in (result.seconds(), result.task_seconds()))
        counts = (str(result.core_count), str(result.total_cycles))
        rows.append((launch.name, made.product.name, *counts, *times, *shares))
    for table in fitted_tables(headings, rows, width=screen.width, left=("launch", "product"), breaks=_PIPES[:1]):
        screen.print(table)
    for _, launch, result in timed:
        parts = sorted(result.critical_parts.items(), key=lambda part: -part[1])
        words = ", ".join(
            f"{_SHORT.get(name, name)} {100 * cycles / result.total_cycles:.0f}%"
            for name, cycles in parts[:4]
            if cycles
        )
        screen.print(Text(f"  {launch.name}: critical path {words} ({result.parameter_set})"), soft_wrap=True)
    print_prose(screen, _TIMES_LEGEND)


def check_script(file: str, products: Sequence[str] | None, json_path: str | None) -> int:
    """Run a script and check what its operators launched; return the exit code."""
    product = one_product(products)
    output_path("--json", json_path, file)
    outcome = run_script(file, (), product, explain=True, quiet=json_path == "-")
    checked = [entry for made in outcome.explanations for entry in _checked(made)]
    if json_path != "-":
        _print_findings(checked)
    rows = [
        {"title": made.title, "launch": name, "findings": [_finding(found) for found in findings]}
        for made, name, findings in checked
    ]
    write_report({"schema_version": SCHEMA_VERSION, "source": file, "launches": rows}, json_path, file, {})
    return 1 if outcome.code or not checked or any(findings for _, _, findings in checked) else 0


def _checked(made: Explanation) -> Iterator[tuple[Explanation, str, list[Violation]]]:
    """Yield the findings of each launch; launches on one memory are checked together, for a later one may read."""
    for _, group in groupby(made.launches, key=lambda launch: id(launch.gm)):
        launches = list(group)
        found = run_hazards(launches, made.product)
        for number, launch in enumerate(launches):
            yield made, launch.name, [violation for violation in found if violation.launch == number]


def _finding(violation: Violation) -> dict[str, Any]:
    return {
        "kind": violation.kind.value,
        "core": violation.core,
        "row": violation.row,
        "other_row": violation.other_row,
        "text": str(violation),
    }


def _print_findings(checked: Sequence[tuple[Explanation, str, list[Violation]]]) -> None:
    screen = console()
    if not checked:
        screen.print("nothing was launched by an operator that explains itself")
    for made, name, findings in checked:
        screen.print(Text(f"{name} ({made.product.name}): {counted(len(findings), 'finding')}"), soft_wrap=True)
        for violation in findings[:_FINDINGS_SHOWN]:
            screen.print(Text(f"  {violation}", style="red"), soft_wrap=True)
        if len(findings) > _FINDINGS_SHOWN:
            screen.print(Text(f"  ... {len(findings) - _FINDINGS_SHOWN} more; --json has all of them"))


def explanations_document(file: str, outcome: Outcome) -> dict[str, Any]:
    """Return what ``run --json`` writes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": file,
        "exit_code": outcome.code,
        "explanations": to_plain([made.to_plain() for made in outcome.explanations]),
    }

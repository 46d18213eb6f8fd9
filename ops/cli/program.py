"""``npu-sim program``: the instructions of a call, listed, kept in a file, or held against those of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import shapes
from ops.cli.check_options import refuse_core
from ops.cli.output import console
from ops.cli.usage import output_path

if TYPE_CHECKING:
    from npu_sim.report.program_file import StoredProgram

SCHEMA_VERSION = 1
_EXIT_DIFFERENT = 1


def program_command(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Python file that calls kernels or operators, or what --save wrote."),
    ],
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="Another one: show where their instructions differ.")
    ] = None,
    save: Annotated[str | None, typer.Option("--save", metavar="FILE", help="Keep the launches in a file.")] = None,
    call: Annotated[int, typer.Option("--call", min=0, help="Which of the calls of a Python file, from 0 on.")] = 0,
    core: Annotated[int, typer.Option("--core", min=0, help="Core whose instructions are listed.")] = 0,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Instructions shown of each launch and phase.")] = 100,
    product: shapes.ScriptProductOption = None,
    json_path: shapes.JsonOption = None,
) -> None:
    """List the instructions of a call, keep them in a file, or show where two programs differ.

    A kept program has no code in it: reading it runs nothing. Exit code 1: the
    programs differ; 2: bad input; 3: internal error; 130: interrupted.
    """
    left = _program(file, call, product)
    if save is not None:
        _save(left, save, file)
    if other is not None:
        found = _differences(left, _program(other, call, product), json_path, (file, other), rows)
        raise typer.Exit(_EXIT_DIFFERENT if found else 0)
    _listed(left, file, core, rows, json_path)


def _program(file: str, call: int, product: Sequence[str] | None) -> StoredProgram:
    """Return the launches that a file holds, or that a call of a Python file made."""
    from npu_sim.errors import InputFileError
    from npu_sim.report.program_file import StoredProgram, read_program
    from ops.cli import scripts

    if not scripts.is_script(file):
        return read_program(Path(file))
    chip = scripts.one_product(product)
    outcome = scripts.run_script(file, (), chip, explain=True, quiet=True)
    made = [one for one in outcome.explanations if one.launches]
    if not call < len(made):
        raise InputFileError(f"--call must be one of the {len(made)} calls of {file} that launch kernels, not {call}")
    return StoredProgram(product=made[call].product, launches=made[call].launches)


def _save(program: StoredProgram, path: str, source: str) -> None:
    from npu_sim.report.files import write_files
    from npu_sim.report.program_file import program_bytes

    target = output_path("--save", path, source)
    if target is not None:
        content = program_bytes(program.launches, program.product)
        write_files({target: content})
        console().print(f"written: {target}, {len(content)} bytes", soft_wrap=True)


def _listed(program: StoredProgram, file: str, core: int, rows: int, json_path: str | None) -> None:
    from npu_sim.program.disassemble import listing
    from npu_sim.program.recorded import rows_of

    refuse_core(core, (launch.core_count for launch in program.launches))
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "source": file, "product": program.product.name}
    document["launches"] = []
    for launch in program.launches:
        phases = []
        for phase in range(launch.phase_count) if core < launch.core_count else ():
            every = rows_of(launch, core, phase)
            lines = listing(every[:rows], sites=launch.sites).splitlines()
            phases.append({"phase": phase, "row_count": len(every), "rows": lines})
        shape = {"core_count": launch.core_count, "core_kind": launch.core_kind, "phase_count": launch.phase_count}
        document["launches"].append({"launch": launch.name, **shape, "core": core, "phases": phases})
    if json_path != "-":
        _print_listing(document)
    _write(document, json_path, file)


def _print_listing(document: dict[str, Any]) -> None:
    screen = console()
    for launch in document["launches"]:
        words = f"{launch['launch']}: {launch['core_count']} {launch['core_kind']} cores ({document['product']})"
        screen.print(words, style="bold", soft_wrap=True, markup=False, highlight=False)
        for phase in launch["phases"]:
            screen.print(f"core {launch['core']}, phase {phase['phase']}: {phase['row_count']} instructions")
            for line in phase["rows"]:
                screen.print(line, soft_wrap=True, markup=False, highlight=False)
            if phase["row_count"] > len(phase["rows"]):
                screen.print(f"... {phase['row_count'] - len(phase['rows'])} more; --rows shows more")


def _differences(
    left: StoredProgram, right: StoredProgram, json_path: str | None, files: tuple[str, str], rows: int
) -> bool:
    """Print or write where two programs differ; return whether they do."""
    from npu_sim.report.program_difference import differences
    from npu_sim.report.record import counted, to_plain

    found = list(differences(left.launches, right.launches))
    document = {"schema_version": SCHEMA_VERSION, "left": files[0], "right": files[1], "differences": to_plain(found)}
    if json_path != "-":
        screen = console()
        for one in found[:rows]:
            place = f"launch {one.launch}, core {one.core}, phase {one.phase}"
            screen.print(f"{place}, rows {one.left_first} and {one.right_first}", style="bold", soft_wrap=True)
            for sign, texts in (("-", one.left), ("+", one.right)):
                for text in texts:
                    screen.print(f"{sign} {text}", soft_wrap=True, markup=False, highlight=False)
        words = counted(len(found), "difference")
        screen.print(words if len(found) <= rows else f"{words}, the first {rows} are shown", style="bold")
    _write(document, json_path, files[0])
    return bool(found)


def _write(document: dict[str, Any], json_path: str | None, source: str) -> None:
    if json_path is not None:
        from ops.cli import scripts

        scripts.write_report(document, json_path, source, {})

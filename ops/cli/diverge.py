"""``npu-sim diverge``: the first instruction of a kernel whose result is wrong, with what it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from ops.cli import shapes
from ops.cli.judge import BudgetOption, CallOption, FileArgument, GoldenOption, value_words
from ops.cli.output import console
from ops.cli.usage import UsageError, output_path

if TYPE_CHECKING:
    from npu_sim.debug.divergence import Divergence
    from npu_sim.debug.execution import Execution
    from npu_sim.debug.operands import Operand
    from npu_sim.debug.places import Place

SCHEMA_VERSION = 1
_CORNER = (4, 6)
"""Rows and columns of an operand that are printed."""

GoodOption = Annotated[
    str | None,
    typer.Option("--good", metavar="FILE.py", help="A file whose call does it right; run beside it, row by row."),
]
DumpOption = Annotated[
    str | None, typer.Option("--dump", metavar="FILE.npz", help="Write the operands whole, ND and fractal by fractal.")
]
ChainOption = Annotated[int, typer.Option("--chain", min=0, help="Lines printed of what the store rests on.")]


def diverge_command(
    file: FileArgument,
    arguments: shapes.ScriptArguments = None,
    golden: GoldenOption = None,
    good: GoodOption = None,
    budget: BudgetOption = None,
    call: CallOption = None,
    product: shapes.ScriptProductOption = None,
    chain: ChainOption = 12,
    dump: DumpOption = None,
    json_path: shapes.JsonOption = None,
) -> None:
    """Find the first instruction of a kernel whose result is wrong.

    With --golden the wrong elements are followed back to the first store that
    leaves any, and what its bytes came from is held against what right stores of
    the line came from. With --good a second file, whose kernel is right on the
    same inputs, runs beside it; then --budget is 0 unless given.

    Exit code 0: nothing is wrong; 1: a result diverges; 2: bad input; 3: internal
    error; 130: interrupted.
    """
    # Imported here: they load the compiler, which the help does not need.
    from npu_sim.debug.divergence import diverge_from_golden
    from npu_sim.debug.good import diverge_from_good
    from ops.cli import scripts
    from ops.studies.goldens_given import read_goldens

    if bool(golden) == bool(good):
        raise UsageError("one of --golden and --good must be given, not both or none")
    chip = scripts.one_product(product)
    dump_file = output_path("--dump", dump, file)
    output_path("--json", json_path, file)
    execution = _executed(file, arguments or (), chip, call)
    if good is None:
        found = diverge_from_golden(execution, read_goldens(golden or (), execution), budget)
    else:
        twin = diverge_from_good(execution, _executed(good, arguments or (), chip, call), budget or 0.0)
        found = twin or no_divergence()
    raise typer.Exit(report_divergence(found, file, json_path, dump_file, chain))


def report_divergence(found: Divergence, file: str, json_path: str | None, dump_file: Path | None, chain: int) -> int:
    """Print and write where a kernel diverges; return the exit code."""
    from ops.cli import scripts

    if json_path != "-":
        _print(found, console(), chain)
    if dump_file is not None:
        _dump(found, dump_file)
    if json_path is not None:
        scripts.write_report(document_of(found, file), json_path, file, {})
    return 0 if found.place is None and not any(tensor.wrong_count for tensor in found.tensors) else 1


def no_divergence() -> Divergence:
    """Return what is said of two kernels that do the same."""
    from npu_sim.debug.divergence import Divergence

    return Divergence(tensors=(), store=None, suspect=None, reason="no instruction writes other values", executions=2)


def _executed(file: str, arguments: Sequence[str], chip: Any, call: int | None) -> Execution:
    """Run a file and return the call that is asked for."""
    from ops.cli import scripts
    from ops.studies.kernel_judging import chosen_call

    outcome = scripts.run_script(file, arguments, chip, explain=False, quiet=True, keeps_tensors=True)
    scripts.hold_to_product(outcome, file, chip)
    execution = outcome.explanations[chosen_call(outcome.explanations, call)].execution
    assert execution is not None
    return execution


def document_of(found: Divergence, file: str) -> dict[str, Any]:
    """Return what ``--json`` writes."""
    from npu_sim.report.record import to_plain

    return {
        "schema_version": SCHEMA_VERSION,
        "source": file,
        "diverges": found.place is not None or any(tensor.wrong_count for tensor in found.tensors),
        "tensors": to_plain(found.tensors),
        "store": _plain_place(found.store),
        "suspect": _plain_place(found.suspect),
        "reason": found.reason,
        "executions": found.executions,
        "chain": [_plain_place(place) for place in found.chain],
        "operands": [_plain_operand(operand) for operand in (*found.operands, *found.results)],
    }


def _plain_place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    source = place.source
    return {
        "launch": place.launch, "phase": place.phase, "core": place.core, "row": place.row, "tile": place.tile,
        "file": source.file if source else "", "line": source.line if source else 0, "text": place.text.strip(),
    }  # fmt: skip


def _plain_operand(operand: Operand) -> dict[str, Any]:
    values = operand.values.astype(np.float64)
    finite = values[np.isfinite(values)]
    return {
        "role": operand.role,
        "space": operand.space.name,
        "start": operand.start,
        "dtype": operand.dtype.name,
        "shape": list(values.shape),
        "smallest": float(finite.min()) if finite.size else None,
        "largest": float(finite.max()) if finite.size else None,
        "not_finite": int(values.size - finite.size),
    }


def _dump(found: Divergence, path: Path) -> None:
    import io

    from npu_sim.report.files import write_files

    arrays = {}
    for operand in (*found.operands, *found.results):
        name = operand.role.replace(" ", "_")
        arrays[name] = operand.values.astype(np.float64) if operand.dtype.name == "bf16" else operand.values
        if operand.fractals is not None:
            arrays[f"{name}_fractals"] = operand.fractals.astype(arrays[name].dtype)
    data = io.BytesIO()
    np.savez(data, **arrays)  # type: ignore[arg-type]
    write_files({path: data.getvalue()})


def _print(found: Divergence, screen: Console, chain: int) -> None:
    for tensor in found.tensors:
        screen.print(Text(value_words(tensor)), soft_wrap=True)
    if found.place is None:
        screen.print(Text(found.reason, style="bold"), soft_wrap=True)
        return
    if found.suspect is not None:
        screen.print(Text(f"suspect: {found.suspect}", style="bold"), soft_wrap=True)
    screen.print(Text(f"  {found.reason}"), soft_wrap=True)
    if found.store is not None and found.store != found.suspect:
        screen.print(Text(f"first wrong: {found.store}", style="bold"), soft_wrap=True)
    for operand in (*found.operands, *found.results):
        _print_operand(operand, screen)
    if found.chain and chain:
        lines = [
            list(group) for _, group in groupby(found.chain, key=lambda place: (place.core, place.source or place))
        ]
        words = f"what the store rests on: {len(found.chain)} instructions"
        screen.print(Text(words if len(lines) <= chain else f"{words}, the last {chain} lines of them"))
        for group in lines[-chain:]:
            mark = ">" if found.suspect in group else " "
            more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
            screen.print(Text(f"{mark} {group[0]}{more}"), soft_wrap=True)


def _print_operand(operand: Operand, screen: Console) -> None:
    values = operand.values
    size = "x".join(map(str, values.shape))
    fractals = "" if operand.fractals is None else f", {len(operand.fractals)} fractals"
    screen.print(Text(f"{operand.role}[{operand.start:#x}]: {operand.dtype.name} {size}{fractals}"), soft_wrap=True)
    table = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[None]
    for line in table[: _CORNER[0]]:
        numbers = " ".join(f"{float(value):>11.5g}" for value in line[: _CORNER[1]])
        screen.print(Text(f"  {numbers}{' ...' if len(line) > _CORNER[1] else ''}"), soft_wrap=True)
    if len(table) > _CORNER[0]:
        screen.print(Text("  ..."))

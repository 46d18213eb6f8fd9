"""``npu-sim selftest``: which model of the Cube's additions a device has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from npu_sim.products.product import ACCUMULATION_PARTS
from npu_sim.report.files import check_writable, write_files
from npu_sim.report.record import counted
from npu_sim.report.tables import fitted_tables
from ops.cli import shapes
from ops.cli.output import console, note_compilation, print_prose
from ops.cli.usage import UsageError, output_path
from ops.studies.selftest.probes import DEPTH

if TYPE_CHECKING:
    from ops.studies.selftest.report import Candidate, Fitting, SelfTestReport, TensorsReport


def selftest_command(
    file: Annotated[
        str | None, typer.Argument(metavar="[RESULTS.npz]", help="What the program on the device wrote.")
    ] = None,
    write: Annotated[
        str | None, typer.Option("--write", metavar="FILE", help="Write the vectors for the device (.npz).")
    ] = None,
    script: Annotated[
        str | None,
        typer.Option("--script", metavar="FILE", help="Write the program that multiplies them by torch_npu (.py)."),
    ] = None,
    json_path: shapes.JsonOption = None,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Say which model of the Cube's additions a device has, from vectors that it multiplied.

    For owners of a device. --write and --script give a file of vectors and a
    short program (NumPy, torch, torch_npu) that multiplies them there:

    python run_on_device.py vectors.npz results.npz

    The results then tell, for fp16, bf16, fp32 and HF32, how many products are
    added at once, how wide and rounded how, what becomes of subnormal and of too
    large sums, how operands are rounded, which models fit, and which result
    excludes each other one. A model fits if every element is equal, any NaN to
    any other and zeros of both signs. Assumed: k runs upwards on the device, and
    it is cut into Mmads at multiples of a group.

    Exit code 0: a model fits for each type, or files were written; 1: none fits
    for some type; 2: bad input; 3: internal error; 130: interrupted.
    """
    if file is None and write is None and script is None:
        raise UsageError("One of RESULTS.npz, --write and --script must be given")
    if file is not None and (write is not None or script is not None):
        raise UsageError("RESULTS.npz must not be given together with --write or --script")
    if file is None:
        _write(write, script)
        return
    json_file = output_path("--json", json_path, file)
    # Imported here: they load the compiler, which the help does not need.
    from ops.studies.selftest.run import self_test
    from ops.studies.selftest.vectors import load_results

    results = load_results(file)
    note_compilation()
    with shapes.progress_bar(shown=not no_progress) as progress:
        report = self_test(results, progress=progress)
    json_text = report.to_json() + "\n"
    write_files({} if json_file is None else {json_file: json_text.encode()})
    if json_path == "-":
        sys.stdout.write(json_text)
    else:
        _print(report, console())
        if json_file is not None:
            console().print(f"written: {json_file}", soft_wrap=True)
    raise typer.Exit(0 if report.passed else 1)


def _write(vectors: str | None, script: str | None) -> None:
    """Write the files for the device."""
    from ops.studies.selftest.vectors import device_script, vectors_file

    if vectors is not None and script is not None and Path(vectors).resolve() == Path(script).resolve():
        raise UsageError(f"--script must be another file than {vectors}")
    makers = {vectors: vectors_file, script: device_script}
    paths = {Path(path): make for path, make in makers.items() if path is not None}
    for path in paths:
        check_writable(path)
    write_files({path: make() for path, make in paths.items()})
    for path in paths:
        console().print(f"written: {path}", soft_wrap=True)


def _print(report: SelfTestReport, screen: Console) -> None:
    device = " ".join(filter(None, (report.device or "device unknown", report.software and f"({report.software})")))
    print_prose(screen, f"{report.source}: {device}")
    for part in report.tensors:
        screen.print()
        _print_part(part, screen)


def _print_part(part: TensorsReport, screen: Console) -> None:
    name = "fp32 tensors, HF32 allowed" if part.tensors == "hf32" else f"{part.tensors} tensors"
    if part.device_error:
        screen.print(Text(f"{name}: refused by the device: {part.device_error}", style="bold"))
        return
    screen.print(Text(f"{name}: {_verdict(part)}", style="bold green" if part.passed else "bold red"))
    rows = [(reading.feature, reading.value, reading.probes) for reading in part.readings]
    for table in fitted_tables(_SHOWS, rows, width=screen.width, left=_SHOWS):
        screen.print(table)
    if part.excluded:
        screen.print(Text("models that do not fit, differences of one thing:", style="dim"))
        others = [_exclusion(part, candidate) for candidate in part.excluded]
        for table in fitted_tables(_EXCLUDED, others, width=screen.width, left=_EXCLUDED[:1] + _EXCLUDED[2:4]):
            screen.print(table)


_SHOWS = ("the device", "does", "results of the probes")
_EXCLUDED = ("model", "differs in", "first in", "which asks", "device", "model has")


def _verdict(part: TensorsReport) -> str:
    if not part.fits:
        nearest = part.nearest
        assert nearest is not None
        deciding = nearest.first_difference
        assert deciding is not None
        return (
            f"no model fits. The nearest, {_words(nearest)}, differs in {nearest.differing_count} of "
            f"{counted(part.element_count, 'element')}, first in {deciding.name}: {deciding.device}, "
            f"the model has {deciding.model}"
        )
    alike = _alike(part)
    rest = f"; nothing here tells {', '.join(alike)} apart" if alike else ""
    return f"{_words(part.fits[0])} fits{rest}"


def _words(candidate: Fitting) -> str:
    mode = {"inf_nan": "Inf/NaN mode", "saturate": "saturation mode"}[candidate.overflow]
    longest = f", the longest group the vectors show ({DEPTH})" if f"{DEPTH}-" in candidate.model else ""
    return f"{candidate.model} ({candidate.multiplies}, {mode}{longest})"


def _alike(part: TensorsReport) -> list[str]:
    """Return what may be added to the name of the model that fits without a difference."""
    names = {candidate.model for candidate in part.fits}
    own = part.fits[0].model
    every = [value for values in ACCUMULATION_PARTS.values() for value in values]
    parts = [f"+{value}" for value in every if f"{own}+{value}" in names]
    base = own.partition("+")[0]
    return parts + sorted(name for name in names if name.partition("+")[0] != base and "+" not in name)


def _exclusion(part: TensorsReport, candidate: Candidate) -> tuple[str, ...]:
    deciding, nearest = candidate.first_difference, part.nearest
    assert deciding is not None
    assert nearest is not None
    words = [candidate.model]
    words += [candidate.multiplies] if candidate.multiplies != nearest.multiplies else []
    words += [candidate.overflow] if candidate.overflow != nearest.overflow else []
    values = (deciding.name, deciding.asks, deciding.device, deciding.model)
    return (", ".join(words), str(candidate.differing_count), *values)

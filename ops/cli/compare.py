"""``npu-sim compare``: two results for one gradient, of the emulator or of a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npu_sim.report.files import write_files
from ops.cli import shapes
from ops.cli.compare_table import print_comparison
from ops.cli.effort import YesOption, announce
from ops.cli.output import console, note_compilation, note_hints
from ops.cli.usage import UsageError, output_path
from ops.studies.capture import load_capture, load_example
from ops.studies.layers import RESULT_NAMES

if TYPE_CHECKING:
    from ops.studies.comparison import Side
    from ops.studies.effort import Effort
    from ops.studies.layers import Capture

_SIDE = "product=NAME[,cube_math_type=0..3][,accumulation=MODEL][,entry=aclnn|tbe|ascendc]"
_DUMP = "FILE[,dtype=fp16|bf16|fp32][,tensor=NAME]"
_EMULATED = ("product", "cube_math_type", "accumulation", "entry")
_DUMPED = ("dtype", "tensor")


def compare_command(
    left: Annotated[str, typer.Option("--left", metavar="SIDE", help=f"{_SIDE}, or {_DUMP}.")],
    right: Annotated[str, typer.Option("--right", metavar="SIDE", help="The other one, likewise.")],
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.npz]", help="Captured layers; without it, a training step that ships with the package."
        ),
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", help="Name of a layer. Default: the first.")] = None,
    gradient: Annotated[
        str | None,
        typer.Option("--gradient", "--result", help="dx, dw, db or y. Default: the first that the layer names."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Cast the tensors first: fp16, bf16 or fp32. Default: as in the file.")
    ] = None,
    json_path: shapes.JsonOption = None,
    picture: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", help="Histogram of the distances as picture, .png, .svg or .pdf."),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Threads; no influence on any figure.")] = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Compare two results for one gradient: products, modes, models, a device's dump.

    A side is a call of the emulator (product=310p,cube_math_type=1) or a tensor
    that a device left: an .npy file, raw elements (dump.bin,dtype=fp16), or a
    folder of msprobe with its dump.json (step0/rank0,tensor=NAME; without NAME
    the only tensor of the right shape).

    Prints a histogram of the distances in ULP of the shorter type, the elements
    that are farthest apart with their largest products and where these come from,
    and which models of the Cube's additions give the other side's bits best.

    Exit code 0: every element is equal; 1: some differ; 2: bad input, a refused
    call, or too much work without --yes; 3: internal error; 130: interrupted.
    """
    sides = read_side("--left", left), read_side("--right", right)
    if dtype not in (None, "fp16", "bf16", "fp32"):
        raise UsageError(f"--dtype must be fp16, bf16 or fp32, not {dtype}")
    if gradient not in (None, *RESULT_NAMES):
        raise UsageError(f"--gradient must be dx, dw, db or y, not {gradient}")
    json_file = output_path("--json", json_path, file)
    picture_file = output_path("--picture", picture, file, (json_file,))
    if picture_file is not None:
        from ops.cli.compare_picture import SUFFIXES, draw, require_matplotlib

        if picture_file.suffix.lower() not in SUFFIXES:
            raise UsageError(f"Picture must be a {', '.join(SUFFIXES)} file, not {picture}")
        require_matplotlib()
    capture = load_capture(file) if file is not None else load_example()
    # Imported here: they load the compiler, which the help does not need.
    from ops.studies.comparison import Emulated, compare

    note_hints([side.product for side in sides if isinstance(side, Emulated)])
    note_compilation()
    announce(_effort(capture, sides, layer, gradient, dtype), yes=yes)
    with shapes.progress_bar(shown=not no_progress) as progress:
        report = compare(
            capture, *sides, layer=layer, gradient=gradient, dtype=dtype, threads=threads, progress=progress
        )  # fmt: skip
    json_text = report.to_json() + "\n"
    contents: dict[Path, bytes] = {} if json_file is None else {json_file: json_text.encode()}
    if picture_file is not None:
        contents[picture_file] = draw(report, picture_file.suffix.lower())
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(json_text)
    else:
        print_comparison(report, console())
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    raise typer.Exit(0 if report.equal else 1)


def read_side(option: str, text: str) -> Side:
    """Return what a side's text means.

    Raises
    ------
    UsageError
        It is none.
    """
    from ops.studies.comparison import Emulated
    from ops.studies.dumps import Dump

    first, *rest = text.split(",")
    is_emulated = first.partition("=")[0] in _EMULATED
    known = _EMULATED if is_emulated else _DUMPED
    given: dict[str, Any] = {}
    for item in [first, *rest] if is_emulated else rest:
        key, equals, value = item.partition("=")
        if key not in known or not equals or not value or key in given:
            raise UsageError(
                f"{option} must be {_SIDE if is_emulated else _DUMP}, each once, not {text!r} (at {item!r})"
            )
        given[key] = value
    if not is_emulated:
        return Dump(path=first, **given)
    if "product" not in given:
        raise UsageError(f"{option} must name a product: {_SIDE}, not {text!r}")
    if "cube_math_type" in given:
        (given["cube_math_type"],) = shapes.read_modes([given["cube_math_type"]])
    if given.get("entry", "aclnn") not in ("aclnn", "tbe", "ascendc"):
        raise UsageError(f"entry of {option} must be aclnn, tbe or ascendc, not {given['entry']}")
    return Emulated(**given)


def _effort(
    capture: Capture, sides: tuple[Side, Side], layer: str | None, gradient: str | None, dtype: str | None
) -> Effort:
    """Return the effort of both calls and of those that try models."""
    from ops.studies.comparison import MODELS, Emulated, select
    from ops.studies.effort import Effort, precision_effort
    from ops.studies.precision_results import StudyOptions

    one, kind = select(capture, layer, gradient)  # type: ignore[arg-type]  # checked by the command
    # the models are tried on the first side that is emulated
    effort, calls = Effort(), 1 + len(MODELS)
    for side in sides:
        if isinstance(side, Emulated):
            options = StudyOptions(
                products=(side.product,), layers=(one.name,), gradients=(kind.gradient,), dtype=dtype,
                cube_math_types=(side.cube_math_type,), entries=(side.entry,),
            )  # fmt: skip
            effort = sum([precision_effort(capture, options)] * calls, effort)
            calls = 1
    return effort

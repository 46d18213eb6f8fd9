"""``npu-sim precision``: the error of every gradient or output, by layer, product and mode."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.errors import NpuSimError
from npu_sim.products.registry import get_product
from npu_sim.report.files import check_writable, write_files, write_folder
from npu_sim.report.record import counted
from npu_sim.report.standards.registry import DEFAULT, STANDARDS
from ops.cli.attribution_table import print_attribution
from ops.cli.effort import YesOption, announce
from ops.cli.html_page import html_path
from ops.cli.output import console, note, note_compilation, note_hints, print_prose
from ops.cli.painter import Painter
from ops.cli.precision_figures import figures
from ops.cli.precision_html import render
from ops.cli.precision_picture import SUFFIXES, require_matplotlib
from ops.cli.precision_source import read_layers
from ops.cli.precision_summary import print_summary
from ops.cli.precision_table import print_details
from ops.cli.shapes import NoProgressOption, progress_bar, read_modes
from ops.cli.usage import UsageError
from ops.studies.kinds import ENTRIES, Entry
from ops.studies.precision_results import StudyOptions, default_products
from ops.studies.precision_rows import WRITERS
from ops.studies.results_file import Results

DEFAULT_PICTURE = Path("npu-sim-precision.png")


def precision_command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="Captured layers (.npz); test cases of ATK (.json) or TTK (.csv); mymodel.py:build, a function that "
            "returns (model, loss) or (model, x) of PyTorch; without it, a training step that ships with the package.",
        ),
    ] = None,
    product: Annotated[
        list[str] | None,
        typer.Option(
            "--product",
            "--soc-version",
            help="SoC version, series alias or product file; repeatable. Default: all series that have the interface.",
        ),
    ] = None,
    cube_math_type: Annotated[
        list[str] | None,
        typer.Option(
            "--cube-math-type", help="0..3 or a name such as USE_HF32; repeatable. Default: a case's own, else all."
        ),
    ] = None,
    layer: Annotated[
        list[str] | None, typer.Option("--layer", help="Name of a layer; repeatable. Default: all.")
    ] = None,
    gradient: Annotated[
        list[str] | None,
        typer.Option(
            "--gradient",
            "--result",
            help="dx, dw or db, the gradient of the input, weight or bias, or y, the output of the forward call; "
            "repeatable. Default: what each layer of the file names.",
        ),
    ] = None,
    entry: Annotated[
        list[str] | None,
        typer.Option(
            "--entry",
            help="Interface: aclnn, or for weight gradients tbe (DSL of 310, 310p and 910, fp16 tensors) or ascendc "
            "(class of 910b and 910_93, fp16 and bf16 tensors); repeatable. Default: aclnn.",
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Cast the tensors first: fp16, bf16 or fp32. Default: as in the file.")
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            "--generate",
            help="Draw all tensors from a distribution of the standards: uniform, normal, wide, small, outliers or "
            "special. Default: the file's tensors; of cases their ranges.",
        ),
    ] = None,
    default_shapes: Annotated[
        bool,
        typer.Option(
            "--default-shapes",
            help="All operators, results, types and interfaces on small shapes of ours instead of a file; tensors are "
            "drawn, uniform unless --generate names another distribution.",
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Of drawn tensors. Default: 0.")] = None,
    golden: Annotated[
        str,
        typer.Option(
            "--golden",
            help="Golden whose verdict decides the exit code: rounded (what the Cube multiplied, as CANN's own "
            "reference does) or original (the tensors of the file).",
        ),
    ] = "rounded",
    standard: Annotated[
        list[str] | None,
        typer.Option(
            "--standard",
            help=f"Standard that judges: {', '.join(STANDARDS)}; repeatable, all of them decide. Default: {DEFAULT}.",
        ),
    ] = None,
    recheck: Annotated[
        int,
        typer.Option(
            "--recheck",
            metavar="N",
            help="Run what fails a double benchmark by its ratios N times more, with elements drawn anew from the "
            "tensors, and judge the medians: 0 or at least 200; the standard advises 1000. Default: 0.",
            show_default=False,
        ),
    ] = 0,
    accumulation: Annotated[
        str | None,
        typer.Option(
            "--accumulation",
            help="serial, or a model such as exact16, tree4-rz or exact4+keep. Default: the product's.",
        ),
    ] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; '-' is standard output.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="FILE", help="Write all rows as .csv, .md or .parquet (pyarrow); repeatable."),
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="Keep results in this file, gradient by gradient; what it has already is not computed again.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Processes that compute at once, with --attribute too. Default: 1.")
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask scheduler whose workers compute, with --attribute too, such as tcp://host:8786.",
        ),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            "--picture",
            metavar="FILE",
            help=f"Picture, .png, .svg or .pdf. Default: {DEFAULT_PICTURE}, unless --json -.",
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML file with all charts.")
    ] = None,
    charts: Annotated[
        str | None,
        typer.Option(
            "--charts", metavar="DIR", help="Write each chart of the HTML report as .png and .svg into this new folder."
        ),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw nothing.")] = False,
    threads: Annotated[int | None, typer.Option("--threads", help="Threads; no influence on any figure.")] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Print a table of every gradient, too, and the whole legend.")
    ] = False,
    attribution: Annotated[
        bool,
        typer.Option(
            "--attribute",
            help="Find out where each error comes from: inputs, additions, output or overflow; about 7 times the work.",
        ),
    ] = False,
    spread: Annotated[
        int,
        typer.Option(
            "--spread",
            metavar="N",
            min=0,
            help="With --attribute: how far results spread over N orders of the cores and over N legal tilings, or all "
            "if they are fewer. Default: 0.",
            show_default=False,
        ),
    ] = 0,
    yes: YesOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Show the error of gradients against float64, for each product and cubeMathType.

    Reads tensors captured from a training step, or draws those of test cases, and
    computes the gradients of convolutions, transposed convolutions and average
    poolings, or with --result y their outputs, by calls of the operators as the
    product would, casts and layout conversions included, and says whether they
    pass CANN's mixed tolerance, or the standards that are named. The double benchmarks, msprobe-benchmark and
    msprobe-ulp compare with a peer: what a CPU makes of the same tensors in
    float32, one product and one addition at a time.

    A verdict is void, and never a pass, where it says nothing: the golden has no
    finite element, an operand became all 0 in the type that is multiplied, or a
    gradient of nothing but zeros would pass too. With several standards a gradient
    fails if one of them says so.

    The first lines say which products and modes are fit. The golden that decides
    is rounded, of what was multiplied: it tells a wrong kernel. Whether a mode is
    fit for a layer tells the original one, of the tensors in the file; its failures
    stand beside, and --golden original lets them decide. What the step trains and
    no line is about (linear layers, norms) is named, too.

    Exit code 0: a gradient passes and none fails; 1: one fails, or none passes
    (all refused or void); 2: bad input, or too much work without --yes; 3:
    internal error; 130: interrupted.
    """
    entries = ENTRIES if default_shapes and not entry else read_entries(entry)
    if spread and not attribution:
        raise UsageError("--spread must be given together with --attribute")
    options = StudyOptions(
        products=tuple(product or default_products(entries)),
        gradients=tuple(gradient) if gradient else None,  # type: ignore[arg-type]  # checked by the record
        entries=entries,
        cube_math_types=read_modes(cube_math_type) if cube_math_type else None,
        layers=tuple(layer) if layer else None,
        dtype=dtype,
        golden=golden,  # type: ignore[arg-type]  # checked by the record
        standards=tuple(standard or (DEFAULT,)),
        recheck=recheck,
        accumulation=accumulation,
        threads=threads,
    )
    json_file = Path(json_path) if json_path not in (None, "-") else None
    picture_file = _picture_file(picture, no_picture=no_picture, by_default=json_path != "-")
    tables = [Path(name) for name in table or ()]
    for path in tables:
        if path.suffix.lower() not in WRITERS:
            raise UsageError(f"Table must be a {', '.join(WRITERS)} file, not {path}")
    results_file = Path(results) if results is not None else None
    html_file = html_path(html)
    charts_folder = _charts_folder(charts)
    _check_outputs(file, [*tables, *filter(None, (json_file, html_file, picture_file, results_file))])
    kept = Results(results_file) if results_file is not None else None
    # before a user's model runs
    for name in options.products:
        get_product(name)
    note_hints(options.products)
    # it loads what it draws with while this process computes
    with nullcontext() if picture_file is None else Painter(picture_file.suffix.lower()) as painter:
        capture = read_layers(file, generate, seed, default_shapes=default_shapes)
        note_compilation()
        # Imported here: they load the compiler, which the help does not need.
        from ops.studies.attribution import attribute, runs_of
        from ops.studies.effort import precision_effort
        from ops.studies.precision import study

        runs = 1 + (runs_of(spread) if attribution else 0)
        announce(precision_effort(capture, options, runs), yes=yes)
        try:
            with progress_bar(shown=not no_progress) as progress:
                report = study(capture, options, progress=progress, results=kept, jobs=jobs, scheduler=scheduler)
            if attribution:
                with progress_bar(shown=not no_progress) as progress:
                    causes = attribute(
                        capture, options, spread=spread, progress=progress, results=kept, jobs=jobs, scheduler=scheduler
                    )
                report = replace(report, attribution=causes)
        except KeyboardInterrupt:
            note(_kept_words(kept))
            raise
        drawn = painter.draw(report) if painter is not None and report.computed else None
    contents: dict[Path, bytes] = {path: WRITERS[path.suffix.lower()](report) for path in tables}
    json_text = report.to_json() + "\n"
    if json_file is not None:
        contents[json_file] = json_text.encode()
    if html_file is not None:
        contents[html_file] = render(report)
    if picture_file is not None:
        if drawn is None:
            note("no picture: every combination is refused")
        else:
            contents[picture_file] = drawn
    pictures = figures(report) if charts_folder is not None else {}
    write_files(contents)
    if charts_folder is not None:
        write_folder(charts_folder, pictures)
    if json_path == "-":
        sys.stdout.write(json_text)
    else:
        print_summary(report, console())
        if details:
            console().print()
            print_details(report, console())
        else:
            print_prose(console(), "--details prints a table of every gradient, and what standard and goldens are.")
        if report.attribution is not None:
            console().print()
            print_attribution(report.attribution, console())
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
        if charts_folder is not None:
            console().print(f"written: {charts_folder}, {counted(len(pictures), 'file')}", soft_wrap=True)
    raise typer.Exit(0 if report.passed else 1)


def _kept_words(kept: Results | None) -> str:
    """Return what is left of a run that was interrupted, and how to go on."""
    if kept is None:
        return "nothing is kept; with --results FILE what is computed stays, and the same command goes on from there"
    return f"{kept.path} holds {kept.words}; the same command goes on from there"


def read_entries(texts: list[str] | None) -> tuple[Entry, ...]:
    """Return the interfaces to call, each once.

    Raises
    ------
    UsageError
        There is no such interface.
    """
    for text in texts or ():
        if text not in ENTRIES:
            raise UsageError(f"--entry must be one of {', '.join(ENTRIES)}, not {text}")
    return tuple(entry for entry in ENTRIES if entry in (texts or ("aclnn",)))


def _picture_file(picture: str | None, *, no_picture: bool, by_default: bool) -> Path | None:
    """Return where the picture goes; None for none. What was asked for must be possible, the default need not be."""
    if picture is not None:
        if no_picture:
            raise UsageError("--picture must not be given together with --no-picture")
        path = Path(picture)
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"Picture must be a {', '.join(SUFFIXES)} file, not {picture}")
        require_matplotlib()
        return path
    if no_picture or not by_default:
        return None
    try:
        require_matplotlib()
        check_writable(DEFAULT_PICTURE)
    except NpuSimError as error:
        note(f"no picture: {error}")
        return None
    return DEFAULT_PICTURE


def _charts_folder(charts: str | None) -> Path | None:
    """Return the folder of the charts, which must not exist yet; None for none."""
    if charts is None:
        return None
    path = Path(charts)
    if path.exists() or path.is_symlink():
        raise UsageError(f"--charts must be a folder that does not exist yet, not {charts}")
    require_matplotlib()
    return path


def _check_outputs(file: str | None, outputs: Sequence[Path]) -> None:
    """Refuse outputs that cannot be written, or that would replace each other or the input."""
    for path in outputs:
        check_writable(path)
        if file is not None and path.resolve() == Path(file).resolve():
            raise UsageError(f"Output file must not be the input {file}")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UsageError(f"Output files must be different, not {', '.join(map(str, outputs))}")

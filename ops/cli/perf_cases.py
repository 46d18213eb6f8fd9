"""``npu-sim perf`` with a file of requests or of test cases."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npu_sim.budget import reserve
from npu_sim.report.files import write_files
from npu_sim.report.record import counted, to_json_text
from npu_sim.report.tables import fitted_tables
from ops.cli import shapes
from ops.cli.effort import YesOption, announce
from ops.cli.output import console, note, note_compilation, print_prose
from ops.cli.usage import UsageError, output_path
from ops.studies.npz import open_file, refuse

if TYPE_CHECKING:
    from ops.studies.calls.answers import Answer

_BYTES_PER_BYTE = 30
"""What Python keeps of a byte of text, roughly, at most."""
_REASONS_SHOWN = 5


def perf_cases_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSON list of requests, each with op, product and its arguments; ATK's JSON; TTK's CSV.",
        ),
    ],
    product: shapes.ProductOption = None,
    cube_math_type: shapes.ModeOption = None,
    layer: shapes.LayerOption = None,
    scope: Annotated[
        str | None, typer.Option("--scope", help="Of test cases: call (default) or kernel. A request says it itself.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes that answer requests. Default: as many as pay off.")
    ] = None,
    json_path: shapes.JsonOption = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Time the requests, or the test cases, of a file.

    A request names an operator, a product, shapes and attributes. Each gets an
    answer, or the reason why there is none, which stops no other. Test cases are
    those of ATK (.json) and TTK (.csv) as they are: the whole backward call of
    each, with the gradients and the cubeMathType it asks for. --product,
    --cube-math-type, --layer and --scope are of test cases; a request says these
    things itself:

    id, op (conv, conv_backprop_filter, conv_backprop_input, conv_backward,
    avg_pool, avg_pool_grad, matmul, transdata, cast, transpose, reduce_sum, fill,
    tensor_move, add, ...), product (910b), scope (call, kernel or core_time),
    block_dim; of convolutions x, w, g, stride, pads, dilation, groups, mask,
    compute, generation; of products m, k, n, batch, trans_a, trans_b, tiling; of
    the others in_shape, in_dtype, in_format, out_shape, out_dtype, out_format,
    perm, axes. For example
    [{"op": "matmul", "product": "910b", "m": 64, "k": 512, "n": 256}].
    The schema is docs/schemas/perf_request_file.json.

    Exit code 0: something was timed; 1: nothing was; 2: bad input, or too much
    work without --yes; 3: internal error; 130: interrupted.
    """
    # Imported here: they load the compiler, which the help does not need.
    from ops.studies.calls.answers import SCHEMA_VERSION, answer_all, is_request, items_of

    document = _document(file) if file.endswith(".json") else None
    items = document.get("requests") if isinstance(document, dict) else document
    if not (isinstance(items, list) and (not items or any(map(is_request, items)))):
        raise typer.Exit(_time_cases(file, product, cube_math_type, layer, scope, json_path, yes, not no_progress))
    for option, value in {
        "--product": product, "--cube-math-type": cube_math_type, "--layer": layer, "--scope": scope,
    }.items():  # fmt: skip
        if value is not None:
            raise UsageError(f"{option} must not be given together with requests, which say it themselves")
    target = output_path("--json", json_path, file)
    note_compilation()
    with shapes.progress_bar(shown=not no_progress) as progress:
        answers = answer_all(items_of(document, file), jobs, progress)
    text = to_json_text(
        {"schema_version": SCHEMA_VERSION, "source": file, "results": [one.to_plain() for one in answers]}
    )
    if target is not None:
        write_files({target: (text + "\n").encode()})
    if json_path == "-":
        sys.stdout.write(text + "\n")
    else:
        _print_answers(answers)
        if target is not None:
            console().print(f"written: {target}", soft_wrap=True)
    raise typer.Exit(0 if any(not one.error for one in answers) else 1)


def _document(file: str) -> Any:
    with open_file(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        reserve(f"Requests of {file}", size * _BYTES_PER_BYTE)
        data = stream.read(size)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        refuse(file, f"The file must be JSON ({error})", error)


def _time_cases(
    file: str,
    products: Sequence[str] | None,
    modes: Sequence[str] | None,
    layers: Sequence[str] | None,
    scope: str | None,
    json_path: str | None,
    yes: bool,
    shown: bool,
) -> int:
    """Time the calls of test cases; return the exit code."""
    from ops.cli.perf_table import write_timing
    from ops.studies import timing
    from ops.studies.calls.captured import requests_of_layers
    from ops.studies.case_file import load_cases
    from ops.studies.effort import timing_effort

    found = load_cases(file)
    for reason, count in list(found.left_out.items())[:_REASONS_SHOWN]:
        note(f"left out, cases: {count}: {reason}")
    if (more := len(found.left_out) - _REASONS_SHOWN) > 0:
        note(f"left out for {more} more reasons")
    chosen = [one for one in found.capture.layers if layers is None or one.name in layers]
    if not chosen:
        raise UsageError(f"--layer must name cases of {file}, not {', '.join(layers or ())}")
    requests = requests_of_layers(chosen, shapes.read_modes(modes) if modes else None)
    names, wanted = shapes.read_products(products), shapes.read_scope(scope)
    target = output_path("--json", json_path, file)
    note_compilation()
    announce(timing_effort(requests, names, wanted), yes=yes)
    with shapes.progress_bar(shown=shown) as progress:
        report = timing.run_timing(file, requests, names, wanted, progress=progress)
    write_timing(report, json_path, target)
    return 0 if report.computed else 1


def _print_answers(answers: Sequence[Answer]) -> None:
    from ops.cli.timing_text import BOUNDS, critical_path

    screen = console()
    timed = [one for one in answers if not one.error]
    has_range = any(one.low_us is not None for one in timed)
    headings = [
        "id",
        "what",
        "product",
        "scope",
        "us",
        *(["low", "high"] if has_range else []),
        "cycles",
        "longest launch",
        "critical path",
    ]
    rows = [
        (
            str(one.id), one.op.removeprefix("call of "), one.product, one.scope, _microseconds(one.duration_us),
            *([_bound(one, one.low_us), _bound(one, one.high_us)] if has_range else []), str(one.cycles),
            _longest(one), critical_path(one.critical_shares) or "-",
        )
        for one in timed
    ]  # fmt: skip
    for table in fitted_tables(headings, rows, width=screen.width, left=_LEFT):
        screen.print(table)
    for one in answers:
        if one.error:
            print_prose(screen, f"{one.id}: no answer, status {one.status}: {one.error}")
        if one.ignored:
            print_prose(screen, f"{one.id}: {', '.join(one.ignored)} not looked at")
    print_prose(
        screen,
        f"{counted(len(answers), 'request')}, {len(timed)} answered. us: of calls and kernels with launch overhead, of "
        f"a core_time without; cycles: core time. {BOUNDS}",
    )


_LEFT = ("id", "what", "product", "scope", "longest launch", "critical path")


def _bound(one: Answer, value: float | None) -> str:
    return _microseconds(value) + ("?" if one.is_calibrated is False else "")


def _longest(one: Answer) -> str:
    """Return the kernel that takes most, with its time where there are others."""
    parts: dict[str, float] = {}
    for _, kernel, value in one.launches:
        parts[kernel] = parts.get(kernel, 0.0) + value
    longest = max(parts, key=parts.__getitem__, default="-")
    return longest if len(parts) < 2 else f"{longest} {_microseconds(parts[longest])}"


def _microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"

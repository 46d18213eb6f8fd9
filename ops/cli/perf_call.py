"""``npu-sim perf`` with one operator, given by its arguments."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from npu_sim.products import get_product
from ops.cli import shapes
from ops.cli.effort import YesOption, announce
from ops.cli.output import note_compilation
from ops.cli.trace_files import OpProfOption, TraceCoreOption, TraceOption, read_trace_files
from ops.cli.usage import UsageError, output_path


def _option(name: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(None, name, help=help, metavar=metavar)


_INTS = "INTS"
_CONV = "Convolutions: "
_MOVE = "Vector kernels: "
_POOL = "Poolings: "
_PRODUCT = "Matrix products: "


def perf_call_command(
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR",
            help="conv-backward, conv, conv-backprop-input, conv-backprop-filter; avg-pool, avg-pool-backward; matmul; "
            "transdata, cast, transpose, reduce-sum, fill, tensor-move; abs, add, adds, div, maximum, minimum, mul, "
            "muls, relu, sqrt, sub.",
        ),
    ],
    x: str | None = _option("--x", f"{_CONV}shape of the input; poolings too.", _INTS),
    weight: str | None = _option("--weight", f"{_CONV}shape of the weight.", _INTS),
    g: str | None = _option(
        "--g", f"{_CONV}shape of the output's gradient, where it does not follow; poolings too.", _INTS
    ),
    stride: str | None = _option("--stride", f"{_CONV}default 1. Poolings: default the kernel size.", _INTS),
    padding: str | None = _option("--padding", f"{_CONV}by axis or by side, or same, valid. Default: 0.", _INTS),
    dilation: str | None = _option("--dilation", f"{_CONV}default 1.", _INTS),
    groups: int | None = _option("--groups", f"{_CONV}default 1."),
    mask: str | None = _option("--mask", f"{_CONV}gradients of conv-backward. Default: dx,dw,db.", "dx,dw,db"),
    bias: bool | None = _option("--bias", f"{_CONV}conv has a bias; matmul too."),
    compute: str | None = _option(
        "--compute",
        "What the Cube multiplies: fp16, bf16, hf32 or fp32; refused where it cannot be had. Default: by --dtype, fp16 "
        "where the Cube does not have that.",
    ),
    cube_math_type: int | None = _option("--cube-math-type", f"{_CONV}0..3 of conv-backward; poolings too."),
    kernel_size: str | None = _option("--kernel-size", f"{_POOL}the window.", _INTS),
    ceil_mode: bool | None = _option("--ceil-mode", f"{_POOL}a last window may reach over the end."),
    count_include_pad: bool | None = _option(
        "--count-include-pad/--no-count-include-pad", f"{_POOL}default: it counts."
    ),
    divisor_override: int | None = _option("--divisor-override", f"{_POOL}default: none."),
    m: int | None = _option("--m", f"{_PRODUCT}rows of the result."),
    k: int | None = _option("--k", f"{_PRODUCT}what is summed over."),
    n: int | None = _option("--n", f"{_PRODUCT}columns of the result."),
    batch: int | None = _option("--batch", f"{_PRODUCT}default 1."),
    trans_a: bool | None = _option("--trans-a", f"{_PRODUCT}A is stored as k, m."),
    trans_b: bool | None = _option("--trans-b", f"{_PRODUCT}B is stored as n, k."),
    in_shape: str | None = _option("--in-shape", f"{_MOVE}what is read.", _INTS),
    out_shape: str | None = _option("--out-shape", f"{_MOVE}what is written, where it does not follow.", _INTS),
    other_shape: str | None = _option("--other-shape", f"{_MOVE}second operand of add and so on.", _INTS),
    in_format: str | None = _option("--in-format", f"{_MOVE}NCHW, NC1HWC0, FRACTAL_Z, ..."),
    out_format: str | None = _option("--out-format", f"{_MOVE}likewise."),
    dtype: str | None = _option("--dtype", "Type of the tensors: fp16, bf16, fp32. Default: fp16; of cast fp32."),
    out_dtype: str | None = _option("--out-dtype", f"{_MOVE}type of the result."),
    perm: str | None = _option("--perm", f"{_MOVE}order of the axes of transpose.", _INTS),
    axes: str | None = _option("--axes", f"{_MOVE}axes of reduce-sum.", _INTS),
    block_dim: int | None = _option(
        "--block-dim", "Cores of a kernel that multiplies. Default: as many as are of use."
    ),
    generation: str | None = _option(
        "--generation", f"{_CONV}closed (default, the one of most profiles) or published."
    ),
    product: shapes.ProductOption = None,
    scope: Annotated[
        str | None,
        typer.Option("--scope", help="call (default): with casts and layout conversions; kernel: what multiplies."),
    ] = None,
    json_path: shapes.JsonOption = None,
    trace: TraceOption = None,
    trace_core: TraceCoreOption = None,
    op_prof: OpProfOption = None,
    advice: Annotated[
        bool, typer.Option("--advice", help="Say which changes gain most, each found by timing it.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Search the fastest tiling of the kernel of matmul or conv-backprop-filter, in CANN's terms."
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes of --tune. Default: one for each CPU.")
    ] = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Time one operator, given by its arguments.

    The arguments of an operator are those of a request in a file; see the page on
    npu-sim perf REQUESTS.json. What an operator does not know is refused.

    Exit code 0: it was timed on some product; 1: every product refuses it; 2: bad
    input, or too much work without --yes; 3: internal error; 130: interrupted.
    """
    given = {name: value for name, value in locals().items() if name in _FIELDS and value is not None}
    # Imported here: they load the compiler, which the help does not need.
    from ops.cli.perf_table import write_timing
    from ops.cli.tune_table import write_tuning
    from ops.studies import timing
    from ops.studies.calls.fields import dtype_of
    from ops.studies.calls.request_items import read_call
    from ops.studies.effort import Effort, timing_effort
    from ops.studies.tuning import read_tunable, tuning_effort
    from ops.studies.tuning import tune as tune_kernel

    values = {name: _integers(name, text) for name, text in given.items()}
    wanted, type_wanted = shapes.read_scope(scope), "" if compute is None else dtype_of(compute)
    json_file = output_path("--json", json_path, None)
    files = read_trace_files(trace, trace_core, op_prof, None, (json_file,))
    names = shapes.read_products(product)
    if tune:
        with_other = {"--trace": trace, "--op-prof": op_prof, "--advice": advice, "--scope": scope}
        if clash := [name for name, value in with_other.items() if value]:
            raise UsageError(f"--tune must be without {', '.join(clash)}: it times kernels alone")
        tunables = [read_tunable(operator, values, get_product(name)) for name in names]
        note_compilation()
        announce(sum((tuning_effort(tunable, jobs) for tunable in tunables), Effort()), yes=yes)
        with shapes.progress_bar(shown=not no_progress) as progress:
            reports = [tune_kernel(tunable, jobs=jobs, progress=progress) for tunable in tunables]
        write_tuning(reports, json_path, json_file)
        raise typer.Exit(0)
    if jobs is not None:
        raise UsageError("--jobs must be given together with --tune")
    if files.option and len(names) != 1:
        raise UsageError(f"{files.option} must come with one --product, not {len(names)}")
    requests = {name: read_call(operator, values, name, wanted) for name in names}
    note_compilation()
    effort = [timing_effort([request], [name], wanted) for name, request in requests.items()]
    announce(sum(effort[1:], effort[0]), yes=yes)
    with shapes.progress_bar(shown=not no_progress) as progress:
        rows: list[timing.TimingRow] = []
        for name, request in requests.items():
            if progress:
                progress(len(rows), len(requests), f"{name} {request.name}")
            rows.append(timing.time_row(request, name, get_product(name), wanted, type_wanted))
    report = timing.TimingReport(source="command line", scope=wanted, rows=tuple(rows))
    report = report.advised() if advice else report
    result = report.rows[0].result
    launches = [] if result is None else timing.traced_launches(result)
    write_timing(report, json_path, json_file, files.contents(launches))
    files.write_folder(launches, quiet=json_path == "-")
    raise typer.Exit(0 if report.computed else 1)


_LISTS = frozenset(
    {
        "x",
        "weight",
        "g",
        "stride",
        "padding",
        "dilation",
        "kernel_size",
        "in_shape",
        "out_shape",
        "other_shape",
        "perm",
        "axes",
    }
)
_FIELDS = _LISTS | {
    "groups", "mask", "bias", "compute", "cube_math_type", "ceil_mode", "count_include_pad", "divisor_override", "m",
    "k", "n", "batch", "trans_a", "trans_b", "in_format", "out_format", "dtype", "out_dtype", "block_dim", "generation",
}  # fmt: skip
"""Options that are fields of a request; of `_LISTS` whole numbers separated by commas."""


def _integers(name: str, value: Any) -> Any:
    if name not in _LISTS or (name == "padding" and value in ("same", "valid")):
        return value
    return list(shapes.integers(f"--{name.replace('_', '-')}", value))

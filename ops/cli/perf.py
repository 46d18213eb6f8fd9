"""``npu-sim perf``: how long weight gradients take, and why, without touching tensor data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.report.files import write_files
from ops.cli import shapes
from ops.cli.effort import YesOption, announce
from ops.cli.output import console, note_compilation
from ops.cli.trace_files import OpProfOption, TraceCoreOption, TraceOption, read_trace_files
from ops.cli.usage import UsageError, output_path


def perf_command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Captured layers (.npz); a Python file that calls operators (.py); mymodel.py:build, a function that "
            "returns a PyTorch model, (model, x) or (model, loss); without it, a training step that ships with the "
            "package.",
        ),
    ] = None,
    arguments: shapes.ScriptArguments = None,
    model: shapes.ModelOption = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="INTS",
            help="Images per step of a network, such as 8,16,32. Default: 8; of a PyTorch model as in --input.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="N,C,H,W", help="Shape of an input of a PyTorch model; repeatable."),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            "--mask",
            metavar="dx,dw,db",
            help="Gradients of every convolution of a network. Default: those a step needs: no dx of the first layer, "
            "db where there is a bias.",
        ),
    ] = None,
    forward: Annotated[bool, typer.Option("--forward", help="Of a network, time the forward calls too.")] = False,
    advice: Annotated[
        bool,
        typer.Option(
            "--advice",
            help="Say which changes gain most, each found by timing it: types, modes, batch, cores, channels. Not of a "
            "Python file.",
        ),
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Of a network in several settings, show the parts of each.")
    ] = False,
    x: shapes.XOption = None,
    weight: shapes.WeightOption = None,
    stride: shapes.StrideOption = None,
    padding: shapes.PaddingOption = None,
    dilation: shapes.DilationOption = None,
    groups: shapes.GroupsOption = None,
    product: shapes.ProductOption = None,
    cube_math_type: shapes.ModeOption = None,
    layer: shapes.LayerOption = None,
    dtype: shapes.DtypeOption = None,
    scope: Annotated[
        str | None,
        typer.Option(
            "--scope",
            help="call: a weight gradient's whole call, with its casts and layout conversions; kernel: of the same "
            "call only the kernel that multiplies, which a tiling decides. Default: call, what a training step waits "
            "for.",
        ),
    ] = None,
    json_path: shapes.JsonOption = None,
    trace: TraceOption = None,
    trace_core: TraceCoreOption = None,
    op_prof: OpProfOption = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the report of a network as one HTML file.")
    ] = None,
    yes: YesOption = False,
    no_progress: shapes.NoProgressOption = False,
) -> None:
    """Time a network, weight gradients (a file, one shape) or a Python file.

    A network is a table that ships (--model) or a PyTorch model, which a function
    of a Python file returns (FILE.py:FUNCTION, with --input or with a loss): of
    every convolution, average pooling and linear layer the whole backward calls
    that a training step makes, on one or several products, in one or several batches.

    A weight gradient is a call of aclnnConvolutionBackward that wants no other
    gradient, and refused where the operator refuses it. The whole call is timed,
    or with --scope kernel the kernel in it that multiplies. No tensor data is
    touched, except by a Python file, which is run (calls that name no product on
    --product): of every operator call in it, Ascend C kernels and kernels in
    Python (npu_sim.authoring) too.

    Three other forms have options of their own: npu-sim perf OPERATOR --help (any
    operator by its arguments, such as conv-backward or matmul), npu-sim perf
    REQUESTS.json --help (a file of requests or test cases), and npu-sim perf
    --validate --help (predicted against published times).

    Exit code 0: something was timed; 1: every combination is refused, or the
    Python file ended with an error or launched nothing; 2: bad input, or too
    much work without --yes; 3: internal error; 130: interrupted.
    """
    # Imported here: they load the compiler, which the help does not need.
    from ops.cli import scripts
    from ops.cli.model_files import is_model
    from ops.cli.perf_network import NetworkOptions, time_network
    from ops.cli.perf_table import print_timing
    from ops.cli.script_times import time_script
    from ops.studies import timing
    from ops.studies.calls.convolutions import gradient_requests
    from ops.studies.effort import timing_effort

    given = shapes.ShapeOptions(x=x, weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    is_network = model is not None or is_model(file)
    of_network = {
        "--batch": batch, "--input": inputs, "--mask": mask, "--forward": forward or None, "--details": details or None,
        "--html": html,
    }  # fmt: skip
    if file is not None and (scripts.is_script(file) or scripts.is_program(file)):
        scripts.refuse_options(
            {
                **of_network, "--model": model, "--advice": advice or None, "--x": x, "--weight": weight,
                "--stride": stride, "--padding": padding, "--dilation": dilation,
                "--groups": groups, "--layer": layer, "--dtype": dtype, "--cube-math-type": cube_math_type,
                "--scope": scope,
            }
        )  # fmt: skip
        raise typer.Exit(
            time_script(
                file,
                arguments or (),
                product,
                json_path,
                trace,
                trace_core,
                op_prof,
                yes=yes,
                show_progress=not no_progress,
            )
        )
    if is_network:
        shapes.refuse_arguments(arguments)
        shapes.refuse_mixture(file, model, given)
        options = NetworkOptions(
            model=model, file=file, inputs=inputs, batch=batch, mask=mask, products=product, modes=cube_math_type,
            layers=layer, dtype=dtype, scope=scope, json_path=json_path, html=html, trace=trace, trace_cores=trace_core,
            op_prof=op_prof,
            forward=forward, advice=advice, details=details, yes=yes, show_progress=not no_progress,
        )  # fmt: skip
        raise typer.Exit(time_network(options))
    shapes.refuse_arguments(arguments)
    for option, value in of_network.items():
        if value is not None:
            raise UsageError(f"{option} must be given together with --model or a PyTorch model")
    cases = shapes.read_cases(file, None, None, given, dtype=dtype, layers=layer)
    products, modes = shapes.read_products(product), shapes.read_modes(cube_math_type)
    wanted = shapes.read_scope(scope)
    json_file = output_path("--json", json_path, file)
    files = read_trace_files(trace, trace_core, op_prof, file, (json_file,))
    requests = gradient_requests(cases.cases, modes)
    combinations = len(requests) * len(products)
    if files.option and combinations != 1:
        raise UsageError(
            f"{files.option} must come with one --layer, --product and --cube-math-type, not {combinations} "
            "combinations"
        )
    note_compilation()
    announce(timing_effort(requests, products, wanted), yes=yes)
    with shapes.progress_bar(shown=not no_progress) as progress:
        plain = timing.run_timing(cases.source, requests, products, wanted, progress=progress)
        report = plain.advised() if advice else plain
    contents: dict[Path, bytes] = {}
    json_text = report.to_json() + "\n"
    if json_file is not None:
        contents[json_file] = json_text.encode()
    result = report.rows[0].result
    launches = [] if result is None else timing.traced_launches(result)
    contents |= files.contents(launches)
    write_files(contents)
    if json_path == "-":
        sys.stdout.write(json_text)
    else:
        print_timing(report)
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    files.write_folder(launches, quiet=json_path == "-")
    raise typer.Exit(0 if report.computed else 1)

"""``npu-sim perf`` of a network: how long its training step takes, layer by layer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_sim.report.files import write_files
from ops.cli import shapes
from ops.cli.effort import announce
from ops.cli.html_page import html_path
from ops.cli.network_source import model_source, table_source
from ops.cli.network_table import print_network
from ops.cli.output import console, note_compilation
from ops.cli.trace_files import read_trace_files
from ops.cli.usage import UsageError, output_path
from ops.common.explain import launch_works
from ops.common.geometry import MAX_EXTENT
from ops.studies.effort import Effort, timing_effort
from ops.studies.launch_trace import TracedLaunch
from ops.studies.layers import GRADIENTS, GradientName
from ops.studies.network.report import run_network
from ops.studies.network.step import Make
from ops.studies.network.times import StepTimes

_COUNTED_MACS = 10**13
"""Multiply-adds below which a step takes seconds, and is not counted beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """The options of the command, as given.

    Attributes
    ----------
    model : str or None
        Name of a layer table; None: ``file`` is a model.
    file : str or None
        ``FILE.py:FUNCTION``.
    inputs, products, modes, layers : sequence of str or None
        Each option that can be repeated.
    batch, mask, dtype, scope, json_path, html, trace, op_prof : str or None
        The others.
    trace_cores : sequence of int or None
        Cores in the trace.
    forward, advice, details, yes, show_progress : bool
        Flags.
    """

    model: str | None
    file: str | None
    inputs: Sequence[str] | None
    batch: str | None
    mask: str | None
    products: Sequence[str] | None
    modes: Sequence[str] | None
    layers: Sequence[str] | None
    dtype: str | None
    scope: str | None
    json_path: str | None
    html: str | None
    trace: str | None
    op_prof: str | None
    trace_cores: Sequence[int] | None
    forward: bool
    advice: bool
    details: bool
    yes: bool
    show_progress: bool


def time_network(given: NetworkOptions) -> int:
    """Time the steps that the options ask for, print and write them; return the exit code."""
    scope = shapes.read_scope(given.scope)
    products, modes = shapes.read_products(given.products), shapes.read_modes(given.modes)
    json_file = output_path("--json", given.json_path, None)
    files = read_trace_files(given.trace, given.trace_cores, given.op_prof, None, (json_file,))
    html_file = html_path(given.html)
    if html_file is not None:
        output_path("--html", given.html, None, (json_file, files.trace))
    make, batches = _source(given)
    layers = given.layers or None
    settings = len(products) * len(modes) * len(batches)
    steps = [make(batch, mode).select(layers) for batch in batches for mode in modes]
    if files.option and settings * steps[0].layer_count != 1:
        raise UsageError(
            f"{files.option} must come with one --layer, --product, --cube-math-type and --batch, "
            f"not {settings * steps[0].layer_count} combinations"
        )
    note_compilation()
    announce(_effort(make, modes, batches, products, given), yes=given.yes)
    with shapes.progress_bar(shown=given.show_progress) as progress:
        report = run_network(
            make, products, modes, batches, scope, layers=layers, forward=given.forward,
            advice=given.advice, progress=progress,
        )  # fmt: skip
    contents: dict[Path, bytes] = {}
    json_text = report.to_json() + "\n"
    if json_file is not None:
        contents[json_file] = json_text.encode()
    launches = traced(report.steps[0]) if files.option else []
    contents |= files.contents(launches)
    if html_file is not None:
        # imported here: only a page needs it
        from ops.cli.network_html import render

        contents[html_file] = render(report)
    write_files(contents)
    if given.json_path == "-":
        sys.stdout.write(json_text)
    else:
        print_network(report, details=given.details)
        for path in contents:
            console().print(f"written: {path}", soft_wrap=True)
    files.write_folder(launches, quiet=given.json_path == "-")
    return 0 if any(times.call_count for times in report.steps) else 1


def _source(given: NetworkOptions) -> tuple[Make, tuple[int, ...]]:
    gradients = None if given.mask is None else read_mask(given.mask)
    batches = read_batches(given.batch)
    if given.model is not None:
        if given.inputs:
            raise UsageError("--input must be given together with a PyTorch model")
        if given.file is not None:
            raise UsageError("Layers must come from one of FILE and --model, not from both")
        return table_source(given.model, batches, given.dtype, gradients)
    inputs = [shapes.integers("--input", text) for text in given.inputs or ()]
    return model_source(given.file or "", inputs, batches, given.dtype, gradients)


def read_batches(text: str | None) -> tuple[int, ...]:
    """Return the batches of "8,16,32", each once; () for None.

    Raises
    ------
    UsageError
        If they are none.
    """
    batches = () if text is None else shapes.integers("--batch", text)
    for batch in batches:
        if not 1 <= batch <= MAX_EXTENT:
            raise UsageError(f"--batch must be in [1, {MAX_EXTENT}], not {batch}")
    return tuple(dict.fromkeys(batches))


def read_mask(text: str) -> tuple[GradientName, ...]:
    """Return the gradients of "dx,dw,db" in the order of the outputMask.

    Raises
    ------
    UsageError
        If there is another one.
    """
    names = text.split(",")
    if not set(names) <= set(GRADIENTS):
        raise UsageError(f"--mask must be some of {','.join(GRADIENTS)}, not {text}")
    return tuple(name for name in GRADIENTS if name in names)


def _effort(
    make: Make, modes: Sequence[int], batches: Sequence[int], products: Sequence[str], given: NetworkOptions
) -> Effort:
    effort = Effort()
    for batch in batches:
        for mode in modes:
            step = make(batch, mode).select(given.layers or None)
            requests = [
                request
                for layer in step.layers
                for request in (layer.forward if given.forward else None, layer.backward)
                if request is not None
            ]
            macs = sum(getattr(getattr(request, "case", None), "macs", 0) for request in requests)
            if macs > _COUNTED_MACS:
                effort += timing_effort(requests, products, shapes.read_scope(given.scope))
    return effort


def traced(times: StepTimes) -> list[TracedLaunch]:
    """Return the launches of a step with their labels, equal layers once."""
    return [
        TracedLaunch(times.setting.chip, launch, timed, f"{layer.layer.label}: {launch.name} ({works_on})")
        for layer, call in times.calls
        for planned, own in call.by_step
        for launch, timed, works_on in zip(planned.kernel.launches, own.launches, launch_works((planned,)), strict=True)
    ]

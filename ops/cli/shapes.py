"""Options that ``perf`` and ``check`` share: which weight gradients, on which products, in which modes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from npu_sim.dtypes.cube_math import CubeMathType, parse_cube_math_type
from npu_sim.report.record import counted
from ops.cli.output import compiled_so_far, note, note_hints
from ops.cli.usage import UsageError
from ops.common.geometry import MAX_EXTENT
from ops.studies.capture import load_capture, load_example
from ops.studies.models.tables import MODELS
from ops.studies.precision_results import default_products
from ops.studies.scope import SCOPES, Refusal, Scope

if TYPE_CHECKING:
    from npu_sim.engines.reorder import Order
    from ops.studies.cases import CaseSet

DEFAULT_BATCH = 8
DEFAULT_MODE = int(CubeMathType.KEEP_DTYPE)
DEFAULT_DTYPE = "fp16"

FileArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Captured layers (.npz); a Python file that calls operators (.py); without it, a training "
        "step that ships with the package.",
    ),
]
ScriptArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGUMENTS", help="Arguments of a Python file; behind -- if they begin with -."),
]
ModelOption = Annotated[str | None, typer.Option("--model", help=f"Layers of a network: {', '.join(MODELS)}.")]
BatchOption = Annotated[
    int | None, typer.Option("--batch", help=f"Images per step of --model. Default: {DEFAULT_BATCH}.")
]
XOption = Annotated[
    str | None, typer.Option("--x", metavar="N,C,H,W", help="One layer: shape of the input (N,C,L and N,C,D,H,W too).")
]
WeightOption = Annotated[
    str | None, typer.Option("--weight", metavar="CO,CI,KH,KW", help="Shape of the weight; CI = C / groups.")
]
StrideOption = Annotated[str | None, typer.Option("--stride", metavar="INTS", help="With --x. Default: 1.")]
PaddingOption = Annotated[
    str | None,
    typer.Option("--padding", metavar="INTS", help="With --x; 2D also up,down,left,right; or same, valid. Default: 0."),
]
DilationOption = Annotated[str | None, typer.Option("--dilation", metavar="INTS", help="With --x. Default: 1.")]
GroupsOption = Annotated[int | None, typer.Option("--groups", help="With --x. Default: 1.")]
ProductOption = Annotated[
    list[str] | None,
    typer.Option(
        "--product",
        "--soc-version",
        help="SoC version, series alias or product file; repeatable. Default: all series with aclnn calls.",
    ),
]
ScriptProductOption = Annotated[
    list[str] | None,
    typer.Option(
        "--product",
        "--soc-version",
        help="SoC version, series alias or product file (.toml) that calls without one run on.",
    ),
]
ModeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cube-math-type", help=f"0..3 or a name such as USE_HF32; repeatable. Default: {DEFAULT_MODE} "
        f"({CubeMathType(DEFAULT_MODE).name}), as in the API; refused for fp32 where the Cube has none."
    ),
]  # fmt: skip
LayerOption = Annotated[list[str] | None, typer.Option("--layer", help="Name of a layer; repeatable. Default: all.")]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help=f"Format of the tensors: fp16, bf16 or fp32. Default: as in the file, otherwise {DEFAULT_DTYPE}.",
    ),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; '-' is standard output.")
]
OrderOption = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="ORDER",
        help="Order of the instructions of a core in kernels in Python: program, late (data movement as late as legal),"
        " a seed of a random legal one, or race:KERNEL:CORE:ROW:ROW as check prints it: the later row of a race first.",
    ),
]
CoreOrderOption = Annotated[
    int | None,
    typer.Option(
        "--core-order", "--seed", min=0, max=2**63 - 1, help="Seed of the order in which cores add to memory."
    ),
]
NoProgressOption = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar.")]


def refuse_arguments(arguments: Sequence[str] | None) -> None:
    """Refuse arguments behind a file that is no Python file.

    Raises
    ------
    UsageError
        If there are any.
    """
    if arguments:
        raise UsageError(f"ARGUMENTS must be given together with a Python file, not {' '.join(arguments)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """The options of one layer, as given.

    Attributes
    ----------
    x, weight, stride, padding, dilation : str or None
        Integers separated by commas.
    groups : int or None
        Channel groups.
    """

    x: str | None = None
    weight: str | None = None
    stride: str | None = None
    padding: str | None = None
    dilation: str | None = None
    groups: int | None = None


def refuse_mixture(file: str | None, model: str | None, shape: ShapeOptions) -> None:
    """Refuse options that name layers in several ways, or a part of a layer that nothing else names.

    Raises
    ------
    UsageError
        If there are any.
    """
    sources = {"FILE": file, "--model": model, "--x": shape.x}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"Layers must come from one of FILE, --model and --x, not from {' and '.join(given)}")
    if shape.x is None:
        for name in ("weight", "stride", "padding", "dilation", "groups"):
            if getattr(shape, name) is not None:
                raise UsageError(f"--{name} must be given together with --x")


def read_cases(
    file: str | None,
    model: str | None,
    batch: int | None,
    shape: ShapeOptions,
    *,
    dtype: str | None,
    layers: Sequence[str] | None,
) -> CaseSet:
    """Return the weight gradients that the options ask for.

    Raises
    ------
    NpuSimError
        If the options contradict each other, or what they name does not exist or fit.
    """
    # Imported here: they load the compiler, which the help does not need.
    from ops.studies.cases import cases_of_capture, cases_of_model

    refuse_mixture(file, model, shape)
    if batch is not None and model is None:
        raise UsageError("--batch must be given together with --model")
    if batch is not None and not 1 <= batch <= MAX_EXTENT:
        raise UsageError(f"--batch must be in [1, {MAX_EXTENT}], not {batch}")
    if model is not None:
        found = cases_of_model(model, DEFAULT_BATCH if batch is None else batch, dtype or DEFAULT_DTYPE)
    elif shape.x is not None:
        found = _one_shape(shape, dtype or DEFAULT_DTYPE)
    else:
        capture = load_capture(file) if file is not None else load_example()
        found = cases_of_capture(capture, dtype)
        if left := len(capture.layers) - len(found.cases):
            note(f"left out, without a weight gradient: {counted(left, 'average pooling')}")
    return found.select(layers or None)


def _one_shape(shape: ShapeOptions, dtype: str) -> CaseSet:
    from ops.common.padding import NAMES
    from ops.studies.cases import CaseSet, case_of_shape

    if shape.weight is None:
        raise UsageError("--x must be given together with --weight")
    case = case_of_shape(
        integers("--x", shape.x or ""),
        integers("--weight", shape.weight),
        stride=integers("--stride", shape.stride or "1"),
        padding=shape.padding if shape.padding in NAMES else integers("--padding", shape.padding or "0"),
        dilation=integers("--dilation", shape.dilation or "1"),
        groups=1 if shape.groups is None else shape.groups,
        dtype=dtype,
    )
    return CaseSet(source="command line", cases=(case,))


def read_order(text: str) -> Order:
    """Return the order of the instructions of a core.

    Raises
    ------
    UsageError
        It is none.
    """
    if text == "program":
        return "program"
    if text == "late":
        return "late"
    if re.fullmatch(r"race:.+(:[0-9]{1,18}){3}", text, re.ASCII | re.DOTALL):
        from npu_sim.engines.reorder import Race

        launch, *numbers = text.removeprefix("race:").rsplit(":", 3)
        core, earlier, later = map(int, numbers)
        return Race(launch=launch, core=core, earlier=earlier, later=later)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(
            f"--order must be program, late, a seed of 0 or more or a race (race:KERNEL:CORE:ROW:ROW), not {text!r}"
        )
    return int(text)


@contextmanager
def orders_used(order: str, core_order: int | None) -> Iterator[None]:
    """Run the kernels of a ``with`` block in the orders of --order and --core-order.

    Raises
    ------
    UsageError
        The first is none, or the race of none of the kernels that were run.
    """
    # Imported here: it loads the compiler, which the help does not need.
    from npu_sim.engines.numerics import use_orders
    from npu_sim.engines.reorder import Race

    with use_orders(read_order(order), core_order) as orders:
        yield
    if isinstance(orders.order, Race) and not orders.had_race:
        raise UsageError(
            f"--order must be a race of a kernel in Python of the file, as npu-sim check prints it, not {order!r}"
        )


def integers(option: str, text: str) -> tuple[int, ...]:
    """Return the integers of "8,64,56,56".

    Raises
    ------
    UsageError
        If it is something else; ``option`` is for the message.
    """
    if not re.fullmatch(r"-?[0-9]{1,18}(,-?[0-9]{1,18})*", text):
        raise UsageError(f"{option} must be integers separated by commas, such as 8,64,56,56, not {text!r}")
    return tuple(int(part) for part in text.split(","))


def read_products(products: Sequence[str] | None) -> tuple[str, ...]:
    """Return the products to run on, each once; a name that is easily mistaken for another gets a note."""
    names = tuple(dict.fromkeys(products or default_products()))
    note_hints(names)
    return names


def read_scope(text: str | None) -> Scope:
    """Return what is timed of each call; None is the whole of it.

    Raises
    ------
    UsageError
        If there is no such scope.
    """
    for scope in SCOPES:
        if text in (scope, None):
            return scope
    raise UsageError(f"--scope must be one of {', '.join(SCOPES)}, not {text}")


def read_modes(texts: Sequence[str] | None, default: tuple[int, ...] = (DEFAULT_MODE,)) -> tuple[int, ...]:
    """Return the cubeMathTypes to run with, each once; ``default`` if there are none."""
    return tuple(dict.fromkeys(map(_mode, texts))) if texts else default


def _mode(text: str) -> int:
    """Return 0..3 from a digit or a name in any case."""
    return int(parse_cube_math_type(int(text) if text.isdecimal() and text.isascii() else text.upper()))


def refusal_lines(rows: Iterable[tuple[str, Refusal | None]]) -> Iterator[str]:
    """Yield one line per distinct refusal of (layer, refusal), with the layers it holds for."""
    layers: dict[tuple[int, str], list[str]] = {}
    for name, refusal in rows:
        if refusal is not None:
            layers.setdefault((refusal.status, " ".join(refusal.message.split())), []).append(name)
    for (status, message), names in layers.items():
        where = names[0] if len(names) == 1 else f"{len(names)} layers"
        yield f"refused, status {status}, {where}: {message}"


class _CompiledColumn(ProgressColumn):
    """How many functions have been compiled, while nothing else moves."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        count = compiled_so_far()
        return Text(f"{count} functions compiled" if count else "")


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """Show a bar on standard error while a terminal is there to see it; yields what a study calls."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        _CompiledColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text.replace("[", r"\["))

        yield show

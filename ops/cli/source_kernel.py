"""What the commands of ``npu-sim`` share that take a C++ kernel: its options, its arguments, its call."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import numpy as np
import typer

from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import InputFileError, NpuSimError
from ops.cli.output import note_compilation
from ops.cli.usage import UsageError, one_product_name

if TYPE_CHECKING:
    from npu_sim.ascendc import HostTiling, SourceKernel, SourceRun
    from npu_sim.report.explain import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says of a kernel and its call: the options that `takes_kernel` gives a command."""

    file: Annotated[str, typer.Argument(metavar="FILE.cpp", help="Ascend C source with a kernel.")]
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="NAME", help="The kernel, as add<half>. Default: the only one.")
    ] = None
    blocks: Annotated[
        int | None, typer.Option("--blocks", min=1, help="Blocks of the launch (numBlocks). Default: 1, or --host's.")
    ] = None
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="VALUE",
            help="Next argument of the kernel: a .npy file, zeros:SHAPE:TYPE (zeros:16x32:fp16), a number, or none; "
            "repeatable.",
        ),
    ] = None
    out: Annotated[
        list[str] | None,
        typer.Option(
            "--out",
            metavar="NAME:SHAPE:TYPE",
            help="An argument that the kernel writes (z:8x2048:fp16), by the name of its parameter; repeatable.",
        ),
    ] = None
    workspace: Annotated[
        list[str] | None,
        typer.Option(
            "--workspace",
            metavar="NAME:SHAPE:TYPE",
            help="An argument that the kernel works in (usrWorkspace:65536:uint8): to read there what it has not "
            "written is a finding; repeatable.",
        ),
    ] = None
    tiling: Annotated[
        str | None,
        typer.Option(
            "--tiling", metavar="FILE", help='Last argument: bytes, or JSON such as [["uint32", 8], ["float", 1]].'
        ),
    ] = None
    tiling_key: Annotated[
        int | None, typer.Option("--tiling-key", help="What TILING_KEY_IS compares with. Default: 0, or --host's.")
    ] = None
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="FILE.cpp",
            help="Host source of the operator, whose tiling function is run on --arg (the inputs) and --out for "
            "tiling, blocks, key and workspace; repeatable.",
        ),
    ] = None
    attr: Annotated[
        list[str] | None,
        typer.Option(
            "--attr", metavar="NAME=VALUE", help="Attribute for --host: 2.0, [1,2], true or text; repeatable."
        ),
    ] = None
    define: Annotated[list[str] | None, typer.Option("-D", "--define", metavar="NAME[=VALUE]", help="Repeatable.")] = (
        None
    )
    include: Annotated[
        list[str] | None, typer.Option("-I", "--include", metavar="DIR", help="Directory of its headers; repeatable.")
    ] = None
    definition: Annotated[
        str | None,
        typer.Option(
            "--definition",
            metavar="FILE",
            help="Operator's definition (OpDef class or JSON) for DTYPE_X. Default: in op_host beside op_kernel.",
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help="Cores it is for: vector, cube or mix. Default: it says."),
    ] = None
    products: Annotated[
        list[str] | None,
        typer.Option("--product", "--soc-version", help="SoC version, series alias or product file (.toml)."),
    ] = None
    auto_sync: Annotated[
        bool,
        typer.Option(
            "--auto-sync/--no-auto-sync",
            help="Whether the source's compiler adds barriers between vector instructions and flags of the scalar "
            "unit.",
        ),
    ] = True

    def __post_init__(self) -> None:
        one_product_name(self.products, "a kernel")

    @property
    def product(self) -> str | None:
        """The product that was named; None for none."""
        return one_product_name(self.products, "a kernel")

    def compiled(self, *template_arguments: int) -> SourceKernel:
        """Compile the kernel, with template arguments unless its name has them."""
        from npu_sim import ascendc

        if self.kind not in (None, "vector", "cube", "mix"):
            raise UsageError(f"--kind must be one of vector, cube, mix, not {self.kind!r}")
        name = self.kernel
        if template_arguments and name is not None and "<" not in name:
            name += f"<{', '.join(map(str, template_arguments))}>"
        return ascendc.compile(
            self.file,
            name,
            defines=self.define or (),
            include=self.include or (),
            kind=self.kind,  # type: ignore[arg-type]  # checked above
            product=self.product,
            definition=self.definition,
        )

    def called(self, *, checks: bool) -> tuple[SourceRun, dict[str, np.ndarray]]:
        """Compile and call the kernel; return what it launched, and what it wrote by name.

        Parameters
        ----------
        checks : bool
            What is wrong is in the result, and not raised.
        """
        outputs = _named("--out", self.out)
        scratch = _named("--workspace", self.workspace, outputs)
        arguments = [_argument(text) for text in self.arg or ()]
        note_compilation()
        tiled = self._tiled(arguments, outputs)
        kernel = self.compiled(*(() if tiled is None else tiled.template_arguments))
        order = _placed(arguments, outputs | scratch, kernel.parameters)
        values = [value for value, _ in order]
        works_in = [number for number, (_, name) in enumerate(order) if name in scratch]
        tiling = None if self.tiling is None else read_tiling(self.tiling)
        blocks, key = self.blocks or 1, self.tiling_key or 0
        if tiled is not None:
            works_in.append(len(values))
            values.append(tiled.workspace)
            tiling, blocks = tiled.data, self.blocks or tiled.blocks
            key = tiled.key if self.tiling_key is None else self.tiling_key
        run = (kernel.check if checks else kernel)(
            *values,
            blocks=blocks,
            tiling=tiling,
            tiling_key=key,
            product=self.product,
            outputs=[number for number, (_, name) in enumerate(order) if name in outputs],
            workspace=works_in,
            auto_sync=self.auto_sync,
        )
        return run, {name: value for value, name in order if name in outputs}

    def recorded(self) -> Explanation:
        """Compile and call the kernel; return what it did, with its tensors if it ended."""
        from npu_sim.report.explain import Recorder, recording

        with recording(Recorder(own_only=True, keeps_tensors=True)) as recorder:
            self.called(checks=True)
        (made,) = recorder.explanations()
        return made

    def _tiled(self, arguments: Sequence[Any], outputs: dict[str, np.ndarray]) -> HostTiling | None:
        """Return what the operator's host code decides, if it is asked."""
        from npu_sim import ascendc

        if not self.host:
            if self.attr:
                raise UsageError("--attr is for --host, whose tiling function asks for it")
            return None
        if self.tiling is not None:
            raise UsageError("--tiling must not be given with --host, which says what it is")
        return ascendc.host_tiling(
            self.host,
            arguments,
            list(outputs.values()),
            attributes=dict(map(_attribute, self.attr or ())),
            product=self.product,
            include=self.include or (),
            defines=self.define or (),
        )


def takes_kernel(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a kernel before its own; it is called with a `Given` in their place."""
    theirs, own = (list(inspect.signature(what).parameters.values()) for what in (Given, command))
    hints = get_type_hints(Given, include_extras=True) | get_type_hints(command, include_extras=True)
    options = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in (*theirs, *own[1:])]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        command(Given(**{one.name: values.pop(one.name) for one in theirs}), **values)

    # what typer reads; without the annotations of the command, whose first parameter is no option
    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in options}
    return called


def _placed(arguments: list[Any], outputs: dict[str, np.ndarray], names: Sequence[str]) -> list[tuple[Any, str]]:
    """Return the arguments in the kernel's order, those that were given by name with their names."""
    left, order = list(arguments), list[tuple[Any, str]]()
    for name in names:
        if name in outputs:
            order.append((outputs[name], name))
        elif left:
            order.append((left.pop(0), ""))
    placed = {name for _, name in order}
    order += [(value, "") for value in left]
    return order + [(value, name) for name, value in outputs.items() if name not in placed]


def _named(option: str, texts: Sequence[str] | None, others: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    """Return arrays by the names of their parameters, which ``others`` must not have."""
    found: dict[str, np.ndarray] = {}
    for text in texts or ():
        name, _, rest = text.partition(":")
        if not name.isidentifier() or name in found or name in (others or ()):
            raise UsageError(f"{option} must begin with a name of its own, not {text!r}")
        found[name] = _zeros(option, rest, text)
    return found


def _zeros(option: str, text: str, whole: str) -> np.ndarray:
    shape, _, kind = text.partition(":")
    sizes = shape.split("x")
    if not all(size.isdecimal() for size in sizes) or not kind:
        raise UsageError(f"{option} must give SHAPE:TYPE such as 8x2048:fp16, not {whole!r}")
    try:
        storage = get_dtype(kind).storage
    except NpuSimError:
        try:
            storage = np.dtype(kind)
        except TypeError:
            raise UsageError(f"{option} must give a type such as fp16 or int32, not {kind!r}") from None
    return np.zeros([int(size) for size in sizes], storage)


def _attribute(text: str) -> tuple[str, Any]:
    name, is_given, value = text.partition("=")
    if not name.isidentifier() or not is_given:
        raise UsageError(f"--attr must be NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _argument(text: str) -> Any:
    if text == "none":
        return None
    if text.endswith(".npy"):
        try:
            return np.load(text, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputFileError(f"--arg must be a .npy file that can be read, not {text} ({error})") from error
    if text.startswith("zeros:"):
        return _zeros("--arg", text.removeprefix("zeros:"), text)
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    raise UsageError(f"--arg must be a .npy file, zeros:SHAPE:TYPE, a number or none, not {text!r}")


def read_tiling(file: str) -> bytes:
    """Return the bytes of a tiling file: as they are, or of a JSON list of [type, value] laid out as a C++ struct.

    Raises
    ------
    InputFileError
        It cannot be read, or is no such list.
    """
    try:
        raw = Path(file).read_bytes()
    except OSError as error:
        raise InputFileError(f"--tiling must be a file that can be read, not {file} ({error.strerror})") from error
    if not file.endswith(".json"):
        return raw
    names = {"float": "float32", "double": "float64", "bool": "uint8"}
    try:
        fields = [
            np.atleast_1d(np.array(value, np.dtype(names.get(kind.removesuffix("_t"), kind.removesuffix("_t")))))
            for kind, value in json.loads(raw)
        ]
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InputFileError(f"{file} must hold a list of [type, value], not what it does ({error})") from error
    packed, widest = b"", 1
    for field in fields:
        size = field.dtype.itemsize
        widest = max(widest, size)
        packed += b"\0" * (-len(packed) % size) + field.tobytes()
    return packed + b"\0" * (-len(packed) % widest)

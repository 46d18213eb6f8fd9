"""What an operator's host code makes of a call: tiling data, blocks, tiling key, workspace.

The sources are those of ``op_host`` as they are: a class of OpDef whose AICore().SetTiling names the tiling function,
or IMPL_OP_OPTILING, alone or beside a definition. They become a program of their own, native code with the rights of
the user, as kernels do; what it does wrong ends that program alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.ascendc.build import HOST_INCLUDE, INCLUDE
from npu_sim.ascendc.device_facts import facts_of
from npu_sim.ascendc.host_prefix import host_prefix
from npu_sim.ascendc.host_sources import link, roots_of_headers
from npu_sim.ascendc.kept_programs import digest_of, kept_program, programs_directory
from npu_sim.ascendc.operator_types import numbers, type_name
from npu_sim.ascendc.source import Source, without_text
from npu_sim.ascendc.template_keys import arguments_of_key
from npu_sim.ascendc.user_headers import INCLUDES, included
from npu_sim.compilers import Compiler, find_compiler
from npu_sim.errors import DTypeError, InputFileError, NpuSimError, ShapeError
from npu_sim.products import Product, current_product, get_product

OP_HOST = Path(__file__).parent / "op_host"
_FOLDERS = (OP_HOST, HOST_INCLUDE, INCLUDE)
_DRIVER = "driver.o"
_SECONDS = 120
_COMMON, _DEEPEST = ("common/inc", "common/include", "utils/inc"), 8
_KNOWN_BYTES = 1 << 16
"""Of a tensor whose content a tiling function may read."""
_NODE = "npusim/registry.h"
_CONTEXTS = "npusim/contexts.h"
_LOG = "npusim/log.h"
_RUNTIME = (
    "tiling_context tiling_parse_context infer_shape_context infer_shape_range_context infer_datatype_context shape "
    "storage_shape storage_format tensor runtime_attrs continuous_vector kernel_context extended_kernel_context "
    "compute_node_info tiling_data kernel_run_context"
)
_HEADERS = {
    **dict.fromkeys(("register/op_def_registry.h", "register/op_impl_registry.h", "register/op_def.h"), _NODE),
    **{f"exe_graph/runtime/{name}.h": _CONTEXTS for name in _RUNTIME.split()},
    **dict.fromkeys((f"platform/platform_{name}.h" for name in ("info", "info_def", "infos_def")), "npusim/platform.h"),
    **dict.fromkeys(("platform/platform_ascendc.h", "platform/soc_spec.h"), "tiling/platform/platform_ascendc.h"),
    **dict.fromkeys(
        (
            "graph/types.h", "external/graph/types.h", "graph/utils/type_utils.h", "graph/ge_error_codes.h",
            "graph/tensor.h", "graph/operator.h", "graph/c_types.h",
        ),
        "npusim/graph.h",
    ),
    **dict.fromkeys(
        (
            "log/log.h", "log/ops_log.h", "error_log.h", "error_util.h", "error/ops_error.h", "op_common/log/log.h",
            "op_log.h", "ops_log.h", "log/error_code.h", "base/alog_pub.h", "alog_pub.h", "base/err_msg.h", "err_msg.h",
            "toolchain/slog.h",
        ),
        _LOG,
    ),
    **{
        f"{folder}util/{name}_util.h": f"npusim/{'shape' if name == 'shape' else 'math'}_util.h"
        for folder in ("", "op_host/", "op_common/op_host/")
        for name in ("math", "platform", "shape")
    },
    **dict.fromkeys(
        (f"{folder}op_host/tiling_base_{name}.h" for folder in ("", "op_common/") for name in ("util", "class")),
        "npusim/tiling_base_class.h",
    ),
    "graph/operator_reg.h": "npusim/operator_reg.h",
    "ascendc/host_api/tiling/template_argument.h": "npusim/template_argument.h",
    "securec.h": "npusim/checked_copies.h",
}  # fmt: skip
"""Headers of the vendor's host libraries, by what they are here; a project's own of the name are found first."""
_TILING_API = "tiling/tiling_api.h"
_OF_TILING_API = re.compile(r"(?:tiling|adv_api)/(?:\w+/)+\w+_tiling(?:data|_base|_intf)?\.h")
"""Parts of that header, which sources name in place of it."""
_DEFINES = re.compile(r"\bOP_ADD\s*\(\s*(\w+)\s*[,)]")
_TILES = re.compile(r"\bIMPL_OP(?:_OPTILING)?\s*\(\s*(\w+)\s*\)")


class TilingError(NpuSimError):
    """The host code of an operator refuses a call, or ends; the message has what it said."""


@dataclass(frozen=True, kw_only=True)
class HostTiling:
    """What a tiling function decided.

    Attributes
    ----------
    op : str
        The operator.
    data : bytes
        Tiling data.
    blocks, key : int
        SetBlockDim and SetTilingKey.
    workspaces : tuple of int
        Bytes of each workspace; a kernel gets the first.
    template_arguments : tuple of int
        Of a kernel that is a template (GET_TPL_TILING_KEY, ASCENDC_TPL_SEL_PARAM, or the ``key`` as
        ASCENDC_TPL_ARGS_DECL has it), which is compiled with them.
    tensor_count : int
        Inputs and outputs, behind which a kernel takes the workspace.
    """

    op: str
    data: bytes
    blocks: int
    key: int
    workspaces: tuple[int, ...] = ()
    template_arguments: tuple[int, ...] = ()
    tensor_count: int = 0

    @property
    def call(self) -> dict[str, Any]:
        """Keywords of a kernel's call: ``kernel(x, y, tiling.workspace, **tiling.call)``."""
        made = {"blocks": self.blocks, "tiling": self.data, "tiling_key": self.key}
        return {**made, "workspace": (self.tensor_count,)}

    @property
    def workspace(self) -> np.ndarray:
        """The first workspace, uint8[bytes]; poison, as a device has anything there."""
        return np.full(self.workspaces[0] if self.workspaces else 0, 0xFF, np.uint8)


def host_tiling(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    attributes: Mapping[str, Any] | Sequence[Any] = (),
    op: str | None = None,
    product: str | Product | None = None,
    include: Sequence[str | Path] = (),
    defines: Sequence[str] = (),
) -> HostTiling:
    """Run the tiling function of an operator's host sources for a call.

    Parameters
    ----------
    sources : path or sequence of path
        Files of ``op_host`` with the tiling function; the file with the operator's definition is found beside them.
    inputs : sequence of array, None or sequence of array
        In the order of the definition: an array, None for an optional input that is not there, a list for a dynamic
        one. Arrays up to 64 KB may be looked at.
    outputs : sequence of array
        As the kernel will be given; their types and shapes count.
    attributes : mapping or sequence
        By name, where a source has the definition, whose defaults are taken for the others; else all in their order.
    op : str or None
        Name of the operator; None: the only one that the sources have a tiling function of.
    product : str, Product or None
        None: the current product.
    include, defines
        As for `compile`.

    Raises
    ------
    TilingError
        The tiling function refuses the call, or its program ends.
    CompilationError
        The compiler refuses the sources.
    InputFileError
        A source is not there, or there is not one operator.
    DTypeError
        A type that definitions have no name for.
    """
    paths = [Path(one) for one in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    texts = {path.resolve(): _text(path) for path in paths}
    op = op or _only_operator(texts)
    texts |= _definition_beside(texts, op)
    chip = current_product() if product is None else get_product(product)
    program = _program(texts, include, defines)
    words = _words(chip, op, inputs, outputs, attributes)
    with tempfile.TemporaryDirectory(prefix="npu-sim-") as name:
        call, result = Path(name) / "call", Path(name) / "result"
        call.write_text(words, encoding="ascii")
        try:
            done = subprocess.run(
                [str(program), str(call), str(result)], capture_output=True, text=True, errors="replace", check=False,
                timeout=_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TilingError(f"the host code of {op} must end within {_SECONDS} seconds ({chip.name})") from None
        said = done.stderr.strip()
        if done.returncode or not result.exists():
            ended = f"ends with {done.returncode}" if done.returncode >= 0 else f"ends by signal {-done.returncode}"
            raise TilingError(f"the host code of {op} {ended} ({chip.name}){': ' if said else ''}{said}")
        told, declared = result.read_text(encoding="utf-8", errors="surrogateescape").split("\n")[:2]
    answer = told.split()
    status, blocks, key = map(int, answer[:3])
    if status:
        words = said or "it said nothing"
        raise TilingError(f"the tiling function of {op} must succeed, not return {status} ({chip.name}): {words}")
    sizes, rest = _listed(answer[3:])
    arguments, (data,) = _listed(rest)
    return HostTiling(
        op=op, data=bytes.fromhex(data[1:]), blocks=blocks, key=key, workspaces=sizes,
        template_arguments=arguments or arguments_of_key(key, declared), tensor_count=len(inputs) + len(outputs),
    )  # fmt: skip


def _listed(words: list[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of which the first word says how many there are, and the words behind them."""
    count = int(words[0]) + 1
    return tuple(map(int, words[1:count])), words[count:]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputFileError(f"{path} must be a host source that can be read ({error.strerror})") from error


def _only_operator(texts: Mapping[Path, str]) -> str:
    plain = [without_text(text) for text in texts.values()]
    found = {name for text in plain for name in _TILES.findall(text)} or {
        name for text in plain for name in _DEFINES.findall(text)
    }
    if len(found) != 1:
        names = ", ".join(sorted(found)) or "none"
        raise InputFileError(f"op must be named where sources do not have just one operator ({names})")
    return found.pop()


def _definition_beside(texts: Mapping[Path, str], op: str) -> dict[Path, str]:
    """Return the source with the class of OpDef, if none of those given is it."""
    if any(op in _DEFINES.findall(text) for text in texts.values()):
        return {}
    folders = dict.fromkeys(folder for path in texts for folder in (path.parent, path.parent.parent))
    for folder in folders:
        for path in sorted(folder.glob("*.cpp")):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if op in _DEFINES.findall(text) and path.resolve() not in texts:
                return {path.resolve(): text}
    return {}


def _program(texts: Mapping[Path, str], include: Sequence[str | Path], defines: Sequence[str]) -> Path:
    compiler = find_compiler()
    own = [str(_HEADERS), *_own_headers()]
    named = [Path(path).resolve() for path in include]
    places = [*named, *dict.fromkeys(folder for source in texts for folder in _folders_of_project(source))]
    parts = [compiler.version, str(compiler), *map(str, places), *defines, *own]
    headers, roots = _with_headers(texts, places)
    parts += [f"{path}\n{body}" for path, body in (*texts.items(), *headers.items())]
    bodies = [*texts.values(), *headers.values()]
    asked = {name for body in bodies for name in INCLUDES.findall(body) if _OF_TILING_API.fullmatch(name)}
    standing = {**_HEADERS, **dict.fromkeys(asked, _TILING_API)}

    def make(place: Path) -> None:
        forwarding = place / "forwarding"
        for name, target in standing.items():
            path = forwarding / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'#pragma once\n#include "{target}"\n', encoding="utf-8")
        folders = [f"-I{path}" for path in (*places, forwarding, *_FOLDERS, *roots)]
        named = {standing.get(name) for body in bodies for name in INCLUDES.findall(body)}
        options = _options(defines)
        prefix = host_prefix(compiler, options, _NODE, _FOLDERS, bodies) if _NODE in named else []
        options += folders
        link(compiler, options, prefix, [*map(str, texts)], _driver(compiler, defines), headers, place / "kernel")

    return kept_program(programs_directory() / digest_of(["host tiling", *parts]), make)


def _driver(compiler: Compiler, defines: Sequence[str]) -> Path:
    """Return what calls the tiling function, compiled: one for all operators, as it is more than most host sources."""
    options = _options(defines)

    def make(place: Path) -> None:
        source = place / "driver.cpp"
        source.write_text('#include "npusim/driver.h"\n', encoding="utf-8")
        folders = [f"-I{path}" for path in _FOLDERS]
        compiler.run([*options, *folders, "-c", str(source), "-o", str(place / _DRIVER)], "driver.h")

    digest = digest_of(["driver of hosts", compiler.version, str(compiler), *options, *_own_headers()])
    return kept_program(programs_directory() / digest, make, _DRIVER)


def _options(defines: Sequence[str]) -> list[str]:
    return ["-std=c++17", "-O1", "-w", *(f"-D{define}" for define in defines)]


def _own_headers() -> Iterable[str]:
    """Return the texts of all headers of the package that host sources and their driver include."""
    paths = (path for root in _FOLDERS for path in sorted(root.rglob("*.h")))
    return (path.read_text(encoding="utf-8") for path in paths)


def _with_headers(texts: Mapping[Path, str], places: Sequence[Path]) -> tuple[dict[Path, str], list[Path]]:
    """Return the headers that sources include, and the roots from which some of these are named."""
    roots = list[Path]()
    while True:
        headers = dict[Path, str]()
        for path, text in texts.items():
            headers |= included(Source(path, text, ()), [*places, *roots])
        more = roots_of_headers({**texts, **headers}, _HEADERS)
        more = [root for root in more if root not in roots]
        if not more:
            return headers, roots
        roots += more


def _folders_of_project(source: Path) -> Iterable[Path]:
    """Return where libraries of operators keep what several include, and the folders of the operator itself."""
    yield from (source.parent, source.parent.parent, source.parent.parent.parent)
    for folder in list(source.parents)[:_DEEPEST]:
        yield from (path for name in _COMMON if (path := folder / name).is_dir())


def _words(
    chip: Product,
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: Mapping[str, Any] | Sequence[Any],
) -> str:
    words = [*map(str, facts_of(chip)), chip.name, chip.short_soc_version, op, str(len(inputs))]
    for number, given in enumerate(inputs):
        several = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
        words += [str(len(several)), *(word for one in several for word in _tensor(f"inputs[{number}]", one))]
    words.append(str(len(outputs)))
    for number, one in enumerate(outputs):
        words += _tensor(f"outputs[{number}]", one)
    named = attributes if isinstance(attributes, Mapping) else {f"#{at}": one for at, one in enumerate(attributes)}
    words.append(str(len(named)))
    for name, value in named.items():
        words += [str(name), *_attribute(str(name), value)]
    return " ".join(words) + "\n"


def _tensor(name: str, array: Any) -> list[str]:
    given = np.asarray(array)
    kind = type_name(given.dtype)
    if kind is None:
        raise DTypeError(f"{name} must be of a type that operators have, not {given.dtype}")
    data = given.tobytes().hex() if given.nbytes <= _KNOWN_BYTES else ""
    layout = numbers()["FORMAT_ND"]
    return [str(numbers()[kind]), str(layout), str(given.ndim), *map(str, given.shape), f".{data}"]


def _attribute(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return ["s", f".{value.encode().hex()}"]
    if isinstance(value, list | tuple | np.ndarray):
        items = np.asarray(value).ravel().tolist()
        kinds = {type(item) for item in items}
        letter = "F" if float in kinds else "B" if kinds == {bool} else "I"
        return [letter, str(len(items)), *(repr(item) if letter == "F" else str(int(item)) for item in items)]
    if isinstance(value, bool | np.bool_):
        return ["b", str(int(value))]
    if isinstance(value, int | np.integer):
        return ["i", str(int(value))]
    if isinstance(value, float | np.floating):
        return ["f", repr(float(value))]
    raise ShapeError(f"attribute {name} must be a number, a text or a list of numbers, not {type(value).__name__}")

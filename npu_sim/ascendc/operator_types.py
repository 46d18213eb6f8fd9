"""The types of an operator's tensors, which the build of an operator project tells its kernels by macros.

For each input and output ``x`` of an operator's definition such a build defines ``DTYPE_X`` (``half``),
``ORIG_DTYPE_X`` (``DT_FLOAT16``) and ``FORMAT_X`` (``FORMAT_ND``), one program for each combination of types. The
definition is a class of the host sources beside the kernel (``this->Input("x").DataType({...})``), or a JSON document.
Here the combination is that of the arrays of a call.

``ORIG_DTYPE_X`` and ``FORMAT_X`` are numbers, and names of types and formats become numbers where the preprocessor
compares them (`with_numbers`): as macros of their own they would break every header that declares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.source import without_text
from npu_sim.ascendc.tiling_structs import hosts_of, project_folder
from npu_sim.errors import DTypeError, InputFileError

_TYPES = {
    "DT_FLOAT": ("float32", "float"),
    "DT_FLOAT16": ("float16", "half"),
    "DT_BF16": ("bfloat16", "bfloat16_t"),
    "DT_INT8": ("int8", "int8_t"),
    "DT_UINT8": ("uint8", "uint8_t"),
    "DT_INT16": ("int16", "int16_t"),
    "DT_UINT16": ("uint16", "uint16_t"),
    "DT_INT32": ("int32", "int32_t"),
    "DT_UINT32": ("uint32", "uint32_t"),
    "DT_INT64": ("int64", "int64_t"),
    "DT_UINT64": ("uint64", "uint64_t"),
    "DT_DOUBLE": ("float64", "double"),
    "DT_BOOL": ("bool", "bool"),
    "DT_INT4": ("int4", "AscendC::int4b_t"),
}
"""Name in NumPy and type in a kernel, by the name in definitions."""
_OTHER_TYPES = {
    "DT_STRING": 13, "DT_DUAL_SUB_INT8": 14, "DT_DUAL_SUB_UINT8": 15, "DT_COMPLEX64": 16, "DT_COMPLEX128": 17,
    "DT_QINT8": 18, "DT_QINT16": 19, "DT_QINT32": 20, "DT_QUINT8": 21, "DT_QUINT16": 22, "DT_RESOURCE": 23,
    "DT_STRING_REF": 24, "DT_DUAL": 25, "DT_VARIANT": 26, "DT_UNDEFINED": 28, "DT_UINT1": 30, "DT_INT2": 31,
    "DT_UINT2": 32, "DT_COMPLEX32": 33, "DT_HIFLOAT8": 34, "DT_FLOAT8_E5M2": 35, "DT_FLOAT8_E4M3FN": 36,
}  # fmt: skip
"""Numbers of types that no tensor has here: as a name that nobody defines each would be 0, which is DT_FLOAT."""
_OF_ARRAY = {array: name for name, (array, _) in _TYPES.items()}
_JSON_TYPES = {"fp16": "DT_FLOAT16", "fp32": "DT_FLOAT", "float": "DT_FLOAT", "bf16": "DT_BF16", "double": "DT_DOUBLE"}
_JSON_TYPES |= {array: name for name, (array, _) in _TYPES.items()}
_DEFAULT, _DEFAULT_FORMAT = "DT_FLOAT16", "FORMAT_ND"
_MOST_BYTES = 1 << 20
"""Of a file with a definition; larger ones are not looked at."""
_NUMBER = re.compile(r"\b((?:DT|FORMAT)_[A-Z0-9_]+) = (\d+)")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(ifn?def|if|elif)\b(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
_NAME = re.compile(r"\bdefined\s*\(\s*(\w+)\s*\)|\bdefined\s+(\w+)|\b(?:ge::)?((?:DT|FORMAT)_[A-Z0-9_]+)\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CLASS = re.compile(r"\bclass\s+(\w+)\s*(?:final\s*)?:\s*public\s+(?:ops::)?OpDef\b")
_TENSOR = re.compile(r"\bthis\s*->\s*(Input|Output)\s*\(\s*\"(\w+)\"\s*\)(.*?);", re.DOTALL)
_USED = re.compile(r"\b(?:ORIG_DTYPE|DTYPE|FORMAT)_([A-Z][A-Z0-9_]*)\b")
_DEFINE, _UNDEFINE = (
    re.compile(rf"#[ \t]*{word}[ \t]+((?:ORIG_DTYPE|DTYPE|FORMAT)_\w+)") for word in ("define", "undef")
)
_SUFFIX = re.compile(r"_?(?:gm|addr)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of an operator.

    Attributes
    ----------
    name : str
    types, formats : tuple of str
        Names such as ``DT_FLOAT16``, by combination.
    is_free : bool
        Whether its types combine with every combination of the others (DataTypeList).
    """

    name: str
    types: tuple[str, ...]
    formats: tuple[str, ...] = ()
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator: its inputs and then its outputs, which are the first parameters of its kernel."""

    op: str
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Types:
    """What a program is compiled for.

    Attributes
    ----------
    macros : tuple of str
        ``NAME=VALUE``.
    note : str
        Which types nothing told; empty: none.
    """

    macros: tuple[str, ...] = ()
    note: str = ""


def type_name(dtype: np.dtype) -> str | None:
    """Return the name that definitions give the type of an array; None: they have none."""
    return _OF_ARRAY.get(dtype.name)


@cache
def numbers() -> Mapping[str, int]:
    """Return the numbers of types and formats, as the package's headers have them."""
    text = (Path(__file__).parent / "include/npusim/types.h").read_text(encoding="utf-8")
    return {name: int(number) for name, number in _NUMBER.findall(text)}


def with_types(kernel: str, takes_types: Sequence[bool]) -> str:
    """Return the name of a kernel with the types for which its host code gives numbers of ``DT_...``.

    Parameters
    ----------
    kernel : str
        With its template arguments, as in ``"scale<1, 2>"``.
    takes_types : sequence of bool
        Of each parameter of the template.

    Raises
    ------
    DTypeError
        No type that kernels have is of the number.
    """
    name, opened, rest = kernel.partition("<")
    arguments = [one.strip() for one in rest.rpartition(">")[0].split(",")]
    asked = [at for at, one in enumerate(arguments) if one.isdecimal() and at < len(takes_types) and takes_types[at]]
    if not opened or not asked:
        return kernel
    named = {number: _TYPES[kind][1] for kind, number in numbers().items() if kind in _TYPES}
    for at in asked:
        if int(arguments[at]) not in named:
            raise DTypeError(f"template argument {at} of {name} must be a type or its DT_ number, not {arguments[at]}")
        arguments[at] = named[int(arguments[at])]
    return f"{name}<{', '.join(arguments)}>"


def with_numbers(text: str) -> str:
    """Return a source whose preprocessor compares numbers where it has names of types and formats, lines unmoved."""
    known = {**_OTHER_TYPES, **numbers()}

    def name(found: re.Match[str]) -> str:
        asked, plain = found[1] or found[2], found[3]
        if plain:
            return str(known.get(plain, plain))
        return "1" if asked in known else found[0]

    def directive(found: re.Match[str]) -> str:
        if found[1] in ("if", "elif"):
            return _NAME.sub(name, found[0])
        return re.sub(r"\b\w+", lambda word: "__cplusplus" if word[0] in known else word[0], found[0])

    return _DIRECTIVE.sub(directive, text)


def definition_of(source: Path, kernel: str, given: Path | None = None) -> Definition | None:
    """Return the definition of the operator that a kernel belongs to.

    Parameters
    ----------
    source : Path
        The kernel's; definitions are looked for among the host's sources of its project, and in JSON documents there.
    kernel : str
        Whose operator has its name, whatever the case and underscores; else the only one.
    given : Path or None
        The file with the definition, instead.

    Raises
    ------
    InputFileError
        ``given`` has none for the kernel.
    """
    if given is None:
        folder = project_folder(source)
        files = [] if folder is None else [*sorted(hosts_of(folder).rglob("*.cpp")), *sorted(folder.glob("*.json"))]
        files = [path for path in files if path.stat().st_size <= _MOST_BYTES]
    else:
        files = [given]
    found: dict[str, Definition] = {}
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise InputFileError(
                f"definition must be a file that can be read, not {path} ({error.strerror})"
            ) from error
        for one in _of_json(text) if path.suffix == ".json" else _of_source(text):
            found.setdefault(one.op.lower(), one)
    wanted = kernel.partition("<")[0].rpartition(":")[2].replace("_", "").lower()
    if wanted in found or len(found) == 1:
        return found.get(wanted) or next(iter(found.values()))
    if given is not None:
        names = ", ".join(one.op for one in found.values()) or "none"
        raise InputFileError(f"definition {given} must have an operator for the kernel {kernel}, it has {names}")
    return None


def _of_source(text: str) -> list[Definition]:
    code = _COMMENT.sub(" ", text)
    heads = list(_CLASS.finditer(code))
    ends = [*(head.start() for head in heads[1:]), len(code)]
    made = [_of_class(head[1], code[head.end() : end], code) for head, end in zip(heads, ends, strict=False)]
    return [one for one in made if one.tensors]  # of others functions make the tensors, by names that are not read


def _of_class(op: str, body: str, code: str) -> Definition:
    made: dict[str, list[Tensor]] = {"Input": [], "Output": []}
    for kind, name, chain in _TENSOR.findall(body):
        types = _listed(chain, "DataType", "DT_", code)
        free = _listed(chain, "DataTypeList", "DT_", code)
        formats = _listed(chain, "Format", "FORMAT_", code) or _listed(chain, "FormatList", "FORMAT_", code)
        made[kind].append(Tensor(name, types or free, formats, not types and bool(free)))
    return Definition(op, (*made["Input"], *made["Output"]))


def _listed(chain: str, call: str, prefix: str, code: str) -> tuple[str, ...]:
    """Return the names that a call of the chain lists, in braces or in a variable of the file."""
    found = re.search(rf"\.\s*{call}\s*\(\s*(?:\{{([^}}]*)\}}|(\w+))", chain)
    if found and found[2]:
        found = re.search(rf"\b{found[2]}\s*(?:=\s*)?\{{([^}}]*)\}}", code)
    return tuple(re.findall(rf"\b{prefix}\w+", found[1])) if found else ()


def _of_json(text: str) -> list[Definition]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    made = []
    for one in document if isinstance(document, list) else [document]:
        if isinstance(one, dict) and isinstance(one.get("op"), str):
            given = [tensor for key in ("input_desc", "output_desc") for tensor in one.get(key) or ()]
            made.append(Definition(one["op"], tuple(_of_description(tensor) for tensor in given)))
    return made


def _of_description(tensor: Mapping[str, object]) -> Tensor:
    def words(key: str) -> list[str]:
        value = tensor.get(key)
        return [value] if isinstance(value, str) else [str(one) for one in value] if isinstance(value, list) else []

    types = tuple(_JSON_TYPES.get(word.lower(), f"DT_{word.upper()}") for word in words("type"))
    return Tensor(str(tensor.get("name")), types, tuple(f"FORMAT_{word.upper()}" for word in words("format")))


def uses_types(texts: Sequence[str]) -> bool:
    """Return whether a source asks for the type or format of a tensor."""
    return any(_used(texts) - {name.removeprefix("FORMAT_") for name in numbers()})


def _used(texts: Sequence[str]) -> set[str]:
    return {name for text in texts for name in _USED.findall(text)}


def type_macros(
    definition: Definition | None,
    parameters: Sequence[str],
    given: Sequence[str | None],
    defines: Sequence[str],
    texts: Sequence[str],
) -> Types:
    """Return the macros of the types of a call.

    Parameters
    ----------
    definition : Definition or None
        None: a parameter ``x`` (``xGm``, ``x_gm``) is the tensor x.
    parameters : sequence of str
        Names of the kernel's parameters.
    given : sequence of str or None
        What `type_name` says of each argument.
    defines : sequence of str
        The user's macros, ``NAME`` or ``NAME=VALUE``: these are the types then.
    texts : sequence of str
        The source and what it includes.

    Raises
    ------
    DTypeError
        The definition has no such combination.
    """
    typed = {parameter for parameter, kind in zip(parameters, given, strict=False) if kind is not None}
    own = {define.partition("=")[0] for define in defines} | _defined(texts, [*defines, *_guards(definition, typed)])
    if definition is not None:
        chosen = _combination(definition, given, own)
    else:
        used, chosen = _used(texts), {}
        for i, parameter in enumerate(parameters):
            known = given[i] if i < len(given) else None
            for name in {parameter.upper(), _SUFFIX.sub("", parameter).upper()} & used:
                chosen[name] = known, _DEFAULT_FORMAT
    macros, unknown = [], []
    for name, (kind, layout) in chosen.items():
        if kind is None and f"DTYPE_{name}" not in own:
            unknown.append(f"DTYPE_{name}")
        real = kind or _DEFAULT
        for macro, value in (
            (f"DTYPE_{name}", _TYPES[real][1] if real in _TYPES else None),
            (f"ORIG_DTYPE_{name}", numbers().get(real)),
            (f"FORMAT_{name}", numbers().get(layout)),
        ):
            if value is not None and macro not in own and macro not in numbers():
                macros.append(f"{macro}={value}")
    return Types(tuple(macros), f"{', '.join(unknown)} half by default" if unknown else "")


def _defined(texts: Sequence[str], defines: Sequence[str]) -> set[str]:
    """Return the macros of types that texts define: one behind ``#ifndef DTYPE_X`` is for builds without that.

    One that a text undefines is the build's, whatever the text makes of it then.
    """
    living = [without_dead_branches(without_text(text), defines) for text in texts if _DEFINE.search(text)]
    undefined = {name for text in living for name in _UNDEFINE.findall(text)}
    return {name for text in living for name in _DEFINE.findall(text)} - undefined


def _guards(definition: Definition | None, typed: set[str]) -> list[str]:
    """Return the macros that the types of a call make, of which those of the parameters ``typed`` are known."""
    if definition is not None:
        names = {one.name.upper() for one in definition.tensors}
    else:
        names = {name for parameter in typed for name in (parameter.upper(), _SUFFIX.sub("", parameter).upper())}
    return [f"{macro}_{name}" for name in sorted(names) for macro in ("DTYPE", "ORIG_DTYPE", "FORMAT")]


def _combination(
    definition: Definition, given: Sequence[str | None], own: set[str]
) -> dict[str, tuple[str | None, str]]:
    """Return type and format of each tensor, by its name in capitals."""
    tensors = definition.tensors
    asked = [
        None if i >= len(given) or f"DTYPE_{one.name.upper()}" in own else given[i] for i, one in enumerate(tensors)
    ]
    free = [one.is_free or len(one.types) <= 1 for one in tensors]
    count = min((len(one.types) for one, is_free in zip(tensors, free, strict=True) if not is_free), default=1)
    for column in range(count):
        kinds = [
            (want if want in one.types else one.types[0]) if is_free and one.types else
            one.types[column] if one.types else want
            for one, want, is_free in zip(tensors, asked, free, strict=True)
        ]  # fmt: skip
        if all(want in (None, kind) for want, kind in zip(asked, kinds, strict=True)):
            break
    else:
        kinds = None
    if kinds is None or any(want not in (None, kind) for want, kind in zip(asked, kinds, strict=True)):
        words = ", ".join(f"{one.name} {want}" for one, want in zip(tensors, asked, strict=True) if want)
        legal = "; ".join(f"{one.name} {' '.join(one.types)}" for one in tensors)
        raise DTypeError(f"types of {definition.op} must be a combination of its definition ({legal}), not {words}")
    chosen: dict[str, tuple[str | None, str]] = {}
    for one, kind in zip(tensors, kinds, strict=True):
        layout = one.formats[min(column, len(one.formats) - 1)] if one.formats else _DEFAULT_FORMAT
        chosen[one.name.upper()] = kind, layout
    return chosen

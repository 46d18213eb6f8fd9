"""The kernel's source as it is compiled: what only a host runs is taken out, lines stay where they are.

Files often hold a kernel and the host code that launches it. Launch brackets are no C++, and what host functions call
does not exist here, so a function that launches a kernel or calls the runtime keeps its head and loses its body; one
with types of a host library in its head goes as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.cores import ASKS_FOR_SIDE, TASK_KIND, KernelCores, cores_named, cores_of_head
from npu_sim.errors import InputFileError

_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_HOST_CALL = re.compile(
    r"<<[ \t]*<|\bacl[A-Z]\w*\s*\(|\bACL\w*\s*\(|\bACLRT_LAUNCH_KERNEL\b|\bCHECK_ACL\b|\bICPU_RUN_KF\b"
    r"|\bplatform_ascendc::|\bmatmul_tiling::|\boptiling::|\bgert::|\bge::|\bstd::(?:vector|string|cout|cerr|ifstream|ofstream)\b|\bat::|\btorch::|\bReadFile\s*\(|\bWriteFile\s*\("
)
_HOST_TYPE = re.compile(
    r"\b(?:platform_ascendc|matmul_tiling|gert|ge|at|torch)::|\b(?:TORCH_LIBRARY\w*|PYBIND11_MODULE)\s*\("
    r"|\baclprof\w+"
)
"""In the head of a function: its types are not there, so the whole function goes. Bindings of PyTorch look like one."""
_HOST_HEADER = re.compile(
    r"(?:torch|torch_npu|ATen|c10|pybind11|acl|aclnn|aclnnop|opdev|graph|exe_graph|register|toolchain|platform"
    r"|tiling/platform|runtime|nlohmann)/"
)
_BEFORE_HEAD = re.compile(r"\A|[;{}]|^\s*#[^\n]*(?:\\\n[^\n]*)*$", re.MULTILINE)
"""Where the head of a function may begin."""
_KERNEL = re.compile(r"__global__\b[^;{}()]*?(?:__\w+__(?:\s*\([^)]*\))?\s+)*\bvoid\s+(\w+)\s*\(")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_MACRO_CALLS = re.compile(r"(?:\s*\w+[ \t]*\([^()]*\)[ \t]*\n)+(?=\s*[^\s{])")
"""Lines before the head of a function that are none of it."""
_LAUNCH = re.compile(r"\{[^{}]*<<<[^{}]*\}")
_PARAMETERS = re.compile(r"[^()]*(?:\([^()]*\)[^()]*)*\)")
_BRACE, _BODY = re.compile(r"[{}]"), re.compile(r"\s*\{")
_CLASS = re.compile(r"\b(?:class|struct)\s+(\w+)\s*(?:final\s*)?(?:<[^;{}()]*>\s*)?(?::[^;{}()]*)?\{")
_HELPER = re.compile(
    r"^(?![ \t]|extern\b|[^\n]*__global__)[^;{}()#\n]*\b__aicore__\b(?:__attribute__\s*\(\([^()]*\)\)|[^;{}()\n])*?"
    r"(?<![\w:~])(?!__attribute__\b)(\w+)\s*\(",
    re.MULTILINE,
)
"""A function of a kernel that is no member: it begins its line."""
_ASSERT = re.compile(r"\bASSERT\s*\(")
_STATEMENT_ENDS = re.compile(r"(?:[^\w\]\s]|\belse)\s*\Z")
"""Before an ASSERT that is a statement; a device's build has none, so another joins what is around it."""
_ATTRIBUTE = re.compile(r"(?:(?<![\w\])])|(?<=__forceinline__)|(?<=\binline))\[(?:host, *)?aicore\]")
"""Of the vendor's compiler, as catlass writes ``__aicore__``; behind a name or a bracket it would be an index."""
_CORE_AS_CONSTANT = re.compile(
    r"[<,=]\s*(?:AscendC::)?g_coreType\s*[>,]|\bconstexpr\s*\([^;{}]*\b(?:g_coreType|ASCEND_IS_AI[CV])\b"
)
_TEMPLATE = re.compile(r"\btemplate\s*<([^<>]*)")
_TYPE = re.compile(r"\s*(?:typename|class)\b")
_NAMESPACE = re.compile(r"\bnamespace\s+(\w+(?:\s*::\s*\w+)*)\s*\{|[{}]")


@dataclass(frozen=True, slots=True)
class Source:
    """A source file.

    Attributes
    ----------
    path : Path
        Absolute.
    text : str
        As it is compiled.
    kernels : tuple of str
        Names of the functions that are marked ``__global__``, in their order.
    heads : mapping of str to KernelHead
        By kernel.
    """

    path: Path
    text: str
    kernels: tuple[str, ...]
    heads: Mapping[str, KernelHead] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelHead:
    """What the text of a kernel's head says.

    Attributes
    ----------
    cores : (Kind, int) or None
        What its own attributes, or else KERNEL_TASK_TYPEs in its body, say; None: they say nothing.
    is_defined : bool
        It has a body.
    parameters : str
        As they are written, without comments.
    is_template : bool
    takes_types : tuple of bool
        Of each parameter of the template: whether it is a type.
    namespace : str
        In which it stands, with ``::`` behind it; "" outside of all that have a name.
    several_in : range
        Lines of its body if that has KERNEL_TASK_TYPEs of different kinds; then ``cores`` are those of all.
    """

    cores: KernelCores | None
    is_defined: bool
    parameters: str
    is_template: bool
    takes_types: tuple[bool, ...]
    namespace: str
    several_in: range

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return parameter_names(self.parameters)


def read_source(path: str | Path, defines: Iterable[str] = ()) -> Source:
    """Read a kernel's source, as it is with ``defines``, ``NAME`` or ``NAME=VALUE``.

    Raises
    ------
    InputFileError
        It cannot be read.
    """
    place = Path(path)
    text = _without_stray_asserts(read_text(place))
    code = without_text(text)
    living = without_dead_branches(code, defines)
    kernels, heads = tuple(dict.fromkeys(_KERNEL.findall(living))), kernel_heads(living)
    return Source(place.resolve(), _without_host_code(text, code), kernels, heads)


def read_text(path: Path) -> str:
    """Return the text of a source.

    Raises
    ------
    InputFileError
        It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise InputFileError(f"{path} must be a C++ source that can be read ({error.strerror})") from error


def without_attributes(text: str) -> str:
    """Return the text without ``[aicore]`` and ``[host, aicore]``, which only the vendor's compiler knows."""
    return _ATTRIBUTE.sub("", text)


def kernel_heads(code: str) -> dict[str, KernelHead]:
    """Return the kernels that are defined or declared in ``code`` (see `without_text`), by name."""
    heads: dict[str, KernelHead] = {}
    for found in _KERNEL.finditer(code):
        head, end = _head_of(code, found.start()) + found[0], _PARAMETERS.match(code, found.end())
        begin = _BODY.match(code, end.end()) if end else None
        body = _block_from(code, begin.end()) if begin else ""
        if not body and found[1] in heads:
            continue  # declared once more
        said, named = cores_of_head(head), set(TASK_KIND.findall(body))
        is_one = said or len({cores_named({name}) for name in named}) < 2
        first = code.count("\n", 0, begin.end()) + 1 if begin else 0
        several_in = range(0) if is_one else range(first, first + body.count("\n") + 1)
        parameters = " ".join(end[0][:-1].split()) if end else ""
        template = _TEMPLATE.search(head)
        takes_types = tuple(_TYPE.match(one) is not None for one in template[1].split(",")) if template else ()
        heads[found[1]] = KernelHead(
            cores=said or cores_named(named),
            is_defined=begin is not None,
            parameters=parameters,
            is_template=template is not None,
            takes_types=takes_types,
            namespace=_namespace_of(code, found.start()),
            several_in=several_in,
        )
    return heads


class KernelDeclaration(NamedTuple):
    """Where a kernel is defined or declared: its name, what stands before that, and its parameters with parentheses."""

    name: str
    begin: int
    end: int
    head: str
    parameters: str


def kernel_declarations(code: str) -> Iterator[KernelDeclaration]:
    """Yield what of ``code`` (see `without_text`) defines or declares kernels, bodies left out."""
    for found in _KERNEL.finditer(code):
        end = _PARAMETERS.match(code, found.end())
        if end is not None:
            first = max(one.end() for one in _BEFORE_HEAD.finditer(code, 0, found.start()))
            head = code[first : found.start(1)]
            begin = first + len(head) - len(head.lstrip())
            yield KernelDeclaration(found[1], begin, end.end(), head.strip(), f"({end[0]}")


def _namespace_of(code: str, at: int) -> str:
    """Return the namespaces around a place in ``code``, each with ``::`` behind it."""
    opened = list[str]()
    for found in _NAMESPACE.finditer(code, 0, at):
        if found[0] != "}":
            opened.append(f"{''.join(found[1].split())}::" if found[1] else "")
        elif opened:
            opened.pop()
    return "".join(opened)


def needs_sides(text: str) -> bool:
    """Return whether a source of a mixed kernel must be compiled for each kind of core.

    It asks the preprocessor which kind it is compiled for, or needs it as a constant.
    """
    return ASKS_FOR_SIDE.search(text) is not None or _CORE_AS_CONSTANT.search(text) is not None


def kernel_side_names(code: str) -> set[str]:
    """Return the classes and helper functions in ``code`` (see `without_text`) that are code of kernels.

    Two sources may each have their own of one name: on a device their kernels are never linked.
    """
    found = {name for name in _HELPER.findall(code)} - kernel_heads(code).keys()
    for one in _CLASS.finditer(code):
        if "__aicore__" in _block_from(code, one.end()):
            found.add(one[1])
    return found


def parameter_names(parameters: str) -> list[str]:
    """Return the names in a list of parameters, as far as they have any."""
    names = [re.findall(r"[A-Za-z_]\w*", part.partition("=")[0]) for part in parameters.split(",")]
    return [words[-1] for words in names if words]


def without_text(text: str) -> str:
    """Return the text with blanks for comments and for what stands in quotes, of the same length and lines."""
    return _SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _without_stray_asserts(text: str) -> str:
    """Return the text with blanks for each ASSERT that is no statement of its own."""
    code = without_text(text)
    for found in _ASSERT.finditer(code):
        start, end = found.start(), _PARAMETERS.match(code, found.end())
        line = code[code.rfind("\n", 0, start) + 1 : start]
        if end is None or "#" in line:
            continue
        is_statement = (
            _STATEMENT_ENDS.search(code[max(start - 300, 0) : start]) and code[end.end() :].lstrip()[:1] == ";"
        )
        if not is_statement:
            text = text[:start] + re.sub(r"[^\n]", " ", text[start : end.end()]) + text[end.end() :]
    return text


def is_of_the_host(header: str) -> bool:
    """Return whether a header by its folder is one for host code, which is left out."""
    return _HOST_HEADER.match(header) is not None


def _without_host_code(text: str, code: str) -> str:
    """Return the text without what only a host runs."""
    pieces, done = [], 0
    for start, end in _bodies(code):
        body = code[start:end]
        first = max(found.end() for found in _BEFORE_HEAD.finditer(code, 0, start))
        calls = _MACRO_CALLS.match(code, first, start)
        first = first if calls is None else calls.end()
        head = code[first:start]
        if _HOST_TYPE.search(head):
            pieces += [text[done:first], re.sub(r"[^\n]", "", text[first:end])]
            done = end
        elif _HOST_CALL.search(body) or re.search(r"\bmain\s*\(", head):
            pieces += [text[done : start + 1], "__builtin_trap();", re.sub(r"[^\n]", "", text[start:end]), "}"]
            done = end
    pieces.append(text[done:])
    return _DIRECTIVE.sub(lambda found: _LAUNCH.sub(_trap, found[0]), "".join(pieces))


def _trap(found: re.Match[str]) -> str:
    """Return what stands in a macro for the body of a function that launches, of as many lines."""
    joined = "\\\n" * found[0].count("\n")
    return f"{{ __builtin_trap(); {joined}}}"


def _bodies(code: str) -> list[tuple[int, int]]:
    """Return where the bodies of functions begin (at the brace) and end (behind it), outermost blocks of code only."""
    # what a macro has of them may begin in one line and end in another only with what joins them
    code = _DIRECTIVE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), code)
    found, opened = [], list[tuple[int, bool]]()
    for place in re.finditer(r"[{}]", code):
        at = place.start()
        if place[0] == "{":
            before = code[max(at - 300, 0) : at].rstrip()
            is_function = before.endswith((")", "const", "noexcept", "override")) or bool(
                re.search(r"\)\s*->\s*[\w:<>&*\s]+$", before[-200:])
            )
            inside = any(function for _, function in opened)
            opened.append((at, is_function and not inside))
        elif opened:
            start, is_function = opened.pop()
            if is_function:
                found.append((start, at + 1))
    return found


def _block_from(code: str, at: int) -> str:
    """Return the rest of the block that ``at`` lies in, with the brace that ends it."""
    depth, end = 1, at
    while depth and (brace := _BRACE.search(code, end)) is not None:
        depth, end = depth + (1 if brace[0] == "{" else -1), brace.end()
    return code[at:end]


def _head_of(code: str, at: int) -> str:
    """Return what stands before ``at`` and belongs to the same declaration."""
    return code[max(code.rfind(one, 0, at) for one in ";{}") + 1 : at]

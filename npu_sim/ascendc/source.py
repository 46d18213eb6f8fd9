"""The kernel's source as it is compiled: what only a host runs is taken out, lines stay where they are.

Files often hold a kernel and the host code that launches it. Launch brackets are no C++, and what host functions call
does not exist here, so a function that launches a kernel or calls the runtime keeps its head and loses its body; one
with types of a host library in its head goes as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npu_sim.errors import InputFileError

Kind = Literal["vector", "cube", "mix"]

_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_HOST_CALL = re.compile(
    r"<<<|\bacl[A-Z]\w*\s*\(|\bACL\w*\s*\(|\bACLRT_LAUNCH_KERNEL\b|\bCHECK_ACL\b|\bICPU_RUN_KF\b"
    r"|\bplatform_ascendc::|\bmatmul_tiling::|\boptiling::|\bgert::|\bge::|\bstd::(?:vector|string|cout|cerr|ifstream|ofstream)\b|\bat::|\btorch::|\bReadFile\s*\(|\bWriteFile\s*\("
)
_HOST_TYPE = re.compile(r"\b(?:platform_ascendc|matmul_tiling|gert|ge|at|torch)::")
"""In the head of a function: its types are not there, so the whole function goes."""
_BEFORE_HEAD = re.compile(r"\A|[;{}]|^\s*#[^\n]*(?:\\\n[^\n]*)*$", re.MULTILINE)
"""Where the head of a function may begin."""
_KERNEL = re.compile(r"__global__\b[^;{}()]*?(?:__\w+__(?:\s*\([^)]*\))?\s+)*\bvoid\s+(\w+)\s*\(")
_TASK_KIND = re.compile(r"KERNEL_TASK_TYPE(?:_DEFAULT)?\s*\([^)]*?KERNEL_TYPE_(\w+)\s*\)")
_CUBE_NAMES = re.compile(r"\b(Mmad|Fixpipe|LoadData|LoadDataWithTranspose|Matmul|MatmulImpl|REGIST_MATMUL_OBJ)\b")
_VECTOR_NAMES = re.compile(
    r"\b(VECIN|VECOUT|VECCALC|Add|Adds|Mul|Muls|Cast|Duplicate|Exp|DataCopyPad|ReduceSum|ASCEND_IS_AIV)\b"
)


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
    kind : "vector", "cube" or "mix"
        Which cores its kernels are for on a product with separate ones: what a KERNEL_TASK_TYPE says, else what the
        names that it uses tell. ASSUMED: the rule of the vendor's compiler is not published.
    vectors : int
        Vector cores for each Cube core of a mixed kernel.
    """

    path: Path
    text: str
    kernels: tuple[str, ...]
    kind: Kind
    vectors: int


def read_source(path: str | Path) -> Source:
    """Read a kernel's source.

    Raises
    ------
    InputFileError
        It cannot be read.
    """
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputFileError(f"{place} must be a C++ source that can be read ({error.strerror})") from error
    code = _without_text(text)
    kind, vectors = _kind_of(code)
    return Source(place.resolve(), _without_host_code(text, code), tuple(_KERNEL.findall(code)), kind, vectors)


def _without_text(text: str) -> str:
    """Return the text with blanks for comments and for what stands in quotes, of the same length and lines."""
    return _SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _without_host_code(text: str, code: str) -> str:
    """Return the text without what only a host runs."""
    pieces, done = [], 0
    for start, end in _bodies(code):
        body = code[start:end]
        first = max(found.end() for found in _BEFORE_HEAD.finditer(code, 0, start))
        head = code[first:start]
        if _HOST_TYPE.search(head):
            pieces += [text[done:first], re.sub(r"[^\n]", "", text[first:end])]
            done = end
        elif _HOST_CALL.search(body) or re.search(r"\bmain\s*\(", head):
            pieces += [text[done : start + 1], "__builtin_trap();", re.sub(r"[^\n]", "", text[start:end]), "}"]
            done = end
    pieces.append(text[done:])
    return "".join(pieces)


def _bodies(code: str) -> list[tuple[int, int]]:
    """Return where the bodies of functions begin (at the brace) and end (behind it), outermost blocks of code only."""
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


def _kind_of(code: str) -> tuple[Kind, int]:
    named = set(_TASK_KIND.findall(code))
    mixed = {"MIX_AIC_1_1": 1, "MIX_AIC_1_2": 2} if named else {}
    for name, vectors in mixed.items():
        if name in named:
            return "mix", vectors
    if named & {"AIC_ONLY", "MIX_AIC_1_0"}:
        return "cube", 2
    if named & {"AIV_ONLY", "MIX_AIV_1_0"}:
        return "vector", 2
    has_cube = bool(_CUBE_NAMES.search(code))
    if has_cube and re.search(r"\bASCEND_IS_AIV\b|\bASCEND_IS_AIC\b", code):
        return "mix", 2
    return ("cube" if has_cube else "vector"), 2

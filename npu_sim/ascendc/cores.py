"""Which cores kernels are for, on products with separate Cube and vector cores: what their text says.

The vendor's compiler looks at the instructions of a kernel that says nothing itself, one kernel in a source; for
several it wants to be told (the page "约束说明" of its programming guide on kernel types). Here what a kernel reaches
of all files of its source stands for its instructions. ASSUMED: which names tell, and that it holds for each of
several kernels too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from typing import Literal

from npu_sim.ascendc.reached import calls, definitions, reached

Kind = Literal["vector", "cube", "mix"]
KernelCores = tuple[Kind, int]
"""Kind, and the vector cores for each Cube core of a mixed kernel."""

TASK_KIND = re.compile(
    r"(?:KERNEL_TASK_TYPE(?:_DEFAULT)?\s*\([^)]*?KERNEL_TYPE_|ASCENDC_TPL_KERNEL_TYPE_SEL\s*\(\s*ASCENDC_TPL_)(\w+)\s*\)"
)
ASKS_FOR_SIDE = re.compile(r"\b__DAV_(?:C220_)?(CUBE|VEC)__")
"""What a source asks that has other code for each kind of core."""
_ATTRIBUTE = re.compile(r"__(vector|cube|mix)__\b(?:\s*\(\s*(\d+)\s*,\s*(\d+)\s*\))?")
"""Of a kernel; those of ``__mix__`` are Cube and vector cores."""
_GLOBAL = re.compile(r"\b__global__\b")
_IN_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\.|\\\n)*?__global__\b", re.MULTILINE)
_TEMPLATE = re.compile(r"[^{}]*?\btemplate\s*<[^{}]*?__global__\b")
_HEAD = re.compile(r"[^;{}]*")
_OF_KIND = re.compile(r"<\s*AscendC::(AIC|AIV)\s*>")
"""Members of templates that are for one kind of core."""
_ASKS_FOR_KIND = re.compile(r"\bASCEND_IS_AI[CV]\b")
_MATMUL_OBJECT = "REGIST_MATMUL_OBJ"
_CUBE_ONLY = re.compile(r"^\s*#\s*define\s+ASCENDC_CUBE_ONLY\b", re.MULTILINE)
_CUBE_NAMES = re.compile(r"\b(Mmad|Fixpipe|LoadData|LoadDataWithTranspose|Matmul|MatmulImpl|REGIST_MATMUL_OBJ)\b")
_TELLING = (_ATTRIBUTE, TASK_KIND, ASKS_FOR_SIDE, _CUBE_NAMES)


def cores_of(kernel: str, codes: Sequence[str]) -> KernelCores:
    """Return which cores a kernel is for.

    Parameters
    ----------
    kernel : str
        Its name, perhaps with namespaces and template arguments, which count as if it named them. So does what host
        code names where it launches a template.
    codes : sequence of str
        Its source and the user's headers, without comments, strings and dead branches.
    """
    if not any(one.search(code) for code in codes for one in _TELLING):
        return "vector", 2
    name = kernel.partition("<")[0].rpartition("::")[2]
    kernels = [one for code in codes for one in definitions(code) if _GLOBAL.search(one.text)]
    own = [one for one in kernels if name in one.names]
    found = reached(kernel, codes) if own else "\n".join(codes)  # of a kernel that a macro makes
    if any(_TEMPLATE.match(one.text) for one in own):
        others = frozenset[str]().union(*(one.names for one in kernels)) - {name}
        found += f"\n{reached(calls(name, codes), codes, others)}"
    if not _attributes_in(found):
        named = set(TASK_KIND.findall(found)) or {one for code in codes for one in _task_kinds(name, code)}
        if (told := cores_named(named)) is not None:
            return told
    is_cube_only = any(_CUBE_ONLY.search(code) for code in codes)
    return kind_of(f"#define ASCENDC_CUBE_ONLY\n{found}" if is_cube_only else found)


def together(cores: Iterable[KernelCores]) -> KernelCores:
    """Return what has the cores of all."""
    kinds = dict(cores)
    if len(kinds) == 1:
        return next(iter(kinds.items()))
    return "mix", kinds.get("mix", 2)


def macros_make_kernels(code: str) -> bool:
    """Return whether there are kernels in ``code`` that do not stand there as they are."""
    return _IN_MACRO.search(code) is not None


def kind_of(code: str) -> KernelCores:
    """Return which cores the kernels in ``code`` are for, which has no comments and no dead branches."""
    said = _attributes_in(code)
    if said:
        return said.pop() if len(said) == 1 else ("mix", max(vectors for _, vectors in said))
    if (told := cores_named(set(TASK_KIND.findall(code)))) is not None:
        return told
    if _MATMUL_OBJECT in code and not _CUBE_ONLY.search(code):
        return "mix", 2
    has_cube = bool(_CUBE_NAMES.search(code))
    if len(set(ASKS_FOR_SIDE.findall(code))) == 2:
        return "mix", 2
    if has_cube and (_ASKS_FOR_KIND.search(code) or len(set(_OF_KIND.findall(code))) == 2):
        return "mix", 2
    return ("cube" if has_cube else "vector"), 2


def cores_named(named: Set[str]) -> KernelCores | None:
    """Return which cores the names of KERNEL_TASK_TYPEs (``AIV_ONLY``) mean, all of them together; None: none does."""
    for name, vectors in (("MIX_AIC_1_1", 1), ("MIX_AIC_1_2", 2)):
        if name in named:
            return "mix", vectors
    if named & {"AIC_ONLY", "MIX_AIC_1_0"}:
        return "cube", 2
    return ("vector", 2) if named & {"AIV_ONLY", "MIX_AIV_1_0"} else None


def cores_of_head(head: str) -> KernelCores | None:
    """Return which cores the attributes in the head of a kernel name; None: they name none."""
    found = _ATTRIBUTE.search(head)
    if found is None:
        return None
    if found[1] != "mix":
        return ("vector" if found[1] == "vector" else "cube"), 2
    cubes, vectors = int(found[2] or 1), int(found[3] or 2)
    if not cubes or not vectors:
        return ("cube" if cubes else "vector"), 2
    return "mix", vectors


def _task_kinds(name: str, code: str) -> set[str]:
    """Return the KERNEL_TASK_TYPEs in ``code`` that are not of kernels with other names."""
    others = (one for one in definitions(code) if name not in one.names and _GLOBAL.search(one.text))
    of_others = [(one.begin, one.end) for one in others]
    found = TASK_KIND.finditer(code)
    return {one[1] for one in found if not any(begin <= one.start() < end for begin, end in of_others)}


def _attributes_in(code: str) -> set[KernelCores]:
    """Return what the attributes of kernels in ``code`` name."""
    heads = (_head_around(code, found.start()) for found in _GLOBAL.finditer(code))
    return {own for head in heads if (own := cores_of_head(head)) is not None}


def _head_around(code: str, at: int) -> str:
    """Return the declaration up to its body or end that ``at`` lies in."""
    begin = max(code.rfind(one, 0, at) for one in ";{}") + 1
    return _HEAD.match(code, begin)[0]  # type: ignore[index]  # it matches anything

"""The tiling structures of an operator project: what its host sources define, for the kernel beside them.

A project keeps kernels in ``op_kernel`` and host sources in ``op_host``, or host sources in ``ophost`` beside the
kernels themselves; its build makes the kernel's structures of the macros that define them there
(BEGIN_TILING_DATA_DEF), and so does this. Of other names in those files nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_KERNELS, _HOSTS, _HOSTS_OF_KERNELS = "op_kernel", "op_host", "ophost"
_HOST_FILES, _KERNEL_FILES = ("*.h", "*.hpp", "*.cpp"), ("*.h", "*.hpp")
_MOST_BYTES = 1 << 20
"""Of a header; larger ones are not looked at."""
_STRUCT = re.compile(r"\bBEGIN_TILING_DATA_DEF\s*\(\s*(\w+)\s*\)(.*?)\bEND_TILING_DATA_DEF\b", re.DOTALL)
_FIELD = re.compile(r"\bTILING_DATA_FIELD_DEF(?P<kind>_ARR|_STRUCT)?\s*\(\s*(?P<operands>[^)]*)\)")
_REGISTERED = re.compile(r"\bREGISTER_TILING_DATA_CLASS\s*\(\s*(\w+)\s*,\s*([\w:]+)\s*\)")
_OF_ARCHITECTURE = re.compile(r"arch\d+")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def project_folder(source: Path) -> Path | None:
    """Return the folder of the operator project that a kernel's source is part of; None: it is in none."""
    if (source.parent / _HOSTS_OF_KERNELS).is_dir():
        return source.parent
    return next((parent.parent for parent in source.parents if parent.name == _KERNELS), None)


def hosts_of(project: Path) -> Path:
    """Return the directory of host sources in the folder of an operator project."""
    beside = project / _HOSTS_OF_KERNELS
    return beside if beside.is_dir() else project / _HOSTS


def host_headers(source: Path, others: Iterable[Path] = ()) -> list[Path]:
    """Return the files of the project that define tilings: headers and sources of the host, then headers of kernels.

    Each in the order of their names, those in folders for another architecture (``arch35``) behind all others: they
    define the same structures for other chips. Behind them what they include of other operators by a path from
    themselves, and headers in the folders ``others`` themselves, where projects keep what several of them share.
    """
    folder = project_folder(source)
    found: list[Path] = []
    if folder is not None:
        parts = ((hosts_of(folder), _HOST_FILES), (folder / _KERNELS, _KERNEL_FILES))
        found = [path for part, ways in parts for way in ways for path in sorted(part.rglob(way))]
        found.sort(key=lambda path: bool(_architectures(path, folder) - _architectures(source, folder)))
    found += _included_from_elsewhere(found)
    found += [path for other in others for path in sorted(other.glob("*.h")) if path not in found]
    return [path for path in found if path.stat().st_size <= _MOST_BYTES and "BEGIN_TILING_DATA_DEF" in _text(path)]


def _included_from_elsewhere(files: Sequence[Path]) -> list[Path]:
    """Return what ``files`` include, through others too, by paths from themselves, and what is none of them."""
    known, found = {path.resolve() for path in files}, list[Path]()
    waiting = list(files)
    while waiting:
        own = waiting.pop(0)
        if own.stat().st_size > _MOST_BYTES:
            continue
        for name in _INCLUDE.findall(_COMMENT.sub(" ", _text(own))):
            path = (own.parent / name).resolve()
            if path not in known and path.is_file():
                known.add(path)
                found.append(path)
                waiting.append(path)
    return found


def _architectures(path: Path, folder: Path) -> set[str]:
    return {part for part in path.relative_to(folder).parts[:-1] if _OF_ARCHITECTURE.fullmatch(part)}


def structs_header(headers: Iterable[Path], kernel: str, own: Sequence[str]) -> str:
    """Return a header with the structures that ``headers`` define.

    Parameters
    ----------
    headers : iterable of Path
        See `host_headers`.
    kernel : str
        The kernel, whose tiling GET_TILING_DATA without a structure reads: of those that are registered the one with
        the kernel's name, whatever the case and underscores, else the only one.
    own : sequence of str
        The source and what it includes: structures that these define are left to them.
    """
    texts = [_COMMENT.sub(" ", _text(path)) for path in headers]
    theirs = "\n".join(own)
    waiting: dict[str, list[tuple[str, str, bool]]] = {}
    for text in texts:
        for name, body in _STRUCT.findall(text):
            if not (
                re.search(rf"\b(?:struct|class)\s+(?:\w+\s*\([^)]*\)\s*)?{name}\b", theirs)
                or re.search(rf"\bBEGIN_TILING_DATA_DEF\s*\(\s*{name}\s*\)", theirs)
            ):
                waiting.setdefault(name, _members(body, [text, *texts]))
    lines = ["#pragma once", '#include "kernel_tiling/kernel_tiling.h"']
    while ready := [
        name for name, members in waiting.items() if not any(kind in waiting for kind, _, is_one in members if is_one)
    ]:
        for name in ready:
            fields = "".join(f" {kind} {field};" for kind, field, _ in waiting.pop(name))
            lines.append(f"struct alignas(8) {name} {{{fields} }};")
    if "REGISTER_TILING_DEFAULT" not in theirs and (default := _default("\n".join(texts), kernel)):
        if (outside := _namespace_in(theirs, default)) is None:
            lines.append(f"using npusim_default_tiling = {default};")
        else:  # it is not there yet
            lines.append(f"#define npusim_default_tiling {outside}::{default}")
    return "\n".join(lines) + "\n"


def _namespace_in(text: str, name: str) -> str | None:
    """Return the namespace, "" for none, in which a text defines a structure of tilings; None: it does not."""
    found = re.search(rf"\bBEGIN_TILING_DATA_DEF\s*\(\s*{name}\s*\)", text)
    if found is None:
        return None
    opened: list[str] = []
    for token in re.finditer(r"\bnamespace\s+([\w:]+)\s*\{|[{}]", text[: found.start()]):
        if token[0] == "}":
            del opened[-1:]
        else:
            opened.append(token[1] or "")
    names = [one for one in opened if one]
    return "".join(f"::{one}" for one in names)


def _members(body: str, texts: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Return type and name of each member, and whether it is a structure.

    Lengths by name are looked up in ``texts``, that of the structure first: others may have such a name too.
    """
    members = []
    for found in _FIELD.finditer(body):
        operands = [one.strip() for one in found["operands"].split(",")]
        is_array = found["kind"] == "_ARR"
        if len(operands) != 2 + is_array:
            continue
        kind, *size, name = operands
        members.append((kind, f"{name}[{_number(size[0], texts)}]" if is_array else name, found["kind"] == "_STRUCT"))
    return members


def _number(size: str, texts: Sequence[str]) -> str:
    """Return a length as a number if it is the name of one."""
    if not size.isidentifier():
        return size
    ways = (rf"#\s*define\s+{size}\s+(\w+)", rf"\b{size}\s*=\s*(\w+)\s*;")
    found = next((found for text in texts for way in ways if (found := re.search(way, text))), None)
    return _number(found[1], texts) if found and found[1] != size else size


def _default(text: str, kernel: str) -> str | None:
    registered = {op.lower(): name.rpartition("::")[2] for op, name in _REGISTERED.findall(text)}
    wanted = kernel.partition("<")[0].replace("_", "").lower()
    if wanted in registered:
        return registered[wanted]
    whole = {op: name for op, name in registered.items() if op != f"{name.lower()}op"}
    return next(iter(whole.values())) if len(whole) == 1 else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")

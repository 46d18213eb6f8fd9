"""What the sources of an operator's host code need of their project: roots of headers, and functions of other sources.

A build of the whole project puts its root where headers are looked for (``"index/gather/op_host/gather_tiling.h"``)
and links all its sources together. Of those a tiling function needs few: helpers beside the headers it includes
(``common/inc/op_host/tiling_util.h``, ``common/src/op_host/tiling_util.cpp``), which are found by the functions that
are missing, and the tilings of chips that are not the call's, which it names and never calls. Such a function says so
if it is called.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from npu_sim.ascendc.user_headers import INCLUDES
from npu_sim.compilers import CompilationError, Compiler

_DEEPEST = 8
"""Folders above a source, of which one may be its project's."""
_MISSING = re.compile(r"undefined (?:reference to|symbol:) [`'\"]?(\w+)")
_LENGTH = re.compile(r"_Z(?:T[VI])?(N[KVRO]*)?(\d+)")
"""In front of a name as the linker has it; N: namespaces or classes come first."""
_TABLES, _ENTRIES = ("_ZTV", "_ZTI"), 64
"""Of the virtual functions of a class, and of its type; more functions than any class of a tiling has."""
_SUFFIXES = (".cpp", ".cc")
_INCLUDES, _SOURCES = ("inc", "include"), "src"


def roots_of_headers(texts: Mapping[Path, str], found: Iterable[str]) -> list[Path]:
    """Return the folders above sources from where headers are named that are found nowhere else.

    Parameters
    ----------
    texts : mapping of Path to str
        Sources and headers.
    found : iterable of str
        Names of headers that others have.
    """
    known = set(found)
    roots = dict[Path, None]()
    for path, text in texts.items():
        for name in INCLUDES.findall(text):
            if "/" not in name or name.startswith(".") or name in known or (path.parent / name).is_file():
                continue
            folder = next((one for one in list(path.parents)[:_DEEPEST] if (one / name).is_file()), None)
            if folder is not None:
                roots[folder] = None
    return list(roots)


def link(
    compiler: Compiler,
    options: list[str],
    prefix: list[str],
    sources: list[str],
    driver: Path,
    headers: Iterable[Path],
    made: Path,
) -> None:
    """Compile ``sources`` into the program ``made``, with what they call of the project's other sources.

    Parameters
    ----------
    compiler : Compiler
    options : list of str
    prefix : list of str
        More of them, which make compilations faster where the source allows it.
    sources : list of str
        Paths of the user's.
    driver : Path
        What calls them, compiled.
    headers : iterable of Path
        Of the project, whose sources may be missing.
    made : Path

    Raises
    ------
    CompilationError
        The compiler refuses them, or a function that is missing has no name that can be given to one.
    """
    names = ", ".join(Path(path).name for path in sources)
    with tempfile.TemporaryDirectory(prefix="npu-sim-") as folder:
        compiled = dict[str, str]()

        def run(given: Iterable[str], *more: str) -> None:
            for source in given:
                if source not in compiled:
                    place = f"{folder}/{len(compiled)}.o"
                    command = [*options, "-c", source, "-o", place]
                    try:
                        compiler.run([*prefix, *command], names)
                    except CompilationError:
                        if not prefix:
                            raise
                        compiler.run(command, names)
                    compiled[source] = place
            compiler.run([*options, "-o", str(made), *compiled.values(), str(driver), *more], names)

        _link(run, sources, headers, made.parent)


def _link(run: Callable[..., None], sources: list[str], headers: Iterable[Path], folder: Path) -> None:
    try:
        run(sources)
        return
    except CompilationError as error:
        if not _MISSING.search(str(error)):
            raise
        refused = error
    given = list(sources)
    while True:
        try:
            # not every linker knows that; what the first attempt said stands then
            run(given, "-Wl,--no-demangle")
            return
        except CompilationError as error:
            missing = sorted(set(_MISSING.findall(str(error))))
            functions = [name for name in missing if name.startswith("_Z") and not name.startswith("_ZGV")]
            if not missing or functions != missing:
                raise refused from None
            more = [path for path in _sources_of(headers, functions) if path not in given]
            if not more:
                more = [str(_stand_ins(folder, functions))]
                if more[0] in given:
                    raise refused from None
            given += more


def _sources_of(headers: Iterable[Path], functions: Iterable[str]) -> list[str]:
    """Return the sources beside ``headers`` that have the functions, which are given by the linker's names."""
    asked = [_last_name(name) for name in functions]
    sources = list[str]()
    for header in headers:
        for path in _beside(header):
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
                if any(re.search(rf"\b{name}\s*\(", text) for name in asked):
                    sources.append(str(path))
    return list(dict.fromkeys(sources))


def _beside(header: Path) -> Iterable[Path]:
    yield from (header.with_suffix(suffix) for suffix in _SUFFIXES)
    for at, part in enumerate(header.parts):
        if part in _INCLUDES:
            source = Path(*header.parts[:at], _SOURCES, *header.parts[at + 1 :])
            yield from (source.with_suffix(suffix) for suffix in _SUFFIXES)


def _last_name(linked: str) -> str:
    """Return the function's own name of a name as the linker has it: the last of those that stand with their length."""
    last, found = linked, _LENGTH.match(linked)
    while found is not None:
        end = found.end() + int(found[2])
        last = linked[found.end() : end]
        found = _LENGTH.match("_ZN" + linked[end:]) if found[1] else None
        linked = "_ZN" + linked[end:]
    return last


def _stand_ins(folder: Path, functions: Iterable[str]) -> Path:
    """Write functions that end the program with their name: what no source has, and a call of this chip needs not."""
    path = folder / "stand_ins.cpp"
    lines = ["#include <cstdio>", "#include <cstdlib>", 'extern "C" {']
    for name in functions:
        said = f"{_last_name(name)} must be in a source that is given: it is called, and none has it ({name})"
        function = f"of_{name}" if name.startswith(_TABLES) else name
        lines.append(f'void {function}() {{ fputs("{said}\\n", stderr); exit(3); }}')
        if function != name:
            entries = ", ".join([f"(void*){function}"] * _ENTRIES)
            lines.append(f"extern void* {name}[]; void* {name}[] = {{{entries}}};")
    path.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    return path

"""The user's own headers: which a source includes, where they are, and as what they are compiled.

A library of operators is laid out in two ways. Among its sources each operator has a directory ``op_kernel`` of its
own; where it is installed the contents of all of them lie side by side, and that is where an operator's kernel includes
another's from: ``"../other/other_base.h"`` is ``other/op_kernel/other_base.h`` among the sources. What they share,
``"../inc/..."``, is ``common/inc/op_kernel`` there. A library may also be installed into one directory, where
``"other_base.h"`` is the same header: it is looked for where it lies in just one operator of the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.element_values import with_values_of_elements
from npu_sim.ascendc.member_specialisations import without_default_constructors, without_member_specialisations
from npu_sim.ascendc.operator_types import with_numbers
from npu_sim.ascendc.source import Source, without_attributes, without_text
from npu_sim.ascendc.tiling_structs import hosts_of, project_folder
from npu_sim.ascendc.ub_pointers import with_elements_of_ub
from npu_sim.errors import InputFileError

INCLUDES = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
_OF_ANOTHER = re.compile(r"((?:\.\./)+)(\w+)/(.+)")
_KERNELS = "op_kernel"
_OURS = frozenset(path.name for path in (Path(__file__).parent / "include").glob("*.h"))
_DEEPEST = 4
"""Directories below an operator's own, in which headers say that many ``../`` more."""


def include_directories(source: Source, include: Sequence[str | Path]) -> list[Path]:
    """Return where the headers of the user are looked for: beside the source, and in what is named.

    Raises
    ------
    InputFileError
        What is named is no directory.
    """
    directories = [source.path.parent, *(Path(path).resolve() for path in include)]
    for path in directories:
        if not path.is_dir():
            raise InputFileError(f"include must name directories, not {path}")
    return [*directories, *_folders_of_others(source, directories)]


def _folders_of_others(source: Source, directories: Sequence[Path]) -> list[Path]:
    """Return the ``op_kernel`` of other operators in which headers lie that a source includes by their names alone."""
    own = source.path.parent
    if own.name != _KERNELS:
        return []
    folders = dict[Path, None]()
    texts = [source.text]
    while texts:
        for name in _included_by(texts.pop()):
            if "/" in name or name in _OURS or any((path / name).is_file() for path in (*directories, *folders)):
                continue
            found = sorted(own.parent.parent.glob(f"*/{_KERNELS}/{name}"))
            if len(found) == 1:
                folders[found[0].parent] = None
                texts.append(found[0].read_text(encoding="utf-8", errors="surrogateescape"))
    return list(folders)


def included(source: Source, directories: Sequence[Path]) -> dict[Path, str]:
    """Return the text of every file of the user that the source includes, through others too, in the order of paths."""
    seen: dict[Path, str] = {}

    def visit(text: str, own: Path) -> None:
        for name in _included_by(text):
            path = _found(name, own, directories)
            if path is not None and path not in seen:
                seen[path] = path.read_text(encoding="utf-8", errors="surrogateescape")
                visit(seen[path], path.parent)

    visit(source.text, source.path.parent)
    return dict(sorted(seen.items()))


@lru_cache(maxsize=256)
def _included_by(text: str) -> tuple[str, ...]:
    """Return what a text includes, but for other chips and for tests of the vendor."""
    living = without_dead_branches(without_text(text), None)
    return tuple(found[1] for found in INCLUDES.finditer(text) if "#" in living[found.start() : found.end()])


def _found(name: str, own: Path, directories: Sequence[Path]) -> Path | None:
    for directory in (own, *directories):
        path = (directory / name).resolve()
        if path.is_file():
            return path
    folder = _folder_of(name, own)
    return None if folder is None else (folder / _OF_ANOTHER.fullmatch(name)[3]).resolve()  # type: ignore[index]


def _folder_of(name: str, own: Path) -> Path | None:
    """Return the directory among the sources of the operator that a header in ``own`` includes another's of."""
    asked = _OF_ANOTHER.fullmatch(name)
    operator = next((path.parent for path in (own, *own.parents) if path.name == _KERNELS), None)
    if asked is None or operator is None:
        return None
    other, rest = asked[2], asked[3]
    kinds = operator.parent
    places = [kinds / other / _KERNELS, *sorted(kinds.parent.glob(f"*/{other}/{_KERNELS}"))]
    places += [path / "common" / other / _KERNELS for path in (kinds, *list(kinds.parents)[:2])]
    return next((place for place in places if (place / rest).is_file()), None)


def folders_of_others(headers: Mapping[Path, str], source: Source) -> dict[str, Path]:
    """Return the operators that a source includes headers of as if they were installed, and where their sources are.

    Parameters
    ----------
    headers : mapping of Path to str
        As `included` returns them.
    source : Source
    """
    folders = dict[str, Path]()
    for own, text in [(source.path, source.text), *headers.items()]:
        for name in INCLUDES.findall(text):
            asked = _OF_ANOTHER.fullmatch(name)
            if asked is not None and not (own.parent / name).is_file():
                folder = _folder_of(name, own.parent)
                if folder is not None:
                    folders.setdefault(asked[2], folder)
    return folders


def installed(folders: Mapping[str, Path], place: Path, copies: Path) -> list[Path]:
    """Lay out operators side by side in ``place``; return where an operator's own headers would be.

    Parameters
    ----------
    folders : mapping of str to Path
        As `folders_of_others` returns them.
    place : Path
        A directory that is made if it is needed.
    copies : Path
        Below which there are copies of the headers: they say where the user's own are.
    """
    if not folders:
        return []
    places = [place / "own"]
    for _ in range(_DEEPEST):
        places.append(places[-1] / "deeper")
    places[-1].mkdir(parents=True)
    for name, folder in folders.items():
        (place / name).symlink_to(copies / folder.relative_to("/"))
    return places


def hosts_beside(source: Source, headers: Iterable[Path]) -> list[Path]:
    """Return the host's directories of other operators that ``headers`` are of: their tilings may be the source's."""
    own = project_folder(source.path)
    folders = dict.fromkeys(folder for path in headers if (folder := project_folder(path)) not in (None, own))
    return [hosts_of(folder) for folder in folders if folder is not None]


def plain(text: str) -> str:
    """Return a text of the user as any compiler takes it, and with this emulator's headers, lines unmoved."""
    text = without_member_specialisations(without_attributes(with_numbers(text)))
    return with_elements_of_ub(with_values_of_elements(without_default_constructors(text)))


def are_plain(headers: Mapping[Path, str]) -> bool:
    """Return whether any compiler takes the user's headers as they are."""
    return all(plain(text) == text for text in headers.values())


def copy(headers: Mapping[Path, str], folder: Path) -> None:
    """Copy the user's headers as any compiler takes them: all, as a header finds those beside it first."""
    for path, text in headers.items():
        made = folder / path.relative_to("/")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(f'#line 1 "{path}"\n{plain(text)}', encoding="utf-8", errors="surrogateescape")

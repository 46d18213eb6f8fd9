"""What the sources of a package mark as assumed, in their words: an assumption has one home, the code that makes it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_MARK = re.compile(r"\bASSUMED\b")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"[.] ")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedAssumption:
    """A passage of a source that says that something about the hardware or the library is assumed.

    Attributes
    ----------
    module : str
        Where it stands.
    line : int
        First line of the text or comment that it stands in.
    text : str
        From the beginning of its sentence to the end of its paragraph.
    """

    module: str
    line: int
    text: str


def marked_assumptions(packages: Sequence[str]) -> tuple[MarkedAssumption, ...]:
    """Return what the modules of ``packages`` mark with the word ASSUMED, by module and line."""
    found = []
    for package in packages:
        spec = find_spec(package)
        for place in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(place).rglob("*.py")):
                module = ".".join((package, *path.relative_to(place).with_suffix("").parts)).removesuffix(".__init__")
                if module != __name__:
                    source = path.read_text(encoding="utf-8")
                    found += [MarkedAssumption(module=module, line=line, text=text) for line, text in _passages(source)]
    return tuple(found)


def _passages(source: str) -> list[tuple[int, str]]:
    """Return (line, text) of every marked passage in the texts and comments of a module."""
    if not _MARK.search(source):
        return []
    places = [*_texts(source), *_comments(source)]
    return sorted((line, passage) for line, text in places for passage in _marked_parts(text))


def _marked_parts(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPHS.split(text):
        words = " ".join(paragraph.split()).replace("``", "").replace("`", "")
        mark = _MARK.search(words)
        if mark:
            ends = [end.end() for end in _SENTENCE_END.finditer(words, 0, mark.start())]
            yield words[ends[-1] if ends else 0 :]


def _texts(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments, those of neighbouring lines as one."""
    first, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1:
            if lines:
                yield first, "\n".join(lines)
            first, lines = token.start[0], []
        last = token.start[0]
        lines.append(token.string.lstrip("# "))
    if lines:
        yield first, "\n".join(lines)

"""Which code of a user's files a kernel reaches: what it names, and what that names, of functions, classes and macros.

A name stands for all that is defined by it outside of classes, so more is reached than is called, never less.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=([^;]*);|\btypedef\b([^;{}]*?)(\w+)\s*;")
_CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:\w+\s*\([^()]*\)\s*)?(\w+)")
_CALLED = re.compile(r"(\w+)\s*\(")
_VALUE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|\Z)")
_MEMBER_OF = re.compile(r"(\w+)\s*(?:<[^<>]*>\s*)?::\s*~?\w+\s*\(")
_OPEN = re.compile(r"\bnamespace\b[^;{}()=]*\Z|\bextern\s*(?:\"[^\"]*\")?\s*\Z")
"""Heads of blocks whose content stands outside of functions and classes; ``extern "C"`` may have lost its text."""
_STOP = re.compile(r"[;{}]")


def reached(name: str, codes: Iterable[str]) -> str:
    """Return the text of all that ``name`` reaches in ``codes``, which have no comments and strings.

    Parameters
    ----------
    name : str
        Of a kernel, perhaps with template arguments, which are reached too.
    codes : iterable of str
        The source and its headers.
    """
    defined = defaultdict[str, list[str]](list)
    for code in codes:
        for names, text in _definitions(code):
            for one in names:
                defined[one].append(text)
    waiting, seen, found = _NAME.findall(name), set[str](), dict[str, None]()
    while waiting:
        one = waiting.pop()
        if one in seen or one not in defined:
            continue
        seen.add(one)
        for text in defined[one]:
            if text not in found:
                found[text] = None
                waiting += _NAME.findall(text)
    return "\n".join(found)


def _definitions(code: str) -> Iterable[tuple[set[str], str]]:
    """Yield the names and the text of what ``code`` defines outside of functions and classes."""
    for directive in _DIRECTIVE.findall(code):
        if (macro := _MACRO.match(directive)) is not None:
            yield {macro[1]}, macro[2]
    code = _DIRECTIVE.sub("", code)
    for alias in _ALIAS.finditer(code):
        yield ({alias[1]}, alias[2]) if alias[1] else ({alias[4]}, alias[3])
    depth, begin, at = 0, 0, 0
    head = ""
    for stop in _STOP.finditer(code):
        if stop[0] == "{":
            if depth or not _OPEN.search(code[at : stop.start()].rstrip()):
                if not depth:
                    head, begin = code[at : stop.start()], at
                depth += 1
        elif stop[0] == "}" and depth:
            depth -= 1
            if not depth:
                yield _names(head), code[begin : stop.end()]
        at = stop.end()


def _names(head: str) -> set[str]:
    """Return what a definition with that head is found by."""
    # "class" also stands before parameters of templates
    classes = _CLASS.findall(head) if "(" not in head.rpartition(">")[2] else []
    if classes:
        return {classes[-1]}
    return {name for form in (_CALLED, _MEMBER_OF, _VALUE) for name in form.findall(head)}

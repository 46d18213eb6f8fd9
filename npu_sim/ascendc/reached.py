"""Which code of a user's files a kernel reaches: what it names, and what that names, of functions, classes and macros.

A name stands for all that is defined by it outside of classes, so more is reached than is called, never less.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b")
_MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=([^;]*);|\btypedef\b([^;{}]*?)(\w+)\s*;")
_OF_KERNELS = re.compile(r"\b__(?:aicore|global)__\b")
_CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:\w+\s*\([^()]*\)\s*)?(\w+)")
_CALLED = re.compile(r"(\w+)\s*\(")
_VALUE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|\Z)")
_MEMBER_OF = re.compile(r"(\w+)\s*(?:<[^<>]*>\s*)?::\s*~?\w+\s*\(")
_OPEN = re.compile(r"\bnamespace\b[^;{}()=]*\Z|\bextern\s*(?:\"[^\"]*\")?\s*\Z")
"""Heads of blocks whose content stands outside of functions and classes; ``extern "C"`` may have lost its text."""
_STOP = re.compile(r"[;{}]")


def reached(name: str, codes: Iterable[str], apart: Collection[str] = ()) -> str:
    """Return the text of all that ``name`` reaches in ``codes``, which have no comments and strings.

    Parameters
    ----------
    name : str
        Of a kernel, perhaps with template arguments, which are reached too.
    codes : iterable of str
        The source and its headers.
    apart : collection of str
        Names that are not followed.
    """
    defined = defaultdict[str, list[str]](list)
    for code in codes:
        for definition in definitions(code):
            for one in definition.names:
                defined[one].append(definition.text)
    waiting, seen, found = _NAME.findall(name), set(apart), dict[str, None]()
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


def calls(kernel: str, codes: Iterable[str]) -> str:
    """Return the statements of host code that launch ``kernel``, and that name what these are in, from the name on."""
    places = [place for code in codes for place in definitions(code) if not _OF_KERNELS.search(place.text)]
    named, found, begun = {kernel}, list[str](), "<<<"
    while named:
        call = re.compile(rf"\b(?:{'|'.join(sorted(named))})\b([^;{{}}]*)")
        new = [(place, call.findall(place.text)) for place in places if begun in place.text]
        new = [(place, statements) for place, statements in new if statements]
        places = [place for place in places if all(place is not one for one, _ in new)]
        found += [statement for _, statements in new for statement in statements]
        named, begun = {one for place, _ in new for one in place.names}, ""
    return "\n".join(found)


class Definition(NamedTuple):
    """What is defined outside of functions and classes.

    Attributes
    ----------
    names : frozenset of str
        What it is found by.
    text : str
        Of macros what they stand for; of all else with what of the preprocessor's conditions stands in it.
    begin, end : int
        Where it is.
    """

    names: frozenset[str]
    text: str
    begin: int
    end: int


@lru_cache(maxsize=256)
def definitions(code: str) -> tuple[Definition, ...]:
    """Return what ``code`` defines outside of functions and classes; it has no comments and strings."""
    found = list[Definition]()
    for directive in _DIRECTIVE.finditer(code):
        if (macro := _MACRO.match(directive[0])) is not None:
            found.append(Definition(frozenset((macro[1],)), macro[2], *directive.span()))
    bare = _DIRECTIVE.sub(_blanks, code)
    kept = _DIRECTIVE.sub(lambda one: one[0] if _CONDITION.match(one[0]) else _blanks(one), code)
    for alias in _ALIAS.finditer(bare):
        name, text = (alias[1], alias[2]) if alias[1] else (alias[4], alias[3])
        found.append(Definition(frozenset((name,)), text, *alias.span()))
    depth, begin, at = 0, 0, 0
    head = ""
    for stop in _STOP.finditer(bare):
        if stop[0] == "{":
            if depth or not _OPEN.search(bare[at : stop.start()].rstrip()):
                if not depth:
                    head, begin = bare[at : stop.start()], at
                depth += 1
        elif stop[0] == "}" and depth:
            depth -= 1
            if not depth:
                found.append(Definition(frozenset(_names(head)), kept[begin : stop.end()], begin, stop.end()))
        at = stop.end()
    return tuple(found)


def _blanks(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _names(head: str) -> set[str]:
    """Return what a definition with that head is found by."""
    # "class" also stands before parameters of templates
    classes = _CLASS.findall(head) if "(" not in head.rpartition(">")[2] else []
    if classes:
        return {classes[-1]}
    return {name for form in (_CALLED, _MEMBER_OF, _VALUE) for name in form.findall(head)}

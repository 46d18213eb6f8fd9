"""Elements behind pointers into UB, ``p[i]`` and ``*p``, as accesses of the scalar unit.

``__ubuf__ T* p`` is a plain pointer here, whose value is an address in UB: no memory of this machine is there. What a
source reads and writes through a name that it declares so becomes an object that does what GetValue and SetValue do
(``include/npusim/ub_pointers.h``); the pointer itself stays one, for arithmetic and calls. What is reached otherwise,
``p->member`` or through the result of a call, ends the kernel where it is touched, with a word about that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from npu_sim.ascendc.source import without_text

_MARK = "__ubuf__"
_TYPE = r"(?:const\s+|volatile\s+)*[\w:]+(?:\s*<[^<>;{}]*>)?\s*(?:const\s*)?"
_DECLARED = re.compile(
    rf"\b__ubuf__\s+{_TYPE}\*\s*(?:__restrict(?:__)?\s+|const\s+)?([A-Za-z_]\w*)(?=\s*(?:[=;,)]|\[))"
)
_DEDUCED = re.compile(
    r"\bauto\s*\*?\s*([A-Za-z_]\w*)\s*=\s*(?:(?:reinterpret|static)_cast\s*<|\()\s*(?:const\s+)?__ubuf__\b"
)
_FROM = r"\bauto\s*\*?\s*([A-Za-z_]\w*)\s*=\s*(?:{})\s*[-+;]"
"""A pointer that is made from one of these names."""
_OWNER = r"(?:[A-Za-z_]\w*\s*(?:\.|->)\s*)*"
_WORD_BEFORE = re.compile(r"([A-Za-z_]\w*)\s*\Z")
_BEHIND_VALUE = re.compile(r"[\w)\]*>.:]\s*\Z")
_NO_EXPRESSION = re.compile(r"(?:\.|->|::|(?:^|[;{}(,])\s*(?:\w+\s+)*[\w:]+\s*<[^;{}()&|=]*>)\s*\Z")
"""What stands before a member's name, or is a type with arguments."""
_VALUE_OF = re.compile(r"(?<![\w:])auto\s+\w+\s*=\s*\Z")
_STATEMENTS = frozenset(("return", "else", "case", "and", "or", "not", "do", "co_return"))
"""Words that may stand before an expression; others make it a declaration."""
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_NEAR = 200
"""Characters before a place that are looked at."""
_CLOSING = {"[": "]", "(": ")"}


def with_elements_of_ub(text: str) -> str:
    """Return a text of the user in which such accesses are those of the scalar unit, lines unmoved."""
    if _MARK not in text:
        return text
    code = _DIRECTIVE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), without_text(text))
    declared = list(_DECLARED.finditer(code))
    names = {one[1] for one in declared if not code.startswith("[", one.end(1))} | set(_DEDUCED.findall(code))
    if not names:
        return text
    while more := set(re.findall(_FROM.format("|".join(sorted(names))), code)) - names:
        names |= more
    own = {one.start(1) for one in declared}
    for begin, end, made in sorted(_accesses(code, names, own), reverse=True):
        text = f"{text[:begin]}{made}{text[end:]}"
    return text


def _accesses(code: str, names: set[str], declared: set[int]) -> Iterator[tuple[int, int, str]]:
    """Yield what is put for what is there: where that begins and ends, and the text."""
    named = "|".join(sorted(names))
    for found in re.finditer(rf"({_OWNER})\b(?P<name>{named})\s*\[", code):
        if found.start("name") in declared or not _begins_expression(code, found.start()):
            continue
        place, at = code[found.start() : found.end() - 1], found.end() - 1
        made, end = f"::npusim::at_ub({place.rstrip()})", _closed(code, at)
        if end and _VALUE_OF.search(code, max(found.start() - _NEAR, 0), found.start()):
            yield found.start(), at, f"::npusim::value_of({made}"
            yield end, end, ")"
        else:
            yield found.start(), at, made
    whole = rf"({_OWNER}(?:{named}))\b(?!\s*(?:\[|\(|\.|->|\+\+|--|::))"
    for found in re.finditer(rf"\*\s*(?:{whole}|\(\s*(?=(?:{named})\b))", code):
        if not any(found.start() <= at < found.end() for at in declared) and _is_unary(code, found.start()):
            yield found.start(), found.end(), f"*::npusim::at_ub({found[1]})" if found[1] else "*::npusim::at_ub("


def _is_unary(code: str, at: int) -> bool:
    """Return whether the asterisk at a place is neither between two factors nor behind a type."""
    before = code[max(at - _NEAR, 0) : at]
    word = _WORD_BEFORE.search(before)
    return word[1] in _STATEMENTS if word else not _BEHIND_VALUE.search(before)


def _begins_expression(code: str, at: int) -> bool:
    """Return whether what begins at a place is neither a declaration nor part of a longer name."""
    before = code[max(at - _NEAR, 0) : at]
    word = _WORD_BEFORE.search(before)
    return word[1] in _STATEMENTS if word else not _NO_EXPRESSION.search(before)


def _closed(code: str, at: int) -> int:
    """Return behind which place the bracket at ``at`` closes; 0: nowhere."""
    opened = list[str]()
    for place in range(at, len(code)):
        if code[place] in _CLOSING:
            opened.append(_CLOSING[code[place]])
        elif opened and code[place] == opened[-1]:
            opened.pop()
            if not opened:
                return place + 1
    return 0

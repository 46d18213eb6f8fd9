"""What classes of the user declare, made such as every compiler takes: mostly full specialisations of members.

The vendor's compiler, as clang, takes ``template <> void operator()<AIC>(...)`` among the members of a class; g++ does
not. Each becomes a template of its own that is there for its arguments only, and the one it specialises is there for
others: ``template <int T = kind, std::enable_if_t<(T == (AIC)), int> = 0> void operator()(...)``. Classes get one more
parameter, and their specialisations are partial ones then: ``template <class Same> struct Layout<void, Same>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_sim.ascendc.source import without_text

_SPECIALISED = re.compile(r"\btemplate\s*<\s*>")
_NAME = re.compile(r"(operator\s*\(\s*\)|\b[A-Za-z_]\w*)\s*<")
_TEMPLATE = re.compile(r"\btemplate\s*<(?!\s*>)")
_CLASS_HEAD = re.compile(r"\b(?:class|struct)\b[^;{}()]*$")
_DEFAULTED = re.compile(r"(?<!explicit )\b(\w+)\s*\(\s*\)\s*=\s*default\s*;")
_CLASS = re.compile(r"\s*(?:struct|class)\b")
_SAME = "npusim_Same"
_PARAMETER = re.compile(r"\s*(typename|class|[\w:]+(?:\s+[\w:]+)*)\s+(\w+)\s*(?:=.*)?", re.DOTALL)
"""Kind and name of a template parameter, with or without a default."""


@dataclass(frozen=True, slots=True)
class _Specialisation:
    """Where ``template <>`` stands, and the name and the arguments behind it."""

    is_class: bool
    name: str
    start: int
    end: int
    arguments: list[str]
    arguments_start: int
    arguments_end: int


def without_member_specialisations(text: str) -> str:
    """Return a text of the user without full specialisations inside classes, lines unmoved; others stay as they are."""
    if not _SPECIALISED.search(text):
        return text
    code = without_text(text)
    edits: list[tuple[int, int, str]] = []
    for start, end in _classes_of_specialisations(code):
        edits += _edits_of_class(code, start, end)
    for begin, end, words in sorted(edits, reverse=True):
        lines = "\n" * text.count("\n", begin, end)
        text = text[:begin] + words + lines + text[end:]
    return text


def without_default_constructors(text: str) -> str:
    """Return a text of the user without ``X() = default;`` of structs without other constructors, lines unmoved.

    As C++20, which some constants need, g++ takes no list of members for such a struct; without it, it does.
    """
    code = without_text(text)
    edits = []
    for one in _DEFAULTED.finditer(code):
        start = _opening(code, one.start())
        head = _CLASS_HEAD.search(code, max(start - 2000, 0), max(start, 0))
        if head is None or not re.search(rf"\b{one[1]}\b", head[0]):
            continue
        others = re.findall(rf"(?<![~\w.:]){one[1]}\s*\(", code[start : _closing(code, start, "{", "}")])
        if len(others) == 1:
            edits.append((one.start(), one.end(), one[1]))
    for begin, end, name in reversed(edits):
        lines = "\n" * text.count("\n", begin, end)
        text = f"{text[:begin]}void npusim_no_constructor_of_{name}() {{}}{lines}{text[end:]}"
    return text


def _classes_of_specialisations(code: str) -> list[tuple[int, int]]:
    """Return the bodies of the classes that have a specialisation among their own members."""
    found: dict[int, int] = {}
    for one in _SPECIALISED.finditer(code):
        start = _opening(code, one.start())
        if start >= 0 and _CLASS_HEAD.search(code, max(start - 2000, 0), start):
            found[start] = _closing(code, start, "{", "}")
    return list(found.items())


def _opening(code: str, at: int) -> int:
    """Return where the block begins that a place is in, -1 if it is in none."""
    depth = 0
    for i in range(at - 1, -1, -1):
        if code[i] == "}":
            depth += 1
        elif code[i] == "{":
            if depth == 0:
                return i
            depth -= 1
    return -1


def _closing(code: str, at: int, opens: str, closes: str) -> int:
    """Return the place behind the bracket that closes the one at ``at``; the end if none does."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == opens) - (code[i] == closes)
        if depth == 0:
            return i + 1
    return len(code)


def _edits_of_class(code: str, start: int, end: int) -> list[tuple[int, int, str]]:
    specialised = list(_specialisations(code, start, end))
    edits = []
    for name, is_class in dict.fromkeys((one.name, one.is_class) for one in specialised):
        own = [one for one in specialised if (one.name, one.is_class) == (name, is_class)]
        primary = _primary(code, start, end, name, is_class=is_class)
        if primary is not None:
            edits += (_edits_of_classes if is_class else _edits_of_functions)(code, *primary, own)
    return edits


def _edits_of_functions(code: str, begin: int, behind: int, own: list[_Specialisation]) -> list[tuple[int, int, str]]:
    parameters = _split(code[begin:behind])
    conditions = [_condition(parameters, one.arguments) for one in own]
    if any(condition is None for condition in conditions):
        return []
    others = " || ".join(f"({condition})" for condition in conditions)
    edits = [(behind, behind, f", std::enable_if_t<!({others}), int> = 0")]
    head = " ".join(code[begin:behind].split())
    for one, condition in zip(own, conditions, strict=True):
        edits.append((one.start, one.end, f"template <{head}, std::enable_if_t<({condition}), int> = 0>"))
        edits.append((one.arguments_start, one.arguments_end, ""))
    return edits


def _edits_of_classes(code: str, begin: int, behind: int, own: list[_Specialisation]) -> list[tuple[int, int, str]]:
    if "..." in code[begin:behind]:
        return []
    edits = [(behind, behind, f", class {_SAME} = void")]
    for one in own:
        edits.append((one.start, one.end, f"template <class {_SAME}>"))
        edits.append((one.arguments_end - 1, one.arguments_end - 1, f", {_SAME}"))
    return edits


def _specialisations(code: str, start: int, end: int) -> Iterator[_Specialisation]:
    for found in _SPECIALISED.finditer(code, start, end):
        if _opening(code, found.start()) != start:
            continue
        named = _NAME.search(code, found.end(), end)
        if named is None:
            continue
        opens = named.end() - 1
        closes = _closing(code, opens, "<", ">")
        is_class = _CLASS.match(code, found.end()) is not None
        if code[closes:].lstrip()[:1] not in (("{", ":") if is_class else ("(",)):
            continue
        name, arguments = "".join(named[1].split()), _split(code[opens + 1 : closes - 1])
        yield _Specialisation(is_class, name, found.start(), found.end(), arguments, opens, closes)


def _primary(code: str, start: int, end: int, name: str, *, is_class: bool) -> tuple[int, int] | None:
    """Return where the parameters of the template are that a class declares by a name."""
    spelled = re.sub(r"\\?\(\\?\)", r"\\s*\\(\\s*\\)", re.escape(name))
    called = re.compile(rf"\b(?:struct|class)\s+{spelled}\s*(?::|\Z)" if is_class else rf"{spelled}\s*\(")
    for found in _TEMPLATE.finditer(code, start, end):
        if _opening(code, found.start()) != start:
            continue
        closes = _closing(code, found.end() - 1, "<", ">")
        declared = re.compile(r"[^;{}]*").match(code, closes, end)
        if declared and called.search(code, closes, declared.end()):
            return found.end(), closes - 1
    return None


def _split(words: str) -> list[str]:
    """Return what commas part, but for those in brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(words):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            parts.append(words[begin:i])
            begin = i + 1
    return [*parts, words[begin:]]


def _condition(parameters: list[str], arguments: list[str]) -> str | None:
    """Return what holds of template parameters when they are these arguments; None: not to be told."""
    if len(parameters) != len(arguments):
        return None
    words = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        told = _PARAMETER.fullmatch(parameter)
        if told is None:
            return None
        is_type = told[1] in ("typename", "class")
        words.append(
            f"std::is_same_v<{told[2]}, {argument.strip()}>" if is_type else f"{told[2]} == ({argument.strip()})"
        )
    return " && ".join(words)

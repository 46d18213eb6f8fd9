"""Elements of tensors, ``tensor(i)``, as values where a compiler would not make them one.

On a device ``tensor(i)`` is a reference to a number. Here it is an object that reads and writes an element, and becomes
a number where one is asked for. Behind ``auto`` that is too late: it would be read each time it is used. Beside
a whole number it is of another type: ``found ? tensor(i) : 0`` would be an int.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from npu_sim.ascendc.source import without_text

_ELEMENT = r"(?:this\s*->\s*)?[A-Za-z_]\w*\s*(?:\[[^][;{}]*\]\s*)?\("
_WHOLE = r"[-+]?\s*(?:0[xX][\da-fA-F]+|\d+)[uUlL]*(?![\w.'])"
_BEFORE = re.compile(rf"(?:(?P<auto>(?<![\w:])auto\s+\w+\s*=)|(?P<first>\?)|\?\s*{_WHOLE}\s*:)\s*(?P<call>{_ELEMENT})")
_ENDS = re.compile(r"\s*;")
_OTHER = re.compile(rf"\s*:\s*{_WHOLE}")
_BRACKET = re.compile(r"[()]")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_TENSOR = re.compile(r"\b(?:Local|Global)Tensor\b")


def with_values_of_elements(text: str) -> str:
    """Return a text of the user in which what may be an element is a value in those places, lines unmoved.

    What is no element stays what it is (``npusim::value_of``).
    """
    if not _TENSOR.search(text):
        return text
    code = _DIRECTIVE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), without_text(text))
    for begin, end in reversed(list(_calls(code))):
        text = f"{text[:begin]}::npusim::value_of({text[begin:end]}){text[end:]}"
    return text


def _calls(code: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (found := _BEFORE.search(code, at)) is not None:
        at, end = found.start("call"), _closing(code, found.end())
        behind = _ENDS if found["auto"] else _OTHER if found["first"] else None
        if end and (behind is None or behind.match(code, end)):
            yield at, end


def _closing(code: str, at: int) -> int:
    """Return where the bracket closes that ``at`` is behind, or 0."""
    depth = 1
    for bracket in _BRACKET.finditer(code, at):
        depth += 1 if bracket[0] == "(" else -1
        if not depth:
            return bracket.end()
    return 0

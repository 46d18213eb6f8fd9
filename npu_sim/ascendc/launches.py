"""Launch brackets as calls, in sources that hold host code and kernels.

``add<half><<<blocks, l2, stream>>>(x, y)`` is no C++. It becomes ``NPUSIM_KERNEL(add<half>).on(blocks, l2, stream)(x,
y)`` in the same line (``include/npusim/launch.h``). Which kernel that is, with which template arguments, and how the
arguments are converted, is then found out by the compiler as for any call, in macros and templates too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from npu_sim.ascendc.shared_names import kernel_meant
from npu_sim.ascendc.source import without_text
from npu_sim.errors import InputFileError

_SPACE = r"(?:\s|\\\n)"
_SPACE_BEFORE = re.compile(rf"{_SPACE}+\Z")
_NAME_BEFORE = re.compile(r"(?:\w|##)+\Z")
_JOINT_BEFORE = re.compile(rf"(?:::|->|\.){_SPACE}*(?:template{_SPACE}*)?\Z")
_ARGUMENTS = re.compile(rf"{_SPACE}*\(")
_TOLD = re.compile(r"[ \t]*#[ \t]*(?:error|warning|pragma|include)\b")
_OPENING = {")": "(", "]": "[", "}": "{"}
_CLOSING = {opening: closing for closing, opening in _OPENING.items()}
_NEAR = 2000
"""Characters before a place that are looked at for what ends there."""


def launches_as_calls(text: str, path: object, shared: Collection[str] = ()) -> str:
    """Return a source with a call for each launch, every line where it was.

    Parameters
    ----------
    text : str
    path : object
        Its name, for messages.
    shared : collection of str
        Kernels whose names other functions have too.

    Raises
    ------
    InputFileError
        No name stands before launch brackets, or nothing closes them.
    """
    code = without_text(text)
    edits: list[tuple[int, int, str]] = []
    for at in launches(code):
        first, last = _kernel_before(code, at), _end_of(code, at + 3)
        if first == at or last < 0:
            line = code.count("\n", 0, at) + 1
            raise InputFileError(f"{path}:{line}: launch must be kernel<<<blocks, l2, stream>>>(arguments)")
        kernel = code[first:at]
        meant = kernel_meant(kernel, shared)
        begun, named = ("NPUSIM_KERNEL(", "") if meant == kernel else ("NPUSIM_KERNEL_OF((", f"), {meant}")
        edits += [(first, first, begun), (at, at + 3, f"{named}).on("), (last, last + 3, ")")]
    pieces, done = list[str](), 0
    for first, last, new in sorted(edits):
        pieces += [text[done:first], new]
        done = last
    return "".join([*pieces, text[done:]])


def launches(code: str) -> Iterator[int]:
    """Yield where launch brackets open; ``code`` is a source without comments and strings."""
    for found in re.finditer("<<<", code):
        if not _TOLD.match(code, code.rfind("\n", 0, found.start()) + 1):
            yield found.start()


def _kernel_before(code: str, end: int) -> int:
    """Return where the expression begins that ends at ``end``.

    Such is a name with template arguments, several joined by ``::``, or what stands in parentheses.
    """
    first = end
    while True:
        at = _skip(_SPACE_BEFORE, code, first)
        if code[at - 1 : at] == ">" and code[at - 2 : at] != "->":
            at = _skip(_SPACE_BEFORE, code, _angle_before(code, at))
        while code[at - 1 : at] in (")", "]"):
            at = first = _bracket_before(code, at)
            at = _skip(_SPACE_BEFORE, code, at)
        name = _skip(_NAME_BEFORE, code, at)
        if code[name:at] in ("", "return"):
            return first
        first = name
        before = _skip(_SPACE_BEFORE, code, name)
        joint = _skip(_JOINT_BEFORE, code, before + (name - before))
        if joint == name:
            return first
        first = joint
        scope = _skip(_SPACE_BEFORE, code, joint)
        if code[scope - 1 : scope] not in (">", ")", "]") and not code[scope - 1 : scope].isidentifier():
            return first  # ::name


def _skip(pattern: re.Pattern[str], code: str, end: int) -> int:
    """Return where what the pattern finds at ``end`` begins, ``end`` if there is nothing."""
    begin = max(end - _NEAR, 0)
    found = pattern.search(code[begin:end])
    return begin + found.start() if found else end


def _bracket_before(code: str, end: int) -> int:
    """Return where the bracket opens that closes before ``end``; ``end`` if nowhere."""
    closing, depth = code[end - 1], 0
    for at in range(end - 1, -1, -1):
        depth += (code[at] == closing) - (code[at] == _OPENING[closing])
        if not depth:
            return at
    return end


def _angle_before(code: str, end: int) -> int:
    """Return where template arguments begin that end before ``end``; brackets in them count as a whole."""
    at, depth = end, 0
    while at > 0:
        at -= 1
        if code[at] in _OPENING:
            at = _bracket_before(code, at + 1)
        elif code[at] == ">" and code[at - 1] != "-":
            depth += 1
        elif code[at] == "<":
            depth -= 1
        elif code[at] in ";{":
            break
        if not depth:
            return at
    return end


def _end_of(code: str, begin: int) -> int:
    """Return where the ``>>>`` is that closes the launch brackets before ``begin``; -1: nowhere.

    Arguments follow it, and every ``<`` behind a name has its ``>``; where a comparison breaks that, the last counts.
    """
    opened, angles, last = list[str](), 0, -1
    for at in range(begin, len(code)):
        one = code[at]
        if opened or one in _CLOSING:
            if one in _CLOSING:
                opened.append(_CLOSING[one])
            elif one == opened[-1]:
                opened.pop()
        elif one in ";})":
            break
        elif one == "<" and code[at - 1].isidentifier():
            angles += 1
        elif one == ">" and code[at - 1] != "-":
            if code.startswith(">>>", at) and _ARGUMENTS.match(code, at + 3):
                last = at
                if not angles:
                    return at
            angles = max(angles - 1, 0)
    return last

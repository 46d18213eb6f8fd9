"""Branches of the preprocessor that no product compiles: what a source's text says is read without them.

Not a preprocessor: a condition that is not plainly false on every architecture is taken to be possible, and so is what
it leaves out.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

_ARCHITECTURES = tuple(
    {"__CCE__": 1, "__NPU_ARCH__": number, "__CCE_AICORE__": older}
    for number, older in ((1001, 100), (2002, 200), (2201, 220))
)
"""What the compiler defines for the products there are."""
_OF_TESTS = frozenset({"__CCE_KT_TEST__", "__CCE_UT_TEST__"})
"""What only the vendor's tests on the host define."""
_OF_OPERATORS = re.compile(r"(?:ORIG_)?(?:DTYPE|FORMAT)_\w+|TILING_KEY_VAR")
"""Types and formats of an operator's tensors, and its tiling key, which are known when it is called."""
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef)\b((?:[^\n\\]|\\.|\\\n)*)", re.M)
_NO_NEWLINE = re.compile(r"[^\n]")
_TOKEN = re.compile(r"\s*(?:(0[xX][\da-fA-F]+|\d+)[uUlL]*|(\w+)|(\|\||&&|[=!<>]=|[<>!()]))")
_LEVELS: tuple[dict[str, Callable[[int, int], object]], ...] = (
    {"||": lambda a, b: a or b},
    {"&&": lambda a, b: a and b},
    {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
)
"""Operators from the weakest to the strongest."""


class _UnknownError(Exception):
    """A condition has what cannot be told."""


def without_dead_branches(code: str, defines: Iterable[str] | None = ()) -> str:
    """Return ``code`` with blanks for branches that are compiled for no product, of the same length and lines.

    Parameters
    ----------
    code : str
        Without comments and strings.
    defines : iterable of str or None
        ``NAME`` or ``NAME=VALUE`` of the command line; None: that may have anything.
    """
    given = {name: value or "1" for name, _, value in (one.partition("=") for one in defines or ())}
    knows_all = defines is not None
    lives = [
        _live(code, given | {name: str(value) for name, value in machine.items()}, knows_all=knows_all)
        for machine in _ARCHITECTURES
    ]
    dead = ~np.any([np.frombuffer(live, np.bool_) for live in lives], axis=0)
    parts, done = [], 0
    for begin, end in np.flatnonzero(np.diff(dead, prepend=False, append=False)).reshape(-1, 2).tolist():
        parts += [code[done:begin], _NO_NEWLINE.sub(" ", code[begin:end])]
        done = end
    return "".join([*parts, code[done:]])


def _live(code: str, given: Mapping[str, str], *, knows_all: bool) -> bytearray:
    """Return for each character whether it may be compiled where the macros ``given`` are defined, or others too."""
    macros: dict[str, str | None] = dict(given)
    named = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, re.M))
    live, done = bytearray(len(code)), 0
    # of each #if: whether what is around it lives, whether this branch does, whether one before it surely did
    stack = [(True, True, False)]

    def value(name: str) -> str | None:
        """Return what a macro is, None where it is none. Headers may define the ones in capitals too."""
        if name in macros:
            return macros[name]
        is_given_later = not knows_all or name.startswith("_") or _OF_OPERATORS.fullmatch(name)
        if name not in _OF_TESTS and (is_given_later or name in named):
            raise _UnknownError
        return None

    for found in _DIRECTIVE.finditer(code):
        if all(own for _, own, _ in stack):
            live[done : found.start()] = b"\1" * (found.start() - done)
        done = found.start()
        word, rest = found[1], found[2].replace("\\\n", " ").strip()
        if word in ("if", "ifdef", "ifndef"):
            condition = {"if": rest, "ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}[word]
            possible, sure = _judged(condition, value)
            stack.append((all(own for _, own, _ in stack), possible, sure))
        elif word in ("elif", "else") and len(stack) > 1:
            around, _, taken = stack.pop()
            possible, sure = (True, True) if word == "else" else _judged(rest, value)
            stack.append((around, possible and not taken, taken or sure))
        elif word == "endif" and len(stack) > 1:
            stack.pop()
        elif word in ("define", "undef") and all(own for _, own, _ in stack):
            name, _, text = rest.partition(" ")
            if name not in given:
                macros[name] = text.strip() if word == "define" else None
    if all(own for _, own, _ in stack):
        live[done:] = b"\1" * (len(code) - done)
    return live


def _judged(condition: str, value: Callable[[str], str | None]) -> tuple[bool, bool]:
    """Return whether a condition may hold, and whether it does for sure."""
    try:
        holds = bool(_Condition(condition, value).value())
    except _UnknownError:
        return True, False
    return holds, holds


class _Condition:
    """A condition of ``#if``: numbers, names, comparisons, ``defined``, and, or, not."""

    def __init__(self, text: str, value: Callable[[str], str | None], depth: int = 0) -> None:
        self._value, self._depth = value, depth
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None or depth > 16:
                raise _UnknownError
            number, name, sign = found.groups()
            self._tokens.append(("number", number) if number else ("name", name) if name else ("sign", sign))
            at = found.end()

    def value(self) -> int:
        """Return the value of all of it."""
        result = self._of_level(0)
        if self._tokens:
            raise _UnknownError
        return result

    def _of_level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._operand()
        left = self._of_level(level + 1)
        while self._tokens and self._tokens[0][1] in _LEVELS[level]:
            apply = _LEVELS[level][self._tokens.pop(0)[1]]
            left = int(bool(apply(left, self._of_level(level + 1))))
        return left

    def _operand(self) -> int:
        if not self._tokens:
            raise _UnknownError
        kind, text = self._tokens.pop(0)
        if kind == "number":
            return int(text, 16 if text[:2].lower() == "0x" else 8 if text[0] == "0" and len(text) > 1 else 10)
        if text == "!":
            return int(not self._operand())
        if text == "(":
            result = self._of_level(0)
            self._take(")")
            return result
        if kind != "name":
            raise _UnknownError
        if text == "defined":
            in_brackets = bool(self._tokens) and self._tokens[0][1] == "("
            name = self._tokens.pop(0)[1] if not in_brackets and self._tokens else ""
            if in_brackets:
                self._take("(")
                name = self._tokens.pop(0)[1] if self._tokens else ""
                self._take(")")
            return int(self._value(name) is not None)
        held = self._value(text)
        return 0 if held is None else _Condition(held, self._value, self._depth + 1).value()

    def _take(self, sign: str) -> None:
        if not self._tokens or self._tokens.pop(0)[1] != sign:
            raise _UnknownError

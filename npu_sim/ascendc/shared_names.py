"""Kernels that have the name of another function, such as a helper that does their work.

The name alone means several functions then, and a launch the one that is marked ``__global__``. In front of each such
kernel its parameters are declared once more, of a function that is never defined: the type of that one says to the
compiler which is meant, in whatever namespace or template the launch stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from npu_sim.ascendc.source import kernel_declarations, without_text

_DECLARES = re.compile(r"(?:\b(\w+)\s+|[&*>]\s*)\Z")
"""Before a name and a parenthesis: a type, if it is none of `_NO_TYPES`."""
_NO_TYPES = frozenset(("and", "case", "co_return", "do", "else", "new", "not", "or", "return", "throw"))
_NEAR = 200
"""Characters before a name that are looked at."""
_LAST_NAME = re.compile(r"\w+(?=\s*(?:<.*)?\Z)", re.DOTALL)
_TYPED = "npusim_type_of_"


def shared_kernels(texts: Iterable[str], others: Collection[str] = ()) -> frozenset[str]:
    """Return the kernels in ``texts`` whose names other functions have too, in any of the texts or among ``others``.

    A product that looks like a declaration (``a * name(b)``) makes a name one of these, which does no harm.
    """
    codes = [without_text(text) for text in texts]
    kernels = [list(kernel_declarations(code)) for code in codes]
    names = frozenset(one.name for own in kernels for one in own)
    found = names.intersection(others)
    for code, own in zip(codes, kernels, strict=True):
        for name, at in _declared(code, names - found):
            if not any(one.begin <= at < one.end for one in own):
                found |= {name}
    return found


def _declared(code: str, names: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield which functions of these names are declared in ``code``, and where; kernels too."""
    if not names:
        return
    for one in re.finditer(rf"\b({'|'.join(sorted(names))})\s*\(", code):
        before = _DECLARES.search(code[max(one.start() - _NEAR, 0) : one.start()])
        if before is not None and before[1] not in _NO_TYPES:
            yield one[1], one.start()


def with_types_of_kernels(text: str, names: Collection[str]) -> str:
    """Return a source with the parameters of its kernels of these names declared once more, every line where it was."""
    if not names:
        return text
    pieces, done = list[str](), 0
    for one in kernel_declarations(without_text(text)):
        if one.name in names:
            declared = " ".join(f"{_template_of(one.head)} void {_TYPED}{one.name}{one.parameters}; ".split())
            pieces += [text[done : one.begin], f"{declared} "]
            done = one.begin
    return "".join([*pieces, text[done:]])


def _template_of(head: str) -> str:
    """Return what makes the declaration with this head one of a template, "" if nothing does."""
    first, angles, brackets = head.find("template"), 0, 0
    for at in range(first, len(head) if first >= 0 else first):
        one = head[at]
        brackets += (one in "([{") - (one in ")]}")
        if not brackets and one in "<>" and head[at - 1] != "-":
            angles += 1 if one == "<" else -1
            if not angles:
                return head[first : at + 1]
    return ""


def kernel_meant(expression: str, names: Collection[str]) -> str:
    """Return the expression for a kernel, for that kernel alone if other functions have its name.

    Parameters
    ----------
    expression : str
        Its name, with namespaces and template arguments.
    names : collection of str
        Of `shared_kernels`.
    """
    found = _LAST_NAME.search(expression)
    if found is None or found[0] not in names:
        return expression
    typed = f"{expression[: found.start()]}{_TYPED}{expression[found.start() :]}"
    return f"static_cast<decltype(({' '.join(typed.split())}))>({' '.join(expression.split())})"

"""Template arguments that a tiling key stands for.

A header declares the parameters of a kernel that is a template, ASCENDC_TPL_ARGS_DECL; the key of a choice of arguments
is a number of some bits for each, the first in the lowest bits: of ASCENDC_TPL_UINT_DECL the place of the value in its
list, of the others the value itself. Host code that sets such a key as a number, or sets none (which is key 0), chooses
by it. The order of the bits is that of asc-devkit (EncodeTilingKey).
"""

from __future__ import annotations

import re

_DECLARED = re.compile(r"ASCENDC_TPL_(\w+)_DECL\s*\(\s*\w+\s*((?:,[^()]*)?)\)")
_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]*")
_BITS = {"BOOL": 1, "DTYPE": 8, "FORMAT": 8}
_RANGE, _LIST, _MIX = range(3)
"""ASCENDC_TPL_UI_*: how a list of numbers is said."""


def arguments_of_key(key: int, declared: str) -> tuple[int, ...]:
    """Return the arguments that a key chooses.

    Parameters
    ----------
    key : int
        Of SetTilingKey.
    declared : str
        What ASCENDC_TPL_ARGS_DECL is given behind the operator, macros expanded.

    Returns
    -------
    tuple of int
        One for each parameter; none if the key chooses nothing that is declared, or if the declaration has a
        parameter or a number that is not known here.
    """
    if _DECLARED.sub("", declared).replace(",", "").strip():
        return ()
    chosen: list[int] = []
    for parameter in (_parameter(kind, text) for kind, text in _DECLARED.findall(declared)):
        if parameter is None:
            return ()
        bits, by_code = parameter
        code, key = key & ((1 << bits) - 1), key >> bits
        if code not in by_code:
            return ()
        chosen.append(by_code[code])
    return () if key else tuple(chosen)


def _parameter(kind: str, text: str) -> tuple[int, dict[int, int]] | None:
    """Return the bits of a parameter and its values by their code; None: not known."""
    words = [word.strip() for word in text.split(",")[1:]]
    words = words[:-1] if words and not words[-1] else words
    if not all(map(_NUMBER.fullmatch, words)):
        return None
    numbers = [int(word.rstrip("uUlL"), 16 if word[:2] in ("0x", "0X") else 10) for word in words]
    if kind in _BITS:
        # a truth value may be declared without its values
        values = numbers or ([0, 1] if kind == "BOOL" else [])
        return _BITS[kind], {value: value for value in values}
    listed = _listed_values(numbers[1], numbers[2:]) if kind == "UINT" and len(numbers) > 2 else None
    return None if listed is None else (numbers[0], dict(enumerate(listed)))


def _listed_values(how: int, said: list[int]) -> list[int] | None:
    """Return the values of a list, of ranges (their number, then begin and end of each) or of ranges and a list."""
    if how == _LIST:
        return said
    if how not in (_RANGE, _MIX) or len(said) < 1 + 2 * said[0]:
        return None
    ends = said[1 : 1 + 2 * said[0]]
    spread = [value for first, last in zip(ends[::2], ends[1::2], strict=True) for value in range(first, last + 1)]
    return spread + (said[1 + 2 * said[0] :] if how == _MIX else [])

"""Which row behind a wrong store is unlike all rows behind right ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from npu_sim.debug.slices import Key, Signature, Slicer
from npu_sim.isa.codes import Space

_FEWEST = 3
"""Rows of a line that must agree before another one is odd."""


class Evidence(NamedTuple):
    """A store, the rows its bytes came from, the row to suspect (None: nothing singles one out), and why.

    ``strength`` is 2 with a suspect, 1 if the store's rows are other than those of right ones, else 0.
    """

    store: Key
    chain: Sequence[Key]
    suspect: Key | None
    reason: str
    strength: int


def suspicion(
    slicer: Slicer, store: Key, chain: Sequence[Key], siblings: Sequence[tuple[Key, Sequence[Key]]]
) -> Evidence:
    """Hold what a wrong store came from against what right stores came from.

    Parameters
    ----------
    slicer : Slicer
    store : Key
    chain : sequence of Key
        Its slice.
    siblings : sequence of (store, slice)
        Of stores of the same line whose results are right.

    Returns
    -------
    Evidence
        The suspect is, of what there is: the first row of the store's tile whose operands no right tile has; a row of
        another tile that writes where its like never do; a row whose address in global memory is off the lattice of
        its like, or the same as that of another.
    """
    if not siblings:
        why = "no store of its line leaves right elements only, to compare with: see what it rests on, or give --good"
        return Evidence(store, chain, None, why, 0)
    right = {key for other, slice_ in siblings for key in (*slice_, *slicer.tile_of(other))}
    own = sorted({*(key for key in chain if _tile(slicer, key) in (_tile(slicer, store), -1)), *slicer.tile_of(store)})
    why = "no right element of the same line comes from an instruction like it"
    for key in _others(own, right, slicer.operands):
        return Evidence(store, chain, key, why, 2)
    for key in _others(own, right, slicer.form):
        if _is_alone(slicer, key):
            return Evidence(store, chain, key, f"{why}, with its addresses in the core", 2)
    strange, missing = _unlike(slicer, store, chain, siblings)
    foreign = [key for key in strange if _tile(slicer, key) not in (_tile(slicer, store), -1)]
    for key in foreign:
        if _is_alone(slicer, key):
            return Evidence(store, chain, key, "it belongs to another tile and writes where its like never do", 2)
    for key in own:
        if (odd := _odd_address(slicer, key)) is not None:
            return Evidence(store, chain, key, odd, 2)
    if foreign:
        why = "the tile uses what an earlier one left, which right tiles do not: something of its own is not loaded"
    elif missing:
        why = f"{missing} instructions that every right element of the same line comes from are missing"
    else:
        why = "it comes from the same instructions as right elements: look at addresses in global memory"
    return Evidence(store, chain, None, why, int(bool(foreign or missing)))


def _others(own: Sequence[Key], right: Iterable[Key], what: Callable[[Key], Signature]) -> Iterator[Key]:
    """Yield the rows that no right one is like."""
    known = {what(key) for key in right}
    return (key for key in own if what(key) not in known)


def _tile(slicer: Slicer, key: Key) -> int:
    return int(slicer.parts[key[0]].rows["tile"][key[1]])


def _unlike(
    slicer: Slicer, store: Key, chain: Sequence[Key], siblings: Sequence[tuple[Key, Sequence[Key]]]
) -> tuple[list[Key], int]:
    """Return the rows of a chain that no other chain has, and how many all of those have that it has not."""
    known: Counter[Signature] = Counter()
    common: Counter[Signature] | None = None
    for other, slice_ in siblings:
        counts = Counter(slicer.signature(key, other) for key in slice_)
        known |= counts
        common = counts if common is None else common & counts
    own: Counter[Signature] = Counter()
    strange = []
    for key in chain:
        signature = slicer.signature(key, store)
        own[signature] += 1
        if own[signature] > known[signature]:
            strange.append(key)
    return strange, sum(((common or Counter()) - own).values())


def _like(slicer: Slicer, key: Key) -> list[Key]:
    """Return the rows of the same line and instruction, this one too."""
    row = slicer.parts[key[0]].rows[key[1]]
    return [
        (number, at)
        for number, part in enumerate(slicer.parts)
        for at in np.flatnonzero((part.rows["site"] == row["site"]) & (part.rows["op"] == row["op"])).tolist()
    ]


def _is_alone(slicer: Slicer, key: Key) -> bool:
    """Return whether no other row of its line has its operands, though there are enough of them."""
    like = _like(slicer, key)
    form = slicer.form(key)
    return len(like) > _FEWEST and sum(slicer.form(other) == form for other in like) == 1


def _odd_address(slicer: Slicer, key: Key) -> str | None:
    """Return what is odd about where a row is in global memory, None if nothing is."""
    row = slicer.parts[key[0]].rows[key[1]]
    for field, space in (("src0", "src0_space"), ("dst", "dst_space")):
        if int(row[space]) != Space.GM:
            continue
        form = slicer.operands(key)
        others = [
            int(slicer.parts[number].rows[field][at])
            for number, at in _like(slicer, key)
            if (number, at) != key and slicer.operands((number, at)) == form
        ]
        if len(others) < _FEWEST:
            continue
        step = math.gcd(*(address - others[0] for address in others))
        if step and (int(row[field]) - others[0]) % step:
            return f"its address in global memory is off the step of {step} bytes of its like"
        if len(set(others)) == len(others) and int(row[field]) in others:
            return "it has the address in global memory of another instruction of its line, which no other one has"
    return None

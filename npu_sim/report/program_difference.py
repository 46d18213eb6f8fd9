"""Where two programs differ, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

import numpy as np

from npu_sim.isa.row import ROW_BYTES
from npu_sim.program.disassemble import disassemble
from npu_sim.program.launch import Launch
from npu_sim.report.program_file import all_rows

ALIGNED_ROWS = 4096
"""Rows between the first and the last difference that are aligned; longer stretches are compared row by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A stretch of rows that stands in one program only, or differs.

    Attributes
    ----------
    launch, core, phase : int
    left_first, right_first : int
        Number of the first row of the stretch in each.
    left, right : tuple of str
        The rows, disassembled.
    """

    launch: int
    core: int
    phase: int
    left_first: int
    right_first: int
    left: tuple[str, ...]
    right: tuple[str, ...]


def differences(left: Sequence[Launch], right: Sequence[Launch]) -> Iterator[Difference]:
    """Yield where the instructions of two programs differ, core by core; labels (site and tile) do not count."""
    ours, theirs = (
        {(launch, core, phase): rows for launch, core, phase, rows in all_rows(side)} for side in (left, right)
    )
    for key in sorted(ours | theirs):
        launch, core, phase = key
        a, b = (_texts(side.get(key)) for side in (ours, theirs))
        for first, end, other, other_end in _stretches(a, b):
            yield Difference(
                launch=launch,
                core=core,
                phase=phase,
                left_first=first,
                right_first=other,
                left=tuple(a[first:end]),
                right=tuple(b[other:other_end]),
            )


def _texts(rows: np.ndarray | None) -> list[str]:
    """Return rows as text, each kind of row disassembled once."""
    if rows is None:
        return []
    plain = rows.copy()
    plain["site"] = plain["tile"] = 0
    known: dict[bytes, str] = {}
    texts = []
    for key, row in zip(plain.view(np.uint8).reshape(-1, ROW_BYTES), rows, strict=True):
        text = known.get(key.tobytes())
        if text is None:
            text = known[key.tobytes()] = disassemble(row)
        texts.append(text)
    return texts


def _stretches(a: list[str], b: list[str]) -> Iterator[tuple[int, int, int, int]]:
    head = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    middle_a, middle_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if max(len(middle_a), len(middle_b)) > ALIGNED_ROWS:
        for at, (x, y) in enumerate(zip_longest(middle_a, middle_b), head):
            if x != y:
                yield min(at, len(a)), min(at + 1, len(a)), min(at, len(b)), min(at + 1, len(b))
        return
    for tag, i, j, k, n in SequenceMatcher(None, middle_a, middle_b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield head + i, head + j, head + k, head + n

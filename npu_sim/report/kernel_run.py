"""What a kernel launched, and what the engines say of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from npu_sim.engines.buffers import run_buffers
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.spare_bytes import spare_bytes
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineResult
from npu_sim.isa.row import join_rows
from npu_sim.products import Product
from npu_sim.program.launch import Launch, SourceLine
from npu_sim.program.recorded import rows_of
from npu_sim.program.violation import Violation
from npu_sim.report.explain import Explanation
from npu_sim.report.record import count_of

_Found = TypeVar("_Found", bound=Violation)
_WHERE = re.compile(r"\bcore \d+ row \d+\b")


class Findings(tuple[_Found, ...]):
    """What is wrong with a run, row by row; shown as one entry for each line and kind, with how often it is so."""

    _lines: Sequence[Mapping[int, SourceLine]]

    def __new__(cls, found: Iterable[_Found], launches: Sequence[Launch]) -> Findings[_Found]:
        """Return the findings of launches, which know the lines of their rows."""
        made = super().__new__(cls, found)
        made._lines = [launch.lines for launch in launches]
        return made

    def __repr__(self) -> str:
        shown = [f"{first.severity} {words}" for first, words in self._groups(lambda _: "")]
        return "\n".join((f"{count_of([found.severity for found in self])}:", *shown)) if shown else "()"

    def lines(self) -> list[str]:
        """Return a line for each place, kind and rule, with how often it is so."""
        return [words for _, words in self._groups(lambda found: _WHERE.sub("", str(found)))]

    def _groups(self, rule: Callable[[_Found], str]) -> Iterator[tuple[_Found, str]]:
        groups: dict[tuple[object, ...], list[_Found]] = {}
        for found in self:
            groups.setdefault((found.launch, found.kind, found.site, found.other_site, rule(found)), []).append(found)
        for same in groups.values():
            first = same[0]
            line = self._lines[first.launch].get(first.site) if first.row >= 0 else None
            place = f"{line}: " if line else ""
            words = str(first)
            times = f" ({len(same)} times)" if len(same) > 1 else ""
            yield first, f"{'' if words.startswith(place) else place}{words}{times}"


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelRun:
    """A call of a kernel.

    Attributes
    ----------
    name : str
        Of the kernel.
    call : str
        Its arguments in words.
    product : Product
    launches : tuple of Launch
        One, or those of a mixed kernel in the order in which they run; for every engine.
    """

    name: str
    call: str
    product: Product
    launches: tuple[Launch, ...]

    @cached_property
    def findings(self) -> tuple[Violation, ...]:
        """What is wrong with lives of buffers, order, bounds and outputs; `Launch.lines` has the line of a ``site``.

        Of single instructions nothing is: those are refused when they are recorded.
        """
        outputs = [tensor.name for tensor in self.launches[0].gm.tensors if tensor.is_output]
        lives = [
            replace(found, launch=number)
            for number, launch in enumerate(self.launches)
            for found in run_buffers(launch, self.product)
        ]
        order = run_hazards(self.launches, self.product, outputs=outputs)
        return Findings((*lives, *order, *spare_bytes(self.launches, self.product)), self.launches)

    @cached_property
    def times(self) -> tuple[TimelineResult, ...]:
        """Cycles, pipes and critical path of each launch."""
        return tuple(run_timeline(launch, self.product) for launch in self.launches)

    @property
    def seconds(self) -> float:
        """Time of the launches, one after the other."""
        return sum(result.seconds() for result in self.times)

    @property
    def explanation(self) -> Explanation:
        """What ``npu-sim run --explain``, ``check`` and ``perf`` know of the call."""
        return Explanation(title=self.name, call=self.call, product=self.product, launches=self.launches)

    def rows(self, core: int | None = None) -> np.ndarray:
        """Return the rows of one core, or of all, launch by launch, INSTR[n]."""
        return join_rows(
            [
                rows_of(launch, number, phase)
                for launch in self.launches
                for number in (range(launch.core_count) if core is None else (core,))
                for phase in range(launch.phase_count)
            ]
        )

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{launch.cores_in_words} cores, {int(launch.params['row_count'][0])} rows" for launch in self.launches
        )
        return f"{self.name}({self.call}): {counts} ({self.product.name})"

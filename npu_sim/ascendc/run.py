"""A call of a C++ kernel: its launches, and what is wrong with them by file and line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache, cached_property

from npu_sim.ascendc.arguments import Arguments
from npu_sim.ascendc.emission import Emission
from npu_sim.ascendc.process import KernelError
from npu_sim.program.launch import CoreKind, Launch, SourceLine, stored_plainly
from npu_sim.program.positions import TPosition
from npu_sim.program.recorded import launch_of_parts
from npu_sim.program.violation import Violation
from npu_sim.report.beginnings import is_open
from npu_sim.report.explain import Explanation
from npu_sim.report.kernel_run import Findings, KernelRun

_POSITION_BITS = 5
_POSITIONS = {int(member): member.name for member in TPosition}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Violation):
    """A violation, and where it is in the source.

    Attributes
    ----------
    line, other_line : SourceLine or None
        Of both instructions.
    auto_sync : bool
        Whether the compiler of the source is taken to put in the barriers and flags that bisheng puts in by itself.
    """

    line: SourceLine | None = None
    other_line: SourceLine | None = None
    auto_sync: bool = True

    def __str__(self) -> str:
        where = "" if self.line is None else f"{self.line}: "
        return f"{where}{Violation.__str__(self)} (auto_sync {'on' if self.auto_sync else 'off'})"


def located(violations: Iterable[Violation], launches: tuple[Launch, ...]) -> tuple[Finding, ...]:
    """Return violations with their lines."""
    return tuple(
        Finding(
            **{field.name: getattr(found, field.name) for field in fields(Violation)},
            line=launches[found.launch].lines.get(found.site),
            other_line=launches[found.launch].lines.get(found.other_site),
            auto_sync=launches[found.launch].auto_sync,
        )
        for found in violations
    )


def launches_of(
    name: str, emission: Emission, counts: dict[CoreKind, int], arguments: Arguments, *, auto_sync: bool
) -> tuple[Launch, ...]:
    """Return what was handed over for cores, so many of each kind, as a launch."""
    told = emission.told
    names = {number: _buffer_name(number) for number in told.buffers}
    launch = launch_of_parts(
        name,
        emission.programs,
        arguments.gm,
        core_kind=next(iter(counts)),
        vectors=counts["vector"] // counts["cube"] if len(counts) > 1 else 0,
        crosses=told.crosses,
        lines=told.lines,
        buffers=names,
        sites={number: str(line) for number, line in told.lines.items()},
        auto_sync=auto_sync,
        plain_stores=told.plain_stores,
        filled=arguments.filled,
    )
    return (launch,)


def _buffer_name(number: int) -> str:
    position = number & ((1 << _POSITION_BITS) - 1)
    return f"{_POSITIONS.get(position, 'scratch')}#{number >> _POSITION_BITS}"


@dataclass(frozen=True, kw_only=True, repr=False)
class SourceRun(KernelRun):
    """A call of a kernel in C++.

    Attributes
    ----------
    stopped_by : KernelError or None
        What ended it before its end.
    refused : tuple of Finding
        Instructions that could not be carried out; nothing was computed behind them.
    cut : tuple of Finding
        Copies of a number of elements whose last ones are not moved, the first of each line.
    printed : str
        What it printed (printf, DumpTensor).
    types : str
        Types of tensors that nothing told, which the kernel was compiled with by default.
    """

    stopped_by: KernelError | None = None
    refused: tuple[Finding, ...] = ()
    cut: tuple[Finding, ...] = ()
    printed: str = ""
    types: str = ""

    @cached_property
    def findings(self) -> Findings[Finding]:
        """What is wrong: single instructions, lives of buffers, order, bounds and outputs, each with its line.

        Of a call that did not end nothing that rows behind its last one could have made good.
        """
        known = {(found.launch, found.core, found.row) for found in self.refused}
        others = [found for found in super().findings if (found.launch, found.core, found.row) not in known]
        if self.stopped_by is not None or self.refused:
            rows = cache(lambda _, core: self.rows(core))
            others = [found for found in others if not is_open(found, rows)]
        return Findings((*self.refused, *self.cut, *located(others, self.launches)), self.launches)

    @property
    def explanation(self) -> Explanation:
        """What ``npu-sim check`` and ``perf`` know of the call."""
        words = "on" if self.launches[0].auto_sync else "off"
        (launch,) = self.launches
        stored = [one.name for one in launch.gm.tensors if stored_plainly(one, launch.plain_stores)]
        plain = f"{', '.join(stored)} stored to by plain pointers too, which no check and no time knows of"
        return Explanation(
            title=self.name,
            call=f"{self.call}; auto_sync {words}",
            product=self.product,
            launches=self.launches,
            is_finished=self.stopped_by is None,
            stopped_by="" if self.stopped_by is None else str(self.stopped_by),
            notes=tuple(note for note in (self.types, plain if stored else "") if note),
        )

"""What ran, and why that way: operators and kernel objects tell a recorder, and reports read it.

An operator asks for `current_recorder` when it is called. There is none in a plain program, and then nothing is kept;
inside `recording` (the command line's ``run --explain`` and ``perf script.py`` use it) the operator hands over a
function that describes what it did. The function is called when the report is made, so an object may add itself when it
is made and still tell all it did later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npu_sim.errors import ShapeError
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.report.record import to_plain

if TYPE_CHECKING:
    from npu_sim.debug.execution import Execution

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationTable:
    """One table of an explanation, for example the walk of a kernel.

    Attributes
    ----------
    title : str
        What the lines are.
    columns : tuple of str
        Headings.
    rows : tuple of tuple
        One plain value per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What one call of an operator, or one kernel, did.

    Attributes
    ----------
    title : str
        Name of the operator or kernel.
    call : str
        Which call it was: shapes and types of its tensors; "" if the title says all.
    product : Product
        Where it ran.
    facts : mapping of str to mapping of str to value
        Named groups of plain values, for example ``{"tiling": {"baseM": 128, ...}}``.
    tables : tuple of ExplanationTable
        What does not fit name and value.
    notes : tuple of str
        Remarks, one sentence each.
    launches : tuple of Launch
        What ran, in stream order. The timeline and hazards engines can run them; their tensors need not exist.
    launch_works : tuple of str
        What each launch works on, for example "input NCHW -> NC1HWC0"; empty, or one text a launch.
    is_finished : bool
        False: the kernel has begun and not ended, so its launches hold the first rows only.
    stopped_by : str
        The error that left the kernel before its end; "" without one.
    execution : Execution or None
        What it takes to run the call once more, where the recorder keeps tensors and the call has ended.
    takes_orders : bool
        Whether it ran in the orders of `engines.numerics.use_orders`.

    Raises
    ------
    ShapeError
        If there are texts, but not one a launch.
    """

    title: str
    call: str = ""
    product: Product
    facts: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    tables: tuple[ExplanationTable, ...] = ()
    notes: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    launch_works: tuple[str, ...] = ()
    is_finished: bool = True
    stopped_by: str = ""
    execution: Execution | None = None
    takes_orders: bool = False

    def __post_init__(self) -> None:
        if self.launch_works and len(self.launch_works) != len(self.launches):
            rule = f"one a launch ({len(self.launches)}) or none"
            raise ShapeError(f"launch_works must be {rule}, not {len(self.launch_works)} ({self.title})")

    @property
    def heading(self) -> str:
        """What stands above a report of this call: operator, product, tensors; and that it has not ended, if so."""
        words = f"{self.title} ({self.product.name})" + (f": {self.call}" if self.call else "")
        return words if self.is_finished else f"{words}, not ended"

    def works_of_launches(self) -> tuple[str, ...]:
        """Return one text a launch, "" where nothing is known."""
        return self.launch_works or ("",) * len(self.launches)

    def to_plain(self) -> dict[str, object]:
        """Return everything as plain data; launches by name, cores and phases."""
        return {
            "title": self.title,
            "call": self.call,
            "product": self.product.name,
            "facts": to_plain(self.facts),
            "tables": to_plain(self.tables),
            "notes": list(self.notes),
            "launches": [
                {
                    "name": launch.name,
                    "works_on": works_on,
                    "core_count": launch.core_count,
                    "phase_count": launch.phase_count,
                }
                for launch, works_on in zip(self.launches, self.works_of_launches(), strict=True)
            ],
        }


class Recorder:
    """Collects explanations in the order in which they were added.

    Parameters
    ----------
    own_only : bool
        It is for the kernels of the program itself (`own_recorder`); operators see none, and keep nothing for it.
    keeps_tensors : bool
        Kernels copy their tensors for `Explanation.execution`.
    """

    def __init__(self, *, own_only: bool = False, keeps_tensors: bool = False) -> None:
        self._sources: list[Callable[[], Explanation]] = []
        self.own_only, self.keeps_tensors = own_only, keeps_tensors

    def add(self, explain: Callable[[], Explanation]) -> None:
        """Add what ran. ``explain`` is called once for each report, never while the program runs."""
        self._sources.append(explain)

    def explanations(self) -> tuple[Explanation, ...]:
        """Return what has been added so far."""
        return tuple(explain() for explain in self._sources)


_CURRENT: ContextVar[Recorder | None] = ContextVar("npu_sim_recorder", default=None)


def current_recorder() -> Recorder | None:
    """Return the recorder of the innermost `recording` in this thread or task, None outside of any."""
    recorder = _CURRENT.get()
    return None if recorder is None or recorder.own_only else recorder


def record_call(explain: Callable[[], Explanation]) -> None:
    """Have the current recorder, if there is one, add what a call of an operator runs; see `Recorder.add`."""
    if (recorder := current_recorder()) is not None:
        recorder.add(explain)


def own_recorder() -> Recorder | None:
    """Return the same for kernels of the program itself."""
    return _CURRENT.get()


@contextlib.contextmanager
def recording(recorder: Recorder | None = None) -> Iterator[Recorder]:
    """Have operators called inside the ``with`` block explain themselves.

    Parameters
    ----------
    recorder : Recorder or None
        Where to; None: a new one.

    Yields
    ------
    Recorder
        The recorder.

    Examples
    --------
    >>> with recording() as recorder:
    ...     pass  # call operators here
    >>> recorder.explanations()
    ()
    """
    current = Recorder() if recorder is None else recorder
    token = _CURRENT.set(current)
    try:
        yield current
    finally:
        _CURRENT.reset(token)

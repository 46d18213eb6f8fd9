"""The machine under a debugger: the rows of a launch one by one, with every buffer open to the eye.

Cores run one after the other, in the order in which `engines.execute` lets them add to memory, phase by phase, so that
what it leaves in memory is what `execute` leaves there. Nothing of the launch's own memory or arrays is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npu_sim.arguments import flag, whole
from npu_sim.budget import reserve
from npu_sim.debug.operands import Operand, operands_of, runs_of
from npu_sim.debug.parts import Part, parts_of
from npu_sim.debug.places import Place, Reason, Stop, Watch
from npu_sim.debug.views import SpaceView, names_of_buffers, space_of
from npu_sim.dtypes.formats import DTYPE_OF_DATA
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.engines.numerics import options_of
from npu_sim.engines.reorder import legal_order, new_flags
from npu_sim.errors import DTypeError, ProgramError, ShapeError, StateError, shown
from npu_sim.fenv import default_fenv
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import ON_CHIP, Data, Space
from npu_sim.isa.cube import scratch_floats
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.footprint import WRITE
from npu_sim.isa.row import join_rows
from npu_sim.memory.core import POISON_BYTE, CoreMemory, memory_bytes
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product
from npu_sim.program.bounds import gm_violations
from npu_sim.program.disassemble import disassemble
from npu_sim.program.launch import Launch
from npu_sim.program.recorded import rows_of
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind, Violation


@dataclass(slots=True)
class _Program:
    """The issued rows of one core and phase, in the order in which they run."""

    launch: int
    phase: int
    core: int
    rows: np.ndarray
    numbers: npt.NDArray[np.int64]
    at: int = 0


class Machine:
    """Launches that share one global memory, under a debugger.

    Parameters
    ----------
    launches : sequence of Launch
        In stream order, for example `KernelRun.launches` or those of a stored program.
    product : Product
    tensors : mapping of str to array
        Initial bytes or elements of the tensors, by name; those left out begin as poison.
    options : ExecuteOptions or None
        Numerics, order of the rows and order of the cores; None: the product's own, in program order.

    Raises
    ------
    ShapeError
        A tensor has another size, or the launches do not share their memory.

    Examples
    --------
    >>> machine = matmul.machine(a, b, c, blocks=1)                                       # doctest: +SKIP
    >>> machine.run_to(line=42)                                                           # doctest: +SKIP
    >>> machine.l0c.matrix("fp32", 128, 128)                                              # doctest: +SKIP
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        product: Product,
        tensors: Mapping[str, np.ndarray],
        options: ExecuteOptions | None = None,
    ) -> None:
        if not launches or any(launch.gm is not launches[0].gm for launch in launches):
            raise ShapeError("launches of a machine must share one GlobalMemory, not several or none")
        self.launches, self.product = tuple(launches), product
        self._gm = _loaded(launches[0], tensors)
        self._options = self._default_options() if options is None else options
        config = configuration(product, self._options)
        sink = np.zeros(SINK_LENGTH, np.int64)
        sink[3] = config[3]
        staging = np.empty(max(product.core.l0c_bytes // 4, 8192), np.float32)
        no_log = np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)
        self._work = config, np.empty(scratch_floats(product.core), np.float64), staging, sink, *no_log
        self._memories: dict[int, CoreMemory] = {}
        self._of_launch = 0
        self._flags: dict[int, npt.NDArray[np.int64]] = {}
        self._flags_of = 0
        self._watches: list[Watch] = []
        self._parts = parts_of(self.launches, self._options.core_order)
        self._program: _Program | None = None
        self._is_fresh = True
        self._last: Place | None = None
        self._next_program()

    # Where it stands -------------------------------------------------------------------------------------------------

    @property
    def place(self) -> Place | None:
        """The row that runs next, None behind the last one."""
        program = self._program
        return None if program is None else self._place_of(program, program.at)

    @property
    def last(self) -> Place | None:
        """The row that ran last."""
        return self._last

    @property
    def row(self) -> np.void:
        """The row that runs next, as issued.

        Raises
        ------
        StateError
            The program has ended.
        """
        if self._program is None:
            raise StateError("row must be asked for before the program has ended, not behind it")
        return self._program.rows[self._program.at]

    def operands(self, *, written: bool = False) -> list[Operand]:
        """Return what the row that runs next is going to read, or with ``written`` what it is going to overwrite."""
        if self._program is None:
            return []
        memory = self.memory(self._program.core)
        is_written = flag("written", written)
        return operands_of(self._program.rows, self._program.at, memory, self._gm, written=is_written)

    # Going on --------------------------------------------------------------------------------------------------------

    def step(self, count: int = 1) -> Stop:
        """Run ``count`` rows of the core, and of those behind it, and stop."""
        left = whole("count", count)
        if left < 1:
            raise ShapeError(f"count must be 1 or more, not {shown(count)}")
        while self._program is not None and left:
            program = self._program
            end = min(program.at + left, len(program.rows))
            left -= end - program.at
            if self._advance(end):
                return self._stop("watch")
        return self._stop("step")

    def run_to(
        self,
        *,
        line: int | str | None = None,
        row: int | None = None,
        tile: int | None = None,
        core: int | None = None,
        launch: int | None = None,
    ) -> Stop:
        """Run until the next row is one of those asked for, what is watched was written, or the program ends.

        The row that a new machine stands at counts; one that it has stopped at does not count again.

        Parameters
        ----------
        line : int, str or None
            Of the source, ``12`` or ``"kernel.py:12"``.
        row, tile, core, launch : int or None
            Number of the row, label, core, launch; what is None is not asked for.
        """
        numbers = {"row": row, "tile": tile, "core": core, "launch": launch}
        asked = {name: whole(name, value) for name, value in numbers.items() if value is not None}
        begin = int(not self._is_fresh)
        self._is_fresh = False
        while (program := self._program) is not None:
            wanted = np.ones(len(program.rows), np.bool_)
            for name, have in (("row", program.numbers), ("tile", program.rows["tile"])):
                if name in asked:
                    wanted &= have == asked[name]
            if line is not None:
                wanted &= np.isin(program.rows["site"], self._sites(program.launch, line))
            is_there = all(
                asked.get(name, have) == have for name, have in (("core", program.core), ("launch", program.launch))
            )
            hits = np.flatnonzero(wanted[program.at + begin :]) if is_there else np.zeros(0, np.int64)
            target = program.at + begin + int(hits[0]) if len(hits) else len(program.rows)
            if self._advance(target):
                return self._stop("watch")
            if len(hits):
                return self._stop("target")
            begin = 0
        return self._stop("end")

    def run(self) -> Stop:
        """Run until what is watched was written, or to the end."""
        while (program := self._program) is not None:
            if self._advance(len(program.rows)):
                return self._stop("watch")
        return self._stop("end")

    def watch(self, space: Space | str, start: int = 0, end: int | None = None, *, core: int | None = None) -> None:
        """Stop behind each row that writes a byte of ``[start, end)``.

        Parameters
        ----------
        space : Space or str
            ``"UB"``, ``"L0C"``, ``"GM"``, ...; GM counts from the begin of the memory of the launches (`extent`).
        start, end : int
            Bytes; end None: all from ``start`` on.
        core : int or None
            Of this core only.
        """
        first, last = whole("start", start), (1 << 62) if end is None else whole("end", end)
        if not 0 <= first < last:
            raise ShapeError(f"range must begin at 0 or later and end behind that, not [{first}:{last}]")
        self._watches.append(Watch(space_of(space), first, last, None if core is None else self._core(core)))

    def unwatch(self) -> None:
        """Watch nothing any more."""
        self._watches.clear()

    # What there is to see --------------------------------------------------------------------------------------------

    def memory(self, core: int | None = None) -> CoreMemory:
        """Return the buffers of a core, those the machine works on; None: of the core it stands in or ran last."""
        now = self.place or self._last
        number = self._core(core) if core is not None else 0 if now is None else now.core
        if number not in self._memories:
            held = memory_bytes(self.product.core)
            reserve("Buffers of the cores under the debugger", (len(self._memories) + 1) * held)
            self._memories[number] = CoreMemory.for_core(self.product.core)
        return self._memories[number]

    def view(self, space: Space | str, core: int | None = None) -> SpaceView:
        """Return a buffer of a core to look at."""
        held = space_of(space)
        if held in (Space.NONE, Space.GM):
            raise ShapeError(f"space must be one of {names_of_buffers()}, not {held.name}")
        return SpaceView(held, self.memory(core))

    @property
    def ub(self) -> SpaceView:
        """UB of the core the machine stands in."""
        return self.view(Space.UB)

    @property
    def l1(self) -> SpaceView:
        """L1 of the core the machine stands in."""
        return self.view(Space.L1)

    @property
    def l0a(self) -> SpaceView:
        """L0A of the core the machine stands in."""
        return self.view(Space.L0A)

    @property
    def l0b(self) -> SpaceView:
        """L0B of the core the machine stands in."""
        return self.view(Space.L0B)

    @property
    def l0c(self) -> SpaceView:
        """L0C of the core the machine stands in."""
        return self.view(Space.L0C)

    @property
    def gm(self) -> npt.NDArray[np.uint8]:
        """The bytes of global memory as they are now: a view that must not be written."""
        view = self._gm.view()
        view.flags.writeable = False
        return view

    def tensor(self, name: str) -> np.ndarray:
        """Return a copy of the elements of a GM tensor, flat; bytes where its type is not known."""
        place = self.extent(name)
        held = self._gm[place.address : place.address + place.byte_count]
        kind = np.dtype(np.uint8) if place.data == Data.NONE else DTYPE_OF_DATA[place.data].storage
        return held.copy().view(kind)

    def extent(self, name: str) -> GmTensor:
        """Return where a tensor lies."""
        for place in self.launches[0].gm.tensors:
            if isinstance(name, str) and place.name == name:
                return place
        known = ", ".join(place.name for place in self.launches[0].gm.tensors)
        raise ShapeError(f"tensor must be one of {known}, not {shown(name)}")

    def dump(self) -> dict[str, np.ndarray]:
        """Return everything that can be seen: tensors by name, and the raw buffers of each core that has run.

        Keys are ``gm.NAME`` and ``coreN.ub``, ``.l1``, ``.l0a``, ``.l0b``, ``.l0c``, ``.bt``, ``.fb``, ``.idx``;
        `numpy.savez` takes it as it is.
        """
        held = {f"gm.{place.name}": self.tensor(place.name) for place in self.launches[0].gm.tensors}
        for number, memory in sorted(self._memories.items()):
            for name in (space.name.lower() for space in ON_CHIP):
                held[f"core{number}.{name}"] = getattr(memory, name).copy()
        return held

    # Inside ----------------------------------------------------------------------------------------------------------

    def _default_options(self) -> ExecuteOptions:
        every = [
            rows_of(launch, core, phase)
            for launch in self.launches
            for core in range(launch.core_count)
            for phase in range(launch.phase_count)
        ]
        return options_of(self.product, join_rows(every))

    def _next_program(self) -> None:
        """Go to the next program that has rows."""
        part = next((part for part in self._parts if len(part.rows)), None)
        self._program = None if part is None else self._checked(part)

    def _checked(self, part: Part) -> _Program:
        """Return a program whose rows touch nothing but what is theirs."""
        launch, rows, core = self.launches[part.launch], part.rows, part.core
        found = [
            replace(v, core=core, row=part.first + v.row)
            for v in verify(rows, self.product, core_kind=launch.kind_of(core))
        ]
        found += gm_violations(rows, launch.gm.table(), core=core, first=part.first)
        if found:
            raise ProgramError(found)
        if self._flags_of != part.launch:
            self._flags.clear()
            self._flags_of = part.launch
        kept = self._flags.setdefault(core, new_flags()) if launch.keeps_cores else None
        order = legal_order(rows, self._options.order, kept)
        return _Program(part.launch, part.phase, core, rows[order], part.first + order)

    def _advance(self, end: int) -> bool:
        """Run the rows before ``end`` of the program; stop behind one that writes what is watched and return True."""
        program = self._program
        assert program is not None
        begin = program.at
        hit = self._first_watched(program, begin, end) if self._watches else -1
        last = end if hit < 0 else hit + 1
        if last > begin:
            self._run(program, begin, last)
            self._last = self._place_of(program, last - 1)
            self._is_fresh = False
            program.at = last
        if program.at == len(program.rows):
            self._next_program()
        return hit >= 0

    @default_fenv
    def _run(self, program: _Program, begin: int, end: int) -> None:
        if program.launch != self._of_launch:  # a launch begins with nothing in its cores
            self._memories.clear()
            self._of_launch = program.launch
        memory = self.memory(program.core)
        bad = int(run_rows(program.rows, begin, end, self._gm, *memory.buffers, *self._work))
        if bad >= 0:
            place = self._place_of(program, bad)
            rule = "must have modelled element types and lie inside the buffers"
            site = int(program.rows["site"][bad])
            raise ProgramError(
                [
                    Violation(
                        kind=Kind.UNSUPPORTED,
                        row=place.row,
                        core=place.core,
                        tile=place.tile,
                        site=site,
                        launch=place.launch,
                        detail=f"{place.text.strip()} {rule} ({self.launches[place.launch].name})",
                    )
                ]
            )

    def _first_watched(self, program: _Program, begin: int, end: int) -> int:
        watches = [watch for watch in self._watches if watch.core in (None, program.core)]
        for at in range(begin, end) if watches else ():
            for space, access, start, length, repeats, stride in runs_of(program.rows, at):
                if access >= WRITE and any(watch.meets(space, start, length, repeats, stride) for watch in watches):
                    return at
        return -1

    def _stop(self, reason: Reason) -> Stop:
        return Stop(reason if self._program is not None or reason == "watch" else "end", self.place)

    def _place_of(self, program: _Program, at: int) -> Place:
        row = program.rows[at]
        launch = self.launches[program.launch]
        return Place(
            launch=program.launch,
            phase=program.phase,
            core=program.core,
            row=int(program.numbers[at]),
            tile=int(row["tile"]),
            source=launch.lines.get(int(row["site"])),
            text=disassemble(row),
        )

    def _core(self, core: int) -> int:
        number, count = whole("core", core), max(launch.core_count for launch in self.launches)
        if not 0 <= number < count:
            raise ShapeError(f"core must be from 0 to {count - 1}, not {number}")
        return number

    def _sites(self, launch: int, line: int | str) -> list[int]:
        """Return the sites of a line of the source.

        Raises
        ------
        ShapeError
            No instruction of any launch is there.
        """
        file, _, number = (line if isinstance(line, str) else str(whole("line", line))).rpartition(":")
        every = [
            (index, site)
            for index, one in enumerate(self.launches)
            for site, source in one.lines.items()
            if str(source.line) == number and (not file or source.file.endswith(file))
        ]
        if not every:
            raise ShapeError(f"line must be one that instructions come from, not {shown(line)}")
        return [site for index, site in every if index == launch]


def _loaded(launch: Launch, tensors: Mapping[str, np.ndarray]) -> npt.NDArray[np.uint8]:
    """Return a global memory of its own: poison, and what the tensors hold."""
    if not isinstance(tensors, Mapping):
        raise ShapeError(f"tensors must be a mapping of names to arrays, not {shown(tensors)}")
    gm = launch.gm
    arena = np.full(reserve("Global memory under the debugger", gm.total_bytes), POISON_BYTE, np.uint8)
    for place in gm.tensors:
        if (given := tensors.get(place.name)) is None:
            continue
        if not isinstance(given, np.ndarray) or given.dtype.hasobject:
            raise DTypeError(f"tensor {place.name} must be an array of numbers, not {shown(given)}")
        if given.nbytes != place.byte_count:
            raise ShapeError(f"tensor {place.name} must have {place.byte_count} bytes, not {given.nbytes}")
        arena[place.address : place.address + place.byte_count] = np.frombuffer(given.tobytes(), np.uint8)
    return arena

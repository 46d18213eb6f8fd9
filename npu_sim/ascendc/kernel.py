"""Kernels in C++ as functions, which `compiling.compile` makes of a source: a call runs one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.arguments import flag, ints, whole
from npu_sim.ascendc.arguments import Arguments, SharedMemory, tiling_bytes
from npu_sim.ascendc.build import Build
from npu_sim.ascendc.control import MAX_CORES, Status, describe
from npu_sim.ascendc.cores import KernelCores, Kind
from npu_sim.ascendc.emission import SHELF, Emission, call_of
from npu_sim.ascendc.machine import Cores, run_again
from npu_sim.ascendc.operator_types import Types, definition_of, type_macros, uses_types
from npu_sim.ascendc.process import SILENCE_SECONDS, KernelError, Process
from npu_sim.ascendc.run import SourceRun, launches_of, located
from npu_sim.ascendc.source import Source, parameter_names, without_text
from npu_sim.ascendc.tables import data_of, has_tables
from npu_sim.ascendc.task_type import SAYS_TASK_TYPES, TaskTypes
from npu_sim.ascendc.user_headers import include_directories, included
from npu_sim.budget import reserve
from npu_sim.debug.execution import Execution
from npu_sim.engines.numerics import options_of
from npu_sim.errors import ProgramError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product, get_product
from npu_sim.program.launch import CoreKind
from npu_sim.program.violation import Violation
from npu_sim.report.explain import own_recorder
from npu_sim.report.kernel_run import Findings

_KEY_AS_CONSTANT = re.compile(r"\bTILING_KEY_VAR\b|\bconstexpr\s*\([^;{}]*\bTILING_KEY_(?:IS|LIST)\b")
_SCRATCHES = 3
"""Of UB's size, of each vector core."""
_MOST_BLOCKS = 65_535
_LONGEST_SILENCE = 86_400
"""Seconds; what a core may be waited for has to be a time that comes."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a call."""

    emission: Emission
    stopped_by: KernelError | None = None
    printed: str = ""
    refused: tuple[Violation, ...] = ()


class SourceKernel:
    """A kernel of a C++ source; see `compiling.compile`.

    Attributes
    ----------
    source : Source
    name : str
        Of the kernel, with its template arguments.
    kind : "vector", "cube" or "mix"
    """

    def __init__(
        self,
        source: Source,
        name: str,
        cores: KernelCores,
        defines: Sequence[str],
        include: Sequence[str | Path],
        definition: str | Path | None = None,
        *,
        several_in: range = range(0),
    ) -> None:
        self.source, self.name = source, name
        self.kind, self._vectors = cores
        self._task_types = TaskTypes(cores, several_in) if several_in else None
        self._defines, self._include = tuple(defines), tuple(include)
        self._definition = None if definition is None else Path(definition)
        # of the source and its headers as they were when they were first asked for
        self._programs: dict[tuple[int, bool, Types, Kind], Path] = {}
        self._known_types: dict[tuple[tuple[str | None, ...], int], Types] = {}

    @cached_property
    def parameters(self) -> list[str]:
        """Names of the kernel's parameters, as far as its text shows them."""
        return _parameters(self.source, self.name)

    def build(
        self, product: str | Product | None = None, types: Sequence[str | None] = (), tiling_key: int = 0
    ) -> Path:
        """Return the program of the kernel for a product, compiled now unless it is kept.

        Parameters
        ----------
        product : str, Product or None
        types : sequence of str or None
            Of its arguments (``DT_FLOAT``), where it asks for them; None: not known.
        tiling_key : int
            Where it asks for that (``TILING_KEY_VAR``).

        Raises
        ------
        CompilationError
            The compiler refuses the source.
        DTypeError
            The operator's definition has no such combination of types.
        MissingExtraError
            There is no compiler.
        """
        chip, known = _product(product), self._types(types, tiling_key)
        return self._program(chip, known, self._kind_on(chip, known, tiling_key)[0])

    def _program(self, product: Product, types: Types, kind: Kind) -> Path:
        key = product.npu_arch, product.core.is_split, types, kind
        program = self._programs.get(key)
        if program is None or not program.exists():
            program = self._programs[key] = self._made(product, types, kind)
        return program

    def _made(self, product: Product, types: Types, kind: Kind, *asked: str) -> Path:
        defines = (*self._defines, *asked)
        return Build(self.source, self.name, product, kind, defines, self._include, types).program()

    def _kind_on(self, product: Product, types: Types, tiling_key: int) -> tuple[Kind, int]:
        """Return which cores it is for with a tiling key, and the vector cores for each Cube core."""
        if self._task_types is None or not product.core.is_split:
            return self.kind, self._vectors
        build = product.npu_arch, types
        return self._task_types.of(tiling_key, build, lambda: self._made(product, types, self.kind, SAYS_TASK_TYPES))

    def _types(self, given: Sequence[str | None], tiling_key: int) -> Types:
        """Return the macros of its tensors' types, which must be its operator's, asked for or not, and of its key."""
        asked = tuple(given), tiling_key
        if asked not in self._known_types:
            texts = self._texts()
            definition = definition_of(self.source.path, self.name, self._definition)
            types = type_macros(definition, self.parameters, given, self._defines, texts)
            types = types if uses_types(texts) else Types()
            if _names_key(texts):
                types = replace(types, macros=(*types.macros, f"NPUSIM_TILING_KEY={tiling_key}L"))
            self._known_types[asked] = types
        return self._known_types[asked]

    @cached_property
    def _has_tables(self) -> bool:
        return has_tables(self._texts())

    def _texts(self) -> list[str]:
        directories = include_directories(self.source, self._include)
        return [self.source.text, *included(self.source, directories).values()]

    @property
    def asks_for_types(self) -> bool:
        """Whether its program depends on the types of its arguments (``DTYPE_X``)."""
        return uses_types(self._texts())

    @property
    def asks_for_key(self) -> bool:
        """Whether its program depends on the tiling key (``TILING_KEY_VAR``, or a comparison as a constant)."""
        return _names_key(self._texts())

    @default_fenv
    def __call__(
        self,
        *arguments: Any,
        blocks: int = 1,
        tiling: Any = None,
        tiling_key: int = 0,
        product: str | Product | None = None,
        outputs: Sequence[int] = (),
        workspace: Sequence[int] = (),
        accumulation: Accumulation | str | None = None,
        auto_sync: bool = True,
        silence: float = SILENCE_SECONDS,
    ) -> SourceRun:
        """Run the kernel; what it writes is in the arrays behind that.

        Parameters
        ----------
        *arguments
            In the order of the kernel: NumPy arrays where it takes ``GM_ADDR`` (workspace too), numbers, bytes.
        blocks : int
            Blocks (numBlocks of ``<<<>>>``), each a core of the kernel's kind; more than there are take turns.
        tiling : bytes, ctypes structure, array or None
            What the kernel's last parameter points to, or is.
        tiling_key : int
            What TILING_KEY_IS compares with.
        product : str, Product or None
            None: the current product, else Ascend910B2.
        outputs : sequence of int
            Numbers of arguments whose content before means nothing; the checks then hold the kernel to writing all.
        workspace : sequence of int
            Numbers of arguments whose content means nothing before nor behind, as of a device's workspace: to read what
            the kernel has not written there is a finding, and the arrays stay as they are.
        accumulation : Accumulation, str or None
            Model of every Mmad; None: the product's for the type that is multiplied.
        auto_sync : bool
            Whether the compiler of the source is taken to put in barriers between vector instructions and flags of the
            scalar unit, as the vendor's does by default.
        silence : float
            Seconds after which a core that does nothing but compute addresses is ended.

        Raises
        ------
        KernelError
            The kernel broke a rule of a call, crashed, or did not end; with core and line.
        ProgramError
            An instruction is illegal or leaves its tensor; findings with lines.
        CompilationError, MissingExtraError
            See `build`.
        """
        call = blocks, tiling, tiling_key, product, outputs, workspace
        run = self._run(arguments, *call, accumulation, auto_sync, silence, computes=True)
        if run.refused:
            raise ProgramError(run.refused, Findings(run.refused, run.launches).lines())
        if run.stopped_by is not None:
            raise run.stopped_by
        return run

    def check(
        self,
        *arguments: Any,
        blocks: int = 1,
        tiling: Any = None,
        tiling_key: int = 0,
        product: str | Product | None = None,
        outputs: Sequence[int] = (),
        workspace: Sequence[int] = (),
        accumulation: Accumulation | str | None = None,
        auto_sync: bool = True,
        silence: float = SILENCE_SECONDS,
    ) -> SourceRun:
        """Run the kernel as a call does, and return what is wrong instead of raising it (``findings``, ``stopped_by``).

        Behind an instruction that cannot be carried out nothing is computed any more.
        """
        call = blocks, tiling, tiling_key, product, outputs, workspace
        return self._run(arguments, *call, accumulation, auto_sync, silence, computes=True)

    def record(
        self,
        *arguments: Any,
        blocks: int = 1,
        tiling: Any = None,
        tiling_key: int = 0,
        product: str | Product | None = None,
        outputs: Sequence[int] = (),
        workspace: Sequence[int] = (),
        auto_sync: bool = True,
        silence: float = SILENCE_SECONDS,
    ) -> SourceRun:
        """Return what a call would launch without computing it, for times and checks of large tensors.

        A kernel that looks at what it computed (GetValue of UB) cannot be recorded so.
        """
        call = blocks, tiling, tiling_key, product, outputs, workspace
        run = self._run(arguments, *call, None, auto_sync, silence, computes=False)
        if run.stopped_by is not None:
            raise run.stopped_by
        return run

    @default_fenv
    def _run(
        self,
        given: Sequence[Any],
        blocks: int,
        tiling: Any,
        tiling_key: int,
        product: str | Product | None,
        outputs: Sequence[int],
        workspace: Sequence[int],
        accumulation: Accumulation | str | None,
        auto_sync: bool,
        silence: float,
        *,
        computes: bool,
    ) -> SourceRun:
        chip = _product(product)
        all_given = [*given, *([] if tiling is None else [tiling_bytes(tiling)])]
        written, scratch = ints("outputs", outputs), ints("workspace", workspace)
        arguments = Arguments(self.name, self.parameters, all_given, written, scratch)
        key, syncs, patience = _key(tiling_key), flag("auto_sync", auto_sync), _seconds(silence)
        types = self._types(arguments.types(), key)
        kind, vectors = self._kind_on(chip, types, key)
        counts = self._cores(chip, blocks, kind, vectors)
        if kind != "vector":
            # operands and results of Matmul objects that are in UB go through memory
            arguments.add_scratch(_SCRATCHES * counts.get("vector", 1) * chip.core.ub_bytes if len(counts) > 1 else 32)
        if self._has_tables:
            arguments.add_tables(data_of(self._program(chip, types, kind)))
        Accumulation.parse(accumulation, default_accumulation(chip, "fp16"))  # refused before anything is computed
        # what is compared with the arrays at the end is copied
        reserve(f"Memory of {self.name}, twice,", 2 * arguments.gm.total_bytes)
        process = self._process(chip, arguments.gm.total_bytes, patience, types, kind)
        memory: npt.NDArray[np.uint8] = np.frombuffer(process.gm, np.uint8)
        recorder = own_recorder()
        after: dict[str, np.ndarray] = {}
        try:
            arguments.load(process, memory)
            before = _contents(arguments, memory) if computes and recorder and recorder.keeps_tensors else None
            describe(process.control, chip, blocks, counts, key, auto_sync=syncs, computes=computes)
            shared = SharedMemory(arguments.gm, memory) if computes else None
            outcome = self._carry_out(process, arguments, chip, shared, accumulation, sum(counts.values()))
            emission, stopped_by = outcome.emission, outcome.stopped_by
            launches = launches_of(self.name, emission, counts, arguments, auto_sync=syncs)
            if stopped_by is None and computes and not outcome.refused:
                arguments.store(memory, emission.may_have_stored)
                after = {} if before is None else _contents(arguments, memory)
        finally:
            process.close()
        run = SourceRun(
            name=self.name,
            call=arguments.words(),
            product=chip,
            launches=launches,
            stopped_by=stopped_by,
            refused=located(outcome.refused, launches),
            cut=located(emission.told.cuts, launches),
            printed=outcome.printed,
            types=types.note,
        )
        execution = None
        if before is not None and after:
            execution = Execution(
                launches=launches,
                product=chip,
                tensors=before,
                results={
                    place.name: after[place.name]
                    for place in arguments.gm.tensors
                    if place.is_output or not np.array_equal(after[place.name], before[place.name])
                },
                options=options_of(chip, run.rows(), accumulation),
            )
        if recorder is not None:
            recorder.add(lambda: replace(run.explanation, execution=execution))
        return run

    def _process(self, product: Product, gm_bytes: int, silence: float, types: Types, kind: Kind) -> Process:
        """Return the program that runs the kernel, not started."""
        return Process(self._program(product, types, kind), gm_bytes, silence)

    def _carry_out(
        self,
        process: Process,
        arguments: Arguments,
        product: Product,
        memory: SharedMemory | None,
        accumulation: Accumulation | str | None,
        core_count: int,
    ) -> _Outcome:
        """Run what the program hands over, or has handed over in an earlier call."""
        call = call_of(process, arguments)
        kept = None if memory is None else SHELF.of(call, product)
        if kept is not None and memory is not None and memory.arena is not None:
            if run_again(kept, memory, accumulation):
                return _Outcome(kept.emission)
            arguments.load(process, memory.arena)  # whoever runs the program finds the row again
        cores = Cores(process, product, memory, accumulation, core_count)
        try:
            stopped_by, printed = self._serve(process, cores, product)
        finally:
            cores.close()
        outcome = _Outcome(cores.emission, stopped_by, printed, tuple(cores.refused))
        if stopped_by is None and not printed and not outcome.refused and SHELF.wants(call):
            kept = cores.kept(outcome.emission, arguments.data)
            if kept is not None:
                SHELF.keep(call, kept)
        return outcome

    def _serve(self, process: Process, cores: Cores, product: Product) -> tuple[KernelError | None, str]:
        """Take what the program hands over until it ends; return what stopped it, and what it printed."""
        printed: list[str] = []
        try:
            status = process.start()
            while True:
                rows = cores.keep()
                if status is Status.DONE:
                    cores.run_last(rows)
                    return None, "".join(printed)
                if status is Status.ROWS:  # it makes more while these run
                    process.go_on()
                cores.run(rows)
                if status is Status.READ and not cores.refused:
                    cores.answer()
                elif status is Status.READ:
                    raise process.error("cannot read a value behind what could not be computed")
                elif status is Status.PRINT:
                    printed.append(process.text())
                elif status in (Status.REFUSED, Status.CRASHED, Status.DEADLOCK):
                    raise process.error(process.text())
                if status is not Status.ROWS:
                    process.go_on()
                status = process.listen()
        except KernelError as error:
            cores.run(cores.keep_lots())
            where = "" if error.line is None else f", {error.line}"
            text = f"{error} ({self.name}, {product.name}{where})"
            return KernelError(text, error.line, error.core), "".join(printed)

    def _cores(self, product: Product, blocks: int, kind: Kind, vectors: int) -> dict[CoreKind, int]:
        """Return how many cores of each kind run the kernel; more blocks than cores take turns."""
        is_split = product.core.is_split
        limit = product.vector_core_count if kind == "vector" else product.cube_core_count
        if isinstance(blocks, bool) or not isinstance(blocks, int | np.integer) or not 1 <= blocks <= _MOST_BLOCKS:
            words = f"blocks must be in [1, {_MOST_BLOCKS}], not {shown(blocks)}"
            raise ShapeError(f"{words} ({self.name}, {product.name})")
        at_once = min(int(blocks), limit, MAX_CORES)
        if kind == "mix" and is_split:
            return {"cube": at_once, "vector": at_once * vectors}
        return {"vector" if kind == "vector" else "cube": at_once}

    def __repr__(self) -> str:
        return f"{self.name} of {self.source.path}"


def _key(tiling_key: int) -> int:
    """Return a tiling key as a word of 64 bits: kernels have them with and without sign."""
    given = tiling_key - 2**64 if isinstance(tiling_key, int) and 2**63 <= tiling_key < 2**64 else tiling_key
    return whole("tiling_key", given)


def _seconds(silence: float) -> float:
    if isinstance(silence, bool) or not isinstance(silence, int | float) or not 0 < silence <= _LONGEST_SILENCE:
        raise ShapeError(f"silence must be seconds, more than 0 and at most {_LONGEST_SILENCE}, not {shown(silence)}")
    return float(silence)


def _contents(arguments: Arguments, memory: npt.NDArray[np.uint8]) -> dict[str, np.ndarray]:
    """Return copies of the bytes of every tensor, by name."""
    places = arguments.gm.tensors
    return {place.name: memory[place.address : place.address + place.byte_count].copy() for place in places}


def _names_key(texts: Iterable[str]) -> bool:
    return any(_KEY_AS_CONSTANT.search(without_text(text)) for text in texts)


def _product(product: str | Product | None) -> Product:
    return current_product() if product is None else get_product(product)


def _parameters(source: Source, kernel: str) -> list[str]:
    """Return the names of the kernel's parameters, as far as its text shows them."""
    name = re.escape(kernel.partition("<")[0].rpartition(":")[2])
    found = re.search(rf"\bvoid\s+{name}\s*\(([^()]*)\)", source.text)
    return parameter_names(found[1]) if found else []

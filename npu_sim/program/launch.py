"""A launch: one kernel on some cores, as a generator of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from npu_sim.errors import InternalError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.program.violation import Violation

Kernel = Callable[[np.ndarray, np.ndarray, int, int], Iterator[int]]
"""``kernel(rows, params, core, phase)``, see `Launch.kernel`."""


class PhaseKernels:
    """A kernel whose phases are jitted generators of their own.

    Parameters
    ----------
    *phases : callable
        By phase: what writes its rows, see `Launch.kernel`.
    """

    def __init__(self, *phases: Kernel) -> None:
        self.phases = phases

    def __call__(self, rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
        """Write the rows of one core and phase."""
        return self.phases[phase](rows, params, core, phase)


class BlockKernels:
    """The kernels of a mixed launch, each a jitted generator of its own.

    Parameters
    ----------
    block_count : int
        Blocks of the launch.
    cube, vector : callable
        What writes the rows of a Cube core, by its block, and of a vector core, by its number among those; see
        `Launch.kernel`.
    """

    def __init__(self, block_count: int, cube: Kernel, vector: Kernel) -> None:
        self.block_count, self.cube, self.vector = block_count, cube, vector

    def __call__(self, rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
        """Write the rows of one core and phase."""
        if core < self.block_count:
            return self.cube(rows, params, core, phase)
        return self.vector(rows, params, core - self.block_count, phase)


CoreKind = Literal["cube", "vector"]

InputPlace = Literal["memory", "unknown", "l2"]

FixedCost = Literal["kernel", "float_matmul", "vector", "wide_vector", "trans_data", "transpose", "reduce_sum"]

ErrorKind = Literal["matmul", "float_matmul", "static_matmul", "tiled_matmul", "vector_product", "cast", "trans_data"]
"""Kinds of kernels that are nearer to measured ones, or farther, than others with the same fixed cost: matrix products
of 16 bits and of float32 whose tiling is searched, tuning records asked without their tiling, products whose own tiling
is given, those on the vector unit, casts, TransData that is timed as a copy."""

Doubt = Literal["short_k", "ragged_rows"]
"""What makes the time of a kernel less certain than that of others of its kind: a matrix product of few steps along K,
row-major matrices whose rows begin anywhere in a block of 32 bytes."""


class SourceLine(NamedTuple):
    """Where in the user's source an instruction is."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Shortcut = Callable[[GlobalMemory, bool, int], None]


@dataclass(slots=True)
class KeptRows:
    """What `engines.execute` keeps of a launch: its rows, if it ran before and they are few.

    Attributes
    ----------
    runs : int
        How often it ran before its rows were made to be kept, if they are: 0, 1, and 2 from then on.
    rows : INSTR[n] or None
        The issued rows of phase after phase, of core after core.
    ends : int64[phases, cores] or None
        Where those of each end.
    sharers : mapping of int to bool[cores, cores]
        By phase, which cores add to the same bytes of GM (`engines.shared_adds`).
    """

    runs: int = 0
    rows: np.ndarray | None = None
    ends: np.ndarray | None = None
    sharers: dict[int, np.ndarray] = field(default_factory=dict)

    def of(self, core: int, phase: int) -> np.ndarray | None:
        """Return the rows of one core and phase, None if none are kept."""
        if self.rows is None or self.ends is None:
            return None
        place = phase * self.ends.shape[1] + core
        return self.rows[self.ends.flat[place - 1] if place else 0 : self.ends.flat[place]]


def stored_plainly(tensor: GmTensor, stores: Iterable[tuple[int, int]]) -> bool:
    """Return whether a tensor has any of the bytes `Launch.plain_stores`."""
    end = tensor.address + tensor.byte_count
    return any(first < end and tensor.address < last for first, last in stores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    name : str
        Kernel name for reports.
    kernel : callable
        Jitted generator ``kernel(rows: INSTR[:], params: record[1], core: int, phase: int)``: writes the rows of the
        core and phase to ``rows``. Whenever there is no room for the next step, and at the end, it yields how many it
        has written from index 0 and begins there again, so a program never has to exist as a whole.
    params : structured array of length 1
        Tiling and addresses.
    core_count : int
        Emulated cores (block_dim).
    phase_count : int
        Phases; all cores finish a phase before any starts the next (SyncAll between them). What a core keeps from one
        to the next: `keeps_cores`.
    gm : GlobalMemory
        Tensors the kernel reads and writes.
    step_rows : int
        Room the kernel needs for one indivisible step; engines give at least this much.
    sites : mapping of int to str
        Names of the ``site`` numbers, for messages.
    lines : mapping of int to SourceLine
        File, line and function of the ``site`` numbers, where the kernel is the user's own source.
    buffers : mapping of int to str
        Names of the ``buffer`` numbers of AllocTensor and FreeTensor rows, for messages.
    auto_sync : bool
        Whether the compiler of the source puts barriers between dependent vector instructions by itself, as
        bisheng does for kernels of C++ sources unless told otherwise; rows and Python kernels say theirs.
    trusted : bool
        True: the execute engine runs the rows unchecked, as it does those of this project's kernels, which tests hold
        to every limit. False: it first checks legality and GM bounds, because jitted code has no bounds checks.
    core_kind : "cube" or "vector"
        Which cores of a product with separate ones run it; the cores of the others are both. Of a mixed launch "cube".
    vectors : 0, 1 or 2
        Vector cores of each Cube core of a mixed launch (MIX 1:1 and 1:2). Its cores are numbered block by block within
        a kind: of ``b`` blocks the Cube cores are 0 to b - 1, and vector core ``i`` of block ``j`` is number b + j *
        vectors + i, which is its GetBlockIdx plus b (`kind_of`, `block_of`). 0: all cores are of `core_kind`.
    crosses : bool
        Whether rows set and wait for flags of other cores (CrossCoreSetFlag, CrossCoreWaitFlag). Then, and in mixed
        launches, the cores of a phase run by turns (`by_turns`).
    fixed_cost : str
        Which of the product's ``cost.*_fixed_cycles`` a core takes beside its rows: what the library's kernel of that
        kind needs to fetch its code and read its tiling.
    error_kind : str or None
        Which of the product's ``cost.*_model_error_permille`` says how far the model is from measured kernels of the
        kind; None: that of `fixed_cost`.
    stands_for_record : bool
        Its tiling is the cheapest of a search and stands for the one of a tuning record, which is worse by the
        product's ``cost.record_tiling_permille``.
    doubts : tuple of str
        What else leaves its time open; each has a ``cost.*_model_error_permille``, independent of that of the kind.
    inputs : "memory", "unknown" or "l2"
        Where tensors are that were initialised before the launch, as far as L2 has room: those of a caller were last
        used long ago, those of a kernel that stands behind another were just written.
    code_in_memory : bool
        Whether the code of the kernel is in memory when it is launched, as that of a call that was last made long ago;
        else it is in L2, where kernels that ran a short while ago are.
    reuse_bytes : int or None
        Most bytes that all cores touch between two uses of the same ones; None: all that the launch touches.
    list_commands : int
        Commands, in thousandths, that the library's kernel of that kind issues where this one has a TransDataTo5HD,
        each with addresses that it computes; 0: it has the instruction too, with a list of a base and steps.
    shortcut : callable or None
        ``shortcut(memory, saturate, threads)`` has the effect of the whole launch on the tensors of a `GlobalMemory`,
        which it asks for by `GlobalMemory.bytes_of`, bit for bit, in less time than its rows take: for kernels that
        only move, convert or add in a fixed order. Tests hold it to the rows.
    plain_stores : tuple of (int, int)
        Bytes of global memory, [begin, end), that whoever made the rows stored to without one, as a C++ kernel does by
        a plain pointer, or beside such bytes. They count as written when the launch begins.
    filled : tuple of (int, int)
        Bytes of tensors that do not count as initialised, [begin, end), which were written before the launch begins.
    known : tuple of Violation
        What whoever made the rows knows to be undefined on a device and no row shows; the hazards engine reports it.
    kept : KeptRows
        Of this launch alone: one that `replace` makes of it begins anew.
    """

    name: str
    kernel: Kernel
    params: np.ndarray
    core_count: int
    gm: GlobalMemory
    phase_count: int = 1
    step_rows: int = 64
    sites: dict[int, str] = field(default_factory=dict)
    lines: dict[int, SourceLine] = field(default_factory=dict)
    buffers: dict[int, str] = field(default_factory=dict)
    auto_sync: bool = False
    trusted: bool = False
    core_kind: CoreKind = "cube"
    vectors: int = 0
    crosses: bool = False
    fixed_cost: FixedCost = "kernel"
    error_kind: ErrorKind | None = None
    stands_for_record: bool = False
    doubts: tuple[Doubt, ...] = ()
    inputs: InputPlace = "memory"
    code_in_memory: bool = False
    reuse_bytes: int | None = None
    list_commands: int = 0
    shortcut: Shortcut | None = None
    plain_stores: tuple[tuple[int, int], ...] = ()
    filled: tuple[tuple[int, int], ...] = ()
    known: tuple[Violation, ...] = ()
    kept: KeptRows = field(init=False, repr=False, compare=False, default_factory=KeptRows)

    @property
    def keeps_cores(self) -> bool:
        """Whether a core keeps from phase to phase what its buffers hold, its flags, SetAtomicAdd and SetHF32Mode.

        A device does. Kernels of this project (`trusted`) leave nothing behind a SyncAll that they need, so for them
        every engine begins each phase anew, and memories of cores are as many as host threads. Cores that run by turns
        (`by_turns`) keep it anyway.
        """
        return self.by_turns or (self.phase_count > 1 and not self.trusted)

    @property
    def by_turns(self) -> bool:
        """Whether the cores of a phase run by turns, each until it waits for a flag of another that is not set.

        A core then goes on where it was, its generator kept: every engine asks it for its next rows when those before
        have had their effect.
        """
        return self.crosses or self.vectors > 0

    @property
    def blocks_apart(self) -> bool:
        """Whether blocks of a mixed launch need nothing of each other but SyncAll, nor add to the same memory.

        So do kernels of this project that do not say `crosses`: `execute` runs their blocks on several threads.
        """
        return self.trusted and self.vectors > 0 and not self.crosses

    @property
    def block_count(self) -> int:
        """Blocks: Cube cores of a mixed launch, else cores."""
        return self.core_count // (1 + self.vectors)

    @property
    def sharing_cores(self) -> int:
        """Cores that share L2 and memory: of a mixed launch those of one kind, as both are seldom busy at once."""
        return self.block_count * max(self.vectors, 1)

    def cores_of(self, block: int) -> tuple[int, ...]:
        """Return the cores of a block, the Cube core first."""
        first = self.block_count + block * self.vectors
        return (block, *range(first, first + self.vectors))

    def kind_of(self, core: int) -> CoreKind:
        """Return the kind of a core by its number."""
        return self.core_kind if core < self.block_count else "vector"

    def block_of(self, core: int) -> int:
        """Return the block that a core belongs to."""
        blocks = self.block_count
        return core if core < blocks else (core - blocks) // self.vectors

    def place_of(self, site: int) -> str:
        """Return where a site is: file and line, else its name, else ""."""
        return str(self.lines.get(site) or self.sites.get(site) or "")

    @property
    def cores_in_words(self) -> str:
        """How many cores of which kinds."""
        blocks = self.block_count
        if not self.vectors:
            return f"{blocks} {self.core_kind}"
        return f"{blocks} cube and {blocks * self.vectors} vector"

    def __post_init__(self) -> None:
        if self.vectors not in (0, 1, 2) or self.core_count % (1 + self.vectors):
            rule = "core_count must be whole blocks of a Cube core and 0 to 2 vector cores"
            raise InternalError(f"{rule}, not {self.core_count} cores with {self.vectors} each ({self.name})")

    def rows(self, core: int, phase: int, buffer: np.ndarray) -> Iterator[int]:
        """Write the rows of one core and phase to ``buffer``, as many at a time as it holds; yield each time how many.

        Parameters
        ----------
        core, phase : int
            Whose rows.
        buffer : INSTR[step_rows or more]
            Overwritten when the next number is asked for.

        Raises
        ------
        InternalError
            If the kernel says that it wrote more than the buffer holds.
        """
        for count in self.kernel(buffer, self.params, core, phase):
            if not 0 <= count <= len(buffer):
                raise InternalError(f"Kernel of {self.name} must write 0 to {len(buffer)} rows, not {count}")
            if count:
                yield count

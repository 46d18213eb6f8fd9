"""What the machine knows of one instruction: a record that each module of `npu_sim.isa.instructions` makes.

Engines, checks, disassembly, builder and tests are put together from these records, so a new instruction is a new
module and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, C100, C220, M200, Data, Pipe, Space
from npu_sim.isa.emitter import stores_of
from npu_sim.products import Product

Range = tuple[str, int, int]
"""Field, lowest and highest value."""
Path = tuple[Space, Space]
"""Destination and source."""
Preparation = list[tuple[Callable[..., None], tuple[int, ...]]]
"""Functions that fill operands of a row before its emitter completes it, with what follows rows and row number."""
Index = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

ITEM = -1
"""In `Instruction.alignment`: the address must be a multiple of the bytes of an element of ``dtype``."""

DEVKIT = "asc-devkit docs/zh/api/SIMD-API/"
SPLIT = frozenset({C220})
UNIFIED = frozenset({C100, M200})
MOVE_FIELDS = ("dst_space", "dst", "src0_space", "src0", "dtype")
"""Fields of what goes from one space to another."""
EVERY_PIPE = (Pipe.S, Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.FIX)

BYTE, SHORT, WORD = 255, 32767, 65535
"""Largest operands of the usual widths."""
COUNT: tuple[Range, ...] = (("count", 0, 2**31 - 1),)

HALF = frozenset({Data.FP16})
B8 = frozenset({Data.INT8, Data.UINT8})
UNIFIED_B16 = frozenset({Data.FP16, Data.INT16})
B16 = frozenset({Data.FP16, Data.BF16, Data.INT16})
B32 = frozenset({Data.FP32, Data.INT32})
FLOATS = frozenset({Data.FP16, Data.FP32})
ANY = frozenset(Data)
ARITHMETIC = {C100: HALF | B32, M200: UNIFIED_B16 | B32, C220: UNIFIED_B16 | B32}
"""Types the vector unit adds, by architecture."""
WITH_SCALAR = ARITHMETIC | {C100: FLOATS}
"""Types it combines with a scalar."""
TO_L0 = frozenset({(Space.L0A, Space.L1), (Space.L0B, Space.L1)})


class Rows(Protocol):
    """Rows of one opcode under static check, see `program.verify`; ``index`` says which of them."""

    rows: np.ndarray
    product: Product

    def column(self, index: Index, name: str) -> npt.NDArray[np.int64]:
        """Return a field of ``rows[index]`` as int64."""

    def item_bytes(self, index: Index) -> npt.NDArray[np.int64]:
        """Return the bytes of an element of the ``dtype`` of ``rows[index]``."""

    def ranges(self, index: Index, ranges: Iterable[Range]) -> None:
        """Report fields outside their ranges."""

    def rule(self, index: Index, bad: Flags, name: str, rule: str) -> None:
        """Report fields that break a rule: "<name> must be <rule>, not <value>"."""

    def misaligned(self, index: Index, bad: Flags, name: str, rule: str) -> None:
        """Report addresses that break a rule."""

    def unsupported(self, index: Index, bad: Flags, text: Callable[[np.void], str]) -> None:
        """Report ``rows[index[bad]]``; ``text`` says what is wrong with one of them."""


@jit
def touches_nothing(row: Any, out: Any) -> int:
    """Footprint of an instruction without memory operands."""
    return 0


@jit
def changes_nothing() -> bool:
    """Semantics of an instruction that only orders others or is core state that rows carry (`isa.issue`)."""
    return True


@jit
def only_issues(cost: Any) -> Any:
    """Cost of an instruction that is done when it is handed over."""
    return cost["issue_cycles"], np.int64(0), np.int64(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Elementwise:
    """What an instruction of the vector unit computes, element by element (`isa.vector`).

    Attributes
    ----------
    floats : jitted function or None
        Of one or two float32: the result for ``float``, and before it is rounded for half.
    halves : jitted function or None
        Of float32 from half: what is rounded to half, where two roundings of ``floats`` would show.
    integers : jitted function or None
        Of one or two int64: the exact result, which the machine fits into the type.
    reference : callable
        The same of float64 or int64 arrays, written independently with NumPy, for the tests.
    then : Elementwise or None
        What is computed of the result, after it was rounded to the type; of it alone or of it and a third operand.
    order : tuple of str
        Fields of the operands, first those of the function, then that of ``then``; ``dst`` is what the result replaces.
    keeps_sign : bool
        Whether an integer result keeps the sign bit of its first operand, and of ``integers`` only the bits below.
    is_unsigned : bool
        Whether ``integers`` gets its first operand as an integer without a sign, and all bits of its result are kept.
    common : bool
        Whether most programs have its count form: those are compiled together, all others one by one.
    """

    floats: Any = None
    halves: Any = None
    integers: Any = None
    reference: Callable[..., Any]
    then: Elementwise | None = None
    order: tuple[str, ...] = ()
    keeps_sign: bool = False
    is_unsigned: bool = False
    common: bool = False

    @property
    def arguments(self) -> int:
        """Number of operands of the function, without that of ``then``."""
        return min(len(self.order), 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Instruction:
    """One instruction.

    Attributes
    ----------
    api : str
        Name in Ascend C.
    emit : jitted function
        Of `npu_sim.isa.emitter`; what it writes whatever the operands says what is not given below.
    op : int
        Opcode, 1 to 254, of this instruction alone; that of the emitter.
    fields : tuple of str
        Fields of `row.INSTR` that carry operands, in the order of the disassembly; those of the emitter if none are
        given. All others are undefined.
    source : str
        Where the instruction is documented.
    archs : frozenset of str
        Compiler architectures that have it; if none are given those of the types, or all.
    routes : mapping of (destination, source) to Pipe
        Data paths and the pipe each runs on; `Space.NONE` for an operand it does not have. If none are given that of
        operands in UB on the pipe of the vector unit.
    pipes : tuple of Pipe
        Pipes of an instruction that moves no data; else those of ``routes``.
    spaces : mapping of str to Space
        Spaces of operands (``dst``, ``src0``, ``src1``) whose row has no field for them, beside those of the emitter.
    paths : mapping of str to frozenset
        Data paths by architecture, where not all ``routes`` exist.
    ranges : tuple of Range
        Ranges of fields that hold on every architecture.
    dtypes, dst_dtypes : mapping of str to frozenset of Data
        Values of ``dtype`` and ``dst_dtype`` by architecture; nothing for fields whose values are not judged alone.
    modes : mapping of str to int
        Bits of ``mode`` by architecture.
    alignment : mapping of str to int
        Alignment of operands in bytes, or `ITEM`, where it is not that of the space.
    own_types : tuple of str
        Operands whose elements are not of ``dtype``: offsets, indices, bits.
    scalar_type : Data or None
        Type of a number among the operands; None: that of the first source.
    any_value : bool
        Whether that number may be any: no rule looks at it.
    by_data : str
        What addresses that it computes from data must be, if it does: their bytes are in the footprint as far as they
        may reach, and data that leads elsewhere ends the run.
    adds : bool
        Whether its stores to GM obey SetAtomicAdd.
    unit : "cube", "vector" or None
        Which of the two it belongs to; None: both.
    footprint : jitted function
        Of ``row, out``: notes boxes (`footprint_boxes`) and returns their number or what is wrong.
    leaves_open : jitted function, optional
        Of ``row, out``: as ``footprint``, of the written bytes of UB whose contents no document says.
    run : jitted function or None
        The semantics: takes those of `dispatch.MACHINE` it names, returns whether it was carried out, False for types
        the machine does not compute with. None: `elementwise` says what it computes, or, of a general form, what the
        count form makes of the active lanes of each repeat (`isa.general_form`).
    elementwise : Elementwise, optional
    reads_dst : bool
        Of a count form: whether what the result replaces is an operand.
    masked : Instruction or None
        The general form of an instruction whose record is that of the count form (`isa.masked`).
    general_form_of : int
        For a general form: opcode of the count form; else 0.
    cost : jitted function
        Of ``row, cost``: (occupancy, latency, bytes), see `isa.cost`.
    issue_cost : str
        Parameter with the scalar unit's cycles to hand it over.
    extent : jitted function, optional
        Of ``row``: (first byte, byte behind the last) in GM, for instructions that reach GM.
    log_demand : jitted function, optional
        Of ``row``: (runs, bytes) of the log that its atomic additions need at most.
    check : callable, optional
        Of `Rows` and an index: what the tables above cannot say of legal operands.
    text : callable, optional
        Of a row: its disassembly behind the pipe, where it is not name and operands.
    defaults : mapping of str to int
        Defaults of the emitter's operands in `program.builder.ProgramBuilder`.
    prepare : mapping of str to callable
        Further operands of the builder's method: from the value to its `Preparation`, or to what is wrong with it.
    by_position : bool
        Whether the builder's method takes its operands by position.
    """

    api: str
    emit: Any
    op: int = field(init=False)
    source: str
    fields: tuple[str, ...] = ()
    archs: frozenset[str] = frozenset()
    routes: Mapping[Path, Pipe] = field(default_factory=dict)
    pipes: tuple[Pipe, ...] = ()
    spaces: Mapping[str, Space] = field(default_factory=dict)
    paths: Mapping[str, frozenset[Path]] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()
    dtypes: Mapping[str, frozenset[Data]] = field(default_factory=dict)
    dst_dtypes: Mapping[str, frozenset[Data]] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    alignment: Mapping[str, int] = field(default_factory=dict)
    own_types: tuple[str, ...] = ()
    scalar_type: Data | None = None
    any_value: bool = False
    by_data: str = ""
    adds: bool = False
    unit: Literal["cube", "vector"] | None = None
    footprint: Any = touches_nothing
    leaves_open: Any = None
    run: Any = changes_nothing
    elementwise: Elementwise | None = None
    reads_dst: bool = False
    masked: Instruction | None = None
    general_form_of: int = 0
    cost: Any = only_issues
    issue_cost: str = "issue_cycles"
    extent: Any = None
    log_demand: Any = None
    check: Callable[[Any, Index], None] | None = None
    text: Callable[[np.void], str] | None = None
    defaults: Mapping[str, int] = field(default_factory=dict)
    prepare: Mapping[str, Callable[[Any], Preparation | str]] = field(default_factory=dict)
    by_position: bool = False

    def __post_init__(self) -> None:
        stores = stores_of(self.emit)
        self._set("op", stores["op"])
        if not self.fields:
            self._set("fields", getattr(self.emit, "py_func", self.emit).fields)
        own = {
            name: Space(stores[f"{name}_space"])
            for name in ("dst", "src0", "src1")
            if isinstance(stores.get(f"{name}_space"), int) and f"{name}_space" not in self.fields
        }
        self._set("spaces", {**own, **self.spaces})
        if not self.routes and own.get("dst") == Space.UB and stores["pipe"] == Pipe.V:
            self._set("routes", {(Space.UB, own.get("src0", Space.NONE)): Pipe.V})
        if not self.archs:
            self._set("archs", frozenset(self.dtypes or self.dst_dtypes or ARCHS))
        if self.routes:
            self._set("pipes", tuple(dict.fromkeys(self.routes.values())))
            if not self.paths:
                self._set("paths", dict.fromkeys(self.archs, frozenset(self.routes)))

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute that follows from others."""
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """Name of the opcode: that of the emitter, in capitals."""
        return str(self.emit.__name__).removeprefix("emit_").upper()

    @property
    def inputs(self) -> int:
        """Number of vectors an element-wise instruction reads."""
        return sum(name in self.fields for name in ("src0", "src1"))

    def highest(self, field_name: str) -> int:
        """Return the largest value of an operand."""
        return next(high for name, _, high in self.ranges if name == field_name)

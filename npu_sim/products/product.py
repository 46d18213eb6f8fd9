"""What a product is: the frozen records that engines, tilings and kernels read instead of comparing names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from npu_sim.errors import ProductError
from npu_sim.products.cost import CostParams
from npu_sim.products.source import FrozenMapping, Source, Sources
from npu_sim.units import BLOCK_BYTES, REPEAT_BYTES

CUBE_DTYPES = ("fp16", "bf16", "fp32", "hf32", "int8", "int4")
"""Operand types a Cube can have. ``hf32`` is fp32 data rounded when it is multiplied."""

OVERFLOW_MODES = ("inf_nan", "saturate")
PIPES_WITH_BARRIERS = ("V", "M", "MTE1", "MTE2", "MTE3", "FIX")
HF32_TIES = ("even", "away", "toward_zero")
MAX_GROUP = 4095
"""Largest k of one Mmad (asc-devkit, Mmad: m, n and k lie in 0..4095), hence the longest group that can matter."""
ACCUMULATION_INNER = ("exact", "tree", "serial")
ACCUMULATION_ROUNDS = ("rne", "rz")
ACCUMULATION_PARTS: Mapping[str, tuple[str, ...]] = FrozenMapping(
    {"subnormals": ("flush", "keep"), "overflow_to": ("inf", "max"), "saturates": ("operands", "results")}
)
"""Parts of a model of additions, described at `npu_sim.Accumulation`; names of models leave the first values out."""

AccumulationModel = tuple[int, str, str]
"""(group, inner, round): k terms summed per rounding, how the group is summed, how the sum is rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSet:
    """What the emulator's instructions of one compiler architecture decide of a product's facts.

    Attributes
    ----------
    is_split, has_fixpipe, has_load3d_v1, has_load3d_v2 : bool
        As in `CoreSpec`.
    cube_dtypes : frozenset of str
        Operand types an Mmad can have; a product may have fewer.
    least_l0_bytes : tuple of int
        What the kernels for it count on of L0A, L0B and L0C; a product may have more.
    """

    is_split: bool
    has_fixpipe: bool
    has_load3d_v1: bool
    has_load3d_v2: bool
    cube_dtypes: frozenset[str]
    least_l0_bytes: tuple[int, int, int]


ARCHS: Mapping[str, InstructionSet] = FrozenMapping(
    {
        "dav-c100": InstructionSet(
            is_split=False, has_fixpipe=False, has_load3d_v1=True, has_load3d_v2=False,
            least_l0_bytes=(65536, 65536, 262144),
            cube_dtypes=frozenset({"fp16", "int8"}),
        ),
        "dav-m200": InstructionSet(
            is_split=False, has_fixpipe=False, has_load3d_v1=True, has_load3d_v2=True,
            least_l0_bytes=(65536, 65536, 262144),
            cube_dtypes=frozenset({"fp16", "int8", "int4"}),
        ),
        "dav-c220": InstructionSet(
            is_split=True, has_fixpipe=True, has_load3d_v1=False, has_load3d_v2=True,
            least_l0_bytes=(65536, 65536, 131072),
            cube_dtypes=frozenset(CUBE_DTYPES),
        ),
    }
)  # fmt: skip
"""The instruction sets that are modelled. A product of another one needs instructions, not only a product file."""

FRACTAL_EDGE = 16
LEAST_L1_BYTES = 1024
"""Two fractals; no tiling has blocks for less."""

_MOST: tuple[tuple[str, int], ...] = (
    ("core.", 2**26),
    ("_core_count", 2**16),
    ("_hz", 10**12),
    ("_bytes", 2**50),
    ("hf32_mantissa_bits", 23),
)
"""Largest values, by a part of the name: what the engines' integers hold with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSpec:
    """One AI Core: buffers, Cube, vector unit and what its instruction set has.

    On split products (`is_split`) the Cube core owns L1, L0A, L0B, L0C, BT and FB, and each of its vector cores a UB.

    Attributes
    ----------
    l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes, ub_bytes : int
        Capacity of the buffers.
    bt_bytes : int
        Bias table; 0 where there is none.
    fb_bytes : tuple of int
        Fixpipe parameter buffers FB0..FB3; empty where there is none.
    cube_m, cube_n : int
        Rows and columns of the multiplier array, elements.
    cube_k : mapping of str to int
        Products per output element and cycle by operand type, elements. The keys are the operand types of the Cube.
    vector_bytes_per_repeat : int
        Bytes of one operand that one vector repeat processes.
    ub_block_bytes, ub_bank_bytes, ub_bank_count, ub_bank_group_count : int
        Geometry of the UB: ``ub_bank_count`` banks of ``ub_bank_bytes``, interleaved by blocks over the groups.
        Programs may have a little less than the banks hold.
    has_fixpipe : bool
        L0C leaves through the FIX pipe (else over the UB).
    is_split : bool
        Cube and vector units are different cores, joined through global memory.
    has_load3d_v1, has_load3d_v2 : bool
        Image-to-column loads: the window walker, and the one that reads a slice of the virtual matrix.
    load3d_cannot_make_width_one : bool
        Image-to-column cannot produce an output of width 1 and height above 1.
    event_count : int
        Event ids per ordered pair of pipes.
    barrier_pipes : tuple of str
        Pipes on which an instruction needs a PipeBarrier behind the one whose result it reads or overwrites. Pipe M
        orders large Mmads by itself (`npu_sim.program.limits.MMAD_BARRIER_ELEMS`), the scalar unit everything.
    """

    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    ub_bytes: int
    bt_bytes: int
    fb_bytes: tuple[int, ...]
    cube_m: int
    cube_n: int
    cube_k: Mapping[str, int]
    vector_bytes_per_repeat: int
    ub_block_bytes: int
    ub_bank_bytes: int
    ub_bank_count: int
    ub_bank_group_count: int
    has_fixpipe: bool
    is_split: bool
    has_load3d_v1: bool
    has_load3d_v2: bool
    load3d_cannot_make_width_one: bool
    event_count: int
    barrier_pipes: tuple[str, ...]

    @property
    def quantisation_bytes(self) -> int:
        """What the Fixpipe buffer has for quantisation parameters: FB0."""
        return self.fb_bytes[0] if self.fb_bytes else 0

    @property
    def index_bytes(self) -> int:
        """The buffer of LoadDataWithSparse for indices, which split cores have (its page: a quarter of L0B)."""
        return self.l0b_bytes // 4 if self.is_split else 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cube_k", FrozenMapping(self.cube_k))
        object.__setattr__(self, "barrier_pipes", tuple(self.barrier_pipes))
        rule = f"among {', '.join(PIPES_WITH_BARRIERS)}"
        _require(set(self.barrier_pipes) <= set(PIPES_WITH_BARRIERS), "barrier_pipes", rule, self.barrier_pipes)
        object.__setattr__(self, "fb_bytes", tuple(self.fb_bytes))
        for name in (
            "l1_bytes", "l0a_bytes", "l0b_bytes", "l0c_bytes", "ub_bytes", "event_count", "ub_bank_count",
            "ub_bank_bytes", "ub_bank_group_count",
        ):  # fmt: skip
            _require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        _require(self.l1_bytes >= LEAST_L1_BYTES, "l1_bytes", f"at least {LEAST_L1_BYTES}", self.l1_bytes)
        for name, only in (
            ("cube_m", FRACTAL_EDGE), ("cube_n", FRACTAL_EDGE), ("ub_block_bytes", BLOCK_BYTES),
            ("vector_bytes_per_repeat", REPEAT_BYTES),
        ):  # fmt: skip
            _require(
                getattr(self, name) == only, name, f"{only}, which every instruction counts in", getattr(self, name)
            )
        for dtype, products in self.cube_k.items():
            _require(dtype in CUBE_DTYPES, "cube_k", f"keyed by {', '.join(CUBE_DTYPES)}", dtype)
            _require(products >= 1, f"cube_k[{dtype!r}]", "at least 1", products)
        banked, groups = self.ub_bank_bytes * self.ub_bank_count, self.ub_bank_group_count
        spare = self.ub_bank_bytes * groups
        right = self.ub_bytes <= banked < self.ub_bytes + spare
        rule = f"ub_bytes = {self.ub_bytes} or less than {spare} more"
        _require(right, "ub_bank_bytes * ub_bank_count", rule, banked)
        _require(self.ub_bank_count % groups == 0, "ub_bank_count", f"a multiple of {groups}", self.ub_bank_count)
        for name in ("l1_bytes", "l0a_bytes", "l0b_bytes", "l0c_bytes", "ub_bytes"):
            size = getattr(self, name)
            _require(size % BLOCK_BYTES == 0, name, f"a multiple of {BLOCK_BYTES}", size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One SoC (one die of it, where a package holds two).

    ``dataclasses.replace`` makes variants, for instance one with ``hf32_mantissa_bits=10``; the sources of what it
    changes then say so. Product files make them without code, see `npu_sim.products.load`.

    Attributes
    ----------
    name : str
        SoC version, for example ``"Ascend910B2"``.
    series : str
        Series, named by its alias. Nothing may be decided by it: what a series can do is in the fields below.
    series_name : str
        Name of the series in the CANN documents.
    short_soc_version : str
        Family name in the platform configuration. Both the 2019 SoC and the A2 family are called "Ascend910B" there.
    arch : str
        Compiler architecture, one of `ARCHS`: the instruction set.
    npu_arch : int
        Value of ``__NPU_ARCH__``.
    core : CoreSpec
        One core.
    cube_core_count, vector_core_count : int
        Cores that Cube kernels and vector kernels run on: the same AI cores on unified products.
    vector_only_core_count : int
        Additional cores with a vector unit only (310P). No kernel uses them unless it says so.
    clock_hz : int
        Nominal clock of the cores.
    measured_clock_hz : int or None
        Clock seen in profiler data, where it contradicts the nominal one.
    vector_only_clock_hz : int or None
        Clock of the vector-only cores.
    l2_bytes : int
        L2 cache.
    memory_bytes : int or None
        Device memory; None where no source says.
    cube_dtypes : frozenset of str
        Operand types of the Cube.
    supports_conv3d : bool
        Convolution gradients of rank 5 exist.
    dilates_strided_gradients : bool
        The library runs 1D and 2D input gradients with strides as a dilation by a kernel of its own and a gradient of
        stride 1 (not in bf16), so that no limit of its kernel meets their strides.
    has_aclnn : bool
        The library has its aclnn operators for the series; where not there is the TBE DSL.
    on_operator_pages : bool
        The published pages of the aclnn operators name the series; for others the library's source is all there is.
    hf32_mantissa_bits : int or None
        Stored mantissa bits that HF32 keeps; None without HF32.
    hf32_ties : str or None
        What HF32 rounding does with ties: "even", "away" or "toward_zero".
    overflow_mode : {"inf_nan", "saturate"}
        Default for fp16 and bf16 results that overflow.
    overflow_modes : tuple of str
        Modes the product can be switched to.
    accumulation : mapping of str to tuple
        Default model of the Cube's additions by compute type: (group, inner, round).
    cube_subnormals, cube_overflow_to, cube_saturates : str
        Parts of these models, as `npu_sim.Accumulation` describes them.
    cost : CostParams
        Cycle costs and bandwidths.
    sources : mapping of str to Source
        Source of every field above but `name`, `core` and `cost`; entries of mappings and of `core` have dotted keys
        (``"core.cube_k.fp16"``).
    """

    name: str
    series: str
    series_name: str
    short_soc_version: str
    arch: str
    npu_arch: int
    core: CoreSpec
    cube_core_count: int
    vector_core_count: int
    vector_only_core_count: int
    clock_hz: int
    measured_clock_hz: int | None
    vector_only_clock_hz: int | None
    l2_bytes: int
    memory_bytes: int | None
    cube_dtypes: frozenset[str]
    supports_conv3d: bool
    dilates_strided_gradients: bool
    has_aclnn: bool
    on_operator_pages: bool
    hf32_mantissa_bits: int | None
    hf32_ties: str | None
    overflow_mode: str
    overflow_modes: tuple[str, ...]
    accumulation: Mapping[str, AccumulationModel]
    cube_subnormals: str
    cube_overflow_to: str
    cube_saturates: str
    cost: CostParams = field(hash=False)
    sources: Mapping[str, Source] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "accumulation", FrozenMapping(self.accumulation))
        for name in ("cube_core_count", "vector_core_count", "clock_hz", "l2_bytes"):
            self._require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        values = dict(facts(self))
        for name, value in values.items():
            if isinstance(value, int):
                most = next((most for part, most in _MOST if part in name), 2**31)
                self._require(0 <= value <= most, name, f"in [0, {most}]", value)
        self._check_instructions()
        self._check_numerics()
        object.__setattr__(self, "sources", Sources(self.sources, values))

    def __str__(self) -> str:
        # its fields fill pages; npu-sim products shows them
        return self.name

    def _check_instructions(self) -> None:
        self._require(self.arch in ARCHS, "arch", f"one of {', '.join(ARCHS)}", self.arch)
        modelled = ARCHS[self.arch]
        for name in ("is_split", "has_fixpipe", "has_load3d_v1", "has_load3d_v2"):
            value = getattr(self.core, name)
            self._require(value == getattr(modelled, name), f"core.{name}", f"{not value} on {self.arch}", value)
        for name, least in zip(("l0a_bytes", "l0b_bytes", "l0c_bytes"), modelled.least_l0_bytes, strict=True):
            value = getattr(self.core, name)
            self._require(value >= least, f"core.{name}", f"at least {least}, as kernels count on", value)
        known, given = [sorted(types, key=CUBE_DTYPES.index) for types in (modelled.cube_dtypes, self.core.cube_k)]
        self._require(modelled.cube_dtypes >= set(given), "cube_dtypes", f"among {known} on {self.arch}", given)
        self._require(self.cost.arch == self.arch, "cost", f"for {self.arch}", self.cost.arch)

    def _check_numerics(self) -> None:
        types = frozenset(self.core.cube_k)
        given = sorted(self.cube_dtypes)
        self._require(self.cube_dtypes == types, "cube_dtypes", f"{sorted(types)}, as in core", given)
        modes = self.overflow_modes
        self._require(set(modes) <= set(OVERFLOW_MODES), "overflow_modes", f"among {', '.join(OVERFLOW_MODES)}", modes)
        self._require(self.overflow_mode in modes, "overflow_mode", f"one of {', '.join(modes)}", self.overflow_mode)
        floats = sorted(dtype for dtype in types if not dtype.startswith("int"))
        given = sorted(self.accumulation)
        self._require(given == floats, "accumulation", f"given for {floats}", given)
        for dtype, (group, inner, rounding) in self.accumulation.items():
            right = 1 <= group <= MAX_GROUP and inner in ACCUMULATION_INNER and rounding in ACCUMULATION_ROUNDS
            rule = (
                f"[1 to {MAX_GROUP}, one of {', '.join(ACCUMULATION_INNER)}, one of {', '.join(ACCUMULATION_ROUNDS)}]"
            )
            self._require(right, f"accumulation.{dtype}", rule, [group, inner, rounding])
        for part, choices in ACCUMULATION_PARTS.items():
            value = getattr(self, f"cube_{part}")
            self._require(value in choices, f"cube_{part}", f"one of {', '.join(choices)}", value)
        bits, ties = self.hf32_mantissa_bits, self.hf32_ties
        if "hf32" in types:
            self._require(bits is not None and bits >= 1, "hf32_mantissa_bits", "at least 1 with HF32", bits)
            self._require(ties in HF32_TIES, "hf32_ties", f"one of {', '.join(HF32_TIES)} with HF32", ties)
        else:
            self._require(bits is None, "hf32_mantissa_bits", "None without HF32", bits)
            self._require(ties is None, "hf32_ties", "None without HF32", ties)

    def _require(self, holds: bool, thing: str, rule: str, value: object) -> None:
        if not holds:
            raise ProductError(f"{thing} must be {rule}, not {value!r} ({self.name})")

    @property
    def timing_clock_hz(self) -> int:
        """Clock to convert cycles to seconds with: the measured one where there is one, else the nominal one."""
        return self.clock_hz if self.measured_clock_hz is None else self.measured_clock_hz

    def macs_per_cycle(self, dtype: str) -> int:
        """Return the multiply-adds per cycle of one Cube for operands of ``dtype``.

        Raises
        ------
        ProductError
            If the Cube does not have this operand type.
        """
        if dtype not in self.cube_dtypes:
            known = ", ".join(name for name in CUBE_DTYPES if name in self.cube_dtypes)
            raise ProductError(f"Cube operand type must be one of {known}, not {dtype!r} ({self.name})")
        return self.core.cube_m * self.core.cube_n * self.core.cube_k[dtype]

    def peak_flops(self, dtype: str) -> int:
        """Return the peak of all Cubes at the nominal clock, operations per second, a multiply-add counted as two.

        Raises
        ------
        ProductError
            If the Cube does not have this operand type.
        """
        return 2 * self.macs_per_cycle(dtype) * self.cube_core_count * self.clock_hz


def facts(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every sourced fact of a `Product` as (dotted name, value), in the order of the fields.

    Mappings contribute one fact per key, ``core`` its fields; ``name``, ``cost`` and ``sources`` are left out.
    """
    for spec in dataclasses.fields(record):
        name, value = prefix + spec.name, getattr(record, spec.name)
        if name in ("name", "cost", "sources"):
            continue
        if dataclasses.is_dataclass(value):
            yield from facts(value, f"{name}.")
        elif isinstance(value, Mapping):
            for key in value:
                yield f"{name}.{key}", value[key]
        else:
            yield name, value


_UNIT_OF_SUFFIX: tuple[tuple[str, str], ...] = (
    ("millibytes_per_cycle", "B/1000 cycles"),
    ("bytes_per_cycle", "B/cycle"),
    ("bytes_per_repeat", "B/repeat"),
    ("bytes_per_microsecond", "B/us"),
    ("millielements_per_cycle", "elements/1000 cycles"),
    ("elements_per_cycle", "elements/cycle"),
    ("bytes", "B"),
    ("hz", "Hz"),
    ("millicycles", "cycles/1000"),
    ("cycles", "cycles"),
    ("nanoseconds", "ns"),
    ("permille", "1/1000"),
    ("bits", "bit"),
    ("rows", "rows"),
    ("fractals", "fractals"),
    ("cube_m", "elements"),
    ("cube_n", "elements"),
    ("count", "1"),
    ("cores", "1"),
    ("groups", "1"),
    ("npu_arch", "1"),
)


def unit_of(name: str) -> str:
    """Return the unit that the name of a field states.

    Parameters
    ----------
    name : str
        Dotted name of a fact or of a cost parameter.

    Returns
    -------
    str
        Unit, ``"1"`` for plain numbers, empty for names, flags and modes.
    """
    *path, last = name.split(".")
    if path and path[-1] == "cube_k":
        return "elements"
    for suffix, unit in _UNIT_OF_SUFFIX:
        if last == suffix or last.endswith("_" + suffix):
            return unit
    return ""


def _require(holds: bool, thing: str, rule: str, value: object) -> None:
    if not holds:
        raise ProductError(f"{thing} must be {rule}, not {value!r}")

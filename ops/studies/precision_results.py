"""What a precision study is asked for, and what it finds for each gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from npu_sim.accumulation import SERIAL, Accumulation
from npu_sim.dtypes.cube_math import CubeMathType, parse_cube_math_type
from npu_sim.errors import NpuSimError, OperatorError
from npu_sim.products import list_series
from npu_sim.report.precision import ErrorMetrics
from npu_sim.report.standards.recheck import MIN_RUNS
from npu_sim.report.standards.registry import DEFAULT, get_standard
from npu_sim.report.standards.verdict import Outcome, Verdict, VoidCause
from npu_sim.report.ulps import UlpHistogram, UlpMap
from ops.common.capability import ACLNN, SPLIT, UNIFIED, Capability
from ops.studies.kinds import ENTRIES, Entry
from ops.studies.layers import RESULT_NAMES, Operator, ResultName
from ops.studies.rounding import STORAGE
from ops.studies.scope import Refusal

Golden = Literal["original", "rounded"]
Fit = Literal["fit", "not fit", "not judged"]
CUBE_MATH_TYPES = tuple(int(member) for member in CubeMathType)
GOLDENS: tuple[Golden, ...] = ("original", "rounded")


_HAVE: dict[Entry, Capability] = {"aclnn": ACLNN, "tbe": UNIFIED, "ascendc": SPLIT}


def default_products(entries: Sequence[Entry] = ("aclnn",)) -> tuple[str, ...]:
    """Return every series that has one of these interfaces, by its alias."""
    have = {alias for entry in entries for alias in _HAVE[entry].series()}
    return tuple(alias for alias in list_series() if alias in have)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What to run.

    Attributes
    ----------
    products : tuple of str
        SoC versions or series aliases.
    cube_math_types : tuple of int or None
        `npu_sim.dtypes.cube_math.CubeMathType`: 0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32;
        None: the one that a case of a case file names, else all.
    layers : tuple of str or None
        Names; None runs all.
    gradients : tuple of {"dx", "dw", "db", "y"} or None
        Which results: gradients, and "y", the output of the forward call; None runs those that each layer names.
    entries : tuple of {"aclnn", "tbe", "ascendc"}
        Interfaces; the last two have weight gradients alone.
    dtype : {"fp16", "bf16", "fp32"} or None
        Cast the tensors to this before the call; None leaves them as they are in the file.
    golden : {"rounded", "original"}
        Golden whose verdicts decide.
    standards : tuple of str
        Names of the standards that judge, of `npu_sim.report.standards.registry`; all of them decide.
    recheck : int
        How often a case that fails a double benchmark by its ratios is run again, with tensors whose elements are drawn
        anew from those of the file: 0, or 200 at least (the standard advises 1,000).
    accumulation : str or None
        Model of the Cube's additions: ``"serial"``, or a name like ``"exact16-rne+keep"`` (``"exact16+keep"`` for
        short); None takes each product's default.
    threads : int or None
        Threads of the emulator; no influence on any figure.
    """

    products: tuple[str, ...] = field(default_factory=default_products)
    cube_math_types: tuple[int, ...] | None = None
    layers: tuple[str, ...] | None = None
    gradients: tuple[ResultName, ...] | None = None
    entries: tuple[Entry, ...] = ("aclnn",)
    dtype: str | None = None
    golden: Golden = "rounded"
    standards: tuple[str, ...] = (DEFAULT,)
    recheck: int = 0
    accumulation: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        _require(bool(self.products), "products", "at least one name", "none")
        _require(self.cube_math_types != (), "cube_math_types", "at least one of 0, 1, 2, 3", "none")
        _require(self.dtype is None or self.dtype in STORAGE, "dtype", "fp16, bf16 or fp32", self.dtype)
        for gradient in self.gradients or ():
            _require(gradient in RESULT_NAMES, "gradients", "dx, dw, db or y", gradient)
        _require(bool(self.entries), "entries", "at least one of aclnn, tbe, ascendc", "none")
        for entry in self.entries:
            _require(entry in ENTRIES, "entries", "aclnn, tbe or ascendc", entry)
        _require(bool(self.standards), "standards", "at least one name", "none")
        for standard in self.standards:
            get_standard(standard)
        rule = f"0 or at least {MIN_RUNS}"
        _require(self.recheck == 0 or self.recheck >= MIN_RUNS, "recheck", rule, self.recheck)
        object.__setattr__(self, "standards", tuple(dict.fromkeys(self.standards)))
        _require(self.golden in GOLDENS, "golden", "original or rounded", self.golden)
        _require(self.threads is None or self.threads >= 1, "threads", "at least 1", self.threads)
        if self.accumulation is not None:
            object.__setattr__(self, "accumulation", _accumulation_name(self.accumulation))
        object.__setattr__(self, "products", tuple(dict.fromkeys(self.products)))
        object.__setattr__(self, "entries", tuple(dict.fromkeys(self.entries)))
        if self.cube_math_types is not None:
            numbers = (int(parse_cube_math_type(value)) for value in self.cube_math_types)
            object.__setattr__(self, "cube_math_types", tuple(dict.fromkeys(numbers)))


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise StudyOptionError(f"{name} must be {rule}, not {value}")


def _accumulation_name(text: str) -> str:
    """Return the full name of a model; an unknown one is refused before anything runs."""
    plain, plus, parts = text.partition("+")
    rounding = "" if plain == "serial" or "-" in plain else "-rne"
    try:
        return Accumulation.parse(f"{plain}{rounding}{plus}{parts}", SERIAL).name
    except OperatorError as error:
        rule = "serial, exact<group>[-rne|-rz][+keep][+max][+results] or tree<group> likewise"
        raise StudyOptionError(f"accumulation must be {rule}, not {text}") from error


class StudyOptionError(NpuSimError, ValueError):
    """An option of the study has a value that does not exist."""

    status = 161002


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A gradient against one golden.

    Attributes
    ----------
    golden : {"original", "rounded"}
        Which one.
    error : ErrorMetrics
        How far it is.
    verdicts : tuple of Verdict
        What each standard says.
    outcome : {"pass", "fail", "void"}
        "fail" where one of them does, "void" where none fails and one is void.
    void_cause : str or None
        Why it is void, as the first void verdict has it; None if the outcome is another.
    ulp_histogram : UlpHistogram
        How its errors are distributed.
    ulp_map : UlpMap or None
        Where they are; a report keeps the maps that `ops.studies.ulp_maps` chooses.
    """

    golden: Golden
    error: ErrorMetrics
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    void_cause: VoidCause | None
    ulp_histogram: UlpHistogram
    ulp_map: UlpMap | None = field(compare=False)

    @classmethod
    def of(
        cls,
        golden: Golden,
        error: ErrorMetrics,
        verdicts: tuple[Verdict, ...],
        *,
        ulp_histogram: UlpHistogram,
        ulp_map: UlpMap | None,
    ) -> Comparison:
        """Return the comparison with its outcome."""
        outcomes = [verdict.outcome for verdict in verdicts]
        outcome: Outcome = "fail" if "fail" in outcomes else "void" if "void" in outcomes else "pass"
        cause = next((verdict.void_cause for verdict in verdicts if verdict.void_cause), None)
        return cls(
            golden=golden,
            error=error,
            verdicts=verdicts,
            outcome=outcome,
            void_cause=cause if outcome == "void" else None,
            ulp_histogram=ulp_histogram,
            ulp_map=ulp_map,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What was computed, and how far it is from both goldens.

    Attributes
    ----------
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What was multiplied, or added where nothing is.
    output_dtype : str
        Format of the gradient.
    accumulation : str
        Model of the Cube's additions; "vector": vector cores add, in float32.
    k_depth : int
        Products summed into one element, at most.
    tiling : str
        How the kernel cut the work; "" where that is not asked.
    route : str
        Which of the operator's ways was taken, where that decides what is multiplied.
    input_underflow, input_overflow : int
        Elements of the operands that became 0, or Inf (the largest number on a product that saturates), on their way
        from the file to where they are multiplied.
    input_specials_lost : int
        Elements of the operands that are NaN or Inf in the file and a number where the product saturates.
    lost_tensors : tuple of str
        Operands ("x", "dy", "weight") that are not all 0 in the file and all 0 where they are multiplied.
    original, rounded : Comparison
        Against the two goldens.
    """

    compute_dtype: str
    output_dtype: str
    accumulation: str
    k_depth: int
    tiling: str
    route: str
    input_underflow: int
    input_overflow: int
    input_specials_lost: int
    lost_tensors: tuple[str, ...]
    original: Comparison
    rounded: Comparison

    def against(self, golden: Golden) -> Comparison:
        """Return the comparison with the golden of that name."""
        return self.original if golden == "original" else self.rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRow:
    """One gradient on one product in one mode; exactly one of ``refusal`` and ``result`` is set.

    Attributes
    ----------
    layer, gradient, entry : str
        Layer name, "dx", "dw", "db" or "y", and the interface.
    product, soc : str
        Product as it was asked for, and the SoC version that name stands for.
    cube_math_type : int or None
        0..3; None where the interface has none.
    input_dtype : str
        Format of the tensors given to the operator.
    refusal : Refusal or None
        Why it does not run.
    result : CaseResult or None
        What it gives.
    """

    layer: str
    gradient: ResultName
    entry: Entry
    product: str
    soc: str
    cube_math_type: int | None
    input_dtype: str
    refusal: Refusal | None = None
    result: CaseResult | None = None

    @property
    def title(self) -> str:
        """Layer and gradient, as in `LayerSummary`."""
        return f"{self.layer} {self.gradient}"

    @property
    def place(self) -> str:
        """Where it ran, in a word or two."""
        return self.product if self.entry == "aclnn" else f"{self.product} {self.entry}"

    @property
    def mode(self) -> str:
        """The cubeMathType as text."""
        return "-" if self.cube_math_type is None else str(self.cube_math_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSummary:
    """A gradient or output of a layer as the report names it.

    ``gradient`` is "dx", "dw", "db" or "y"; ``tensors`` is the format of the layer in words, with the cast that
    ``dtype`` of the options asked for; ``input_specials`` counts the elements of the operands that are NaN or Inf in
    the file. ``reference`` is the error of the gradient the file brought along (the framework's own), against the
    original golden; None without one. A pooling has no weight, a convolution no ``kernel_size``.
    """

    name: str
    operator: Operator
    gradient: ResultName
    x_shape: tuple[int, ...]
    dy_shape: tuple[int, ...]
    weight_shape: tuple[int, ...] = ()
    kernel_size: tuple[int, ...] = ()
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...] = ()
    groups: int = 1
    output_padding: tuple[int, ...] = ()
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int = 0
    dtype: str
    tensors: str
    input_specials: int
    k_depth: int
    reference: ErrorMetrics | None

    @property
    def title(self) -> str:
        """Name and gradient."""
        return f"{self.name} {self.gradient}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """What the verdicts on all gradients of a product and mode come to, or of several where it is the same.

    Attributes
    ----------
    places, modes, compute_dtypes : tuple of str
        Products with their interfaces and cubeMathTypes as `PrecisionRow` words them, and what was multiplied.
    gradients : int
        Combinations of one product and mode.
    refused : tuple of str
        Gradients that are refused.
    original, rounded : {"fit", "not fit", "not judged"}
        By that golden: no gradient fails and one passes; one fails; neither, as all are void or refused.
    failing_original, failing_rounded : tuple of str
        Gradients that fail against that golden.
    void : tuple of str
        Gradients that are void against the golden that decides.
    words : str
        All of it in one sentence.
    """

    places: tuple[str, ...]
    modes: tuple[str, ...]
    compute_dtypes: tuple[str, ...]
    gradients: int
    refused: tuple[str, ...]
    original: Fit
    rounded: Fit
    failing_original: tuple[str, ...]
    failing_rounded: tuple[str, ...]
    void: tuple[str, ...]
    words: str

"""What a standard says: figures against thresholds, and the verdict they make."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from npu_sim.report.record import to_json_text

Outcome = Literal["pass", "fail", "void"]
VoidCause = Literal["empty", "golden", "inputs", "peer", "zeros"]
Relation = Literal["<", "<=", ">", ">="]

_HOLDS: Mapping[Relation, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MATCHED = "matched ratio"
"""Name of the share of elements within an element-wise tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure against its threshold.

    Attributes
    ----------
    name, label : str
        What the figure is, and the same in one word for tables.
    value : float
        The figure.
    relation : {"<", "<=", ">", ">="}
        How the figure must stand to the threshold.
    threshold : float
        The threshold.
    """

    name: str
    label: str
    value: float
    relation: Relation
    threshold: float

    @property
    def holds(self) -> bool:
        """Whether it does; NaN never does."""
        return _HOLDS[self.relation](self.value, self.threshold)

    @property
    def text(self) -> str:
        """The figure beside the threshold, with as many digits as tell them apart."""
        shortened = (f"{self.value:.3g}", f"{self.value:.6g}", repr(self.value))
        tells = (words for words in shortened if _HOLDS[self.relation](float(words), self.threshold) == self.holds)
        words = next(tells)
        return f"{self.name} = {words}, must be {self.relation} {number_text(self.threshold)}"


def number_text(value: float) -> str:
    """Return ``2^-10`` for a power of two below 1, else the number, shortened."""
    if 0 < value < 1 and math.frexp(value)[0] == 0.5:
        return f"2^{math.frexp(value)[1] - 1}"
    return f"{value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the rule of a standard finds, whether or not that says anything.

    Attributes
    ----------
    passes : bool
        Whether the rule is met.
    checks : tuple of Check
        All figures that were compared.
    deciding : Check
        The one that decided: the first that does not hold, or the one that was enough.
    remark : str
        What a pass owes to a clause of the rule; "" for nothing.
    scale : int or None
        Exponent of two by which golden and result would have to be larger (negative: smaller) for the rule to be met,
        where it fails for an absolute limit alone.
    """

    passes: bool
    checks: tuple[Check, ...]
    deciding: Check
    remark: str = ""
    scale: int | None = None


def every(*checks: Check, remark: str = "") -> Finding:
    """Return the finding of a rule that wants every check to hold; the first one stands for a pass."""
    wrong = next((check for check in checks if not check.holds), None)
    return Finding(passes=wrong is None, checks=checks, deciding=wrong or checks[0], remark="" if wrong else remark)


def all_of(special_mismatches: int, *checks: Check, remark: str = "") -> Finding:
    """Return the finding of a rule that wants every check to hold, and no difference of NaN or Inf before that."""
    specials = Check(
        name="elements that differ in NaN or Inf", label="NaN/Inf", value=special_mismatches, relation="<=", threshold=0
    )
    if not specials.holds:
        return Finding(passes=False, checks=(*checks, specials), deciding=specials)
    return every(*checks, specials, remark=remark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a standard says of one result.

    Attributes
    ----------
    outcome : {"pass", "fail", "void"}
        "void": the rule is met, or cannot be applied, and that says nothing of the result. It is no pass.
    void_cause : {"empty", "golden", "inputs", "peer", "zeros"} or None
        Why: there is no element; no element of the golden is finite; the inputs became all 0 on the way to where they
        are multiplied; there is no peer to compare with; a result of nothing but zeros, but for NaN and Inf where the
        golden has them, would pass too. The first that holds; None if the outcome is another.
    standard, title, version, source, commit : str
        Name of the standard in the registry and in words, and where it is written; ``commit`` is "" where the source
        has none.
    row, thresholds : str
        The row of the standard for the dtype, and its numbers.
    golden : str
        Which golden the result was compared with.
    peer : str
        What else was compared with the golden; "" if nothing was.
    deciding : str
        The figure that decided, against its threshold.
    label : str
        The same in one word, for tables.
    remark : str
        What a pass owes to a clause of the rule ("ULP", "warning", ...); "" for nothing.
    zero_match_ratio : float or None
        Share of the elements whose golden is neither 0 nor NaN or Inf that a result of nothing but zeros would match;
        near 1 the tolerance hardly tells right from wrong. None where the standard counts no matching elements, or
        there is none.
    least_scale : int or None
        Of a result that is void for zeros: the least exponent of two by which golden and result would have to be larger
        for zeros to fail. Of one that fails for an absolute limit alone, beside which its errors are those of rounding
        large terms: the exponent, negative, that takes them to the limit. None where no scale up to 2^64 does that, and
        of other outcomes.
    checks : tuple of Check
        All figures that were compared.
    """

    outcome: Outcome
    void_cause: VoidCause | None
    standard: str
    title: str
    version: str
    source: str
    commit: str
    row: str
    thresholds: str
    golden: str
    peer: str
    deciding: str
    label: str
    remark: str
    zero_match_ratio: float | None
    least_scale: int | None
    checks: tuple[Check, ...]

    def figure(self, name: str) -> float:
        """Return the figure of the check of that name."""
        return next(check.value for check in self.checks if check.name == name)

    def to_json(self) -> str:
        """Return the record as JSON text; infinities and NaN are strings."""
        return to_json_text(self)

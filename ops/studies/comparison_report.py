"""The record of a comparison of two results for one gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npu_sim.report.record import to_json_text, to_plain
from ops.studies.comparison_terms import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSummary:
    """One of the two.

    Attributes
    ----------
    words : str
        What it is, as it was asked for.
    dtype : str
        Type of the result.
    compute_dtype : str or None
        What was multiplied; None: it is a dump.
    accumulation : str or None
        Model of the additions; likewise.
    """

    words: str
    dtype: str
    compute_dtype: str | None
    accumulation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Elements whose distance is from ``first`` to ``last`` ULP."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstElement:
    """An element and where it comes from.

    Attributes
    ----------
    at : tuple of int
        Place in the gradient.
    left, right, golden : float
        Both results and the float64 sum of the products.
    ulps : int or None
        Distance; None where one of them is NaN.
    term_count : int
        Products in the sum; 0 where they are not known (pooling).
    magnitude : float
        Sum of their magnitudes: how much cancelled.
    terms : tuple of Term
        The largest.
    """

    at: tuple[int, ...]
    left: float
    right: float
    golden: float
    ulps: int | None
    term_count: int
    magnitude: float
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """A model of additions and how near its result is.

    Attributes
    ----------
    model : str
        Name of the `Accumulation`.
    equal_count : int
        Elements with equal bits, NaN equal to NaN and zeros of both signs equal.
    max_ulps : int, optional
        Largest distance of the others, NaN left aside; None if no element has one.
    """

    model: str
    equal_count: int
    max_ulps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """A comparison.

    Attributes
    ----------
    source : str
        File of the layer.
    layer, gradient : str
        Which gradient of which layer.
    shape : tuple of int
        Of the gradient.
    left, right : SideSummary
        The two.
    ulp_dtype : str
        Type whose ULPs are counted: the shorter of both, to which the other is rounded.
    element_count, equal_count, nan_count : int
        Elements; those with equal bits; those of which one is NaN, which have no distance.
    max_ulps, mean_ulps : int and float, optional
        Largest and mean distance of elements that have one; None if none has.
    histogram : tuple of Bin
        Distances by powers of two.
    worst : tuple of WorstElement
        Elements with the largest distance, NaN first.
    models : tuple of ModelFit
        Models that were tried on the emulated side (the left one of two), best first; empty where no side has a model.
    fitted : str
        Which side the models are compared with.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    source: str
    layer: str
    gradient: str
    shape: tuple[int, ...]
    left: SideSummary
    right: SideSummary
    ulp_dtype: str
    element_count: int
    equal_count: int
    nan_count: int
    max_ulps: int | None
    mean_ulps: float | None
    histogram: tuple[Bin, ...]
    worst: tuple[WorstElement, ...]
    models: tuple[ModelFit, ...]
    fitted: str

    @property
    def equal(self) -> bool:
        """Whether every element is."""
        return self.equal_count == self.element_count

    def to_json(self) -> str:
        """Return the report as JSON text."""
        document: dict[str, Any] = {"schema_version": self.SCHEMA_VERSION, "equal": self.equal, **to_plain(self)}
        return to_json_text(document)

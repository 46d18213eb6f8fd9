"""What is found about where the error of a gradient comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ops.studies.kinds import Entry
from ops.studies.layers import ResultName

Cause = Literal[
    "carried", "input", "sums", "atomics", "output", "sums and output", "input saturation", "output saturation",
    "input underflow", "input specials",
]  # fmt: skip
"""What makes a part of an error.

carried
    The gradient at the output was computed with errors already (`ops.studies.attribution_chain`).
input
    The tensors are rounded to the type that is multiplied, but for what is in "input underflow" or "input saturation".
sums
    The additions in a Cube: groups of products and their order.
atomics
    The additions in memory: of parts of K, of one core and of several.
output
    The sums are rounded to the type of the gradient, in one or two steps.
sums and output
    Both, where the operator has no sums that could be taken out.
input saturation, output saturation
    What is beyond the type that is multiplied, or that of the result, becomes its largest number. What becomes infinite
    is overflow: such elements are lost.
input underflow
    What is below the least normal number of the type that is multiplied loses digits there, or becomes 0. A larger loss
    helps here, where dy is the operand; it does not help against rounding.
input specials
    NaN and Inf of the tensors become 0 and the largest number where the product saturates: gradients that are NaN or
    Inf by the tensors are numbers, or the other way round, and such elements are lost.
"""
CAUSES: tuple[Cause, ...] = (
    "carried", "input", "sums", "atomics", "output", "sums and output", "input saturation", "output saturation",
    "input underflow", "input specials",
)  # fmt: skip

MOST_CROSS = 0.05
"""Share of the cross terms above which a report says why they are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPart:
    """The part of an error that one cause makes.

    Attributes
    ----------
    cause : str
        One of `CAUSES`.
    share : float
        Its square norm over that of the whole error.
    relative_l2 : float or None
        Its norm over that of the golden; None where the golden is 0.
    """

    cause: Cause
    share: float
    relative_l2: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTerm:
    """Two causes whose parts are not orthogonal.

    Attributes
    ----------
    causes : tuple of str
        The two.
    share : float
        Twice the inner product of their parts, over the square norm of the whole error.
    cosine : float
        Of the angle between them.
    deviations : float
        The inner product in standard deviations of what random signs of its terms would make: beyond about 3 the two
        are correlated, below it is chance.
    """

    causes: tuple[Cause, Cause]
    share: float
    cosine: float
    deviations: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorParts:
    """An error as a sum of parts.

    Attributes
    ----------
    count : int
        Elements that are finite in every stage; the others are in no figure.
    lost : int
        The others, which are NaN or infinite in some stage.
    lost_by : mapping of str to int
        Those that do not stay what the golden is, finite, NaN or infinite, by the cause that changed it first; causes
        without any are left out. The error of each is infinite.
    relative_l2 : float or None
        Norm of the error over that of the golden, of elements that are finite in every stage; None where the golden is
        0.
    parts : tuple of ErrorPart
        In the order of `CAUSES`; shares and ``cross`` add up to 1, to 0 where there is no error.
    cross : float
        Share of all cross terms together.
    crossing : CrossTerm or None
        The largest, where ``cross`` is more than `MOST_CROSS` either way.
    """

    count: int
    lost: int
    lost_by: Mapping[Cause, int]
    relative_l2: float | None
    parts: tuple[ErrorPart, ...]
    cross: float
    crossing: CrossTerm | None

    @property
    def main(self) -> Cause | None:
        """The cause with the largest part, first by elements that it lost; None where there is no error."""
        if self.lost_by:
            return max(self.lost_by, key=lambda cause: self.lost_by[cause])
        largest = max(self.parts, key=lambda part: part.share)
        return largest.cause if largest.share > 0 else None

    def share(self, cause: Cause) -> float | None:
        """Return the share of a cause, None where it is not asked for."""
        return next((part.share for part in self.parts if part.cause == cause), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Relative L2 errors of several runs against the rounded golden.

    ``runs`` counts them, ``distinct`` the results that differ in a bit.
    """

    runs: int
    distinct: int
    min: float | None
    median: float | None
    max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far apart results may be that the machine allows.

    Attributes
    ----------
    core_orders : Range
        Over orders in which cores add to memory, by the tiling of the call; none of an output.
    tilings : Range
        One order of the cores each. Of a weight gradient by the published kernel of A2 and A3 over one tiling for each
        way in which any legal tiling cuts the sums, the deterministic ones too. Of others, whose tilings are the
        library's own, over those that are chosen for fewer cores or for a half and a quarter of L1.
    possible_tilings : int or None
        How many runs there are in all; None: not known.
    """

    core_orders: Range
    tilings: Range
    possible_tilings: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionRow:
    """Where the error of one gradient on one product in one mode comes from.

    Attributes
    ----------
    layer, gradient, entry, product, cube_math_type
        As of `ops.studies.precision_results.PrecisionRow`.
    compute_dtype, output_dtype : str
        What was multiplied, and the type of the gradient.
    error : ErrorParts
        Against the golden of the tensors of the file.
    additions : mapping of str to float or None
        Error of the sums, unrounded, relative to the golden of what was multiplied, by who adds: the model of the call,
        "serial", and for weight gradients "deterministic".
    spread : Spread or None
        None where it was not asked for.
    """

    layer: str
    gradient: ResultName
    entry: Entry
    product: str
    cube_math_type: int | None
    compute_dtype: str
    output_dtype: str
    error: ErrorParts
    additions: Mapping[str, float | None]
    spread: Spread | None = None

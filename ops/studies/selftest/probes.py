"""Directed vectors: sums whose result says one thing about how a Cube adds.

A probe is one element of a matrix product, a sum of `DEPTH` products of which nearly all are 0. Most begin with a large
product, go on with small ones whose fate is the question, and end with the large one subtracted; what is left is a
small number that every output type holds exactly, so that the rounding of the output hides nothing.

The methods are published: summands around the last bit of a large one, for the rounding, the width and the number of
products that are added at once (M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor
cores", 2021; FTTN, arXiv 2403.00232), and subnormal and special values among them. The vectors are this project's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from npu_sim.dtypes.formats import DTYPES

DEPTH: Final = 128
"""Products in a sum. Groups of up to 64 have a boundary in the middle."""
LAST: Final = DEPTH - 1
BIG: Final = 2.0**24
"""Its last float32 bit is 2; half of that is 1."""
WIDE: Final = 1.5 * 2.0**30
"""No power of two: what is subtracted from it leaves its last bit where it is."""
WIDTHS: Final = (*range(20, 34), 36, 40, 44, 48, *range(50, 55))
"""Bits between the largest and the smallest term; 54 is as far as a half holds the result."""
WIDTH_LANES: Final = (61, 62)
"""Where the small term is; the large one is subtracted right behind. One of the two pairs lies in one group."""
LATE_GAPS: Final = (2, 4, 8, 16, 32)
MIDDLE: Final = 64
MANTISSAS: Final = (7, 10, 11)
"""Kept mantissa bits, besides all 23, whose ties are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One sum.

    Attributes
    ----------
    name : str
        Unique in its tensors.
    asks : str
        What it asks.
    factors : dict of int to (float, float)
        k to the two factors; both are 0 elsewhere.
    """

    name: str
    asks: str
    factors: dict[int, tuple[float, float]]


def probes_of(tensors: str) -> tuple[Probe, ...]:
    """Return the directed probes for tensors of a type.

    Parameters
    ----------
    tensors : {"fp16", "bf16", "fp32", "hf32"}
        ``hf32`` are fp32 tensors that the Cube may round.
    """
    made = [*_operands(), *_products()] if DTYPES[tensors].item_bytes == 4 else []
    made += [*_pairs(), *_late(), *_widths(), *_roundings(), *_orders()]
    made += [*_subnormals(tensors), *_overflows(tensors), *_specials()]
    return tuple(made)


def split(value: float) -> tuple[float, float]:
    """Return two factors of like size; the second is a power of two."""
    mantissa, exponent = math.frexp(value)
    half = exponent // 2
    return math.ldexp(mantissa, exponent - half), math.ldexp(1.0, half)


def _probe(name: str, asks: str, terms: dict[int, float]) -> Probe:
    return Probe(name=name, asks=asks, factors={k: split(value) for k, value in terms.items()})


def _pairs() -> Iterator[Probe]:
    """Two halves of the last bit of a large sum: added at once they change it, one by one they do not."""
    for k in range(1, LAST - 1):
        yield _probe(
            f"pair-{k}",
            f"2^24, 1 at k = {k} and {k + 1}, -2^24: are the two added at once?",
            {0: BIG, k: 1.0, k + 1: 1.0, LAST: -BIG},
        )


def _late() -> Iterator[Probe]:
    """Small terms before the large one: lost where a group is aligned to its largest term and cut off there."""
    for gap in LATE_GAPS:
        yield _probe(
            f"late-{gap}",
            f"1 and 1, {gap} products later 2^24, then -2^24: are the ones cut off by the term behind them?",
            {MIDDLE: 1.0, MIDDLE + 1: 1.0, MIDDLE + gap: BIG, LAST: -BIG},
        )


def _widths() -> Iterator[Probe]:
    for k in WIDTH_LANES:
        for width in WIDTHS:
            yield _probe(
                f"width-{width}-{k}",
                f"1.5 2^30, 2^{30 - width} at k = {k}, -1.5 2^30 behind it: does an addition hold {width + 1} bits?",
                {0: WIDE, k: 2.0 ** (30 - width), k + 1: -WIDE},
            )


ROUNDINGS: Final = {
    "even": (0.0, 1.0), "odd": (2.0, 1.0), "above": (0.0, 1.5), "below": (0.0, 0.5), "less": (0.0, -0.5),
    "odd-less": (2.0, -1.0),
}  # fmt: skip
"""What is added to 2^24 before k = 64, and there."""


def _roundings() -> Iterator[Probe]:
    for sign, word in ((1.0, "plus"), (-1.0, "minus")):
        for name, (before, added) in ROUNDINGS.items():
            terms = {0: sign * BIG, 1: sign * before, MIDDLE: sign * added, LAST: -sign * BIG}
            total = f"{sign * (BIG + before):.0f} {'+' if sign * added > 0 else '-'} {abs(added):g}"
            asks = f"{total}: which float32 is it?"
            yield _probe(f"round-{word}-{name}", asks, {k: value for k, value in terms.items() if value})
    yield _probe(
        "round-sticky", "2^24 + 1 + 2^-8: does the 2^-8 break the tie?", {0: BIG, 64: 1.0, 65: 2.0**-8, LAST: -BIG}
    )


def _orders() -> Iterator[Probe]:
    """Which ones meet in a group before they meet 2^24."""
    for places in ((1, 2), (2, 3), (1, 3), (4, 5), (2, 6), (4, 6), (8, 9), (8, 12), (16, 17), (16, 24)):
        terms = {MIDDLE: BIG, LAST: -BIG} | {MIDDLE + place: 1.0 for place in places}
        yield _probe(
            f"order-{places[0]}-{places[1]}",
            f"2^24, and 1 at {places[0]} and {places[1]} products behind it: do the ones meet first?",
            terms,
        )


def _subnormals(tensors: str) -> Iterator[Probe]:
    least = (2.0**-24, 2.0**12) if tensors == "fp16" else (2.0**-130, 2.0**118)
    asks = f"a subnormal operand, {least[0]:.0e}, times {least[1]:.0e}: does it count?"
    yield Probe(name="subnormal-operand", asks=asks, factors={0: least})
    yield Probe(name="subnormal-operand-b", asks=asks, factors={0: least[::-1]})
    if tensors == "fp16":  # its products are multiples of 2^-48
        return
    tiny = 2.0**-126
    yield _probe(
        "subnormal-sum", "2^-127, much later 2^-126: is the subnormal sum in between kept?", {0: tiny / 2, LAST: tiny}
    )
    yield _probe("subnormal-result", "2^-127 alone: is the subnormal result kept?", {LAST: tiny / 2})
    yield _probe("subnormal-difference", "1.5 2^-126 - 2^-126: is the result kept?", {0: 1.5 * tiny, LAST: -tiny})
    yield _probe("subnormal-negative", "-2^-127, later 2^-125: is the sum kept?", {0: -tiny / 2, LAST: 2 * tiny})
    if DTYPES[tensors].item_bytes == 4:
        near = Probe(
            name="subnormal-rounded",
            asks="a product just below 2^-126, which it rounds to: is it kept?",
            factors={0: (1 - 2.0**-24, tiny)},
        )
        yield near


def _overflows(tensors: str) -> Iterator[Probe]:
    if tensors == "fp16":  # 128 of its products stay below 2^39
        return
    huge = 2.0**127
    for sign, word in ((1.0, "plus"), (-1.0, "minus")):
        yield _probe(
            f"overflow-{word}",
            f"twice {word} 2^127, much later the opposite: what is the sum in between?",
            {0: sign * huge, 1: sign * huge, LAST: -sign * huge},
        )
        yield _probe(
            f"overflow-near-{word}",
            f"twice {word} 2^127, soon the opposite: what is the sum in between?",
            {MIDDLE: sign * huge, MIDDLE + 1: sign * huge, MIDDLE + 31: -sign * huge},
        )
    yield _probe(
        "overflow-inside",
        "2^127 twice and -2^127, side by side: is the sum of a group wider than a float32?",
        {MIDDLE: huge, MIDDLE + 1: huge, MIDDLE + 2: -huge},
    )
    yield _probe(
        "overflow-product",
        "2^200 - 2^200: is a product wider than a float32?",
        {MIDDLE: 2.0**200, MIDDLE + 1: -(2.0**200)},
    )


def _specials() -> Iterator[Probe]:
    small, inf, nan = 2.0**-12, math.inf, math.nan
    cases = {
        "inf": ("Inf 2^-12", {0: (inf, small)}),
        "inf-b": ("2^-12 Inf", {0: (small, inf)}),
        "inf-minus": ("-Inf 2^-12", {0: (-inf, small)}),
        "inf-then": ("Inf 2^-12, later -2^10", {0: (inf, small), MIDDLE: (-32.0, 32.0)}),
        "inf-cancels": ("Inf 2^-12, later -Inf 2^-12", {0: (inf, small), MIDDLE: (-inf, small)}),
        "inf-zero": ("Inf 0", {0: (inf, 0.0)}),
        "nan": ("NaN, later 1", {0: (nan, 1.0), MIDDLE: (1.0, 1.0)}),
        "nan-zero": ("NaN 0, later 1", {0: (nan, 0.0), MIDDLE: (1.0, 1.0)}),
    }
    for name, (words, factors) in cases.items():
        yield Probe(name=f"special-{name}", asks=f"{words}: what is the result?", factors=factors)


def _products() -> Iterator[Probe]:
    x = 1 + 2.0**-12
    asks = "-(1 + 2^-11), then (1 + 2^-12)^2: is the product exact when it is added?"
    yield Probe(name="product", asks=asks, factors={0: (-(1 + 2.0**-11), 1.0), 1: (x, x)})


def _operands() -> Iterator[Probe]:
    for bits in range(1, 24):
        x = 1 + 2.0**-bits
        asks = f"(1 + 2^-{bits}) 1: has an operand {bits} mantissa bits?"
        yield Probe(name=f"operand-{bits}", asks=asks, factors={0: (x, 1.0)})
        yield Probe(name=f"operand-b-{bits}", asks=asks, factors={0: (1.0, x)})
    for bits in MANTISSAS:
        for name, x in tie_operands(bits).items():
            asks = f"{x!r} 1: how is it rounded to {bits} mantissa bits?"
            yield Probe(name=f"operand-{bits}-{name}", asks=asks, factors={0: (x, 1.0)})
    asks = "2^40 2^-40: does the operand's exponent fit?"
    yield Probe(name="operand-range", asks=asks, factors={0: (2.0**40, 2.0**-40)})
    largest = float.fromhex("0x1.fffffep+127")
    asks = "the largest float32, times 2^-100: does rounding the operand make it infinite?"
    yield Probe(name="operand-largest", asks=asks, factors={0: (largest, 2.0**-100)})


def tie_operands(bits: int) -> dict[str, float]:
    """Return float32 numbers around the middle of two that have ``bits`` mantissa bits, by what they are."""
    half = 2.0 ** -(bits + 1)
    sticky = 2.0**-23
    return {
        "even": 1 + half, "odd": 1 + 3 * half, "above": 1 + half + sticky, "below": 1 + half - sticky,
        "minus-even": -(1 + half), "minus-odd": -(1 + 3 * half),
    }  # fmt: skip

"""What the directed probes say by themselves, whatever model fits: each answer from a few results, without a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from ops.studies.selftest.probes import (
    BIG,
    DEPTH,
    LAST,
    LATE_GAPS,
    MANTISSAS,
    ROUNDINGS,
    WIDTH_LANES,
    WIDTHS,
    tie_operands,
)

NOT_SEEN: Final = "not seen"
"""The probes contradict each other, or show something that no answer is known for."""
UNKNOWN: Final = "unknown"
"""The probes have one result whatever is multiplied: what seems lost says nothing."""
FLOAT32_BITS: Final = 24

Shown = Mapping[str, float]
"""Result of each directed probe by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An answer.

    Attributes
    ----------
    feature : str
        What was asked: "products added at once", ...
    value : str
        What the device does, `NOT_SEEN` or `UNKNOWN`.
    probes : str
        Results that say so.
    """

    feature: str
    value: str
    probes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """How the Cube takes operands of 32 bits.

    Attributes
    ----------
    mantissa_bits : int or None
        Bits that both operands keep; None: the probes disagree, or show none.
    ties : str or None
        "even", "away", "toward_zero" (of nearest), "truncated", or None where nothing is rounded or nothing fits.
    wide : bool
        Whether the exponent of a float32 fits.
    """

    mantissa_bits: int | None
    ties: str | None
    wide: bool


def read(tensors: str, shown: Shown) -> tuple[Reading, ...]:
    """Return every answer that tensors of a type can give."""
    found = [_operand_reading(shown)] if DTYPES[tensors].item_bytes == 4 else []
    found += [_group_reading(shown), _width_reading(shown), _rounding_reading(shown)]
    if DTYPES[tensors].item_bytes == 4 and (read_operands(shown).mantissa_bits or 0) > FLOAT32_BITS // 2:
        found.append(_product_reading(shown))
    found += [*_subnormal_readings(tensors, shown), *_overflow_readings(tensors, shown), _special_reading(shown)]
    # NaN and Inf may pass a device that adds nothing
    results = {value for value in shown.values() if math.isfinite(value)}
    if len(results) < 2:
        words = f"every finite result is {number(*results)}" if results else "no result is finite"
        return tuple(replace(one, value=UNKNOWN, probes=words) for one in found)
    return tuple(found)


def read_group(shown: Shown) -> int | None:
    """Return the products that are added at once, `DEPTH` for that many or more; None: no size fits."""
    together = {k: shown[f"pair-{k}"] == 2 for k in range(1, LAST - 1)}
    return next((group for group in range(1, DEPTH) if _has_groups(together, group)), None) or (
        DEPTH if all(kept for k, kept in together.items() if not _is_tree_gap(k)) else None
    )


def _is_tree_gap(k: int) -> bool:
    """Whether k and its neighbour meet the large term at k = 0 one by one in a tree."""
    return (k + 1) & k == 0


def _has_groups(together: Mapping[int, bool], group: int) -> bool:
    if group > LAST - 1:
        return False
    for k, kept in together.items():
        if (k + 1) % group == 0:
            if kept:
                return False
        elif not kept and not (k < group and _is_tree_gap(k)):
            return False
    return True


def _group_reading(shown: Shown) -> Reading:
    feature = "products added at once"
    group = read_group(shown)
    if group == 1:
        cut = [gap for gap in LATE_GAPS if shown[f"late-{gap}"] == 0]
        if cut:
            words = f"more than {max(cut)}, cut off at the last bit of the largest"
            return Reading(feature=feature, value=words, probes=_list(shown, (f"late-{gap}" for gap in LATE_GAPS)))
    if group is None:
        return Reading(feature=feature, value=NOT_SEEN, probes=_pair_words(shown))
    return Reading(
        feature=feature, value=str(group) if group < DEPTH else f"{DEPTH} or more", probes=_pair_words(shown)
    )


def _pair_words(shown: Shown) -> str:
    apart = [k for k in range(1, LAST - 1) if shown[f"pair-{k}"] != 2]
    if not apart:
        return "pair-*: every two neighbours are added at once"
    ends = ", ".join(f"{k}|{k + 1}" for k in apart[:6]) + (", .." if len(apart) > 6 else "")
    return f"pair-*: not at once {ends}"


def read_width(shown: Shown) -> int | None:
    """Return the bits that one addition holds; None: fewer than any probe asks for."""
    widest = 0
    for k in WIDTH_LANES:
        held = 0
        for width in WIDTHS:
            if shown[f"width-{width}-{k}"] != math.ldexp(1.0, 30 - width):
                break
            held = width
        widest = max(widest, held)
    return widest + 1 if widest else None


def _width_reading(shown: Shown) -> Reading:
    feature = "bits of an addition"
    bits = read_width(shown)
    if bits is None:
        return Reading(feature=feature, value=f"fewer than {WIDTHS[0] + 1}", probes=f"width-{WIDTHS[0]}-*: lost")
    if bits > WIDTHS[-1]:
        return Reading(feature=feature, value=f"{bits} or more", probes=f"width-{WIDTHS[-1]}-*: kept")
    after = next(width for width in WIDTHS if width >= bits)
    between = "" if after == bits else f" to {after}"
    extra = f" ({bits - FLOAT32_BITS} more than float32)" if bits > FLOAT32_BITS else ""
    words = {53: "53 (float64)", FLOAT32_BITS: "24 (float32)"}.get(bits, f"{bits}{between}{extra}")
    return Reading(feature=feature, value=words, probes=f"width-{bits - 1}-*: kept, width-{after}-*: lost")


def _to_place(value: float, place: float, count: Callable[[float], float]) -> float:
    return count(value / place) * place


def _half_away(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5), x)


_MODES: Final[Mapping[str, Callable[[float], float]]] = {
    "to nearest, ties to even": round,
    "to nearest, ties away from zero": _half_away,
    "to nearest, ties toward zero": lambda x: math.copysign(math.ceil(abs(x) - 0.5), x),
    "toward zero": math.trunc,
    "up": math.ceil,
    "down": math.floor,
}


def _rounded(mode: str, before: float, added: float) -> float:
    """Return what is left of the large term when it is subtracted again; ``before`` is there already."""
    total = BIG + before + added
    sign_place = 2.0 if abs(total) >= BIG else 1.0
    return _to_place(total, sign_place, _MODES[mode]) - BIG


def _expected_rounding(mode: str) -> dict[str, float]:
    mirrored = {"up": "down", "down": "up"}.get(mode, mode)
    plus = {f"round-plus-{name}": _rounded(mode, *terms) for name, terms in ROUNDINGS.items()}
    return plus | {f"round-minus-{name}": -_rounded(mirrored, *terms) for name, terms in ROUNDINGS.items()}


def _cut_off() -> dict[str, float]:
    """Terms lose what lies below the last bit of the largest before they are added."""
    kept = {name: before + math.trunc(added / 2) * 2 for name, (before, added) in ROUNDINGS.items()}
    return {f"round-plus-{name}": value for name, value in kept.items()} | {
        f"round-minus-{name}": -value for name, value in kept.items()
    }


def _rounding_reading(shown: Shown) -> Reading:
    expected = {mode: _expected_rounding(mode) for mode in _MODES}
    expected["none: terms are cut off before they are added"] = _cut_off()
    fits = [mode for mode, results in expected.items() if all(shown[name] == results[name] for name in results)]
    words = (
        f"round-{word}-*: " + ", ".join(number(shown[f"round-{word}-{name}"]) for name in ROUNDINGS)
        for word in ("plus", "minus")
    )
    return Reading(feature="rounding of a sum", value=" or ".join(fits) or NOT_SEEN, probes="; ".join(words))


def _product_reading(shown: Shown) -> Reading:
    """Products of operands of few bits say nothing: float32 holds them."""
    answers = {"exact": (2.0**-24,), "rounded to float32": (0.0,)}
    return _choice(shown, "product before it is added", ("product",), answers)


def read_operands(shown: Shown) -> Operands:
    """Return how the Cube takes operands of 32 bits."""
    kept = [_kept_bits(shown, prefix) for prefix in ("operand-", "operand-b-")]
    bits = kept[0] or None if kept[0] == kept[1] else None
    return Operands(mantissa_bits=bits, ties=_tie_rule(shown, bits), wide=shown["operand-range"] == 1)


def _kept_bits(shown: Shown, prefix: str) -> int:
    kept = 0
    for bits in range(1, 24):
        if shown[f"{prefix}{bits}"] != 1 + 2.0**-bits:
            break
        kept = bits
    return kept


def _tie_rule(shown: Shown, bits: int | None) -> str | None:
    if bits not in MANTISSAS:
        return None
    rules = {
        "even": _MODES["to nearest, ties to even"], "away": _MODES["to nearest, ties away from zero"],
        "toward_zero": _MODES["to nearest, ties toward zero"], "truncated": _MODES["toward zero"],
    }  # fmt: skip
    place = 2.0**-bits
    given = tie_operands(bits)
    fits = [
        rule
        for rule, count in rules.items()
        if all(shown[f"operand-{bits}-{name}"] == _to_place(x, place, count) for name, x in given.items())
    ]
    return fits[0] if fits else None


def _operand_reading(shown: Shown) -> Reading:
    operands = read_operands(shown)
    bits = operands.mantissa_bits
    feature = "operands"
    if bits is None:
        return Reading(feature=feature, value=NOT_SEEN, probes="operand-* and operand-b-* disagree or are lost")
    ties = {
        "even": "to nearest, ties to even", "away": "to nearest, ties away from zero",
        "toward_zero": "to nearest, ties toward zero", "truncated": "cut off", None: "in no known way",
    }[operands.ties]  # fmt: skip
    rounding = "" if bits == FLOAT32_BITS - 1 else f", rounded {ties}"
    limit = "" if operands.wide else ", exponent limited"
    names = [f"operand-{bits}-{name}" for name in tie_operands(bits)] if bits in MANTISSAS else [f"operand-{bits}"]
    return Reading(feature=feature, value=f"{bits} mantissa bits{rounding}{limit}", probes=_list(shown, names))


def _subnormal_readings(tensors: str, shown: Shown) -> Iterator[Reading]:
    names = ("subnormal-operand", "subnormal-operand-b")
    yield _choice(shown, "subnormal operands", names, {"count": (2.0**-12,) * 2, "are zero": (0.0, 0.0)})
    if tensors == "fp16":
        return
    tiny = 2.0**-126
    kept = {"subnormal-sum": 1.5 * tiny, "subnormal-negative": 1.5 * tiny}
    flushed = {"subnormal-sum": tiny, "subnormal-negative": 2 * tiny}
    yield _choice(
        shown, "subnormal sums", tuple(kept), {"kept": tuple(kept.values()), "become zero": tuple(flushed.values())}
    )
    names = ("subnormal-result", "subnormal-difference")
    yield _choice(shown, "subnormal results", names, {"kept": (tiny / 2,) * 2, "become zero": (0.0, 0.0)})


def _overflow_readings(tensors: str, shown: Shown) -> Iterator[Reading]:
    if tensors == "fp16":
        return
    huge = 2.0**127
    names = ("overflow-plus", "overflow-minus")
    values = tuple(shown[name] for name in names)
    if read_group(shown) == DEPTH:
        words = f"{NOT_SEEN}: one group holds all of it"
    elif all(
        math.isfinite(value) and abs(value / huge - sign) < 0.01 for value, sign in zip(values, (1, -1), strict=True)
    ):
        words = "the largest float32"
    elif values == (math.inf, -math.inf):
        words = "infinity"
    else:
        words = NOT_SEEN
    yield Reading(feature="finite sum that overflows", value=words, probes=_list(shown, names))
    inside = {"wider than a float32": (huge,), "overflows": (math.inf,)}
    yield _choice(shown, "sum inside a group", ("overflow-inside",), inside)


def read_overflow(shown: Shown) -> str | None:
    """Return the overflow mode, "inf_nan" or "saturate"; None where the probes contradict each other."""
    values = [shown[f"special-{name}"] for name in ("inf", "inf-b", "nan")]
    if math.isinf(values[0]) and math.isinf(values[1]) and math.isnan(values[2]):
        return "inf_nan"
    return "saturate" if all(map(math.isfinite, values)) else None


def _special_reading(shown: Shown) -> Reading:
    words = {"inf_nan": "stay what they are", "saturate": "become numbers", None: NOT_SEEN}[read_overflow(shown)]
    names = [f"special-{name}" for name in ("inf", "inf-then", "inf-zero", "nan")]
    return Reading(feature="infinities and NaN", value=words, probes=_list(shown, names))


def _choice(shown: Shown, feature: str, names: tuple[str, ...], answers: Mapping[str, tuple[float, ...]]) -> Reading:
    values = tuple(shown[name] for name in names)
    word = next((word for word, expected in answers.items() if values == expected), NOT_SEEN)
    return Reading(feature=feature, value=word, probes=_list(shown, names))


def _list(shown: Shown, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {number(shown[name])}" for name in names)


def number(value: float) -> str:
    """Return a result in a few characters that are all of it: powers of two as such where that is shorter."""
    text = f"{value:g}" if value else "0"
    if len(text) <= 6 and (not math.isfinite(value) or float(text) == value):
        return text
    mantissa, exponent = math.frexp(value)
    if abs(mantissa) == 0.5:
        return f"{'-' if value < 0 else ''}2^{exponent - 1}"
    if math.ldexp(mantissa, 6).is_integer():
        return f"{2 * mantissa:g} 2^{exponent - 1}"
    return f"{np.float32(value):.9g}"

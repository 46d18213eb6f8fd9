"""Models of the additions inside one Mmad, as named and switchable values.

No public document says in which order and how precisely a Cube adds along k. `Accumulation` names the candidates, the
product table says which one is the default for which operand type and on what evidence, and reports name the model
they used. The arithmetic itself is in `isa.cube`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from npu_sim.errors import OperatorError, ProductError, shown
from npu_sim.products.product import ACCUMULATION_PARTS, MAX_GROUP

if TYPE_CHECKING:
    from npu_sim.products import Product

_INVALID_PARAMETER: Final = 161002
_NAME = re.compile(r"(?P<inner>exact|tree)(?P<group>[1-9][0-9]{0,3})-(?P<round>rne|rz)(?P<parts>(?:[+][a-z]+)*)")
_SERIAL_PARTS: Final = {"subnormals": "keep", "overflow_to": "inf", "saturates": "results"}


class Inner(IntEnum):
    """How the products of one group are added, as jitted code numbers it."""

    EXACT = 0
    """In float64, ascending k, starting from the accumulator."""
    TREE = 1
    """Products rounded to float32, summed by a float32 tree over neighbours, then added to the accumulator."""
    SERIAL = 2
    """One float32 fused multiply-add per k."""


class AccumulatorRound(IntEnum):
    """How the sum of a group becomes the float32 accumulator, as jitted code numbers it."""

    RNE = 0
    """To nearest, ties to even."""
    RZ = 1
    """Toward zero: a finite sum that is too large becomes the largest finite value."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """One model of the additions inside a Mmad.

    The k of each Mmad is cut into groups, from k = 0 on; the last group may be shorter. One group changes the float32
    accumulator of an element once. Products of padding lanes beyond the true k are never added.

    What stands for a float32 is the same in every group: NaN is 0x7FFFFFFF, and a zero is negative if each of its terms
    is. The serial model has neither this nor the parts below: it is what the float32 of a CPU makes.

    Parameters
    ----------
    group : int
        Products per group, 1 to 4095. A group of one product is the serial model, whatever `inner` was given.
    inner : {"exact", "tree", "serial"}
        ``"exact"``: float64 additions in ascending k, starting from the accumulator, then one rounding to float32.
        ``"tree"``: products rounded to float32, float32 additions of neighbours (an odd one out waits for the next
        level), then one float32 addition to the accumulator.
        ``"serial"``: one float32 fused multiply-add per k, across groups and Mmads; only with ``group=1``.
    round : {"rne", "rz"}
        Rounding of the sum to the accumulator; the serial model has only ``"rne"``.
    subnormals : {"flush", "keep"} or None
        Accumulators and results of groups below 2^-126: ``"flush"`` makes them a zero of their sign, but not a sum that
        rounds up to 2^-126; operands always count as they are. None: ``"flush"``, in the serial model ``"keep"``.
    overflow_to : {"inf", "max"} or None
        What a finite sum becomes that rounds to more than float32 has. None: ``"inf"``, with ``round="rz"`` ``"max"``;
        neither of the two has the other.
    saturates : {"operands", "results"} or None
        Where an overflow mode that saturates does so. ``"operands"``: operands and accumulators before they count (Inf
        becomes the largest finite value of its type, NaN a zero, each of its sign) and the result of each group;
        ``"results"``: the result of a Mmad, when it ends (Inf becomes the largest float32, NaN +0). None:
        ``"operands"``, in the serial model ``"results"``.

    Raises
    ------
    OperatorError
        If a field breaks its rule (status 161002).

    Examples
    --------
    >>> Accumulation(16, "exact", "rne").name
    'exact16-rne'
    >>> Accumulation(4, "exact", "rne", subnormals="keep", overflow_to="max").name
    'exact4-rne+keep+max'
    >>> Accumulation(1, "exact", "rne") == Accumulation(1, "serial", "rne")
    True

    Notes
    -----
    ASSUMED: every model. Two things speak for the defaults of A2 and A3: published measurements of fp32 and HF32 matmul
    fit groups of 4 and 8 exact products with one round to nearest (Jittor/jittor pull request 18025), and a public
    emulator of dav-2201 by other authors (eWloYW8/OpenAscendEmulator) has the same groups, sums and rounding, flushes
    subnormals and saturates operands. It has ``overflow_to="max"``; documents have the default.
    """

    group: int
    inner: str
    round: str
    subnormals: str | None = None
    overflow_to: str | None = None
    saturates: str | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.group, int) and not isinstance(self.group, bool)
        if not (whole and 1 <= self.group <= MAX_GROUP):
            raise _refused(f"Accumulation.group must be an integer in [1, {MAX_GROUP}], not {shown(self.group)}")
        if not isinstance(self.inner, str) or self.inner not in ("exact", "tree", "serial"):
            raise _refused(f"Accumulation.inner must be 'exact', 'tree' or 'serial', not {shown(self.inner)}")
        if not isinstance(self.round, str) or self.round not in ("rne", "rz"):
            raise _refused(f"Accumulation.round must be 'rne' or 'rz', not {shown(self.round)}")
        if self.inner == "serial" and self.group != 1:
            raise _refused(f"Accumulation.group must be 1, not {self.group} (inner='serial')")
        if self.group == 1:
            if self.round != "rne":
                raise _refused(f"Accumulation.round must be 'rne', not {self.round!r} (group=1, the serial chain)")
            object.__setattr__(self, "inner", "serial")
        for part in ACCUMULATION_PARTS:
            self._settle(part)

    def _settle(self, part: str) -> None:
        """Give a part that was left open its value, and refuse one that the model does not have."""
        choices, reason = ACCUMULATION_PARTS[part], ""
        if self.inner == "serial":
            choices, reason = (_SERIAL_PARTS[part],), " (group=1, the serial chain)"
        elif self.round == "rz" and part == "overflow_to":
            choices, reason = ("max",), " (round='rz')"
        value = getattr(self, part)
        if value is None:
            object.__setattr__(self, part, choices[0])
        elif not isinstance(value, str) or value not in choices:
            rule = " or ".join(map(repr, choices))
            raise _refused(f"Accumulation.{part} must be {rule}, not {shown(value)}{reason}")

    @classmethod
    def parse(cls, value: Any, default: Accumulation) -> Accumulation:
        """Return the model a caller asked for.

        Parameters
        ----------
        value : None, str or Accumulation
            None for ``default``, ``"serial"`` or another `name`, or a model.
        default : Accumulation
            The product's model for the operand type, see `default_accumulation`.

        Raises
        ------
        OperatorError
            If ``value`` is none of these (status 161002).
        """
        if value is None:
            return default
        if isinstance(value, Accumulation):
            return value
        match = _NAME.fullmatch(value) if isinstance(value, str) else None
        if isinstance(value, str) and value == "serial":
            return SERIAL
        if match is None:
            raise _refused(
                "accumulation must be None, an npu_sim.Accumulation, 'serial' or a name like 'exact16-rne' or "
                f"'tree4-rz+keep', not {shown(value)}"
            )
        return cls(int(match["group"]), match["inner"], match["round"], **_parts(match["parts"], value))

    @property
    def name(self) -> str:
        """Name for reports: ``"exact16-rne"``, ``"tree4-rz"``, ``"serial"``; `parse` reads it back.

        Parts that differ from what None means follow: ``"exact16-rne+keep"``.
        """
        if self.inner == "serial":
            return "serial"
        plain = Accumulation(self.group, self.inner, self.round)
        values = [getattr(self, part) for part in ACCUMULATION_PARTS if getattr(self, part) != getattr(plain, part)]
        return "+".join((f"{self.inner}{self.group}-{self.round}", *values))

    @property
    def inner_code(self) -> int:
        """The `Inner` of this model as an integer."""
        return int(Inner[self.inner.upper()])

    @property
    def round_code(self) -> int:
        """The `AccumulatorRound` of this model as an integer."""
        return int(AccumulatorRound[self.round.upper()])

    @property
    def flushes(self) -> bool:
        """Whether subnormal accumulators and results become zero."""
        return self.subnormals == "flush"

    @property
    def codes(self) -> tuple[int, int, int, int, int]:
        """``(group, inner, round, flushes, overflows to max)`` as `isa.cube.mmad` takes them."""
        return self.group, self.inner_code, self.round_code, int(self.flushes), int(self.overflow_to == "max")

    def __str__(self) -> str:
        return self.name


def _parts(text: str, name: str) -> dict[str, str]:
    """Return the parts that a name adds, such as "+keep+max"."""
    found: dict[str, str] = {}
    for value in text.split("+")[1:]:
        part = next((part for part, choices in ACCUMULATION_PARTS.items() if value in choices), None)
        if part is None or part in found:
            each = ", ".join("'+" + "' or '+".join(choices) + "'" for choices in ACCUMULATION_PARTS.values())
            raise _refused(f"accumulation may add at most one of each of {each}, not {shown(name)}")
        found[part] = value
    return found


def _refused(message: str) -> OperatorError:
    return OperatorError(message, _INVALID_PARAMETER)


SERIAL = Accumulation(1, "serial", "rne")
"""One float32 chain in ascending k over all Mmads that add to the same L0C element."""


def default_accumulation(product: Product, compute_dtype: str) -> Accumulation:
    """Return the default model of ``product`` for Cube operands of ``compute_dtype``.

    Parameters
    ----------
    product : Product
        The record of `npu_sim.get_product`.
    compute_dtype : str
        ``"fp16"``, ``"bf16"``, ``"hf32"`` or ``"fp32"``.

    Raises
    ------
    ProductError
        If the Cube of the product does not multiply this type.
    """
    model = product.accumulation.get(compute_dtype) if isinstance(compute_dtype, str) else None
    if model is None:
        known = ", ".join(sorted(product.accumulation))
        raise ProductError(f"compute_dtype must be one of {known}, not {shown(compute_dtype)} ({product.name})")
    return _with_parts(*model, product.cube_subnormals, product.cube_overflow_to, product.cube_saturates)


@cache
def _with_parts(group: int, inner: str, rounds: str, subnormals: str, overflow_to: str, saturates: str) -> Accumulation:
    """Return a model with the parts that a product says, which the serial one has not."""
    plain = Accumulation(group, inner, rounds)
    if plain.inner == "serial":
        return plain
    return Accumulation(
        group, inner, rounds, subnormals, overflow_to if rounds == "rne" else plain.overflow_to, saturates
    )

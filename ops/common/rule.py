"""The check of a call as a table of rules in the library's order; the first breach decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from npu_sim.errors import OperatorError, shown
from npu_sim.products import Product
from ops.common.capability import BF16, NO_ACLNN, Capability, series_of_calls
from ops.common.status import AclnnStatus

Profile = Literal["page", "library"]
"""What wins where the operator's published page and newer library source differ."""
PROFILES: tuple[Profile, ...] = ("page", "library")


def check_profile(profile: object, rule: str = "one of") -> None:
    """Refuse what is none of `PROFILES`; ``rule`` begins the rule in the message.

    Raises
    ------
    OperatorError
        161002.
    """
    if not isinstance(profile, str) or profile not in PROFILES:
        text = f"profile must be {rule} {', '.join(PROFILES)}, not {shown(profile)}"
        raise OperatorError(text, int(AclnnStatus.ACLNN_ERR_PARAM_INVALID))


STATUS_NULL = AclnnStatus.ACLNN_ERR_PARAM_NULLPTR
STATUS_INVALID = AclnnStatus.ACLNN_ERR_PARAM_INVALID


class RuledCall(Protocol):
    """What every rule needs to know of a call."""

    @property
    def product(self) -> Product:
        """Where it runs."""

    @property
    def column(self) -> Profile:
        """The profile in force."""


CallT = TypeVar("CallT", bound=RuledCall)


def product_text(call: RuledCall) -> str:
    """Return "Ascend910A, Atlas training series" for messages."""
    return f"{call.product.name}, {call.product.series_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[CallT]):
    """One rule: the check, the message, the tests and the page of rules are made from it.

    Attributes
    ----------
    step : str
        Where the check stands in the library's order.
    name : str
        Unique name.
    parameter : str
        Argument it is about, as the interface calls it.
    requirement : str
        What must hold, in words, for the page of rules; `ops.common.capability.with_series` fills in series.
    violation : callable
        The check: "<Thing> must be <rule>, not <value>", or None where the rule holds or does not concern the call.
    source : str
        Public source.
    status : AclnnStatus
        What the call returns if it does not hold.
    needs : Capability or None
        What a product must have for the rule to apply to it; None: it applies to all.
    profiles : tuple of str
        Profiles it applies under.
    switch : str
        Option that turns it on; empty: always on.
    """

    step: str
    name: str
    parameter: str
    requirement: str
    violation: Callable[[CallT], str | None]
    source: str
    status: AclnnStatus = STATUS_INVALID
    needs: Capability | None = None
    profiles: tuple[Profile, ...] = PROFILES
    switch: str = ""

    def concerns(self, call: CallT) -> bool:
        """Return whether the rule looks at ``call`` at all."""
        return (self.needs is None or self.needs.holds(call.product)) and call.column in self.profiles

    def find(self, call: CallT) -> str | None:
        """Return the sentence for the first breach, None where the rule holds or does not concern the call."""
        return self.violation(call) if self.concerns(call) else None


RuleT = TypeVar("RuleT", bound=Rule)


def product_rule(kind: type[RuleT]) -> RuleT:
    """Return the rule, before all others, that the operator exists on the product."""

    def violation(call: RuledCall) -> str:
        return sentence("product", f"of the series {', '.join(series_of_calls())}", call.product.name)

    return kind(
        step="0", name="product", parameter="product", requirement="on a product of the series {aclnn}", needs=NO_ACLNN,
        violation=violation, source="supported products of the page; ASSUMED: the status",
    )  # fmt: skip


def null_rule(kind: type[RuleT], name: str, parameter: str, field: str, what: str, source: str) -> RuleT:
    """Return the rule, among the first, that ``parameter`` (``field`` of the call) is ``what`` and no null pointer."""
    return kind(
        step="1", name=name, parameter=parameter, requirement=f"{what}, not a null pointer", status=STATUS_NULL,
        violation=lambda call: null_violation(call, field, parameter, what), source=source,
    )  # fmt: skip


def dtype_rule(kind: type[RuleT], name: str, parameter: str, field: str, source: str) -> RuleT:
    """Return the rule that a tensor is of a floating-point type of the Cube."""
    return kind(
        step="2", name=name, parameter=parameter, source=source,
        requirement="FP32 or FP16, or BF16 where the Cube multiplies it ({bf16})",
        violation=lambda call: dtype_violation(call, field, parameter),
    )  # fmt: skip


def first_breach(call: RuledCall, rules: Iterable[RuleT]) -> tuple[RuleT, str] | None:
    """Return the first of ``rules`` that ``call`` breaks and its sentence, None if it breaks none."""
    for rule in rules:
        found = rule.find(call)
        if found is not None:
            return rule, found
    return None


def refuse_breach(call: CallT, rules: Iterable[Rule[CallT]], context: Callable[[CallT], str]) -> None:
    """Refuse a call that breaks a rule.

    Parameters
    ----------
    call : RuledCall
        The arguments; anything may be missing or wrong in them.
    rules : iterable of Rule
        In the order of the checks.
    context : callable
        Returns what the message says about the call, the product at least.

    Raises
    ------
    OperatorError
        With the status of the first rule that is broken; the message names the rule, the value and the product.
    """
    found = first_breach(call, rules)
    if found is not None:
        rule, text = found
        raise OperatorError(f"{text} ({context(call)}; rule {rule.step} {rule.name})", int(rule.status))


def sentence(thing: str, rule: str, value: object) -> str:
    """Return "<Thing> must be <rule>, not <value>"."""
    return f"{thing} must be {rule}, not {value}"


def first(sentences: Iterable[str | None]) -> str | None:
    """Return the first sentence."""
    return next((text for text in sentences if text is not None), None)


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as the messages show it."""
    return f"[{', '.join(str(extent) for extent in shape)}]"


def null_violation(call: RuledCall, field: str, parameter: str, kind: str) -> str | None:
    """Return the sentence for a null pointer where ``kind`` must be given."""
    return sentence(parameter, kind, "a null pointer") if getattr(call, field) is None else None


def dtype_violation(call: RuledCall, field: str, parameter: str) -> str | None:
    """Return the sentence for a tensor that is not of a floating-point type of the Cube; a null pointer is none."""
    desc = getattr(call, field)
    has_bf16 = BF16.holds(call.product)
    allowed = ("fp32", "fp16", "bf16") if has_bf16 else ("fp32", "fp16")
    if desc is None or desc.dtype in allowed:
        return None
    return sentence(f"{parameter} dtype", "FP32, FP16 or BF16" if has_bf16 else "FP32 or FP16", desc.dtype.upper())

"""A standard as a record, the evidence it judges, and how its finding becomes a verdict."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from npu_sim.errors import DTypeError, ShapeError
from npu_sim.fenv import default_fenv
from npu_sim.report.precision import ElementErrors
from npu_sim.report.standards.verdict import MATCHED, Check, Finding, Verdict, VoidCause

DTYPES = {"fp16": "FLOAT16", "bf16": "BFLOAT16", "fp32": "FLOAT32", "hf32": "HiFLOAT32"}
"""Rows of the standards as CANN spells them; their FLOAT8 and HiFloat8 rows have no tensor to apply to here."""
WITHOUT_HF32 = DTYPES | {"hf32": "FLOAT32"}
"""The same for standards without a row for HF32: a result multiplied in it is float32."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Peer:
    """A second result of the same format beside the same golden.

    Attributes
    ----------
    name : str
        What made it, for the record.
    errors : ElementErrors
        It beside the golden.
    """

    name: str
    errors: ElementErrors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What a standard judges.

    Attributes
    ----------
    errors : ElementErrors
        Result beside golden, from `npu_sim.report.precision.element_errors`.
    row : {"fp16", "bf16", "fp32", "hf32"}
        Dtype row: the format of the result, or ``"hf32"`` for a float32 result that was multiplied in HF32.
    golden : str
        Name of the golden, for the record.
    peer : Peer or None
        For the standards that compare two results with one golden.
    inputs_lost : bool
        Whether the inputs became all 0 before they were multiplied, so that a pass says nothing.

    Raises
    ------
    DTypeError
        The row is unknown, or the peer's format or mode of overflow is another than the result's.
    ShapeError
        The peer's golden is another than the result's.
    """

    errors: ElementErrors
    row: str
    golden: str
    peer: Peer | None = None
    inputs_lost: bool = False

    def __post_init__(self) -> None:
        if self.row not in DTYPES:
            raise DTypeError(f"The row must be one of {', '.join(DTYPES)}, not {self.row}")
        if self.peer is None:
            return
        own, other = self.errors, self.peer.errors
        if (own.format, own.overflow) != (other.format, other.overflow):
            raise DTypeError(
                f"The peer must be {own.format.name} with the overflow {own.overflow}, not {other.format.name} with "
                f"{other.overflow} ({self.peer.name})"
            )
        if not np.array_equal(own.golden, other.golden, equal_nan=True):
            raise ShapeError(f"The peer must have the golden of the result, not another ({self.peer.name})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """One standard.

    Attributes
    ----------
    name, title : str
        How options spell it, and its name in words.
    version, source, commit : str
        Which edition, and where it is written.
    rule : str
        When a result passes, in one sentence.
    rows : mapping of str to str
        Name of the row for each dtype row.
    thresholds : callable
        (dtype row) to the numbers of that row, in words.
    find : callable
        `Evidence` to `Finding`.
    needs_peer : bool
        Whether it compares with a second result.
    """

    name: str
    title: str
    version: str
    source: str
    commit: str
    rule: str
    rows: Mapping[str, str]
    thresholds: Callable[[str], str]
    find: Callable[[Evidence], Finding]
    needs_peer: bool = False

    def summary(self) -> dict[str, str]:
        """Return what names the standard, and its rule."""
        return {key: getattr(self, key) for key in ("name", "title", "version", "source", "commit", "rule")}

    @default_fenv
    def judge(self, evidence: Evidence) -> Verdict:
        """Return the verdict on ``evidence``."""
        without_peer = self.needs_peer and evidence.peer is None
        found = _NO_PEER if without_peer else self.find(evidence)
        zeros = _NO_PEER if without_peer else self.find(_of_zeros(evidence))
        errors = evidence.errors
        causes: dict[VoidCause, bool] = {
            "empty": errors.error.size == 0,
            "peer": without_peer,
            "golden": errors.golden_specials == errors.error.size,
            "inputs": evidence.inputs_lost,
            "zeros": zeros.passes,
        }
        cause = next((name for name, holds in causes.items() if holds), None) if found.passes else None
        return Verdict(
            outcome="void" if cause else "pass" if found.passes else "fail",
            void_cause=cause,
            standard=self.name,
            title=self.title,
            version=self.version,
            source=self.source,
            commit=self.commit,
            row=self.rows[evidence.row],
            thresholds=self.thresholds(evidence.row),
            golden=evidence.golden,
            peer=evidence.peer.name if self.needs_peer and evidence.peer is not None else "",
            deciding=found.deciding.text,
            label=found.deciding.label,
            remark=found.remark if not cause else "",
            zero_match_ratio=_zero_match_ratio(errors, zeros),
            # a standard with a peer compares two errors, which scale alike
            least_scale=self._least_scale(evidence) if cause == "zeros" and not self.needs_peer else found.scale,
            checks=found.checks,
        )

    def _least_scale(self, evidence: Evidence) -> int | None:
        """Return the least exponent of two that makes zeros fail beside the scaled golden, None if none does."""
        evidence = replace(evidence, peer=None)
        exponents = range(1, _MOST_SCALE + 1)
        least = bisect_left(exponents, True, key=lambda exponent: not self.find(_of_zeros(evidence, exponent)).passes)
        return exponents[least] if least < len(exponents) else None


_MOST_SCALE = 64
_PEERS = Check(name="peers to compare with", label="peer", value=0, relation=">=", threshold=1)
_NO_PEER = Finding(passes=True, checks=(_PEERS,), deciding=_PEERS)
"""Without a peer nothing is found, and the verdict is void."""


def _zero_match_ratio(errors: ElementErrors, zeros: Finding) -> float | None:
    """Return the share of the elements with a golden other than 0 that zeros match: 0 is matched whatever the scale.

    NaN and Inf, which `_of_zeros` has right, are not counted.
    """
    shares = [check.value for check in zeros.checks if check.name == MATCHED]
    count, others = errors.golden.size, int(np.count_nonzero(errors.golden[~errors.is_special]))
    return (round(shares[0] * count) - (count - others)) / others if shares and others else None


def _of_zeros(evidence: Evidence, exponent: int = 0) -> Evidence:
    """Return the evidence of zeros beside the golden times 2**exponent; a peer has the golden as it is.

    NaN and Inf of the golden are in it: a result that has them right and is 0 elsewhere tells as little of what is
    finite as one of nothing but zeros.
    """
    golden = np.ldexp(evidence.errors.golden, exponent) if exponent else evidence.errors.golden
    is_special = evidence.errors.is_special
    errors = replace(
        evidence.errors,
        golden=golden,
        actual=np.where(is_special, golden, 0.0),
        error=np.where(is_special, 0.0, np.abs(golden)),
        special_mismatches=0,
    )
    return replace(evidence, errors=errors)

"""Kernels judged: values, races, legality and cycles of one call in one answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npu_sim.debug.divergence import WrongTensor, compare
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineResult
from npu_sim.errors import InputFileError, ProgramError
from npu_sim.program.finding_codes import SEVERITIES
from npu_sim.report.explain import Explanation
from npu_sim.report.record import to_plain
from ops.studies.biting import with_orders
from ops.studies.cases import program_name
from ops.studies.checking import check_launches
from ops.studies.findings import Finding
from ops.studies.goldens_given import read_goldens

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall:
    """One call of a kernel.

    Attributes
    ----------
    made : Explanation
    stopped_by : str
        The error that left it before its end; "" if it ended.
    values : tuple of WrongTensor
        Each tensor that there is a golden for.
    findings : tuple of Finding
        Of all its launches, worst first.
    times : tuple of TimelineResult
        Launch by launch; none where a launch cannot be timed.
    timing_refusal : str
        Why.
    """

    made: Explanation
    stopped_by: str
    values: tuple[WrongTensor, ...]
    findings: tuple[Finding, ...]
    times: tuple[TimelineResult, ...]
    timing_refusal: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        counts = Counter(finding.code.severity for finding in self.findings)
        return {
            "title": self.made.title,
            "call": self.made.call,
            "product": self.made.product.name,
            "stopped_by": self.stopped_by,
            "values": to_plain(self.values),
            **{f"{severity}_count": counts[severity] for severity in SEVERITIES},
            "findings": [finding.document() for finding in self.findings],
            "timing_refusal": self.timing_refusal,
            "launches": [
                {
                    "launch": launch.name,
                    "core_kind": launch.core_kind,
                    "core_count": launch.core_count,
                    "phase_count": launch.phase_count,
                    "instruction_count": time.row_count,
                    "total_cycles": time.total_cycles,
                    "microseconds": round(time.seconds() * 1e6, 3),
                    "core_cycles": list(time.core_cycles),
                    "busy_cycles": dict(time.busy_cycles),
                }
                for launch, time in zip(self.made.launches, self.times, strict=False)
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is to be said of a file of kernels.

    Attributes
    ----------
    source : str
    calls : tuple of JudgedCall
    refusals : tuple of Finding
        Kernels that were refused at a line.
    error : str
        What the file ended with; "" if it ended well.
    """

    source: str
    calls: tuple[JudgedCall, ...]
    refusals: tuple[Finding, ...]
    error: str

    @property
    def reasons(self) -> list[str]:
        """Why it fails, in a fixed order; empty if it passes."""
        made = []
        if self.refusals:
            made.append("a kernel is refused")
        elif self.error:
            made.append("the file ended with an error")
        if not self.calls and not self.refusals:
            made.append("no kernel was launched")
        if any(call.stopped_by for call in self.calls) and not self.refusals:
            made.append("a kernel was left before its end")
        if any(finding.code.severity != "advice" for call in self.calls for finding in call.findings):
            made.append("the checks found something")
        if any(tensor.wrong_count for call in self.calls for tensor in call.values):
            made.append("values are over budget")
        if any(call.timing_refusal for call in self.calls):
            made.append("a launch cannot be timed")
        return made

    @property
    def passed(self) -> bool:
        """Whether there is nothing against it."""
        return not self.reasons

    def document(self) -> dict[str, Any]:
        """Return the answer as plain data: the same for the same kernels, whenever and wherever."""
        return {
            "schema_version": SCHEMA_VERSION,
            "program": program_name(),
            "source": self.source,
            "verdict": "pass" if self.passed else "fail",
            "reasons": self.reasons,
            "values_judged": any(call.values for call in self.calls),
            "error": self.error,
            "refusals": [finding.document() for finding in self.refusals],
            "calls": [call.document() for call in self.calls],
        }


def chosen_call(made: Sequence[Explanation], number: int | None) -> int:
    """Return the number of the call that goldens are for: the one asked for, or the last that kept its tensors.

    Raises
    ------
    InputFileError
        There is none.
    """
    kept = [index for index, one in enumerate(made) if one.execution is not None]
    if number is None and not kept:
        raise InputFileError("golden must be of a call of a kernel that ended, but none was run to its end")
    if number is None:
        return kept[-1]
    if number not in kept:
        words = ", ".join(map(str, kept)) or "none"
        raise InputFileError(f"--call must be a call of a kernel that ended ({words}), not {number}")
    return number


def judge_calls(
    made: Sequence[Explanation], goldens: Sequence[str], budget: float | None, number: int | None, error: str
) -> tuple[JudgedCall, ...]:
    """Judge every call.

    Parameters
    ----------
    made : sequence of Explanation
        Of kernels that kept their tensors.
    goldens : sequence of str
        See `read_goldens`.
    budget : float or None
        Units of the last place; None: `npu_sim.debug.distance.default_budget`.
    number : int or None
        The call that the goldens are for, see `chosen_call`.
    error : str
        What the file ended with, for a call that did not end.
    """
    values: dict[int, tuple[WrongTensor, ...]] = {}
    if goldens:
        chosen = chosen_call(made, number)
        execution = made[chosen].execution
        assert execution is not None
        places = {place.name: place for place in execution.launches[0].gm.tensors}
        values[chosen] = tuple(
            compare(places[name], execution.results[name], golden, budget)[0]
            for name, golden in read_goldens(goldens, execution).items()
        )
    return tuple(_judged(one, values.get(index, ()), error) for index, one in enumerate(made) if one.launches)


def _judged(made: Explanation, values: tuple[WrongTensor, ...], error: str) -> JudgedCall:
    _, findings = check_launches(made.launches, made.product)
    if made.takes_orders:
        findings = with_orders(findings, made.launches)
    times, untimed = [], ""
    try:
        times = [run_timeline(launch, made.product) for launch in made.launches]
    except ProgramError as refused:
        untimed = " ".join(str(refused).split())
    is_left = made.stopped_by or (error if not made.is_finished else "")
    return JudgedCall(
        made=made, stopped_by=is_left, values=values, findings=findings, times=tuple(times), timing_refusal=untimed
    )

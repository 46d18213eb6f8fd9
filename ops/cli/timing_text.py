"""Words that the reports of ``perf`` share: pipes, shares, critical paths, what is known about the costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from npu_sim.products import Product
from npu_sim.report.record import counted
from ops.studies.advice import Change, worth_it
from ops.studies.launch_times import describe_parameters, seconds_words

if TYPE_CHECKING:
    from npu_sim.engines.intervals import TimeInterval

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
_SHORT_PARTS = {"kernel_fixed": "fixed", "phase_barrier": "barrier"}
BOUNDS = (
    "low, high: where four of five of the published times lie that they were set by; with ?: a guess, as of kernels of "
    "the kind on this architecture none is published."
)
CRITICAL_PATH = (
    "Critical path: fixed is the kernel's prologue and epilogue, barrier the one between phases, latency the time "
    "until a result can be used, memory what L2 and memory take beyond the cores."
)
_CALLS_NAMED = 4
"""Calls that advice names, those first that gain most; the JSON has all."""
_LEAST_PART = 0.04
"""Parts of the critical path below this share are left out of the text."""


def refused_mark(count: int) -> str:
    """Return what stands behind the name or the time of what lacks refused calls; "" where none does."""
    return f" ({count} refused)" if count else ""


def without_refused(count: int) -> str:
    """Return the same in a sentence."""
    return f" without {counted(count, 'refused call')}" if count else ""


def percent(share: float, digits: int = 0) -> str:
    """Return "12%"."""
    return f"{100 * share:.{digits}f}%"


def critical_path(shares: Mapping[str, float]) -> str:
    """Return "MTE1 61%, MTE2 23%", the largest part first, small ones left out."""
    return ", ".join(_parts(shares))


def _parts(shares: Mapping[str, float]) -> Iterator[str]:
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share >= _LEAST_PART:
            yield f"{_SHORT_PARTS.get(name, name)} {percent(share)}"


_WAITS = {"barrier": "a barrier", "issue": "its instructions", "queue_full": "a full queue", "end": "end of the phase"}


def bounds_words(task: TimeInterval) -> tuple[str, str]:
    """Return low and high in microseconds, marked where they are a guess."""
    mark = "" if task.is_calibrated else "?"
    low, high = (f"{seconds * 1e6:.1f}{mark}" for seconds in (task.low_seconds, task.high_seconds))
    return low, high


def wait_words(cause: str) -> str:
    """Return what a pipe waits for."""
    return _WAITS.get(cause) or cause.removeprefix("flag_")


def waits(shares: Mapping[str, float]) -> str:
    """Return "MTE1 61%, its instructions 23%", the longest first, short ones left out."""
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{wait_words(cause)} {percent(share)}" for cause, share in ranked if share >= _LEAST_PART)


def parameters(chip: Product) -> str:
    """Return clock, Cubes and parameter set of a product."""
    known = describe_parameters(chip)
    return f"{chip.timing_clock_hz / 1e6:.0f} MHz, {chip.cube_core_count} Cubes, parameter set {known['parameter_set']}"


def calibration(chip: Product) -> str:
    """Return what the costs of a product were compared with."""
    known = describe_parameters(chip)
    evidence = ", ".join(f"{count} {kind}" for kind, count in known["evidence"].items())
    return f"{known['parameter_set']} ({evidence} numbers): {known['calibration']}."


def advice_words(changes: Sequence[Change], where: str, refused: int) -> list[str]:
    """Return the changes worth most, a line each.

    ``where`` is "" or names what they are for, ``refused`` is how many calls of it the times are without.
    """
    place = (f" for {where}" if where else "") + without_refused(refused)
    worth = worth_it(changes)
    if not worth:
        return [f"Advice{place}: no change that was timed gains anything."]
    return [
        f"Advice {number}{place}: {one.words}{_calls_words(one)}; "
        f"{'an image' if one.of == 'image' else 'a call'} takes {seconds_words(one.changed_seconds)} instead of "
        f"{seconds_words(one.seconds)}, {percent(one.gain)} less "
        f"({one.costs or counted(one.call_count, 'call')})."
        for number, one in enumerate(worth, start=1)
    ]


def _calls_words(change: Change) -> str:
    """Return which calls get what, of a change that is each call's own: ": 12 to conv5, 6 to fc"."""
    if not change.is_own:
        return ""
    ranked = sorted(change.calls, key=lambda one: one.count * (one.changed_task_seconds - one.task_seconds))
    names = [one.name for one in change.calls]
    parts = []
    for one in ranked[:_CALLS_NAMED]:
        name = one.name if names.count(one.name) == 1 else f"{one.name} ({one.words})"
        parts.append(name if one.block_dim is None else f"{one.block_dim} to {name}")
    more = [f"{len(ranked) - _CALLS_NAMED} more"] if len(ranked) > _CALLS_NAMED else []
    return f": {', '.join(parts + more)}"

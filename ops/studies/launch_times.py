"""Times of launches that run one after the other, and what is known about the numbers behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.engines.timeline_result import TimelineResult
from npu_sim.products import Product

APPROXIMATE = (
    "Cycle-approximate: in-order pipes joined by flags are modelled, the cost of each instruction is that of the "
    "parameter set."
)
ONE_AFTER_THE_OTHER = (
    "A call takes its launches one after the other; gaps between launches and the time of the host are not modelled."
)
CALIBRATION: Mapping[str, str] = {
    "dav-c220": "costs of single instructions are fitted to and compared with published measurements of A2/A3",
    "dav-c100": "rates are documented or derived and few are measured; not compared with measured instructions",
    "dav-m200": "uncalibrated: no published measurement to compare with, expect a factor of 2",
    "dav-m100": "uncalibrated: most rates are those of other chips, expect a factor of 2 or more",
}
"""What is known about a parameter set, by its name or architecture. No kernel has been compared with a device yet."""
_HUNDRED, _ROUNDED = 99.95, 999.5
"""From the first on a number needs no decimals to have three digits; from the second on it is rounded to 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimes:
    """Launches that run one after the other; there may be none.

    Attributes
    ----------
    launches : tuple of TimelineResult
        In stream order.
    """

    launches: tuple[TimelineResult, ...]

    @property
    def core_count(self) -> int:
        """Cores of the launch that uses most."""
        return max((launch.core_count for launch in self.launches), default=0)

    @property
    def row_count(self) -> int:
        """Instructions of all cores."""
        return sum(launch.row_count for launch in self.launches)

    @property
    def total_cycles(self) -> int:
        """Core time."""
        return sum(launch.total_cycles for launch in self.launches)

    @property
    def seconds(self) -> float:
        """Core time."""
        return sum(launch.seconds() for launch in self.launches)

    @property
    def task_seconds(self) -> float:
        """Core time and launch overhead."""
        return sum(launch.task_seconds() for launch in self.launches)

    @property
    def pipe_shares(self) -> dict[str, float]:
        """Occupancy of each pipe over the core time, in the slowest core of each phase."""
        return _shares((launch.busy_cycles for launch in self.launches), self.total_cycles)

    @property
    def busiest_pipe(self) -> str:
        """The pipe that is occupied longest; "" without launches."""
        shares = self.pipe_shares
        return max(shares, key=lambda pipe: shares[pipe], default="")

    @property
    def cube_wait_shares(self) -> dict[str, float]:
        """Why the Cube stands still: share of the core time by cause (`timeline.STALL_NAMES`)."""
        return self.wait_shares("M")

    def wait_shares(self, pipe: str) -> dict[str, float]:
        """Return why a pipe stands still: share of the core time by cause (`timeline.STALL_NAMES`)."""
        return _shares((launch.stall_cycles.get(pipe, {}) for launch in self.launches), self.total_cycles)

    @property
    def largest_cube_wait(self) -> str:
        """The cause that keeps the Cube waiting longest; "" without launches."""
        waits = self.cube_wait_shares
        return max(waits, key=lambda cause: waits[cause], default="")

    @property
    def critical_shares(self) -> dict[str, float]:
        """What the critical path consists of (`timeline.PART_NAMES`); adds up to 1."""
        return _shares((launch.critical_parts for launch in self.launches), self.total_cycles)


def _shares(parts: Any, total: int) -> dict[str, float]:
    cycles: Counter[str] = Counter()
    for mapping in parts:
        cycles.update(mapping)
    return {name: value / total for name, value in cycles.items()}


def describe_parameters(chip: Product) -> dict[str, Any]:
    """Return the parameter set of ``chip`` in plain data: name, clock, evidence of its numbers, calibration."""
    evidence = Counter(source.evidence for source in chip.cost.sources.values())
    return {
        "parameter_set": f"{chip.cost.name} r{chip.cost.revision}",
        "clock_hz": chip.timing_clock_hz,
        "evidence": dict(evidence.most_common()),
        "calibration": CALIBRATION.get(chip.cost.name, CALIBRATION[chip.arch]),
    }


def seconds_words(seconds: float) -> str:
    """Return "12.3 us", "4.56 ms" or "1.23 s"."""
    value, unit = next(
        ((seconds * factor, unit) for unit, factor in (("us", 1e6), ("ms", 1e3)) if seconds * factor < _ROUNDED),
        (seconds, "s"),
    )
    return f"{value:.0f} {unit}" if value >= _HUNDRED else f"{value:.3g} {unit}"

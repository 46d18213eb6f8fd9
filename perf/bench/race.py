"""Something of ours against a peer: taken in turn, so that both see the same machine, and compared by ratios."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

LEAST_ROUNDS = 5
MOST_ROUNDS = 200
LEAST_SECONDS = 2e-3
"""What is shorter is repeated inside a round."""
SETTLE_SECONDS = 0.02
"""Before a turn by the wall clock: threads of the other side wait for more work, spinning, for some milliseconds after
their last, and would take a processor of this one."""
SLOWER = 0.95
"""A median ratio below this share of the recorded one is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A comparison.

    Attributes
    ----------
    group, name : str
        What is compared; together they identify it from run to run.
    ours, peer : callable
        The same work; both have run once before they are timed.
    peer_name : str
        What the peer is.
    clock : callable
        Seconds: the processor time of the process, or wall time where threads share the work.
    """

    group: str
    name: str
    ours: Callable[[], object]
    peer: Callable[[], object]
    peer_name: str
    clock: Callable[[], float] = time.process_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was measured.

    Attributes
    ----------
    group, name, peer_name : str
        Of the race.
    ours, peer : float
        Seconds, medians of the rounds.
    ratio, low, high : float
        The peer's time over ours: median and quartiles of the rounds. Above 1: faster than the peer.
    rounds : int
        How many.
    """

    group: str
    name: str
    peer_name: str
    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def key(self) -> str:
        """What identifies the race."""
        return f"{self.group}: {self.name}"


def _seconds(work: Callable[[], object], clock: Callable[[], float], count: int) -> float:
    began = clock()
    for _ in range(count):
        work()
    return (clock() - began) / count


def _count(work: Callable[[], object], clock: Callable[[], float]) -> int:
    """Return how often ``work`` has to run to be timed, after a run that compiles and touches memory."""
    work()
    return max(1, math.ceil(LEAST_SECONDS / max(_seconds(work, clock, 1), 1e-6)))


def run(race: Race, seconds: float) -> Outcome:
    """Run both in turn, each round in the other order, for at least ``seconds`` of wall time and `LEAST_ROUNDS`."""
    counts = _count(race.ours, race.clock), _count(race.peer, race.clock)
    runners = (race.ours, race.peer)
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_ROUNDS or (time.perf_counter() < end and len(times) < MOST_ROUNDS):
        found = [0.0, 0.0]
        for i in (0, 1) if len(times) % 2 else (1, 0):
            if race.clock is time.perf_counter:
                time.sleep(SETTLE_SECONDS)
            found[i] = _seconds(runners[i], race.clock, counts[i])
        times.append((found[0], found[1]))
    return outcome(race, times)


def outcome(race: Race, times: Sequence[tuple[float, float]]) -> Outcome:
    """Return what rounds of (ours, peer) in seconds amount to."""
    # a clock of whole ticks may stand still
    ratios = [peer / max(ours, 1e-9) for ours, peer in times]
    low, ratio, high = quantiles(ratios, n=4, method="inclusive")
    return Outcome(
        group=race.group,
        name=race.name,
        peer_name=race.peer_name,
        ours=median(ours for ours, _ in times),
        peer=median(peer for _, peer in times),
        ratio=ratio,
        low=low,
        high=high,
        rounds=len(times),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A race whose ratio is another than it was."""

    key: str
    before: float
    now: float

    @property
    def words(self) -> str:
        """Both ratios."""
        return f"{self.key}: {self.now:.2f}x, {self.before:.2f}x before ({self.now / self.before - 1:+.0%})"


def slower(now: Iterable[Outcome], before: Mapping[str, Outcome]) -> list[Change]:
    """Return the races that got slower by more than noise, the worst first.

    Noise is what separates the quartiles: a race got slower if the upper quartile of its ratio now is below the lower
    one of the record, and its median below `SLOWER` of the record's.
    """
    found = [
        Change(key=one.key, before=old.ratio, now=one.ratio)
        for one in now
        if (old := before.get(one.key)) is not None and one.high < old.low and one.ratio < SLOWER * old.ratio
    ]
    return sorted(found, key=lambda change: change.now / change.before)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of ratios, of which there is one at least."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def to_plain(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return outcomes as a JSON document has them."""
    return [asdict(one) for one in outcomes]


def from_plain(rows: Iterable[Mapping[str, Any]]) -> dict[str, Outcome]:
    """Return recorded outcomes by their keys."""
    outcomes = (Outcome(**row) for row in rows)
    return {one.key: one for one in outcomes}

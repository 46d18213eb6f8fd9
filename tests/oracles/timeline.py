"""An event-driven simulator of a core in plain Python: the timeline's oracle.

It steps through time and moves instructions through queues, so it shares no idea with the one-pass recurrence of
`npu_sim.engines.timeline_jit` but the rules of the machine:

- the scalar unit hands over instructions in program order; each takes its issue cycles, then waits for a free place in
  the queue of its pipe; instructions of pipe S run in the scalar unit itself;
- a pipe takes the head of its queue (which frees the place) as soon as it is idle;
- SetFlag takes its cycle, and its flag appears when it is over and every earlier instruction of the pipe is complete
  (occupancy and latency); WaitFlag holds the pipe until the flag is there, removes it and takes its cycle;
- PipeBarrier holds the pipe until its own earlier instructions are complete, PipeBarrier<ALL> the scalar unit until
  every pipe is empty, idle and complete;
- the first other instruction of MTE1 behind a wait or a barrier takes longer.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, field

S, M, MTE1, ALL = 0, 2, 3, 7
PIPES = 7


@dataclass(frozen=True)
class Step:
    """One instruction: kind is "run", "set", "wait" or "barrier"."""

    kind: str
    pipe: int
    peer: int = 0
    event: int = 0
    occupancy: int = 1
    latency: int = 0
    issue: int = 1


@dataclass
class _Pipe:
    queue: deque = field(default_factory=deque)
    idle_at: int = 0
    complete_at: int = 0
    holding: int | None = None
    fresh: bool = False
    starved: bool = False
    busy: int = 0


@dataclass
class Schedule:
    start: list[int]
    end: list[int]
    busy: list[int]
    total: int


def simulate(steps: list[Step], *, queue_depth: int, mte1_start: int, mmad_start: int) -> Schedule:
    """Run ``steps`` and return when each started and ended."""
    return _Machine(steps, queue_depth, mte1_start, mmad_start).run()


class _Machine:
    def __init__(self, steps, queue_depth, mte1_start, mmad_start):
        self.steps, self.depth, self.mte1_start, self.mmad_start = steps, queue_depth, mte1_start, mmad_start
        self.pipes = [_Pipe() for _ in range(PIPES)]
        self.flags = defaultdict(deque)  # (source, destination, event) -> times at which tokens appear
        self.start = [-1] * len(steps)
        self.end = [-1] * len(steps)
        self.next = 0
        self.handing_over = None  # time at which the scalar unit has finished preparing instruction `next`
        self.agenda = [0]
        self.now = 0

    def at(self, time):
        heapq.heappush(self.agenda, time)

    def run(self):
        while self.agenda:
            self.now = heapq.heappop(self.agenda)
            while self.scalar() or any(self.pipe(p) for p in range(1, PIPES)):
                pass
        assert self.next == len(self.steps)
        assert all(not p.queue and p.holding is None for p in self.pipes)
        total = max(max(p.idle_at, p.complete_at) for p in self.pipes)
        return Schedule(self.start, self.end, [p.busy for p in self.pipes], total)

    def scalar(self):
        """Let the scalar unit do one thing at the present time; return whether it did."""
        unit = self.pipes[S]
        if self.next == len(self.steps) or unit.idle_at > self.now:
            return False
        step = self.steps[self.next]
        if step.pipe in (S, ALL):
            if self.start[self.next] < 0:
                self.start[self.next] = self.now
            if not self.execute(unit, self.next):
                return False
            self.next += 1
            return True
        if self.handing_over is None:
            self.handing_over = self.now + step.issue
            unit.busy += step.issue
            self.at(self.handing_over)
        if self.handing_over > self.now:
            return False
        queue = self.pipes[step.pipe].queue
        if len(queue) >= self.depth:
            return False
        queue.append(self.next)
        unit.idle_at = self.now
        self.handing_over = None
        self.next += 1
        return True

    def pipe(self, number):
        """Let a pipe do one thing at the present time; return whether it did."""
        pipe = self.pipes[number]
        if pipe.idle_at > self.now:
            return False
        if pipe.holding is None:
            if not pipe.queue:
                return False
            pipe.holding = pipe.queue.popleft()
            self.start[pipe.holding] = self.now
            if not self.execute(pipe, pipe.holding):
                return True  # a place in the queue came free
        elif not self.execute(pipe, pipe.holding):
            return False
        pipe.holding = None
        return True

    def execute(self, pipe, index):
        """Try to run instruction ``index`` on ``pipe`` now; False: it must wait."""
        step = self.steps[index]
        occupancy = step.occupancy
        if step.kind == "wait":
            tokens = self.flags[step.peer, step.pipe, step.event]
            if not tokens or tokens[0] > self.now:
                return False
            tokens.popleft()
            pipe.fresh = True
            pipe.starved = pipe.starved or self.now > self.start[index]
        elif step.kind == "barrier" and step.pipe == ALL:
            for other in self.pipes:
                if other.queue or other.holding is not None or max(other.idle_at, other.complete_at) > self.now:
                    return False
            for other in self.pipes:
                other.fresh = True
        elif step.kind == "barrier":
            if pipe.complete_at > self.now:
                return False
            pipe.fresh, pipe.starved = True, False
        elif step.kind == "run":
            if step.pipe == MTE1 and pipe.fresh:
                occupancy += self.mte1_start
            if step.pipe == M and pipe.starved:
                occupancy += self.mmad_start
            pipe.fresh = pipe.starved = False
        pipe.idle_at = self.end[index] = self.now + occupancy
        pipe.busy += occupancy
        pipe.complete_at = max(pipe.complete_at, pipe.idle_at + (step.latency if step.kind == "run" else 0))
        self.at(pipe.idle_at)
        self.at(pipe.complete_at)
        if step.kind == "set":
            self.flags[step.pipe, step.peer, step.event].append(pipe.complete_at)
        return True

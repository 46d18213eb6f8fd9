"""Random legal programs: every wait follows its set in program order, no flag is set twice without a wait."""

from __future__ import annotations

import numpy as np

from npu_sim.isa import emit
from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from tests.oracles.timeline import Step

PIPES = (Pipe.S, Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.FIX)
WORKERS = PIPES[1:]


def _work(rows, n, pipe, rng):
    """Emit one instruction of ``pipe`` with a random size."""
    size = int(rng.integers(1, 40))
    if pipe == Pipe.MTE2:
        if size % 4 == 0:  # its long latency can outlast that of later copies
            return emit.emit_nd2nz(rows, n, 0, 0, Data.FP16, 1, size, 32, 0, 32, size, 1, 0, 0, 1, 0)
        return emit.emit_data_copy(rows, n, Space.L1, 0, Space.GM, 0, size, size, size % 3, 0, Data.FP16, 0, 1, 0)
    if pipe == Pipe.MTE3:
        return emit.emit_data_copy(rows, n, Space.GM, 0, Space.UB, 0, 1, size * 4, 0, 0, Data.FP16, 0, 1, 0)
    if pipe == Pipe.MTE1:
        return emit.emit_load_2d(rows, n, Space.L0B, 0, Space.L1, 0, Data.FP16, 0, size, 1, 0, 0, -1, 1, 0)
    if pipe == Pipe.M:
        mode = Mode.INIT if size % 2 else 0
        return emit.emit_mmad(rows, n, 0, 0, 0, Data.FP16, size, size, 16 * size, mode, 1, 0)
    if pipe == Pipe.V:
        if size % 5 == 0:  # the scalar unit fills address registers first
            emit.set_src_addresses(rows, n, 0, 16, 32, 0)
            emit.set_dst_addresses(rows, n, 4096, 16, 32, 0)
            return emit.emit_trans_data_to_5hd(rows, n, Data.FP16, size, 16, 16, 1, 0)
        return emit.emit_muls(rows, n, 0, 0, Data.FP16, size * 64, 0, 1, 0)
    if pipe == Pipe.FIX:
        return emit.emit_fixpipe(rows, n, Space.GM, 0, 0, Data.FP32, size, 16, 16, 16, 1, 0, 0, 0, 0, 1, 0)
    if size % 3 == 0:
        return emit.emit_scalar_copy(rows, n, Space.UB, 0, Space.UB, 4, Data.FP32, -1, 1, 0)
    return emit.emit_set_hf32(rows, n, size & 1, 1, 0)


def random_rows(seed, count):
    """Return INSTR[count], a legal program; flag-heavy and bursty so that queues fill up."""
    rng = np.random.default_rng(seed)
    rows = empty_rows(count)
    ready: list[tuple[int, int, int]] = []
    n = 0
    while n < count:
        kind = rng.random()
        if kind < 0.22:
            source, destination = rng.choice(len(PIPES), 2, replace=False)
            flag = (int(PIPES[source]), int(PIPES[destination]), int(rng.integers(0, 8)))
            if flag not in ready:
                ready.append(flag)
                n = emit.emit_set_flag(rows, n, *flag, 2, 0)
        elif kind < 0.42 and ready:
            # Waits that leave the scalar unit alone come first: a program full of those hides the queues.
            pick = int(rng.integers(0, len(ready)))
            if ready[pick][1] == Pipe.S and rng.random() < 0.8:
                continue
            n = emit.emit_wait_flag(rows, n, *ready.pop(pick), 3, 0)
        elif kind < 0.46:
            n = emit.emit_pipe_barrier(rows, n, WORKERS[rng.integers(0, len(WORKERS))], 4, 0)
        elif kind < 0.465:
            n = emit.emit_pipe_barrier(rows, n, Pipe.ALL, 5, 0)
        else:
            pipe = PIPES[rng.integers(0, len(PIPES))]
            burst = int(rng.integers(30, 60)) if rng.random() < 0.02 else 1
            for _ in range(min(burst, count - n)):
                n = _work(rows, n, pipe, rng)
    return rows


def steps_of(rows, costs, issue_cycles):
    """Return the oracle's steps; ``costs`` is int64[n, 3] of `rows_cost`, ``issue_cycles`` a function of the opcode."""
    kinds = {Op.SET_FLAG: "set", Op.WAIT_FLAG: "wait", Op.PIPE_BARRIER: "barrier"}
    steps = []
    for row, (occupancy, latency, _) in zip(rows, costs.tolist(), strict=True):
        op = int(row["op"])
        flag = op in (Op.SET_FLAG, Op.WAIT_FLAG)
        steps.append(
            Step(
                kind=kinds.get(op, "run"),
                pipe=int(row["pipe"]),
                peer=int(row["peer"]) if flag else 0,
                event=int(row["event"]) if flag else 0,
                occupancy=occupancy,
                latency=latency,
                issue=issue_cycles(op),
            )
        )
    return steps

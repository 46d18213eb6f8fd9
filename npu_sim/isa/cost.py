"""Cost rules: how many cycles an instruction keeps its pipe, and how much later its result can be used.

One rule per instruction, all integers, put together here. The numbers come from `products.cost_record.COST` records;
the rules only say how they are combined. A rule answers (occupancy, latency, bytes moved); an occupancy below 0 means
that there is no rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim._switch import switch
from npu_sim.isa.cost_rates import UNKNOWN_OPCODE
from npu_sim.isa.gm_extent import space_of
from npu_sim.isa.instruction import only_issues
from npu_sim.isa.op import OPS, Op, handlers


@jit
def _unknown() -> Any:
    return np.int64(UNKNOWN_OPCODE), np.int64(0), np.int64(0)


def _named(name: str) -> Any:
    """Return a jitted function that reads one parameter."""

    @jit
    def parameter(cost: Any) -> Int:
        return cost[name]

    return parameter


_ISSUE = {name: _named(name) for name in dict.fromkeys(instruction.issue_cost for instruction in OPS)}
_cost = switch(("row", "cost"), {int(Op.NOP): only_issues} | handlers("cost"), _unknown)
_issue = switch(("cost",), {i.op: _ISSUE[i.issue_cost] for i in OPS}, _ISSUE["issue_cycles"])


@jit
def row_cost_bytes(row: Any, cost: Any) -> Any:
    """Return (occupancy, latency, bytes) of one row.

    Parameters
    ----------
    row : INSTR
        Instruction, after `isa.issue` (its `Mode.ATOMIC` and `Mode.HF32` bits count).
    cost : COST
        Parameter record (`products.cost_record.cost_record`).

    Returns
    -------
    occupancy : int64
        Cycles the pipe is kept; `UNKNOWN_OPCODE`, `UNSUPPORTED` or `OUT_OF_RANGE` if there is no rule.
    latency : int64
        Cycles from the end of the occupancy until the result can be used.
    bytes : int64
        Payload; 0 for instructions that move none.
    """
    return _cost(row["op"], row, cost)


@jit
def rows_cost(rows: np.ndarray, n: int, cost: np.ndarray, out: np.ndarray) -> None:
    """Write (occupancy, latency, bytes) of rows ``[0, n)`` to ``out`` (int64[n, 3]).

    The way to the rules from Python: Numba cannot take a single row, whose operand fields overlap, as an argument.
    """
    record = cost[0]
    for i in range(n):
        occupancy, latency, byte_count = row_cost_bytes(rows[i], record)
        out[i, 0] = occupancy
        out[i, 1] = latency
        out[i, 2] = byte_count


@jit
def row_path(row: Any) -> Any:
    """Return (source space, destination space) of the bytes of `row_cost_bytes`."""
    return space_of(row, 1), space_of(row, 0)


@jit
def issue_cost(op: Int, cost: Any) -> Int:
    """Return the scalar unit's cycles to hand over an instruction of opcode ``op``."""
    return _issue(op, cost)

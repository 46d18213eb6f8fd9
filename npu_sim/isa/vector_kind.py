"""Which shape a vector instruction has, for everything that treats the opcodes of one shape alike."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.op import Op


@jit
def has_two_inputs(op):
    """Return whether ``op`` combines two vectors element by element."""
    return op == Op.ADD or op == Op.SUB or op == Op.MUL or op == Op.DIV or op == Op.MAX or op == Op.MIN


@jit
def has_scalar(op):
    """Return whether ``op`` combines a vector with a scalar operand."""
    return op == Op.MULS or op == Op.ADDS


@jit
def is_count_style(op):
    """Return whether ``op`` works on ``count`` consecutive elements."""
    return op == Op.DUPLICATE or op == Op.CAST or has_two_inputs(op) or has_scalar(op)

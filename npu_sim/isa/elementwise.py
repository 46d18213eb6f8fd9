"""The families of element-wise vector instructions: operands in UB, one element type; count style and general form.

A module of `npu_sim.isa.instructions` names the function of one element, its definition in NumPy, types and cost; what
the members of a family share is here: emitter, footprint, cost rule. Their semantics is put together in `isa.vector`
and, for the general form (`isa.masked`), in `isa.vector_apart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Data, Pipe, Space
from npu_sim.isa.cost_vector import add_step_millicycles, whole_vector
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import COUNT, DEVKIT, Elementwise, Instruction
from npu_sim.isa.masked import masked_cost, masked_form
from npu_sim.isa.mte import item_bytes

Operands = Literal["src", "src value", "src0 src1"]
_SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "src": (("src0",), ()),
    "src value": (("src0",), ("value_bits=value",)),
    "src0 src1": (("src0", "src1"), ()),
}
_FORM = "``count`` consecutive elements of each vector."
Cycles = int | str
"""Cycles (a step: thousandths of them), or the name of the parameter of `products.cost` that holds them."""


@jit
def _footprint_of_one(row: Any, out: Any) -> Any:
    """Consecutive elements of one source and the result."""
    length = np.int64(row["count"]) * item_bytes(row["dtype"])
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), length, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


@jit
def _footprint_of_two(row: Any, out: Any) -> Any:
    """Consecutive elements of two sources and the result."""
    length = np.int64(row["count"]) * item_bytes(row["dtype"])
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), length, ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), length, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


def _parameter(cycles: Cycles) -> Any:
    """Return a jitted function of the cost record that gives ``cycles``."""
    if isinstance(cycles, int):

        @jit
        def given(cost: Any) -> Any:
            return np.int64(cycles)

        return given

    @jit
    def named(cost: Any) -> Any:
        return cost[cycles]

    return named


def _cost(call: Cycles, step: Cycles) -> Any:
    call_cycles, step_millicycles = _parameter(call), _parameter(step)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        size, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
        return whole_vector(count, size, step_millicycles(cost), call_cycles(cost), count * size, cost)

    return cost


def _cost_by_banks(call: Cycles) -> Any:
    call_cycles = _parameter(call)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        size, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
        step = add_step_millicycles(row["dst"], row["src0"], row["src1"], cost)
        return whole_vector(count, size, step, call_cycles(cost), count * size, cost)

    return cost


def elementwise(
    name: str,
    op: int,
    operands: Operands,
    documentation: str,
    *,
    floats: Any,
    halves: Any = None,
    integers: Any = None,
    reference: Callable[..., Any],
    dtypes: Mapping[str, frozenset[Data]],
    call: Cycles,
    step: Cycles | None = None,
    accumulates: bool = False,
) -> Instruction:
    """Return an element-wise instruction.

    Parameters
    ----------
    name, op
        Name in Ascend C, and opcode.
    operands : {"src", "src value", "src0 src1"}
        One vector, a vector and a scalar (a bit pattern of ``dtype``), or two vectors.
    documentation : str
        What it does to an element, for its emitter.
    floats, halves, integers, reference
        See `Elementwise`.
    dtypes : mapping of str to frozenset of Data
        Element types by architecture.
    call, step : Cycles
        Cycles of a call, and of a repeat of 256 bytes. Without ``step`` that of the unit, or, for two vectors, what the
        bank groups of the operands allow.
    accumulates : bool
        Whether the second source may be the result of the repeat before.
    """
    sources, value = _SHAPES[operands]
    spaces = {f"{field}_space": Space.UB for field in ("dst", *sources)}
    two = len(sources) == 2
    by_banks = two and step is None
    step = step or "vector_step_millicycles"
    masked = masked_form(
        name, op, len(sources), documentation, dtypes=dtypes, tail=" ".join(value), accumulates=accumulates,
        cost=masked_cost(_parameter(call), None if by_banks else _parameter(step), len(sources)),
    )  # fmt: skip
    parameters = " ".join(("dst", *(["src0", "src1"] if two else ["src=src0"]), "dtype count", *value))
    return Instruction(
        op=op,
        api=name,
        emit=emitter(name.lower(), op, Pipe.V, parameters, f"{name}: {documentation}\n\n{_FORM}", **spaces),
        source=f"{DEVKIT}{name}, count style",
        routes={(Space.UB, Space.UB): Pipe.V},
        spaces=dict.fromkeys(("dst", *sources), Space.UB),
        ranges=COUNT,
        dtypes=dtypes,
        unit="vector",
        footprint=_footprint_of_two if two else _footprint_of_one,
        run=None,
        elementwise=Elementwise(floats=floats, halves=halves, integers=integers, reference=reference),
        cost=_cost_by_banks(call) if by_banks else _cost(call, step),
        masked=masked,
    )

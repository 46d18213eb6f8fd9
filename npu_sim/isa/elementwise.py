"""The families of element-wise vector instructions: operands in UB, one element type; count style and general form.

A module of `npu_sim.isa.instructions` names the function of one element, its definition in NumPy, types and cost; what
the members of a family share is here: emitter, footprint, cost rule. Their semantics is put together in `isa.vector`
and, for the general form (`isa.masked`), in `isa.vector_apart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Data
from npu_sim.isa.cost_vector import add_step_millicycles, whole_vector
from npu_sim.isa.emitter import emitter_name, vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import COUNT, DEVKIT, Elementwise, Index, Instruction, Rows
from npu_sim.isa.masked import masked_cost, masked_form
from npu_sim.isa.mte import item_bytes

Operands = Literal["src", "src value", "src0 src1", "src value dst", "src0 src1 dst", "src0 dst src1"]
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


@jit
def _footprint_of_one_and_result(row: Any, out: Any) -> Any:
    """Consecutive elements of one source and of the result, which is read too."""
    length = np.int64(row["count"]) * item_bytes(row["dtype"])
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), length, ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["dst"]), length, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


@jit
def _footprint_of_two_and_result(row: Any, out: Any) -> Any:
    """Consecutive elements of two sources and of the result, which is read too."""
    length = np.int64(row["count"]) * item_bytes(row["dtype"])
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), length, ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), length, ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["dst"]), length, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


_FOOTPRINTS = {
    (1, False): _footprint_of_one,
    (2, False): _footprint_of_two,
    (1, True): _footprint_of_one_and_result,
    (2, True): _footprint_of_two_and_result,
}
"""By number of sources and by whether the result is an operand too."""


@cache
def parameter(cycles: Cycles) -> Any:
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


@cache
def _cost(call: Cycles, step: Cycles) -> Any:
    call_cycles, step_millicycles = parameter(call), parameter(step)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        size, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
        return whole_vector(count, size, step_millicycles(cost), call_cycles(cost), count * size, cost)

    return cost


@cache
def _cost_by_banks(call: Cycles) -> Any:
    call_cycles = parameter(call)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        size, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
        step = add_step_millicycles(row["dst"], row["src0"], row["src1"], cost)
        return whole_vector(count, size, step, call_cycles(cost), count * size, cost)

    return cost


def _check_amount(chunk: Rows, index: Index) -> None:
    amount, bits = chunk.column(index, "value"), 8 * chunk.item_bytes(index)
    chunk.rule(index, (amount < 0) | (amount > bits), "value", "from 0 to the bits of an element")


def elementwise(
    name: str,
    op: int,
    operands: Operands,
    documentation: str,
    *,
    floats: Any = None,
    halves: Any = None,
    integers: Any = None,
    reference: Callable[..., Any],
    then: Elementwise | None = None,
    dtypes: Mapping[str, frozenset[Data]],
    call: Cycles,
    step: Cycles | None = None,
    accumulates: bool = False,
    common: bool = False,
    is_amount: bool = False,
    keeps_sign: bool = False,
    is_unsigned: bool = False,
) -> Instruction:
    """Return an element-wise instruction.

    Parameters
    ----------
    name, op
        Name in Ascend C, and opcode.
    operands : str
        Vectors and a scalar ``value`` (a bit pattern of ``dtype``), in the order of `Elementwise.order`; ``src`` is the
        only one, ``dst`` what the result replaces.
    documentation : str
        What it does to an element, for its emitter.
    floats, halves, integers, reference, then, keeps_sign, is_unsigned, common
        See `Elementwise`.
    dtypes : mapping of str to frozenset of Data
        Element types by architecture that has it.
    call, step : Cycles
        Cycles of a call, and of a repeat of 256 bytes. Without ``step`` that of the unit, or, for two vectors, what the
        bank groups of the operands allow.
    accumulates : bool
        Whether the second source may be the result of the repeat before.
    is_amount : bool
        Whether the scalar is an integer from 0 to the bits of an element, whatever the type.
    """
    order = tuple("src0" if name == "src" else name for name in operands.split())
    sources = tuple(name for name in ("src0", "src1") if name in order)
    value = ("value_bits=value",) if "value" in order else ()
    two = len(sources) == 2
    by_banks = two and step is None
    step = step or "vector_step_millicycles"
    reads_dst = "dst" in order
    masked = masked_form(
        name, op, len(sources), documentation, dtypes=dtypes, tail=" ".join(value), accumulates=accumulates,
        cost=masked_cost(parameter(call), None if by_banks else parameter(step), len(sources)),
        reads_dst=reads_dst, value_check=_check_amount if is_amount else None, any_value=not is_amount,
    )  # fmt: skip
    parameters = " ".join(("dst", *(["src0", "src1"] if two else ["src=src0"]), "dtype count", *value))
    return Instruction(
        api=name,
        emit=vector_emitter(emitter_name(name), op, parameters, f"{name}: {documentation}\n\n{_FORM}"),
        source=f"{DEVKIT}{name}, count style",
        ranges=COUNT,
        dtypes=dtypes,
        check=_check_amount if is_amount else None,
        any_value=not is_amount,
        unit="vector",
        footprint=_FOOTPRINTS[len(sources), reads_dst],
        reads_dst=reads_dst,
        run=None,
        elementwise=Elementwise(
            floats=floats,
            halves=halves,
            integers=integers,
            reference=reference,
            then=then,
            order=order,
            keeps_sign=keeps_sign,
            is_unsigned=is_unsigned,
            common=common,
        ),
        cost=_cost_by_banks(call) if by_banks else _cost(call, step),
        masked=masked,
    )

"""The general form of a vector instruction, beside its count form: mask, repeats and strides.

Both forms are one instruction of the hardware. Here they are two records with an opcode each, so that rows of the count
form stay as short and as fast as they are; `masked_form` makes the second from what the two have in common. The mask
is core state (`SetVectorMask`), which `isa.issue` copies into the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Data, Mode
from npu_sim.isa.cost_rates import divide_up
from npu_sim.isa.cost_vector import add_step_millicycles, block_conflicts
from npu_sim.isa.emitter import emitter_name, masked_emitter
from npu_sim.isa.footprint_boxes import NONE, READ, WRITE
from npu_sim.isa.instruction import BYTE, DEVKIT, WORD, Index, Instruction, Range, Rows
from npu_sim.isa.mask import active_lanes, lanes_of, masked_boxes, repeats_of
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import item_bytes

GENERAL = 128
"""What the opcode of the general form has more than that of the count form."""
_STRIDES = {
    0: "dst_blk_stride dst_rep_stride",
    1: "dst_blk_stride src_blk_stride dst_rep_stride src_rep_stride",
    2: (
        "dst_blk_stride src0_blk_stride=src_blk_stride src1_blk_stride "
        "dst_rep_stride src0_rep_stride=src_rep_stride src1_rep_stride"
    ),
}
"""Strides by number of sources, in the order of UnaryRepeatParams and BinaryRepeatParams."""
_FORM = (
    "``repeat`` times the lanes under the mask (SetVectorMask); strides in 32-byte blocks, between the blocks of a "
    "repeat and between repeats."
)


@jit
def masked_footprint_of_none(row: Any, out: Any) -> Any:
    """Lanes of the result."""
    item = item_bytes(row["dtype"])
    return masked_boxes(out, NONE, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def masked_footprint_of_one(row: Any, out: Any) -> Any:
    """Lanes of one source and of the result."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def masked_footprint_of_two(row: Any, out: Any) -> Any:
    """Lanes of two sources and of the result."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    count = masked_boxes(out, count, READ, row["src1"], item, item, row["src1_blk_stride"], row["src1_rep_stride"], row)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def masked_footprint_of_one_and_result(row: Any, out: Any) -> Any:
    """Lanes of one source and of the result, which is read too."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    count = masked_boxes(out, count, READ, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def masked_footprint_of_two_and_result(row: Any, out: Any) -> Any:
    """Lanes of two sources and of the result, which is read too."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    count = masked_boxes(out, count, READ, row["src1"], item, item, row["src1_blk_stride"], row["src1_rep_stride"], row)
    count = masked_boxes(out, count, READ, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def masked_occupancy(row: Any, wide: Int, written: Int, step: Int, call: Int, cost: Any) -> Any:
    """Return (occupancy, latency, bytes) of an issued row: ``step`` thousandths of a cycle a repeat.

    A mask written since the last masked instruction waits for an empty pipe: then the ``call`` is part of the
    occupancy, and what a partial mask costs besides. Else the instruction streams and completes ``call`` cycles later.
    """
    lanes = lanes_of(wide)
    return occupancy(row, repeats_of(row, lanes), active_lanes(row, lanes), lanes, written, step, call, cost)


@jit
def occupancy(row: Any, repeats: Int, active: Int, lanes: Int, written: Int, step: Int, call: Int, cost: Any) -> Any:
    """Return what `masked_occupancy` does of ``repeats`` with ``active`` lanes in all."""
    if repeats <= 0 or active <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    cycles = divide_up(repeats * step, 1000)
    if row["mode"] & Mode.MASK_SET == 0:
        return max(cycles, cost["vector_minimum_cycles"]), call, active * written
    cycles += call
    if active != repeats * lanes:
        cycles += cost["vector_partial_cycles"]
    return max(cycles, cost["vector_minimum_cycles"]), np.int64(0), active * written


@cache
def masked_cost(call: Any, step: Any, sources: int) -> Any:
    """Return the cost rule of a general form.

    Parameters
    ----------
    call : jitted function
        Of the cost record: cycles of a call.
    step : jitted function or None
        Of the cost record: thousandths of a cycle a repeat; None: what the bank groups of two sources allow.
    sources : int
        Number of sources, 0 to 2.
    """
    if step is None:

        @jit
        def step_of(row: Any, cost: Any) -> Any:
            return add_step_millicycles(row["dst"], row["src0"], row["src1"], cost)

    else:

        @jit
        def step_of(row: Any, cost: Any) -> Any:
            return step(cost)

    if sources == 0:

        @jit
        def conflicts(row: Any, groups: Int) -> Any:
            return block_conflicts(row["dst_blk_stride"], groups)

    elif sources == 1:

        @jit
        def conflicts(row: Any, groups: Int) -> Any:
            return max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))

    else:

        @jit
        def conflicts(row: Any, groups: Int) -> Any:
            of_sources = max(
                block_conflicts(row["src_blk_stride"], groups), block_conflicts(row["src1_blk_stride"], groups)
            )
            return max(block_conflicts(row["dst_blk_stride"], groups), of_sources)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        size = np.int64(item_bytes(row["dtype"]))
        cycles = max(step_of(row, cost), 1000 * conflicts(row, cost["ub_bank_groups"]))
        return masked_occupancy(row, size, size, cycles, call(cost), cost)

    return cost


_FOOTPRINTS = {
    (0, False): masked_footprint_of_none,
    (1, False): masked_footprint_of_one,
    (2, False): masked_footprint_of_two,
    (1, True): masked_footprint_of_one_and_result,
    (2, True): masked_footprint_of_two_and_result,
}
"""By number of sources and by whether the result is an operand too."""


def masked_form(
    name: str,
    op: int,
    sources: int,
    documentation: str,
    *,
    api: str = "",
    dtypes: Mapping[str, frozenset[Data]],
    dst_dtypes: Mapping[str, frozenset[Data]] | None = None,
    cost: Any,
    parameters: str = "dtype repeat",
    tail: str = "",
    footprint: Any = None,
    check: Callable[[Rows, Index], None] | None = None,
    value_check: Callable[[Rows, Index], None] | None = None,
    accumulates: bool = False,
    reads_dst: bool = False,
    any_value: bool = False,
    defaults: Mapping[str, int] | None = None,
) -> Instruction:
    """Return the record of the general form of an instruction.

    Parameters
    ----------
    name : str
        Name in Ascend C, or of the count form's emitter without ``emit_``.
    op : int
        Opcode of the count form.
    sources : int
        Vectors it reads, 0 to 2.
    documentation : str
        What it does to an element, for its emitter.
    api, dtypes, dst_dtypes, cost, any_value, defaults
        See `Instruction`; ``api`` is the name if none is given.
    parameters, tail : str
        Operands of the emitter behind the addresses, and behind the strides.
    footprint : jitted function, optional
        See `Instruction`; None: all operands are of one type.
    check : callable, optional
        Rules in place of those of strides and overlap for operands of one type.
    value_check : callable, optional
        Rules of the scalar.
    accumulates : bool
        Whether the second source may be the result of the repeat before.
    reads_dst : bool
        Whether what the result replaces is an operand.
    """
    addresses = {0: "dst", 1: "dst src=src0", 2: "dst src0 src1"}[sources]
    own_name = f"{emitter_name(name).rstrip('_')}_masked"
    emit = masked_emitter(
        own_name,
        op + GENERAL,
        f"{addresses} {parameters} {_STRIDES[sources]} {tail}",
        f"{api or name}: {documentation}\n\n{_FORM}",
    )
    width = BYTE if sources == 2 else WORD
    strides: tuple[Range, ...] = tuple(
        (field.rpartition("=")[2], 0, width if "blk" in field else BYTE) for field in _STRIDES[sources].split()
    )

    def check_one_type(chunk: Rows, index: Index) -> None:
        check_strides(chunk, index, sources, accumulates=accumulates)
        if value_check is not None:
            value_check(chunk, index)

    unit_strides = {field.partition("=")[0]: 1 if "blk" in field else 8 for field in _STRIDES[sources].split()}
    return Instruction(
        api=api or name,
        emit=emit,
        source=f"{DEVKIT}{api or name}, mask style; general description of vector computation",
        ranges=(("repeat", 0, BYTE), *strides),
        dtypes=dtypes,
        dst_dtypes=dst_dtypes or {},
        any_value=any_value,
        unit="vector",
        footprint=footprint or _FOOTPRINTS[sources, reads_dst],
        run=None,
        general_form_of=op,
        cost=cost,
        check=check or check_one_type,
        defaults={"repeat": 1, **unit_strides, **(defaults or {})},
    )

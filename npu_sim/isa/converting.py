"""The family of vector instructions whose results are of another type than their sources: count style and general form.

A module of `npu_sim.isa.instructions` names the function of one element, the pairs of types and the cost. The function
is jitted, of ``(x, y, z, src, dst, saturate)``: an element of the first source, one of the second or the scalar, the
element that the result replaces (patterns of floats, values of integers, 0 where there is none), both types, and 1 in
saturation mode. It returns an element of type ``dst``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import Data
from npu_sim.isa.cost_vector import add_step_millicycles, block_conflicts, whole_vector
from npu_sim.isa.elementwise import Cycles, parameter
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import COUNT, DEVKIT, Index, Instruction, Rows
from npu_sim.isa.mask import masked_boxes
from npu_sim.isa.masked import masked_form, masked_occupancy
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE, item_bytes
from npu_sim.isa.names import type_name
from npu_sim.isa.vector_values import PIECE, read_elements, write_elements

Pairs = frozenset[tuple[Data, Data]]
"""Types of sources and result."""


def converting(
    name: str,
    op: int,
    operands: Literal["src value", "src0 src1", "src value dst", "src0 src1 dst"],
    documentation: str,
    *,
    api: str,
    element: Any,
    pairs: Mapping[str, Pairs],
    call: Cycles,
    step: Cycles | None = None,
) -> Instruction:
    """Return an instruction whose result is of another type than its sources.

    Parameters
    ----------
    name : str
        Of the emitter, without ``emit_``.
    op : int
        Opcode.
    operands : str
        Vectors and a scalar ``value`` (a bit pattern of the sources' type, of half for integers); ``dst`` is what the
        result replaces.
    documentation : str
        What it does to an element, for its emitter.
    api : str
        Name in Ascend C.
    element : jitted function
        See above.
    pairs : mapping of str to Pairs
        By architecture that has it.
    call, step : Cycles
        Cycles of a call, and thousandths of them of a repeat of 256 bytes of the wider type. Without ``step`` that of
        the unit, or, for two vectors, what the bank groups of the operands allow.
    """
    two, has_value, reads_dst = "src1" in operands, "value" in operands, operands.endswith(" dst")
    sources = 2 if two else 1
    known = _is_one_of(frozenset(pair for of_arch in pairs.values() for pair in of_arch))

    @jit
    def run(row, ub, config):  # type: ignore[no-untyped-def]
        src, dst = row["dtype"], row["dst_dtype"]
        if not known(src, dst):
            return False
        item, result_item = item_bytes(src), item_bytes(dst)
        a, b, d = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
        x, y, z = np.empty(PIECE, np.int64), np.empty(PIECE, np.int64), np.empty(PIECE, np.int64)
        y[:] = np.int64(row["value"]) if has_value else 0
        total: Any = np.int64(row["count"])
        for first in range(0, total, PIECE):
            count = min(total - first, PIECE)
            read_elements(ub, a + first * item, src, x[:count])
            if two:
                read_elements(ub, b + first * item, src, y[:count])
            if reads_dst:
                read_elements(ub, d + first * result_item, dst, z[:count])
            for i in range(count):
                z[i] = element(x[i], y[i], z[i] if reads_dst else np.int64(0), src, dst, config[3])
            write_elements(ub, d + first * result_item, dst, z[:count])
        return True

    def check(chunk: Rows, index: Index) -> None:
        src, dst = chunk.column(index, "dtype"), chunk.column(index, "dst_dtype")
        legal = [first * 256 + second for first, second in pairs[chunk.product.arch]]

        def text(row: np.void) -> str:
            types = " -> ".join(type_name(int(row[field])) for field in ("dtype", "dst_dtype"))
            return f"must be a conversion of {api} ({chunk.product.arch}), not {types}"

        chunk.unsupported(index, ~np.isin(src * 256 + dst, legal), text)

    def check_masked(chunk: Rows, index: Index) -> None:
        check(chunk, index)
        check_strides(chunk, index, sources, dst_items=ITEM_BYTES_OF_CODE[chunk.column(index, "dst_dtype")])

    dtypes = {arch: frozenset(src for src, _ in of_arch) for arch, of_arch in pairs.items()}
    dst_dtypes = {arch: frozenset(dst for _, dst in of_arch) for arch, of_arch in pairs.items()}
    value = "value_bits=value" if has_value else ""
    addresses = "dst src0 src1" if two else "dst src=src0"
    return Instruction(
        api=api,
        emit=vector_emitter(
            name,
            op,
            f"{addresses} src_dtype=dtype dst_dtype count {value}",
            f"{api}: {documentation}\n\n``count`` consecutive elements of each vector.",
        ),
        source=f"{DEVKIT}{api}, count style",
        ranges=COUNT,
        dtypes=dtypes,
        dst_dtypes=dst_dtypes,
        scalar_type=Data.FP16 if has_value else None,
        any_value=True,
        unit="vector",
        footprint=_footprint(two, reads_dst),
        run=run,
        cost=_cost(call, step, two),
        check=check,
        reads_dst=reads_dst,
        masked=masked_form(
            name,
            op,
            sources,
            documentation,
            api=api,
            dtypes=dtypes,
            dst_dtypes=dst_dtypes,
            parameters="src_dtype=dtype dst_dtype repeat",
            tail=value,
            footprint=_footprint_masked(two, reads_dst),
            cost=_cost_masked(call, step, two),
            any_value=True,
            check=check_masked,
        ),
    )


@cache
def _is_one_of(pairs: Pairs) -> Any:
    codes = np.array(sorted(src * 256 + dst for src, dst in pairs))

    @jit
    def known(src: Int, dst: Int) -> Flag:
        return bool(np.any(codes == np.int64(src) * 256 + dst))

    return known


@cache
def _footprint(two: bool, reads_dst: bool) -> Any:
    @jit
    def footprint(row: Any, out: Any) -> Any:
        """Consecutive elements of two types."""
        count = np.int64(row["count"])
        length, written = count * item_bytes(row["dtype"]), count * item_bytes(row["dst_dtype"])
        boxes = line(out, NONE, UB, READ, np.int64(row["src0"]), length, ONCE, NONE)
        if two:
            boxes = line(out, boxes, UB, READ, np.int64(row["src1"]), length, ONCE, NONE)
        if reads_dst:
            boxes = line(out, boxes, UB, READ, np.int64(row["dst"]), written, ONCE, NONE)
        return line(out, boxes, UB, WRITE, np.int64(row["dst"]), written, ONCE, NONE)

    return footprint


@cache
def _footprint_masked(two: bool, reads_dst: bool) -> Any:
    @jit
    def footprint(row: Any, out: Any) -> Any:
        """Lanes of two types."""
        item, result = item_bytes(row["dtype"]), item_bytes(row["dst_dtype"])
        wide = max(item, result)
        boxes = masked_boxes(
            out, NONE, READ, row["src0"], item, wide, row["src_blk_stride"], row["src_rep_stride"], row
        )
        if two:
            blk, rep = row["src1_blk_stride"], row["src1_rep_stride"]
            boxes = masked_boxes(out, boxes, READ, row["src1"], item, wide, blk, rep, row)
        blk, rep = row["dst_blk_stride"], row["dst_rep_stride"]
        if reads_dst:
            boxes = masked_boxes(out, boxes, READ, row["dst"], result, wide, blk, rep, row)
        return masked_boxes(out, boxes, WRITE, row["dst"], result, wide, blk, rep, row)

    return footprint


@cache
def _step(step: Cycles | None, two: bool) -> Any:
    given = parameter(step or "vector_step_millicycles")
    by_banks = two and step is None

    @jit
    def step_of(row: Any, cost: Any) -> Any:
        return add_step_millicycles(row["dst"], row["src0"], row["src1"], cost) if by_banks else given(cost)

    return step_of


@cache
def _cost(call: Cycles, step: Cycles | None, two: bool) -> Any:
    call_cycles, step_of = parameter(call), _step(step, two)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        item, result = np.int64(item_bytes(row["dtype"])), np.int64(item_bytes(row["dst_dtype"]))
        count = np.int64(row["count"])
        return whole_vector(count, max(item, result), step_of(row, cost), call_cycles(cost), count * result, cost)

    return cost


@cache
def _cost_masked(call: Cycles, step: Cycles | None, two: bool) -> Any:
    call_cycles, step_of = parameter(call), _step(step, two)

    @jit
    def cost(row: Any, cost: Any) -> Any:
        item, result = np.int64(item_bytes(row["dtype"])), np.int64(item_bytes(row["dst_dtype"]))
        groups = cost["ub_bank_groups"]
        meet = max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))
        if two:
            meet = max(meet, block_conflicts(row["src1_blk_stride"], groups))
        cycles = max(step_of(row, cost), 1000 * meet)
        return masked_occupancy(row, max(item, result), result, cycles, call_cycles(cost), cost)

    return cost

"""Sums over windows for sixteen planes at a time, as LLVM IR: the sums stay in registers.

Without the JIT a Python twin of the same meaning runs.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from npu_sim._jit import JIT_ENABLED

LANES = 16


def _sum_intrinsic():
    """Build the sum: two nested loops around one vector addition."""

    @intrinsic
    def add(typingctx, sums, at, terms, first, rows, step, count):
        signature = types.void(sums, types.intp, terms, types.intp, types.intp, types.intp, types.intp)

        def codegen(context, builder, sig, args):
            vector = ir.VectorType(ir.FloatType(), LANES)
            zero = ir.Constant(vector, [0.0] * LANES)
            index = args[1].type
            nothing, one = ir.Constant(index, 0), ir.Constant(index, 1)

            def place(array, element):
                data = context.make_array(sig.args[array])(context, builder, args[array]).data
                return builder.bitcast(builder.gep(data, [element]), vector.as_pointer())

            before = builder.block
            row_head, head, body, row_tail, done = (builder.append_basic_block(f"sum.{i}") for i in range(5))
            builder.branch(row_head)
            builder.position_at_end(row_head)
            row, row_total = builder.phi(index), builder.phi(vector)
            row_at = builder.add(args[3], builder.mul(row, args[5]))
            builder.cbranch(builder.icmp_signed("<", row, args[4]), head, done)
            builder.position_at_end(head)
            column, total = builder.phi(index), builder.phi(vector)
            builder.cbranch(builder.icmp_signed("<", column, args[6]), body, row_tail)
            builder.position_at_end(body)
            at = builder.add(row_at, builder.mul(column, ir.Constant(index, LANES)))
            more = builder.fadd(total, builder.load(place(2, at), align=4))
            column.add_incoming(nothing, row_head)
            column.add_incoming(builder.add(column, one), body)
            total.add_incoming(row_total, row_head)
            total.add_incoming(more, body)
            builder.branch(head)
            builder.position_at_end(row_tail)
            row.add_incoming(nothing, before)
            row.add_incoming(builder.add(row, one), row_tail)
            row_total.add_incoming(zero, before)
            row_total.add_incoming(total, row_tail)
            builder.branch(row_head)
            builder.position_at_end(done)
            builder.store(row_total, place(0, args[1]), align=4)
            return context.get_dummy_value()

        return signature, codegen

    return add


def _sum_twin(sums, at, terms, first, rows, step, count):
    total = np.zeros(LANES, np.float32)
    for row in range(rows):
        for start in range(first + row * step, first + row * step + count * LANES, LANES):
            if not 0 <= start <= terms.size - LANES:
                raise IndexError(f"Lanes must lie inside {terms.size} terms, not at {start}")
            total += terms[start : start + LANES]
    if not 0 <= at <= sums.size - LANES:
        raise IndexError(f"Lanes must lie inside {sums.size} sums, not at {at}")
    sums[at : at + LANES] = total


sum_lanes = _sum_intrinsic() if JIT_ENABLED else _sum_twin
"""``sum_lanes(sums, at, terms, first, rows, step, count)``: 16 float32 sums, each from +0 on, of ``rows`` rows of
``count`` terms in this order; a row begins ``step`` elements behind the one before, a term 16 behind the one before.
Both arrays are float32, flat and contiguous."""

"""Elements moved by the scalar unit need flags like any other pipe's data, in both directions and in GM."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.engines.hazards import run_hazards_programs, run_hazards_rows
from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind

PRODUCT = get_product("310p")
TABLE = np.array([[0, 512, 1024, 1], [1024, 512, 1024, 0]], np.int64)


def _tail():
    """Store a tail as cores without byte-exact stores do: assemble the last block of the range by scalar moves.

    Two rounds over the same buffers.
    """
    builder = ProgramBuilder(PRODUCT)
    for half in range(2):
        if half:
            builder.join(Pipe.MTE3, Pipe.V, 1)  # MTE3 waited for the scalar unit, and that waits for V below
        builder.duplicate(dst=0, dtype=Data.FP16, count=64, value_bits=half)
        builder.join(Pipe.V, Pipe.S, 0)
        for lane in range(16):
            builder.scalar_copy(
                dst_space=Space.UB, dst=256 + 2 * lane, src_space=Space.UB, src=10 + 2 * lane, dtype=Data.FP16
            )
        builder.join(Pipe.V, Pipe.MTE3, 1)
        builder.data_copy(dst_space=Space.GM, dst=1024, src_space=Space.UB, src=0, block_len=1, tensor=1)
        builder.join(Pipe.S, Pipe.MTE3, 0)
        builder.data_copy(dst_space=Space.GM, dst=1034, src_space=Space.UB, src=256, block_len=1, tensor=1)
    return builder.rows.copy()


def test_tail_assembled_by_the_scalar_unit_is_free_of_hazards():
    assert run_hazards_rows(_tail(), PRODUCT, TABLE) == []


def test_tail_without_any_one_pair_of_scalar_flags_is_reported():
    rows = _tail()
    sets = [i for i in np.flatnonzero(rows["op"] == Op.SET_FLAG) if Pipe.S in (rows["pipe"][i], rows["peer"][i])]
    assert len(sets) == 4
    for at in sets:
        found = run_hazards_rows(np.delete(rows, [at, at + 1]), PRODUCT, TABLE)
        assert {v.kind for v in found} & {Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD}, rows[at]


@pytest.mark.parametrize("fence", ["none", "flag", "barrier"])
@pytest.mark.parametrize("first", ["read", "write"])
def test_scalar_access_to_gm_is_ordered_with_stores_by_flags_only(first, fence):
    builder = ProgramBuilder(PRODUCT)
    builder.duplicate(dst=0, dtype=Data.FP32, count=64)
    builder.join(Pipe.V, Pipe.S)
    builder.join(Pipe.V, Pipe.MTE3)
    ends = {"dst_space": Space.UB, "dst": 512, "src_space": Space.GM, "src": 4}
    if first == "write":
        ends = {"dst_space": Space.GM, "dst": 4, "src_space": Space.UB, "src": 64}
    builder.scalar_copy(**ends, dtype=Data.FP32, tensor=0)
    if fence == "flag":
        builder.join(Pipe.S, Pipe.MTE3)
    elif fence == "barrier":
        builder.pipe_barrier(Pipe.ALL)
    builder.data_copy(dst_space=Space.GM, dst=0, src_space=Space.UB, src=0, block_len=1, tensor=0)
    found = run_hazards_rows(builder.rows, PRODUCT, TABLE)
    assert [v.kind for v in found] == ([Kind.SYNC_WRITE_HAZARD] if fence == "none" else [])
    if found:
        assert (found[0].space, found[0].start, found[0].length) == (Space.GM, 4, 4)


def test_scalar_reader_of_an_earlier_core_conflicts_with_a_later_store():
    reader, writer = ProgramBuilder(PRODUCT), ProgramBuilder(PRODUCT)
    for lane in range(3):  # the first reader of the place must not be forgotten for the second, which is elsewhere
        reader.scalar_copy(
            dst_space=Space.UB, dst=4 * lane, src_space=Space.GM, src=4 * lane, dtype=Data.FP32, tensor=0
        )
    writer.duplicate(dst=0, dtype=Data.FP32, count=8)
    writer.join(Pipe.V, Pipe.MTE3)
    writer.data_copy(dst_space=Space.GM, dst=0, src_space=Space.UB, src=0, block_len=1, tensor=0)
    found = run_hazards_programs([[reader.rows, reader.rows, writer.rows]], PRODUCT, TABLE)
    assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD}
    assert {v.core for v in found} == {2}
    assert run_hazards_programs([[reader.rows], [writer.rows]], PRODUCT, TABLE) == []

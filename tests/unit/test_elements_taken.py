"""Rows that take some elements of what they name read those alone: Gather, GatherMask by bits, Sort32."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.op import Data, Space
from npu_sim.program.violation import Kind
from tests.unit.test_unused_lanes import FLOATS, Program

FROM, TO, LEADS = 0, 1024, 2048
NOTE, ERROR, OFFSETS = Kind.READ_UNUSED, Kind.READ_UNINITIALISED, Kind.READ_BY_OFFSETS
WHOLE = 4096
"""Bytes that may be gathered from: the offsets lie among them."""


def store_words(program, values):
    for i, value in enumerate(values):
        program.emit.scalar_store(dst_space=Space.UB, dst=LEADS + 4 * i, dtype=Data.INT32, value_bits=int(value))


def gathered(offsets, *, masked, reach=WHOLE, stored=None):
    """Fill 24 floats, gather by offsets that the scalar unit has stored, store what came."""
    program = Program()
    program.fill(FROM, 24)
    store_words(program, offsets)
    count = len(offsets)
    if masked:
        program.emit.set_vector_mask((1 << count) - 1, 0)
        program.emit.gather_masked(dst=TO, src0=FROM, src1=LEADS, src_bytes=reach, repeat=1, dst_rep_stride=8, **FLOATS)
    else:
        program.emit.gather(dst=TO, src0=FROM, src1=LEADS, src_bytes=reach, count=count, **FLOATS)
    program.store(TO, count if stored is None else stored)
    return program.kinds()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("reach", [1024, WHOLE])
def test_gather_reads_what_its_offsets_name(masked, reach):
    assert gathered([4 * 23, 0, 8, 8], masked=masked, reach=reach) == [NOTE]
    assert gathered([0, 4, 8, 4 * 24], masked=masked, reach=reach) == [ERROR]
    # an element that comes and is not stored
    assert gathered([0, 4, 8, 4 * 24], masked=masked, reach=reach, stored=3) == [NOTE]


def test_offsets_from_memory_say_nothing():
    for reach in (1024, WHOLE):  # the offsets lie behind the source, or in it
        program = Program()
        program.fill(FROM, 24)
        program.fill(LEADS, 8)
        program.emit.gather(dst=TO, src0=FROM, src1=LEADS, src_bytes=reach, count=8, **FLOATS)
        program.store(TO, 8)
        assert program.kinds() == [OFFSETS]


def test_offsets_may_be_computed():
    program = Program()
    program.fill(FROM, 24)
    program.emit.duplicate(dst=LEADS, dtype=Data.INT32, count=8, value_bits=3)
    program.emit.muls(dst=LEADS, src=LEADS, dtype=Data.INT32, count=8, value_bits=4)
    program.emit.gather(dst=TO, src0=FROM, src1=LEADS, src_bytes=WHOLE, count=8, **FLOATS)
    program.store(TO, 8)
    assert program.kinds() == [NOTE]


@pytest.mark.parametrize(("lane", "kind"), [(23, NOTE), (24, ERROR)])
def test_mask_of_bits_selects(lane, kind):
    program = Program()
    program.fill(FROM, 24)
    store_words(program, [1 | 1 << lane, 0])
    program.emit.gather_mask(
        dst=TO, src0=FROM, src1=LEADS, pattern=0, count=0, repeat=1, src_blk_stride=1, src_rep_stride=8,
        src1_rep_stride=0, dst_bytes=8, **FLOATS,
    )  # fmt: skip
    program.store(TO, 2)
    assert program.kinds() == [kind]


def sorted_by(scores, *, least_from, first, count):
    """Sort two repeats of which ``scores`` floats are there, the last of them least; store pairs as floats."""
    program = Program()
    program.fill(FROM, scores)
    program.emit.duplicate(dst=LEADS, dtype=Data.INT32, count=least_from, value_bits=7)
    if least_from < 32:
        lanes = (1 << 32) - (1 << least_from)
        minus_infinity = int(np.float32(-np.inf).view(np.int32))
        program.emit.set_vector_mask(lanes, 0)
        program.emit.duplicate_masked(
            dst=FROM, repeat=1, dst_blk_stride=1, dst_rep_stride=8, value_bits=minus_infinity, **FLOATS
        )
    program.emit.sort32(dst=TO, src0=FROM, src1=LEADS, repeat=2, **FLOATS)
    program.store(TO + 4 * first, count)
    return program.kinds()


def test_a_sort_of_32_scores_knows_nothing_of_the_next():
    assert sorted_by(32, least_from=32, first=0, count=64) == [NOTE]
    assert sorted_by(32, least_from=32, first=64, count=1) == [ERROR]
    # one score that nobody wrote may come first
    assert sorted_by(24, least_from=32, first=0, count=1) == [ERROR]


def test_indices_beside_the_least_scores_stay_behind():
    assert sorted_by(20, least_from=20, first=0, count=40) == [NOTE]
    assert sorted_by(20, least_from=20, first=40, count=1) == [NOTE]  # the score itself
    assert sorted_by(20, least_from=20, first=40, count=2) == [ERROR]

"""Uninitialised bytes that a load takes along: a note where no Mmad uses them, an error where one does."""

from __future__ import annotations

import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.finding_codes import CODES
from npu_sim.program.violation import Kind

CHIP = get_product("910b")


def product(k, *, again=0, written=1, item=2):
    """Return the findings of an Mmad over ``k`` of two fractals of k that are loaded, ``written`` of them filled."""
    dtype = Data.FP16 if item == 2 else Data.FP32
    builder = ProgramBuilder(CHIP)
    gm = GlobalMemory()
    gm.add("x", 4096, initialised=True)
    copy = {"src_space": Space.GM, "dst_space": Space.L1, "src": 0, "dtype": dtype, "tensor": 0}
    builder.data_copy(dst=0, block_count=1, block_len=16 * written, src_gap=0, dst_gap=0, **copy)
    builder.data_copy(dst=2048, block_count=1, block_len=32, src_gap=0, dst_gap=0, **copy)
    builder.join(Pipe.MTE2, Pipe.MTE1, 0)
    loads = {"start_index": 0, "repeat": 2, "src_stride": 1, "dst_gap": 0, "mode": 0, "dtype": dtype}
    builder.load_2d(dst_space=Space.L0A, dst=0, src_space=Space.L1, src=0, **loads)
    builder.load_2d(dst_space=Space.L0B, dst=0, src_space=Space.L1, src=2048, **loads)
    builder.join(Pipe.MTE1, Pipe.M, 0)
    for depth in (k, *([again] if again else [])):
        builder.mmad(dst=0, src_a=0, src_b=0, dtype=dtype, m=16, n=16, k=depth, mode=Mode.INIT)
        builder.pipe_barrier(Pipe.M)
    return run_hazards(builder.launch(gm), CHIP)


@pytest.mark.parametrize("item", [2, 4])
def test_load_behind_the_last_k_is_a_note(item):
    # two fractals of k are loaded, the second was never written, and the Mmad takes only the first
    step = 32 // item
    [found] = product(step, item=item)
    assert (found.kind, found.space, found.start) == (Kind.READ_UNUSED, Space.L1, 512)
    assert CODES[found.kind].severity == "advice"
    [found] = product(step + 1, item=item)
    assert found.kind is Kind.READ_UNINITIALISED
    assert product(step + 1, item=item, written=2) == []


def test_a_later_mmad_that_uses_them_makes_it_an_error():
    assert [v.kind for v in product(16, again=32)] == [Kind.READ_UNINITIALISED]


def gathered(emit, *, written, offsets=64, src1=8192):
    """Return the findings of a Gather from 1 KB at byte 1024 of UB, of which the first ``written`` bytes are filled.

    Its offsets come from memory.
    """
    builder, gm = ProgramBuilder(CHIP), GlobalMemory()
    gm.add("offsets", 256, initialised=True)
    if offsets:
        builder.data_copy(
            dst_space=Space.UB, dst=src1, src_space=Space.GM, src=0, block_count=1, block_len=offsets // 8, src_gap=0,
            dst_gap=0, dtype=Data.INT32, tensor=0,
        )  # fmt: skip
        builder.pipe_barrier(Pipe.ALL)
    if written:
        builder.duplicate(dst=1024, dtype=Data.FP32, value_bits=0, count=written // 4)
    builder.pipe_barrier(Pipe.V)
    emit(builder, src0=1024, src1=src1, src_bytes=1024)
    return [found.kind for found in run_hazards(builder.launch(gm, core_kind="vector"), CHIP)]


def _gather(builder, **operands):
    builder.gather(dst=16384, dtype=Data.FP32, count=64, **operands)


def _gatherb(builder, **operands):
    builder.gatherb(dst=16384, dtype=Data.INT32, repeat=8, dst_blk_stride=1, dst_rep_stride=8, **operands)


def _gather_masked(builder, **operands):
    builder.set_vector_mask(mask_low=-1, mask_high=0)
    builder.gather_masked(dst=16384, dtype=Data.FP32, repeat=1, dst_rep_stride=8, **operands)


@pytest.mark.parametrize("emit", [_gather, _gatherb, _gather_masked])
def test_what_offsets_may_not_reach_is_a_note(emit):
    assert gathered(emit, written=1024) == []
    assert gathered(emit, written=512) == [Kind.READ_BY_OFFSETS]
    assert CODES[Kind.READ_BY_OFFSETS].severity == "advice"
    assert gathered(emit, written=0) == [Kind.READ_UNINITIALISED]  # wherever the offsets lead
    assert gathered(emit, written=1024, offsets=0) == [Kind.READ_UNINITIALISED]  # the offsets themselves
    assert gathered(emit, written=512, offsets=0) == [Kind.READ_UNINITIALISED]


@pytest.mark.parametrize("emit", [_gather, _gatherb, _gather_masked])
def test_offsets_may_lie_in_their_own_source_where_they_are_written(emit):
    assert gathered(emit, written=512, src1=1536) == [Kind.READ_BY_OFFSETS]
    assert gathered(emit, written=0, src1=1536) == [Kind.READ_UNINITIALISED]  # wherever they lead but to themselves
    assert gathered(emit, written=512, src1=1536, offsets=0) == [Kind.READ_UNINITIALISED]
    assert gathered(emit, written=512, src1=1536, offsets=32) == [Kind.READ_UNINITIALISED]  # the other half

"""Two stores of the same bytes of global memory: the same contents or not, as rows alone tell."""

from __future__ import annotations

import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.same_stores import stores_the_same
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.finding_codes import CODES
from npu_sim.program.violation import Kind, Violation

CHIP = get_product("910b")
ONE, OTHER = 0x11223344, 0x11223355


def fill(area, bits, *, count=32, dtype=Data.FP32):
    return lambda p: p.duplicate(dst=area, dtype=dtype, count=count, value_bits=bits)


def store(area, to, count=64, gap=0):
    """Store two rows of ``count`` bytes, with a gap between them in global memory."""
    return lambda p: p.data_copy_pad(
        dst_space=Space.GM, dst=to, src_space=Space.UB, src=area, block_count=2, block_len=count, src_gap=0,
        dst_gap=gap, left_padding=0, right_padding=0, value_bits=0, dtype=Data.FP32, tensor=0,
    )  # fmt: skip


def change(area):
    return lambda p: p.adds(dst=area, src=area, dtype=Data.FP32, count=1, value_bits=0x3F800000)


def rows_of(*steps):
    builder = ProgramBuilder(CHIP)
    for step in steps:
        step(builder)
    return builder.rows.copy()


def are_same(first, second, start, length, *, one_core=False):
    """Return what is said of the last rows of two cores, or of the last two rows of one."""
    programs = [rows_of(*first), rows_of(*(second or ()))]
    if one_core:
        rows = [len(programs[0]) - 1, len(programs[0]) - 2]
        found = Violation(
            kind=Kind.BARRIER_WRITE, row=rows[0], other_row=rows[1], space=Space.GM, start=start, length=length
        )
    else:
        found = Violation(
            kind=Kind.SYNC_WRITE_HAZARD, core=1, row=len(programs[1]) - 1, other_core=0, other_row=len(programs[0]) - 1,
            space=Space.GM, start=start, length=length,
        )  # fmt: skip
    return stores_the_same(found, lambda launch, core: programs[core])


def test_numbers_are_the_same_on_every_core():
    assert are_same([fill(0, ONE), store(0, 512)], [fill(256, ONE), store(256, 512)], 512, 128)
    assert not are_same([fill(0, ONE), store(0, 512)], [fill(256, OTHER), store(256, 512)], 512, 128)
    # elsewhere in the pattern: two bytes on
    assert not are_same([fill(0, ONE), store(0, 512)], [fill(256, ONE), store(256, 514)], 514, 64)
    # halves of one pattern twice
    halves = [fill(0, 0x3344, count=64, dtype=Data.FP16), store(0, 512)]
    assert are_same(halves, [fill(0, 0x33443344), store(0, 512)], 512, 128)


def test_only_bytes_that_both_store_count():
    first, second = [fill(0, ONE), store(0, 512)], [fill(0, ONE), store(0, 544)]
    assert are_same(first, second, 544, 96)
    assert not are_same(first, second, 544, 100)
    spread = [fill(0, ONE), store(0, 512, gap=64)]
    assert are_same(spread, spread, 512, 64)
    assert not are_same(spread, spread, 512, 128)


def test_what_is_no_number_is_the_same_on_one_core_alone():
    load = [lambda p: p.data_copy_pad(
        dst_space=Space.UB, dst=0, src_space=Space.GM, src=0, block_count=1, block_len=128, src_gap=0, dst_gap=0,
        left_padding=0, right_padding=0, value_bits=0, dtype=Data.FP32, tensor=0,
    )]  # fmt: skip
    assert not are_same([*load, store(0, 512)], [*load, store(0, 512)], 512, 128)
    assert are_same([*load, store(0, 512), store(0, 512)], None, 512, 128, one_core=True)
    assert not are_same([*load, store(0, 512), store(32, 512)], None, 512, 64, one_core=True)


@pytest.mark.parametrize("behind", [0, 1])
def test_what_changes_between_two_stores_is_not_the_same(behind):
    steps = [fill(0, ONE), store(0, 512), change(64), store(0, 512)]
    rows = rows_of(*steps)
    found = Violation(kind=Kind.BARRIER_WRITE, row=3, other_row=1, space=Space.GM, start=512 + 64 * behind, length=32)
    assert stores_the_same(found, lambda launch, core: rows) == (behind == 0)
    found = Violation(kind=Kind.BARRIER_WRITE, row=3, other_row=1, space=Space.GM, start=512, length=128)
    assert not stores_the_same(found, lambda launch, core: rows)


def test_what_adds_or_is_never_written_is_not_the_same():
    assert not are_same([store(0, 512)], [store(0, 512)], 512, 128)
    plain = [fill(0, ONE), store(0, 512)]
    adds, ends = (lambda p, kind=kind: p.set_atomic(dtype=kind) for kind in (Data.FP32, Data.NONE))
    assert not are_same(plain, [adds, *plain], 512, 128)
    assert are_same(plain, [adds, ends, *plain], 512, 128)


def test_a_launch_says_so_as_advice():
    gm = GlobalMemory()
    gm.add("y", 4096, is_output=True, initialised=False)
    builder = ProgramBuilder(CHIP)
    for step in (fill(0, ONE), store(0, 0), store(0, 0)):
        step(builder)
    kinds = [found.kind for found in run_hazards(builder.launch(gm, core_kind="vector"), CHIP, outputs=())]
    assert Kind.WRITES_THE_SAME in kinds
    assert Kind.BARRIER_WRITE not in kinds
    assert CODES[Kind.WRITES_THE_SAME].severity == "advice"

"""Unwritten bytes of UB behind the end of a tile: notes where nothing that leaves UB depends on them."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import FINDING_LIMIT, run_hazards
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.finding_codes import CODES
from npu_sim.program.violation import Kind

CHIP = get_product("910b")
A, B, C, D, BITS = 0, 1024, 2048, 3072, 4096
FLOATS = {"dtype": Data.FP32}
OF_TWO = {
    "repeat": 1, "dst_blk_stride": 1, "src0_blk_stride": 1, "src1_blk_stride": 1, "dst_rep_stride": 8,
    "src0_rep_stride": 8, "src1_rep_stride": 8,
}  # fmt: skip
LT, EQ = 0, 2


class Program:
    """Rows on a vector core; areas of UB are filled from memory and stored to it by numbers of floats."""

    def __init__(self):
        self.emit = ProgramBuilder(CHIP)
        self._gm = GlobalMemory()
        for name, is_output in (("y", True), ("x", False), ("workspace", False)):
            self._gm.add(name, 4096, is_output=is_output, initialised=name == "x")

    def _move(self, count, **places):
        self.emit.data_copy_pad(
            block_count=1, block_len=4 * count, src_gap=0, dst_gap=0, left_padding=0, right_padding=0, value_bits=0,
            **FLOATS, **places,
        )  # fmt: skip

    def fill(self, area, count):
        source = self._gm.tensors[1].address
        self._move(count, dst_space=Space.UB, dst=area, src_space=Space.GM, src=source, tensor=1)

    def store(self, area, count, at=0):
        self._move(count, dst_space=Space.GM, dst=4 * at, src_space=Space.UB, src=area, tensor=0)

    def keep(self, area, count, at=0):
        place = self._gm.tensors[2].address + 4 * at
        self._move(count, dst_space=Space.GM, dst=place, src_space=Space.UB, src=area, tensor=2)

    def bring(self, area, counts, at=0, skipped=0):
        """Load pieces of the workspace; they lie without gaps in UB."""
        self.emit.data_copy_pad(
            dst_space=Space.UB, dst=area, src_space=Space.GM, src=self._gm.tensors[2].address + 4 * at, tensor=2,
            block_count=len(counts), block_len=4 * counts[0], src_gap=4 * skipped, dst_gap=0, left_padding=0,
            right_padding=0, value_bits=0, **FLOATS,
        )  # fmt: skip

    def results(self, content):
        """Return y where unwritten memory has a content."""
        launch = self.emit.launch(self._gm, core_kind="vector")
        self._gm.arena[:] = np.uint8(content)
        x = self._gm.view(self._gm.tensors[1], np.float32, (1024,))
        x[:] = np.random.default_rng(1).standard_normal(1024)
        y = self._gm.view(self._gm.tensors[0], np.uint8, (4096,))
        y[:] = 0  # what is not stored is none of the results
        execute(launch, CHIP, ExecuteOptions(accumulation=SERIAL))
        return y.copy()

    def kinds(self):
        """Return the kinds of findings of unwritten bytes, in their order."""
        found = run_hazards(self.emit.launch(self._gm, core_kind="vector"), CHIP, outputs=())
        return [one.kind for one in found if one.kind.value.startswith("ErrorRead2")]


NOTE, ERROR = Kind.READ_UNUSED, Kind.READ_UNINITIALISED


def rounded_up(stored):
    """Fill 20 floats, compute with 64, store ``stored``."""
    program = Program()
    program.fill(A, 24)
    program.emit.exp(dst=B, src=A, count=64, **FLOATS)
    program.emit.add(dst=C, src0=B, src1=A, count=64, **FLOATS)
    program.store(C, stored)
    return program.kinds()


def test_lanes_behind_the_tile_are_notes_unless_one_is_stored():
    assert rounded_up(24) == [NOTE, NOTE]
    assert rounded_up(25) == [ERROR, ERROR]
    assert CODES[NOTE].severity == "advice"


def test_a_sum_over_the_lanes_uses_them():
    for mask, kind in ((24, []), (25, [ERROR])):
        program = Program()
        program.fill(A, 24)
        program.emit.reduce_repeat(
            dst=B, src=A, mask=mask, repeat=1, dst_rep_stride=1, src_blk_stride=1, src_rep_stride=8, **FLOATS
        )
        program.store(B, 1)
        assert program.kinds() == kind


def selected(comparison, stored):
    """Compare 20 written floats and 44 others, take one of two numbers for each, store ``stored``."""
    program = Program()
    for area, count in ((A, 20), (B, 64), (C, 64), (D, 64)):
        program.fill(area, count)
    program.emit.compare(
        dst=BITS, src0=A, src1=B, comparison=comparison, repeat=1, src0_blk_stride=1, src1_blk_stride=1,
        src0_rep_stride=8, src1_rep_stride=8, **FLOATS,
    )  # fmt: skip
    program.emit.select(dst=A, src0=C, src1=D, src2=BITS, src2_rep_stride=1, **FLOATS, **OF_TWO)
    program.store(A, stored)
    return program.kinds()


@pytest.mark.parametrize("comparison", [LT, EQ])
def test_bits_of_comparisons_are_told_apart(comparison):
    # 20 bits are two bytes and a half; the copy fills whole blocks of 8
    assert selected(comparison, 20) == [NOTE]
    assert selected(comparison, 24) == [NOTE]
    assert selected(comparison, 25) == [ERROR]


@pytest.mark.parametrize("block", range(8))
def test_each_bit_depends_on_operands_of_which_both_are_unwritten(block):
    program = Program()
    for area in (C, D):
        program.fill(area, 64)
    program.emit.compare(
        dst=BITS, src0=A, src1=B, comparison=LT, repeat=1, src0_blk_stride=1, src1_blk_stride=1,
        src0_rep_stride=8, src1_rep_stride=8, **FLOATS,
    )  # fmt: skip
    program.emit.select(dst=A, src0=C, src1=D, src2=BITS, src2_rep_stride=1, **FLOATS, **OF_TWO)
    program.store(A + 32 * block, 1)
    assert program.kinds() == [ERROR]


def of_two_masks(combine, written, first, count):
    """Compare twice 64 floats of which ``written`` are there, combine the bits, choose by them, store some floats."""
    program = Program()
    for area, there in ((A, written[0]), (B, written[1]), (C, 64), (D, 64)):
        if there:
            program.fill(area, there)
    for bits, area in ((BITS, A), (BITS + 32, B)):
        program.emit.compare(
            dst=bits, src0=area, src1=C, comparison=LT, repeat=1, src0_blk_stride=1, src1_blk_stride=1,
            src0_rep_stride=8, src1_rep_stride=8, **FLOATS,
        )  # fmt: skip
    if combine == "not_":
        program.emit.not_(dst=BITS, src=BITS, count=4, dtype=Data.INT16)
    elif combine.endswith("_masked"):
        program.emit.set_vector_mask(15, 0)
        getattr(program.emit, combine)(dst=BITS, src0=BITS, src1=BITS + 32, dtype=Data.INT16)
        program.emit.set_vector_mask((1 << 64) - 1, 0)
    else:
        getattr(program.emit, combine)(dst=BITS, src0=BITS, src1=BITS + 32, count=4, dtype=Data.INT16)
    program.emit.select(dst=A, src0=C, src1=D, src2=BITS, src2_rep_stride=1, **FLOATS, **OF_TWO)
    program.store(A + 4 * first, count)
    return set(program.kinds())


COMBINED = ("and_", "or_", "and_masked", "or_masked")


@pytest.mark.parametrize("combine", [*COMBINED, "not_"])
@pytest.mark.parametrize("there", [8, 40])
def test_bits_of_masks_stay_apart_where_masks_are_combined(combine, there):
    # both end inside an element of 16 bits
    assert of_two_masks(combine, (there, 64), 0, there) == {NOTE}
    assert of_two_masks(combine, (there, 64), 0, there + 1) == {ERROR}


@pytest.mark.parametrize("combine", COMBINED)
@pytest.mark.parametrize("written", [(0, 64), (64, 0), (0, 0)])
@pytest.mark.parametrize("lane", [0, 8, 24, 56])
def test_each_bit_of_combined_masks_depends_on_both(combine, written, lane):
    assert of_two_masks(combine, written, lane, 1) == {ERROR}


@pytest.mark.parametrize("unwritten", [A, B])
def test_a_choice_may_take_either_side(unwritten):
    program = Program()
    program.fill({A: B, B: A}[unwritten], 64)
    program.fill(BITS, 8)
    program.emit.select(dst=D, src0=A, src1=B, src2=BITS, src2_rep_stride=1, **FLOATS, **OF_TWO)
    program.store(D, 1)
    assert program.kinds() == [ERROR]


def test_findings_whose_bytes_meet_share_their_fate():
    for stored, kind in ((0, NOTE), (1, ERROR)):
        program = Program()
        program.emit.abs(dst=C, src=A, count=8, **FLOATS)
        program.emit.abs(dst=D, src=B, count=8, **FLOATS)
        program.emit.max(dst=C, src0=C, src1=D, count=8, **FLOATS)
        if stored:
            program.store(C, stored)
        assert program.kinds() == [kind, kind]


def test_what_is_written_anew_depends_on_nothing():
    program = Program()
    program.emit.abs(dst=C, src=A, count=8, **FLOATS)
    program.emit.duplicate(dst=C, count=8, value_bits=0, **FLOATS)
    program.store(C, 8)
    assert program.kinds() == [NOTE]


def test_offsets_and_what_the_scalar_unit_looks_at_are_used():
    program = Program()
    program.fill(B, 64)
    program.emit.shift_right(dst=C, src=A, count=64, dtype=Data.INT32, value_bits=30)
    program.emit.gather(dst=D, src0=B, src1=C, src_bytes=256, count=64, **FLOATS)
    assert program.kinds() == [ERROR]
    program = Program()
    program.emit.abs(dst=C, src=A, count=8, **FLOATS)
    program.emit.scalar_load(src_space=Space.UB, src=C, dtype=Data.FP32, tensor=-1)
    assert program.kinds() == [ERROR]


def test_a_later_reader_of_the_same_bytes_decides():
    program = Program()
    program.emit.abs(dst=C, src=A, count=8, **FLOATS)
    program.store(A, 8)
    assert program.kinds() == [ERROR, ERROR]


def test_more_of_them_than_are_kept_are_notes_if_all_are():
    for last_area, kind in ((A, NOTE), (D, ERROR)):
        program = Program()
        program.fill(A, 24)
        for tile in range(FINDING_LIMIT + 100):
            area = A if tile < FINDING_LIMIT + 50 else last_area  # nothing is in D
            program.emit.exp(dst=B, src=area, count=64, **FLOATS)
            program.store(B, 24)
        kinds = program.kinds()
        assert set(kinds[:-1]) == {NOTE}
        assert kinds[-1] == kind


def test_what_is_sorted_with_them_depends_on_them():
    program = Program()
    program.fill(A, 24)
    program.fill(B, 32)
    program.emit.sort32(dst=C, src0=A, src1=B, repeat=1, **FLOATS)
    program.store(C, 2)
    assert program.kinds() == [ERROR]


def gathered(pattern, stored, repeat=1):
    """Fill 24 of each 64 floats, keep those of a pattern, store the first of them."""
    program = Program()
    for i in range(repeat):
        program.fill(A + 256 * i, 24)
    program.fill(BITS, 8)
    strides = {"src_blk_stride": 1, "src_rep_stride": 8, "src1_rep_stride": 0}
    program.emit.gather_mask(
        dst=B, src0=A, src1=BITS, pattern=pattern, count=0, repeat=repeat, dst_bytes=0, **strides, **FLOATS
    )
    program.emit.exp(dst=C, src=B, count=32 * repeat, **FLOATS)
    program.store(C, stored)
    return program.kinds()


@pytest.mark.parametrize(("pattern", "kept"), [(1, 12), (2, 12), (3, 6), (6, 6), (7, 24)])
def test_what_a_fixed_pattern_keeps_is_followed_to_its_place(pattern, kept):
    assert gathered(pattern, kept)[0] is NOTE
    assert gathered(pattern, kept + 1)[0] is ERROR
    assert gathered(pattern, kept, repeat=2)[0] is NOTE
    assert gathered(pattern, 64 * kept // 24 + 1, repeat=2)[0] is ERROR


def test_what_bits_keep_may_be_anywhere():
    assert gathered(0, 8)[0] is ERROR


def loaded(stored, *, whole=False):
    """Keep 24 floats in memory, load 40 from there or from behind them, compute with 64, store ``stored``."""
    program = Program()
    program.fill(A, 64)
    program.keep(A, 24)
    program.bring(B, [40], at=24 if whole else 0)
    program.emit.exp(dst=C, src=B, count=40, **FLOATS)
    program.emit.add(dst=D, src0=C, src1=A, count=40, **FLOATS)
    program.store(D, stored)
    return program.kinds()


def test_unwritten_memory_that_is_loaded_is_a_note_unless_it_is_stored():
    assert loaded(24) == [NOTE]
    assert loaded(25) == [ERROR]


def test_a_load_of_nothing_else_stays_an_error():
    assert loaded(40, whole=True) == [ERROR]
    assert loaded(0, whole=True) == [ERROR]


@pytest.mark.parametrize(("stored", "kind"), [((0, 16), NOTE), ((16, 8), ERROR), ((24, 8), NOTE), ((0, 17), ERROR)])
def test_pieces_of_memory_come_to_their_places(stored, kind):
    program = Program()
    program.fill(A, 64)
    program.keep(A, 16)
    program.keep(A, 8, at=40)
    program.bring(B, [8] * 4, skipped=8)  # floats 0, 16, 32 and 48 on
    program.keep(A, 8, at=16)
    program.bring(C, [16] * 2, skipped=16)  # floats 0 to 15 and 32 to 47, of which 8 are written
    program.store(C + 4 * stored[0], stored[1])
    assert program.kinds() == [NOTE, kind]


def test_each_load_of_the_same_bytes_decides_for_itself():
    program = Program()
    program.fill(A, 24)
    program.keep(A, 24)
    program.bring(B, [64])
    program.bring(C, [64])
    program.store(B, 24)
    program.store(C, 64)
    assert program.kinds() == [NOTE, ERROR]


def drawn(seed):
    """Return a program that keeps a part of a workspace, loads more of it, and stores little of what it computes."""
    rng = np.random.default_rng(seed)
    program, areas = Program(), [A, B, C, D]
    for area in areas:
        program.fill(area, 64)
    program.keep(A, int(rng.integers(2, 9)) * 8)
    for _ in range(int(rng.integers(2, 7))):
        to, one, other = (areas[int(i)] for i in rng.integers(0, 4, 3))
        step, count = int(rng.integers(5)), int(rng.integers(1, 9)) * 8
        if step < 2:
            pieces, skipped = int(rng.integers(1, 4)), int(rng.integers(0, 3)) * 8
            program.bring(to, [int(rng.integers(1, 4)) * 8] * pieces, at=int(rng.integers(0, 5)) * 8, skipped=skipped)
        elif step == 2:
            program.emit.add(dst=to, src0=one, src1=other, count=count, **FLOATS)
        elif step == 3:
            program.emit.muls(dst=to, src=one, value_bits=0x3F000000, count=count, **FLOATS)
        else:
            program.keep(one, count, at=int(rng.integers(0, 9)) * 8)
    for number, area in enumerate(areas):
        program.store(area, int(rng.integers(1, 4)) * 8, at=64 * number)
    return program


def test_what_is_a_note_changes_no_result():
    judged = 0
    for seed in range(300):
        program = drawn(seed)
        kinds = program.kinds()
        if NOTE in kinds and ERROR not in kinds:
            judged += 1
            first, *others = (program.results(content) for content in (0x00, 0x3C, 0x7F, 0xFF))
            assert all(np.array_equal(first, other) for other in others), seed
    assert judged > 20


def test_unwritten_memory_that_a_load_brings_to_another_buffer_stays_an_error():
    gm = GlobalMemory()
    workspace = gm.add("workspace", 1 << 16, initialised=False)
    for space in (Space.L1, Space.UB):
        kind = "cube" if space is Space.L1 else "vector"
        emit = ProgramBuilder(CHIP)
        emit.data_copy(
            dst_space=Space.GM, dst=workspace.address, src_space=space, src=0, block_len=1, dtype=Data.FP16, tensor=0
        )
        emit.data_copy(
            dst_space=space, dst=0, src_space=Space.GM, src=workspace.address, block_len=1024, dtype=Data.FP16, tensor=0
        )
        found = run_hazards(emit.launch(gm, core_kind=kind), CHIP, outputs=())
        kinds = [one.kind for one in found if one.space is Space.GM and one.kind in (NOTE, ERROR)]
        assert kinds == [ERROR if space is Space.L1 else NOTE]

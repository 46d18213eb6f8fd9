"""Core state becomes part of the rows."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import Data, Mode, Op, Space
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder

A2 = get_product("910b")


def _copy(builder, dst_space, src_space, dtype=Data.NONE):
    builder.data_copy(dst_space=dst_space, dst=0, src_space=src_space, src=0, block_len=1, dtype=dtype)


def _fixpipe(builder, dst_space=Space.GM, mode=0):
    builder.fixpipe(
        dst_space=dst_space, dst=0, src=0, dst_dtype=Data.FP32, m_size=1, n_size=16, src_stride=16, dst_stride=2,
        mode=mode,
    )  # fmt: skip


def _mmad(builder, dtype, mode=Mode.INIT):
    builder.mmad(dst=0, src_a=0, src_b=0, dtype=dtype, m=1, n=1, k=1, mode=mode)


def _issued(builder, state=None, count=None):
    rows = builder.rows.copy()
    issue(
        rows, len(rows) if count is None else count, np.zeros(CORE_STATE_LENGTH, np.int64) if state is None else state
    )
    return rows


def test_atomic_marks_stores_to_gm_between_set_and_none_only():
    builder = ProgramBuilder(A2)
    _copy(builder, Space.GM, Space.UB)
    builder.set_atomic(Data.FP32)
    _copy(builder, Space.GM, Space.UB)
    _copy(builder, Space.GM, Space.L1)
    _fixpipe(builder)
    _fixpipe(builder, mode=Mode.NZ2ND)
    # nothing else that writes is a store to GM
    _copy(builder, Space.UB, Space.GM)
    _copy(builder, Space.L1, Space.GM)
    _copy(builder, Space.UB, Space.UB)
    _fixpipe(builder, Space.L1)
    builder.load_2d(dst_space=Space.L1, dst=0, src_space=Space.GM, src=0, dtype=Data.FP16)
    builder.duplicate(dst=0, dtype=Data.FP32, count=8)
    builder.l0c_to_ub(dst=0, src=0, dst_dtype=Data.FP32, block_len=1)
    _mmad(builder, Data.FP32)
    builder.set_atomic(Data.NONE)
    _copy(builder, Space.GM, Space.UB)
    _fixpipe(builder)
    atomic = [bool(mode & Mode.ATOMIC) for mode in _issued(builder)["mode"].tolist()]
    assert atomic == [False, False, True, True, True, True, *[False] * 8, False, False, False]


def test_atomic_leaves_other_mode_bits():
    builder = ProgramBuilder(A2)
    builder.set_atomic(Data.FP32)
    _fixpipe(builder, mode=Mode.CHANNEL_SPLIT)
    assert _issued(builder)["mode"][1] == Mode.CHANNEL_SPLIT | Mode.ATOMIC


def test_atomic_type_is_that_of_the_core_state_not_of_the_copy():
    builder = ProgramBuilder(A2)
    _copy(builder, Space.GM, Space.UB, Data.FP32)
    builder.set_atomic(Data.INT32)
    _copy(builder, Space.GM, Space.UB, Data.FP32)
    builder.set_atomic(Data.FP16)
    _copy(builder, Space.GM, Space.UB)
    _copy(builder, Space.UB, Space.GM, Data.FP32)
    rows = _issued(builder)
    assert rows["dtype"][rows["op"] == Op.DATA_COPY].tolist() == [Data.FP32, Data.INT32, Data.FP16, Data.FP32]


def test_hf32_marks_float_mmads_between_on_and_off_only():
    builder = ProgramBuilder(A2)
    _mmad(builder, Data.FP32)
    builder.set_hf32(True)
    _mmad(builder, Data.FP32)
    _mmad(builder, Data.FP16)
    _mmad(builder, Data.BF16)
    _mmad(builder, Data.FP32, Mode.K_ALIGN)
    _fixpipe(builder)
    builder.set_hf32(False)
    _mmad(builder, Data.FP32)
    modes = _issued(builder)["mode"].tolist()
    assert [bool(mode & Mode.HF32) for mode in modes] == [False, False, True, False, False, True, False, False, False]
    assert modes[5] == Mode.K_ALIGN | Mode.HF32


def test_state_is_carried_from_chunk_to_chunk():
    builder = ProgramBuilder(A2)
    builder.set_atomic(Data.FP16)
    builder.set_hf32(True)
    state = np.zeros(CORE_STATE_LENGTH, np.int64)
    _issued(builder, state)
    following = ProgramBuilder(A2)
    _copy(following, Space.GM, Space.UB)
    _mmad(following, Data.FP32, 0)
    rows = _issued(following, state)
    assert rows["mode"].tolist() == [Mode.ATOMIC, Mode.HF32]
    assert rows["dtype"][0] == Data.FP16
    assert state[:2].tolist() == [Data.FP16, 1]


def test_only_the_given_rows_are_issued():
    builder = ProgramBuilder(A2)
    builder.set_atomic(Data.FP32)
    _copy(builder, Space.GM, Space.UB)
    _copy(builder, Space.GM, Space.UB)
    assert [int(mode) for mode in _issued(builder, count=2)["mode"]] == [0, Mode.ATOMIC, 0]


def test_synchronisation_rows_are_untouched():
    builder = ProgramBuilder(A2)
    builder.set_atomic(Data.FP32)
    builder.set_hf32(True)
    builder.pipe_barrier()
    before = builder.rows.copy()
    assert before.tobytes() == _issued(builder).tobytes()


def test_mask_reaches_the_rows_behind_it_and_only_the_first_waits_for_it():
    builder = ProgramBuilder(A2)
    operands = {"dst": 0, "src0": 256, "src1": 512, "dtype": Data.FP16}
    builder.add_masked(**operands)
    builder.set_vector_mask(0xFFFFFFFFFFFFFFFF, 5)
    builder.add(**operands, count=16)
    builder.add_masked(**operands)
    builder.add_masked(**operands)
    builder.set_mask_count()
    builder.set_vector_mask(300, 0)
    builder.add_masked(**operands)
    builder.set_mask_norm()
    builder.reset_mask()
    builder.add_masked(**operands)
    state = np.zeros(CORE_STATE_LENGTH, np.int64)
    rows = _issued(builder, state)
    masked = rows[rows["op"] == Op.ADD_MASKED]
    assert masked["mask_low"].tolist() == [-1, -1, -1, 300, -1]
    assert masked["mask_high"].tolist() == [-1, 5, 5, 0, -1]
    both = Mode.COUNTER | Mode.MASK_SET
    assert masked["mode"].tolist() == [0, Mode.MASK_SET, 0, both, Mode.MASK_SET]
    assert not rows["mode"][rows["op"] == Op.ADD].any()
    # issued again, as rows of a recorded program are
    again = rows.copy()
    issue(again, len(again), np.zeros(CORE_STATE_LENGTH, np.int64))
    assert again.tobytes() == rows.tobytes()


def test_mask_is_carried_from_chunk_to_chunk():
    builder = ProgramBuilder(A2)
    builder.set_vector_mask(3, 0)
    builder.abs_masked(dst=0, src=256, dtype=Data.FP16)
    state = np.zeros(CORE_STATE_LENGTH, np.int64)
    _issued(builder, state, count=1)
    rows = builder.rows[1:].copy()
    issue(rows, 1, state)
    assert (rows["mask_low"][0], rows["mask_high"][0], rows["mode"][0]) == (3, 0, Mode.MASK_SET)

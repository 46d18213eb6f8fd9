"""A core that persists between batches of rows, on tensors that are the caller's arrays."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim._jit import jit
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.kit import KITS
from npu_sim.engines.session import Session, recorded_launch
from npu_sim.engines.session_jit import first_outside, gm_operands, localise
from npu_sim.errors import InternalError, ProgramError, ShapeError
from npu_sim.isa.footprint import empty_runs, reach
from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.isa.row import join_rows
from npu_sim.memory.host import HostMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind, Violation
from tests.oracles.instances import GENERATORS, candidates

PRODUCT = get_product("910b")
OPTIONS = ExecuteOptions(accumulation=default_accumulation(PRODUCT, "fp16"))


def session(memory, **given):
    return Session(PRODUCT, OPTIONS, memory, **given)


def copy_in(span, blocks, *, at=0, l1=0):
    builder = ProgramBuilder(PRODUCT)
    builder.data_copy(
        dst_space=Space.L1, dst=l1, src_space=Space.GM, src=span.start + at, block_len=blocks, dtype=Data.FP16,
        tensor=span.tensor.index,
    )  # fmt: skip
    return builder.rows


def copy_out(span, blocks, *, at=0, l1=0, atomic=False):
    builder = ProgramBuilder(PRODUCT)
    if atomic:
        builder.set_atomic(Data.FP16)
    builder.data_copy(
        dst_space=Space.GM, dst=span.start + at, src_space=Space.L1, src=l1, block_len=blocks, dtype=Data.FP16,
        tensor=span.tensor.index,
    )  # fmt: skip
    return builder.rows


# Host memory ----------------------------------------------------------------------------------------------------------


def test_place_views_of_one_array_belong_to_one_tensor():
    memory = HostMemory()
    array = np.zeros((4, 64), np.float16)
    flat = array.reshape(-1)
    first, second = memory.place("x", flat[100:]), memory.place("y", array[1, 8:16])
    other = memory.place("z", np.zeros(8, np.float32))
    assert (first.tensor, first.start, first.end) == (
        second.tensor,
        first.tensor.address + 200,
        first.tensor.address + 512,
    )
    assert (second.start - second.tensor.address, second.end - second.start) == (144, 16)
    assert first.tensor.byte_count == 512
    assert other.tensor.index == 1
    assert memory.storage(0).ctypes.data == array.ctypes.data


def test_place_fortran_array_is_one_tensor_too():
    memory = HostMemory()
    array = np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4))
    span = memory.place("x", array[:, 1])
    assert (span.start - span.tensor.address, span.tensor.byte_count) == (12, 48)
    assert memory.storage(0).view(np.int32).tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]


def test_place_view_of_neither_order_is_a_tensor_of_its_own():
    memory = HostMemory()
    owner = np.lib.stride_tricks.as_strided(np.zeros(64, np.int16), (4, 4), (16, 2))
    span = memory.place("x", owner[2])
    assert span.tensor.byte_count >= 8


def test_place_empty_view_at_the_end_has_no_bytes():
    memory = HostMemory()
    array = np.zeros(16, np.float16)
    memory.place("x", array)
    span = memory.place("x", array[20:])
    assert span.start == span.end


def test_place_read_only_array_is_copied_when_it_is_first_seen():
    memory = HostMemory()
    array = np.arange(4, dtype=np.int32)
    array.flags.writeable = False
    memory.place("x", array)
    assert memory.storage(0).flags.writeable
    assert memory.storage(0).view(np.int32).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.zeros(8)[::2], np.float32(1)[...]])
def test_place_array_that_is_not_flat_raises(array):
    message = f"x must be a 1-D C-contiguous array, not one of shape {array.shape}"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        HostMemory().place("x", array)


# Sessions -------------------------------------------------------------------------------------------------------------


def test_run_keeps_buffers_and_core_state_between_batches():
    memory = HostMemory()
    source, target = np.arange(32, dtype=np.float16), np.ones(48, np.float16)
    x, y = memory.place("x", source), memory.place("y", target)
    core = session(memory, record=True)
    core.run(copy_in(x, 2), [x])
    core.run(copy_out(y, 2, at=32, atomic=True), [y])
    # the atomic mode of the last batch still holds
    core.run(copy_out(y, 1), [y])
    core.close()
    assert target.tolist() == [1 + v for v in range(16)] + [1 + v for v in range(32)]
    assert core.row_count == 4
    assert core.rows["op"].tolist() == [Op.DATA_COPY, Op.SET_ATOMIC, Op.DATA_COPY, Op.DATA_COPY]
    # recorded before issue, with the addresses of the layout
    assert core.rows["mode"].tolist() == [0] * 4
    assert core.rows["dst"][2] == y.start + 32


def test_run_rows_that_switch_tensors_use_the_right_one_each_time():
    memory = HostMemory()
    arrays = [np.full(16, value, np.float16) for value in (1, 2, 3)]
    result = np.zeros(48, np.float16)
    spans = [memory.place(f"x{i}", array) for i, array in enumerate(arrays)]
    out = memory.place("out", result)
    builder = ProgramBuilder(PRODUCT)
    for i in (2, 0, 1):
        copies = ((Space.L1, 32 * i, Space.GM, spans[i].start, spans[i].tensor.index),
                  (Space.GM, out.start + 32 * i, Space.L1, 32 * i, out.tensor.index))  # fmt: skip
        for dst_space, dst, src_space, src, tensor in copies:
            builder.data_copy(
                dst_space=dst_space, dst=dst, src_space=src_space, src=src, block_len=1, dtype=Data.FP16, tensor=tensor
            )
            builder.pipe_barrier(Pipe.ALL)
    session(memory).run(builder.rows, [*spans, out])
    assert result.tolist() == [1.0] * 16 + [2.0] * 16 + [3.0] * 16


@pytest.mark.parametrize("write", [False, True])
def test_run_row_outside_the_span_raises_and_nothing_has_run(write):
    memory = HostMemory()
    array = np.zeros(64, np.float16)
    span = memory.place("x", array[16:32])
    core = session(memory, core=3, record=True)
    bad = copy_out(span, 2) if write else copy_in(span, 2)
    with pytest.raises(ProgramError) as caught:
        core.run(bad, [span], "Kernel.Call")
    (violation,) = caught.value.violations
    assert violation.kind is (Kind.WRITE_OUT_OF_BOUNDS if write else Kind.READ_OUT_OF_BOUNDS)
    assert (violation.core, violation.row, violation.start, violation.length) == (3, 0, span.start, 64)
    assert violation.detail.endswith("must stay inside x[0:32] bytes, not touch [0:64] (Kernel.Call)")
    assert (core.row_count, len(core.rows)) == (0, 0)
    assert not array.any()


def test_run_row_of_a_tensor_that_was_not_given_raises():
    memory = HostMemory()
    x, y = memory.place("x", np.zeros(16, np.float16)), memory.place("y", np.zeros(16, np.float16))
    with pytest.raises(ProgramError, match=r"must stay inside a tensor of the call$"):
        session(memory).run(copy_in(x, 1), [y])


def test_run_spans_of_one_tensor_allow_all_between_them():
    memory = HostMemory()
    array = np.arange(64, dtype=np.float16)
    low, high = memory.place("x", array[:16]), memory.place("y", array[48:])
    session(memory).run(copy_in(low, 4), [high, low])


def test_run_illegal_row_raises_unless_trusted():
    memory = HostMemory()
    span = memory.place("x", np.zeros(64, np.float16))
    rows = copy_in(span, 1)
    rows["dst"] = 16
    with pytest.raises(ProgramError) as caught:
        session(memory).run(rows.copy(), [span])
    assert caught.value.violations[0].kind is Kind.WRITE_MISALIGNED
    session(memory, trusted=True).run(rows, [span])


def test_session_starts_on_poisoned_buffers():
    memory = HostMemory()
    target = np.zeros(16, np.float16)
    span = memory.place("x", target)
    session(memory).run(copy_out(span, 1), [span])
    assert np.isnan(target).all()


def test_run_after_close_raises():
    memory = HostMemory()
    span = memory.place("x", np.zeros(16, np.float16))
    core = session(memory)
    core.close()
    core.close()
    with pytest.raises(InternalError, match=r"^Session must be open, not closed$"):
        core.run(copy_in(span, 1), [span])


def test_session_of_another_order_raises():
    options = ExecuteOptions(accumulation=OPTIONS.accumulation, order="late")
    with pytest.raises(ShapeError, match=r"^order of a session must be 'program', not 'late'$"):
        Session(PRODUCT, options, HostMemory())


def test_recorded_launch_replays_each_core_in_chunks_and_carries_what_is_known():
    memory = HostMemory()
    span = memory.place("x", np.zeros(64, np.float16))
    programs = [join_rows([copy_in(span, 1).copy()] * count) for count in (3, 0, 2)]
    known = (Violation(kind=Kind.UNDEFINED, row=1),)
    launch = recorded_launch("k", programs, memory.gm, sites={0: "A"}, known=known)
    assert (launch.core_count, launch.known, launch.sites) == (3, known, {0: "A"})
    for core, program in enumerate(programs):
        seen = 0
        buffer = programs[0][:2].copy()
        for count in launch.rows(core, 0, buffer):
            assert buffer[:count].tobytes() == program[seen : seen + count].tobytes()
            seen += count
        assert seen == len(program)


@jit
def operands_of(rows):
    return gm_operands(rows[0])


@pytest.mark.parametrize("op", [op for op in Op if op in GENERATORS])
def test_gm_operands_of_every_opcode_are_those_its_footprint_shows(op):
    # an opcode that reached GM unseen would run on addresses nobody has checked
    shift, reached = 4096, 0
    for instance in candidates(op, 9, 30):
        row = instance.rows[-1:].copy()
        before, after = np.zeros((1, len(Space), 2), np.int64), np.zeros((1, len(Space), 2), np.int64)
        reach(row, empty_runs(), before)
        low, high = before[0, Space.GM]
        operands = int(operands_of(row))
        assert (operands != 0) >= (high > low)
        if operands == 0 or high == low:
            continue
        reached += 1
        row["tensor"] = 0
        table, found = np.array([[0, 0, low]]), np.zeros((1, len(Space), 2), np.int64)
        assert first_outside(row, 1, table, empty_runs(), found) == 0
        assert found[0, Space.GM].tolist() == [low, high]
        table[0, 2] = high
        assert first_outside(row, 1, table, empty_runs(), found) == -1
        row["src0"] += shift * (operands & 1)
        row["dst"] += shift * (operands >> 1)
        table[0] = shift, shift, shift + high
        segments = np.zeros((2, 2), np.int64)
        assert localise(row, 1, table, segments) == 1
        assert segments[0].tolist() == [1, 0]
        reach(row, empty_runs(), after)
        np.testing.assert_array_equal(after, before)
    moved = {Op.DATA_COPY, Op.DATA_COPY_PAD, Op.LOAD_2D, Op.ND2NZ, Op.FIXPIPE, Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES}
    moved |= {Op.SCALAR_COPY, Op.SCALAR_LOAD, Op.SCALAR_LOOK, Op.SCALAR_STORE}
    assert (reached > 0) == (op in moved)


# Buffers and messages of one session after another --------------------------------------------------------------------


def test_session_that_follows_another_finds_poison_and_not_its_data():
    memory = HostMemory()
    zeros, out = memory.place("x", np.zeros(16, np.float16)), np.zeros(16, np.float16)
    first = session(memory)
    first.run(copy_in(zeros, 1), [zeros])
    first.close()
    second, span = session(memory), memory.place("out", out)
    second.run(copy_out(span, 1), [span])
    second.close()
    assert np.isnan(out).all()


def test_session_on_another_product_has_its_buffers():
    for name in ("910b", "910", "310p", "910b"):
        product = get_product(name)
        opened = Session(product, ExecuteOptions(accumulation=default_accumulation(product, "fp16")), HostMemory())
        assert opened._kit.memory.l1.nbytes >= product.core.l1_bytes
        assert opened._kit.memory.l0c.nbytes >= product.core.l0c_bytes
        opened.close()


def test_sessions_closed_leave_few_buffers_behind():
    opened = [session(HostMemory()) for _ in range(KITS.limit + 2)]
    for each in opened:
        each.close()
    assert len(KITS._spare) == KITS.limit


def test_run_outside_of_a_view_counts_rows_from_the_first_of_the_session():
    memory = HostMemory()
    span = memory.place("x", np.zeros(32, np.float16))
    opened = session(memory)
    opened.run(copy_in(span, 1), [span])
    with pytest.raises(ProgramError) as caught:
        opened.run(join_rows([copy_in(span, 1), copy_in(span, 3)]), [span])
    opened.close()
    assert [violation.row for violation in caught.value.violations] == [2]


@pytest.mark.parametrize(("overflow", "total"), [("inf_nan", np.inf), ("saturate", 65504)])
def test_run_atomic_addition_follows_the_mode_of_overflow(overflow, total):
    memory = HostMemory()
    values, sums = np.full(16, 60000, np.float16), np.full(16, 60000, np.float16)
    x, out = memory.place("x", values), memory.place("out", sums)
    options = ExecuteOptions(accumulation=default_accumulation(PRODUCT, "fp16"), overflow=overflow)
    opened = Session(PRODUCT, options, memory)
    opened.run(copy_in(x, 1), [x])
    opened.run(copy_out(out, 1, atomic=True), [out])
    opened.close()
    assert (sums == total).all()

"""Which compiled function carries out an opcode."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError

from npu_sim._by_address import address_of, addressed, caller, table_maker, table_reader
from npu_sim._jit import JIT_ENABLED, jit
from npu_sim.isa.dispatch import _chained, _entry_of, _exact
from npu_sim.isa.emit import emit_gather_masked, emit_sqrt_masked, emit_whole_reduce_max
from npu_sim.isa.instruction import changes_nothing
from npu_sim.isa.machine import NOTHING, UNKNOWN, UNMET
from npu_sim.isa.op import OPS, Data, Op, Space
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from npu_sim.reinterpret import reinterpret
from tests.oracles.instances import SIZES, Emulated

if JIT_ENABLED:

    @jit
    def _words_of(data, first, last):
        return reinterpret(data[first:last], np.float32)


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_reinterpret_views_the_same_memory_as_numpy(dtype):
    data = np.arange(64).astype(dtype)
    first, last = 8, 8 + 16 // data.itemsize * 2
    view = _words_of(data, first, last)
    np.testing.assert_array_equal(view.view(np.uint32), data[first:last].view(np.uint32))
    view[0] = 1.5
    assert data[first:last].view(np.float32)[0] == 1.5
    assert (view.dtype, view.flags.c_contiguous) == (np.float32, True)


def _whole_reduce_max_rows(count, dtype):
    rows = empty_rows(count)
    n = 0
    for at in range(count):
        n = emit_whole_reduce_max(rows, n, 4096 + 4 * at, 256 * at, dtype, 64, 1, 1, 1, 8, 0, at)
    return rows


def _emulated(values):
    contents = {space: np.zeros(size, np.uint8) for space, size in SIZES.items()}
    contents[Space.UB][: values.nbytes] = values.ravel().view(np.uint8)
    return Emulated.of(contents, Data.FP16)


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_an_instruction_is_compiled_when_a_row_has_it():
    values = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    rows = _whole_reduce_max_rows(3, Data.FP32)
    addresses = _exact.addresses
    addresses[Op.WHOLE_REDUCE_MAX] = UNMET
    before = addresses.copy()
    emulated = _emulated(values)
    assert emulated.run(rows) == -1
    assert emulated.ub.view(np.float32)[1024:1027].tolist() == values.max(axis=1).tolist()
    assert np.flatnonzero(addresses != before).tolist() == [Op.WHOLE_REDUCE_MAX]
    assert addresses[Op.WHOLE_REDUCE_MAX] not in (UNMET, NOTHING, UNKNOWN)


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_a_general_form_brings_its_count_form():
    values = np.arange(1, 129, dtype=np.float32)
    _exact.addresses[[Op.SQRT, Op.SQRT_MASKED]] = UNMET
    rows = empty_rows(1)
    assert emit_sqrt_masked(rows, 0, 4096, 0, Data.FP32, 2, 1, 1, 8, 8, 0, 0) == 1
    # all 64 lanes
    rows["mask_low"], rows["mask_high"] = -1, 0
    emulated = _emulated(values)
    assert emulated.run(rows) == -1
    assert emulated.ub.view(np.float32)[1024:1152].tolist() == np.sqrt(values).tolist()
    assert UNMET not in _exact.addresses[[Op.SQRT, Op.SQRT_MASKED]]


def test_instructions_that_change_nothing_in_memory_are_no_calls():
    quiet = {spec.op for spec in OPS if spec.run is changes_nothing and spec.elementwise is None} | {Op.NOP}
    assert {Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER, Op.CROSS_CORE_SET_FLAG} <= quiet
    assert not quiet & {Op.ADD, Op.DATA_COPY, Op.MMAD, Op.SQRT, Op.SQRT_MASKED}
    for semantics in (_exact, _chained):
        assert set(np.flatnonzero(semantics.addresses == NOTHING)) == quiet
        assert set(np.flatnonzero(semantics.addresses != UNKNOWN)) == {spec.op for spec in OPS} | {Op.NOP}


def test_a_row_of_no_instruction_ends_the_run():
    rows = empty_rows(4)
    rows["op"] = [Op.NOP, Op.SET_FLAG, 254, Op.NOP]
    assert 254 not in {spec.op for spec in OPS}
    emulated = _emulated(np.zeros(64, np.float32))
    assert emulated.run(rows) == 2
    assert emulated.run(rows[:2]) == -1


def test_offsets_of_masked_lanes_may_lie_in_front_of_the_buffer():
    rows = empty_rows(1)
    assert emit_gather_masked(rows, 0, 4096, 1024, -32, 256, Data.FP32, 1, 8, 0, 0) == 1
    # lanes 8 to 63: their offsets begin where UB does
    rows["mask_low"], rows["mask_high"] = -256, 0
    assert not verify(rows, get_product("910b"))
    offsets = 4 * np.random.default_rng(1).permutation(64)[:56].astype(np.uint32)
    values = np.arange(64, dtype=np.float32)
    emulated = _emulated(np.concatenate((offsets.view(np.float32), np.zeros(200, np.float32), values)))
    assert emulated.run(rows) == -1
    assert emulated.ub.view(np.float32)[1032:1088].tolist() == values[offsets // 4].tolist()


@pytest.mark.parametrize("op", [Op.MMAD, Op.ADD, Op.DATA_COPY])
def test_each_kind_of_accumulation_model_has_its_own_mmad_and_shares_the_rest(op):
    semantics = _exact.by_opcode[op], _chained.by_opcode[op]
    assert (semantics[0] is semantics[1]) == (op != Op.MMAD)
    assert (_entry_of(semantics[0]) is _entry_of(semantics[1])) == (op != Op.MMAD)


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_rows_that_two_threads_meet_first_are_carried_out_by_both():
    values = np.arange(64, dtype=np.float32)
    _exact.addresses[Op.WHOLE_REDUCE_MAX] = UNMET
    emulated = [_emulated(values) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda one: one.run(_whole_reduce_max_rows(1, Data.FP32)), emulated))
    assert results == [-1, -1]
    assert [one.ub.view(np.float32)[1024] for one in emulated] == [63, 63]


def test_a_row_that_cannot_be_carried_out_ends_the_run():
    rows = _whole_reduce_max_rows(3, Data.FP32)
    rows["dtype"][1] = Data.INT8
    assert _emulated(np.ones(192, np.float32)).run(rows) == 1


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_a_call_by_address_takes_the_types_it_was_made_for_and_no_others():
    call = caller((types.float64,))

    @addressed
    def positive(x):
        return x > 0

    @jit
    def ask(address, x):
        return call(address, x)

    address = address_of(positive, (types.float64,))
    assert (ask(address, 1.5), ask(address, -1.5)) == (True, False)
    with pytest.raises(TypingError):
        ask(address, 1)
    with pytest.raises(SystemError):
        positive(1.5)


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_arrays_of_a_table_are_those_that_were_put_there():
    kinds = (types.Array(types.float32, 1, "C"), types.Array(types.int64, 2, "C"))
    table_of, arrays_in = table_maker(kinds), table_reader(kinds)
    call = caller((types.int64,))

    @addressed
    def double(table):
        singles, matrix = arrays_in(table)
        for i in range(len(singles)):
            singles[i] *= 2
        matrix[1, 2] += matrix.shape[0]
        return True

    @jit
    def ask(address, singles, matrix):
        done = call(address, table_of(singles, matrix))
        return done, singles[0] + matrix[1, 2]

    address = address_of(double, (types.int64,))
    singles, matrix = np.array([1.5, -3], np.float32), np.zeros((4, 3), np.int64)
    references = [sys.getrefcount(array) for array in (singles, matrix)]
    assert ask(address, singles, matrix) == (True, 7)
    assert (singles.tolist(), matrix[1].tolist()) == ([3, -6], [0, 0, 4])
    assert [sys.getrefcount(array) for array in (singles, matrix)] == references
    with pytest.raises(TypingError):
        ask(address, matrix, singles)

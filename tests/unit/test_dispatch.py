"""Which compiled function carries out an opcode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError

from npu_sim._by_address import address_of, caller
from npu_sim._jit import JIT_ENABLED, jit
from npu_sim.isa import dispatch
from npu_sim.isa.dispatch import _is_for_cube
from npu_sim.isa.emit import emit_whole_reduce_max
from npu_sim.isa.op import OPS, Data, Op, Space
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.reinterpret import reinterpret
from tests.oracles.instances import SIZES, Emulated

BOTH = {
    Op.NOP,
    Op.SET_FLAG,
    Op.WAIT_FLAG,
    Op.PIPE_BARRIER,
    Op.SET_ATOMIC,
    Op.SET_HF32,
    Op.ALLOC_TENSOR,
    Op.FREE_TENSOR,
    Op.SET_VECTOR_MASK,
    Op.RESET_MASK,
    Op.SET_MASK_COUNT,
    Op.SET_MASK_NORM,
    Op.SCALAR_LOAD,
    Op.CROSS_CORE_SET_FLAG,
    Op.CROSS_CORE_WAIT_FLAG,
    Op.DATA_COPY,
}
CUBE = {
    Op.MMAD,
    Op.LOAD_3D,
    Op.LOAD_3D_V1,
    Op.LOAD_2D,
    Op.LOAD_TRANSPOSE,
    Op.FILL,
    Op.ND2NZ,
    Op.FIXPIPE,
    Op.FIXPIPE_QUANT,
    Op.L0C_TO_UB,
}


def test_instructions_are_parted_by_their_unit():
    assert {spec.op for spec in OPS if spec.unit is None} == BOTH - {Op.NOP}
    assert {spec.op for spec in OPS if spec.unit == "cube"} == CUBE


@pytest.mark.parametrize(
    ("ops", "cube"),
    [
        ([Op.MMAD], True),
        ([Op.ADD], False),
        ([Op.DATA_COPY] * 40 + [Op.LOAD_3D, Op.ADD], True),
        ([Op.SET_FLAG] * 40 + [Op.CAST, Op.MMAD], False),
        ([Op.DATA_COPY], False),
    ],
)
def test_first_row_of_one_unit_alone_decides(ops, cube):
    rows = empty_rows(len(ops))
    rows["op"] = ops
    assert _is_for_cube(rows, 0, len(ops)) == cube
    assert not _is_for_cube(rows, len(ops), len(ops))


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


APART = [spec.op for spec in OPS if spec.apart]


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
def test_what_is_compiled_apart_is_compiled_when_a_row_has_it_and_runs_from_both_units():
    values = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    assert Op.WHOLE_REDUCE_MAX in APART
    for other in (Op.NOP, Op.MMAD, Op.ADD):
        rows = _whole_reduce_max_rows(3, Data.FP32)
        emulated = _emulated(values)
        # an empty Mmad or Add, which only its own unit carries out
        first = empty_rows(1)
        first["op"], first["dtype"] = other, Data.FP16
        assert emulated.run(join_rows((first, rows))) == -1
        assert emulated.ub.view(np.float32)[1024:1027].tolist() == values.max(axis=1).tolist()


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_rows_that_two_threads_meet_first_are_carried_out_by_both():
    values = np.arange(64, dtype=np.float32)
    dispatch.ADDRESSES[Op.WHOLE_REDUCE_MAX] = 0
    emulated = [_emulated(values) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda one: one.run(_whole_reduce_max_rows(1, Data.FP32)), emulated))
    assert results == [-1, -1]
    assert [one.ub.view(np.float32)[1024] for one in emulated] == [63, 63]


def test_a_row_compiled_apart_that_cannot_be_carried_out_ends_the_run():
    rows = _whole_reduce_max_rows(3, Data.FP32)
    rows["dtype"][1] = Data.INT8
    assert _emulated(np.ones(192, np.float32)).run(rows) == 1


@pytest.mark.skipif(not JIT_ENABLED, reason="compiles")
def test_a_call_by_address_takes_the_types_it_was_made_for_and_no_others():
    call = caller((types.float64,))

    @jit
    def positive(x):
        return x > 0

    @jit
    def ask(address, x):
        return call(address, x)

    address = address_of(positive, (types.float64,))
    assert (ask(address, 1.5), ask(address, -1.5)) == (True, False)
    with pytest.raises(TypingError):
        ask(address, 1)

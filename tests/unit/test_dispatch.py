"""Which of the two compiled functions carries out an opcode."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED, jit
from npu_sim.isa.dispatch import _is_for_cube
from npu_sim.isa.op import OPS, Op
from npu_sim.isa.row import empty_rows
from npu_sim.reinterpret import reinterpret

BOTH = {
    Op.NOP,
    Op.SET_FLAG,
    Op.WAIT_FLAG,
    Op.PIPE_BARRIER,
    Op.SET_ATOMIC,
    Op.SET_HF32,
    Op.ALLOC_TENSOR,
    Op.FREE_TENSOR,
    Op.DATA_COPY,
}
CUBE = {Op.MMAD, Op.LOAD_3D, Op.LOAD_3D_V1, Op.LOAD_2D, Op.LOAD_TRANSPOSE, Op.FILL, Op.ND2NZ, Op.FIXPIPE, Op.L0C_TO_UB}


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

"""Rules that depend on the state of the core are judged where the state is known, wherever a program is checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.session import Session
from npu_sim.errors import InternalError, ProgramError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Space
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.memory.host import HostMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.legality import verify_launch, verify_program
from npu_sim.program.verify import verify
from tests.unit.small_launches import launch_of

A2 = get_product("910b")
OPTIONS = ExecuteOptions(accumulation=SERIAL)
PAD_RULE = "DataCopyPad block_len must be whole elements to add them, not 154 (Ascend910B2)"


def _memory():
    gm = GlobalMemory()
    gm.add("x", 512, initialised=True)
    return gm


def _ragged_add(dtype=Data.FP32):
    """Add 154 bytes to GM: no whole number of float."""
    builder = ProgramBuilder(A2)
    builder.set_atomic(dtype)
    builder.data_copy_pad(
        dst_space=Space.GM, dst=0, src_space=Space.UB, src=0, block_len=154, dtype=Data.FP16, tensor=0
    )
    builder.set_atomic(Data.NONE)
    return builder


def test_atomic_add_of_half_an_element_is_refused_by_the_builder():
    assert [v.detail for v in _ragged_add().verify()] == [PAD_RULE]
    assert [v.row for v in _ragged_add().verify()] == [1]
    assert _ragged_add(Data.FP16).verify() == []
    with pytest.raises(ProgramError, match=r"DataCopyPad block_len must be whole elements to add them, not 154"):
        _ragged_add().launch(_memory())


def test_verify_program_leaves_the_rows_alone():
    rows = _ragged_add().rows.copy()
    before = rows.tobytes()
    assert verify(rows, A2) == []
    assert len(verify_program(rows, A2)) == 1
    assert rows.tobytes() == before


def test_atomic_add_of_half_an_element_is_refused_by_execute():
    launch = replace(_ragged_add().launch(_memory(), check=False), trusted=False)
    with pytest.raises(ProgramError) as caught:
        execute(launch, A2, OPTIONS)
    assert [v.detail for v in caught.value.violations] == [PAD_RULE]


@pytest.mark.parametrize("together", [True, False])
def test_atomic_add_of_half_an_element_is_refused_by_a_session(together):
    memory = HostMemory()
    span = memory.place("x", np.zeros(128, np.float32))
    session = Session(A2, OPTIONS, memory)
    rows = _ragged_add().rows
    if not together:
        session.run(rows[:1].copy(), [span])
        rows = rows[1:]
    with pytest.raises(ProgramError, match=r"block_len must be whole elements to add them, not 154"):
        session.run(rows.copy(), [span])


def test_session_that_refuses_rows_keeps_its_core_state():
    memory = HostMemory()
    out = np.zeros(128, np.float32)
    span = memory.place("x", out)
    session = Session(A2, OPTIONS, memory, record=True)
    with pytest.raises(ProgramError):
        session.run(_ragged_add().rows[:2].copy(), [span])
    builder = ProgramBuilder(A2)
    builder.duplicate(dst=0, dtype=Data.FP32, count=8, value_bits=0x3F800000)
    for _ in range(2):  # stores, and does not add
        builder.data_copy(dst_space=Space.GM, dst=0, src_space=Space.UB, src=0, block_len=1, tensor=0)
    session.run(builder.rows.copy(), [span])
    assert out[:8].tolist() == [1.0] * 8
    assert len(session.rows) == 3


def test_verify_launch_counts_rows_through_phases_and_keeps_the_state_where_cores_do():
    def copy(rows, n):
        return emit.emit_data_copy_pad(rows, n, Space.GM, 0, Space.UB, 0, 1, 154, 0, 0, 0, 0, 0, 0, Data.FP16, 0, 3, 4)

    def program(core, phase):
        atomic = [lambda rows, n: emit.emit_set_atomic(rows, n, Data.FP32, 0, 0)]
        return [copy, *(atomic if (core, phase) == (1, 0) else []), copy]

    launch = replace(launch_of(program, cores=2, phases=2), core_kind="vector")
    assert launch.keeps_cores
    assert [(v.core, v.row) for v in verify_launch(launch, A2)] == [(1, 2), (1, 3), (1, 4)]
    launch = replace(launch, trusted=True)
    found = verify_launch(launch, A2)
    assert [(v.core, v.row, v.site, v.tile, v.detail) for v in found] == [(1, 2, 3, 4, PAD_RULE)]
    moved = verify_launch(replace(launch, core_kind="cube"), A2)
    assert [(v.core, v.row) for v in moved if v.detail != PAD_RULE] == [
        (0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3), (1, 4),
    ]  # fmt: skip


def test_verify_launch_refuses_a_kernel_that_overruns():
    launch = replace(launch_of(lambda core, phase: []), kernel=lambda rows, *_: iter([len(rows) + 1]))
    with pytest.raises(InternalError, match=r"^Kernel of kernel must write 0 to 16384 rows, not 16385$"):
        verify_launch(launch, A2)
    assert verify_program(empty_rows(0), A2) == []

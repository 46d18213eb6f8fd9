"""Which buffers rows name: all that they touch, since a session poisons a buffer when a row first names it."""

from __future__ import annotations

import pytest

from npu_sim.engines.session_jit import spaces_named
from npu_sim.isa.footprint import empty_runs, footprint_at
from npu_sim.isa.op import Op, Space
from tests.oracles.instances import GENERATORS, candidates

_TABLES = {Space.BT, Space.FB, Space.IDX}
"""Poisoned when a session begins."""


@pytest.mark.parametrize("op", sorted(GENERATORS))
def test_every_buffer_that_a_row_touches_is_named(op):
    runs = empty_runs()
    for instance in candidates(op, 5, 60):
        for at in range(len(instance.rows)):
            count = int(footprint_at(instance.rows, at, runs))
            touched = {Space(int(space)) for space in runs[: max(count, 0), 0]} - _TABLES
            named = int(spaces_named(instance.rows[at : at + 1], 1))
            assert all(named >> space & 1 for space in touched), (touched, named)


@pytest.mark.parametrize(("op", "other"), [(Op.ADD, Space.L1), (Op.GATHER, Space.L0C), (Op.MMAD, Space.UB)])
def test_rows_leave_the_buffers_of_the_other_kind_of_core(op, other):
    for instance in candidates(op, 5, 20):
        assert int(spaces_named(instance.rows, len(instance.rows))) >> other & 1 == 0

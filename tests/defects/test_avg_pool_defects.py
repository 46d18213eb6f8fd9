"""Orderings of AvgPool3DGrad: every one that is lost is found, between instructions and between phases.

The judge is `tests.oracles.sync_removal`: all pairs of rows with common bytes and the full order of the rows.
"""

from __future__ import annotations

import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards_programs, run_hazards_rows
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from tests.differential.test_avg_pool3d_grad import build
from tests.oracles.pooling import Pooling
from tests.oracles.programs import issued
from tests.oracles.sync_removal import broken_orders, uninitialised
from tests.oracles.trans_data import machine

OVERLAPPED = Pooling(kernel=(2, 2), stride=(1, 1))
APART = Pooling(kernel=(2, 1), stride=(2, 2))
UB_BYTES = 20480 + 1024
"""Leaves 1024 bytes, so that a few tasks fill them."""

PROGRAMS = {
    "floats cleared": ("fp32", OVERLAPPED, 0, False),
    "floats added": ("fp32", OVERLAPPED, 1, False),
    "floats added in order": ("fp32", OVERLAPPED, 1, True),
    "halves added": ("fp16", OVERLAPPED, 1, False),
    "halves cast": ("fp16", OVERLAPPED, 2, False),
    "halves stored": ("bf16", APART, 1, False),
}

# (rows, waits whose removal breaks an ordering): two of each task, and two where lines of UB are used anew. The others
# are the first wait for each buffer and the last ones.
COUNTS = {
    "floats cleared": (5, 1),
    "floats added": (104, 20),
    "floats added in order": (113, 20),
    "halves added": (122, 20),
    "halves cast": (26, 6),
    "halves stored": (160, 28),
}


def program(name):
    dtype, pooling, phase, deterministic = PROGRAMS[name]
    product = machine("910b", cores=1, ub_bytes=UB_BYTES)
    launch, *_ = build((4, 4) if pooling is OVERLAPPED else (6, 8), 20, pooling, dtype, product, deterministic)
    table = launch.gm.table()
    if phase:
        table[:, 3] = 1  # what the phases before have written
    return issued(emit_rows(launch, 0, phase)), product, table


@pytest.mark.parametrize("name", PROGRAMS)
def test_avg_pool_every_sync_row_removed_one_at_a_time_is_judged_as_the_oracle_judges(name):
    rows, product, table = program(name)
    assert uninitialised(rows, table) == {}
    broken = broken_orders(rows, lambda program: run_hazards_rows(program, product, table))
    assert broken[Op.SET_FLAG] == broken[Op.WAIT_FLAG]
    assert broken[Op.PIPE_BARRIER] == 0  # the vector pipe and the stores are in order anyway
    assert (len(rows), broken[Op.WAIT_FLAG]) == COUNTS[name]


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_avg_pool_without_the_barrier_between_phases_is_reported(dtype):
    product = machine("910b", cores=3)
    launch, *_ = build((5, 5), 20, OVERLAPPED, dtype, product)
    phases = [[emit_rows(launch, core, phase) for core in range(3)] for phase in range(launch.phase_count)]
    table = launch.gm.table()
    assert run_hazards_programs(phases, product, table) == []
    for first in range(launch.phase_count - 1):
        both = [join_rows(pair) for pair in zip(phases[first], phases[first + 1], strict=True)]
        merged = [*phases[:first], both, *phases[first + 2 :]]
        assert run_hazards_programs(merged, product, table) != []


def test_avg_pool_sums_without_atomic_mode_are_reported():
    """Cores that store where they should add overwrite each other."""
    product = machine("910b", cores=3)
    launch, *_ = build((5, 5), 20, OVERLAPPED, "fp32", product)
    phases = [[emit_rows(launch, core, phase) for core in range(3)] for phase in range(2)]
    phases[1] = [rows[rows["op"] != Op.SET_ATOMIC] for rows in phases[1]]
    assert run_hazards_programs(phases, product, launch.gm.table()) != []

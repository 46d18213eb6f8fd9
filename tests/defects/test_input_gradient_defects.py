"""Hazards of the dav-c220 input-gradient and forward kernels: none as they are, every lost ordering found, row by row.

The judge is `tests.oracles.sync_removal`: all pairs of rows with common bytes and the full order of the rows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards, run_hazards_programs
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from npu_sim.program.disassemble import disassemble
from npu_sim.program.violation import Kind
from ops.conv3d_backprop_input.plan_split import dx_launch, forward_launch
from tests.cases.input_gradient import setup_of
from tests.defects.test_weight_gradient_defects import Program, removal_statistics
from tests.differential.test_input_gradient import case_of
from tests.oracles.programs import issued
from tests.oracles.sync_removal import uninitialised


def _program(setup, phase=0):
    table = setup.gm.table()
    if phase == 1:
        table[setup.out.index, 3] = 1
    names = tuple(tensor.name for tensor in setup.gm.tensors)
    return Program(issued(emit_rows(setup.plan.launches[0], 0, phase)), setup.case.product, table, names)


def gradient(compute, x_shape, weight_shape, *, attributes=None, phase=0, **tiling):
    """One core, small blocks, so that every loop turns more than once."""
    setup = setup_of(case_of("input_gradient", compute, x_shape, weight_shape, **(attributes or {})))
    made = replace(setup.plan.tiling, core_num=1, is_block_driver=True, **tiling)
    launch = dx_launch(made, setup.case.product, setup.operands)
    return _program(replace(setup, plan=replace(setup.plan, tiling=made, launches=(launch,))), phase)


def forward(compute, x_shape, weight_shape, *, attributes=None, **blocks):
    setup = setup_of(case_of("forward", compute, x_shape, weight_shape, **(attributes or {})))
    tiling = setup.plan.tiling
    made = replace(
        tiling, core_num=1, single_m=tiling.geometry.pixels, single_n=32, blocks=replace(tiling.blocks, **blocks)
    )
    launch = forward_launch(made, setup.case.product, setup.operands)
    return _program(replace(setup, plan=replace(setup.plan, tiling=made, launches=(launch,))))


def streamed():
    """A strided gradient, its L1 image cleared before each load; K streamed through single buffers."""
    return gradient(
        "fp16", (1, 16, 5, 6), (32, 16, 2, 2), attributes={"stride": 2, "pad": (1, 0, 0, 0)},
        base_m=16, base_n=16, base_k=32, step_ka=2, step_kb=2, al1_pbuffer=1, bl1_pbuffer=1, cl0_pbuffer=1,
        single_core_m=30, single_core_cin=16,
    )  # fmt: skip


def doubled():
    """Double buffers everywhere, two N blocks, two depth taps."""
    return gradient(
        "fp16", (1, 32, 2, 4, 4), (32, 32, 2, 1, 1), attributes={"pad": (1, 0, 0, 0, 0, 0)},
        base_m=16, base_n=16, base_k=16, step_ka=1, step_kb=1, al1_pbuffer=2, bl1_pbuffer=2, cl0_pbuffer=2,
        single_core_m=16, single_core_cin=32,
    )  # fmt: skip


def held():
    """The whole weight stays in L1 for an item; two items."""
    return gradient(
        "hf32", (2, 8, 4, 4), (16, 8, 2, 2), base_m=16, base_n=16, base_k=16, step_ka=2, step_kb=4, al1_pbuffer=2,
        bl1_pbuffer=1, cl0_pbuffer=1, single_core_m=16, single_core_cin=16,
    )  # fmt: skip


def cleared(phase):
    return gradient(
        "fp16", (1, 16, 7, 3), (16, 16, 1, 1), attributes={"stride": 3}, phase=phase, base_m=16, base_n=16, base_k=16,
        step_ka=1, step_kb=1, al1_pbuffer=1, bl1_pbuffer=1, cl0_pbuffer=2, single_core_m=9, single_core_cin=16,
    )  # fmt: skip


def convolution():
    return forward(
        "fp16", (1, 32, 6, 5), (32, 32, 2, 2), attributes={"stride": 2, "pad": (1, 1, 0, 0)}, base_m=16, base_n=16,
        base_k=32, step_ka=2, step_kb=2, al1=2, bl1=1, cl0=1,
    )  # fmt: skip


PROGRAMS = {
    "dx fp16, K streamed": streamed,
    "dx fp16, double buffers and depth": doubled,
    "dx hf32, weight held": held,
    "dx clear": lambda: cleared(0),
    "dx behind the clearing": lambda: cleared(1),
    "forward": convolution,
}

# (removals that break an ordering, removals that break nothing) of SetFlag, WaitFlag, PipeBarrier; see
# `test_weight_gradient_defects` for which are redundant.
REMOVALS = {
    "dx fp16, K streamed": ((24, 17), (24, 17), (0, 12)),
    "dx fp16, double buffers and depth": ((50, 38), (50, 38), (0, 12)),
    "dx hf32, weight held": ((23, 15), (23, 15), (0, 8)),
    "dx clear": ((2, 0), (2, 0), (0, 0)),
    "dx behind the clearing": ((13, 17), (13, 17), (0, 6)),
    "forward": ((24, 18), (24, 18), (0, 8)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_input_gradient_every_sync_row_removed_one_at_a_time_is_judged_as_the_oracle_judges(name):
    broken, redundant = removal_statistics(PROGRAMS[name]())
    counts = tuple((broken[op], redundant[op]) for op in (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER))
    assert counts == REMOVALS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_input_gradient_copy_or_fill_one_block_too_short_is_an_uninitialised_read(name):
    program = PROGRAMS[name]()
    rows = program.rows
    assert uninitialised(rows, program.table) == {}
    fields = {Op.DATA_COPY: "block_len", Op.FILL: "block_num"}
    at = [i for i, row in enumerate(rows) if Op(row["op"]) in fields and row[fields[Op(row["op"])]] > 1][:4]
    needed = 0
    for i in at:
        mutant = rows.copy()
        mutant[fields[Op(rows[i]["op"])]][i] -= 1
        expected = uninitialised(mutant, program.table)
        found = {v.row for v in program.hazards(mutant) if v.kind is Kind.READ_UNINITIALISED}
        assert found == set(expected), disassemble(rows[i])
        needed += bool(expected)
    assert needed


def test_input_gradient_cores_that_clear_and_compute_without_a_barrier_overwrite_each_other():
    # two M blocks of one image: what a core clears is not what it computes
    setup = setup_of(case_of("input_gradient", "fp16", (1, 64, 61, 11), (16, 64, 1, 1), stride=3))
    launch = setup.plan.launches[0]
    assert launch.phase_count == 2
    assert launch.core_count > 1
    assert run_hazards((launch,), setup.case.product) == []
    phases = [[emit_rows(launch, core, phase) for core in range(launch.core_count)] for phase in range(2)]
    table = setup.gm.table()
    assert run_hazards_programs(phases, setup.case.product, table) == []
    merged = [[join_rows(both) for both in zip(*phases, strict=True)]]
    found = run_hazards_programs(merged, setup.case.product, table)
    assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD}

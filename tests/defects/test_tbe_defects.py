"""Hazards of the DSL's kernel where it fills L0B by fractal loads: every ordering it loses is found, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import npu_sim
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.isa.op import Op, Space
from npu_sim.program.violation import Kind
from ops import tbe
from ops.conv3d_backprop_filter.params import unified_params
from ops.conv3d_backprop_filter.plan import unified_launches
from tests.defects.test_weight_gradient_defects import Program, removal_statistics
from tests.oracles.programs import SYNC_OPS, issued
from tests.oracles.series import DSL
from tests.oracles.sync_removal import uninitialised


def one_pixel(series, *, parts):
    """Three batch items of one pixel, two N blocks of a depth tap, all on one core."""
    para = {"group_dict": tbe.calculate_group(50, 20, 1), "kernel_name": "pixel"}
    x, dy = tbe.placeholder((1, 3, 4, 1, 1, 16), "float16", "x"), tbe.placeholder((1, 3, 2, 1, 1, 16), "float16", "y")
    with npu_sim.use_product(series):
        plan = tbe.conv3d_backprop_filter(x, dy, [20, 1, 50, 1, 1], para).plan
    assert plan.case == "load2d"
    tiling = replace(
        plan.tiling, base_n=32, b1_channels=2, b1_bytes=2 * 512, n_count=2, batch_parts=parts, task_count=2 * parts,
        block_dim=1,
    )  # fmt: skip
    params = unified_params(tiling, plan.geometry, plan.product, plan.x, plan.dy, plan.dw)
    launches = unified_launches(params, plan.gm, plan.dw, plan.product)
    return plan, launches


@pytest.mark.parametrize(("parts", "counts"), [(1, ((24, 30), (24, 30), (0, 6))), (3, ((40, 30), (40, 30), (0, 6)))])
@pytest.mark.parametrize("series", DSL)
def test_one_pixel_kernel_every_sync_row_removed_is_judged_as_the_oracle_judges(series, parts, counts):
    plan, launches = one_pixel(series, parts=parts)
    assert run_hazards(launches, plan.product) == []
    table = plan.gm.table()
    table[plan.dw.index, 3] = 1
    names = tuple(tensor.name for tensor in plan.gm.tensors)
    program = Program(issued(emit_rows(launches[1], 0, 0)), plan.product, table, names)
    broken, redundant = removal_statistics(program)
    assert tuple((broken[op], redundant[op]) for op in SYNC_OPS) == counts


@pytest.mark.parametrize("series", DSL)
def test_one_pixel_kernel_that_fills_no_whole_fractal_reads_what_nobody_wrote(series):
    plan, launches = one_pixel(series, parts=1)
    rows = issued(emit_rows(launches[1], 0, 0))
    table = plan.gm.table()
    table[plan.dw.index, 3] = 1
    program = Program(rows, plan.product, table, ("x", "dy", "dw"))
    copies = np.flatnonzero((rows["op"] == Op.DATA_COPY) & (rows["dst_space"] == Space.L1) & (rows["tensor"] == 0))
    # the first buffer's copies: without one, its row of the fractals is never written
    for at in copies[[0, 7, 15]].tolist():
        mutant = np.delete(rows, at)
        found = {v.row for v in program.hazards(mutant) if v.kind is Kind.READ_UNINITIALISED}
        assert found == set(uninitialised(mutant, table)) != set()

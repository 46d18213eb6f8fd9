"""Orderings of the unified input gradient and forward kernels: every one that is lost is found, row by row.

The judge is `tests.oracles.sync_removal`: all pairs of rows with common bytes and the full order of the rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards_rows
from npu_sim.isa.op import Op, Space
from npu_sim.program.disassemble import disassemble
from npu_sim.program.violation import Kind
from ops.conv3d_backprop_input.tiling_unified import Source
from tests.oracles.programs import issued
from tests.oracles.series import UNIFIED
from tests.oracles.sync_removal import broken_orders, uninitialised
from tests.oracles.window_cases import made, planned


def program(series, geometry, *, forward=False, source=None, parts=None, **changes):
    """The rows of the only core, for a tiling of small blocks; ``parts`` are small shares of UB."""
    plan = planned(geometry, series, forward=forward)
    t = plan.tiling
    blocks = {
        "base_m": 16, "base_n": 16, "base_k": 16, "step_ka": plan.problem.taps, "step_kb": plan.problem.taps,
        "slice_m": 16, "slice_n": 1, "batch_dim": 1, "m_dim": 1, "group_dim": 1, "n_dim": 1, "block_dim": 1,
    }  # fmt: skip
    if source is not None:
        blocks |= {"source": source, "a1_bytes": plan.problem.taps * 512, "by_row": 0, "two_column": 0}
        blocks |= {"load_columns": plan.problem.result[1]}
        blocks |= {"m_total": plan.problem.result[0] * plan.problem.result[1]}
    blocks |= changes
    made_of = replace(t, **blocks)
    width = made_of.base_m
    m_count = -(-made_of.m_total // width)
    if made_of.by_row:
        m_count = plan.problem.result[0] * -(-plan.problem.result[1] // width)
    made_of = replace(made_of, m_count=m_count, n_count=-(-plan.problem.n_planes * 16 // made_of.base_n))
    plan = plan.with_tiling(made_of)
    launch = plan.launches[0]
    if parts:
        params = launch.params.copy()
        for name, value in parts.items():
            params[name] = value
        launch = replace(launch, params=params)
    return issued(emit_rows(launch, 0)), plan


def dilated(series):
    """Strides 2, two planes of the gradient in two steps, two M blocks, rows of the map in strips and pieces."""
    geometry = made((5, 6), (2, 1), cin=16, cout=32, stride=(2, 2), pad=(0, 1, 0, 0))
    small = {"ub_part": 1024, "ub_out": 2048, "ub_out_half": 512}
    return program(series, geometry, parts=small, ub_rows=1, ub_columns=4, al1_pbuffer=1)


def direct(series):
    """Stride 1, negative padding behind the map, weights that stay, two batch items."""
    geometry = made((4, 5), (1, 2), n=2, cin=32, cout=16, pad=(0, 0, 1, 2))
    return program(series, geometry, cl0_pbuffer=1, parts={"ub_out": 0, "ub_out_half": 512})


def two_column(series):
    """A result of one column."""
    geometry = made((9, 1), (2, 1), n=2, cin=16, cout=32)
    return program(series, geometry, bl1_pbuffer=1, parts={"ub_out": 0, "ub_out_half": 512})


def line(series):
    """1D with stride 2: blocks of one row."""
    return program(
        series, made((1, 40), (1, 2), cin=16, cout=32, stride=(1, 2)), ub_rows=1, ub_columns=40,
        parts={"ub_part": 2048, "ub_out": 4096, "ub_out_half": 512},
    )  # fmt: skip


def gathered(series):
    """Windows gathered by copies over zeros, in two steps of K."""
    geometry = made((4, 5), (2, 1), cin=16, cout=32, stride=(1, 2), pad=(1, 1, 0, 0))
    small = {"ub_part": 512, "ub_out": 2048, "ub_out_half": 512}
    return program(series, geometry, source=Source.GATHERED, a1_columns=32, parts=small)


def pixels(series):
    """1x1 with stride 2: zeros are inserted behind the Cube."""
    geometry = made((9, 8), (1, 1), n=2, cin=16, cout=32, stride=(2, 2))
    return program(series, geometry, al1_pbuffer=1, parts={"ub_out": 0, "ub_out_half": 8192})


def forward(series):
    """Forward with strides, padding and weights in steps."""
    geometry = made((5, 4), (2, 2), cin=32, cout=32, stride=(2, 1), pad=(1, 0, 0, 1))
    return program(series, geometry, forward=True, parts={"ub_out": 0, "ub_out_half": 512})


def forward_void(series):
    """Forward with blocks that see nothing but padding."""
    geometry = made((2, 8), (1, 2), cin=16, cout=16, pad=(2, 2, 0, 0))
    return program(series, geometry, forward=True, parts={"ub_out": 0, "ub_out_half": 512})


def parts(series):
    """Six taps of which L1 holds four of the windows and five of the weights; weights of two N blocks, two planes."""
    geometry = made((5, 5), (3, 2), cin=32, cout=32)
    small = {"ub_out": 0, "ub_out_half": 512}
    return program(series, geometry, base_n=32, step_ka=4, step_kb=5, bl1_pbuffer=1, parts=small)


def dilated_parts(series):
    """Parts of dilated windows, in the middle of a row of the kernel, over both buffers."""
    geometry = made((5, 5), (2, 3), cin=16, cout=16, stride=(2, 2))
    small = {"ub_part": 1024, "ub_out": 2048, "ub_out_half": 512}
    return program(series, geometry, parts=small, ub_rows=1, ub_columns=4, step_ka=2, step_kb=4)


def gathered_parts(series):
    """Parts of gathered windows."""
    geometry = made((4, 5), (3, 1), cin=16, cout=32, stride=(1, 2), pad=(1, 1, 0, 0))
    small = {"ub_part": 512, "ub_out": 2048, "ub_out_half": 512}
    return program(
        series, geometry, source=Source.GATHERED, a1_columns=32, parts=small, step_ka=2, step_kb=2, a1_bytes=1024
    )


def forward_parts(series):
    """Rows of the kernel one at a time; some of a block's see nothing but padding."""
    geometry = made((2, 8), (3, 2), cin=32, cout=32, pad=(2, 2, 0, 0))
    small = {"ub_out": 0, "ub_out_half": 512}
    return program(series, geometry, forward=True, step_ka=2, step_kb=4, base_n=32, slice_n=1, parts=small)


PROGRAMS = {
    f"{make.__name__} {series}": (make, series)
    for make in (
        dilated, direct, two_column, line, gathered, pixels, forward, forward_void, parts, dilated_parts,
        gathered_parts, forward_parts,
    )
    for series in UNIFIED
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith(" 910")])
def test_window_kernel_copy_or_fill_one_block_too_short_is_an_uninitialised_read_where_it_was_needed(name):
    make, series = PROGRAMS[name]
    rows, plan = make(series)
    table = plan.gm.table()
    assert uninitialised(rows, table) == {}
    copies = (rows["op"] == Op.DATA_COPY) & np.isin(rows["dst_space"], (Space.L1, Space.UB)) & (rows["block_len"] > 1)
    zeros = rows["op"] == Op.DUPLICATE
    needed = 0
    for at in np.flatnonzero(copies | zeros)[:3].tolist():
        mutant = rows.copy()
        mutant["block_len" if copies[at] else "count"][at] -= 1 if copies[at] else 16
        expected = uninitialised(mutant, table)
        found = run_hazards_rows(mutant, plan.product, table)
        assert {v.row for v in found if v.kind is Kind.READ_UNINITIALISED} == set(expected), disassemble(rows[at])
        needed += bool(expected)
    # Zeros and pixels share a buffer, so not every block that is missing shows.
    assert needed


@pytest.mark.parametrize("name", PROGRAMS)
def test_window_kernel_every_sync_row_removed_one_at_a_time_is_judged_as_the_oracle_judges(name):
    make, series = PROGRAMS[name]
    rows, plan = make(series)
    table = plan.gm.table()
    broken = broken_orders(rows, lambda program: run_hazards_rows(program, plan.product, table))
    assert broken[Op.SET_FLAG] == broken[Op.WAIT_FLAG] == BROKEN[make.__name__], (len(rows), broken)
    assert broken[Op.PIPE_BARRIER] == 0  # behind small Mmads: their pipe is in order anyway


# Removals of a SetFlag, and of a WaitFlag, that break an ordering; the others repeat what a longer chain of flags says.
BROKEN = {
    "dilated": 113, "direct": 73, "two_column": 57, "line": 64, "gathered": 28, "pixels": 41, "forward": 40,
    "forward_void": 20, "parts": 71, "dilated_parts": 85, "gathered_parts": 48, "forward_parts": 75,
}  # fmt: skip

"""Hazards of the shipped kernels: none as they are, and every ordering they lose is found, row by row.

The judge is `tests.oracles.sync_removal`: all pairs of rows with common bytes and the full order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, missing_order, run_hazards, run_hazards_programs, run_hazards_rows
from npu_sim.errors import OperatorError
from npu_sim.isa.op import SPEC_OF_OP, Op, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.disassemble import disassemble
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from ops.common.geometry import ConvGeometry
from ops.vector.memset import memset_launch
from tests.cases.weight_gradient import SERIES, plan_of, plan_weight_gradient, random_case, random_tiling, with_tiling
from tests.oracles.hazards import happens_before
from tests.oracles.programs import SYNC_OPS, issued
from tests.oracles.series import SPLIT, UNIFIED
from tests.oracles.sync_removal import (
    SYNC_KINDS,
    closure,
    conflicts,
    judged_removals,
    uninitialised,
    unordered,
)

CASES_PER_SERIES = 30


@pytest.mark.parametrize("series", SERIES)
def test_kernels_untouched_have_no_hazards_and_only_legal_rows(series):
    rng = np.random.default_rng([SERIES.index(series), 31])
    checked = 0
    while checked < CASES_PER_SERIES:
        try:
            plan = plan_of(random_case(rng, series=series, most_macs=300_000))
        except OperatorError:
            continue
        checked += 1
        for variant in (plan, random_tiling(rng, plan, cut=True)):
            assert run_hazards(variant.launches, variant.product) == []
            for launch in variant.launches:
                for phase in range(launch.phase_count):
                    assert verify(emit_rows(launch, launch.core_count - 1, phase), variant.product) == []


@dataclass(frozen=True)
class Program:
    """The rows of one core and phase, with what they may assume of global memory."""

    rows: np.ndarray
    product: object
    table: np.ndarray
    names: tuple

    def hazards(self, rows):
        return run_hazards_rows(rows, self.product, self.table, names=self.names)


def _plan(series, dtype, n, cin, cout, size, kernel, *, groups=1, pad=0):
    height, width = size
    out = height + 2 * pad - kernel[0] + 1, width + 2 * pad - kernel[1] + 1
    geometry = ConvGeometry.from_shapes(
        (n, cin, height, width), (n, cout, *out), (cout, cin // groups, *kernel), padding=pad, groups=groups
    )
    return plan_weight_gradient(geometry, get_product(series), dtype)


def _program(plan, launch, phase=0, core=0):
    """The rows of one core; dw and slots count as written where an earlier phase or launch has cleared them."""
    table = plan.gm.table()
    if phase == 1 or launch is not plan.launches[0]:
        table[plan.dw.index :, 3] = 1
    names = tuple(tensor.name for tensor in plan.gm.tensors)
    return Program(issued(emit_rows(launch, core, phase)), plan.product, table, names)


def split_resident(dtype):
    """K held in L1, two N blocks, two items on a core, double buffers."""
    plan = _plan("910b", dtype, 2, 16, 24, (5, 6), (2, 2))
    c0 = plan.tiling.channel_size
    plan = with_tiling(
        plan,
        replace(
            plan.tiling, tiling_key=3, used_core_num=1,
            single_core_m=32, single_core_n=16 * 4, single_core_k=24, base_m=16,
            base_n=32, base_k=16, step_m=1, step_n=1, step_ka=2, step_kb=2, al1_pbuffer=2, bl1_pbuffer=2, cl0_pbuffer=2,
            iterate_order=0, bl1_bound=4 * 5 * 6 * c0,
        ),
    )  # fmt: skip
    return _program(plan, plan.launches[0], phase=1)


def split_streaming(dtype):
    """K streamed through single L1 buffers, one L0C buffer, the other order."""
    plan = _plan("910b", dtype, 1, 16, 32, (6, 6), (1, 2))
    c0 = plan.tiling.channel_size
    plan = with_tiling(
        plan,
        replace(
            plan.tiling, tiling_key=3, used_core_num=1,
            single_core_m=32, single_core_n=16 * 2, single_core_k=32, base_m=16,
            base_n=32, base_k=16, step_m=1, step_n=1, step_ka=1, step_kb=1, al1_pbuffer=1, bl1_pbuffer=1, cl0_pbuffer=1,
            iterate_order=1, bl1_bound=2 * 5 * 6 * c0,
        ),
    )  # fmt: skip
    return _program(plan, plan.launches[0], phase=1)


def split_clear():
    """The clearing phase with a buffer that is copied three times."""
    plan = _plan("910b", "fp16", 1, 16, 24, (5, 6), (1, 1))
    plan = with_tiling(plan, replace(plan.tiling, used_core_num=1, total_l1_size=1024))
    return _program(plan, plan.launches[0], phase=0)


def stream_k(**changes):
    """One block of dw for each half of M, shared by three cores each; the second batch item is the last."""
    plan = _plan("910b", "fp16", 2, 16, 32, (5, 6), (1, 2))
    fields = {
        "tiling_key": 4, "used_core_num": 6, "block_dim": 6, "stream_k_type": 1, "core_stream_k": 3,
        "single_core_m": 16, "single_core_n": 32, "single_core_k": 32, "base_m": 16, "base_n": 16, "base_k": 16,
        "step_m": 1, "step_n": 1, "step_ka": 1, "step_kb": 1, "al1_pbuffer": 1, "bl1_pbuffer": 1, "cl0_pbuffer": 2,
        "iterate_order": 1, "bl1_bound": 2 * 5 * 6 * 16, "dk_merged": 0,
    }  # fmt: skip
    return with_tiling(plan, replace(plan.tiling, **fields | changes))


def split_slot():
    """Both batch items, the first one stored in a slot, the second one added."""
    plan = stream_k(used_core_num=4, block_dim=4, core_stream_k=2)
    params = plan.launches[0].params.copy()
    params["share"] = 2
    return _program(plan, replace(plan.launches[0], params=params), phase=1)


def slot_sums():
    """Two columns of a block of half of M, in two pieces each."""
    plan = stream_k()
    params = plan.launches[1].params.copy()
    params["cores"], params["sum_bytes"] = 2, 512
    return _program(plan, replace(plan.launches[1], params=params))


def unified(series):
    """Two M blocks, two batch items in one part, two L1 steps of K, one buffer of dy and two of x, UB in slices."""
    plan = _plan(series, "fp16", 2, 16, 32, (5, 5), (1, 2))
    plan = with_tiling(
        plan,
        replace(
            plan.tiling, base_m=16, base_n=32, base_k=16, step_k=1, al1_pbuffer=1, bl1_pbuffer=2, a1_bytes=512,
            b1_bytes=5 * 5 * 32, m_count=2, n_count=1, batch_parts=1, task_count=2, block_dim=1,
        ),
    )  # fmt: skip
    small = plan.launches[1].params.copy()
    small["ub_half"] = 16 * 64
    return _program(plan, replace(plan.launches[1], params=small))


def unified_atomic(series):
    """Every batch item is a task of its own, added atomically; all on one core, two columns where width is 1."""
    plan = _plan(series, "fp16", 3, 20, 16, (4, 2), (2, 2))
    plan = with_tiling(plan, replace(plan.tiling, batch_parts=3, task_count=3, block_dim=1, base_n=128, n_count=1))
    return _program(plan, plan.launches[1])


def memset():
    """A share of several buffers."""
    gm = GlobalMemory()
    tensor = gm.add("t", 5000, initialised=False)
    launch = memset_launch(gm, tensor, get_product("910"))
    params = launch.params.copy()
    params["cores"], params["buffer_bytes"] = 1, 1024
    launch = replace(launch, params=params, core_count=1)
    return Program(issued(emit_rows(launch, 0)), get_product("910"), gm.table(), ("t",))


PROGRAMS = {
    "split fp16, K resident": lambda: split_resident("fp16"),
    "split fp32, K resident": lambda: split_resident("fp32"),
    "split hf32, K streamed": lambda: split_streaming("hf32"),
    "split fp16, K streamed": lambda: split_streaming("fp16"),
    "split clear": split_clear,
    "split fp16, slot": split_slot,
    "split fp16, sums of slots": slot_sums,
    "unified 310P": lambda: unified("310p"),
    "unified 910": lambda: unified("910"),
    "unified 310P, atomic": lambda: unified_atomic("310p"),
    "unified 910, atomic": lambda: unified_atomic("910"),
    "memset": memset,
}


def removal_statistics(program):
    """Remove every sync row in turn and compare the engine with the oracle; count what the removals broke."""
    rows = program.rows
    assert closure(rows) == happens_before(rows)
    broken = dict.fromkeys(SYNC_OPS, 0)
    redundant = dict(broken)
    for removed, expected, found in judged_removals(rows, program.hazards):
        op, mutant = Op(rows["op"][removed]), np.delete(rows, removed)
        if expected:
            context = f"row {removed}, {op.name} {Pipe(rows['pipe'][removed]).name}"
            assert min(v.row for v in found if v.kind in SYNC_KINDS) == min(expected)[0], context
            broken[op] += 1
            pipes = [Pipe(rows[name][removed]) for name in ("pipe", "peer")]
            lost = tuple(pipes if op == Op.SET_FLAG else reversed(pipes))
            assert lost in {missing_order(mutant, v) for v in found if v.kind in SYNC_KINDS}, context
        else:
            redundant[op] += 1
    return broken, redundant


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernel_every_sync_row_removed_one_at_a_time_is_judged_as_the_oracle_judges(name):
    program = PROGRAMS[name]()
    broken, redundant = removal_statistics(program)
    counts = tuple((broken[op], redundant[op]) for op in SYNC_OPS)
    assert counts == REMOVALS[name]


# (removals that break an ordering, removals that break nothing) of SetFlag, WaitFlag, PipeBarrier. Redundant are the
# flags that open and close a core's program, those that a longer chain of flags repeats (a Mmad that waits for the load
# of this step waits for what that load waited for), and the barriers behind small Mmads: their pipe is in order anyway.
REMOVALS = {
    "split fp16, K resident": ((58, 22), (58, 22), (0, 16)),
    "split fp32, K resident": ((58, 22), (58, 22), (0, 16)),
    "split hf32, K streamed": ((16, 17), (16, 17), (0, 4)),
    "split fp16, K streamed": ((16, 17), (16, 17), (0, 4)),
    "split clear": ((1, 0), (1, 0), (0, 0)),
    "split fp16, slot": ((35, 27), (35, 27), (0, 8)),
    "split fp16, sums of slots": ((19, 7), (19, 7), (0, 0)),
    "unified 310P": ((37, 32), (37, 32), (0, 8)),
    "unified 910": ((37, 32), (37, 32), (0, 8)),
    "unified 310P, atomic": ((16, 24), (16, 24), (0, 3)),
    "unified 910, atomic": ((16, 24), (16, 24), (0, 3)),
    "memset": ((1, 0), (1, 0), (0, 0)),
}


def _changed(rows, at, name, delta):
    mutant = rows.copy()
    mutant[name][at] += delta
    return mutant


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernel_copy_or_fill_one_block_too_short_is_an_uninitialised_read_where_the_block_was_needed(name):
    program = PROGRAMS[name]()
    rows = program.rows
    assert uninitialised(rows, program.table) == {}
    loads = (rows["op"] == Op.DATA_COPY) & np.isin(rows["dst_space"], (Space.L1, Space.UB)) & (rows["block_len"] > 1)
    fills = (rows["op"] == Op.FILL) & (rows["block_num"] > 1)
    duplicates = rows["op"] == Op.DUPLICATE
    shortened = np.flatnonzero(loads | fills | duplicates)[:4].tolist()
    needed = 0
    for at in shortened:
        field, delta = ("block_len", -1) if loads[at] else (("block_num", -1) if fills[at] else ("count", -8))
        mutant = _changed(rows, at, field, delta)
        expected = uninitialised(mutant, program.table)
        found = {v.row for v in program.hazards(mutant) if v.kind is Kind.READ_UNINITIALISED}
        assert found == set(expected), (at, disassemble(rows[at]))
        needed += bool(expected)
    # Later steps of a double buffer find the bytes of an earlier one, so not every short copy can show.
    assert needed


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernel_access_moved_past_its_tensor_or_buffer_is_reported_at_its_row(name):
    program = PROGRAMS[name]()
    rows, core = program.rows, program.product.core
    capacity = {
        Space.L1: core.l1_bytes,
        Space.L0A: core.l0a_bytes,
        Space.L0B: core.l0b_bytes,
        Space.L0C: core.l0c_bytes,
        Space.UB: core.ub_bytes,
    }
    moved = 0
    for at, row in enumerate(rows):
        if row["op"] in SYNC_OPS or row["op"] in (Op.SET_ATOMIC, Op.SET_HF32):
            continue
        for field, space_field in (("dst", "dst_space"), ("src0", "src0_space")):
            if field not in SPEC_OF_OP[int(row["op"])].fields:
                continue
            space = SPEC_OF_OP[int(row["op"])].spaces.get(field)
            space = Space(row[space_field]) if space is None else space
            if space == Space.GM:
                address, _, allocated, _ = program.table[row["tensor"]].tolist()
                delta = address + allocated - int(row[field])
                wanted = Kind.WRITE_OUT_OF_BOUNDS if field == "dst" else Kind.READ_OUT_OF_BOUNDS
            else:
                delta, wanted = capacity[space] - int(row[field]), Kind.CAPACITY
            found = program.hazards(_changed(rows, at, field, delta))
            assert (at, wanted) in {(v.row, v.kind) for v in found}, (field, disassemble(row))
            moved += 1
    assert moved


@pytest.mark.parametrize("name", ["split fp16, K streamed", "unified 310P", "unified 910, atomic"])
def test_kernel_destination_moved_by_one_fractal_breaks_what_the_oracle_says(name):
    program = PROGRAMS[name]()
    rows = program.rows
    shifted = 0
    for at in np.flatnonzero(np.isin(rows["op"], (Op.LOAD_2D, Op.LOAD_3D, Op.LOAD_3D_V1)))[:4].tolist():
        mutant = _changed(rows, at, "dst", 512)
        lost = unordered(mutant, conflicts(mutant))
        found = program.hazards(mutant)
        assert {v.row for v in found if v.kind is Kind.READ_UNINITIALISED} == set(uninitialised(mutant, program.table))
        reported = {(v.row, v.other_row, SYNC_KINDS[v.kind]) for v in found if v.kind in SYNC_KINDS}
        assert reported <= lost
        assert bool(reported) == bool(lost)
        shifted += bool(found)
    assert shifted


@pytest.mark.parametrize("series", UNIFIED)
def test_kernel_without_its_memset_adds_to_memory_nobody_wrote(series):
    plan = _plan(series, "fp16", 3, 20, 16, (4, 2), (2, 2))
    assert plan.tiling.batch_parts > 1
    assert run_hazards(plan.launches, plan.product) == []
    found = run_hazards(plan.launches[1], plan.product)
    assert {v.kind for v in found} == {Kind.READ_UNINITIALISED}
    assert {v.core for v in found} == set(range(plan.tiling.block_dim))


def test_split_kernel_without_its_clearing_phase_adds_to_memory_nobody_wrote():
    plan = _plan("910b", "fp16", 2, 16, 24, (5, 6), (2, 2))
    rows = [emit_rows(plan.launches[0], core, 1) for core in range(plan.tiling.cores)]
    found = run_hazards_programs([rows], plan.product, plan.gm.table())
    assert {v.kind for v in found} == {Kind.READ_UNINITIALISED}
    assert {v.core for v in found} == set(range(plan.tiling.cores))


@pytest.mark.parametrize("series", SPLIT)
def test_split_kernel_without_atomic_adds_lets_cores_overwrite_each_other(series):
    plan = _plan(series, "fp16", 8, 16, 16, (6, 6), (1, 1))
    phases = [[emit_rows(plan.launches[0], core, phase) for core in range(plan.tiling.cores)] for phase in range(2)]
    assert plan.tiling.cores > 1
    assert run_hazards_programs(phases, plan.product, plan.gm.table()) == []
    plain = [[rows[rows["op"] != Op.SET_ATOMIC] for rows in cores] for cores in phases]
    found = run_hazards_programs(plain, plan.product, plan.gm.table())
    assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD}
    assert {plain[1][v.core]["op"][v.row - len(plain[0][v.core])] for v in found} == {Op.FIXPIPE}


def test_split_kernel_that_does_not_clear_slots_sums_memory_nobody_wrote():
    # two batch items for three cores: nothing is summed into the third slot
    plan = stream_k()
    cube, sums = plan.launches
    assert run_hazards(plan.launches, plan.product) == []

    def only_dw_cleared(rows, params, core, phase):
        for count in cube.rows(core, phase, rows):
            if phase == 0:
                slot = rows["tensor"][:count] == plan.gm.tensors[-1].index
                rows["op"][:count][slot] = Op.NOP
            yield count

    found = run_hazards((replace(cube, kernel=only_dw_cleared), sums), plan.product)
    assert {(v.kind, v.launch) for v in found} == {(Kind.READ_UNINITIALISED, 1)}


def test_split_kernel_whose_cores_share_a_slot_overwrite_each_other():
    plan = stream_k()
    params = plan.launches[0].params.copy()
    params["slot_bytes"] //= 2
    found = run_hazards(replace(plan.launches[0], params=params), plan.product)
    assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD}

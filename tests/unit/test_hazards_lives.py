"""Barriers within a pipe and lives of tiles, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import emit_rows, run_hazards, run_hazards_rows
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind
from tests.oracles.faults import Bench
from tests.oracles.lives import missing_barriers, stale_reads
from tests.oracles.programs import GM_TABLE, PRODUCT_TABLE, SITE_MMAD, double_buffered_product, issued, random_program

PRODUCT = get_product("910b")
BARRIERS = {Kind.BARRIER_READ: "read", Kind.BARRIER_WRITE: "write"}


def _check_barriers(rows):
    pipes = {Pipe[name] for name in PRODUCT.core.barrier_pipes}
    expected = missing_barriers(rows, pipes)
    found = run_hazards_rows(rows, PRODUCT, GM_TABLE)
    pairs = {(v.row, v.other_row, BARRIERS[v.kind]) for v in found if v.kind in BARRIERS}
    assert pairs <= expected
    # A race with another pipe puts its row in the place of the one that a barrier is missing behind.
    if not any(v.kind in (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD) for v in found):
        assert {later for later, _, _ in pairs} == {later for later, _, _ in expected}
        return bool(expected)
    return False


def test_lives_random_programs_lack_the_barriers_that_brute_force_says():
    rng = np.random.default_rng(11)
    outcomes = [_check_barriers(random_program(rng, int(rng.integers(3, 34)))) for _ in range(150)]
    outcomes += [_check_barriers(random_program(rng, 24, sync=0.8)) for _ in range(100)]
    assert sum(outcomes) > 10


def _relay(rng, length):
    """Random copies to L1 and loads from there, with random handshakes of two flags between the two pipes."""
    rows, n, flags = empty_rows(length), 0, set()
    while n < length:
        kind, event = int(rng.integers(4)), int(rng.integers(2))
        if kind == 0:
            blocks = int(rng.integers(1, 3)) * 16
            n = emit.emit_data_copy(
                rows, n, Space.L1, int(rng.integers(3)) * 512, Space.GM, 0, 1, blocks, 0, 0, Data.FP16, 0, 1, n
            )
        elif kind == 1:
            source = int(rng.integers(4)) * 512
            n = emit.emit_load_2d(rows, n, Space.L0A, 0, Space.L1, source, Data.FP16, 0, 1, 1, 0, 0, -1, 2, n)
        else:
            pipes = (Pipe.MTE1, Pipe.MTE2) if kind == 2 else (Pipe.MTE2, Pipe.MTE1)
            if (pipes, event) in flags:
                n = emit.emit_wait_flag(rows, n, *pipes, event, 3, n)
                flags.discard((pipes, event))
            else:
                n = emit.emit_set_flag(rows, n, *pipes, event, 3, n)
                flags.add((pipes, event))
    return rows


def test_lives_random_relays_read_the_stale_tiles_that_brute_force_says():
    rng = np.random.default_rng(12)
    stale = 0
    for _ in range(300):
        rows = _relay(rng, 40)
        expected = stale_reads(rows)
        found = {(v.row, v.other_row) for v in run_hazards_rows(rows, PRODUCT, GM_TABLE) if v.kind is Kind.READ_STALE}
        assert found == expected
        stale += bool(expected)
    assert 30 < stale < 290


def test_lives_dropped_copy_names_the_tile_that_is_left():
    rows = double_buffered_product(4, 4)
    at = int(np.flatnonzero((rows["op"] == Op.DATA_COPY) & (rows["tile"] == 2))[2])
    found = [v for v in run_hazards_rows(np.delete(rows, at), PRODUCT, PRODUCT_TABLE) if v.kind is Kind.READ_STALE]
    assert [rows[v.other_row]["op"] for v in found] == [Op.DATA_COPY]
    assert found[0].detail == (
        f"LoadData(LoadData2DParams) (MTE1) reads what is left of row {found[0].other_row} DataCopy (MTE2), "
        "whose buffer was handed back since and not filled again"
    )


def test_lives_forgotten_start_of_a_sum_adds_to_the_tile_before():
    rows = double_buffered_product(4, 2)
    at = int(np.flatnonzero((rows["site"] == SITE_MMAD) & (rows["tile"] == 3))[0])
    rows["mode"][at] &= ~np.uint32(Mode.INIT).astype(rows["mode"].dtype)
    found = [v for v in run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE) if v.kind is Kind.READ_STALE]
    assert [(v.row, v.space) for v in found] == [(at, Space.L0C)]


def test_lives_large_products_are_ordered_by_the_pipe_small_ones_are_not():
    rows = empty_rows(2)
    for n, (m, columns) in enumerate(((160, 16), (159, 16))):
        for at in range(2):
            emit.emit_mmad(rows, at, 0, 0, 0, Data.FP16, m, columns, 16, 0 if at else Mode.INIT, 3, at)
        found = {v.kind for v in run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE)} & set(BARRIERS)
        assert found == ({Kind.BARRIER_READ, Kind.BARRIER_WRITE} if n else set())


def _chain(product):
    gm = GlobalMemory()
    builder = ProgramBuilder(product)
    builder.duplicate(dst=0, dtype=Data.FP16, count=64, value_bits=0)
    builder.add(dst=256, src0=0, src1=0, dtype=Data.FP16, count=64)
    return builder.launch(gm)


def test_lives_compilers_that_place_barriers_are_taken_at_their_word():
    launch = _chain(PRODUCT)
    assert [(v.kind, v.row, v.other_row) for v in run_hazards(launch, PRODUCT)] == [(Kind.BARRIER_READ, 1, 0)]
    assert run_hazards(replace(launch, auto_sync=True), PRODUCT) == []


def test_lives_a_product_may_order_a_pipe_by_itself():
    core = replace(PRODUCT.core, barrier_pipes=("M",))
    assert run_hazards(_chain(PRODUCT), replace(PRODUCT, core=core)) == []


def test_lives_stale_tiles_of_a_matrix_product_that_change_the_result_are_reported():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((256, 256)).astype(np.float16) for _ in range(2))
    launch = ops.matrix_product(a, b, product="910b").plan.calls.launches[0]
    bench = Bench(launch, PRODUCT)
    assert bench.findings(bench.programs) == []
    faults = [bench.without(*place) for place in rng.permutation(list(bench.rows_of(Op.ND2NZ, Op.LOAD_2D)))[:40]]
    for core, phase, at in bench.rows_of(Op.MMAD):
        rows = bench.programs[phase][core].copy()
        if rows["mode"][at] & Mode.INIT and core < 6:
            rows["mode"][at] ^= Mode.INIT
            faults.append([[rows if c == core else own for c, own in enumerate(bench.programs[phase])]])
    wrong = [fault for fault in faults if bench.is_wrong(fault)]
    assert len(wrong) > 30
    assert sum(bool(bench.findings(fault)) for fault in wrong) >= 0.95 * len(wrong)


@pytest.mark.parametrize("series", ["910b", "310p", "910"])
def test_lives_shipped_kernels_need_the_barriers_whose_loss_is_reported(series):
    """Every barrier of a pipe dropped on core 0: reported if, and only if, brute force says that rows depend on it."""
    rng, chip = np.random.default_rng(1), get_product(series)
    x, g, w = (rng.standard_normal(s).astype(np.float16) for s in ((2, 20, 9, 7), (2, 20, 5, 4), (20, 20, 3, 3)))
    calls = ops.convolution_backward(g, x, w, stride=2, padding=1, dilation=1, product=series).plan.calls
    pipes = {Pipe[name] for name in chip.core.barrier_pipes}
    needed = 0
    for launch in calls.launches:
        table, rows = launch.gm.table(), emit_rows(launch, 0, 0)
        table[:, 3] = 1
        if len(rows) > 400:
            continue
        for at in np.flatnonzero((rows["op"] == Op.PIPE_BARRIER) & (rows["pipe"] != Pipe.ALL))[:4].tolist():
            broken = issued(np.delete(rows, at))
            expected = {later for later, _, _ in missing_barriers(broken, pipes)}
            found = {v.row for v in run_hazards_rows(broken, chip, table) if v.kind in BARRIERS}
            assert found == expected
            needed += bool(expected)
    assert needed > 3

"""Pairs: a correct program is silent, the same program with one defect is reported, with the right rows."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines import hazards
from npu_sim.engines.hazards import FINDING_LIMIT, emit_rows, missing_order, run_hazards_rows
from npu_sim.errors import ShapeError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind
from tests.oracles.hazards import analyse
from tests.oracles.programs import (
    PRODUCT_TABLE,
    SITE_COPY,
    SITE_DRAIN,
    SITE_L0A,
    SITE_MMAD,
    SYNC_OPS,
    double_buffered_product,
)

A2 = get_product("910b")
PRODUCT = replace(A2, core=replace(A2.core, barrier_pipes=()))
"""Pipes order their own rows: `tests/unit/test_hazards_lives.py` has the barriers."""
SYNC = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)


def run_hazards(launches, product, **options):
    """Check programs that end wherever their test has seen enough, additions switched on or not."""
    return [v for v in hazards.run_hazards(launches, product, **options) if v.kind is not Kind.STATE_LEFT]


def replay(programs, gm):
    """Return a launch that emits ``programs[phase][core]``."""

    def kernel(buffer, params, core, phase):
        rows = programs[phase][core]
        for first in range(0, len(rows), len(buffer)):
            part = rows[first : first + len(buffer)]
            buffer[: len(part)] = part
            yield len(part)

    return Launch(
        name="replay",
        kernel=kernel,
        params=np.zeros(1),
        core_count=len(programs[0]),
        gm=gm,
        phase_count=len(programs),
        step_rows=1,
    )


def product_memory():
    gm = GlobalMemory()
    gm.add("a", 4096, initialised=True)
    gm.add("b", 4096, initialised=True)
    gm.add("c", 8192, initialised=False)
    assert np.array_equal(gm.table(), PRODUCT_TABLE)
    return gm


def find(rows, site, tile, nth=0):
    return int(np.flatnonzero((rows["site"] == site) & (rows["tile"] == tile))[nth])


def flag_rows(rows, op, source, target, tile):
    pipe, peer = (source, target) if op == Op.SET_FLAG else (target, source)
    mask = (rows["op"] == op) & (rows["pipe"] == pipe) & (rows["peer"] == peer) & (rows["tile"] == tile)
    return np.flatnonzero(mask)


# (source, destination, step of the tile, victim: the later row, culprit: the earlier one), tile 2 of 4, 4 steps a tile.
# A forward flag protects this step's data; a backward one the data of two steps (tiles) ago in the same buffer.
ORDERINGS = [
    (Pipe.MTE2, Pipe.MTE1, 1, (SITE_L0A, 2, 1), (SITE_COPY, 2, 2), Kind.SYNC_READ_HAZARD),
    (Pipe.MTE1, Pipe.M, 1, (SITE_MMAD, 2, 1), (SITE_L0A, 2, 1), Kind.SYNC_READ_HAZARD),
    (Pipe.M, Pipe.FIX, 0, (SITE_DRAIN, 2, 0), (SITE_MMAD, 2, 3), Kind.SYNC_READ_HAZARD),
    (Pipe.MTE1, Pipe.MTE2, 2, (SITE_COPY, 2, 4), (SITE_L0A, 2, 0), Kind.SYNC_WRITE_HAZARD),
    (Pipe.M, Pipe.MTE1, 2, (SITE_L0A, 2, 2), (SITE_MMAD, 2, 0), Kind.SYNC_WRITE_HAZARD),
    (Pipe.FIX, Pipe.M, 0, (SITE_MMAD, 2, 0), (SITE_DRAIN, 0, 0), Kind.SYNC_WRITE_HAZARD),
]


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda o: f"{o[0].name}_{o[1].name}")
def test_hazard_wait_removed_names_the_two_rows_and_the_missing_direction(ordering):
    source, target, step, victim, culprit, kind = ordering
    rows = double_buffered_product(4, 4)
    removed = int(flag_rows(rows, Op.WAIT_FLAG, source, target, 2)[step])
    broken = np.delete(rows, removed)
    later, earlier = (at - (at > removed) for at in (find(rows, *victim), find(rows, *culprit)))
    found = [v for v in run_hazards_rows(broken, PRODUCT, PRODUCT_TABLE) if v.kind in SYNC]
    assert (found[0].kind, found[0].row, found[0].other_row, found[0].tile) == (kind, later, earlier, 2)
    assert missing_order(broken, found[0]) == (source, target)
    assert found[0].detail.endswith(f" without set/wait {source.name}->{target.name}")


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda o: f"{o[0].name}_{o[1].name}")
def test_hazard_set_removed_reports_the_orphaned_wait_and_the_same_pair(ordering):
    source, target, step, victim, culprit, kind = ordering
    rows = double_buffered_product(4, 4)
    wait = int(flag_rows(rows, Op.WAIT_FLAG, source, target, 2)[step])
    event = rows[wait]["event"]
    sets = np.flatnonzero((rows["op"] == Op.SET_FLAG) & (rows["pipe"] == source) & (rows["peer"] == target))
    removed = int([at for at in sets if at < wait and rows[at]["event"] == event][-1])
    broken = np.delete(rows, removed)
    found = run_hazards_rows(broken, PRODUCT, PRODUCT_TABLE)
    orphan = next(v for v in found if v.kind is Kind.SYNC_UNPAIRED)
    assert orphan.row == wait - 1
    later, earlier = (at - (at > removed) for at in (find(rows, *victim), find(rows, *culprit)))
    hazards = [v for v in found if v.kind in SYNC]
    assert (hazards[0].kind, hazards[0].row, hazards[0].other_row) == (kind, later, earlier)


def test_hazard_every_sync_row_removed_one_at_a_time_is_reported_when_it_ordered_something():
    rows = double_buffered_product(2, 3)
    assert run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE) == []
    ordering = 0
    for removed in np.flatnonzero(np.isin(rows["op"], SYNC_OPS)).tolist():
        broken = np.delete(rows, removed)
        expected = {(later[2], earlier[2]) for later, earlier, _ in analyse([[broken]], PRODUCT_TABLE).pairs}
        found = run_hazards_rows(broken, PRODUCT, PRODUCT_TABLE)
        pairs = {(v.row, v.other_row) for v in found if v.kind in SYNC}
        assert pairs <= expected
        assert bool(pairs) == bool(expected)
        # Whatever it ordered, a flag without its partner is a fault of its own.
        assert any(v.kind in (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE) for v in found)
        ordering += bool(expected)
    assert ordering > 20


def test_hazard_barrier_removed_is_reported():
    rows = empty_rows(3)
    n = emit.emit_data_copy(rows, 0, Space.L1, 0, Space.GM, 0, 1, 16, 0, 0, Data.FP16, 0, 1, 0)
    n = emit.emit_pipe_barrier(rows, n, Pipe.ALL, 2, 0)
    emit.emit_load_2d(rows, n, Space.L0A, 0, Space.L1, 0, Data.FP16, 0, 1, 1, 0, 0, -1, 3, 0)
    assert run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE) == []
    [violation] = run_hazards_rows(rows[[0, 2]], PRODUCT, PRODUCT_TABLE)
    assert str(violation) == (
        "ErrorSync2 core 0 tile 0 row 1 L1[0:512] LoadData(LoadData2DParams) (MTE1) "
        "reads data of row 0 DataCopy (MTE2) without set/wait MTE2->MTE1"
    )


def test_hazard_scalar_wait_orders_everything_behind_it():
    rows = empty_rows(4)
    n = emit.emit_data_copy(rows, 0, Space.L1, 0, Space.GM, 0, 1, 16, 0, 0, Data.FP16, 0, 1, 0)
    n = emit.emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, 0, 2, 0)
    n = emit.emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, 0, 2, 0)
    emit.emit_load_2d(rows, n, Space.L0A, 0, Space.L1, 0, Data.FP16, 0, 1, 1, 0, 0, -1, 3, 0)
    assert run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE) == []


def _change(rows, at, **fields):
    changed = rows.copy()
    for name, value in fields.items():
        changed[name][at] = value
    return changed


def test_hazard_address_shifted_past_the_tensor_is_out_of_bounds():
    rows = double_buffered_product(1, 1)
    at = find(rows, SITE_COPY, 0)
    # 4096 bytes are allocated with 512 spare ones: a read may run over the end, but only that far.
    assert run_hazards_rows(_change(rows, at, src0=4608 - 512), PRODUCT, PRODUCT_TABLE) == []
    [violation] = run_hazards_rows(_change(rows, at, src0=4608 - 511), PRODUCT, PRODUCT_TABLE, names="abc")
    assert (violation.kind, violation.row) == (Kind.READ_OUT_OF_BOUNDS, at)
    assert violation.detail == "DataCopy (MTE2) must stay inside a [0:4096] or the 512 spare bytes behind it"
    at = find(rows, SITE_DRAIN, 0)
    found = run_hazards_rows(_change(rows, at, dst=9216 - 32), PRODUCT, PRODUCT_TABLE, names="abc")
    assert [(v.kind, v.row, v.start, v.length) for v in found] == [(Kind.WRITE_OUT_OF_BOUNDS, at, 9184, 1024)]


def test_hazard_access_without_a_tensor_is_unallocated():
    rows = double_buffered_product(1, 1)
    kinds = [
        v.kind for v in run_hazards_rows(_change(rows, find(rows, SITE_COPY, 0), tensor=-1), PRODUCT, PRODUCT_TABLE)
    ]
    assert kinds == [Kind.READ_UNALLOCATED]
    kinds = [
        v.kind for v in run_hazards_rows(_change(rows, find(rows, SITE_DRAIN, 0), tensor=3), PRODUCT, PRODUCT_TABLE)
    ]
    assert kinds == [Kind.WRITE_UNALLOCATED]


def test_hazard_forgotten_tail_is_an_uninitialised_read():
    rows = double_buffered_product(1, 1)
    at = find(rows, SITE_COPY, 0)
    [violation] = run_hazards_rows(_change(rows, at, block_len=15), PRODUCT, PRODUCT_TABLE)
    assert (violation.kind, violation.row) == (Kind.READ_UNINITIALISED, find(rows, SITE_L0A, 0))
    assert (violation.space, violation.start, violation.length) == (Space.L1, 480, 32)
    assert violation.detail == "LoadData(LoadData2DParams) (MTE1) reads bytes that nothing has written"


def test_hazard_accumulation_into_a_fresh_l0c_is_an_uninitialised_read():
    rows = double_buffered_product(1, 2)
    at = find(rows, SITE_MMAD, 0)
    found = run_hazards_rows(_change(rows, at, mode=0), PRODUCT, PRODUCT_TABLE)
    assert [(v.kind, v.row, v.space) for v in found] == [(Kind.READ_UNINITIALISED, at, Space.L0C)]


def test_hazard_smaller_product_than_drain_leaves_exactly_the_missing_columns_uninitialised():
    rows = double_buffered_product(1, 1)
    found = run_hazards_rows(_change(rows, find(rows, SITE_MMAD, 0), n=13), PRODUCT, PRODUCT_TABLE)
    assert [(v.kind, v.space, v.start, v.length) for v in found] == [
        (Kind.READ_UNINITIALISED, Space.L0C, 52, 15 * 64 + 12)
    ]


def test_hazard_capacity_and_alignment_of_buffers():
    rows = double_buffered_product(1, 1)
    at = find(rows, SITE_MMAD, 0)
    top = PRODUCT.core.l0c_bytes
    kinds = [v.kind for v in run_hazards_rows(_change(rows, at, dst=top - 512), PRODUCT, PRODUCT_TABLE)]
    assert kinds[:2] == [Kind.WRITE_MISALIGNED, Kind.CAPACITY]
    at = find(rows, SITE_COPY, 0)
    [violation, *_] = run_hazards_rows(_change(rows, at, dst=16), PRODUCT, PRODUCT_TABLE)
    assert (violation.kind, violation.row, violation.start) == (Kind.WRITE_MISALIGNED, at, 16)
    assert violation.detail == "DataCopy (MTE2) address must be a multiple of 32 bytes"


def test_hazard_flags_out_of_range_and_left_set():
    rows = double_buffered_product(1, 1)
    last = len(rows) - 1
    [violation] = run_hazards_rows(rows[:last], PRODUCT, PRODUCT_TABLE)
    assert (violation.kind, rows[violation.row]["op"]) == (Kind.SYNC_UNPAIRED, Op.SET_FLAG)
    assert violation.detail == "SetFlag (FIX) sets flag 1 for M, and no wait clears it"
    found = run_hazards_rows(_change(rows, slice(None), event=8)[:1], PRODUCT, PRODUCT_TABLE)
    assert [(v.kind, v.detail) for v in found] == [
        (Kind.FIELD_RANGE, "SetFlag (MTE1) event must be below 8, not 8 (Ascend910B2)")
    ]
    four = get_product("910")
    found = run_hazards_rows(_change(rows, slice(None), event=4)[:1], four, PRODUCT_TABLE)
    assert [v.kind for v in found] == [Kind.FIELD_RANGE]


def test_hazard_wait_and_set_of_different_flags_are_unpaired():
    rows = empty_rows(2)
    emit.emit_wait_flag(rows, 0, Pipe.M, Pipe.FIX, 1, 0, 5)
    emit.emit_set_flag(rows, 1, Pipe.M, Pipe.FIX, 1, 0, 5)
    assert run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE) == []  # FIX waits, M sets
    rows["event"][1] = 2
    found = run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE)
    assert [str(v) for v in found] == [
        "ErrorSync3 core 0 tile 5 row 0 WaitFlag (FIX) waits for flag 1 of M, which no earlier set leaves set",
        "ErrorSync3 core 0 tile 5 row 1 SetFlag (M) sets flag 2 for FIX, and no wait clears it",
    ]


def test_hazard_flag_set_twice_names_both_sets():
    rows = empty_rows(3)
    for at in range(2):
        emit.emit_set_flag(rows, at, Pipe.M, Pipe.FIX, 1, 0, 5)
    emit.emit_wait_flag(rows, 2, Pipe.M, Pipe.FIX, 1, 0, 5)
    [violation] = run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE)
    assert (violation.kind, violation.row, violation.other_row) == (Kind.SYNC_DUPLICATE, 1, 0)
    assert violation.detail == "SetFlag (M) sets flag 1 for FIX again before a wait clears it"


def _drain(address, *, atomic, tile):
    """Return the rows of a core that zeroes one fractal of L0C and stores it."""
    rows = double_buffered_product(1, 1)
    rows["tile"] = tile
    at = find(rows, SITE_DRAIN, tile)
    rows["dst"][at] = address
    if not atomic:
        return rows, at
    state = empty_rows(1)
    emit.emit_set_atomic(state, 0, Data.FP32, 0, tile)
    return join_rows([state, rows]), at + 1


def test_hazard_cores_that_write_the_same_bytes_are_reported_unless_all_add():
    gm = product_memory()
    gm.tensors[2] = type(gm.tensors[2])(name="c", index=2, address=9216, byte_count=8192, initialised=True)
    apart = [_drain(9216 + core * 1024, atomic=False, tile=core)[0] for core in range(3)]
    assert run_hazards(replay([apart], gm), PRODUCT) == []
    adding = [_drain(9216, atomic=True, tile=core)[0] for core in range(3)]
    assert run_hazards(replay([adding], gm), PRODUCT) == []
    for atomics in ((False, False), (True, False), (False, True)):
        cores = [_drain(9216 + 512 * core, atomic=atomic, tile=core) for core, atomic in enumerate(atomics)]
        [violation] = run_hazards(replay([[rows for rows, _ in cores]], gm), PRODUCT)
        assert (violation.kind, violation.core, violation.row) == (Kind.SYNC_WRITE_HAZARD, 1, cores[1][1])
        assert (violation.other_row, violation.start, violation.length) == (cores[0][1], 9728, 512)
        text = rf"Fixpipe \(FIX\) overwrites data of core 0 row {cores[0][1]} Fixpipe \(FIX\) in the same phase"
        assert re.fullmatch(text, violation.detail)
        # One after the other, in two phases, the same rows are fine.
        phases = [[cores[0][0], empty_rows(0)], [empty_rows(0), cores[1][0]]]
        assert run_hazards(replay(phases, gm), PRODUCT) == []


def test_hazard_adding_to_an_output_nobody_cleared_is_an_uninitialised_read():
    rows, at = _drain(9216, atomic=True, tile=0)
    [violation] = run_hazards(replay([[rows]], product_memory()), PRODUCT)
    assert (violation.kind, violation.row) == (Kind.READ_UNINITIALISED, at)


def test_hazard_reading_what_another_core_writes_needs_a_phase_between():
    gm = product_memory()
    writer, drain = _drain(9216, atomic=False, tile=0)
    reader = empty_rows(1)
    emit.emit_data_copy(reader, 0, Space.L1, 0, Space.GM, 9216, 1, 32, 0, 0, Data.FP32, 2, 0, 7)
    [violation] = run_hazards(replay([[writer, reader]], gm), PRODUCT)
    assert (violation.kind, violation.core, violation.tile) == (Kind.SYNC_READ_HAZARD, 1, 7)
    assert (violation.row, violation.other_row) == (0, drain)
    assert run_hazards(replay([[writer, empty_rows(0)], [empty_rows(0), reader]], gm), PRODUCT) == []
    gm.tensors[2] = type(gm.tensors[2])(name="c", index=2, address=9216, byte_count=8192, initialised=True)
    [violation] = run_hazards(replay([[reader, writer]], gm), PRODUCT)
    assert (violation.kind, violation.core, violation.row) == (Kind.SYNC_WRITE_HAZARD, 1, drain)


@pytest.mark.parametrize("block", [0, 1, 62, 63, 64, 65, 127, 128, 190, 191])
def test_hazard_one_block_of_a_long_range_is_found_where_it_is(block):
    rows = empty_rows(4)
    n = emit.emit_data_copy(rows, 0, Space.L1, 0, Space.GM, 0, 1, 128 + 64, 0, 0, Data.FP16, 2, 0, 0)
    n = emit.emit_pipe_barrier(rows, n, Pipe.ALL, 0, 0)
    n = emit.emit_data_copy(rows, n, Space.L1, 32 * block, Space.GM, 0, 1, 1, 0, 0, Data.FP16, 2, 0, 0)
    emit.emit_load_2d(rows, n, Space.L0A, 0, Space.L1, 0, Data.FP16, 0, 12, 1, 0, 0, -1, 0, 0)
    table = PRODUCT_TABLE.copy()
    table[2, 3] = 1
    rows["src0"][:3] += 9216
    [violation] = run_hazards_rows(rows, PRODUCT, table)
    assert (violation.row, violation.other_row) == (3, 2)
    assert (violation.space, violation.start, violation.length) == (Space.L1, 32 * block, 32)


def _ordered(*emitters):
    """Return rows of the emitters with a barrier of all pipes between them."""
    rows = empty_rows(2 * len(emitters))
    n = 0
    for emitter in emitters:
        n = emitter(rows, n)
        n = emit.emit_pipe_barrier(rows, n, Pipe.ALL, 0, 0)
    return rows


def _read(start, blocks):
    return lambda rows, n: emit.emit_data_copy(
        rows, n, Space.L1, 65536, Space.GM, start, 1, blocks, 0, 0, Data.FP32, 0, 1, 0
    )


def _fill(rows, n):
    return emit.emit_fill(rows, n, Space.L1, 32768, Data.FP32, 1, 4, 0, 0, 0, 0)


def _store(start, blocks):
    return lambda rows, n: emit.emit_data_copy(
        rows, n, Space.GM, start, Space.L1, 32768, 1, blocks, 0, 0, Data.FP32, 0, 1, 0
    )


def _atomic(dtype):
    return lambda rows, n: emit.emit_set_atomic(rows, n, dtype, 0, 0)


@pytest.mark.parametrize("shift", [0, 20], ids=["whole_cells", "parts_of_cells"])
def test_hazard_own_access_does_not_hide_that_of_another_core(shift):
    """The last access to a cell is this core's own and ordered; the conflict is with the core before."""
    gm = product_memory()
    reader = _ordered(_read(64 + shift, 4))
    reads_then_writes = _ordered(_read(64 + shift, 4), _fill, _store(64 + shift, 4))
    assert run_hazards(replay([[reads_then_writes]], gm), PRODUCT) == []
    [violation] = run_hazards(replay([[reader, reads_then_writes]], gm), PRODUCT)
    assert (violation.kind, violation.core, violation.row) == (Kind.SYNC_WRITE_HAZARD, 1, 4)
    assert violation.detail == "DataCopy (MTE3) overwrites data read by core 0 row 0 DataCopy (MTE2) in the same phase"
    assert (violation.start, violation.length) == (64 + shift, 128)
    adds = (_fill, _atomic(Data.FP32), _store(64 + shift, 4), _atomic(Data.NONE))
    adder, adds_then_reads = _ordered(*adds), _ordered(*adds, _read(64 + shift, 4))
    assert run_hazards(replay([[adds_then_reads]], gm), PRODUCT) == []
    assert run_hazards(replay([[adder, adder]], gm), PRODUCT) == []
    [violation] = run_hazards(replay([[adder, adds_then_reads]], gm), PRODUCT)
    assert (violation.kind, violation.core, violation.row) == (Kind.SYNC_READ_HAZARD, 1, 8)
    assert violation.detail == "DataCopy (MTE2) reads data of core 0 row 4 DataCopy (MTE3) in the same phase"
    # The core between did not touch it any more: what the core before it did is still remembered.
    idle = _ordered(_fill)
    [violation] = run_hazards(replay([[adder, idle, _ordered(_read(64 + shift, 4))]], gm), PRODUCT)
    assert (violation.core, violation.other_row) == (2, 4)


def test_hazard_adds_of_two_pipes_are_both_remembered():
    """A read must be ordered behind the MTE3 and the FIX additions; the later one alone is not enough."""
    gm = product_memory()
    product = double_buffered_product(1, 1)
    at = find(product, SITE_DRAIN, 0)
    product["dst"][at], product["tensor"][at] = 1024, 0
    rows = join_rows(
        [
            _ordered(_fill, _atomic(Data.FP32)),
            _ordered(_store(1024, 4))[:1],
            product,
            empty_rows(2),
            _ordered(_read(1024, 4))[:1],
        ]
    )
    flags = np.flatnonzero(rows["op"] == Op.NOP)
    for pipes, waits in (((Pipe.MTE3, Pipe.MTE2), Pipe.FIX), ((Pipe.FIX, Pipe.MTE2), Pipe.MTE3)):
        emit.emit_set_flag(rows, int(flags[0]), *pipes, 0, 0, 0)
        emit.emit_wait_flag(rows, int(flags[1]), *pipes, 0, 0, 0)
        [violation] = run_hazards(replay([[rows]], gm), PRODUCT)
        assert violation.kind is Kind.SYNC_READ_HAZARD
        assert violation.detail.endswith(f" without set/wait {waits.name}->MTE2")


def test_hazard_rows_are_numbered_through_the_phases_and_the_chunk_size_changes_nothing():
    rows = double_buffered_product(2, 2)
    removed = int(flag_rows(rows, Op.WAIT_FLAG, Pipe.MTE2, Pipe.MTE1, 1)[0])
    programs = [[rows, rows[:0]], [np.delete(rows, removed), rows]]
    gm = product_memory()
    whole = run_hazards(replay(programs, gm), PRODUCT)
    in_phase_1 = [v for v in whole if v.core == 0 and v.kind is Kind.SYNC_READ_HAZARD]
    assert in_phase_1[0].row == len(rows) + find(rows, SITE_L0A, 1) - 1
    for chunk in (1, 7, 64):
        assert run_hazards(replay(programs, gm), PRODUCT, chunk_rows=chunk) == whole


def test_hazard_launches_follow_one_another_on_the_same_memory():
    gm = product_memory()
    clear, _ = _drain(9216, atomic=False, tile=0)
    add, at = _drain(9216, atomic=True, tile=1)
    first, second = replay([[clear, clear[:0]]], gm), replay([[add[:0], add]], gm)
    assert run_hazards([first, second], PRODUCT) == []
    # The other way round the addition meets memory that nobody has written; and the store then is a mistake of nobody.
    [violation] = run_hazards([second, first], PRODUCT)
    assert (violation.kind, violation.core, violation.row) == (Kind.READ_UNINITIALISED, 1, at)
    assert violation.detail.endswith(" (replay)")
    assert run_hazards([], PRODUCT) == []
    with pytest.raises(ShapeError, match=r"^launches must share one GlobalMemory, not several$"):
        run_hazards([first, replay([[add]], product_memory())], PRODUCT)


def test_hazard_buffers_of_trusted_launches_do_not_survive_a_phase():
    """Another core used them in between, so a read of an earlier phase's L1 is uninitialised."""
    rows = empty_rows(1)
    emit.emit_load_2d(rows, 0, Space.L0A, 0, Space.L1, 0, Data.FP16, 0, 1, 1, 0, 0, -1, 3, 0)
    first = empty_rows(1)
    emit.emit_data_copy(first, 0, Space.L1, 0, Space.GM, 0, 1, 16, 0, 0, Data.FP16, 0, 1, 0)
    launch = replay([[first], [rows]], product_memory())
    assert run_hazards(launch, PRODUCT) == []
    [violation] = run_hazards(replace(launch, trusted=True), PRODUCT)
    assert violation.kind is Kind.READ_UNINITIALISED


def test_hazard_findings_are_limited_and_say_so():
    rows = empty_rows(FINDING_LIMIT + 5)
    for at in range(len(rows)):
        emit.emit_add(rows, at, 0, 64, 128, Data.FP16, 16, 0, at)
    rows["dst"] = rows["dst"] + 4096
    found = run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE)
    assert len(found) == FINDING_LIMIT
    assert [violation.left_out for violation in found] == [0] * (FINDING_LIMIT - 1) + [5]
    assert str(found[-1]).endswith("Add (V) reads bytes that nothing has written (and 5 more)")


def test_hazard_instruction_on_the_wrong_pipe_is_unsupported():
    rows = double_buffered_product(1, 1)
    at = find(rows, SITE_COPY, 0)
    kinds = {v.row: v.kind for v in run_hazards_rows(_change(rows, at, pipe=Pipe.MTE3), PRODUCT, PRODUCT_TABLE)}
    assert kinds[at] is Kind.UNSUPPORTED


def test_hazard_garbage_rows_never_fail():
    """Random field values must end in findings, not in an access outside the shadow."""
    rng = np.random.default_rng(9)
    raw = rng.integers(0, 256, (3000, 128), dtype=np.uint8)
    rows = raw.reshape(-1).view(empty_rows(1).dtype).copy()
    rows["op"] = rng.integers(0, len(Op) + 4, len(rows))
    small = rng.random((len(rows),)) < 0.7
    for name in rows.dtype.names[17:]:
        rows[name][small] = rng.integers(-3, 40, rows[name][small].shape)
    for name in ("dst", "src0", "src1"):
        rows[name][small] = rng.integers(-100, 300000, small.sum())
    for name in ("pipe", "peer", "dst_space", "src0_space", "dtype", "dst_dtype"):
        rows[name] = rng.integers(0, 9, len(rows))
    rows["tensor"] = rng.integers(-1, 4, len(rows))
    with np.errstate(over="ignore"):  # addresses near 2^63, when run without the JIT
        found = run_hazards_rows(rows, PRODUCT, PRODUCT_TABLE)
    kinds = {v.kind for v in found}
    assert FINDING_LIMIT <= len(found) <= FINDING_LIMIT + len(kinds)
    assert len(kinds) > 5


def test_emit_rows_is_the_whole_program():
    rows = double_buffered_product(2, 2)
    launch = replay([[rows, rows[:3]]], product_memory())
    assert emit_rows(launch, 0, chunk_rows=5).dtype == rows.dtype
    assert np.array_equal(emit_rows(launch, 0, chunk_rows=5), rows)
    assert np.array_equal(emit_rows(launch, 1), rows[:3])
    assert Mode.INIT in rows["mode"]

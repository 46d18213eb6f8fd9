"""Rows whose addresses or sums leave int64, their space or their tensor are refused."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.session_jit import first_outside, localise
from npu_sim.errors import ProgramError
from npu_sim.isa import emit
from npu_sim.isa.footprint import NO_FOOTPRINT, REACH_BYTES, TOO_MANY_RUNS, empty_runs, footprint_at, reach
from npu_sim.isa.footprint_boxes import OPERAND_BITS
from npu_sim.isa.op import Data, Mode, Op, Space
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.bounds import gm_violations
from npu_sim.program.builder import ProgramBuilder, window
from npu_sim.program.verify import space_capacities, verify
from npu_sim.program.violation import Kind
from tests.long.wild_rows import survive
from tests.oracles.extent import has_address_outside
from tests.oracles.series import SERIES
from tests.oracles.tables import RANGES
from tests.oracles.wild_rows import WildRows, capacities_of, tensor_ranges, wild_memory

A2 = get_product("910b")
RUNS = empty_runs()
FAR = (2**63 - 32, -(2**63), 2**62, -(2**62), 2**48, -(2**48))


def _copies(address, *, to_gm=False):
    rows = empty_rows(1)
    spaces = (Space.GM, 0, Space.UB, address) if to_gm else (Space.L1, 0, Space.GM, address)
    emit.emit_data_copy(rows, 0, *spaces, 2, 1, 3, 3, Data.FP32, 0, 0, 0)
    return rows


def _reached(rows):
    ends = np.zeros((len(rows), len(Space), 2), np.int64)
    reach(rows, RUNS, ends)
    return ends


# The footprint -------------------------------------------------------------------------------------------------------


def test_reach_of_a_run_that_ends_at_the_start_of_the_space_is_kept():
    # the first columns end at byte 0, the rest of the last column begins there
    rows = empty_rows(1)
    emit.emit_fixpipe(rows, 0, Space.GM, 0, -1024, Data.FP32, 16, 17, 16, 17, 1, 0, 0, Mode.NZ2ND, 0, 0, 0)
    assert _reached(rows)[0, Space.L0C].tolist() == [-1024, 16 * 64 - 64 + 4]
    (violation,) = verify(rows, A2)
    assert (violation.kind, violation.space, violation.start) == (Kind.CAPACITY, Space.L0C, -1024)


@pytest.mark.parametrize("address", FAR)
def test_verify_address_that_would_wrap_is_refused(address):
    rows = _copies(address, to_gm=True)
    assert footprint_at(rows, 0, RUNS) == NO_FOOTPRINT
    text = f"DataCopy must stay within {REACH_BYTES} bytes of address 0 (Ascend910B2)"
    assert [(v.kind, v.detail) for v in verify(rows, A2)] == [(Kind.CAPACITY, text)]


def test_verify_operand_out_of_its_range_says_so_alone():
    rows = _copies(0)
    rows["block_len"] = rows["block_count"] = 2**31 - 1
    assert footprint_at(rows, 0, RUNS) == NO_FOOTPRINT
    assert [v.detail.split()[1] for v in verify(rows, A2)] == ["block_count", "block_len"]


@pytest.mark.parametrize("space", [Space.NONE, len(Space), 99, 255])
def test_footprint_in_no_space_does_not_exist(space):
    rows = _copies(0)
    rows["dst_space"] = space
    assert footprint_at(rows, 0, RUNS) == NO_FOOTPRINT


def test_footprint_of_a_window_that_would_take_seconds_is_given_up():
    rows = empty_rows(1)
    emit.set_feature_map(rows, 0, 65535, 1, 0, 65535, 0, 65535)
    emit.set_window(rows, 0, 1, 1, 65535, 65535, 1, 1)
    emit.emit_load_3d(rows, 0, Space.L0B, 0, 0, Data.FP16, 65535, 65535, 65535, 0, 0, 0, 0, 0)
    assert footprint_at(rows, 0, RUNS) == TOO_MANY_RUNS


def test_footprint_of_any_bytes_stays_within_reach():
    memory = wild_memory()
    for number, series in enumerate(SERIES):
        rows, _ = WildRows([9, number], get_product(series), memory).rows(3000)
        ends = _reached(rows)
        assert ((np.abs(ends) <= REACH_BYTES) & (ends[:, 1:, :1] <= ends[:, 1:, 1:]).all()).all()
        assert (ends[:, 0, 0] == NO_FOOTPRINT).sum() > 100


@pytest.mark.parametrize("series", SERIES)
def test_every_wild_row_that_leaves_its_memory_is_refused(series):
    memory, product = wild_memory(), get_product(series)
    assert capacities_of(product) == space_capacities(product)
    rows, _ = WildRows([5, SERIES.index(series)], product, memory).rows(3000)
    refused = {v.row for v in (*verify(rows, product), *gm_violations(rows, memory.table()))}
    ranges = tensor_ranges(memory), capacities_of(product)
    outside = {i for i, row in enumerate(rows) if has_address_outside(row, ranges[1], ranges[0])}
    assert len(outside) > 250
    assert outside <= refused


# Bounds of GM --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [*FAR, -32, -64, 4096 - 32])
def test_gm_bounds_hold_for_every_address(address):
    gm = GlobalMemory()
    gm.add("x", 4096 - 512, initialised=True)
    for to_gm in (False, True):
        rows = _copies(0, to_gm=to_gm)
        rows["dst" if to_gm else "src0"] = address
        (violation,) = gm_violations(rows, gm.table())
        assert violation.kind is (Kind.WRITE_OUT_OF_BOUNDS if to_gm else Kind.READ_OUT_OF_BOUNDS)
        table, ends = np.array([[0, 0, 4096]]), np.zeros((1, len(Space), 2), np.int64)
        assert first_outside(rows, 1, table, RUNS, ends) == 0


def test_session_table_is_not_indexed_by_the_tensor_of_an_empty_row():
    rows = _copies(64)
    rows["block_count"], rows["tensor"] = 0, 10**6
    table, segments = np.array([[32, 32, 4096]]), np.zeros((2, 2), np.int64)
    assert first_outside(rows, 1, table, RUNS, np.zeros((1, len(Space), 2), np.int64)) == -1
    assert localise(rows, 1, table, segments) == 1
    assert segments[0].tolist() == [1, -1]
    assert int(rows["src0"][0]) == 64


# What runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [(Space.UB, Space.UB), (Space.L1, Space.UB)])
def test_atomic_add_that_stores_to_a_buffer_is_refused(path):
    # it would go to the log of the core, and from there to GM at an address of the buffer
    rows = empty_rows(1)
    emit.emit_data_copy(rows, 0, path[0], 0, path[1], 1024, 1, 1, 0, 0, Data.FP32, -1, 0, 0)
    product = get_product("310p")
    assert verify(rows, product) == []
    rows["mode"] = Mode.ATOMIC
    (violation,) = verify(rows, product)
    text = f"DataCopy with atomic add must go from UB to GM, not UB->{path[0].name} (Ascend310P3)"
    assert violation.detail == text


@pytest.mark.parametrize("order", ["program", "late", 3])
def test_execute_checks_rows_before_it_reorders_them(order):
    gm = GlobalMemory()
    gm.add("x", 512, initialised=True)
    builder = ProgramBuilder(A2)
    builder.duplicate(dst=0, dtype=Data.FP32, count=8)
    launch = builder.launch(gm)

    def kernel(rows, params, core, phase):
        for count in launch.rows(core, phase, rows):
            rows["pipe"][:count] = 200
            yield count

    wild = type(launch)(name="wild", kernel=kernel, params=launch.params, core_count=1, gm=gm, core_kind="vector")
    with pytest.raises(
        ProgramError, match=r"^Unsupported core 0 tile 0 row 0 Duplicate pipe must be one of V, not 200"
    ):
        execute(wild, A2, ExecuteOptions(accumulation=SERIAL, order=order))


@pytest.mark.parametrize("series", SERIES)
def test_accepted_wild_rows_run_between_guard_pages(series):
    found = survive(series, 77, 1)
    assert found["wrong"] == []
    counts = found["counts"]
    assert counts["run"] > 800
    assert counts["compared"] > 50
    assert counts["outside"] > 150


_OVERRUN = """
import numpy as np, sys
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Space
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from tests.long.wild_rows import _Machine
rows = empty_rows(1)
emit.emit_data_copy(rows, 0, Space.{dst}, {dst_at}, Space.{src}, {src_at}, 1, 1, 0, 0, Data.NONE, 0, 0, 0)
_Machine(get_product("910b"), 8192).run(rows, 0, logging=False)
print("unseen")
"""


@pytest.mark.parametrize(
    ("dst", "dst_at", "src", "src_at"),
    [("L1", 0, "GM", 8192 - 31), ("L1", 0, "GM", -1), ("L1", 512 * 1024 - 31, "GM", 0), ("UB", -1, "GM", 0)],
)
def test_guard_pages_end_a_process_that_leaves_a_buffer_by_one_byte(dst, dst_at, src, src_at):
    code = _OVERRUN.format(dst=dst, dst_at=dst_at, src=src, src_at=src_at)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV, ended.stdout + ended.stderr


@pytest.mark.parametrize("op", [Op.MMAD, Op.FIXPIPE, Op.LOAD_3D, Op.LOAD_3D_V1])
def test_legal_operands_that_are_multiplied_are_no_wider_than_a_footprint_takes(op):
    # strides and sizes that meet a single size only may be wider
    alone = {"m_size", "src_stride", "dst_stride", "jump_stride"}
    for name, low, high in RANGES[op]:
        # the corner of a window counts from the padding
        assert name in alone or (low >= (-255 if name.startswith("left_top") else 0))
        assert name in alone or high < 1 << OPERAND_BITS


def test_window_at_the_limits_has_a_footprint():
    builder = ProgramBuilder(get_product("910"))
    limits = window(l1_h=32767, l1_w=1, filter_h=255, filter_w=255, pad_left=255, pad_right=255, stride_h=63)
    builder.load_3d_v1(
        dst_space=Space.L0A, dst=0, src=0, dtype=Data.FP16, window=limits, left_top_w=-255, left_top_h=0, repeat=255
    )
    assert builder.rows[0]["op"] == Op.LOAD_3D_V1
    assert footprint_at(builder.rows, 0, RUNS) > 0

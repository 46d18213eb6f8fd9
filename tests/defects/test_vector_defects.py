"""Orderings of the vector kernels: every one that is lost is found, and so are spills between cores.

The judge is `tests.oracles.sync_removal`: all pairs of rows with common bytes and the full order of the rows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards, run_hazards_rows
from npu_sim.isa.op import Op, Pipe
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.violation import Kind
from ops.common.view import View
from ops.vector.cast import cast_launch
from ops.vector.copy import copy_launch
from ops.vector.elementwise import div_launch, mul_launch
from ops.vector.reduce_sum import reduce_sum_launch
from ops.vector.transpose import transpose_launch
from tests.oracles.hazards import happens_before
from tests.oracles.programs import issued
from tests.oracles.series import UNIFIED
from tests.oracles.sync_removal import broken_orders, closure, uninitialised
from tests.oracles.trans_data import machine

ITEM = {"fp32": 4, "fp16": 2, "bf16": 2}


def cast(series, src_dtype, dst_dtype, count, ub_bytes=4096):
    product = machine(series, cores=1, ub_bytes=ub_bytes)
    gm = GlobalMemory()
    src = gm.add("src", count * ITEM[src_dtype], initialised=True)
    dst = gm.add("dst", count * ITEM[dst_dtype], initialised=False)
    return cast_launch(gm, src, dst, count, src_dtype, dst_dtype, product), product


def reduce_sum(series, dtype, n, c, r, ub_bytes):
    product = machine(series, cores=1, ub_bytes=ub_bytes)
    gm = GlobalMemory()
    src = gm.add("src", n * c * r * ITEM[dtype], initialised=True)
    dst = gm.add("dst", c * ITEM[dtype], initialised=False)
    return reduce_sum_launch(gm, src, dst, n, c, r, dtype, product), product


def copy(series, src_view, dst_view, item, cores=1, slack=0, ub_bytes=4096):
    product = machine(series, cores=cores, ub_bytes=ub_bytes)
    gm = GlobalMemory()
    src = gm.add("src", src_view.end * item, initialised=True)
    dst = gm.add("dst", (dst_view.end + slack) * item, initialised=True)
    return copy_launch(gm, src, src_view, dst, dst_view, item, product), product


def transpose(item, rows, columns):
    product = machine("910b", cores=1, ub_bytes=4608)
    gm = GlobalMemory()
    src = gm.add("src", rows * columns * item, initialised=True)
    dst = gm.add("dst", rows * columns * item, initialised=False)
    return transpose_launch(gm, src, dst, rows, columns, item, product), product


def mul(series, planes, elems, ub_bytes, cores=1):
    product = machine(series, cores=cores, ub_bytes=ub_bytes)
    gm = GlobalMemory()
    src = gm.add("src", planes * elems * 2, initialised=True)
    matrix = gm.add("matrix", elems * 2, initialised=True)
    dst = gm.add("dst", planes * elems * 2, initialised=False)
    return mul_launch(gm, src, matrix, dst, planes, elems, "fp16", product), product


def div(series, planes, elems, cores=1):
    product = machine(series, cores=cores, ub_bytes=4096)
    gm = GlobalMemory()
    src = gm.add("src", planes * 4, initialised=True)
    dst = gm.add("dst", planes * elems * 4, initialised=False)
    return div_launch(gm, src, dst, planes, elems, 9, "fp32", product), product


def staged(launch, product):
    """Store after every 32 elements."""
    params = launch.params.copy()
    params["group"] = 32
    return replace(launch, params=params), product


ROWS = View((130, 37), (40, 1)), View.contiguous((130, 37))
INSIDE = View.contiguous((40, 37)), View((40, 37), (45, 1), 3)
TURNED = View((10, 11), (1, 10)), View.contiguous((10, 11))
PROGRAMS = {
    "cast, exact": lambda: cast("910b", "fp32", "fp16", 1030),
    "cast, through fp32": lambda: cast("910_93", "fp16", "bf16", 1030, 8192),
    "cast, blocks": lambda: cast("310p", "fp16", "fp32", 1030),
    "sum of units": lambda: reduce_sum("910b", "fp32", 3, 11, 70, 32768),
    "sum of single channels": lambda: reduce_sum("910", "fp16", 2, 17, 70, 8192),
    "product, last block": lambda: mul("310p", 40, 30, 2048, cores=2),
    "product with a matrix in pieces": lambda: mul("910b", 3, 1000, 4096),
    "quotients": lambda: div("910b", 18, 41),
    "quotients, last block": lambda: div("910", 16, 41, cores=2),
    "quotients of short planes": lambda: div("310p", 18, 5),
    "transpose of halves": lambda: transpose(2, 90, 37),
    "transpose of floats": lambda: transpose(4, 50, 33),
    "copy of rows, exact": lambda: copy("910b", *ROWS, 2),
    "copy of rows, last block": lambda: copy("310p", *ROWS, 2, cores=2),
    "copy of rows into a view": lambda: copy("910", *INSIDE, 2, slack=8, ub_bytes=8192),
    "copy of elements": lambda: staged(*copy("310p", *TURNED, 2, ub_bytes=8192)),
    "copy of elements, last block": lambda: staged(*copy("910", *TURNED, 2, slack=3, ub_bytes=8192)),
}


def program(name):
    launch, product = PROGRAMS[name]()
    return issued(emit_rows(launch, 0)), launch, product


@pytest.mark.parametrize("name", PROGRAMS)
def test_vector_every_sync_row_removed_one_at_a_time_is_judged_as_the_oracle_judges(name):
    rows, launch, product = program(name)
    table = launch.gm.table()
    assert uninitialised(rows, table) == {}
    broken = broken_orders(rows, lambda program: run_hazards_rows(program, product, table))
    assert broken[Op.SET_FLAG] == broken[Op.WAIT_FLAG]
    assert broken[Op.PIPE_BARRIER] == 0  # the vector pipe is in order anyway
    assert (len(rows), broken[Op.WAIT_FLAG]) == COUNTS[name]


# (rows, waits whose removal breaks an ordering). The others are the first and the last wait for each half of a buffer,
# and those that a longer chain repeats: over the scalar unit where rows end in a block of their own, over the matrix.
COUNTS = {
    "cast, exact": (63, 16),
    "cast, through fp32": (73, 16),
    "cast, blocks": (63, 16),
    "sum of units": (108, 12),
    "sum of single channels": (400, 68),
    "product, last block": (149, 26),
    "product with a matrix in pieces": (174, 45),
    "quotients": (414, 58),
    "quotients, last block": (185, 24),
    "quotients of short planes": (177, 12),
    "transpose of halves": (70, 22),
    "transpose of floats": (136, 46),
    "copy of rows, exact": (58, 16),
    "copy of rows, last block": (175, 9),
    "copy of rows into a view": (798, 7),
    "copy of elements": (136, 6),
    "copy of elements, last block": (150, 6),
}


def test_vector_order_of_the_judge_is_the_full_relation():
    for name in ("cast, exact", "copy of rows into a view"):
        rows, _, _ = program(name)
        assert closure(rows[:60]) == happens_before(rows[:60])


@pytest.mark.parametrize("series", UNIFIED)
def test_copy_ranges_that_spill_into_the_next_core_are_found(series):
    launch, product = copy(series, *ROWS, 2, cores=3)
    assert launch.core_count == 3
    assert run_hazards(launch, product) == []
    rows = [emit_rows(launch, core) for core in range(3)]
    cut = [int((part["op"] == Op.SCALAR_COPY).sum()) for part in rows]
    assert cut == [16, 16, 0]
    # a range that takes its end for the end of the tensor rounds its last store up
    found = run_hazards(replace(launch, kernel=_without_cut(launch)), product)
    assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD}
    assert {v.core for v in found} == {1, 2}


def _without_cut(launch):
    """Kernel whose stores of a cut row are rounded up instead, as a kernel without the rule would do."""

    def kernel(rows, params, core, phase):
        for count in launch.rows(core, phase, rows):
            stores = rows[:count]
            cut = (stores["op"] == Op.DATA_COPY) & (stores["pipe"] == Pipe.MTE3) & (stores["block_len"] == 2)
            stores["block_len"][cut] = 3
            yield count

    return kernel

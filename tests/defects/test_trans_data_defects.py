"""Orderings of the TransData kernels: every one that is lost is found, row by row, and so are spills between cores.

The judge is `tests.oracles.sync_removal`: all pairs of rows with common bytes and the full order of the rows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards, run_hazards_rows
from npu_sim.isa.op import Op, Pipe
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.program.violation import Kind
from tests.oracles.hazards import happens_before
from tests.oracles.programs import SYNC_OPS, issued
from tests.oracles.series import UNIFIED
from tests.oracles.sync_removal import closure, judged_removals, uninitialised
from tests.oracles.trans_data import conversion, machine


def feature_map(series, direction, item, c0, cores, **extents):
    layout = ActivationLayout(c0=c0, **extents)
    return conversion(layout, direction, item, machine(series, cores=cores, ub_bytes=4608))


def weight(series, direction, item, c0, cores, ub_bytes, **extents):
    return conversion(WeightLayout(c0=c0, **extents), direction, item, machine(series, cores=cores, ub_bytes=ub_bytes))


PLANE = {"n": 1, "c": 20, "h": 5, "w": 17}
SMALL_PLANE = {"n": 1, "c": 20, "h": 5, "w": 7}
TINY = {"n": 5, "c": 17, "h": 1, "w": 3}
SQUARE = {"cout": 40, "cin_per_group": 3, "kh": 2, "kw": 2}
GROUPED = {"cout": 10, "cin_per_group": 3, "groups": 5, "kh": 1, "kw": 3}
LONG = {"cout": 5, "cin_per_group": 35, "kh": 4, "kw": 4}
PROGRAMS = {
    "to blocked, exact": lambda: feature_map("910b", "to_blocked", 2, 16, 1, **PLANE),
    "to blocked, blocks": lambda: feature_map("310p", "to_blocked", 4, 8, 1, **PLANE),
    "to blocked, half words": lambda: feature_map("910", "to_blocked", 4, 16, 1, **SMALL_PLANE),
    "from blocked, exact": lambda: feature_map("910b", "from_blocked", 4, 16, 1, **PLANE),
    "from blocked, moved back": lambda: feature_map("310p", "from_blocked", 2, 16, 1, **PLANE),
    "from blocked, half words": lambda: feature_map("910", "from_blocked", 4, 16, 1, **SMALL_PLANE),
    "from blocked, last block": lambda: feature_map("910", "from_blocked", 2, 16, 2, **TINY),
    "to fractal, exact": lambda: weight("910b", "to_fractal", 2, 16, 1, None, **SQUARE),
    "to fractal, groups": lambda: weight("310p", "to_fractal", 4, 8, 1, None, **GROUPED),
    "from fractal, exact": lambda: weight("910b", "from_fractal", 4, 8, 1, None, **SQUARE),
    "from fractal, last block": lambda: weight("310p", "from_fractal", 2, 16, 2, None, **SQUARE),
    "from fractal, half words": lambda: weight("910", "from_fractal", 4, 16, 2, None, **SQUARE),
    "from fractal, last channels first": lambda: weight("310p", "from_fractal", 2, 16, 1, 49152, **LONG),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_trans_data_every_sync_row_removed_one_at_a_time_is_judged_as_the_oracle_judges(name):
    case = PROGRAMS[name]()
    table = case.gm.table()
    rows = issued(emit_rows(case.launch, 0, 0))
    assert closure(rows) == happens_before(rows)
    assert uninitialised(rows, table) == {}
    broken = dict.fromkeys(SYNC_OPS, 0)
    kept = []
    for removed, expected, _ in judged_removals(rows, lambda program: run_hazards_rows(program, case.product, table)):
        op = Op(rows["op"][removed])
        broken[op] += bool(expected)
        if not expected and op == Op.WAIT_FLAG:
            kept.append(f"{Pipe(rows['peer'][removed]).name}_{Pipe(rows['pipe'][removed]).name}")
    assert broken[Op.SET_FLAG] == broken[Op.WAIT_FLAG]
    assert broken[Op.PIPE_BARRIER] == 0  # the vector pipe is in order anyway
    assert (len(rows), broken[Op.WAIT_FLAG], len(kept)) == COUNTS[name], kept


# Rows, waits whose removal breaks an ordering, and waits whose removal breaks nothing: those that open and close the
# program of a core, those before a load into a buffer that was cleared just before (the flag behind the clearing says
# the same), and the one before a store that is left to the last block altogether.
COUNTS = {
    "to blocked, exact": (92, 14, 6),
    "to blocked, blocks": (120, 22, 8),
    "to blocked, half words": (176, 22, 8),
    "from blocked, exact": (126, 35, 2),
    "from blocked, moved back": (84, 14, 4),
    "from blocked, half words": (160, 22, 4),
    "from blocked, last block": (159, 24, 4),
    "to fractal, exact": (93, 10, 4),
    "to fractal, groups": (38, 4, 4),
    "from fractal, exact": (100, 9, 6),
    "from fractal, last block": (110, 7, 6),
    "from fractal, half words": (103, 7, 6),
    "from fractal, last channels first": (105, 9, 6),
}


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize("item", [2, 4])
def test_trans_data_rows_that_spill_over_the_end_of_a_core_are_found(series, item):
    # Without the last block, a core's rounded-up pieces reach into the range of the next core.
    cases = (
        feature_map(series, "from_blocked", item, 16, 3, n=9, c=17, h=1, w=3),
        weight(series, "from_fractal", item, 16, 3, None, cout=90, cin_per_group=3, kh=1, kw=3),
    )
    for case in cases:
        assert case.launch.core_count == 3
        assert run_hazards(case.launch, case.product) == []
        params = case.launch.params.copy()
        params["tails"] = 0
        found = run_hazards(replace(case.launch, params=params), case.product)
        assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD}
        assert {v.core for v in found} == {1, 2}

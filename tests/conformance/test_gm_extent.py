"""Where a row touches GM, from first to last byte: the one look of the timeline against the footprint's runs."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import jit
from npu_sim.isa.footprint import empty_runs, footprint_at
from npu_sim.isa.gm_extent import gm_extent
from npu_sim.isa.op import Op, Space
from npu_sim.products import get_product
from tests.oracles.series import SERIES
from tests.oracles.wild_rows import WildRows, wild_memory

MOVERS = (
    Op.DATA_COPY,
    Op.ND2NZ,
    Op.LOAD_2D,
    Op.FIXPIPE,
    Op.FIXPIPE_QUANT,
    Op.FIXPIPE_SCALES,
    Op.DATA_COPY_PAD,
    Op.SCALAR_COPY,
    Op.SCALAR_LOAD,
    Op.SCALAR_LOOK,
    Op.SCALAR_STORE,
)


@jit
def _extents(rows, out):
    for i in range(len(rows)):
        low, high = gm_extent(rows[i])
        out[i, 0] = low
        out[i, 1] = high


@pytest.mark.parametrize("series", SERIES)
def test_gm_extent_is_that_of_the_footprint(series):
    rows, kinds = WildRows([31, SERIES.index(series)], get_product(series), wild_memory()).rows(4000)
    out = np.zeros((len(rows), 2), np.int64)
    _extents(rows, out)
    runs, seen = empty_runs(), set()
    for at, kind in enumerate(kinds):
        op = int(rows["op"][at])
        if kind not in ("legal", "edge") or op not in MOVERS:
            continue
        touched = runs[: max(0, footprint_at(rows, at, runs))]
        touched = touched[touched[:, 0] == Space.GM]
        if len(touched):
            seen.add(op)
            expected = touched[:, 2].min(), (touched[:, 2] + (touched[:, 4] - 1) * touched[:, 5] + touched[:, 3]).max()
            assert tuple(out[at]) == expected, rows[at]
    assert seen >= {Op.DATA_COPY, Op.LOAD_2D, Op.SCALAR_COPY}
    if series == "910b":
        assert seen == set(MOVERS)

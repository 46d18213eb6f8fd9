"""The shipped weight-gradient kernels: silent as they are, and every synchronising row removed one at a time.

What a removal breaks is decided by brute force: byte sets of every instruction, and the happens-before relation of the
mutated program as explicit edges.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards, run_hazards_rows
from npu_sim.isa.op import Op
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from ops.common.geometry import ConvGeometry
from tests.cases.weight_gradient import plan_weight_gradient
from tests.oracles.footprint import touched_bytes
from tests.oracles.hazards import happens_before
from tests.oracles.programs import SYNC_OPS, issued

HAZARDS = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)
KERNELS = [("910b", "fp16"), ("910b", "fp32"), ("910_93", "bf16"), ("910", "fp16"), ("310p", "fp16")]
SHAPES = {
    "ragged": ((2, 20, 9, 7), (2, 20, 5, 4), (20, 20, 3, 3), 2, 1, 1),
    "groups": ((2, 6, 9, 7), (2, 10, 5, 4), (10, 3, 3, 3), 2, 1, 2),
    "resnet": ((8, 64, 56, 56), (8, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    "points": ((2, 256, 28, 28), (2, 64, 28, 28), (64, 256, 1, 1), 1, 0, 1),
}


def _plan(alias, compute, shape):
    x, dy, weight, stride, pad, groups = SHAPES[shape]
    geometry = ConvGeometry.from_shapes(x, dy, weight, stride, pad, 1, groups)
    return plan_weight_gradient(geometry, get_product(alias), compute)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("alias", "compute"), KERNELS)
def test_hazard_shipped_kernels_are_silent_and_legal(alias, compute, shape):
    plan = _plan(alias, compute, shape)
    assert run_hazards(plan.launches, plan.product) == []
    for launch in plan.launches:
        for core in {0, launch.core_count - 1}:
            for phase in range(launch.phase_count):
                assert verify(emit_rows(launch, core, phase), plan.product) == []


def _conflicting_pairs(rows):
    """Return all pairs (earlier, later) on different pipes that touch a byte in a way that needs an order."""
    touched = [touched_bytes(row) for row in rows]
    pairs = []
    for later in range(len(rows)):
        for earlier in range(later):
            if rows["pipe"][earlier] == rows["pipe"][later]:
                continue
            for (space, access), here in touched[later].items():
                others = [(kind, touched[earlier].get((space, kind))) for kind in range(3)]
                if any(
                    there and (access, kind) not in ((0, 0), (2, 2)) and not here.isdisjoint(there)
                    for kind, there in others
                ):
                    pairs.append((earlier, later))
                    break
    return pairs


@pytest.mark.parametrize(("alias", "compute"), KERNELS)
def test_hazard_shipped_kernel_with_any_sync_row_removed_is_reported_when_that_breaks_an_order(alias, compute):
    plan = _plan(alias, compute, "ragged")
    table = plan.gm.table()
    table[:, 3] = 1  # each launch by itself: what an earlier one cleared is there
    removals = broken = 0
    for launch in plan.launches:
        for phase in range(launch.phase_count):
            rows = issued(emit_rows(launch, 0, phase))
            pairs = _conflicting_pairs(rows)
            for removed in np.flatnonzero(np.isin(rows["op"], SYNC_OPS)).tolist():
                mutant = np.delete(rows, removed)
                before = happens_before(mutant)
                moved = [tuple(at - (at > removed) for at in pair) for pair in pairs]
                expected = {(later, earlier) for earlier, later in moved if not before[later] >> earlier & 1}
                found = run_hazards_rows(mutant, plan.product, table)
                reported = {(v.row, v.other_row) for v in found if v.kind in HAZARDS}
                assert reported <= expected
                assert bool(reported) == bool(expected)
                if expected:
                    assert min(reported)[0] == min(expected)[0]
                if rows["op"][removed] != Op.PIPE_BARRIER:
                    assert any(v.kind in (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE) for v in found)
                removals += 1
                broken += bool(expected)
    assert removals > 25
    assert broken >= 8

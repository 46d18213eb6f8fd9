"""The DSL's schedule on extreme shapes: it refuses what L1 cannot hold and nothing else, and its rows are legal."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

import npu_sim
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import empty_rows
from npu_sim.program.verify import verify
from ops import tbe
from ops.tbe.schedule import l1_minimum_bytes
from tests.oracles.series import DSL
from tests.properties.test_kernel_rows import outside_tensor

CASES = 400
ROW_CASES = 25


def random_call(rng):
    """Shapes and attributes, small or extreme on each axis by itself; None if an output is too large."""
    kernel, strides, dilations, pads, size = [], [], [], [], []
    for axis in range(3):
        kernel.append(rng.randint(1, 3 if axis == 0 else rng.choice((1, 3, 7, 16, 70, 255))))
        strides.append(rng.randint(1, rng.choice((1, 3, 63))))
        dilations.append(rng.randint(1, 3 if axis == 0 else rng.choice((1, 1, 2, 16, 255))))
        dilated = (kernel[axis] - 1) * dilations[axis] + 1
        most = min(dilated - 1, 255, rng.choice((0, 1, 3, 255)))
        pads += [rng.randint(0, most), rng.randint(0, most)]
        size.append(max(rng.randint(1, rng.choice((4, 16, 64, 512, 4096))), dilated - sum(pads[-2:])))
    out = [
        (size[a] + pads[2 * a] + pads[2 * a + 1] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1
        for a in range(3)
    ]
    if max(size + out) > 4096:
        return None
    groups = rng.choice((1, 1, 2, 5, 17))
    cin, cout = groups * rng.randint(1, rng.choice((16, 300))), groups * rng.randint(1, rng.choice((16, 300)))
    batch = rng.choice((1, 3))
    x = tbe.placeholder((batch, size[0], -(-cin // 16), *size[1:], 16), "float16", "x")
    dy = tbe.placeholder((batch, out[0], -(-cout // 16), *out[1:], 16), "float16", "dy")
    layout = rng.choice(("NDCHW", "NCDHW"))
    kd, per_group = kernel[0], cin // groups
    order = (kd, per_group) if layout == "NDCHW" else (per_group, kd)
    depth = (dilations[0], 1) if layout == "NDCHW" else (1, dilations[0])
    para = {
        "strides": strides, "pads": pads, "dilations": [1, *depth, *dilations[1:]], "res_dtype": "float32",
        "kernel_name": "extreme", "group_dict": tbe.calculate_group(cin, cout, groups),
    }  # fmt: skip
    return (x, dy, [cout, *order, *kernel[1:]], para), layout


def outcome(function, *arguments, **keywords):
    """What the call returns and None, or None and the code it is refused with."""
    try:
        return function(*arguments, **keywords), None
    except tbe.TbeError as error:
        return None, error.code


def assert_first_rows_are_legal(plan):
    for launch in plan.launches:
        rows = empty_rows(max(1024, launch.step_rows))
        for core in {0, launch.core_count - 1}:
            core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
            for count in islice(launch.rows(core, 0, rows), 3):
                issue(rows, count, core_state)
                assert verify(rows[:count], plan.product) == []
                assert not len(outside_tensor(rows[:count], plan))


@pytest.mark.parametrize("series", DSL)
def test_schedule_of_extreme_calls_refuses_what_the_vendor_s_check_of_l1_does_and_nothing_else(series):
    rng = random.Random(f"extreme {series}")
    outcomes = {"call": 0, "E60011": 0, "planned": 0, "cut": 0, "rows": 0}
    with npu_sim.use_product(series) as product:
        for _ in range(CASES):
            drawn = random_call(rng)
            if drawn is None:
                continue
            arguments, layout = drawn
            result, code = outcome(tbe.conv3d_backprop_filter, *arguments, filter_layout=layout)
            if result is None:
                assert code == "E62006"
                outcomes["call"] += 1
                continue
            too_large = layout == "NDCHW" and l1_minimum_bytes(result.parameters, product) > product.core.l1_bytes
            plan, code = outcome(tbe.auto_schedule, result)
            if plan is None:
                assert code == "E60011"
                assert too_large
                outcomes[code] += 1
                continue
            assert not too_large
            outcomes["planned"] += 1
            tiling = plan.tiling
            outcomes["cut"] += tiling.w_parts > 1 or tiling.tap_by_tap
            used = tiling.al1_pbuffer * tiling.a1_bytes + tiling.bl1_pbuffer * tiling.b1_bytes
            assert used <= product.core.l1_bytes
            if outcomes["rows"] < ROW_CASES:
                outcomes["rows"] += 1
                assert_first_rows_are_legal(plan)
    if not product.core.load3d_cannot_make_width_one:
        assert outcomes.pop("call") == 0
    assert min(outcomes.values()) > 5

"""Input gradients of dav-c220 that the vector cores write as NCDHW: the bits of the blocked ones, and clean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op, Space
from npu_sim.program.verify import verify
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.tensor_desc import described
from ops.conv_backward.api import plan_convolution_backward
from tests.cases.input_gradient import (
    STORED,
    default_options,
    expected,
    operands,
    plain,
    random_case,
    random_options,
    run,
    setup_of,
)
from tests.differential.test_input_gradient import case_of
from tests.oracles.series import SPLIT
from tests.oracles.weight_gradient import same_bits

CASES = 24


def assert_clean(setup):
    product = setup.case.product
    assert run_hazards(setup.plan.launches, product) == [], setup
    (launch,) = setup.plan.launches
    for phase in range(launch.phase_count):
        for core in range(launch.core_count):
            rows = emit_rows(launch, core, phase)
            assert verify(rows, product, core_kind=launch.kind_of(core)) == [], setup


@pytest.mark.parametrize("series", SPLIT)
@pytest.mark.parametrize("compute", ["fp16", "bf16"])
def test_random_plain_input_gradients_have_the_bits_of_blocked_ones_and_are_clean(series, compute):
    rng = np.random.default_rng([SPLIT.index(series), compute == "bf16", 1512])
    done = 0
    while done < CASES:
        case = random_case(rng, series=series, most_macs=600_000, kind="input_gradient")
        case = replace(case, compute_dtype=compute)
        blocked = setup_of(case)
        setup = plain(blocked)
        if setup is None:
            continue
        done += 1
        a, weight = operands(case)
        np.testing.assert_array_equal(
            run(setup, a, weight, default_options(setup)).astype(np.float64),
            expected(case, a, weight),
            err_msg=f"{case}",
        )
        changed = plain(blocked, rng)
        a, weight = ((rng.standard_normal(one.shape)).astype(STORED[compute]) for one in (a, weight))
        want = run(blocked, a, weight, default_options(blocked))
        assert same_bits(run(changed, a, weight, random_options(rng, changed)), np.ascontiguousarray(want)), case
        if done % 3 == 0:
            assert_clean(setup)
            assert_clean(changed)


@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "attributes"),
    [
        pytest.param((1, 1, 1, 1, 5), (1, 1, 1, 1, 1), {"stride": (1, 1, 2)}, id="less than a block is cleared"),
        pytest.param((1, 3, 6, 7, 7), (8, 3, 2, 1, 1), {"stride": (4, 1, 1)}, id="planes under no window"),
        pytest.param((2, 5, 7, 5, 5), (8, 5, 2, 2, 2), {"dilation": (3, 1, 1)}, id="taps of a plane apart"),
        pytest.param((1, 17, 3, 9, 9), (16, 17, 1, 2, 2), {"stride": (1, 5, 5)}, id="rows and columns"),
        pytest.param((1, 40, 3, 20, 16), (40, 1, 1, 3, 3), {"groups": 40}, id="depthwise"),
        pytest.param((1, 300, 2, 9, 7), (16, 300, 1, 1, 1), {}, id="many channels"),
        pytest.param((7, 16, 5, 11, 1), (16, 16, 1, 1, 1), {"stride": (3, 1, 1)}, id="shares that leave a rest"),
    ],
)
def test_plain_corner_shapes_equal_the_oracle_and_are_clean(x_shape, weight_shape, attributes):
    setup = plain(setup_of(case_of("input_gradient", "bf16", x_shape, weight_shape, **attributes)))
    a, weight = operands(setup.case)
    got = run(setup, a, weight, default_options(setup, threads=2))
    np.testing.assert_array_equal(got.astype(np.float64), expected(setup.case, a, weight))
    assert_clean(setup)


def test_a_block_goes_by_its_slot_to_the_vector_core_of_its_block():
    setup = plain(setup_of(case_of("input_gradient", "fp16", (1, 32, 4, 40, 40), (32, 32, 3, 3, 3), pad=1)))
    (launch,) = setup.plan.launches
    slots = launch.gm.tensors[-1]
    blocks = launch.block_count
    assert launch.core_count == 2 * blocks
    assert setup.plan.private_bytes == SYSTEM_WORKSPACE_BYTES + blocks * 131072
    for block in range(blocks):
        cube, vector = (emit_rows(launch, core, launch.phase_count - 1) for core in (block, blocks + block))
        leaving = cube[cube["op"] == Op.FIXPIPE]
        coming = vector[(vector["op"] == Op.DATA_COPY) & (vector["dst_space"] == Space.UB)]
        assert len(leaving) == len(coming) > 0
        assert {int(row["tensor"]) for row in (*leaving, *coming)} == {slots.index}
        assert set(leaving["dst"]) == set(coming["src0"]) == {slots.address + block * slots.byte_count // blocks}
    timeline = run_timeline(launch, setup.case.product)
    # turning and storing runs beside the Cube's next blocks
    assert max(timeline.core_cycles[:blocks]) < sum(timeline.core_cycles[block] for block in (0, blocks))
    assert all(timeline.busy_cycles[pipe] > 0 for pipe in ("M", "MTE1", "MTE2", "MTE3", "V", "FIX"))


def test_equal_blocks_take_equal_times():
    # one of equal blocks is timed for all, unless all are shown
    setup = plain(setup_of(case_of("input_gradient", "fp16", (2, 32, 5, 30, 30), (32, 32, 3, 3, 3), pad=1, dilation=2)))
    (launch,), product = setup.plan.launches, setup.case.product
    assert launch.phase_count == 2
    one, all_shown = run_timeline(launch, product), run_timeline(launch, product, spans=True)
    assert len(set(one.core_cycles)) < launch.core_count
    for name in ("core_cycles", "phase_cycles", "busy_cycles", "busy_cycles_all_cores", "row_count", "stall_cycles"):
        assert getattr(one, name) == getattr(all_shown, name)
    assert all(
        sum(causes.values()) + one.busy_cycles[pipe] == sum(one.phase_cycles)
        for pipe, causes in one.stall_cycles.items()
    )


ROUTES = {
    "x": (1, 4, 6, 8, 8), "w": (4, 4, 3, 3, 3), "stride": (1, 1, 1), "padding": (0, 0, 0), "dilation": (1, 1, 2),
    "groups": 1, "dtype": "fp16", "cube_math_type": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({}, True),
        ({"dilation": (1, 1, 1)}, False),  # nothing wants it, and planes are small
        ({"dilation": (1, 1, 1), "x": (1, 4, 6, 80, 80)}, True),
        ({"dilation": (1, 1, 1), "x": (1, 4, 86, 80, 80)}, False),
        ({"dilation": (1, 1, 1), "x": (1, 4, 6, 80, 80), "w": (4, 4, 3, 5, 3)}, False),
        ({"dilation": (1, 1, 1), "x": (1, 4, 10, 82, 82), "w": (4, 4, 4, 4, 4), "stride": (3, 3, 3)}, False),
        ({"dilation": (1, 1, 1), "x": (1, 4, 6, 9, 9), "stride": (1, 1, 3)}, False),
        ({"dilation": (1, 1, 1), "x": (1, 4, 6, 9, 10), "stride": (1, 1, 3)}, True),  # a column under no window
        ({"w": (4, 4, 2, 3, 3), "x": (1, 4, 8, 8, 8), "stride": (3, 1, 1)}, False),  # strideD above the kernel's depth
        ({"padding": (3, 0, 0)}, False),  # padding not below the kernel
        ({"x": (1, 4, 3, 8, 1028)}, True),  # 4 rows of 1,024 columns
        ({"x": (1, 4, 3, 8, 1029)}, False),
        ({"dilation": (1, 1, 1), "groups": 2, "w": (4, 2, 3, 3, 3)}, True),
        ({"dtype": "bf16"}, True),
        ({"dtype": "fp32", "dilation": (1, 1, 1), "cube_math_type": 2}, True),  # FP32 tensors always take it
        ({"dtype": "fp32"}, False),  # but write 32-bit results blocked
        ({"dtype": "fp32", "cube_math_type": 1}, False),
        ({"generation": "closed"}, False),
    ],
)
def test_calls_whose_kernel_is_published_to_write_ncdhw_have_no_trans_data_behind_it(changes, is_plain):
    given = ROUTES | changes
    x, w = given["x"], given["w"]
    y = tuple(
        (size + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
        for size, kernel, stride, pad, dilation in zip(
            x[2:], w[2:], given["stride"], given["padding"], given["dilation"], strict=True
        )
    )
    shapes = ((x[0], w[0], *y), x, w)
    plan = plan_convolution_backward(
        *(described(shape, given["dtype"]) for shape in shapes), stride=given["stride"], padding=given["padding"],
        dilation=given["dilation"], groups=given["groups"], cube_math_type=given["cube_math_type"],
        output_mask=(True, False, False), product="910b", generation=given.get("generation", "published"),
    )  # fmt: skip
    steps = [planned.step.name for planned in plan.calls.steps]
    behind = steps[steps.index("Conv3DBackpropInput") + 1 :]
    casts = ["Cast"] * (given["dtype"] == "fp32" and given["cube_math_type"] == 2)
    assert behind == ([] if is_plain else ["TransData"]) + casts

"""TransData between one group and merged groups, against the index maps: rows, random legal orders, steps of calls."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import LayoutError, ShapeError
from npu_sim.layouts.formats import WeightLayout
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.bounds import gm_violations
from npu_sim.program.verify import verify
from ops.common.arguments import Argument
from ops.common.pipeline import Buffer, plan_steps, run_steps
from ops.vector.steps import StepList
from ops.vector.trans_data_groups import trans_data_groups_launch, whole_layout
from tests.oracles.series import SPLIT
from tests.oracles.trans_data import expected, machine, places

ELEMENTS = ((2, 16), (4, 16), (4, 8))
DIRECTIONS = ("to_groups", "from_groups")
# groups, input and output channels of one, depth, height and width of the window
SHAPES = {
    "depthwise": (63, 1, 1, 1, 3, 3),
    "depthwise, two rows": (7, 1, 2, 1, 3, 3),
    "whole blocks": (2, 16, 16, 3, 3, 3),
    "across blocks": (3, 5, 4, 1, 5, 5),
    "across three blocks in depths": (5, 17, 3, 2, 1, 1),
    "many channels": (4, 40, 33, 1, 2, 2),
    "rows in pieces": (2, 9, 700, 1, 1, 3),
    "more than 16 taps": (6, 3, 1, 1, 7, 7),
    "last merged group in part": (18, 5, 2, 2, 3, 1),
    "fewer groups than merged": (3, 3, 5, 1, 1, 1),
}


def layout_of(shape, c0):
    groups, cin, cout, kd, kh, kw = shape
    return WeightLayout(cout=groups * cout, cin_per_group=cin, groups=groups, kd=kd, kh=kh, kw=kw, c0=c0)


def planned(layout, direction, item, product):
    """A launch on a memory of its own: a tensor in front, source, destination, a tensor behind."""
    source, result = whole_layout(layout), layout
    if direction == "from_groups":
        source, result = result, source
    gm = GlobalMemory()
    gm.add("in front", 64, initialised=True)
    src = gm.add("src", source.storage_bytes(item), initialised=True)
    dst = gm.add("dst", result.storage_bytes(item), initialised=True)
    gm.add("behind", 64, initialised=True)
    return trans_data_groups_launch(gm, src, dst, layout, item, direction, product), gm, src, dst


def check(layout, direction, item, product, seed, **options):
    """Run on random memory whose destination is zero, which is what the launch asks for."""
    launch, gm, src, dst = planned(layout, direction, item, product)
    rng = np.random.default_rng(seed)
    gm.arena[:] = rng.integers(0, 256, gm.arena.size, np.uint8)
    words = f"u{item}"
    source, result = (gm.arena[t.address : t.address + t.byte_count].view(words) for t in (src, dst))
    result[:] = 0
    if direction == "to_groups":
        plain = rng.integers(0, 2 ** (8 * item), int(np.prod(layout.logical_shape)), np.uint64).astype(words)
        source[:] = expected(whole_layout(layout), "to_fractal", plain)
    before = gm.arena.copy()
    execute(launch, product, ExecuteOptions(accumulation=SERIAL, **options))
    if direction == "to_groups":
        np.testing.assert_array_equal(result, expected(layout, "to_fractal", plain), err_msg=str(layout))
    else:
        # what a merged group has off its diagonal goes to padding channels
        np.testing.assert_array_equal(result[places(whole_layout(layout))], source[places(layout)], err_msg=str(layout))
    changed = np.flatnonzero(before != gm.arena)
    assert np.all((changed >= dst.address) & (changed < dst.address + dst.byte_count))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_groups_equal_the_index_map(name, direction):
    for item, c0 in ELEMENTS:
        layout = layout_of(SHAPES[name], c0)
        for product in (machine("910b"), machine("910b", cores=3, ub_bytes=32768)):
            check(layout, direction, item, product, 5, poison=True, order="late")
            check(layout, direction, item, product, 6, chunk_rows=1)
            launch, gm, *_ = planned(layout, direction, item, product)
            assert run_hazards(launch, product) == []
            for core in {0, launch.core_count - 1}:
                rows = emit_rows(launch, core, 0)
                assert verify(rows, product) == []
                assert gm_violations(rows, gm.table()) == []
            assert run_timeline(launch, product).total_cycles > 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_shortcut_leaves_every_byte_that_the_rows_leave(direction):
    """Of any source, padding and what merged groups have off their diagonals included, over any destination."""
    rng = np.random.default_rng(41)
    # of groups, channels in and out, depth, height and width
    most = (40, 50, 40, 4, 5, 6)
    shapes = [tuple(int(rng.integers(1, extent)) for extent in most) for _ in range(30)]
    for number, shape in enumerate([*SHAPES.values(), *shapes]):
        item, c0 = ELEMENTS[number % 3]
        layout, product = layout_of(shape, c0), machine(SPLIT[number % len(SPLIT)])
        launch, gm, *_ = planned(layout, direction, item, product)
        gm.arena[:] = given = rng.integers(0, 256, gm.arena.size, np.uint8)
        execute(launch, product, ExecuteOptions(accumulation=SERIAL, shortcuts=False))
        by_rows = gm.arena.copy()
        gm.arena[:] = given
        launch.shortcut(gm, False, 1)
        np.testing.assert_array_equal(gm.arena, by_rows, err_msg=f"{layout}")


def test_random_groups_equal_the_index_map():
    rng = np.random.default_rng(31)
    for number in range(40):
        item, c0 = ELEMENTS[number % 3]
        shape = (
            int(rng.integers(2, 40)), int(rng.integers(1, 40)), int(rng.integers(1, 40)), int(rng.choice((1, 1, 2, 3))),
            int(rng.integers(1, 5)), int(rng.integers(1, 6)),
        )  # fmt: skip
        product = machine(SPLIT[number % len(SPLIT)], cores=int(rng.integers(1, 20)))
        for direction in DIRECTIONS:
            check(layout_of(shape, c0), direction, item, product, number, order=number)


def test_cores_of_a_depthwise_weight_have_two_groups_each():
    layout = layout_of(SHAPES["depthwise"], 16)
    launch, *_ = planned(layout, "to_groups", 2, machine("910b"))
    assert launch.core_count == 32
    assert [len(emit_rows(launch, core, 0)) > 0 for core in range(32)] == [True] * 32
    few, *_ = planned(layout_of((7, 1, 1, 1, 3, 3), 16), "to_groups", 2, machine("910b"))
    assert few.core_count == 7 * 5


def test_weights_of_groups_are_those_that_one_launch_makes():
    layout = layout_of(SHAPES["last merged group in part"], 16)
    weight = Buffer(name="w", shape=layout.logical_shape, dtype="fp16", format="ND", role="input")
    back = Buffer(name="back", shape=layout.logical_shape, dtype="fp16", format="ND", role="output")
    names = {}
    for series in ("910b", "910_93", "310p", "910"):
        steps = StepList(machine(series))
        fractal = steps.to_fractal(weight, layout)
        steps.deliver_fractal(fractal, layout, Argument(buffer=back, shape=back.shape))
        plan = plan_steps(machine(series), steps.steps)
        plan.gm.arena[:] = np.random.default_rng(3).integers(0, 256, plan.gm.arena.size, np.uint8)
        given = plan.gm.view(plan.places[weight], np.uint16, weight.shape).copy()
        run_steps(plan, ExecuteOptions(accumulation=SERIAL))
        np.testing.assert_array_equal(plan.gm.view(plan.places[back], np.uint16, back.shape), given, err_msg=series)
        assert run_hazards(list(plan.launches), machine(series)) == []
        names[series] = [planned.step.name for planned in plan.steps]
    own = ["MemSet", "TransData", "MemSet", "TransData", "MemSet", "TransData", "TransData"]
    one = ["TransData", "TransData"]
    assert names == {"910b": own, "910_93": own, "310p": one, "910": one}


def test_the_destination_of_16_bit_weights_is_cleared_and_that_of_blocks_of_8_is_not():
    for dtype, c0, wanted in (("fp16", 16, ["MemSet", "TransData"]), ("fp32", 8, ["TransData"])):
        layout = WeightLayout(cout=32, cin_per_group=32, kh=3, kw=3, c0=c0)
        steps = StepList(machine("910b"))
        steps.to_fractal(Buffer(name="w", shape=layout.logical_shape, dtype=dtype, format="ND", role="input"), layout)
        assert [step.name for step in steps.steps] == wanted


def test_what_does_not_fit_is_refused():
    layout, product = layout_of(SHAPES["depthwise"], 16), machine("910b")
    gm = GlobalMemory()
    small, large = (gm.add(name, 64, initialised=True) for name in ("small", "large"))
    with pytest.raises(ShapeError, match="Tensor small must have 18432 bytes, not 64"):
        trans_data_groups_launch(gm, small, large, layout, 2, "to_groups", product)
    with pytest.raises(LayoutError, match="must be blocks of 32 bytes, not 16 elements of 1 bytes"):
        trans_data_groups_launch(gm, small, large, layout, 1, "to_groups", product)
